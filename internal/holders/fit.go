package holders

import (
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
	for i := range a.Phases {
		j := b.samePhase(a, i)
		if j < 0 {
			continue
		}
		f.align(from[i], to[j], a, b, ka, kb)
	}
	return f
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

// samePhase finds the phase of b that is phase i of a: that of the same kind
// in the same step and pass, or in b's last ones that have it; outside of
// steps the one with the same number among its kind.
func (b *Analysis) samePhase(a *Analysis, i int) int {
	want := a.Phases[i]
	nth := 0
	for j := range i {
		if a.Phases[j].Kind == want.Kind && a.Phases[j].Step < 0 {
			nth++
		}
	}
	best := -1
	for j := range b.Phases {
		ph := &b.Phases[j]
		if ph.Kind != want.Kind || ph.Step < 0 != (want.Step < 0) {
			continue
		}
		if want.Step < 0 {
			best = j
			if nth == 0 {
				break
			}
			nth--
			continue
		}
		if ph.Step <= want.Step && ph.Pass <= want.Pass {
			best = j
		}
	}
	return best
}

// The costs of an alignment: leaving out a request on either side, and
// pairing two whose sizes are neither equal nor in proportion to the batches.
// Requests of different stacks are never paired.
const (
	gapCost  = 3
	oddCost  = 2
	maxCells = 1 << 24 // of the table; longer phases are paired within a band
)

// align pairs the requests of two phases at the least cost (Needleman and
// Wunsch 1970). Time and memory are the product of their lengths, within a
// band around the diagonal for long ones.
func (f *Fit) align(ra, rb [2]int, a, b *Analysis, ka, kb []int32) {
	n, m := ra[1]-ra[0], rb[1]-rb[0]
	if n == 0 || m == 0 {
		return
	}
	band := m
	if n*m > maxCells {
		band = max(maxCells/n/2, abs(n-m)+64)
		if n*2*band > 4*maxCells {
			return
		}
	}
	width := min(2*band+1, m+1)
	start := func(i int) int { // first column of row i
		return min(max(i*m/n-band, 0), m+1-width)
	}
	const far = int32(1) << 30
	cost := make([][]int32, n+1)
	cells := make([]int32, (n+1)*width)
	at := func(i, j int) int32 {
		if i < 0 || j < 0 {
			return far
		}
		j -= start(i)
		if j < 0 || j >= width {
			return far
		}
		return cost[i][j]
	}
	pair := func(i, j int) int32 {
		x, y := ra[0]+i-1, rb[0]+j-1
		if i == 0 || j == 0 || ka[a.stacks[x]] != kb[b.stacks[y]] {
			return far
		}
		s, t := a.Program.Requests[x].Size, b.Program.Requests[y].Size
		if s == t || scaled(s, int64(f.other), int64(f.batch)) == t {
			return 0
		}
		return oddCost
	}
	for i := 0; i <= n; i++ {
		cost[i] = cells[i*width : (i+1)*width]
		for c := range cost[i] {
			j := start(i) + c
			if i == 0 && j == 0 {
				continue
			}
			best := min(at(i-1, j)+gapCost, far)
			if c > 0 {
				best = min(best, cost[i][c-1]+gapCost)
			}
			if p := pair(i, j); p < far {
				best = min(best, at(i-1, j-1)+p)
			}
			cost[i][c] = best
		}
	}
	for i, j := n, m; i > 0 && j > 0; {
		switch p := pair(i, j); {
		case p < far && at(i, j) == at(i-1, j-1)+p:
			i, j = i-1, j-1
			f.partner[ra[0]+i] = b.Program.Requests[rb[0]+j].Size
			f.Matched++
		case at(i, j) == at(i-1, j)+gapCost:
			i--
		default:
			j--
		}
	}
}

func abs(x int) int { return max(x, -x) }

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
