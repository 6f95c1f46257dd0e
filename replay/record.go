package replay

import (
	"vramscope/cachealloc"
	"vramscope/trace"
)

// Record replays the program and returns the recording that it would have left
// under the scenario: the same requests and stacks, with the segments and
// addresses of the simulation. It can be written by torchsnap, opened in any
// viewer, and replays to itself. Refused requests are left out.
func (p *Program) Record(sc Scenario) *trace.Trace {
	settings := p.Recorded
	if sc.Settings != nil {
		settings = *sc.Settings
	}
	sc.Settings = &settings
	t := *p.Trace
	t.Annotations = nil // they name moments of the real run
	t.Settings = stateOf(&settings)
	d := trace.Device{Ordinal: p.Device.Ordinal}
	var now trace.Event // stack and time of the operation under way
	r := newRunner(p, sc)
	emit := func(a trace.Action, addr uint64, size int64, stream uint64) {
		e := now
		e.Action, e.Addr, e.Size, e.Stream = a, addr, size, stream
		d.Events.Append(e)
	}
	r.onSegment = emit
	traceback := trace.TracebackID(0)
	for i := range p.ops {
		o := &p.ops[i]
		now = trace.Event{}
		if o.event >= 0 {
			now = p.Device.Events.At(int(o.event))
		}
		traceback++
		now.Traceback = traceback
		var b cachealloc.Block
		if o.request >= 0 {
			b = r.block[o.request]
		}
		switch o.kind {
		case opRefused:
			continue
		case opFree, opRequestFree, opComplete:
			// Whether it happens is known before the step: the block is live.
			if r.state[o.request] != live && o.kind != opComplete || o.kind == opComplete && !(r.state[o.request] == waiting && r.a.Pending(b)) {
				break
			}
			req := &p.Requests[o.request]
			if o.kind != opComplete {
				emit(trace.FreeRequested, r.a.Address(b), req.Size, req.Stream)
			}
			if o.kind != opRequestFree {
				emit(trace.FreeCompleted, r.a.Address(b), req.Size, req.Stream)
			}
		}
		if !r.step(o) {
			break
		}
		if o.kind == opAlloc && r.state[o.request] == live {
			req := &p.Requests[o.request]
			emit(trace.Alloc, r.a.Address(r.block[o.request]), req.Size, req.Stream)
		}
	}
	d.Segments = r.a.Segments()
	for i := range d.Segments {
		for j := range d.Segments[i].Blocks {
			b := &d.Segments[i].Blocks[j]
			if tag := int(b.Traceback); tag > 0 { // the request, see runner.malloc
				b.Traceback = 0
				if ev := p.Requests[tag-1].Event; ev >= 0 {
					b.Stack = p.Device.Events.Stack[ev]
				}
			}
		}
	}
	t.Devices = []trace.Device{d}
	return &t
}

// stateOf is the allocator_settings entry that a snapshot would hold.
func stateOf(s *cachealloc.Settings) *trace.RecordedSettings {
	r := &trace.RecordedSettings{
		Conf: s.Conf, MaxSplitBytes: -1, GCThreshold: s.GCThreshold, Expandable: s.ExpandableSegments,
		GraphStreamReuse: s.GraphStreamReuse, HasGraphStreamReuse: true, PinnedThreads: s.PinnedRegisterThreads,
		RoundupDivisions: map[int64]int64{},
	}
	if s.MaxSplitBytes != cachealloc.DefaultSettings().MaxSplitBytes {
		r.MaxSplitBytes = s.MaxSplitBytes
	}
	for i, d := range s.RoundupDivisions {
		r.RoundupDivisions[int64(1)<<i] = d
	}
	return r
}
