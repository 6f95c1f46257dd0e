package holders

import "sort"

// PhaseKind is what the program was doing.
type PhaseKind uint8

// The kinds of phases.
const (
	Setup      PhaseKind = iota // before the first step: building, loading, moving the model
	Forward                     // a forward pass that a backward pass follows, or may
	Backward                    // the backward pass
	Optimizer                   // the optimizer's step, and dropping the gradients
	Evaluation                  // a forward pass without backward
	Generation                  // text is generated
	Saving                      // a checkpoint is written
	Loading                     // a model is built or loaded after the first step
	Attempt                     // a forward pass that a refused request ended
	Other                       // requests of no known kind
	Teardown                    // after the last step
	numPhaseKinds
)

var phaseNames = [numPhaseKinds]string{
	"setup", "forward", "backward", "optimizer step", "evaluation", "generation", "checkpoint saving", "loading",
	"failed attempt", "other", "end",
}

func (k PhaseKind) String() string { return phaseNames[min(int(k), int(numPhaseKinds)-1)] }

// Phase is a range of events with one kind of work.
type Phase struct {
	Kind       PhaseKind
	First, End int // events [First, End)
	Step       int // index in Steps, -1 outside of steps
	Pass       int // micro-batch of the step
}

// fillPhases lays phases over the whole timeline: those of the steps, and
// what lies between them by the roles of its requests.
func (a *Analysis) fillPhases() {
	req := a.Program.Requests
	at := 0
	end := a.Program.Device.Events.Len()
	model := len(a.Steps) > 0
	for i := 0; i < len(req) && !model; i++ {
		r := a.sites[a.stacks[i]].role
		model = r == roleForward || r == roleLoad
	}
	request := int32(0)
	for request < int32(len(req)) && req[request].Event < 0 {
		request++
	}
	add := func(k PhaseKind, first, last, step, pass int) {
		if first >= last {
			return
		}
		id := int32(len(a.Phases))
		a.Phases = append(a.Phases, Phase{k, first, last, step, pass})
		for request < int32(len(req)) && int(req[request].Event) < last {
			a.phase[request] = id
			request++
		}
		at = last
	}
	for i := range a.Steps {
		s := &a.Steps[i]
		a.fillGap(at, s.First, i == 0, add)
		for j, p := range s.Passes {
			if j > 0 {
				a.fillGap(at, p.Forward.First, false, add)
			}
			add(Forward, p.Forward.First, p.Forward.End, i, j)
			add(Backward, p.Backward.First, p.Backward.End, i, j)
		}
		a.fillGap(at, s.Optimizer.First, false, add)
		add(Optimizer, s.Optimizer.First, s.Optimizer.End, i, len(s.Passes)-1)
	}
	a.teardown = int32(a.lastUse(at))
	if at < int(a.teardown) {
		a.fillGap(at, int(a.teardown), model && len(a.Steps) == 0, add)
	}
	add(Teardown, int(a.teardown), end, -1, 0)
}

// lastUse returns the event after the last request, not before from.
func (a *Analysis) lastUse(from int) int {
	if n := len(a.Program.Requests); n > 0 {
		return max(from, int(a.Program.Requests[n-1].Event)+1)
	}
	return from
}

// fillGap splits events [first, end) outside of steps by the roles of the
// requests there. Setup says that no step precedes them: they prepare the
// model, if there is one.
func (a *Analysis) fillGap(first, end int, setup bool, add func(PhaseKind, int, int, int, int)) {
	if first >= end {
		return
	}
	req := a.Program.Requests
	q := sort.Search(len(req), func(i int) bool { return int(req[i].Event) >= first })
	if q == len(req) || int(req[q].Event) >= end {
		k := Other
		if setup {
			k = Setup
		} else if q == len(req) {
			k = Teardown
		}
		add(k, first, end, -1, 0)
		return
	}
	kind, from := Other, first
	for ; q < len(req) && int(req[q].Event) < end; q++ {
		k := kind
		switch a.sites[a.stacks[q]].role {
		case roleForward:
			k = Evaluation
		case roleGenerate:
			k = Generation
		case roleSave:
			k = Saving
		case roleLoad:
			k = Loading
		}
		if a.refused(q) && q < int(a.dying) {
			k = Attempt
		}
		if k == Loading && setup {
			k = Setup
		}
		if k == kind {
			continue
		}
		// What came before a telling request belongs to it, but for loading.
		if kind != Other && !(kind == Evaluation && k == Attempt) {
			cut := int(req[q].Event)
			if kind == Setup && (k == Evaluation || k == Attempt) {
				for c := q - 1; c >= 0 && a.sites[a.stacks[c]].role == roleUser && int(req[c].Event) > from; c-- {
					cut = int(req[c].Event) // its inputs
				}
			}
			add(kind, from, cut, -1, 0)
			from = cut
		}
		kind = k
	}
	if kind == Other && setup {
		kind = Setup
	}
	add(kind, from, end, -1, 0)
}
