package holders

import (
	"cmp"
	"slices"

	"vramscope/trace"
)

// Leak is memory that grows from step to step and is not given back.
type Leak struct {
	Stack trace.StackID // where it is allocated
	Line  string        // that stack's user line

	BytesPerStep  float64 // allocated bytes, the median slope over the steps
	BlocksPerStep float64 // 0 where one block is made anew and larger
	Steps         int     // that the slope was found over
	Bytes         int64   // alive at the end of the last of them
}

// The least a leak shows. A growth of three steps can be a warm-up, and what
// stops growing before the last third is a buffer that filled up.
const (
	leakWarmUp   = 2 // steps that are left out at the start
	leakMinSteps = 5 // steps that are left then
)

// survivor is a request that outlives its step.
type survivor struct {
	stack    trace.StackID
	from, to int32 // it is alive at the ends of steps [from, to)
	bytes    int64
}

// Leaks returns what grows with the steps, fastest first. Nothing is reported
// where fewer than seven steps are complete.
//
// At the end of each step it counts the bytes that each stack made and that
// are alive. A stack leaks if that series hardly ever falls, still grows in
// its last third, and the median of its slopes (Theil 1950, Sen 1968) is
// above zero; blocks that come and go with varying sizes do none of it.
func (a *Analysis) Leaks() []Leak {
	ends := a.stepEnds()
	if len(ends) < leakWarmUp+leakMinSteps {
		return nil
	}
	var leaks []Leak
	all := a.survivors(ends)
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].stack == all[0].stack {
			n++
		}
		if l, ok := leakOf(all[:n], len(ends)); ok {
			l.Line = a.Line(l.Stack)
			if l.Line == "" {
				l.Line = Backward.withoutStack()
			}
			leaks = append(leaks, l)
		}
		all = all[n:]
	}
	slices.SortStableFunc(leaks, func(x, y Leak) int { return -cmp.Compare(x.BytesPerStep, y.BytesPerStep) })
	return leaks
}

// stepEnds are the events at which complete steps end.
func (a *Analysis) stepEnds() []int32 {
	var ends []int32
	for i := range a.Steps {
		if a.Steps[i].Complete {
			ends = append(ends, int32(a.Steps[i].End)-1)
		}
	}
	return ends
}

// survivors collects the requests that are alive at the end of some step,
// ordered by stack.
func (a *Analysis) survivors(ends []int32) []survivor {
	var out []survivor
	step := int32(0) // first end not before the request
	for i := range a.Program.Requests {
		r := &a.Program.Requests[i]
		for int(step) < len(ends) && ends[step] < r.Event {
			step++
		}
		if int(step) == len(ends) {
			break
		}
		if r.Free >= 0 && r.Free <= ends[step] || a.refused(i) {
			continue
		}
		to := int32(len(ends))
		if r.Free >= 0 {
			n, _ := slices.BinarySearch(ends, r.Free)
			to = int32(n)
		}
		out = append(out, survivor{a.stacks[i], step, to, a.Allocated[i]})
	}
	slices.SortStableFunc(out, func(x, y survivor) int { return cmp.Compare(x.stack, y.stack) })
	return out
}

func leakOf(s []survivor, steps int) (Leak, bool) {
	bytes := make([]int64, steps)
	blocks := make([]int64, steps)
	for _, x := range s { // differences first
		bytes[x.from] += x.bytes
		blocks[x.from]++
		if int(x.to) < steps {
			bytes[x.to] -= x.bytes
			blocks[x.to]--
		}
	}
	for k := 1; k < steps; k++ {
		bytes[k] += bytes[k-1]
		blocks[k] += blocks[k-1]
	}
	if !grows(blocks[leakWarmUp:], 3, 10) && !grows(bytes[leakWarmUp:], 8, 100) {
		return Leak{}, false
	}
	l := Leak{
		Stack: s[0].stack, Steps: steps - leakWarmUp, Bytes: bytes[steps-1],
		BytesPerStep: slope(bytes[leakWarmUp:]), BlocksPerStep: slope(blocks[leakWarmUp:]),
	}
	return l, l.BytesPerStep > 0
}

// grows reports whether a series rises at least so many times, also in its
// last third, and so many times as often as it falls.
func grows(y []int64, least, perFall int) bool {
	rises, falls, late := 0, 0, false
	for k := 1; k < len(y); k++ {
		switch {
		case y[k] > y[k-1]:
			rises++
			late = late || k >= len(y)*2/3
		case y[k] < y[k-1]:
			falls++
		}
	}
	return rises >= least && falls*perFall <= rises && late
}

// slope is the median of the slopes between all pairs of points, or between
// points of the two halves where there are many.
func slope(y []int64) float64 {
	var s []float64
	half := len(y) / 2
	for i := range y {
		from, to := i+1, len(y)
		if len(y) > 200 { // keep it linear: pairs half the series apart
			from, to = i+half, min(i+half+1, len(y))
		}
		for j := from; j < to; j++ {
			s = append(s, float64(y[j]-y[i])/float64(j-i))
		}
	}
	slices.Sort(s)
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// StepsLeft returns after how many more steps the leak fills what is free
// below a limit: (limit - peak) / growth. The peak is that of the reserved
// bytes; free blocks inside it may give some steps more.
func (l *Leak) StepsLeft(limit, peak int64) int64 {
	return max(int64(float64(limit-peak)/l.BytesPerStep), 0)
}
