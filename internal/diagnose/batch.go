package diagnose

import (
	"fmt"

	"vramscope/internal/holders"
	"vramscope/replay"
)

// tryBatches finds the largest micro-batch that fits: each candidate is the
// recorded program with other sizes, replayed under the limit.
func (s *subject) tryBatches() error {
	if s.o.Batch <= 0 {
		return nil
	}
	b := &Batch{Recorded: s.o.Batch, UpperBound: !s.whole, Basis: Estimated}
	at := func(batch int) *replay.Program { return s.a.ScaleBatch(s.o.Batch, batch) }
	b.How = "what forward and backward make grows with the batch, the rest does not"
	if s.o.With != nil {
		other, err := holders.Analyze(s.ctx, s.o.With)
		if err != nil {
			return err
		}
		base, n, partner, m := s.a, s.o.Batch, other, s.o.WithBatch
		// The one that got further knows more of the step.
		if completeSteps(other) > completeSteps(s.a) {
			base, n, partner, m = other, m, s.a, n
			b.UpperBound = completeSteps(other) == 0
		}
		fit := holders.FitBatches(base, n, partner, m)
		at = fit.Program
		b.How = fmt.Sprintf("each request lies on the line through its sizes at micro-batch %d and %d (%d of %d requests have both)", s.o.Batch, s.o.WithBatch, fit.Matched, fit.Requests)
	}
	peak := func(batch int) (*replay.Outcome, error) {
		return at(batch).Run(s.ctx, replay.Scenario{Settings: &s.p.Recorded, Version: s.o.Version})
	}
	one, err := peak(1)
	if err != nil {
		return err
	}
	two, err := peak(2)
	if err != nil {
		return err
	}
	b.PerSample = two.PeakAllocated - one.PeakAllocated
	b.Fixed = one.PeakAllocated - b.PerSample
	if s.low == 0 {
		s.in.Advice = append(s.in.Advice, "give --limit SIZE to learn the largest micro-batch that fits")
		return nil
	}
	// Bisection: the peak grows with the batch, if not in equal steps.
	fits, fails := 0, 1
	grow := func(batch int) (bool, *replay.Outcome, error) {
		out, err := at(batch).Run(s.ctx, replay.Scenario{Settings: &s.p.Recorded, Version: s.o.Version, Limit: s.low})
		if err != nil {
			return false, nil, err
		}
		return out.Fits() && out.OOMs == 0, out, nil
	}
	for {
		ok, out, err := grow(fails)
		if err != nil {
			return err
		}
		if !ok || fails > 1<<20 {
			break
		}
		fits, b.Peak = fails, out.PeakReserved
		fails *= 2
	}
	for fails-fits > 1 {
		mid := (fits + fails) / 2
		ok, out, err := grow(mid)
		if err != nil {
			return err
		}
		if ok {
			fits, b.Peak = mid, out.PeakReserved
		} else {
			fails = mid
		}
	}
	next, err := peak(fails)
	if err != nil {
		return err
	}
	b.Largest, b.NextPeak = fits, next.PeakReserved
	s.in.Batch = b
	return nil
}

func completeSteps(a *holders.Analysis) (n int) {
	for _, step := range a.Steps {
		if step.Complete {
			n++
		}
	}
	return n
}
