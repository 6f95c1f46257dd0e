package cachealloc

import "vramscope/trace"

// Restore gives an allocator that holds nothing these segments, as if it had
// got them from the driver and served their blocks: the state at which a
// recording begins that was switched on late. It returns the blocks that are
// not free, in the order of the segments, each with its tag set to the
// block's Traceback.
//
// Runs of an expandable segment are taken to belong to one range for each pool
// and stream, which begins at the first.
func (a *Allocator) Restore(segments []trace.Segment) []Block {
	type owner struct {
		pool   *pool
		stream uint64
	}
	var out []Block
	last := map[owner]Block{} // the last block of each range
	for i := range segments {
		s := &segments[i]
		if len(s.Blocks) == 0 {
			continue
		}
		p := &a.large
		if s.Pool != (trace.Pool{}) {
			private := a.privatePool(s.Pool)
			private.mallocs++
			p = &private.large
		}
		if s.Small {
			if p.private != nil {
				p = &p.private.small
			} else {
				p = &a.small
			}
		}
		o := owner{p, s.Stream}
		prev := none
		var vm *addressRange
		if s.Expandable {
			if tail, ok := last[o]; ok {
				vm, prev = a.nodes[tail].vm, a.restoreGap(tail, s.Address)
			} else {
				vm = &addressRange{addr: s.Address, granule: a.granule(p)}
				vm.size = roundUp(a.total+a.total/8, vm.granule)
			}
		} else {
			a.stats.Segment.add(s.Small, 1)
			if s.Size >= a.settings.MaxSplitBytes {
				a.stats.OversizeSegments.add(1)
			}
		}
		a.reserved += s.Size
		a.stats.ReservedBytes.add(s.Small, s.Size)
		for j := range s.Blocks {
			prev = a.restoreBlock(p, s, &s.Blocks[j], prev, vm)
			if s.Blocks[j].State != trace.Inactive {
				out = append(out, prev)
			}
		}
		if vm != nil {
			last[o] = prev
		}
	}
	for _, tail := range last {
		n := &a.nodes[tail]
		if end := n.vm.addr + uint64(n.vm.size); n.addr+uint64(n.size) < end {
			a.restoreGap(tail, end)
		}
	}
	return out
}

// restoreGap adds the unmapped block between a range's last block and end.
func (a *Allocator) restoreGap(tail Block, end uint64) Block {
	n := &a.nodes[tail]
	from := n.addr + uint64(n.size)
	if from >= end {
		return tail
	}
	vm := n.vm
	gap := a.newNode(n.pool, n.stream, from, int64(end-from))
	a.nodes[gap].vm, a.nodes[gap].mapped = vm, false
	a.splice(gap, tail, none)
	a.insertUnmapped(gap)
	return gap
}

func (a *Allocator) restoreBlock(p *pool, s *trace.Segment, blk *trace.Block, prev Block, vm *addressRange) Block {
	b := a.newNode(p, s.Stream, blk.Address, blk.Size)
	n := &a.nodes[b]
	n.vm = vm
	a.splice(b, prev, none)
	if blk.State == trace.Inactive {
		a.insertFree(b)
		if vm == nil && len(s.Blocks) > 1 {
			a.stats.InactiveSplit.add(s.Small, 1)
			a.stats.InactiveSplitBytes.add(s.Small, blk.Size)
		}
		return b
	}
	n.tag = int32(blk.Traceback)
	n.requested = max(blk.Requested, 0)
	a.stats.Active.add(s.Small, 1)
	a.stats.ActiveBytes.add(s.Small, blk.Size)
	a.stats.RequestedBytes.add(s.Small, n.requested)
	if blk.State == trace.PendingFree {
		n.pending = true
		a.deferred = append(a.deferred, b)
		return b
	}
	n.allocated = true
	a.stats.Allocation.add(s.Small, 1)
	a.stats.AllocatedBytes.add(s.Small, blk.Size)
	if blk.Size >= a.settings.MaxSplitBytes {
		a.stats.OversizeAllocations.add(1)
	}
	return b
}
