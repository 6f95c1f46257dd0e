package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"vramscope/internal/cause"
	"vramscope/internal/holders"
	"vramscope/trace"
)

// snapshotRules are asked of a recording, each on its own. A rule returns nil
// where it does not apply.
var snapshotRules = []func(*subject) *Cause{
	leak, optimizerState, evaluation, generation, keyValueCache, checkpointSave, logits, variableLength,
	fragmentation, otherProcess, limitSet, tooBig,
}

// findCauses applies the rules to what killed the job, or would under the limit
// given. A recording of a job that lives has none, but a leak.
func (s *subject) findCauses() {
	for _, rule := range snapshotRules {
		if c := rule(s); c != nil {
			s.in.Causes = append(s.in.Causes, *c)
		}
	}
	if len(s.in.Causes) == 0 && s.fatal != nil {
		s.in.Causes = append(s.in.Causes, Cause{ID: cause.Unknown, Confidence: 0.5, Evidence: []Evidence{{
			Text: "a request was refused, and neither the bytes in use nor the free ones explain it", Event: ptr(s.at)}}})
	}
	// What keeps growing leaves pieces behind, but they only hasten its end.
	if s.grows() {
		for i := range s.in.Causes {
			if c := &s.in.Causes[i]; c.ID == cause.Fragmentation {
				c.Confidence = min(c.Confidence, 0.5)
			}
		}
	}
	sortCauses(s.in.Causes)
}

// grows reports whether the memory in use was on its way up when it failed, so
// that getting past one request does not help for long.
func (s *subject) grows() bool {
	return slices.ContainsFunc(s.in.Causes, func(c Cause) bool {
		switch c.ID {
		case cause.Leak, cause.Evaluation, cause.Generation, cause.KVCache, cause.Checkpoint:
			return c.Confidence >= 0.8
		}
		return false
	})
}

// primary is the most likely cause, a limit that somebody set apart: that is
// how it came out, not why.
func (s *subject) primary() cause.ID {
	for _, c := range s.in.Causes {
		if c.ID != cause.Limit {
			return c.ID
		}
	}
	return cause.Unknown
}

func sortCauses(causes []Cause) {
	slices.SortStableFunc(causes, func(a, b Cause) int { return -cmp.Compare(a.Confidence, b.Confidence) })
}

// atEvent is a piece of evidence at the moment under discussion.
func (s *subject) atEvent(bytes int64, format string, args ...any) Evidence {
	e := Evidence{Text: fmt.Sprintf(format, args...), Event: ptr(s.at)}
	if bytes > 0 {
		e.Bytes = ptr(bytes)
	}
	return e
}

// leakShare is the part of the memory in use from which on a leak is worth
// naming as a cause.
const leakShare = 0.05

// namedLeaks is how many lines that grow are listed as evidence.
const namedLeaks = 3

func leak(s *subject) *Cause {
	if len(s.in.Leaks) == 0 {
		return nil
	}
	c := &Cause{ID: cause.Leak, Confidence: 0.2}
	total := Evidence{Text: fmt.Sprintf("%v more are kept after each step, %v by now", size(s.leakPerStep), size(s.leakBytes)), Bytes: ptr(s.leakBytes)}
	if left := s.in.Leaks[0].StepsToFull; left != nil {
		total.Text += fmt.Sprintf("; the limit is reached in about %d steps", *left)
	}
	c.Evidence = append(c.Evidence, total)
	for i, l := range s.in.Leaks {
		if i == namedLeaks {
			c.Evidence = append(c.Evidence, Evidence{Text: fmt.Sprintf("and by %d other lines", len(s.in.Leaks)-i)})
			break
		}
		c.Evidence = append(c.Evidence, Evidence{Text: fmt.Sprintf("%v of it by %s", size(l.PerStep), l.Holder), Bytes: ptr(l.Bytes)})
	}
	short, known := s.shortfall()
	matters := float64(s.leakBytes) > leakShare*float64(s.need)
	switch {
	case matters && s.fatal != nil && known && s.leakBytes >= short:
		c.Confidence = 0.95 // without it the request would have been served
	case matters:
		c.Confidence = 0.6
	default:
		c.Evidence = append(c.Evidence, Evidence{Text: "so little that it does not matter for the memory of the card"})
	}
	return c
}

func optimizerState(s *subject) *Cause {
	if s.fatal == nil || s.doing != holders.Optimizer {
		return nil
	}
	c := &Cause{ID: cause.OptimizerState, Confidence: 0.85}
	c.Evidence = append(c.Evidence, s.atEvent(0, "it failed in an optimizer step: %s", s.where()))
	ph, _ := s.a.PhaseOf(s.at)
	first := true
	for i := range s.a.Steps {
		if s.a.Steps[i].Complete && s.a.Steps[i].End <= ph.First {
			first = false
		}
	}
	if state := s.in.Moment.ByCategory[holders.OptimizerState.String()]; first {
		c.Confidence = 0.95
		params := s.in.Moment.ByCategory[holders.Parameter.String()]
		c.Evidence = append(c.Evidence, s.atEvent(state, "it is the first step, in which the optimizer makes its state: %v so far, for %v of parameters", size(state), size(params)))
	}
	return c
}

func evaluation(s *subject) *Cause {
	if s.fatal == nil || len(s.a.Steps) == 0 || s.doing != holders.Evaluation {
		return nil
	}
	c := &Cause{ID: cause.Evaluation, Confidence: 0.85}
	c.Evidence = append(c.Evidence, s.atEvent(0, "it failed in a pass that training does not make, after %d steps: %s", completeSteps(s.a), s.where()))
	kept := s.madeSince()
	if kept > s.in.Moment.Allocated/4 {
		c.Evidence = append(c.Evidence, s.atEvent(kept, "%v made since the last step are alive: is torch.no_grad() missing, or are outputs collected on the card?", size(kept)))
	}
	return c
}

func generation(s *subject) *Cause {
	if s.fatal == nil || s.doing != holders.Generation {
		return nil
	}
	return &Cause{ID: cause.Generation, Confidence: 0.8, Evidence: []Evidence{s.atEvent(0, "it failed while generating: %s", s.where())}}
}

func keyValueCache(s *subject) *Cause {
	if s.fatal == nil {
		return nil
	}
	held := s.heldBy(cacheFiles)
	if held < s.in.Moment.Allocated/5 {
		return nil
	}
	return &Cause{ID: cause.KVCache, Confidence: 0.85, Evidence: []Evidence{s.atEvent(held, "the key-value cache holds %v of %v in use", size(held), size(s.in.Moment.Allocated))}}
}

// inFile reports whether a stack goes through one of these files.
func inFile(t *trace.Trace, id trace.StackID, files []string) bool {
	for f := range t.Stacks.All(id) {
		for _, name := range files {
			if strings.HasSuffix(f.File, name) {
				return true
			}
		}
	}
	return false
}

func checkpointSave(s *subject) *Cause {
	if s.fatal == nil || s.doing != holders.Saving {
		return nil
	}
	return &Cause{ID: cause.Checkpoint, Confidence: 0.85, Evidence: []Evidence{s.atEvent(0, "it failed while the state was copied or saved: %s", s.where())}}
}

func logits(s *subject) *Cause {
	if s.fatal == nil {
		return nil
	}
	l, ok := s.a.Logits(s.at)
	total := l.Bytes
	if !ok && !inFile(s.p.Trace, s.p.Device.Events.Stack[s.at], []string{"transformers/loss/loss_utils.py"}) {
		return nil
	}
	if !ok || total < s.need/8 && s.fatal.Rounded < s.need/8 {
		return nil
	}
	c := &Cause{ID: cause.Logits, Confidence: 0.8}
	c.Evidence = append(c.Evidence,
		s.atEvent(total, "%d %s around the loss %s %v: %s", l.Blocks, plural(l.Blocks, "tensor"), map[bool]string{true: "takes", false: "take"}[l.Blocks == 1], size(total), strings.Join(l.Lines[:min(2, len(l.Lines))], "; ")),
		s.atEvent(s.fatal.Requested, "%v more was asked for by %s", size(s.fatal.Requested), s.where()))
	return c
}

func variableLength(s *subject) *Cause {
	v := s.a.Variation()
	if s.fatal == nil || !v.Variable() || v.Most < s.need/20 || s.grows() {
		return nil
	}
	c := &Cause{ID: cause.VariableLength, Confidence: 0.7, Evidence: []Evidence{{
		Text:  fmt.Sprintf("the size of the input varies: forward passes kept between %v and %v, %d different sizes in %d passes", size(v.Least), size(v.Most), v.Sizes, v.Steps),
		Bytes: ptr(v.Most - v.Least)}}}
	if made := s.madeSince(); made > v.Most && (s.doing == holders.Forward || s.doing == holders.Attempt) {
		c.Confidence = 0.9
		c.Evidence = append(c.Evidence, s.atEvent(made, "this pass had made %v when it failed, more than any before", size(made)))
	}
	return c
}

func fragmentation(s *subject) *Cause {
	if s.fatal == nil {
		return nil
	}
	free := s.in.Moment.Reserved - s.in.Moment.Allocated
	if free < s.fatal.Rounded || s.high > 0 && s.need > s.high {
		return nil // there were not as many free bytes, or they would not do
	}
	// Some slack is normal: the larger its share, the more it is to blame.
	c := &Cause{ID: cause.Fragmentation, Confidence: 0.4}
	if share := float64(free) / float64(max(s.in.Moment.Reserved, 1)); share > 0.1 {
		c.Confidence = 0.85
	} else if share > 0.05 {
		c.Confidence = 0.6
	}
	c.Evidence = append(c.Evidence, s.atEvent(free, "%v were reserved and free, more than the %v asked for, but in pieces", size(free), size(s.fatal.Rounded)))
	if s.frag != nil {
		c.Evidence = append(c.Evidence, s.atEvent(s.frag.LargestFree, "the largest free piece was %v, in %d segments that something else keeps open", size(s.frag.LargestFree), len(s.frag.Segments)))
		for _, o := range s.frag.Segments[:min(2, len(s.frag.Segments))] {
			c.Evidence = append(c.Evidence, s.atEvent(o.Free, "%v free of %v: kept open by %s (%v)", size(o.Free), size(o.Size), o.Holds.Line, size(o.Holds.Bytes)))
		}
	}
	for _, x := range s.in.Settings {
		if x.Survives != nil && *x.Survives && !x.Recorded {
			c.Confidence += 0.1
			c.Evidence = append(c.Evidence, Evidence{Text: "replayed with " + x.Conf + " the same requests are all served"})
			break
		}
	}
	return c
}

// smallestCard is the least memory of cards that people train on. What a
// process cannot have on any card, somebody else has.
const smallestCard = 6 << 30

// contextBytes is about what CUDA's context and libraries take beside the
// allocator (measured: 638 to 771 MiB on an H200).
const contextBytes = 700 << 20

func otherProcess(s *subject) *Cause {
	if s.fatal == nil || s.simulated || !s.bound.ByDriver {
		return nil
	}
	free := s.bound.DriverFree
	have := s.fatal.Reserved + free + contextBytes
	c := &Cause{ID: cause.OtherProcess}
	switch {
	case s.o.Capacity > 0 && s.o.Capacity-have > 512<<20:
		c.Confidence = 0.9
		c.Evidence = append(c.Evidence, s.atEvent(s.o.Capacity-have, "of %v about %v are neither free nor this process's: other processes hold them", size(s.o.Capacity), size(s.o.Capacity-have)))
	case s.o.Capacity == 0 && have < smallestCard:
		c.Confidence = 0.8
		c.Evidence = append(c.Evidence, s.atEvent(0, "the card was full (%v free) with only %v reserved by this process: no card for training is that small, so other processes hold the rest", size(free), size(s.fatal.Reserved)))
	default:
		return nil
	}
	return c
}

func limitSet(s *subject) *Cause {
	if s.fatal == nil {
		return nil
	}
	if s.simulated {
		return &Cause{ID: cause.Limit, Confidence: 0.5, Evidence: []Evidence{{Text: fmt.Sprintf("under --limit %v, which was replayed; the recorded job lived", size(s.o.Limit))}}}
	}
	if s.bound.ByDriver {
		return nil
	}
	// That there is a limit is certain, and whoever set it knows it.
	return &Cause{ID: cause.Limit, Confidence: 0.65, Evidence: []Evidence{s.atEvent(s.bound.DriverFree,
		"the driver had %v free when %v was refused: somebody limited the process to %s (set_per_process_memory_fraction or PYTORCH_CUDA_ALLOC_CONF)", size(s.bound.DriverFree), size(s.fatal.SegmentBytes), s.limitText())}}
}

// limitText says how much the process may reserve.
func (s *subject) limitText() string {
	switch {
	case s.high == 0:
		return "an unknown size"
	case size(s.low).String() == size(s.high).String():
		return size(s.low).String()
	}
	return fmt.Sprintf("between %v and %v", size(s.low), size(s.high))
}

func tooBig(s *subject) *Cause {
	short, known := s.shortfall()
	if s.fatal == nil || !known {
		return nil
	}
	c := &Cause{ID: cause.TooBig, Confidence: 0.9}
	c.Evidence = append(c.Evidence, s.atEvent(s.need, "tensors in use take %v, and %v more was asked for; it may reserve %s", size(s.in.Moment.Allocated), size(s.fatal.Requested), s.limitText()))
	switch {
	case short > 0:
	case !s.whole && s.doing != holders.Generation:
		c.Evidence = append(c.Evidence, s.atEvent(0, "it had not come to the end of one step: what it needs in all is more than that"))
	case s.in.Moment.Reserved-s.in.Moment.Allocated >= s.fatal.Rounded:
		return nil // the bytes were there: fragmentation
	default:
		c.Confidence = 0.7
		c.Evidence = append(c.Evidence, s.atEvent(0, "only %v of what it held was free", size(s.in.Moment.Reserved-s.in.Moment.Allocated)))
	}
	// A more telling cause names what is too big.
	for _, x := range s.in.Causes {
		if x.Confidence >= 0.8 && x.ID != cause.Limit {
			c.Confidence = 0.5
		}
	}
	return c
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// where names the code that asked at the moment under discussion.
func (s *subject) where() string {
	if line := s.a.Line(s.p.Device.Events.Stack[s.at]); line != "" {
		return line
	}
	return "code without a Python stack"
}
