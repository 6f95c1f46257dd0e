package diagnose

import "vramscope/internal/holders"

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
	}
	return ph.Kind
}

// Files that tell what a stack is about.
var (
	copyFiles     = []string{"/copy.py", "torch/serialization.py"} // Python's copy.deepcopy, torch.save
	generateFiles = []string{"transformers/generation/utils.py"}
	cacheFiles    = []string{"transformers/cache_utils.py"} // since 4.36
)
