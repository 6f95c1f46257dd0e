package cachealloc

// Stat is one line of torch.cuda.memory_stats().
type Stat struct {
	Current   int64
	Peak      int64
	Allocated int64 // sum of all increases
	Freed     int64 // sum of all decreases
}

func (s *Stat) add(n int64) {
	s.Current += n
	if n > 0 {
		s.Allocated += n
		s.Peak = max(s.Peak, s.Current)
	} else {
		s.Freed -= n
	}
}

// StatByPool is a Stat of all pools and of the two kinds of pools.
type StatByPool struct{ All, Small, Large Stat }

func (s *StatByPool) add(small bool, n int64) {
	s.All.add(n)
	if small {
		s.Small.add(n)
	} else {
		s.Large.add(n)
	}
}

// Stats are the statistics of an Allocator, named as torch.cuda.memory_stats()
// names them. Those that end in Bytes count bytes, the others things.
type Stats struct {
	Allocation         StatByPool
	Segment            StatByPool
	Active             StatByPool
	InactiveSplit      StatByPool
	AllocatedBytes     StatByPool
	ReservedBytes      StatByPool
	ActiveBytes        StatByPool
	InactiveSplitBytes StatByPool
	RequestedBytes     StatByPool

	OversizeAllocations Stat
	OversizeSegments    Stat

	NumAllocRetries   int64
	NumOOMs           int64
	NumSyncAllStreams int64
	NumDeviceAlloc    int64
	NumDeviceFree     int64
	NumOOMRejections  int64 // with throw_on_cudamalloc_oom
}
