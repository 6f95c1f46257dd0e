package diagnose

import (
	"cmp"
	"fmt"
	"slices"

	"vramscope/bytesize"
	"vramscope/internal/cause"
	"vramscope/oomlog"
)

// What people paste instead of a log: it shows a moment, and not why.

func pasted(file, kind string) *Input {
	return &Input{
		File: file, Kind: kind,
		Failures: []Failure{}, Causes: []Cause{}, Remedies: []Remedy{}, Settings: []Setting{}, Holders: []Holder{}, Leaks: []Leak{}, Advice: []string{},
	}
}

// MemorySummary diagnoses a torch.cuda.memory_summary() table.
func MemorySummary(file string, s *oomlog.Summary) *Input {
	in := pasted(file, string(oomlog.PasteSummary))
	peak := func(metric string) (current, most int64) {
		if r, ok := s.Row(metric); ok {
			return r.Current, r.Peak
		}
		return -1, -1
	}
	allocated, mostAllocated := peak("Allocated memory")
	reserved, mostReserved := peak("GPU reserved memory")
	in.allocatorState(allocated, mostAllocated, reserved, mostReserved, value(s.OOMs), value(s.Retries))
	in.Advice = append(in.Advice, s.Missing...)
	return in
}

// MemoryStats diagnoses torch.cuda.memory_stats().
func MemoryStats(file string, s *oomlog.Stats) *Input {
	in := pasted(file, string(oomlog.PasteStats))
	get := func(key string) int64 {
		if v, ok := s.Bytes(key); ok {
			return int64(v)
		}
		return -1
	}
	in.allocatorState(get("allocated_bytes.all.current"), get("allocated_bytes.all.peak"), get("reserved_bytes.all.current"), get("reserved_bytes.all.peak"),
		get("num_ooms"), get("num_alloc_retries"))
	in.Advice = append(in.Advice, "These are sums: who holds the memory, and which requests were refused, is in a snapshot (torch.cuda.memory._dump_snapshot).")
	return in
}

func value(n *int64) int64 {
	if n == nil {
		return -1
	}
	return *n
}

// allocatorState says what the allocator's counters mean. Unknown ones are
// negative.
func (in *Input) allocatorState(allocated, mostAllocated, reserved, mostReserved, ooms, retries int64) {
	if allocated >= 0 && reserved >= 0 {
		in.Summary = fmt.Sprintf("%v are in tensors and %v reserved", size(allocated), size(reserved))
		if mostAllocated >= 0 && mostReserved >= 0 {
			in.Summary += fmt.Sprintf("; at their peaks it was %v and %v", size(mostAllocated), size(mostReserved))
		}
		in.Summary += "."
	}
	switch {
	case ooms > 0:
		in.Summary += fmt.Sprintf(" %d requests were refused.", ooms)
	case retries > 0:
		in.Summary += fmt.Sprintf(" %d times the cache was emptied to serve a request: the limit is near.", retries)
	}
	if idle := reserved - allocated; allocated >= 0 && reserved > 0 && idle*4 > reserved {
		c := Cause{ID: cause.Fragmentation, Confidence: 0.4, Evidence: []Evidence{{
			Text: fmt.Sprintf("%v, %d %% of what is reserved, are in no tensor now: a cache, or pieces that nothing fits", size(idle), 100*idle/reserved), Bytes: ptr(idle)}}}
		if ooms > 0 {
			c.Confidence = 0.7
		}
		in.Causes = append(in.Causes, c)
	}
}

// SMI diagnoses the output of nvidia-smi.
func SMI(file string, s *oomlog.SMI) *Input {
	in := pasted(file, string(oomlog.PasteSMI))
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if i > 0 {
			in.Summary += " "
		}
		in.Summary += fmt.Sprintf("Card %d, %s:", g.Index, g.Name)
		if g.Used != nil && g.Total != nil {
			in.Summary += fmt.Sprintf(" %v of %v used", *g.Used, *g.Total)
		} else {
			in.Summary += " its memory is not shown"
		}
		if g.Free != nil {
			in.Summary += fmt.Sprintf(", %v free", *g.Free)
		}
		in.Summary += "."
		in.unowned(s, g)
	}
	for _, p := range s.Processes {
		if p.Used == nil {
			continue
		}
		in.Holders = append(in.Holders, Holder{Holder: fmt.Sprintf("process %d %s on card %d", p.PID, p.Name, p.GPU), Category: "process", Bytes: int64(*p.Used), Blocks: 1})
	}
	slices.SortStableFunc(in.Holders, func(a, b Holder) int { return -cmp.Compare(a.Bytes, b.Bytes) })
	in.Advice = append(in.Advice, s.Missing...)
	return in
}

// unowned notes memory of a card that no listed process holds.
func (in *Input) unowned(s *oomlog.SMI, g *oomlog.SMIGPU) {
	if g.Used == nil {
		return
	}
	rest := *g.Used
	for _, p := range s.Processes {
		if p.GPU != g.Index {
			continue
		}
		if p.Used == nil {
			return // N/A: nothing can be said
		}
		rest -= *p.Used
	}
	if rest > bytesize.GiB {
		in.Causes = append(in.Causes, Cause{ID: cause.OtherProcess, Confidence: 0.6, Evidence: []Evidence{{
			Text: fmt.Sprintf("%v of card %d are held by no process in the list: of another user or container, or of one that died and has not let go", rest, g.Index), Bytes: ptr(int64(rest))}}})
	}
}
