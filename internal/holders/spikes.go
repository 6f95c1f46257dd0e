package holders

import (
	"cmp"
	"slices"

	"vramscope/replay"
)

// PhasePeak is the most memory during all phases of a kind.
type PhasePeak struct {
	Kind      PhaseKind
	Allocated int64 // bytes, the most in any phase of the kind
	Reserved  int64
	Phase     int // index in Phases of the one with the most allocated bytes
}

// PhasePeaks returns the peak of each kind of phase, most allocated first.
func (a *Analysis) PhasePeaks() []PhasePeak {
	var peaks [numPhaseKinds]PhasePeak
	for i := range peaks {
		peaks[i] = PhasePeak{Kind: PhaseKind(i), Phase: -1}
	}
	for i := range a.Phases {
		p := &peaks[a.Phases[i].Kind]
		if v := a.phasePeak[i].allocated; v > p.Allocated || p.Phase < 0 {
			p.Allocated, p.Phase = v, i
		}
		p.Reserved = max(p.Reserved, a.phasePeak[i].reserved)
	}
	out := slices.DeleteFunc(peaks[:], func(p PhasePeak) bool { return p.Phase < 0 })
	slices.SortStableFunc(out, func(x, y PhasePeak) int { return -cmp.Compare(x.Allocated, y.Allocated) })
	return out
}

// StepPeak is the most memory of one step.
type StepPeak struct{ Allocated, Reserved int64 }

// StepPeaks returns the peak of each step, its forward, backward and
// optimizer phases together.
func (a *Analysis) StepPeaks() []StepPeak {
	out := make([]StepPeak, len(a.Steps))
	for i := range a.Phases {
		if s := a.Phases[i].Step; s >= 0 {
			out[s].Allocated = max(out[s].Allocated, a.phasePeak[i].allocated)
			out[s].Reserved = max(out[s].Reserved, a.phasePeak[i].reserved)
		}
	}
	return out
}

// Logits are the large tensors around the loss that were alive at a moment.
type Logits struct {
	Bytes   int64 // allocated, of all of them
	Largest int64
	Blocks  int
	Lines   []string // where they were made, largest first
}

// A tensor is one of the logits if it is as large as the largest made in the
// last part of the forward pass or the first of the backward (times or by
// two: other precisions), and larger than most activations.
const (
	logitsWindow = 20 // requests on either side of the end of forward, at least
	logitsShare  = 20 // at least 1/20 of what was allocated
)

// Logits finds the tensors of batch × sequence × vocabulary that were alive at
// a moment: few and huge, made where forward ends and backward begins. ok is
// false where there are none, or the moment is outside of steps.
func (a *Analysis) Logits(event int) (l Logits, ok bool) {
	ph, found := a.PhaseOf(event)
	if !found || ph.Step < 0 || ph.Kind != Forward && ph.Kind != Backward {
		return l, false
	}
	pass := a.Steps[ph.Step].Passes[ph.Pass]
	req := a.Program.Requests
	turn, _ := slices.BinarySearchFunc(req, pass.Backward.First, func(r replay.Request, e int) int { return cmp.Compare(int(r.Event), e) })
	first, _ := slices.BinarySearchFunc(req, pass.Forward.First, func(r replay.Request, e int) int { return cmp.Compare(int(r.Event), e) })
	window := max(logitsWindow, (turn-first)/20)
	near := func(i int) bool { return i >= max(turn-window, first) && i < turn+window }
	live, largest := int64(0), int64(0)
	for i := range a.Live(event) {
		live += a.Allocated[i]
		if near(i) {
			largest = max(largest, req[i].Size)
		}
	}
	// Unlike logits, the activations of a model's last layer are as large as
	// those of the layers before it.
	peers := 0
	for i := first; i < turn-window; i++ {
		if req[i].Size*4 >= largest && a.Category(i) == Activation {
			peers++
		}
	}
	if largest == 0 || peers > 0 {
		return l, false
	}
	var ids []int
	for i := range a.Live(event) {
		if near(i) && req[i].Size*4 >= largest {
			l.Bytes += a.Allocated[i]
			l.Largest = max(l.Largest, a.Allocated[i])
			l.Blocks++
			ids = append(ids, i)
		}
	}
	slices.SortStableFunc(ids, func(x, y int) int { return -cmp.Compare(a.Allocated[x], a.Allocated[y]) })
	for _, i := range ids {
		if name := a.requestName(i); !slices.Contains(l.Lines, name) {
			l.Lines = append(l.Lines, name)
		}
	}
	return l, l.Bytes*logitsShare >= live
}

// Variation says how the sizes of the same requests differ between steps.
type Variation struct {
	Steps int // that were compared
	// Least and Most bytes that a step's forward pass asked for, in requests
	// other than workspaces.
	Least, Most int64
	// Sizes is the number of different such sums.
	Sizes int
}

// Variable reports whether the steps differ by more than a tenth.
func (v Variation) Variable() bool { return v.Steps >= 2 && v.Sizes >= 2 && v.Most*10 > v.Least*11 }

// Variation compares the complete forward passes of the steps: the same sites
// with other sizes mean that the program's inputs vary.
func (a *Analysis) Variation() Variation {
	var v Variation
	sums := map[int64]bool{}
	req := a.Program.Requests
	passes := map[[2]int]int64{}
	for i := range req {
		if a.phase[i] < 0 {
			continue
		}
		ph := &a.Phases[a.phase[i]]
		if ph.Kind != Forward || ph.Step < 0 || a.Steps[ph.Step].Passes[ph.Pass].Backward.Empty() {
			continue
		}
		if c := a.Category(i); c == Activation || c == Input {
			passes[[2]int{ph.Step, ph.Pass}] += req[i].Size
		}
	}
	for _, s := range passes {
		if v.Steps == 0 || s < v.Least {
			v.Least = s
		}
		v.Most = max(v.Most, s)
		v.Steps++
		sums[s] = true
	}
	v.Sizes = len(sums)
	return v
}
