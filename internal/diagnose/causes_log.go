package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"vramscope/bytesize"
	"vramscope/internal/cause"
	"vramscope/oomlog"
)

// logRules are asked of a log's first failure, each on its own. A rule returns
// nil where it does not apply. Phases and other memories say more than numbers
// do (notes: of 47 public reports with all four numbers, plain exhaustion looks
// like fragmentation in many).
var logRules = []func(*logSubject) *Cause{
	logOtherMemory, logCorrupt, logLibrary, logCollective, logServer, logPreallocation,
	logPhase, logWrongDevice, logOtherProcess, logOutside, logLimit, logFragmentation, logPlatform, logGrowth, logTooBig,
}

func (s *logSubject) findCauses() {
	if s.f == nil {
		s.in.Causes = append(s.in.Causes, s.noFailure())
		return
	}
	for _, rule := range logRules {
		if c := rule(s); c != nil {
			s.in.Causes = append(s.in.Causes, *c)
		}
	}
	if len(s.in.Causes) == 0 {
		s.in.Causes = append(s.in.Causes, Cause{ID: cause.Unknown, Confidence: 0.5, Evidence: []Evidence{s.line("the message holds no numbers that tell why")}})
	}
	sortCauses(s.in.Causes)
}

// noFailure says what a log without a failure is about.
func (s *logSubject) noFailure() Cause {
	warnings, consequences := s.r.OfKind(oomlog.Warning), s.r.OfKind(oomlog.Consequence)
	switch {
	case len(consequences) > 0:
		return Cause{ID: cause.Unknown, Confidence: 0.5, Evidence: []Evidence{quoted(consequences[0].Line, consequences[0].Text)}}
	case len(warnings) > 0:
		return Cause{ID: cause.WarningOnly, Confidence: 0.95, Evidence: []Evidence{quoted(warnings[0].Line, warnings[0].Text)}}
	}
	c := Cause{ID: cause.NotMemory, Confidence: 0.9, Evidence: []Evidence{}}
	for _, m := range s.r.MentionFacts {
		c.Evidence = append(c.Evidence, quoted(m.Line, m.Text))
	}
	return c
}

// quoted is a line of the log as evidence.
func quoted(line int, text string) Evidence {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > 240 {
		text = string(r[:240]) + "…"
	}
	return Evidence{Text: "“" + text + "”", Line: ptr(int64(line))}
}

// line is a statement about the failing message.
func (s *logSubject) line(format string, args ...any) Evidence {
	return Evidence{Text: fmt.Sprintf(format, args...), Line: ptr(int64(s.f.Line))}
}

// grammar reports whether the message has one of these forms.
func (s *logSubject) grammar(ids ...string) bool { return slices.Contains(ids, s.f.Grammar) }

// logOtherMemory: the message itself says that it is not the card's memory.
func logOtherMemory(s *logSubject) *Cause {
	id, ok := map[oomlog.Memory]cause.ID{
		oomlog.HostMemory: cause.HostRAM, oomlog.SharedMemory: cause.SharedMemory, oomlog.PinnedMemory: cause.PinnedMemory,
		oomlog.OnChipMemory: cause.KernelResources, oomlog.PlatformMemory: cause.PlatformLimit,
	}[s.f.Memory]
	if !ok {
		return nil
	}
	return &Cause{ID: id, Confidence: 0.95, Evidence: []Evidence{quoted(s.f.Line, s.f.Text)}}
}

// absurd is more than any card or host has.
const absurd = 1 << 50

func logCorrupt(s *logSubject) *Cause {
	f := s.f
	switch {
	case s.grammar("pytorch/1eb") || strings.Contains(f.Text, "more than 1EB"):
	case f.Tried != nil && int64(*f.Tried) >= absurd:
	case f.Tried != nil && f.Capacity != nil && *f.Tried > 4**f.Capacity:
		return &Cause{ID: cause.CorruptSize, Confidence: 0.6, Evidence: []Evidence{
			s.line("%v were asked for, more than four cards have: a size that was computed wrong, or a batch dimension that multiplied itself", *f.Tried)}}
	default:
		return nil
	}
	return &Cause{ID: cause.CorruptSize, Confidence: 0.95, Evidence: []Evidence{s.line("no program needs a tensor of that size: a shape was read from memory that holds something else, often after an earlier failure of another rank")}}
}

// logLibrary: cuBLAS, cuDNN and the like fail without numbers when the card is
// nearly full, or when their start finds no room.
func logLibrary(s *logSubject) *Cause {
	if _, masked := s.f.Detail("masked"); !masked && !strings.HasPrefix(s.f.Grammar, "cuda/c") {
		return nil
	}
	c := &Cause{ID: cause.WorkspaceOrContext, Confidence: 0.75, Evidence: []Evidence{quoted(s.f.Line, s.f.Text)}}
	c.Evidence = append(c.Evidence, Evidence{Text: "a library of the driver could not get memory beside the framework's allocator, which holds the rest of the card"})
	return c
}

func logCollective(s *logSubject) *Cause {
	if s.f.Framework != "nccl" && s.phase(oomlog.PhaseCollective) == nil {
		return nil
	}
	conf := 0.6
	if s.f.Framework == "nccl" {
		conf = 0.9
	}
	return &Cause{ID: cause.CollectiveBuffers, Confidence: conf, Evidence: []Evidence{quoted(s.f.Line, s.f.Text)}}
}

// logServer: inference servers have a budget of their own.
func logServer(s *logSubject) *Cause {
	switch {
	case s.f.Memory == oomlog.KVCacheMemory:
		c := &Cause{ID: cause.KVCache, Confidence: 0.9, Evidence: []Evidence{quoted(s.f.Line, s.f.Text)}}
		if fits, ok := s.f.Detail("fits_seq_len"); ok {
			c.Evidence = append(c.Evidence, s.line("sequences of up to %.0f tokens would fit", fits))
		}
		return c
	case s.grammar("vllm/startup-free"):
		return &Cause{ID: cause.OtherProcess, Confidence: 0.8, Evidence: []Evidence{quoted(s.f.Line, s.f.Text), s.line("the card was not empty when the server started")}}
	case s.grammar("vllm/sampler-warmup", "vllm/pooler-warmup", "sglang/capture") || s.phase(oomlog.PhaseCapture, oomlog.PhaseWarmUp) != nil:
		c := &Cause{ID: cause.ServerStartup, Confidence: 0.85, Evidence: []Evidence{quoted(s.f.Line, s.f.Text)}}
		if x := s.phase(oomlog.PhaseCapture, oomlog.PhaseWarmUp); x != nil {
			c.Evidence = append(c.Evidence, quoted(x.Line, x.Text))
		}
		return c
	case s.grammar("vllm/profiling"):
		return &Cause{ID: cause.OtherProcess, Confidence: 0.7, Evidence: []Evidence{quoted(s.f.Line, s.f.Text)}}
	}
	return nil
}

// logPreallocation: JAX and TensorFlow take most of the card at start, so a
// second process finds nothing.
func logPreallocation(s *logSubject) *Cause {
	if s.grammar("tensorflow/driver-alloc") {
		return &Cause{ID: cause.Preallocation, Confidence: 0.7, Evidence: []Evidence{quoted(s.f.Line, s.f.Text),
			s.line("TensorFlow asks for nearly all of the card when it starts; somebody already held a part of it")}}
	}
	if s.f.Framework != "jax" {
		return nil
	}
	if x := s.fact(oomlog.SettingFact, "preallocate"); x != nil && strings.Contains(strings.ToLower(x.Text), "false") {
		return nil
	}
	if n := len(s.f.Processes); n > 0 {
		return &Cause{ID: cause.Preallocation, Confidence: 0.7, Evidence: []Evidence{s.line("%d other processes hold memory of the card, and JAX takes 75 %% of it when it starts", n)}}
	}
	return nil
}

// phaseCauses are the phases that name a cause by themselves.
var phaseCauses = []struct {
	phases     []string
	id         cause.ID
	confidence float64
	text       string
}{
	{[]string{oomlog.PhaseOptimizer}, cause.OptimizerState, 0.85, "it failed in the optimizer's step"},
	{[]string{oomlog.PhaseSave, oomlog.PhaseLoad}, cause.Checkpoint, 0.8, "it failed while a checkpoint was saved or loaded"},
	{[]string{oomlog.PhaseEvaluate}, cause.Evaluation, 0.8, "it failed in evaluation"},
	{[]string{oomlog.PhaseGenerate}, cause.Generation, 0.8, "it failed while text was generated"},
	{[]string{oomlog.PhaseLoss}, cause.Logits, 0.7, "it failed in the loss, where tensors of batch × sequence × vocabulary are made"},
}

func logPhase(s *logSubject) *Cause {
	for _, p := range phaseCauses {
		x := s.phase(p.phases...)
		if x == nil {
			continue
		}
		c := &Cause{ID: p.id, Confidence: p.confidence, Evidence: []Evidence{quoted(x.Line, x.Text)}}
		text := p.text
		if n, ok := s.step(); ok && p.id == cause.OptimizerState {
			if n <= 2 {
				c.Confidence = 0.95
				text += fmt.Sprintf(" of step %.0f: the optimizer makes its state in the first", n)
			} else {
				c.Confidence = 0.5
				text += fmt.Sprintf(" of step %.0f, long after its state was made", n)
			}
		}
		if f := s.f; p.id == cause.Logits && f.Tried != nil && f.Capacity != nil && *f.Tried > *f.Capacity/20 {
			c.Confidence = 0.88
			text += fmt.Sprintf(": one of %v", *f.Tried)
		}
		c.Evidence = append(c.Evidence, s.line("%s", text))
		return c
	}
	return nil
}

// logWrongDevice: several ranks of one job fail on the same card.
func logWrongDevice(s *logSubject) *Cause {
	device := map[int]map[int]bool{} // device → ranks
	for i := range s.r.Failures {
		if f := &s.r.Failures[i]; f.Kind == oomlog.Fatal && f.Device != nil && f.Rank != nil {
			if device[*f.Device] == nil {
				device[*f.Device] = map[int]bool{}
			}
			device[*f.Device][*f.Rank] = true
		}
	}
	if len(device) != 1 || s.f.Device == nil || len(device[*s.f.Device]) < 2 || s.f.Capacity == nil {
		return nil
	}
	// With one visible card each, all ranks say 0: then this process holds
	// most of what is taken. On a shared card it does not.
	others, ok := s.f.OtherProcesses()
	if !ok || others < *s.f.Capacity/4 {
		return nil
	}
	return &Cause{ID: cause.WrongDevice, Confidence: 0.8, Evidence: []Evidence{s.line("%d ranks failed on device %d, and other processes hold %v of it: all ranks use the same card", len(device[*s.f.Device]), *s.f.Device, others)}}
}

// somebodyElse is from how many bytes on what nobody in the message holds is
// more than contexts and libraries (notes §7.1: from 3 GiB in all cases seen,
// up to 1.2 GiB in none).
const (
	somebodyElse = 3 << 30
	maybeElse    = 6 << 30 / 5
)

func logOtherProcess(s *logSubject) *Cause {
	f := s.f
	if f.AtLimit() || f.Capacity == nil {
		return nil
	}
	if others, ok := f.OtherProcesses(); ok {
		if others < *f.Capacity/50 && others < 1<<30 {
			return nil
		}
		c := &Cause{ID: cause.OtherProcess, Confidence: 0.6}
		if lacks, ok := f.Lacks(); ok && others >= lacks {
			c.Confidence = 0.75
			if others > *f.Capacity/5 {
				c.Confidence = 0.9
			}
		}
		c.Evidence = append(c.Evidence, s.line("other processes hold %v of %v:", others, *f.Capacity))
		c.Evidence[0].Bytes = ptr(int64(others))
		for _, p := range f.Processes[:min(3, len(f.Processes))] {
			c.Evidence = append(c.Evidence, Evidence{Text: fmt.Sprintf("process %d: %v", p.PID, p.Used), Bytes: ptr(int64(p.Used))})
		}
		return c
	}
	rest, ok := f.Unexplained()
	if !ok || rest < maybeElse {
		return nil
	}
	c := &Cause{ID: cause.OtherProcess, Confidence: 0.35}
	switch share := float64(rest) / float64(*f.Capacity); {
	case rest >= somebodyElse:
		c.Confidence = 0.85
	case share > 0.25:
		c.Confidence = 0.6
	}
	c.Evidence = append(c.Evidence, s.line("%v of the card are neither free nor held by this allocator: more than a context (about %v) takes", rest, bytesize.Size(contextBytes)))
	c.Evidence[0].Bytes = ptr(int64(rest))
	return c
}

// logOutside: this process holds much that its allocator does not manage.
func logOutside(s *logSubject) *Cause {
	out, ok := s.f.OutsideAllocator()
	if !ok || out < 2<<30 {
		return nil
	}
	return &Cause{ID: cause.OutsideFramework, Confidence: 0.75, Evidence: []Evidence{{
		Text: fmt.Sprintf("this process holds %v beyond its allocator: libraries, communication buffers, another framework", out), Line: ptr(int64(s.f.Line)), Bytes: ptr(int64(out))}}}
}

func logLimit(s *logSubject) *Cause {
	f := s.f
	switch {
	case f.AtLimit():
		return &Cause{ID: cause.Limit, Confidence: 0.9, Evidence: []Evidence{s.line("%v were free on the card, but the process may reserve only %v", *f.Free, *f.Limit)}}
	case s.fact(oomlog.MIGFact) != nil && f.FreeSuffices():
		x := s.fact(oomlog.MIGFact)
		return &Cause{ID: cause.Limit, Confidence: 0.6, Evidence: []Evidence{quoted(x.Line, x.Text)}}
	case f.FreeSuffices():
		if x := s.fact(oomlog.SettingFact, "memory_fraction", "gpu_memory_utilization", "mem_fraction_static"); x != nil {
			return &Cause{ID: cause.Limit, Confidence: 0.75, Evidence: []Evidence{quoted(x.Line, x.Text), s.line("%v were free when %v was refused", *f.Free, *f.Tried)}}
		}
	}
	return nil
}

// logFragmentation: enough was reserved and unused, but in pieces.
func logFragmentation(s *logSubject) *Cause {
	f := s.f
	idle, ok := f.Idle()
	if !ok || !f.IdleSuffices() {
		return nil
	}
	most := f.Capacity
	if f.Limit != nil && f.AtLimit() {
		most = f.Limit
	}
	c := &Cause{ID: cause.Fragmentation, Confidence: 0.35}
	if most != nil && *most > 0 {
		switch share := float64(idle) / float64(*most); {
		case share >= 0.1:
			c.Confidence = 0.85
		case share >= 0.05:
			c.Confidence = 0.6
		}
	}
	c.Evidence = append(c.Evidence, s.line("%v were reserved and unused, more than the %v asked for, but in pieces", idle, *f.Tried))
	c.Evidence[0].Bytes = ptr(int64(idle))
	if f.PrivatePools != nil && *f.PrivatePools > 0 {
		c.Evidence = append(c.Evidence, s.line("%v lie in private pools (CUDA graphs), which serve nobody else", *f.PrivatePools))
	}
	return c
}

// logPlatform: the card was not full, or more is held than it has.
func logPlatform(s *logSubject) *Cause {
	f := s.f
	switch {
	case f.Spilled():
		return &Cause{ID: cause.PlatformLimit, Confidence: 0.6, Evidence: []Evidence{s.line("more is held than the card has: Windows lends main memory, slowly, until it is full too")}}
	case f.FreeSuffices() && !f.AtLimit() && !f.IdleSuffices() && s.fact(oomlog.SettingFact, "memory_fraction", "gpu_memory_utilization", "mem_fraction_static") == nil && s.fact(oomlog.MIGFact) == nil:
		return &Cause{ID: cause.PlatformLimit, Confidence: 0.55, Evidence: []Evidence{s.line("%v were free when %v was refused: the card was not full. A quota, WSL, the commit limit of Windows or the largest single allocation may be", *f.Free, *f.Tried)}}
	}
	return nil
}

// logGrowth: the memory that the job printed grows with its steps.
func logGrowth(s *logSubject) *Cause {
	series := map[string][]oomlog.Sample{}
	for _, u := range s.r.Usage {
		key := u.Stream + "\x00" + u.Name
		series[key] = append(series[key], u)
	}
	for _, v := range series {
		if len(v) < 5 {
			continue
		}
		rises, falls := 0, 0
		for i := 1; i < len(v); i++ {
			switch d := v[i].Used - v[i-1].Used; {
			case d > 0:
				rises++
			case d < 0:
				falls++
			}
		}
		first, last := v[len(v)/4], v[len(v)-1]
		if grown := last.Used - first.Used; rises > 3*falls && rises*2 > len(v) && grown > first.Used/10 {
			return &Cause{ID: cause.Leak, Confidence: 0.75, Evidence: []Evidence{{
				Text: fmt.Sprintf("%s grew from %v (line %d) to %v (line %d), and hardly ever fell", last.Name, first.Used, first.Line, last.Used, last.Line), Line: ptr(int64(last.Line)), Bytes: ptr(int64(grown))}}}
		}
	}
	if n, ok := s.step(); ok && n >= 20 && s.f.Memory == oomlog.DeviceMemory && s.phase(oomlog.PhaseEvaluate, oomlog.PhaseSave, oomlog.PhaseGenerate) == nil {
		return &Cause{ID: cause.VariableLength, Confidence: 0.4, Evidence: []Evidence{s.line("it ran for %.0f steps before: a longer input than before, or memory that grows from step to step (a leak)", n)}}
	}
	return nil
}

func logTooBig(s *logSubject) *Cause {
	f := s.f
	if f.Memory != oomlog.DeviceMemory && f.Memory != oomlog.UnknownMemory {
		return nil
	}
	c := &Cause{ID: cause.TooBig, Confidence: 0.5}
	if f.NeverFits() {
		c.Confidence = 0.9
		c.Evidence = append(c.Evidence, s.line("the request of %v alone is more than the card or the limit", *f.Tried))
		return c
	}
	room := f.Capacity
	what := "of the card"
	if f.Limit != nil && f.AtLimit() {
		room, what = f.Limit, "that it may reserve"
	}
	if room == nil || f.Allocated == nil || f.Tried == nil {
		if f.Tried == nil && !slices.ContainsFunc(s.in.Causes, func(c Cause) bool { return c.Confidence >= 0.5 }) {
			return nil
		}
		c.Confidence = 0.3
		if f.Framework == "jax" && f.Tried != nil {
			// XLA plans a whole program and asks for its buffers at once.
			c.Confidence = 0.6
			c.Evidence = append(c.Evidence, s.line("the compiled program asks for %v in one piece", *f.Tried))
		}
		c.Evidence = append(c.Evidence, s.line("the message does not say how much is in use"))
		return c
	}
	need := *f.Allocated + *f.Tried
	c.Evidence = append(c.Evidence, s.line("%v in tensors and %v more, of %v %s", *f.Allocated, *f.Tried, *room, what))
	c.Evidence[0].Bytes = ptr(int64(need))
	others, _ := f.OtherProcesses()
	switch share := float64(need) / float64(*room); {
	case share >= 0.9:
		c.Confidence = 0.85
	case float64(need)+float64(others) >= 0.9*float64(*room) || share >= 0.75:
		c.Confidence = 0.6
	default:
		c.Confidence = 0.3
	}
	for _, x := range s.in.Causes { // a more telling cause names what is too big
		if x.Confidence >= 0.8 && x.ID != cause.Limit {
			c.Confidence = min(c.Confidence, 0.5)
		}
	}
	return c
}
