// Package cachealloc simulates PyTorch's CUDA caching allocator
// (c10/cuda/CUDACachingAllocator.cpp), byte for byte: given the same requests
// under the same settings it asks the driver for the same segments and places
// each request where PyTorch places it.
//
// An Allocator is one DeviceCachingAllocator. It has no clock, does no I/O and
// needs no GPU: what the driver would answer comes from a Driver, and what
// streams would have finished comes from the caller, who says when a freed
// block is free again.
//
//	a := cachealloc.New(cachealloc.Config{})
//	b, err := a.Malloc(100<<20, 0) // 100 MiB on the default stream
//	a.Free(b)
//	fmt.Println(a.Stats().ReservedBytes.All.Peak)
//
// Where PyTorch's versions differ, the difference is a field of Rules, set by
// the table in rules.go. Names follow the C++ source, so that the two can be
// read side by side.
package cachealloc
