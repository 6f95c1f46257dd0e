package cachealloc

import "vramscope/trace"

// expandSegment is try_allocate_expandable_block: it maps memory until there
// are size free bytes in a row and returns them, out of their set. What it
// mapped before the driver refused stays mapped.
func (a *Allocator) expandSegment(p *pool, stream uint64, size int64) Block {
	b := a.findExpandable(p, stream, size)
	if !a.nodes[b].mapped && !a.mapBlock(b, min(a.nodes[b].size, size)) {
		return none
	}
	for a.nodes[b].size < size {
		next := a.nodes[b].next
		if !a.mapBlock(next, min(size-a.nodes[b].size, a.nodes[next].size)) {
			return none
		}
		b = next // it has swallowed b
	}
	a.removeFree(b)
	return b
}

// findExpandable is find_expandable_block: the first run of free and unmapped
// blocks with room for size bytes, by address, else a new range.
func (a *Allocator) findExpandable(p *pool, stream uint64, size int64) Block {
	allocatable := func(b Block) bool {
		if b == none {
			return false
		}
		n := &a.nodes[b]
		return !n.allocated && !n.pending && len(n.streams) == 0
	}
	unmapped := p.unmapped.of(stream)
	for at := (position{}); unmapped.valid(at); at = unmapped.next(at) {
		c := unmapped.at(at).block
		// The free block right before it can be used too.
		if prev := a.nodes[c].prev; allocatable(prev) {
			c = prev
		}
		var room int64
		for b := c; room < size && allocatable(b); b = a.nodes[b].next {
			room += a.nodes[b].size
		}
		if room >= size {
			return c
		}
	}
	vm := &addressRange{granule: a.granule(p)}
	// Room for all of the card and an eighth more.
	vm.size = roundUp(max(a.total+a.total/8, size), vm.granule)
	vm.addr = a.driver.Reserve(vm.size)
	b := a.newNode(p, stream, vm.addr, vm.size)
	a.nodes[b].vm, a.nodes[b].mapped = vm, false
	a.insertUnmapped(b)
	return b
}

func (a *Allocator) granule(p *pool) int64 {
	if p.small {
		return SmallBuffer
	}
	return a.settings.LargeSegmentBytes
}

// mapBlock is map_block: it maps the first size bytes of an unmapped block,
// rounded up to a granule, and frees them into the pool.
func (a *Allocator) mapBlock(b Block, size int64) bool {
	n := &a.nodes[b]
	size = min(roundUp(size, n.vm.granule), n.size) // ranges end at a granule
	if !a.driver.Map(n.addr, size) {
		return false
	}
	addr, stream, p := n.addr, n.stream, n.pool
	a.removeUnmapped(b)
	n.mapped = true
	if size < n.size {
		rest := a.newNode(p, stream, addr+uint64(size), n.size-size)
		n = &a.nodes[b]
		a.nodes[rest].vm, a.nodes[rest].mapped = n.vm, false
		a.splice(rest, b, n.next)
		a.insertUnmapped(rest)
		n.size = size
	}
	a.merge(b, n.prev)
	a.merge(b, a.nodes[b].next)
	a.insertFree(b)
	a.reserved += size
	a.stats.ReservedBytes.add(p.small, size)
	a.stats.NumDeviceAlloc++
	a.emit(trace.SegmentMap, addr, size, stream)
	return true
}

// unmapBlock is unmap_block: it gives the whole granules inside a free block
// back. What is left on either side stays free.
func (a *Allocator) unmapBlock(b Block) {
	n := &a.nodes[b]
	vm, p, stream := n.vm, n.pool, n.stream
	from := roundUp(int64(n.addr-vm.addr), vm.granule)
	to := (int64(n.addr-vm.addr) + n.size) / vm.granule * vm.granule
	if from >= to {
		return
	}
	addr, size := vm.addr+uint64(from), to-from
	a.driver.Unmap(addr, size)
	a.removeFree(b)
	if before := int64(addr - n.addr); before > 0 {
		left := a.newNode(p, stream, n.addr, before)
		a.nodes[left].vm = vm
		a.splice(left, a.nodes[b].prev, b)
		a.insertFree(left)
		n = &a.nodes[b]
		n.addr += uint64(before)
		n.size -= before
	}
	if after := n.size - size; after > 0 {
		right := a.newNode(p, stream, addr+uint64(size), after)
		a.nodes[right].vm = vm
		a.splice(right, b, a.nodes[b].next)
		a.insertFree(right)
		n = &a.nodes[b]
		n.size = size
	}
	n.mapped = false
	a.merge(b, n.prev)
	a.merge(b, a.nodes[b].next)
	a.insertUnmapped(b)
	a.reserved -= size
	a.stats.ReservedBytes.add(p.small, -size)
	a.stats.NumDeviceFree++
	if p.private != nil {
		p.private.mallocs--
	}
	a.emit(trace.SegmentUnmap, addr, size, stream)
}
