package cachealloc

import "vramscope/trace"

// EmptyCache is torch.cuda.empty_cache(): wait for all streams, then give each
// whole free segment back.
func (a *Allocator) EmptyCache() { a.releaseCached() }

// releaseCached is release_cached_blocks.
func (a *Allocator) releaseCached() {
	a.completeAll()
	a.releasePool(&a.large)
	a.releasePool(&a.small)
	kept := a.private[:0]
	for _, p := range a.private {
		if p.useCount == 0 {
			a.releasePool(&p.large)
			a.releasePool(&p.small)
			if p.mallocs == 0 {
				continue
			}
		}
		kept = append(kept, p)
	}
	a.private = kept
}

// releasePool is release_blocks.
func (a *Allocator) releasePool(p *pool) {
	var expandable []Block
	for _, e := range p.blocks.all() {
		n := &a.nodes[e.block]
		switch {
		case n.vm != nil:
			// Unmapping makes and merges blocks, so it waits for the end.
			expandable = append(expandable, e.block)
		case !n.split():
			a.releaseBlock(e.block)
		}
	}
	for _, b := range expandable {
		a.unmapBlock(b)
		if n := &a.nodes[b]; n.live && !n.mapped && !n.split() {
			a.removeUnmapped(b) // release_expandable_segment
			a.recycle(b)
		}
	}
}

// releaseBlock is release_block: cudaFree of a whole free segment.
func (a *Allocator) releaseBlock(b Block) {
	n := &a.nodes[b]
	a.emit(trace.SegmentFree, n.addr, n.size, n.stream)
	a.driver.Free(n.addr, n.size)
	a.reserved -= n.size
	if n.pool.private != nil {
		n.pool.private.mallocs--
	}
	a.stats.Segment.add(n.pool.small, -1)
	a.stats.ReservedBytes.add(n.pool.small, -n.size)
	if n.size >= a.settings.MaxSplitBytes {
		a.stats.OversizeSegments.add(-1)
	}
	a.stats.NumDeviceFree++
	a.removeFree(b)
	a.recycle(b)
}

// releaseAvailable is release_available_cached_blocks: with max_split_size
// set, give back the oversize free blocks that make room for the request. It
// reports whether enough bytes were given back.
func (a *Allocator) releaseAvailable(p *pool, stream uint64, size int64) bool {
	if !a.rules.MaxSplit || a.settings.MaxSplitBytes == unlimited {
		return false
	}
	want := max(size, a.settings.MaxSplitBytes)
	set := p.blocks.of(stream)
	at := set.lowerBound(entry{size: want})
	if set.valid(at) && !(a.rules.KeepsExpandable && a.nodes[set.at(at).block].vm != nil) {
		a.releaseBlock(set.at(at).block)
		return true
	}
	// No single block is large enough: the largest ones, until they are.
	entries := set.all()
	end := 0
	for end < len(entries) && entries[end].less(entry{size: want}) {
		end++
	}
	var released int64
	for i := end - 1; i >= 0 && released < want && entries[i].size >= a.settings.MaxSplitBytes; i-- {
		if a.rules.KeepsExpandable && a.nodes[entries[i].block].vm != nil {
			continue
		}
		released += entries[i].size
		a.releaseBlock(entries[i].block)
	}
	return released >= want
}

// garbageCollect is garbage_collect_cached_blocks: give back whole free
// segments of the default large pool that were not used for longer than the
// average, until the reserved bytes are below the threshold.
func (a *Allocator) garbageCollect() {
	threshold := int64(a.settings.GCThreshold * float64(a.limit))
	if a.reserved <= threshold {
		return
	}
	target := a.reserved - threshold
	p := &a.large
	age := func(b Block) int64 { return p.calls - a.nodes[b].gcBase }
	var total, count int64
	for _, set := range p.blocks.sets {
		for _, leaf := range set.leaves {
			for _, e := range leaf {
				if !a.nodes[e.block].split() {
					total += age(e.block)
					count++
				}
			}
		}
	}
	var reclaimed int64
	for freed := true; reclaimed < target && freed && count > 0; {
		freed = false
		average := float64(total) / float64(count)
		for _, e := range p.blocks.all() {
			n := &a.nodes[e.block]
			if n.split() || a.rules.KeepsExpandable && n.vm != nil || float64(age(e.block)) < average {
				continue
			}
			freed = true
			reclaimed += n.size
			total -= age(e.block)
			count--
			a.releaseBlock(e.block)
		}
	}
}
