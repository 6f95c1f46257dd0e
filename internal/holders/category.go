package holders

// Category is the purpose of a request.
type Category uint8

// The categories, in the order of reports.
const (
	Unknown Category = iota
	Parameter
	Gradient
	OptimizerState
	Activation
	Input
	Temporary
	Workspace
	numCategories
)

var categoryNames = [numCategories]string{
	"unknown", "parameter", "gradient", "optimizer state", "activation", "input", "temporary", "workspace",
}

func (c Category) String() string {
	if c < numCategories {
		return categoryNames[c]
	}
	return "unknown"
}

// Categories lists all of them, Unknown last.
func Categories() []Category {
	return []Category{Parameter, Gradient, OptimizerState, Activation, Input, Temporary, Workspace, Unknown}
}

// Rule is what decided the category of a request.
type Rule uint8

// The rules.
const (
	ruleNoSteps Rule = iota
	ruleRefused
	rulePreexisting
	rulePreexistingBuilt
	rulePreexistingOptimizer
	rulePreexistingParameter
	rulePreexistingState
	ruleSetupStays
	ruleSetupFreed
	ruleSetupDies
	ruleForwardOnlyStays
	ruleForwardOnlyInput
	ruleForwardOnlyScratch
	ruleForwardOnlyFreed
	ruleInput
	ruleForwardFreed
	ruleForwardScratch
	ruleForwardSaved
	ruleForwardOutput
	ruleForwardOpen
	ruleForwardStaysOnce
	ruleForwardStays
	ruleBackwardFreed
	ruleRecomputed
	ruleGradient
	ruleGradientKept
	ruleGradientOpen
	ruleBackwardOpen
	ruleBackwardStaysOnce
	ruleBackwardStays
	ruleBackwardOdd
	ruleOptimizerStays
	ruleOptimizerFreed
	ruleAttempt
	ruleBetweenOpen
	ruleBetweenFreed
	ruleBetweenStays
	numRules
)

// rules says in words what each rule saw, and the category it gives.
var rules = [numRules]struct {
	category Category
	text     string
}{
	ruleNoSteps:              {Unknown, "no training step and no model was found in the timeline"},
	ruleRefused:              {Unknown, "the request was refused"},
	rulePreexisting:          {Unknown, "alive before the recording began"},
	rulePreexistingBuilt:     {Parameter, "alive before the recording began and never freed; its stack builds or moves a model"},
	rulePreexistingOptimizer: {OptimizerState, "alive before the recording began and never freed; its stack is that of an optimizer"},
	rulePreexistingParameter: {Parameter, "alive before the recording began and never freed; its size is that of a gradient, and it is the first such block"},
	rulePreexistingState:     {OptimizerState, "alive before the recording began and never freed; its size is that of a gradient whose parameter is another block"},
	ruleSetupStays:           {Parameter, "born before the first forward pass and alive through all steps"},
	ruleSetupFreed:           {Temporary, "born and freed before the first forward pass"},
	ruleSetupDies:            {Unknown, "born before the first forward pass and freed between later ones"},
	ruleForwardOnlyStays:     {Unknown, "born in a forward pass without a backward pass, and kept"},
	ruleForwardOnlyInput:     {Input, "born outside of the model right before its first forward pass, and kept"},
	ruleForwardOnlyScratch:   {Workspace, "born inside a convolution or matrix product in a forward pass without backward and kept, as all of its size there"},
	ruleForwardOnlyFreed:     {Temporary, "born and freed in a forward pass without a backward pass"},
	ruleInput:                {Input, "born at the start of a forward pass outside the model, alive when backward began"},
	ruleForwardFreed:         {Temporary, "born and freed in the same forward pass"},
	ruleForwardScratch:       {Workspace, "born inside a convolution or matrix product and freed by the next event"},
	ruleForwardSaved:         {Activation, "born in forward, freed in backward"},
	ruleForwardOutput:        {Activation, "born in forward, alive through backward, freed before the next backward (output or loss)"},
	ruleForwardOpen:          {Activation, "born in forward and alive where the recording ends, before its backward"},
	ruleForwardStaysOnce:     {Workspace, "born in the first forward pass inside a library call, never freed, and not born again in later steps"},
	ruleForwardStays:         {Unknown, "born in forward and still alive steps later"},
	ruleBackwardFreed:        {Temporary, "born and freed in the same backward pass"},
	ruleRecomputed:           {Activation, "born in backward from a module's forward (recomputed by checkpointing), freed in the same backward"},
	ruleGradient:             {Gradient, "born in backward, alive at its end, freed by the optimizer step, zero_grad or the next step"},
	ruleGradientKept:         {Gradient, "born in backward, kept between steps; its size is that of a parameter"},
	ruleGradientOpen:         {Gradient, "born in backward and alive where the recording ends; its size is that of a parameter"},
	ruleBackwardOpen:         {Temporary, "born in backward and alive where the recording ends"},
	ruleBackwardStaysOnce:    {Workspace, "born in the first backward pass, never freed; no parameter has its size"},
	ruleBackwardStays:        {Unknown, "born in backward of a later step and never freed"},
	ruleBackwardOdd:          {Temporary, "born in backward, freed in a later pass of the same step"},
	ruleOptimizerStays:       {OptimizerState, "born in an optimizer step and alive in the following steps"},
	ruleOptimizerFreed:       {Temporary, "born and freed in the same optimizer step"},
	ruleAttempt:              {Activation, "born in a forward pass that a refused request ended"},
	ruleBetweenOpen:          {Activation, "born in a pass that training does not make, alive where the program died"},
	ruleBetweenFreed:         {Temporary, "born and freed outside of training steps"},
	ruleBetweenStays:         {Unknown, "born outside of training steps, and kept"},
}

// Category returns what the rule makes of a request.
func (r Rule) Category() Category { return rules[r].category }

func (r Rule) String() string { return rules[r].text }
