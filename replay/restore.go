package replay

import (
	"vramscope/cachealloc"
	"vramscope/trace"
)

// restore brings the allocator to the state before the first event. Under the
// recorded settings that is what the recording tells of it; under others the
// blocks that were in use are requested anew, by address, since in which order
// the program made them is not known.
func (r *runner) restore() {
	pre := r.p.history.Preexisting
	if r.recorded == nil {
		for i := range pre {
			req := &r.p.Requests[i]
			if req.Size <= 0 {
				continue
			}
			if b, err := r.a.MallocIn(req.Pool, req.Size, req.Stream); err == nil {
				r.adopt(i, b)
			}
		}
		return
	}
	if r.p.history.Complete {
		return
	}
	for _, b := range r.a.Restore(r.p.initialSegments()) {
		if tag := r.a.Tag(b); tag > 0 {
			r.adopt(int(tag)-1, b)
		}
	}
}

// adopt notes the block of a request from before the first event.
func (r *runner) adopt(request int, b cachealloc.Block) {
	r.block[request], r.state[request] = b, live
	r.a.SetTag(b, int32(request)+1)
	if r.p.history.Preexisting[request].State == trace.PendingFree {
		if !r.a.Pending(b) {
			r.a.RequestFree(b)
			r.a.Defer(b)
		}
		r.state[request] = waiting
	}
}

// initialSegments are the segments before the first event, with the index of
// each block's request, plus one, in Traceback. A block whose size is not
// known takes what its request would, as far as there is room.
func (p *Program) initialSegments() []trace.Segment {
	pre := p.history.Preexisting
	var out []trace.Segment
	next := 0
	for _, ps := range p.history.PreexistingSegments {
		s := trace.Segment{Address: ps.Address, Size: ps.Size, Stream: ps.Stream, Pool: ps.Pool, Small: ps.Small, Expandable: ps.Expandable}
		at, end := ps.Address, ps.Address+uint64(ps.Size)
		for next < len(pre) && pre[next].Address < at {
			next++ // in no segment that the recording knows
		}
		for ; next < len(pre) && pre[next].Address < end; next++ {
			b := &pre[next]
			if b.Address > at {
				s.Blocks = append(s.Blocks, trace.Block{Address: at, Size: int64(b.Address - at)})
			} else if b.Address < at {
				continue // inside the block before it
			}
			room := int64(end - b.Address)
			if next+1 < len(pre) && pre[next+1].Address < end {
				room = int64(pre[next+1].Address - b.Address)
			}
			size := b.Size
			if size <= 0 {
				size = p.Recorded.RoundSize(max(b.Requested, 1))
			}
			size = min(size, room)
			if size <= 0 {
				continue
			}
			s.Blocks = append(s.Blocks, trace.Block{
				Address: b.Address, Size: size, Requested: b.Requested, State: b.State, Traceback: trace.TracebackID(next + 1),
			})
			at = b.Address + uint64(size)
		}
		if at < end {
			s.Blocks = append(s.Blocks, trace.Block{Address: at, Size: int64(end - at)})
		}
		out = append(out, s)
	}
	return out
}
