package oomlog

import "vramscope/bytesize"

// What the numbers of one message imply. Each method reports false when the
// message does not hold the numbers that it needs; none guesses.

// ReservedTotal is what the framework's allocator holds, in use or not: printed,
// or allocated plus reserved but unallocated. Private pools are within it.
func (f *Failure) ReservedTotal() (bytesize.Size, bool) {
	switch {
	case f.Reserved != nil:
		return *f.Reserved, true
	case f.Allocated != nil && f.Unallocated != nil:
		return *f.Allocated + *f.Unallocated, true
	}
	return 0, false
}

// Idle is what the allocator holds and no tensor uses: reserved but unallocated.
func (f *Failure) Idle() (bytesize.Size, bool) {
	switch {
	case f.Unallocated != nil:
		return *f.Unallocated, true
	case f.Reserved != nil && f.Allocated != nil:
		return *f.Reserved - *f.Allocated, true
	}
	return 0, false
}

// The context and the libraries of one CUDA process take 0.2 to 1.5 GiB beyond
// what its allocator holds (notes/oom-formats.md §1).
const (
	leastContext = 128 * bytesize.MiB
	mostContext  = 1536 * bytesize.MiB
)

// Self finds the process itself among Processes. NVML lists the host's process
// ids, so that in a container PyTorch does not recognise its own and prints it
// like the others. It is the one that holds what the allocator holds and a
// context; with two such, or with ThisProcess known, Self reports false.
func (f *Failure) Self() (Process, bool) {
	total, ok := f.ReservedTotal()
	if !ok || f.ThisProcess != nil {
		return Process{}, false
	}
	var self Process
	n := 0
	for _, p := range f.Processes {
		if more := p.Used - total; more >= leastContext && more <= mostContext {
			self = p
			n++
		}
	}
	return self, n == 1
}

// OtherProcesses is what the processes that the message names hold, without the
// process itself. It reports false when the message lists nobody: without NVML,
// PyTorch says nothing of processes.
func (f *Failure) OtherProcesses() (bytesize.Size, bool) {
	if len(f.Processes) == 0 && f.ThisProcess == nil {
		return 0, false
	}
	self, found := f.Self()
	var sum bytesize.Size
	for _, p := range f.Processes {
		if !found || p != self {
			sum += p.Used
		}
	}
	return sum, true
}

// ProcessTotal is what the driver counts for this process.
func (f *Failure) ProcessTotal() (bytesize.Size, bool) {
	if f.ThisProcess != nil {
		return *f.ThisProcess, true
	}
	if p, ok := f.Self(); ok {
		return p.Used, true
	}
	return 0, false
}

// OutsideAllocator is what this process holds beyond its allocator: the context,
// libraries, NCCL, other allocators in the process.
func (f *Failure) OutsideAllocator() (bytesize.Size, bool) {
	process, ok1 := f.ProcessTotal()
	total, ok2 := f.ReservedTotal()
	return process - total, ok1 && ok2
}

// Unexplained is what is taken on the device and nobody in the message holds:
// capacity less free less all processes, or, where the message lists none, less
// what the allocator holds. With a list it is the driver's own share; without
// one, up to about 1.2 GiB is a context, and more is somebody else. Below zero,
// more is held than the device has: the system spills to main memory.
func (f *Failure) Unexplained() (bytesize.Size, bool) {
	if f.Capacity == nil || f.Free == nil {
		return 0, false
	}
	left := *f.Capacity - *f.Free
	listed := f.ThisProcess != nil || len(f.Processes) > 0
	for _, p := range f.Processes {
		left -= p.Used
	}
	_, self := f.Self()
	switch {
	case f.ThisProcess != nil:
		left -= *f.ThisProcess
	case listed && self:
	default:
		total, ok := f.ReservedTotal()
		if !ok {
			return 0, false
		}
		left -= total
	}
	return left, true
}

// Room is what the process could still take from the driver: what is free, or
// less where a limit leaves less.
func (f *Failure) Room() (bytesize.Size, bool) {
	var room *bytesize.Size
	if f.Free != nil {
		v := *f.Free
		room = &v
	}
	if total, ok := f.ReservedTotal(); ok && f.Limit != nil {
		if left := max(*f.Limit-total, 0); room == nil || left < *room {
			room = &left
		}
	}
	if room == nil {
		return 0, false
	}
	return *room, true
}

// Lacks is by how much the request exceeds what the process could still take,
// at least zero. Freeing that much, in a piece, would have let it pass.
func (f *Failure) Lacks() (bytesize.Size, bool) {
	room, ok := f.Room()
	if !ok || f.Tried == nil {
		return 0, false
	}
	return max(*f.Tried-room, 0), true
}

// AtLimit reports that a limit stopped the request while the device had room.
func (f *Failure) AtLimit() bool {
	total, ok := f.ReservedTotal()
	return ok && f.Limit != nil && f.Tried != nil && f.Free != nil &&
		total+*f.Tried > *f.Limit && *f.Free >= *f.Tried
}

// FreeSuffices reports that more was free than was asked for, beyond what the
// rounding of pages explains (10 % and 64 MiB): the device was not full.
func (f *Failure) FreeSuffices() bool {
	return f.Free != nil && f.Tried != nil && *f.Free > *f.Tried+*f.Tried/10+64*bytesize.MiB
}

// IdleSuffices reports that the allocator itself held enough unused bytes for the
// request, in pieces.
func (f *Failure) IdleSuffices() bool {
	idle, ok := f.Idle()
	return ok && f.Tried != nil && idle >= *f.Tried
}

// NeverFits reports that the request alone is more than the device or the limit.
func (f *Failure) NeverFits() bool {
	if f.Tried == nil {
		return false
	}
	return f.Capacity != nil && *f.Tried > *f.Capacity || f.Limit != nil && *f.Tried > *f.Limit
}

// Spilled reports that more is held than the device has, which Windows allows by
// taking main memory.
func (f *Failure) Spilled() bool {
	if f.Capacity == nil {
		return false
	}
	total, ok := f.ReservedTotal()
	return ok && total > *f.Capacity || f.Allocated != nil && *f.Allocated > *f.Capacity
}

// SmallRequest reports that the message names a segment of the allocator's small
// pools and not the tensor: since PyTorch 1.2, 2 MiB stand for any request up to
// 1 MiB and 20 MiB for any up to 10 MiB (kSmallBuffer and kLargeBuffer in
// CUDACachingAllocator). most is the largest tensor it can be.
func (f *Failure) SmallRequest() (most bytesize.Size, ok bool) {
	if f.Tried == nil || f.Framework != "pytorch" && f.Framework != "pytorch-xpu" && f.Framework != "pytorch-npu" {
		return 0, false
	}
	switch *f.Tried {
	case 2 * bytesize.MiB:
		return bytesize.MiB, true
	case 20 * bytesize.MiB:
		return 10 * bytesize.MiB, true
	}
	return 0, false
}
