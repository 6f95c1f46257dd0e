package holders

import (
	"sort"

	"vramscope/replay"
	"vramscope/trace"
)

// Fit is a program known at two batch sizes: the size of each request as a
// line through both.
type Fit struct {
	base     *Analysis
	batch    int     // of base
	other    int     // of the second recording
	partner  []int64 // by request of base: its size at the other batch, -1 if it has none there
	scales   []bool  // what to do with those without a partner
	Matched  int     // requests with a partner
	Requests int     // that are not refused
}

// FitBatches aligns two recordings of one program at different batch sizes:
// step by step and phase by phase, each request with the one that the same
// code made at the same place. The requests of the first are kept in their
// order; batches must differ. Where a has more steps than b its later ones are
// aligned with b's last. Of two recordings the longer is the better first one:
// what the program would do after the end of a is not known.
func FitBatches(a *Analysis, batch int, b *Analysis, other int) *Fit {
	f := &Fit{base: a, batch: batch, other: other, partner: make([]int64, len(a.Program.Requests)), scales: a.Scales()}
	for i := range f.partner {
		f.partner[i] = -1
		if !a.refused(i) {
			f.Requests++
		}
	}
	keys := map[string]int32{}
	ka, kb := a.stackKeys(keys), b.stackKeys(keys)
	from, to := a.byPhase(), b.byPhase()
	aligned := map[int][2]int{} // the last range of a that was aligned with a phase of b
	phases := b.indexPhases()
	var seen [numPhaseKinds]int // phases of a outside of steps, by kind
	for i, want := range a.Phases {
		j := phases.same(want, seen[want.Kind])
		if want.Step < 0 {
			seen[want.Kind]++
		}
		if j < 0 {
			continue
		}
		if done, ok := aligned[j]; !ok || !f.repeat(done, from[i]) {
			f.align(from[i], to[j], a, b, ka, kb)
		}
		aligned[j] = from[i]
	}
	return f
}

// repeat copies an alignment to a range of the same requests: most steps
// repeat the one before.
func (f *Fit) repeat(done, next [2]int) bool {
	if done[1]-done[0] != next[1]-next[0] {
		return false
	}
	a := f.base
	for i, k := done[0], next[0]; i < done[1]; i, k = i+1, k+1 {
		if a.stacks[i] != a.stacks[k] || a.Program.Requests[i].Size != a.Program.Requests[k].Size {
			return false
		}
	}
	for i, k := done[0], next[0]; i < done[1]; i, k = i+1, k+1 {
		if f.partner[k] = f.partner[i]; f.partner[k] >= 0 {
			f.Matched++
		}
	}
	return true
}

// stackKeys numbers stacks by their text, across recordings.
func (a *Analysis) stackKeys(keys map[string]int32) []int32 {
	out := make([]int32, len(a.sites))
	var text []byte
	for id := range out {
		text = text[:0]
		for f := range a.Program.Trace.Stacks.All(trace.StackID(id)) {
			if kindOf(&f) == nativeFrame {
				continue
			}
			text = append(text, f.File...)
			text = append(text, ':')
			text = append(text, f.Function...)
			text = append(text, byte(f.Line), byte(f.Line>>8), byte(f.Line>>16), '\n')
		}
		n, ok := keys[string(text)]
		if !ok {
			n = int32(len(keys))
			keys[string(text)] = n
		}
		out[id] = n
	}
	return out
}

// byPhase lists the requests of each phase as a range [first, last).
func (a *Analysis) byPhase() [][2]int {
	out := make([][2]int, len(a.Phases))
	for i, ph := range a.phase {
		if ph < 0 {
			continue
		}
		if out[ph][1] == 0 {
			out[ph][0] = i
		}
		out[ph][1] = i + 1
	}
	return out
}

// phaseIndex lists the phases of each kind, those in steps and the others.
type phaseIndex struct {
	phases         []Phase
	inSteps, other [numPhaseKinds][]int
}

func (a *Analysis) indexPhases() *phaseIndex {
	x := &phaseIndex{phases: a.Phases}
	for i := range a.Phases {
		list := &x.other
		if a.Phases[i].Step >= 0 {
			list = &x.inSteps
		}
		k := a.Phases[i].Kind
		list[k] = append(list[k], i)
	}
	return x
}

// same finds the phase that is like want: that of the same kind in the same
// step and pass, or in the last ones that are there; outside of steps the nth
// of its kind. It returns -1 if there is none.
func (x *phaseIndex) same(want Phase, nth int) int {
	if want.Step < 0 {
		if list := x.other[want.Kind]; len(list) > 0 {
			return list[min(nth, len(list)-1)]
		}
		return -1
	}
	list := x.inSteps[want.Kind]
	if len(list) == 0 {
		return -1
	}
	step := min(want.Step, x.phases[list[len(list)-1]].Step)
	after := sort.Search(len(list), func(i int) bool {
		p := &x.phases[list[i]]
		return p.Step > step || p.Step == step && p.Pass > want.Pass
	})
	return list[max(after-1, 0)]
}

// align pairs the requests of two phases.
func (f *Fit) align(ra, rb [2]int, a, b *Analysis, ka, kb []int32) {
	type half struct {
		stack        int32
		size, scaled int64
	}
	halves := func(r [2]int, of *Analysis, keys []int32) []half {
		out := make([]half, 0, r[1]-r[0])
		for i := r[0]; i < r[1]; i++ {
			size := of.Program.Requests[i].Size
			out = append(out, half{keys[of.stacks[i]], size, scaled(size, int64(f.other), int64(f.batch))})
		}
		return out
	}
	x, y := halves(ra, a, ka), halves(rb, b, kb)
	cost := func(i, j int) int32 {
		switch p, q := &x[i], &y[j]; {
		case p.stack != q.stack:
			return never
		case p.size == q.size || p.scaled == q.size:
			return 0
		}
		return oddCost
	}
	for i, j := range alignment(len(x), len(y), cost) {
		f.partner[ra[0]+i] = y[j].size
		f.Matched++
	}
}

// Program returns the program at another batch size: each request on the line
// through its two known sizes, those without a partner scaled as ScaleBatch
// does.
func (f *Fit) Program(batch int) *replay.Program {
	req := f.base.Program.Requests
	return f.base.Program.Resize(func(i int) int64 {
		s, t := req[i].Size, f.partner[i]
		switch {
		case t >= 0:
			perSample := float64(t-s) / float64(f.other-f.batch)
			return max(s+int64(perSample*float64(batch-f.batch)), 1)
		case f.scales[i]:
			return max(scaled(s, int64(batch), int64(f.batch)), 1)
		}
		return s
	})
}
