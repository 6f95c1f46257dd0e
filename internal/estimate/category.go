package estimate

// Category says what memory is for, in the words of the vocabulary.
type Category uint8

// The categories.
const (
	Parameter Category = iota
	Gradient
	OptimizerState
	Activation
	InputData
	Temporary
	Workspace
	numCategories
)

var categoryNames = [numCategories]string{"parameter", "gradient", "optimizer_state", "activation", "input", "temporary", "workspace"}

func (c Category) String() string { return categoryNames[c] }
