package diagnose

import (
	"regexp"
	"strings"

	"vramscope/internal/holders"
	"vramscope/trace"
)

// activity is what the program was doing at the moment under discussion. The
// phases of the timeline tell, but for a pass that a refusal ended: there the
// stack does.
func (s *subject) activity() holders.PhaseKind {
	ph, ok := s.a.PhaseOf(s.at)
	if !ok {
		return holders.Other
	}
	if ph.Kind != holders.Attempt && ph.Kind != holders.Forward && ph.Kind != holders.Other && ph.Kind != holders.Teardown {
		return ph.Kind
	}
	stack := s.p.Device.Events.Stack[s.at]
	switch {
	case inFile(s.p.Trace, stack, copyFiles):
		return holders.Saving
	case inFile(s.p.Trace, stack, generateFiles):
		return holders.Generation
	case completeSteps(s.a) > 0 && s.fatal != nil && s.evaluates(stack):
		return holders.Evaluation
	}
	return ph.Kind
}

// Files that tell what a stack is about.
var (
	copyFiles     = []string{"/copy.py", "torch/serialization.py"} // Python's copy.deepcopy, torch.save
	generateFiles = []string{"transformers/generation/utils.py"}
	cacheFiles    = []string{"transformers/cache_utils.py"} // since 4.36
)

// evaluationName matches how people call their evaluation.
var evaluationName = regexp.MustCompile(`(?i)(^|_)(eval|evaluate|evaluation|valid|validate|validation|test|predict|infer|inference|score)(_|$)`)

// evaluates reports whether a stack is of a pass that training does not make:
// none of its user's calls is on the way to a training step's forward pass, or
// one has the name of an evaluation.
func (s *subject) evaluates(stack trace.StackID) bool {
	trains := map[trace.FrameID]bool{}
	for i := range s.a.Steps {
		step := &s.a.Steps[i]
		if !step.Complete || len(step.Passes) == 0 {
			continue
		}
		f := step.Passes[0].Forward
		for e := f.First; e < f.End; e++ {
			for _, id := range s.p.Trace.Stacks.Calls(s.p.Device.Events.Stack[e]) {
				trains[id] = true
			}
		}
		break
	}
	outside, named := true, false
	for _, id := range s.p.Trace.Stacks.Calls(stack) {
		f := s.p.Trace.Stacks.Frame(id)
		if strings.Contains(f.File, "site-packages/") || strings.Contains(f.File, "dist-packages/") || strings.HasPrefix(f.File, "<") {
			continue
		}
		named = named || evaluationName.MatchString(f.Function)
		outside = outside && !trains[id]
	}
	return named || outside
}
