package cachealloc

// Settings are the allocator's configuration: PYTORCH_CUDA_ALLOC_CONF, parsed.
// Make them with DefaultSettings or ParseSettings.
type Settings struct {
	// Conf is the text they were parsed from.
	Conf string

	MaxSplitBytes         int64     // blocks from this size on are never split; math.MaxInt64: no such size
	MaxNonSplitRounding   int64     // bytes that a block kept whole may exceed its request by
	RoundupDivisions      [16]int64 // entry k: requests from 2^k MiB to 2^(k+1) MiB; 0 and 1: off
	RoundupBypassBytes    int64     // 1.13 only: larger requests are rounded to 512 bytes; 0: off
	GCThreshold           float64   // share of the limit above which old free blocks are released; 0: off
	ExpandableSegments    bool
	LargeSegmentBytes     int64   // segment for requests between 1 and 10 MiB
	MemoryFraction        float64 // per_process_memory_fraction; 1: no limit
	ThrowAtLimit          bool    // throw_on_cudamalloc_oom
	GraphStreamReuse      bool    // graph_capture_record_stream_reuse
	Backend               Backend
	ReleaseLockOnMalloc   bool // no effect on memory
	PinnedHostRegister    bool // host memory only, as all of Pinned…
	PinnedRegisterThreads int64
	PinnedBackground      bool
}

// Backend is who allocates.
type Backend string

// The backends. Only Native is simulated: with CUDAMallocAsync the driver's own
// pool decides, and PyTorch records no blocks.
const (
	Native          Backend = "native"
	CUDAMallocAsync Backend = "cudaMallocAsync"
)

// DefaultSettings returns what holds where nothing is set.
func DefaultSettings() Settings {
	return Settings{
		MaxSplitBytes:         unlimited,
		MaxNonSplitRounding:   LargeBuffer,
		LargeSegmentBytes:     LargeBuffer,
		MemoryFraction:        1,
		Backend:               Native,
		PinnedRegisterThreads: 1,
	}
}
