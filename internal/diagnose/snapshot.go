package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"vramscope/bytesize"
	"vramscope/cachealloc"
	"vramscope/internal/holders"
	"vramscope/internal/remedy"
	"vramscope/replay"
	"vramscope/trace"
)

// Options of a diagnosis.
type Options struct {
	Limit    int64 // bytes that the process may reserve; 0: as the input tells
	Capacity int64 // bytes of the card; 0: unknown
	Version  cachealloc.Version
	Batch    int // micro-batch of the recording, 0: unknown
	// With is a second recording of the same program, at another micro-batch.
	With      *replay.Program
	WithBatch int
	By        holders.By
	// MaxHolders bounds the list of holders; 0 means all.
	MaxHolders int
}

// subject is a recording under diagnosis.
type subject struct {
	ctx   context.Context
	p     *replay.Program
	a     *holders.Analysis
	o     Options
	bound replay.Bound
	// low and high are the least and the most that the process may have been
	// allowed to reserve. They are equal where it is known, 0 where nothing is.
	low, high int64
	fatal     *replay.Refusal // recorded, or replayed under the limit given
	simulated bool            // fatal was replayed
	at        int             // the event under discussion
	moment    string
	frag      *holders.Fragmentation
	need      int64                             // bytes in use there, with the refused request
	amounts   map[remedy.Category]bytesize.Size // what is not known is missing
	whole     bool                              // the recording holds a complete step
	doing     holders.PhaseKind
	half      *replay.Outcome // of half the micro-batch, without a limit
	in        *Input

	leakPerStep, leakBytes int64
}

// Snapshot diagnoses a recording.
func Snapshot(ctx context.Context, file string, p *replay.Program, o Options) (*Input, error) {
	a, err := holders.Analyze(ctx, p)
	if err != nil {
		return nil, err
	}
	s := &subject{ctx: ctx, p: p, a: a, o: o, in: &Input{
		File: file, Kind: "snapshot",
		Failures: []Failure{}, Causes: []Cause{}, Remedies: []Remedy{}, Settings: []Setting{}, Holders: []Holder{}, Leaks: []Leak{}, Advice: []string{},
	}}
	if o.Version == (cachealloc.Version{}) {
		s.o.Version = p.To
	}
	for _, step := range a.Steps {
		s.whole = s.whole || step.Complete
	}
	for _, f := range []func() error{s.findFailure, s.lookAround, s.trySettings, s.tryBatches} {
		if err := f(); err != nil {
			return nil, err
		}
	}
	s.findCauses()
	s.findRemedies()
	s.summarize()
	return s.in, nil
}

// findFailure finds the refusal that the recording ends with, or the one that
// it would have met under the limit given.
func (s *subject) findFailure() error {
	s.bound = s.p.InferBound(s.a.Outcome)
	s.fatal = s.a.Outcome.FatalOOM
	limit := s.o.Limit
	switch {
	case limit > 0 && s.fatal != nil && limit >= s.bound.High:
		s.low, s.high = s.bound.Low, s.bound.High-1
		s.in.Advice = append(s.in.Advice, fmt.Sprintf("The job was refused with less than %v to reserve. Under %v this request would be served; what comes after it was not recorded.", size(s.bound.High), size(limit)))
	case limit > 0:
		s.low, s.high = limit, limit
	case s.bound.Refused():
		s.low, s.high = s.bound.Low, s.bound.High-1
	}
	if limit > 0 && (s.fatal == nil || limit < s.a.Outcome.PeakReserved) {
		out, err := s.p.Run(s.ctx, replay.Scenario{Version: s.o.Version, Limit: limit, Settings: &s.p.Recorded})
		if err != nil {
			return err
		}
		if out.FatalOOM != nil {
			s.fatal, s.simulated = out.FatalOOM, true
		}
	}
	switch {
	case s.fatal != nil:
		s.at, s.moment = s.fatal.Event, "failure"
	default:
		s.at, s.moment = s.a.PeakAllocated, "peak_allocated"
	}
	for _, x := range s.a.Outcome.Refusals {
		if x != s.fatal {
			s.in.Failures = append(s.in.Failures, s.failure(x, true, false))
		}
	}
	if s.fatal != nil {
		// What killed the job comes first; what it survived follows.
		s.in.Failures = append([]Failure{s.failure(s.fatal, false, s.simulated)}, s.in.Failures...)
	}
	return nil
}

func (s *subject) failure(x *replay.Refusal, survived, simulated bool) Failure {
	e := &s.p.Device.Events
	f := Failure{
		Framework: ptr("pytorch"), FrameworkVersion: ptr(versionRange(s.p)), Device: ptr(s.p.Device.Ordinal),
		Tried: ptr(x.SegmentBytes), Requested: ptr(x.Requested), Event: ptr(x.Event), Survived: survived, Basis: Measured,
	}
	if s.o.Capacity > 0 {
		f.Capacity = ptr(s.o.Capacity)
	}
	if s.o.Limit > 0 {
		f.Limit = ptr(s.o.Limit)
	}
	if simulated {
		f.Basis = Replayed
	} else {
		f.Free = ptr(int64(e.Addr[x.Event]))
	}
	if !survived {
		switch {
		case s.low == s.high: // the limit is known
			f.Lacks = ptr(max(x.SegmentBytes-max(s.high-x.Reserved, 0), 0))
		case s.bound.ByDriver:
			f.Lacks = ptr(max(x.SegmentBytes-s.bound.DriverFree, 0))
		}
		allocated := s.allocatedAt(x.Event)
		f.Allocated = ptr(allocated)
		if rest := x.Reserved - allocated; rest >= 0 {
			f.ReservedUnallocated = ptr(rest)
		}
	}
	f.Stack = stackLines(s.p.Trace, e.Stack[x.Event])
	return f
}

// allocatedAt returns the bytes of the blocks in use right after an event.
func (s *subject) allocatedAt(event int) (sum int64) {
	for i := range s.a.Live(event) {
		sum += s.a.Allocated[i]
	}
	return sum
}

func stackLines(t *trace.Trace, id trace.StackID) []string {
	out := []string{}
	for f := range t.Stacks.All(id) {
		out = append(out, fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Function))
	}
	return out
}

func versionRange(p *replay.Program) string {
	if p.From == p.To {
		return p.From.String()
	}
	return p.From.String() + " to " + p.To.String()
}

// lookAround lists who holds the memory at the moment under discussion.
func (s *subject) lookAround() error {
	list := s.a.At(s.at, s.o.By)
	m := &Moment{Name: s.moment, Event: s.at, ByCategory: map[string]int64{}}
	for i, h := range list {
		m.Allocated += h.Bytes
		m.ByCategory[h.Category.String()] += h.Bytes
		if s.o.MaxHolders == 0 || i < s.o.MaxHolders {
			s.in.Holders = append(s.in.Holders, Holder{Holder: h.Name, Category: h.Category.String(), Bytes: h.Bytes, Blocks: h.Blocks, Why: h.Rule.String()})
		}
	}
	s.doing = s.activity()
	m.Phase = s.doing.String()
	if !s.simulated {
		// The recorded run was replayed to the byte up to here.
		f, err := s.a.Fragmentation(s.ctx, s.at)
		if err != nil {
			return err
		}
		s.frag = f
		m.Reserved, m.LargestServe = f.Reserved, f.LargestFree
	} else {
		m.Reserved = s.fatal.Reserved
	}
	s.in.Moment = m
	s.need = m.Allocated
	if s.fatal != nil {
		s.need += s.fatal.Rounded
	}
	s.amounts = map[remedy.Category]bytesize.Size{remedy.Fragmentation: size(max(m.Reserved-m.Allocated, 0))}
	for c, name := range map[remedy.Category]holders.Category{
		remedy.Parameters: holders.Parameter, remedy.Gradients: holders.Gradient, remedy.OptimizerState: holders.OptimizerState,
		remedy.Activations: holders.Activation, remedy.Input: holders.Input, remedy.Temporary: holders.Temporary, remedy.Workspace: holders.Workspace,
	} {
		// Before the first step has ended, nothing of a kind means that it
		// has not come yet.
		if n := m.ByCategory[name.String()]; n > 0 || s.whole {
			s.amounts[c] = size(n)
		}
	}
	if l, ok := s.a.Logits(s.at); ok {
		s.amounts[remedy.Logits] = size(l.Bytes)
	}
	if n := s.heldBy(cacheFiles); n > 0 {
		s.amounts[remedy.KVCache] = size(n)
	}
	s.leaks()
	return nil
}

// heldBy returns the bytes in use that code in these files asked for.
func (s *subject) heldBy(files []string) (sum int64) {
	known := map[trace.StackID]bool{}
	for i := range s.a.Live(s.at) {
		id := s.a.Stack(i)
		in, seen := known[id]
		if !seen {
			in = inFile(s.p.Trace, id, files)
			known[id] = in
		}
		if in {
			sum += s.a.Allocated[i]
		}
	}
	return sum
}

// madeSince returns the bytes in use that were made after the last complete
// step of training.
func (s *subject) madeSince() (sum int64) {
	last := 0
	for i := range s.a.Steps {
		if s.a.Steps[i].Complete {
			last = s.a.Steps[i].End
		}
	}
	for i := range s.a.Live(s.at) {
		if int(s.p.Requests[i].Event) >= last {
			sum += s.a.Allocated[i]
		}
	}
	return sum
}

// leaks lists what grows, one entry a line of code.
func (s *subject) leaks() {
	index := map[string]int{}
	for _, l := range s.a.Leaks() {
		i, ok := index[l.Line]
		if !ok {
			i = len(s.in.Leaks)
			index[l.Line] = i
			s.in.Leaks = append(s.in.Leaks, Leak{Holder: l.Line})
		}
		s.in.Leaks[i].PerStep += int64(l.BytesPerStep)
		s.in.Leaks[i].Bytes += l.Bytes
		s.leakPerStep += int64(l.BytesPerStep)
		s.leakBytes += l.Bytes
	}
	slices.SortStableFunc(s.in.Leaks, func(a, b Leak) int { return -cmp.Compare(a.Bytes, b.Bytes) })
	if s.low > 0 && s.leakPerStep > 0 && s.fatal == nil {
		left := max((s.low-s.a.Outcome.PeakReserved)/s.leakPerStep, 0)
		for i := range s.in.Leaks {
			s.in.Leaks[i].StepsToFull = ptr(left)
		}
	}
}

// survives replays under a scenario at the least and the most that the limit
// may have been: nil where the two differ.
func (s *subject) survives(p *replay.Program, settings *cachealloc.Settings) (*bool, *replay.Outcome, error) {
	if s.low == 0 {
		return nil, nil, nil
	}
	run := func(limit int64) (*replay.Outcome, error) {
		return p.Run(s.ctx, replay.Scenario{Settings: settings, Version: s.o.Version, Limit: limit})
	}
	atLow, err := run(s.low)
	if err != nil {
		return nil, nil, err
	}
	if atLow.Fits() || s.low == s.high {
		return ptr(atLow.Fits()), atLow, nil
	}
	atHigh, err := run(s.high)
	if err != nil {
		return nil, nil, err
	}
	if !atHigh.Fits() {
		return ptr(false), atHigh, nil
	}
	return nil, atHigh, nil
}

// shortfall is by how many bytes what the job needs exceeds what it may have,
// at least; false where no limit is known.
func (s *subject) shortfall() (int64, bool) {
	if s.high == 0 {
		return 0, false
	}
	return s.need - s.high, true
}

func size(n int64) bytesize.Size { return bytesize.Size(n) }
