package replay

import (
	"vramscope/cachealloc"
	"vramscope/trace"
)

// PeakRounded returns the most bytes that the program had in use at once, each
// request rounded to 512 bytes.
func (p *Program) PeakRounded() int64 { peak, _ := p.peaks(); return peak }

// Floor returns the bytes below which no settings make the program fit:
// PeakRounded, and what was in use when the recording ends with a refused
// request, together with that request.
func (p *Program) Floor() int64 { peak, end := p.peaks(); return max(peak, end) }

func (p *Program) peaks() (peak, refusedAtEnd int64) {
	s := cachealloc.DefaultSettings()
	var now int64
	for i := range p.ops {
		o := &p.ops[i]
		switch o.kind {
		case opAlloc:
			now += s.RoundSize(p.Requests[o.request].Size)
			peak = max(peak, now)
		case opRefused:
			if !p.asksAfter(o) {
				refusedAtEnd = now + s.RoundSize(p.Requests[o.request].Size)
			}
		case opFree, opRequestFree:
			now -= s.RoundSize(p.Requests[o.request].Size)
		}
	}
	return peak, refusedAtEnd
}

// EndsInFailure reports whether the last request of the recording was refused.
func (p *Program) EndsInFailure() bool {
	for i := len(p.ops) - 1; i >= 0; i-- {
		switch p.ops[i].kind {
		case opAlloc:
			return false
		case opRefused:
			return true
		}
	}
	return false
}

// RecordedReserved returns the most bytes that the recording shows reserved,
// from its segment events, and the number of those events. What was reserved
// before the first event is counted as far as the recording tells.
func (p *Program) RecordedReserved() (peak int64, events int) {
	e := &p.Device.Events
	now := int64(0)
	for _, s := range p.Device.Segments {
		now += s.Size
	}
	for i := e.Len() - 1; i >= 0; i-- { // back to the start
		now -= reservedBy(e.Action[i], e.Size[i])
	}
	peak = max(now, 0)
	for i := range e.Len() {
		if isSegment(e.Action[i]) {
			events++
			now += reservedBy(e.Action[i], e.Size[i])
			peak = max(peak, now)
		}
	}
	return peak, events
}

func reservedBy(a trace.Action, size int64) int64 {
	switch a {
	case trace.SegmentAlloc, trace.SegmentMap:
		return size
	case trace.SegmentFree, trace.SegmentUnmap:
		return -size
	}
	return 0
}

// Resize returns the program with other sizes of its requests: size is called
// with the index of each and returns its bytes, or 0 where the program would
// not make it. It is how a change of the program (a smaller batch, an optimizer
// with less state) is tried: the same requests in the same order, smaller.
// Replays of it are compared with nothing.
func (p *Program) Resize(size func(request int) int64) *Program {
	q := *p
	q.edited = true
	q.Requests = make([]Request, len(p.Requests))
	copy(q.Requests, p.Requests)
	for i := range q.Requests {
		q.Requests[i].Size = size(i)
	}
	q.ops = make([]op, 0, len(p.ops))
	for _, o := range p.ops {
		if o.kind == opEmptyCache || q.Requests[o.request].Size > 0 {
			q.ops = append(q.ops, o)
		}
	}
	return &q
}
