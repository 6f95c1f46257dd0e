package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"vramscope/cachealloc"
	"vramscope/internal/cause"
	"vramscope/internal/remedy"
	"vramscope/replay"
)

// findRemedies collects the answers to the causes, each with what it saves for
// this job, and ranks them.
func (s *subject) findRemedies() {
	seen := map[string]bool{}
	add := func(r *remedy.Remedy) {
		if r == nil || seen[r.ID] {
			return
		}
		seen[r.ID] = true
		if x, ok := s.remedy(r); ok {
			s.in.Remedies = append(s.in.Remedies, x)
		}
	}
	for _, t := range alwaysTried {
		r, _ := remedy.ByID(t.remedy)
		add(r)
	}
	for _, c := range s.in.Causes {
		if c.Confidence < 0.3 {
			continue
		}
		for _, r := range remedy.ForCause(c.ID) {
			add(r)
		}
	}
	if len(s.in.Causes) == 0 && s.fatal == nil {
		// Nothing failed: what would make room all the same.
		for _, r := range remedy.ForCause(cause.TooBig) {
			add(r)
		}
	}
	if r, ok := remedy.ByID("empty_cache"); ok {
		add(r)
	}
	rank(s.in.Remedies)
}

// remedy works out what a measure does for this job. It is false where the
// measure cannot apply.
func (s *subject) remedy(r *remedy.Remedy) (Remedy, bool) {
	x := newRemedy(r, "pytorch")
	if len(x.Change) == 0 {
		return x, false
	}
	switch r.ID {
	case "micro_batch":
		s.smallerBatch(&x)
	case "empty_cache", "gc_collect":
		x.Saves, x.Basis, x.Fits = ptr(int64(0)), Rule, ptr(false)
		if s.fatal != nil && !s.simulated {
			x.Basis = Replayed
			x.Why = fmt.Sprintf("before it failed the allocator had released every free segment by itself; what is left free is inside segments in use")
		} else {
			x.Why = "the allocator releases free segments by itself before it fails"
		}
	default:
		if s.replayedSetting(r.ID, &x) {
			break
		}
		if s.leakFix(r, &x) {
			break
		}
		s.atMost(r, &x)
	}
	return x, true
}

// newRemedy fills in what the catalogue says, with the changes of a framework
// family first.
func newRemedy(r *remedy.Remedy, family string) Remedy {
	x := Remedy{
		ID: r.ID, Title: r.Title, Basis: Rule, Why: r.Saves.Text,
		Cost: Cost{RelativeStepTime: r.Cost.RelativeStepTime, Note: r.Cost.Note}, Change: map[string]string{}, Framework: family,
	}
	for id, c := range r.Changes {
		x.Change[id] = strings.TrimSpace(c.Text)
	}
	if c, ok := r.Change(family); ok {
		x.Change[family] = strings.TrimSpace(c.Text)
	}
	return x
}

// replayedSetting takes the best replay of an allocator setting.
func (s *subject) replayedSetting(id string, x *Remedy) bool {
	found := false
	for _, t := range alwaysTried {
		if t.remedy != id {
			continue
		}
		for _, set := range s.in.Settings {
			if set.Conf != t.conf || found && (set.Saves == nil || x.Saves != nil && *set.Saves <= *x.Saves) {
				continue
			}
			found = true
			x.Basis, x.Saves = Replayed, set.Saves
			x.Fits = s.proven(set.Survives)
			x.Why = "replayed with " + set.Conf
			switch {
			case set.DiesAt != nil && s.fatal != nil:
				x.Why += fmt.Sprintf(": it still dies, at event %d", *set.DiesAt)
			case set.Survives != nil && *set.Survives && x.Fits == nil:
				x.Why += ": it gets past this failure; what comes later was not recorded"
			}
			for fw := range x.Change {
				if fw == x.Framework || fw == remedy.Any {
					x.Change[fw] = "export PYTORCH_CUDA_ALLOC_CONF=" + set.Conf
				}
			}
		}
	}
	if !found && id != "garbage_collection_threshold" {
		return false
	}
	if !found {
		x.Why = "it collects only under a limit: give --limit to have it replayed"
		return true
	}
	return true
}

// proven turns "survives to the end of the recording" into "makes it fit":
// that takes a recording that shows a whole step and did not end in a failure.
func (s *subject) proven(survives *bool) *bool {
	if survives == nil || !*survives {
		return survives
	}
	if s.fatal != nil && !s.simulated && !s.whole {
		return nil
	}
	return survives
}

// leakFix is the saving of what a leak holds.
func (s *subject) leakFix(r *remedy.Remedy, x *Remedy) bool {
	if !r.Answers(cause.Leak) || len(s.in.Leaks) == 0 {
		return false
	}
	var sum, perStep int64
	for _, l := range s.in.Leaks {
		sum += l.Bytes
		perStep += l.PerStep
	}
	x.Saves, x.Basis = ptr(sum), Replayed
	x.Why = fmt.Sprintf("measured in this recording: %v each step", size(perStep))
	if short, ok := s.shortfall(); ok && s.fatal != nil {
		x.Fits = ptr(sum >= short)
	}
	return true
}

// smallerBatch replays half the batch, or the largest that fits.
func (s *subject) smallerBatch(x *Remedy) {
	x.Basis = Estimated
	p := s.a.ScaleBatch(2, 1)
	what := "half the micro-batch"
	if b := s.in.Batch; b != nil && b.Largest > 0 && b.Largest < b.Recorded {
		p = nil
		x.Saves = ptr(s.unlimitedPeak() - b.Peak)
		x.Fits = ptr(true)
		x.Why = fmt.Sprintf("micro-batch %d instead of %d: %v reserved; %s", b.Largest, b.Recorded, size(b.Peak), b.How)
		if b.UpperBound {
			x.Fits = nil
			x.Why += "; the recording ends before a step does, so that it is at best that"
		}
	}
	if p == nil {
		return
	}
	out, err := p.Run(s.ctx, replay.Scenario{Settings: &s.p.Recorded, Version: s.o.Version})
	if err != nil {
		return
	}
	x.Saves = ptr(s.unlimitedPeak() - out.PeakReserved)
	x.Why = fmt.Sprintf("%s, replayed with what grows with the batch halved: %v reserved", what, size(out.PeakReserved))
	if !s.whole {
		x.AtLeast = true
		x.Why += " up to where the recording ends"
	}
	if s.low > 0 {
		if out.PeakReserved > s.high {
			x.Fits = ptr(false)
		} else if out.PeakReserved <= s.low && s.whole {
			x.Fits = ptr(true)
		}
	}
}

// unlimitedPeak is what the recorded settings reserve without a limit.
func (s *subject) unlimitedPeak() int64 {
	for _, x := range s.in.Settings {
		if x.Recorded {
			return x.PeakReserved
		}
	}
	return s.a.Outcome.PeakReserved
}

// atMost bounds the saving by the catalogue's formula over this job's bytes.
func (s *subject) atMost(r *remedy.Remedy, x *Remedy) {
	amounts := remedy.Amounts{Bytes: s.amounts, Batch: s.o.Batch}
	bound, ok := r.AtMost(amounts)
	if !ok {
		return
	}
	x.Saves, x.Basis, x.AtMost = ptr(int64(bound)), Estimated, bound > 0
	formula := ""
	if f, found := remedy.LookupFormula(r.Saves.Formula); found {
		formula = f.Text
	}
	x.Why = fmt.Sprintf("at most, of what is in use at the %s: %s", strings.ReplaceAll(s.moment, "_", " "), formula)
	if short, known := s.shortfall(); known && s.fatal != nil {
		if int64(bound) < short {
			x.Fits = ptr(false)
		}
	}
}

// rank puts what makes it fit first, then what may, then what does not; within
// each the cheaper first, then what saves more.
func rank(list []Remedy) {
	class := func(x *Remedy) int {
		switch {
		case x.Fits != nil && *x.Fits:
			return 0
		case x.Fits == nil && (x.Saves == nil || *x.Saves > 0):
			return 1
		}
		return 2
	}
	cost := func(x *Remedy) float64 {
		if x.Cost.RelativeStepTime != nil {
			return *x.Cost.RelativeStepTime
		}
		return 1.15 // no number: between a change for free and recomputation
	}
	saves := func(x *Remedy) int64 {
		if x.Saves == nil {
			return -1
		}
		return *x.Saves
	}
	slices.SortStableFunc(list, func(a, b Remedy) int {
		known := func(x *Remedy) int {
			if x.Saves == nil {
				return 1
			}
			return 0
		}
		return cmp.Or(
			cmp.Compare(class(&a), class(&b)),
			cmp.Compare(known(&a), known(&b)),
			cmp.Compare(cost(&a), cost(&b)),
			-cmp.Compare(saves(&a), saves(&b)),
		)
	})
}

// summarize writes the sentence that people read first.
func (s *subject) summarize() {
	m := s.in.Moment
	settings := ""
	if s.p.Recorded.Backend == cachealloc.CUDAMallocAsync {
		settings = " The driver's own pool (cudaMallocAsync) was used, which is not simulated."
	}
	switch {
	case s.fatal != nil && s.simulated:
		s.in.Summary = fmt.Sprintf("The recorded job lives, but under a limit of %v it would die in the %s: a request of %v with %v in use.",
			size(s.o.Limit), m.Phase, size(s.fatal.Requested), size(m.Allocated))
	case s.fatal != nil:
		s.in.Summary = fmt.Sprintf("Out of memory in the %s: %v was asked for with %v in use and %v reserved; it may reserve %s.",
			orUnknown(m.Phase), size(s.fatal.Requested), size(m.Allocated), size(m.Reserved), s.limitText())
	default:
		s.in.Summary = fmt.Sprintf("Nothing was refused for good. At its peak, in the %s, %v were in use and at most %v reserved.",
			orUnknown(m.Phase), size(m.Allocated), size(s.a.Outcome.PeakReserved))
	}
	if n := len(s.in.Failures); n > 0 && (s.fatal == nil || n > 1) {
		if s.fatal != nil {
			n--
		}
		s.in.Summary += fmt.Sprintf(" %d refusals before were survived.", n)
		if s.fatal == nil {
			s.in.Summary = strings.Replace(s.in.Summary, "refusals before were", "refusals were", 1)
		}
	}
	s.in.Summary += settings
	if h := s.p.History(); !h.Complete {
		s.in.Advice = append(s.in.Advice, "The recording is not complete ("+h.Reason+"): call torch.cuda.memory._record_memory_history() before the model is made, with a larger max_entries.")
	}
	if s.fatal != nil && !s.whole {
		s.in.Advice = append(s.in.Advice, "The recording holds no complete step, so that all needs are lower bounds: record a run at a smaller batch too and give it with --with.")
	}
}

func orUnknown(phase string) string {
	if phase == "" {
		return "program"
	}
	return phase
}
