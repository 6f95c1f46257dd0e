package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"vramscope/bytesize"
	"vramscope/internal/cause"
	"vramscope/internal/remedy"
	"vramscope/oomlog"
)

// logSubject is a log under diagnosis.
type logSubject struct {
	r *oomlog.Report
	// f is the failure that the causes are about: the first that ended
	// something, else the first that was survived, else nil.
	f  *oomlog.Failure
	in *Input
}

// Log diagnoses what oomlog found in a text.
func Log(file string, r *oomlog.Report) *Input {
	s := &logSubject{r: r, in: &Input{
		File: file, Kind: "log",
		Failures: []Failure{}, Causes: []Cause{}, Remedies: []Remedy{}, Settings: []Setting{}, Holders: []Holder{}, Leaks: []Leak{}, Advice: []string{},
	}}
	if s.f = r.First(); s.f == nil {
		if caught := r.OfKind(oomlog.Caught); len(caught) > 0 {
			s.f = caught[0]
		}
	}
	for i := range r.Failures {
		if f := &r.Failures[i]; f.Kind == oomlog.Fatal || f.Kind == oomlog.Caught {
			s.in.Failures = append(s.in.Failures, logFailure(f))
		}
	}
	s.findCauses()
	s.findRemedies()
	s.summarize()
	return s.in
}

func logFailure(f *oomlog.Failure) Failure {
	out := Failure{
		Framework: ptr(f.Framework), Device: f.Device, Rank: f.Rank, Basis: Measured,
		Tried: bytesOf(f.Tried), Capacity: bytesOf(f.Capacity), Limit: bytesOf(f.Limit), Free: bytesOf(f.Free), Allocated: bytesOf(f.Allocated),
		Line: ptr(int64(f.Line)), Survived: f.Kind == oomlog.Caught, Stack: []string{}, Text: f.Text,
	}
	if f.Version != "" {
		out.FrameworkVersion = ptr(f.Version)
	}
	number := func(n bytesize.Size, ok bool) *int64 {
		if !ok {
			return nil
		}
		return ptr(int64(n))
	}
	out.ReservedUnallocated = number(f.Idle())
	out.OtherProcess = number(f.OtherProcesses())
	out.ThisProcess = number(f.ProcessTotal())
	out.Unexplained = number(f.Unexplained())
	out.Lacks = number(f.Lacks())
	if f.Traceback != nil {
		for i := len(f.Traceback.Frames) - 1; i >= 0; i-- { // innermost first, as recordings have it
			fr := f.Traceback.Frames[i]
			out.Stack = append(out.Stack, fmt.Sprintf("%s:%d %s", fr.File, fr.Line, fr.Function))
		}
	}
	return out
}

func bytesOf(n *bytesize.Size) *int64 {
	if n == nil {
		return nil
	}
	return ptr(int64(*n))
}

// phase returns the fact that says that the job was in a phase.
func (s *logSubject) phase(names ...string) *oomlog.Fact {
	if s.f == nil {
		return nil
	}
	for i := range s.f.Facts {
		if x := &s.f.Facts[i]; x.Kind == oomlog.PhaseFact && slices.Contains(names, x.Name) {
			return x
		}
	}
	return nil
}

// fact returns a fact of the failure or of the whole log.
func (s *logSubject) fact(kind oomlog.FactKind, names ...string) *oomlog.Fact {
	lists := [][]oomlog.Fact{s.r.Facts}
	if s.f != nil {
		lists = [][]oomlog.Fact{s.f.Facts, s.r.Facts}
	}
	for _, list := range lists {
		for i := range list {
			if x := &list[i]; x.Kind == kind && (len(names) == 0 || slices.Contains(names, x.Name)) {
				return x
			}
		}
	}
	return nil
}

// step is the number of the step at the failure; false where the log counts
// none.
func (s *logSubject) step() (float64, bool) {
	if x := s.fact(oomlog.StepFact, "step", "progress"); x != nil && x.Value != nil {
		return *x.Value, true
	}
	return 0, false
}

// framework is whose changes to print: the trainer that the traceback goes
// through, else the framework that failed.
func (s *logSubject) framework() string {
	if s.f == nil {
		return remedy.Any
	}
	if s.f.Traceback != nil {
		for _, t := range trainers {
			for _, fr := range s.f.Traceback.Frames {
				if strings.Contains(fr.File, t.file) {
					return t.framework
				}
			}
		}
	}
	if f, ok := remedy.LookupFramework(s.f.Framework); ok {
		return f.ID
	}
	switch s.f.Framework { // libraries under a framework that the log may not name
	case "cuda", "nccl", "python", "torchrun", "launcher":
		return "pytorch"
	}
	return remedy.Any
}

// trainers are known by their files.
var trainers = []struct{ file, framework string }{
	{"transformers/trainer.py", "transformers"},
	{"lightning/", "lightning"},
	{"pytorch_lightning/", "lightning"},
	{"deepspeed/runtime/", "deepspeed"},
	{"accelerate/accelerator.py", "accelerate"},
	{"vllm/", "vllm"},
	{"sglang/", "sglang"},
	{"keras/src/", "keras"},
}

// findRemedies ranks the answers to the causes. Savings are bounded by the
// numbers of the message; what is not known stays null.
func (s *logSubject) findRemedies() {
	if s.f == nil {
		return
	}
	framework := s.framework()
	amounts := remedy.Amounts{Bytes: map[remedy.Category]bytesize.Size{}}
	if idle, ok := s.f.Idle(); ok {
		amounts.Bytes[remedy.Fragmentation] = idle
	}
	if others, ok := s.f.OtherProcesses(); ok {
		amounts.Bytes[remedy.OtherProcess] = others
	}
	lacks, lacksKnown := s.f.Lacks()
	primary := cause.Unknown
	for _, c := range s.in.Causes {
		if c.ID != cause.Limit || len(s.in.Causes) == 1 {
			primary = c.ID
			break
		}
	}
	seen := map[string]bool{}
	for _, c := range s.in.Causes {
		if c.Confidence < 0.3 {
			continue
		}
		for _, r := range remedy.ForCause(c.ID) {
			if seen[r.ID] {
				continue
			}
			seen[r.ID] = true
			if _, ok := r.Change(framework); !ok {
				continue
			}
			x := newRemedy(r, framework)
			if x.elsewhere = slices.Index(r.Causes, primary); x.elsewhere < 0 {
				x.elsewhere = len(r.Causes)
			}
			if r.ID == "max_split_size_mb" {
				// Without a replay nobody knows its sign.
				x.Why = "it can as well take more: with inputs of varying size it made reserved memory three to four times larger (measured). Have it replayed on a snapshot before you set it"
				x.elsewhere = len(r.Causes)
			} else if bound, ok := r.AtMost(amounts); ok {
				x.Saves, x.AtMost, x.Basis = ptr(int64(bound)), bound > 0, Estimated
				x.Why = "by the numbers of the message: " + r.Saves.Text
				if lacksKnown && bound < lacks {
					x.Fits = ptr(false)
				}
			}
			s.in.Remedies = append(s.in.Remedies, x)
		}
	}
	rank(s.in.Remedies)
}

// summarize writes the sentence that people read first.
func (s *logSubject) summarize() {
	consequences := s.r.OfKind(oomlog.Consequence)
	switch {
	case s.f == nil && len(s.r.OfKind(oomlog.Warning)) > 0:
		s.in.Summary = "Only warnings about memory: their author says that they are no failures."
	case s.f == nil && len(consequences) > 0:
		s.in.Summary = fmt.Sprintf("The log holds what a failure elsewhere causes (line %d), not the failure: look at the logs of the other ranks and of the host.", consequences[0].Line)
	case s.f == nil && s.r.Mentions > 0:
		s.in.Summary = fmt.Sprintf("No failure: %d %s of memory running out, in the log's own texts.", s.r.Mentions, plural(s.r.Mentions, "mention"))
	case s.f == nil:
		s.in.Summary = fmt.Sprintf("No message about memory in %d lines.", s.r.Lines)
	default:
		s.in.Summary = s.sentence()
		if ranks := s.ranks(); len(ranks) > 1 {
			s.in.Summary += fmt.Sprintf(" It was the first of %d failures, on ranks %s.", len(s.in.Failures), strings.Join(ranks, ", "))
		} else if n := len(s.in.Failures); n > 1 {
			s.in.Summary += fmt.Sprintf(" %d more failures follow.", n-1)
		}
		if len(consequences) > 0 {
			s.in.Summary += fmt.Sprintf(" %d later %s its consequence.", len(consequences), map[bool]string{true: "message is", false: "messages are"}[len(consequences) == 1])
		}
	}
	if s.needsMore() {
		s.in.Advice = append(s.in.Advice, "The log does not say what held the memory. Two lines write a snapshot that does: torch.cuda.memory._record_memory_history() before the model is made, torch.cuda.memory._dump_snapshot(\"snap.pickle\") where it fails; then vramscope explain snap.pickle.")
	}
}

// sentence describes the first failure.
func (s *logSubject) sentence() string {
	f := s.f
	var b strings.Builder
	verb := "ran out of memory"
	if f.Kind == oomlog.Caught {
		verb = "ran out of memory and went on"
	}
	fmt.Fprintf(&b, "%s %s at line %d", f.Framework, verb, f.Line)
	if f.Rank != nil {
		fmt.Fprintf(&b, " on rank %d", *f.Rank)
	}
	if f.Device != nil {
		fmt.Fprintf(&b, ", device %d", *f.Device)
	}
	if f.Tried != nil {
		fmt.Fprintf(&b, ": %v was asked for", *f.Tried)
		if most, ok := f.SmallRequest(); ok {
			fmt.Fprintf(&b, " (a segment of the allocator: the tensor itself took at most %v)", most)
		}
		if f.Free != nil {
			fmt.Fprintf(&b, " with %v free", *f.Free)
		}
		if lacks, ok := f.Lacks(); ok && lacks > 0 {
			fmt.Fprintf(&b, "; it lacks %v", lacks)
		}
	}
	b.WriteString(".")
	return b.String()
}

func (s *logSubject) ranks() []string {
	var out []string
	for _, f := range s.in.Failures {
		if f.Rank != nil {
			if r := fmt.Sprint(*f.Rank); !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	return out
}

// needsMore reports whether a snapshot would tell what the log does not.
func (s *logSubject) needsMore() bool {
	if s.f == nil || s.f.Memory != oomlog.DeviceMemory || remedyFamily(s.framework()) != "pytorch" {
		return false
	}
	for _, c := range s.in.Causes {
		if c.Confidence >= 0.8 && c.ID != cause.TooBig {
			return false
		}
	}
	return true
}

// remedyFamily is the framework at the bottom: pytorch for its trainers.
func remedyFamily(id string) string {
	for {
		f, ok := remedy.LookupFramework(id)
		if !ok || f.Parent == "" || f.Parent == remedy.Any {
			return id
		}
		id = f.Parent
	}
}
