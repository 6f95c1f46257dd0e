package cachealloc

import (
	"sort"

	"vramscope/trace"
)

// Segments returns what the allocator holds now, as a snapshot would list it:
// by address, with each mapped run of an expandable segment as a segment of
// its own. Blocks carry the caller's tag in Traceback; stacks are not known
// here.
func (a *Allocator) Segments() []trace.Segment {
	var out []trace.Segment
	for i := range a.nodes {
		n := &a.nodes[i]
		if !n.live || !n.mapped {
			continue
		}
		if n.prev == none || !a.nodes[n.prev].mapped {
			out = append(out, a.segment(Block(i)))
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Address < out[j].Address })
	return out
}

func (a *Allocator) segment(first Block) trace.Segment {
	n := &a.nodes[first]
	s := trace.Segment{Address: n.addr, Stream: n.stream, Small: n.pool.small, Expandable: n.vm != nil}
	if n.pool.private != nil {
		s.Pool = n.pool.private.id
	}
	for b := first; b != none && a.nodes[b].mapped; b = a.nodes[b].next {
		n := &a.nodes[b]
		blk := trace.Block{Address: n.addr, Size: n.size, Requested: n.requested}
		switch {
		case n.allocated:
			blk.State = trace.Active
		case n.pending:
			blk.State = trace.PendingFree
		}
		if blk.State != trace.Inactive {
			s.Requested += n.requested
			blk.Traceback = trace.TracebackID(n.tag)
		}
		s.Size += n.size
		s.Blocks = append(s.Blocks, blk)
	}
	return s
}
