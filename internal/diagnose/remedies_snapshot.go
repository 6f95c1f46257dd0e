package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"vramscope/cachealloc"
	"vramscope/internal/cause"
	"vramscope/internal/holders"
	"vramscope/internal/remedy"
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
	if s.fatal == nil {
		// Nothing failed: what would make room all the same, with its bytes.
		for _, r := range remedy.ForCause(cause.TooBig) {
			add(r)
		}
		s.in.Remedies = slices.DeleteFunc(s.in.Remedies, func(x Remedy) bool { return x.Saves == nil })
	}
	if len(s.in.Leaks) > 0 {
		r, _ := remedy.ByID("detach_losses")
		add(r)
	}
	r, _ := remedy.ByID("empty_cache")
	add(r)
	primary := s.primary()
	for i := range s.in.Remedies {
		r, _ := remedy.ByID(s.in.Remedies[i].ID)
		if s.in.Remedies[i].elsewhere = slices.Index(r.Causes, primary); s.in.Remedies[i].elsewhere < 0 {
			s.in.Remedies[i].elsewhere = len(r.Causes)
		}
		if s.fatal == nil {
			s.in.Remedies[i].elsewhere = 0
		}
	}
	rank(s.in.Remedies)
}

// remedy works out what a measure does for this job. It is false where the
// measure cannot apply.
func (s *subject) remedy(r *remedy.Remedy) (Remedy, bool) {
	x := newRemedy(r, "pytorch")
	if _, ok := r.Change("pytorch"); !ok || !s.applies(r) {
		return x, false
	}
	switch r.ID {
	case "micro_batch":
		s.smallerBatch(&x)
	case "no_grad":
		x.Saves, x.AtMost, x.Basis = ptr(s.madeSince()), true, Estimated
		x.Why = "what was made since the last step of training and is in use"
	case "close_other_processes":
		if s.o.Capacity > 0 && s.bound.ByDriver {
			x.Saves, x.AtMost, x.Basis = ptr(max(s.o.Capacity-s.fatal.Reserved-s.bound.DriverFree-contextBytes, 0)), true, Estimated
			x.Why = "the card's memory less what is free, and what this process and its context take"
		}
	case "empty_cache", "gc_collect":
		x.Saves, x.Basis, x.Fits = ptr(int64(0)), Rule, ptr(false)
		if s.fatal != nil && !s.simulated {
			x.Basis = Replayed
			x.Why = "before it failed the allocator had released every free segment by itself; what is left free is inside segments in use"
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

// applies reports whether a measure has anything to act on in this job, as far
// as the recording tells.
func (s *subject) applies(r *remedy.Remedy) bool {
	switch {
	case r.ID == "no_grad":
		return s.doing == holders.Evaluation || s.doing == holders.Generation
	case r.ID == "training_use_cache":
		return s.doing != holders.Generation
	case r.Answers(cause.Leak) && len(r.Causes) == 1:
		return len(s.in.Leaks) > 0
	}
	// What acts on the logits or a cache alone needs some.
	for _, c := range r.Saves.ActsOn {
		if c != remedy.Logits && c != remedy.KVCache || s.amounts[c] > 0 {
			return true
		}
	}
	return len(r.Saves.ActsOn) == 0
}

// newRemedy fills in what the catalogue says, with the changes of a framework
// family first.
func newRemedy(r *remedy.Remedy, family string) Remedy {
	place := slices.Index(remedy.All(), r)
	if first := remedy.All()[0]; r.Group == first.Group { // the mistakes
		place += len(remedy.All())
	}
	x := Remedy{
		place: place,
		ID:    r.ID, Title: r.Title, Basis: Rule, Why: r.Saves.Text,
		risk: slices.Index([]string{"none", "rounding", "changes_training", "quality"}, r.Risk.Level),
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
			case set.Survives != nil && *set.Survives && x.Fits == nil && s.fatal != nil:
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
	switch {
	case s.fatal == nil:
		return nil // it fits as it is
	case survives == nil || !*survives:
		return survives
	case !s.simulated && (!s.whole || s.grows()):
		return nil
	}
	return survives
}

// leakFix is the saving of what a leak holds.
func (s *subject) leakFix(r *remedy.Remedy, x *Remedy) bool {
	if len(s.in.Leaks) == 0 || r.ID != "detach_losses" && r.ID != "del_outputs" {
		return false
	}
	sum := s.leakBytes
	x.Saves, x.Basis = ptr(sum), Measured
	x.Why = fmt.Sprintf("in this recording, %v each step", size(s.leakPerStep))
	if short, ok := s.shortfall(); ok && s.fatal != nil {
		x.Fits = ptr(sum >= short)
	}
	return true
}

// smallerBatch replays half the batch, or the largest that fits.
func (s *subject) smallerBatch(x *Remedy) {
	x.Basis = Estimated
	if b := s.in.Batch; b != nil && b.Largest > 0 && b.Largest < b.Recorded {
		x.Saves = ptr(s.unlimitedPeak() - b.Peak)
		if s.fatal != nil {
			x.Fits = ptr(true)
		}
		x.Why = fmt.Sprintf("micro-batch %d instead of %d: %v reserved; %s", b.Largest, b.Recorded, size(b.Peak), b.How)
		if b.UpperBound {
			x.Fits = nil
			x.Why += "; the recording ends before a step does, so that it is at best that"
		}
	}
	out := s.half
	if out == nil || x.Saves != nil {
		return
	}
	x.Saves = ptr(s.unlimitedPeak() - out.PeakReserved)
	x.Why = fmt.Sprintf("half the micro-batch, replayed with what grows with the batch halved: %v reserved", size(out.PeakReserved))
	if !s.whole {
		x.AtLeast = true
		x.Why += " up to where the recording ends"
	}
	if s.low > 0 {
		if out.PeakReserved > s.high {
			x.Fits = ptr(false)
		} else if out.PeakReserved <= s.low && s.whole && s.fatal != nil && !s.grows() {
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
	x.Why = fmt.Sprintf("%s of what is in use at the %s", formula, strings.ReplaceAll(s.moment, "_", " "))
	if short, known := s.shortfall(); known && s.fatal != nil {
		if int64(bound) < short {
			x.Fits = ptr(false)
		}
	}
}

// rank puts what makes it fit first, then what may, then what does not. Within
// each, the answers to the most likely cause come first, then what was replayed
// before what is only bounded, then the cheaper, then the less risky, then what
// saves more.
func rank(list []Remedy) {
	slices.SortStableFunc(list, func(a, b Remedy) int {
		return cmp.Or(
			cmp.Compare(a.class(), b.class()),
			cmp.Compare(a.elsewhere, b.elsewhere),
			cmp.Compare(a.strength(), b.strength()),
			cmp.Compare(a.usual(), b.usual()),
			cmp.Compare(a.costStep(), b.costStep()),
			cmp.Compare(a.risk, b.risk),
			-cmp.Compare(a.savesOr(0), b.savesOr(0)),
		)
	})
}

func (x *Remedy) class() int {
	switch {
	case x.Fits != nil && *x.Fits:
		return 0
	case x.Fits == nil && x.savesOr(1) > 0:
		return 1
	}
	return 2
}

// strength orders by how well the saving is known.
func (x *Remedy) strength() int {
	switch {
	case x.Saves == nil:
		return 2
	case x.AtMost:
		return 1
	}
	return 0
}

// usual orders what has no number for this job by what is usually tried: the
// order of the catalogue, with the measures against mistakes, of which there is
// no sign, last.
func (x *Remedy) usual() int {
	if x.Saves != nil {
		return 0
	}
	return x.place
}

// costStep is the cost in coarse steps: free, a few percent, more. What has no
// honest number counts as a few percent.
func (x *Remedy) costStep() int {
	switch t := x.Cost.RelativeStepTime; {
	case t == nil:
		return 1
	case *t <= 1.02:
		return 0
	case *t <= 1.15:
		return 1
	}
	return 2
}

func (x *Remedy) savesOr(unknown int64) int64 {
	if x.Saves == nil {
		return unknown
	}
	return *x.Saves
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
		s.in.Summary = fmt.Sprintf("%s under a limit of %v it would die %s: a request of %v with %v in use.",
			map[bool]string{true: "The recorded job lives, but", false: "The recorded job died later;"}[s.a.Outcome.FatalOOM == nil], size(s.o.Limit), during(s.doing), size(s.fatal.Requested), size(m.Allocated))
	case s.fatal != nil:
		s.in.Summary = fmt.Sprintf("Out of memory %s: %v was asked for with %v in use and %v reserved; it may reserve %s.",
			during(s.doing), size(s.fatal.Requested), size(m.Allocated), size(m.Reserved), s.limitText())
	default:
		s.in.Summary = fmt.Sprintf("Nothing was refused for good. At its peak, %s, %v were in use and at most %v reserved.",
			during(s.doing), size(m.Allocated), size(s.a.Outcome.PeakReserved))
	}
	if s.fatal == nil && s.o.Limit > 0 {
		if spare := s.o.Limit - s.a.Outcome.PeakReserved; spare >= 0 {
			s.in.Summary += fmt.Sprintf(" Under %v that leaves %v.", size(s.o.Limit), size(spare))
		} else {
			s.in.Summary += fmt.Sprintf(" Under %v it lives too, since the allocator then gives cached memory back.", size(s.o.Limit))
		}
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
	if s.fatal != nil && !s.whole && s.o.With == nil {
		s.in.Advice = append(s.in.Advice, "The recording holds no complete step, so that all needs are lower bounds: record a run at a smaller batch too and give it with --with.")
	}
}

// during names what the program was doing.
func during(k holders.PhaseKind) string {
	switch k {
	case holders.Forward, holders.Backward:
		return "in a " + k.String() + " pass"
	case holders.Attempt:
		return "in a forward pass"
	case holders.Optimizer:
		return "in an " + k.String()
	case holders.Saving:
		return "while the state was copied or saved"
	case holders.Other, holders.Teardown:
		return "outside of training steps"
	}
	return "during " + k.String()
}
