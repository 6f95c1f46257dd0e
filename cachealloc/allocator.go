package cachealloc

import (
	"errors"
	"fmt"

	"vramscope/bytesize"
	"vramscope/trace"
)

// Config says what an Allocator simulates.
type Config struct {
	// Version of PyTorch whose rules apply; zero means Newest.
	Version Version
	// Settings, as ParseSettings returns them; nil means the defaults.
	Settings *Settings
	// Limit is what the process may reserve, in bytes
	// (set_per_process_memory_fraction); 0 means no limit.
	Limit int64
	// Driver gives the memory; nil means a Card without end.
	Driver Driver
	// TotalMemory of the card in bytes sizes the address range of expandable
	// segments; 0 means 128 GiB.
	TotalMemory int64
	// OnSegment, if set, is called for each segment event, with the action,
	// address, size and stream that PyTorch's trace would hold.
	OnSegment func(action trace.Action, addr uint64, size int64, stream uint64)
}

// Allocator is one device's caching allocator. It is not safe for concurrent
// use. Make it with New.
type Allocator struct {
	rules    Rules
	settings Settings
	limit    int64
	driver   Driver
	total    int64 // memory of the card
	emit     func(trace.Action, uint64, int64, uint64)

	nodes []node
	spare []Block

	small, large pool
	private      []*privatePool // in order of creation
	captures     []capture      // captures_underway
	deferred     []Block        // frees that wait for the end of all captures

	reserved   int64 // total_allocated_memory
	releasable int   // free blocks of which empty_cache would give something back
	stats      Stats
}

type capture struct {
	pool   *privatePool
	stream uint64
}

// OOMError is a request that the allocator refused.
type OOMError struct {
	Requested    int64 // bytes that the program asked for
	Rounded      int64 // bytes of the block it would have got
	SegmentBytes int64 // bytes that the driver was asked for
	Reserved     int64 // bytes held when it was refused, after all that could be released was
	AtLimit      bool  // the limit refused it, rather than the driver
}

func (e *OOMError) Error() string {
	return fmt.Sprintf("out of memory: tried to allocate %v with %v reserved", bytesize.Size(e.SegmentBytes), bytesize.Size(e.Reserved))
}

// ErrTooLarge is the error for requests of 2^60 bytes and more, which PyTorch
// refuses before its allocator sees them.
var ErrTooLarge = errors.New("out of memory: tried to allocate more than 1EB memory")

// New returns an allocator that holds nothing.
func New(c Config) *Allocator {
	a := &Allocator{
		rules:  RulesFor(c.Version),
		limit:  c.Limit,
		driver: c.Driver,
		total:  c.TotalMemory,
		emit:   c.OnSegment,
		small:  pool{small: true},
	}
	a.settings = DefaultSettings()
	if c.Settings != nil {
		a.settings = *c.Settings
	}
	if a.driver == nil {
		a.driver = &Card{}
	}
	if a.total == 0 {
		a.total = 128 << 30
	}
	if a.emit == nil {
		a.emit = func(trace.Action, uint64, int64, uint64) {}
	}
	if f := a.settings.MemoryFraction; f < 1 && a.limit == 0 {
		a.limit = int64(f * float64(a.total))
	}
	return a
}

// Stats returns the statistics so far.
func (a *Allocator) Stats() *Stats { return &a.stats }

// Reserved returns the bytes held from the driver now.
func (a *Allocator) Reserved() int64 { return a.reserved }

// Releases reports whether EmptyCache would give memory back now. What waits for
// a stream is not counted.
func (a *Allocator) Releases() bool { return a.releasable > 0 }

// Address returns where a block is.
func (a *Allocator) Address(b Block) uint64 { return a.nodes[b].addr }

// Size returns the bytes that a block takes: the rounded request, or more
// where the rest was not worth splitting off.
func (a *Allocator) Size(b Block) int64 { return a.nodes[b].size }

// SetTag attaches a number of the caller's to a block that a request got.
// Segments reports it.
func (a *Allocator) SetTag(b Block, tag int32) { a.nodes[b].tag = tag }

// Malloc serves a request of n bytes on a stream: DeviceCachingAllocator::
// malloc. n must be positive; PyTorch does not call its allocator for 0 bytes.
// The error is ErrTooLarge or an *OOMError.
func (a *Allocator) Malloc(n int64, stream uint64) (Block, error) {
	// The last filter that accepts the stream wins (≥ 2.10).
	for i := len(a.captures) - 1; i >= 0; i-- {
		if c := a.captures[i]; c.stream == stream {
			return a.malloc(n, stream, &c.pool.small, &c.pool.large)
		}
	}
	return a.malloc(n, stream, &a.small, &a.large)
}

// MallocIn is Malloc into a private pool, made if need be, as if a capture
// into it were under way.
func (a *Allocator) MallocIn(id trace.Pool, n int64, stream uint64) (Block, error) {
	if id == (trace.Pool{}) {
		return a.malloc(n, stream, &a.small, &a.large)
	}
	p := a.privatePool(id)
	a.captures = append(a.captures, capture{p, stream})
	b, err := a.malloc(n, stream, &p.small, &p.large)
	a.captures = a.captures[:len(a.captures)-1]
	return b, err
}

func (a *Allocator) malloc(n int64, stream uint64, small, large *pool) (Block, error) {
	if n <= 0 {
		return none, fmt.Errorf("cachealloc: request of %d bytes", n)
	}
	if n >= MaxRequest {
		return none, ErrTooLarge
	}
	size := a.settings.RoundSize(n)
	p := large
	if size <= SmallSize {
		p = small
	}
	b := a.freeBlock(p, stream, size)
	if b == none {
		var err error
		if b, err = a.segmentFor(p, stream, n, size); err != nil {
			a.stats.NumOOMs++
			return none, err
		}
	}
	return a.allocFoundBlock(b, n, size), nil
}

// segmentFor gets a block from the driver, releasing cached memory where the
// driver or the limit refuses: the chain of conditions in malloc().
func (a *Allocator) segmentFor(p *pool, stream uint64, n, size int64) (Block, error) {
	alloc := a.settings.AllocationSize(size)
	if a.rejectsAtLimit() && a.reserved+alloc > a.limit {
		a.stats.NumOOMRejections++
		return none, &OOMError{n, size, alloc, a.reserved, true}
	}
	if a.collects() {
		a.garbageCollect()
	}
	if b := a.allocBlock(p, stream, size, alloc); b != none {
		return b, nil
	}
	if p.private == nil {
		for _, pp := range a.private {
			if pp.useOnOOM {
				q := &pp.large
				if p.small {
					q = &pp.small
				}
				if b := a.freeBlock(q, stream, size); b != none {
					return b, nil
				}
			}
		}
	}
	if a.releaseAvailable(p, stream, size) {
		if b := a.allocBlock(p, stream, size, alloc); b != none {
			return b, nil
		}
	}
	if len(a.captures) == 0 {
		a.releaseCached()
		a.stats.NumAllocRetries++
		if b := a.allocBlock(p, stream, size, alloc); b != none {
			return b, nil
		}
	}
	return none, &OOMError{n, size, alloc, a.reserved, a.limit > 0 && a.reserved+alloc > a.limit}
}

func (a *Allocator) rejectsAtLimit() bool {
	return a.rules.RejectsAtLimit && a.settings.ThrowAtLimit && a.limit > 0
}

// collects reports whether garbage collection is on. It needs a limit
// (#76648).
func (a *Allocator) collects() bool { return a.limit > 0 && a.settings.GCThreshold > 0 }

// expandable reports whether new memory of a pool is mapped into expandable
// segments.
func (a *Allocator) expandable(p *pool) bool {
	return a.settings.ExpandableSegments && a.rules.Expandable && (p.private == nil || a.rules.ExpandableInPools)
}

// freeBlock is get_free_block: the best fit among the free blocks of the
// stream, out of its set, or none.
func (a *Allocator) freeBlock(p *pool, stream uint64, size int64) Block {
	if a.collects() {
		p.calls++
	}
	set := p.blocks.of(stream)
	at, ok := a.bestFit(set, size)
	if !ok {
		return none
	}
	b := set.at(at).block
	set.removeAt(at)
	if a.nodes[b].releasable() {
		a.releasable--
	}
	return b
}

// bestFit returns where in a free set the block is that serves a rounded
// request.
func (a *Allocator) bestFit(set *freeSet, size int64) (at position, ok bool) {
	at = set.lowerBound(entry{size: size})
	if !set.valid(at) {
		return at, false
	}
	e := set.at(at)
	if a.nodes[e.block].vm != nil {
		if a.settings.ExpandableSegments {
			// A block counts as large as it can grow, so a larger one that
			// cannot grow may be the better fit.
			for a.nodes[e.block].vm != nil {
				next := set.next(at)
				if !set.valid(next) || a.expandableSize(set.at(next).block) >= a.expandableSize(e.block) {
					break
				}
				at, e = next, set.at(next)
			}
		} else {
			// The setting was turned off after some blocks were made.
			for a.nodes[e.block].vm != nil {
				if at = set.next(at); !set.valid(at) {
					return at, false
				}
				e = set.at(at)
			}
		}
	}
	if a.rules.MaxSplit {
		if size < a.settings.MaxSplitBytes && e.size >= a.settings.MaxSplitBytes {
			return at, false // do not break a block that is to be kept whole
		}
		slack := int64(LargeBuffer)
		if a.rules.NonSplitRounding {
			slack = a.settings.MaxNonSplitRounding
		}
		if size >= a.settings.MaxSplitBytes && e.size-size >= slack {
			return at, false // nor waste much of one
		}
	}
	return at, true
}

// ServesFromCache reports whether a request would be served without asking the
// driver.
func (a *Allocator) ServesFromCache(id trace.Pool, n int64, stream uint64) bool {
	small, large := &a.small, &a.large
	if id != (trace.Pool{}) {
		p := a.privatePool(id)
		small, large = &p.small, &p.large
	}
	size := a.settings.RoundSize(n)
	p := large
	if size <= SmallSize {
		p = small
	}
	_, ok := a.bestFit(p.blocks.of(stream), size)
	return ok
}

// SetSettings changes the settings at run time, as
// torch.cuda.memory._set_allocator_settings does: what is held stays.
func (a *Allocator) SetSettings(s *Settings) { a.settings = *s }

// Settings returns the settings in force.
func (a *Allocator) Settings() Settings { return a.settings }

// expandableSize is the bytes that a block can grow to in place.
func (a *Allocator) expandableSize(b Block) int64 {
	n := &a.nodes[b]
	if n.next != none && !a.nodes[n.next].mapped {
		return n.size + a.nodes[n.next].size
	}
	return n.size
}

// allocBlock is alloc_block: new memory from the driver.
func (a *Allocator) allocBlock(p *pool, stream uint64, size, alloc int64) Block {
	if a.limit > 0 && a.reserved+alloc > a.limit {
		return none
	}
	if a.expandable(p) {
		b := a.expandSegment(p, stream, size)
		if b != none && p.private != nil {
			p.private.mallocs++
		}
		return b
	}
	addr, ok := a.driver.Alloc(alloc)
	if !ok {
		return none
	}
	if p.private != nil {
		p.private.mallocs++
	}
	a.reserved += alloc
	a.stats.Segment.add(p.small, 1)
	a.stats.ReservedBytes.add(p.small, alloc)
	if alloc >= a.settings.MaxSplitBytes {
		a.stats.OversizeSegments.add(1)
	}
	a.stats.NumDeviceAlloc++
	a.emit(trace.SegmentAlloc, addr, alloc, stream)
	return a.newNode(p, stream, addr, alloc)
}

// shouldSplit is should_split.
func (a *Allocator) shouldSplit(n *node, size int64) bool {
	rest := n.size - size
	switch {
	case n.pool.private != nil && n.pool.private.noSplit:
		return false
	case n.pool.small || a.settings.ExpandableSegments && a.rules.Expandable:
		return rest >= MinBlockSize
	}
	return (!a.rules.MaxSplit || size < a.settings.MaxSplitBytes) && rest > SmallSize
}

// allocFoundBlock is alloc_found_block: it splits the block if it is worth it
// and hands out the front.
func (a *Allocator) allocFoundBlock(b Block, n, size int64) Block {
	blk := &a.nodes[b]
	small, fixed := blk.pool.small, blk.vm == nil
	wasSplit := blk.split()
	if a.shouldSplit(blk, size) {
		front := a.newNode(blk.pool, blk.stream, blk.addr, size)
		blk = &a.nodes[b] // newNode may have moved it
		rest := b
		a.nodes[front].vm = blk.vm
		a.splice(front, blk.prev, rest)
		blk.addr += uint64(size)
		blk.size -= size
		a.insertFree(rest)
		if fixed {
			if wasSplit {
				a.stats.InactiveSplitBytes.add(small, -size)
			} else {
				a.stats.InactiveSplit.add(small, 1)
				a.stats.InactiveSplitBytes.add(small, blk.size)
			}
		}
		b = front
		blk = &a.nodes[b]
	} else if wasSplit && fixed {
		a.stats.InactiveSplit.add(small, -1)
		a.stats.InactiveSplitBytes.add(small, -blk.size)
	}
	blk.allocated = true
	blk.requested = n
	a.stats.Allocation.add(small, 1)
	a.stats.AllocatedBytes.add(small, blk.size)
	a.stats.Active.add(small, 1)
	a.stats.ActiveBytes.add(small, blk.size)
	a.stats.RequestedBytes.add(small, n)
	if blk.size >= a.settings.MaxSplitBytes {
		a.stats.OversizeAllocations.add(1)
	}
	return b
}

// RecordStream says that another stream uses a block: the block is not free
// before that stream has passed the point of Free.
func (a *Allocator) RecordStream(b Block, stream uint64) {
	n := &a.nodes[b]
	if n.stream == stream {
		return
	}
	for _, s := range n.streams {
		if s == stream {
			return
		}
	}
	n.streams = append(n.streams, stream)
}

// Free gives a block back. One that other streams use, or that is freed during
// a capture after they did, stays pending until Complete, EmptyCache or a
// retry; Free reports whether the block is free at once.
func (a *Allocator) Free(b Block) bool {
	pending := len(a.nodes[b].streams) > 0
	a.RequestFree(b)
	if pending {
		return false
	}
	a.Complete(b)
	return true
}

// RequestFree is the first half of a free: the program gave the block back,
// and it waits for other streams until Complete. A replay knows from the
// recording how long.
func (a *Allocator) RequestFree(b Block) {
	n := &a.nodes[b]
	if !n.live || !n.allocated {
		panic(fmt.Sprintf("cachealloc: block %d is not allocated", b))
	}
	n.allocated, n.pending = false, true
	a.stats.Allocation.add(n.pool.small, -1)
	a.stats.AllocatedBytes.add(n.pool.small, -n.size)
	if n.size >= a.settings.MaxSplitBytes {
		a.stats.OversizeAllocations.add(-1)
	}
	if len(n.streams) > 0 {
		a.deferred = append(a.deferred, b)
	}
}

// Pending reports whether a block waits for Complete.
func (a *Allocator) Pending(b Block) bool { return a.nodes[b].pending }

// Defer keeps a requested free pending: until Complete, or until the allocator
// waits for all streams (EmptyCache, a retry).
func (a *Allocator) Defer(b Block) { a.deferred = append(a.deferred, b) }

// Complete is free_block: a block that is pending is free again and merges
// with its free neighbours.
func (a *Allocator) Complete(b Block) {
	n := &a.nodes[b]
	if !n.pending {
		panic(fmt.Sprintf("cachealloc: block %d is not pending", b))
	}
	small, size, requested := n.pool.small, n.size, n.requested
	n.pending, n.streams = false, nil
	var blocks, bytes int64 // change of inactive_split
	for _, side := range [2]Block{n.prev, n.next} {
		if merged := a.merge(b, side); merged > 0 {
			blocks--
			bytes -= merged
		}
	}
	n = &a.nodes[b]
	a.insertFree(b)
	if n.split() {
		blocks++
		bytes += n.size
	}
	if n.vm == nil {
		a.stats.InactiveSplit.add(small, blocks)
		a.stats.InactiveSplitBytes.add(small, bytes)
	}
	a.stats.Active.add(small, -1)
	a.stats.ActiveBytes.add(small, -size)
	a.stats.RequestedBytes.add(small, -requested)
}

// completeAll is synchronize_and_free_events: all streams have passed.
func (a *Allocator) completeAll() {
	a.stats.NumSyncAllStreams++
	for _, b := range a.deferred {
		if a.nodes[b].live && a.nodes[b].pending {
			a.Complete(b)
		}
	}
	a.deferred = a.deferred[:0]
}

// Tag returns what SetTag attached.
func (a *Allocator) Tag(b Block) int32 { return a.nodes[b].tag }
