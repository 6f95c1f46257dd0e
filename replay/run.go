package replay

import (
	"context"
	"errors"

	"vramscope/cachealloc"
	"vramscope/trace"
)

// Scenario is what to replay a program under.
type Scenario struct {
	// Settings of the allocator; nil means the recorded ones.
	Settings *cachealloc.Settings
	// Version of PyTorch; zero means the newest that can have written the
	// recording.
	Version cachealloc.Version
	// Limit is what the process may reserve, in bytes; 0 means no limit.
	Limit int64
	// Capacity is what the driver can give, in bytes; 0 means without end.
	Capacity int64
	// OnEvent, if set, is called after each operation with the event that it
	// ends with and the allocator's statistics.
	OnEvent func(event int, s *cachealloc.Stats)
	// At, if set, is called once with the allocator's segments at the moment
	// after event AtEvent. Blocks carry the index of their request, plus one,
	// in Traceback.
	At      func([]trace.Segment)
	AtEvent int
}

// Outcome is what a replay did.
type Outcome struct {
	PeakAllocated int64
	PeakReserved  int64
	PeakRequested int64
	// PeakReservedEvent is the first event at which the reserved bytes were at
	// their peak, PeakAllocatedEvent likewise.
	PeakReservedEvent  int
	PeakAllocatedEvent int
	EndReserved        int64
	SegmentEvents      int
	Retries            int64
	OOMs               int64
	FirstOOM           *Refusal
	// FatalOOM is the refusal after which the program asked for nothing more.
	FatalOOM *Refusal
	// Refusals, all of them, in order.
	Refusals []*Refusal
	// Survived counts refusals after which the program went on.
	Survived int
	// MayDiffer says that a request was refused, or granted, which the
	// recording shows the other way: later requests of the real program may
	// differ.
	MayDiffer bool
	// Matches tells whether each segment event and the final segments are
	// those of the recording; nil where that cannot be said.
	Matches *bool
	// Misplaced counts requests that got another address than recorded; under
	// other settings it says nothing and is 0.
	Misplaced int
	// Quiet counts the events after which empty_cache would have released
	// nothing, so that a call there left no event; QuietRanges are the longest
	// stretches of them, as [first, last] events. Only under the recorded
	// settings.
	Quiet       int
	QuietRanges [][2]int
	// Divergence is the first difference from the recording, if one was found.
	Divergence *Divergence
	Stats      cachealloc.Stats
}

// Refusal is a request that was refused.
type Refusal struct {
	Request int // index in Program.Requests
	Event   int
	cachealloc.OOMError
}

// Fits reports whether the program ran to its end.
func (o *Outcome) Fits() bool { return o.FatalOOM == nil }

// Run replays the program. The error is the context's.
func (p *Program) Run(ctx context.Context, sc Scenario) (*Outcome, error) {
	r := newRunner(p, sc)
	for i := range p.ops {
		if i&0xffff == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !r.do(i) {
			break
		}
	}
	return r.outcome(), nil
}

// runner is one replay under way.
type runner struct {
	p        *Program
	sc       Scenario
	a        *cachealloc.Allocator
	stats    *cachealloc.Stats
	block    []cachealloc.Block // by request; meaningful while state says so
	state    []requestState
	recorded *recordedDriver // nil under other settings
	changes  []Change        // of the recorded settings, still to come
	survives map[trace.StackID]bool
	// onSegment, if set, is called for each simulated segment event.
	onSegment func(a trace.Action, addr uint64, size int64, stream uint64)
	out       Outcome
	quietFrom int // since when empty_cache would release nothing, -1
}

type requestState uint8

const (
	unborn requestState = iota
	live
	waiting // free requested, not complete
	gone
)

func newRunner(p *Program, sc Scenario) *runner {
	r := &runner{p: p, sc: sc, quietFrom: -1, block: make([]cachealloc.Block, len(p.Requests)), state: make([]requestState, len(p.Requests))}
	v := sc.Version
	if v == (cachealloc.Version{}) {
		v = p.To
	}
	cfg := cachealloc.Config{Version: v, Settings: sc.Settings, Limit: sc.Limit, TotalMemory: sc.Capacity}
	if sc.Settings == nil {
		cfg.Settings = &p.Recorded
	}
	most, _ := p.RecordedReserved()
	if sc.Settings == nil && !p.edited && (sc.Capacity == 0 || sc.Capacity >= most) { // else it is another run
		r.recorded = &recordedDriver{events: &p.Device.Events, segment: p.segment}
		r.recorded.Capacity = sc.Capacity
		r.changes = p.Changes
		cfg.Driver = r.recorded
	} else {
		cfg.Driver = &cachealloc.Card{Capacity: sc.Capacity}
	}
	cfg.OnSegment = func(a trace.Action, addr uint64, size int64, stream uint64) {
		r.out.SegmentEvents++
		if r.onSegment != nil {
			r.onSegment(a, addr, size, stream)
		}
		if r.recorded != nil {
			r.recorded.compare(a, addr, size, stream)
		}
	}
	r.a = cachealloc.New(cfg)
	r.stats = r.a.Stats()
	r.survives = p.survivedSites()
	r.restore()
	return r
}

// survivedSites are the stacks whose refusal the recorded program survived:
// it asked for more memory afterwards.
func (p *Program) survivedSites() map[trace.StackID]bool {
	var sites map[trace.StackID]bool
	asked := false
	for i := len(p.ops) - 1; i >= 0; i-- {
		switch p.ops[i].kind {
		case opAlloc:
			asked = true
		case opRefused:
			if asked {
				if sites == nil {
					sites = map[trace.StackID]bool{}
				}
				sites[p.Device.Events.Stack[p.ops[i].event]] = true
			}
			asked = true
		}
	}
	return sites
}

// do does operation i of the program and reports whether it goes on.
func (r *runner) do(i int) bool {
	for len(r.changes) > 0 && r.changes[0].op == i {
		r.a.SetSettings(&r.changes[0].Settings)
		r.changes = r.changes[1:]
	}
	return r.step(&r.p.ops[i])
}

// step does an operation and reports whether the program goes on.
func (r *runner) step(o *op) bool {
	if r.recorded != nil {
		r.recorded.begin(*o)
	}
	switch o.kind {
	case opAlloc:
		if !r.malloc(o) {
			return false
		}
	case opRefused:
		if !r.refused(o) {
			return false
		}
	case opFree, opRequestFree:
		if r.state[o.request] != live {
			break
		}
		b := r.block[o.request]
		r.a.RequestFree(b)
		if o.kind == opFree {
			r.a.Complete(b)
			r.state[o.request] = gone
		} else {
			r.a.Defer(b)
			r.state[o.request] = waiting
		}
	case opComplete:
		if b := r.block[o.request]; r.state[o.request] == waiting {
			// A retry or an empty_cache may have waited for it already.
			if r.a.Pending(b) && r.a.Tag(b) == o.request+1 {
				r.a.Complete(b)
			}
			r.state[o.request] = gone
		}
	case opEmptyCache:
		r.a.EmptyCache()
	}
	if r.recorded != nil {
		r.listen(int(o.event))
	}
	if v := r.stats.ReservedBytes.All.Current; v > r.out.PeakReserved {
		r.out.PeakReserved, r.out.PeakReservedEvent = v, int(o.event)
	}
	if r.sc.OnEvent != nil {
		r.sc.OnEvent(int(o.event), r.stats)
	}
	if r.sc.At != nil && int(o.event) >= r.sc.AtEvent {
		r.sc.At(r.a.Segments())
		r.sc.At = nil
	}
	return true
}

// quietRanges is how many stretches are kept.
const quietRanges = 16

// listen notes whether a call of empty_cache would leave an event now.
func (r *runner) listen(event int) {
	if r.a.Releases() {
		r.quietFrom = -1
		return
	}
	if r.quietFrom < 0 {
		r.quietFrom = event
		if len(r.out.QuietRanges) >= quietRanges { // the shortest makes room
			least := 0
			for i, q := range r.out.QuietRanges {
				if q[1]-q[0] < r.out.QuietRanges[least][1]-r.out.QuietRanges[least][0] {
					least = i
				}
			}
			r.out.QuietRanges = append(r.out.QuietRanges[:least], r.out.QuietRanges[least+1:]...)
		}
		r.out.QuietRanges = append(r.out.QuietRanges, [2]int{event, event})
	}
	r.out.Quiet++
	r.out.QuietRanges[len(r.out.QuietRanges)-1][1] = event
}

// placed reports whether a request got the address that the recording shows.
func (r *runner) placed(o *op) bool {
	return o.kind != opAlloc || r.state[o.request] != live || r.a.Address(r.block[o.request]) == r.p.Device.Events.Addr[o.event]
}

func (r *runner) malloc(o *op) bool {
	req := &r.p.Requests[o.request]
	b, err := r.a.MallocIn(req.Pool, req.Size, req.Stream)
	if err != nil {
		return r.refuse(o, err, r.survives[r.p.Device.Events.Stack[o.event]])
	}
	r.block[o.request], r.state[o.request] = b, live
	r.a.SetTag(b, o.request+1)
	if r.recorded != nil && !r.placed(o) {
		r.out.Misplaced++
	}
	if v := r.stats.AllocatedBytes.All.Current; v > r.out.PeakAllocated {
		r.out.PeakAllocated, r.out.PeakAllocatedEvent = v, int(o.event)
	}
	return true
}

// refused replays a request that the recording shows refused.
func (r *runner) refused(o *op) bool {
	req := &r.p.Requests[o.request]
	b, err := r.a.MallocIn(req.Pool, req.Size, req.Stream)
	if err != nil {
		return r.refuse(o, err, r.p.asksAfter(o))
	}
	// Granted here: the recording does not tell how long the program would
	// have kept it. The last request counts to the end; a tried one, whose
	// refusal the program survived, was for a moment.
	r.out.MayDiffer = true
	if v := r.stats.AllocatedBytes.All.Current; v > r.out.PeakAllocated {
		r.out.PeakAllocated, r.out.PeakAllocatedEvent = v, int(o.event)
	}
	if r.p.asksAfter(o) {
		r.a.RequestFree(b)
		r.a.Complete(b)
	}
	return true
}

// asksAfter reports whether the recorded program made a request after o.
func (p *Program) asksAfter(o *op) bool { return int(o.request) < len(p.Requests)-1 }

// refuse notes a refusal and reports whether the program goes on.
func (r *runner) refuse(o *op, err error, survives bool) bool {
	x := &Refusal{Request: int(o.request), Event: int(o.event)}
	var oom *cachealloc.OOMError
	if errors.As(err, &oom) {
		x.OOMError = *oom
	}
	r.out.Refusals = append(r.out.Refusals, x)
	if r.out.FirstOOM == nil {
		r.out.FirstOOM = x
	}
	if o.kind == opAlloc {
		r.out.MayDiffer = true
	}
	if survives {
		r.out.Survived++
		return true
	}
	r.out.FatalOOM = x
	// What the recorded program still gave back after its end belongs to the
	// recording; under other settings nothing is known of it.
	return o.kind == opRefused
}

func (r *runner) outcome() *Outcome {
	s, o := r.stats, &r.out
	o.Stats = *s
	o.PeakAllocated = s.AllocatedBytes.All.Peak
	o.PeakReserved = s.ReservedBytes.All.Peak
	o.PeakRequested = s.RequestedBytes.All.Peak
	o.EndReserved = s.ReservedBytes.All.Current
	o.Retries, o.OOMs = s.NumAllocRetries, s.NumOOMs
	if r.recorded != nil {
		if r.out.FatalOOM == nil || int(r.out.FatalOOM.Request) == len(r.p.Requests)-1 {
			r.recorded.finish(r.a.Segments(), r.p.Device.Segments)
		} else {
			r.recorded.part(r.out.FatalOOM.Event, "simulated a refusal, recorded none")
		}
		if most, _ := r.p.RecordedReserved(); r.sc.Limit > 0 && r.sc.Limit < most {
			return o // the recorded program had more: this is another run
		}
		o.Divergence = r.recorded.split
		if r.p.Complete() && !o.MayDiffer {
			matches := o.Divergence == nil
			o.Matches = &matches
		}
	}
	return o
}
