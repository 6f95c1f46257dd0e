package holders

import "vramscope/trace"

// lifetimes of steps that the rules compare with, by step and pass.
type passBounds struct {
	backward, backwardEnd int32 // events
	optimizer, end        int32 // of its step
	next                  int32 // the backward after it, or the program's last request
	firstModule           int32 // event of the first request inside a module
	last                  bool  // no backward follows
}

// categorize finds the rule of each request from where it was born and where
// it died: a few passes over the requests.
func (a *Analysis) categorize() {
	req := a.Program.Requests
	a.Rules = make([]Rule, len(req))
	bounds := a.bounds()
	sizes := a.setupSizes()
	stays := a.staysPerStack()
	start := int32(a.firstForward())
	modelled := len(a.Steps) > 0 || a.hasKind(Evaluation) || a.hasKind(Generation)
	var kept []int32 // by a forward pass in a recording without backward
	entered := false // its first request inside a module was seen
	for i := range req {
		if a.phase[i] < 0 {
			a.Rules[i] = rulePreexisting
			continue
		}
		ph := &a.Phases[a.phase[i]]
		site := &a.sites[a.stacks[i]]
		free := req[i].Free
		alive := free < 0 || free >= a.teardown // through all steps
		switch {
		case a.refused(i):
			a.Rules[i] = ruleRefused
		case !modelled:
			a.Rules[i] = ruleNoSteps
		case ph.Kind == Setup:
			a.Rules[i] = setupRule(free, start, alive)
		case ph.Step < 0 && len(a.Steps) == 0 && (ph.Kind == Evaluation || ph.Kind == Generation):
			entered = entered || site.role == roleForward
			switch {
			case !alive:
				a.Rules[i] = ruleForwardOnlyFreed
			case !entered && site.role == roleUser:
				a.Rules[i] = ruleForwardOnlyInput
			default:
				a.Rules[i] = ruleForwardOnlyStays
				kept = append(kept, int32(i))
			}
		case ph.Kind == Attempt && !alive && site.role == roleForward:
			a.Rules[i] = ruleAttempt
		case (ph.Kind == Evaluation || ph.Kind == Generation) && alive && diedIn(a, ph):
			a.Rules[i] = ruleBetweenOpen
		case ph.Step < 0 && alive:
			a.Rules[i] = ruleBetweenStays
		case ph.Step < 0:
			a.Rules[i] = ruleBetweenFreed
		default:
			b := &bounds[ph.Step][ph.Pass]
			open := !a.Steps[ph.Step].Complete && alive
			switch ph.Kind {
			case Forward:
				rule := forwardRule(req[i].Event, free, b, site, alive, open)
				if rule == ruleForwardStays && ph.Step == 0 && site.role == roleForward && stays[a.stacks[i]] == 1 {
					rule = ruleForwardStaysOnce
				}
				a.Rules[i] = rule
			case Backward:
				a.Rules[i] = backwardRule(free, b, site, alive, open, sizes[req[i].Size], ph.Step == 0)
			default:
				a.Rules[i] = ruleOptimizerFreed
				if alive || free >= b.end {
					a.Rules[i] = ruleOptimizerStays
				}
			}
		}
	}
	a.keptWorkspaces(kept)
	a.categorizePreexisting()
}

// diedIn reports whether the program's last request was refused in a phase.
func diedIn(a *Analysis, ph *Phase) bool {
	n := len(a.Program.Requests)
	return a.endsRefused() && int(a.Program.Requests[n-1].Event) >= ph.First && int(a.Program.Requests[n-1].Event) < ph.End
}

func setupRule(free, start int32, alive bool) Rule {
	switch {
	case alive:
		return ruleSetupStays
	case free < start:
		return ruleSetupFreed
	}
	return ruleSetupDies
}

// keptWorkspaces tells the workspaces of cuBLAS among what inference keeps:
// inside a matrix product, nothing of their size is ever given back.
func (a *Analysis) keptWorkspaces(kept []int32) {
	if len(kept) == 0 {
		return
	}
	type key struct {
		stack trace.StackID
		size  int64
	}
	freed := map[key]bool{}
	for i := range a.Rules {
		if a.Rules[i] == ruleForwardOnlyFreed {
			freed[key{a.stacks[i], a.Program.Requests[i].Size}] = true
		}
	}
	for _, i := range kept {
		if s := a.stacks[i]; a.sites[s].scratch && !freed[key{s, a.Program.Requests[i].Size}] {
			a.Rules[i] = ruleForwardOnlyScratch
		}
	}
}

func forwardRule(event, free int32, b *passBounds, site *Site, alive, open bool) Rule {
	switch {
	case free >= 0 && free < b.backward:
		if free == event+1 && site.scratch {
			return ruleForwardScratch
		}
		return ruleForwardFreed
	case site.role == roleUser && event < b.firstModule && (!alive || open || b.last):
		return ruleInput
	case open:
		return ruleForwardOpen
	case free >= 0 && free < b.backwardEnd:
		return ruleForwardSaved
	case free >= 0 && free < b.next || b.last && site.role == roleUser:
		return ruleForwardOutput
	case !alive:
		return ruleForwardOutput
	}
	return ruleForwardStays
}

func backwardRule(free int32, b *passBounds, site *Site, alive, open, sized, first bool) Rule {
	switch {
	case free >= 0 && free < b.backwardEnd:
		if site.recompute {
			return ruleRecomputed
		}
		return ruleBackwardFreed
	case open && sized:
		return ruleGradientOpen
	case open:
		return ruleBackwardOpen
	case !alive && free < b.optimizer:
		return ruleBackwardOdd
	case !alive && free < max(b.next, b.end):
		return ruleGradient
	case sized:
		return ruleGradientKept
	case first:
		return ruleBackwardStaysOnce
	}
	return ruleBackwardStays
}

// bounds collects the events that the rules compare lifetimes with.
func (a *Analysis) bounds() [][]passBounds {
	out := make([][]passBounds, len(a.Steps))
	next := a.teardown
	for i := len(a.Steps) - 1; i >= 0; i-- {
		s := &a.Steps[i]
		out[i] = make([]passBounds, len(s.Passes))
		for j := len(s.Passes) - 1; j >= 0; j-- {
			p := &s.Passes[j]
			out[i][j] = passBounds{
				backward: int32(p.Backward.First), backwardEnd: int32(p.Backward.End),
				optimizer: int32(s.Optimizer.First), end: int32(s.End), next: next, firstModule: int32(p.Forward.End),
				last: next == a.teardown,
			}
			next = int32(p.Backward.First)
		}
	}
	// The first request inside a module of each forward pass.
	req := a.Program.Requests
	for i := range req {
		if a.phase[i] < 0 {
			continue
		}
		ph := &a.Phases[a.phase[i]]
		if ph.Kind == Forward && a.sites[a.stacks[i]].role == roleForward {
			b := &out[ph.Step][ph.Pass]
			b.firstModule = min(b.firstModule, req[i].Event)
		}
	}
	return out
}

// setupSizes are the requested sizes of what was born before the first step
// and stays: parameters, to tell gradients by.
func (a *Analysis) setupSizes() map[int64]bool {
	sizes := map[int64]bool{}
	for i := range a.Program.Requests {
		r := &a.Program.Requests[i]
		if a.phase[i] < 0 || a.Phases[a.phase[i]].Kind == Setup && (r.Free < 0 || r.Free >= a.teardown) {
			sizes[r.Size] = true
		}
	}
	return sizes
}

// staysPerStack counts the steps in whose forward a stack made something that
// stays to the end of the steps or beyond the following step.
func (a *Analysis) staysPerStack() []int32 {
	counts := make([]int32, len(a.sites))
	lastStep := make([]int32, len(a.sites))
	for i := range a.Program.Requests {
		r := &a.Program.Requests[i]
		if a.phase[i] < 0 || r.Free >= 0 && r.Free < a.teardown {
			continue
		}
		ph := &a.Phases[a.phase[i]]
		if s := a.stacks[i]; ph.Kind == Forward && a.Steps[ph.Step].Complete && lastStep[s] != int32(ph.Step)+1 {
			lastStep[s] = int32(ph.Step) + 1
			counts[s]++
		}
	}
	return counts
}

func (a *Analysis) hasKind(k PhaseKind) bool {
	for i := range a.Phases {
		if a.Phases[i].Kind == k {
			return true
		}
	}
	return false
}

// firstForward is the event at which the first pass of a model begins.
func (a *Analysis) firstForward() int {
	for i := range a.Phases {
		if k := a.Phases[i].Kind; k == Forward || k == Evaluation || k == Generation {
			return a.Phases[i].First
		}
	}
	return a.Program.Device.Events.Len()
}

// categorizePreexisting tells parameters and optimizer state among the blocks
// that were alive before the recording began. The snapshot keeps the stacks of
// live blocks, if they were recorded. Without one the sizes of gradients tell:
// of the blocks of a size as many as there are gradients of it are taken for
// parameters and the others for the optimizer's, so that buffers of the same
// size count as state. Which block is which is a guess, the sums hardly are.
func (a *Analysis) categorizePreexisting() {
	req := a.Program.Requests
	gradients := map[int64]int{} // of one step, by size
	step := -1
	for i := range req {
		if a.phase[i] < 0 || a.Rules[i] != ruleGradient {
			continue
		}
		ph := &a.Phases[a.phase[i]]
		if step < 0 {
			step = ph.Step
		}
		if ph.Step == step {
			gradients[req[i].Size]++
		}
	}
	for i, b := range a.Program.History().Preexisting {
		if i >= len(req) || b.State == trace.PendingFree || b.Freed >= 0 && b.Freed < int(a.teardown) {
			continue
		}
		r := &req[i]
		n, ok := gradients[r.Size]
		role := a.sites[a.stacks[i]].role
		switch {
		case role == roleOptimizer:
			a.Rules[i] = rulePreexistingOptimizer
		case role == roleLoad:
			a.Rules[i] = rulePreexistingBuilt
		case role != roleNone || !ok:
		case n > 0:
			gradients[r.Size]--
			a.Rules[i] = rulePreexistingParameter
		default:
			a.Rules[i] = rulePreexistingState
		}
	}
}
