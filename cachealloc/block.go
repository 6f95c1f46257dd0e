package cachealloc

import "vramscope/trace"

// Block names a block of an Allocator. A block that a request got stays valid
// until it is free again; its number is then used anew.
type Block int32

// none is the absence of a block.
const none Block = -1

// node is a block: struct Block of CUDACachingAllocator.cpp. Fields that the
// hot path reads together stand together.
type node struct {
	addr      uint64
	size      int64
	requested int64
	prev      Block // neighbours in the same segment
	next      Block
	pool      *pool
	free      *freeSet // of its pool and stream
	stream    uint64
	allocated bool // a tensor has it
	pending   bool // freed, but a stream may still use it (event_count > 0)
	mapped    bool
	live      bool          // the node is in use
	streams   []uint64      // other streams that used it (stream_uses)
	vm        *addressRange // of an expandable segment
	gcBase    int64
	tag       int32 // the caller's, see SetTag
}

func (n *node) split() bool { return n.prev != none || n.next != none }

// pool is BlockPool: the free blocks of one size class, mapped and unmapped.
type pool struct {
	small    bool
	private  *privatePool // nil for the default pool
	blocks   streamSets
	unmapped streamSets
	calls    int64 // get_free_blocks_call_count, for garbage collection
}

// privatePool is PrivatePool: that of a CUDA graph or a MemPool.
type privatePool struct {
	id           trace.Pool
	useCount     int
	mallocs      int // cudaMalloc_count: segments it still holds
	useOnOOM     bool
	noSplit      bool
	small, large pool
}

// addressRange is ExpandableSegment: reserved addresses, mapped by granules.
type addressRange struct {
	addr    uint64
	size    int64
	granule int64
}

// newNode returns a block that is mapped and free, in no set.
func (a *Allocator) newNode(p *pool, stream uint64, addr uint64, size int64) Block {
	n := node{
		addr: addr, size: size, stream: stream, prev: none, next: none,
		pool: p, free: p.blocks.of(stream), mapped: true, live: true,
	}
	if k := len(a.spare); k > 0 {
		b := a.spare[k-1]
		a.spare = a.spare[:k-1]
		a.nodes[b] = n
		return b
	}
	a.nodes = append(a.nodes, n)
	return Block(len(a.nodes) - 1)
}

func (a *Allocator) recycle(b Block) {
	a.nodes[b].live = false
	a.spare = append(a.spare, b)
}

// splice puts b between two neighbours, either of which may be none.
func (a *Allocator) splice(b, before, after Block) {
	a.nodes[b].prev, a.nodes[b].next = before, after
	if before != none {
		a.nodes[before].next = b
	}
	if after != none {
		a.nodes[after].prev = b
	}
}

// insertFree is BlockPool::insert_into_blocks.
func (a *Allocator) insertFree(b Block) {
	n := &a.nodes[b]
	n.gcBase = n.pool.calls
	n.free.insert(entry{n.size, n.addr, b})
	if n.releasable() {
		a.releasable++
	}
}

// releasable reports whether empty_cache would give back some of a free block:
// a whole segment, or a whole granule of an expandable one. Private pools in
// use are not touched.
func (n *node) releasable() bool {
	switch {
	case n.pool.private != nil:
		return false
	case n.vm == nil:
		return !n.split()
	}
	from := roundUp(int64(n.addr-n.vm.addr), n.vm.granule)
	return int64(n.addr-n.vm.addr)+n.size >= from+n.vm.granule
}

func (a *Allocator) removeFree(b Block) {
	n := &a.nodes[b]
	n.free.remove(entry{n.size, n.addr, b})
	if n.releasable() {
		a.releasable--
	}
}

// Unmapped blocks are ordered by address alone (BlockComparatorAddress).

func (a *Allocator) insertUnmapped(b Block) {
	n := &a.nodes[b]
	n.pool.unmapped.of(n.stream).insert(entry{0, n.addr, b})
}

func (a *Allocator) removeUnmapped(b Block) {
	n := &a.nodes[b]
	n.pool.unmapped.of(n.stream).remove(entry{0, n.addr, b})
}

// merge is try_merge_blocks: it joins src into its neighbour dst, if src is
// free and mapped alike, and returns the bytes of src.
func (a *Allocator) merge(dst, src Block) int64 {
	if src == none {
		return 0
	}
	d, s := &a.nodes[dst], &a.nodes[src]
	if s.allocated || s.pending || len(s.streams) > 0 || d.mapped != s.mapped {
		return 0
	}
	if s.mapped {
		a.removeFree(src)
	} else {
		a.removeUnmapped(src)
	}
	if d.prev == src {
		d.addr, d.prev = s.addr, s.prev
		if d.prev != none {
			a.nodes[d.prev].next = dst
		}
	} else {
		d.next = s.next
		if d.next != none {
			a.nodes[d.next].prev = dst
		}
	}
	d.size += s.size
	size := s.size
	a.recycle(src)
	return size
}
