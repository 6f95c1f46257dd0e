package cachealloc

import "vramscope/trace"

// privatePool returns a pool, made if need be.
func (a *Allocator) privatePool(id trace.Pool) *privatePool {
	for _, p := range a.private {
		if p.id == id {
			return p
		}
	}
	p := &privatePool{id: id, useCount: 1}
	p.small.small = true
	p.small.private, p.large.private = p, p
	a.private = append(a.private, p)
	return p
}

// PoolOptions are the flags of torch.cuda.MemPool (≥ 2.8).
type PoolOptions struct {
	UseOnOOM bool // its free memory may serve the default pool when that finds none
	NoSplit  bool
}

// SetPoolOptions sets the flags of a private pool, made if need be.
func (a *Allocator) SetPoolOptions(id trace.Pool, o PoolOptions) {
	p := a.privatePool(id)
	p.useOnOOM, p.noSplit = o.UseOnOOM, o.NoSplit
}

// BeginAllocateToPool directs the requests of a stream to a private pool: a
// graph's capture begins, or torch.cuda.use_mem_pool is entered. While it
// lasts, nothing cached is released for a request that the driver refuses.
func (a *Allocator) BeginAllocateToPool(id trace.Pool, stream uint64) {
	a.captures = append(a.captures, capture{a.privatePool(id), stream})
}

// EndAllocateToPool ends BeginAllocateToPool.
func (a *Allocator) EndAllocateToPool(id trace.Pool) {
	for i := len(a.captures) - 1; i >= 0; i-- {
		if a.captures[i].pool.id == id {
			a.captures = append(a.captures[:i], a.captures[i+1:]...)
			return
		}
	}
}

// ReleasePool says that the graph or MemPool is gone: EmptyCache may now give
// the whole free segments of its pool back.
func (a *Allocator) ReleasePool(id trace.Pool) {
	for _, p := range a.private {
		if p.id == id && p.useCount > 0 {
			p.useCount--
		}
	}
}
