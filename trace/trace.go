// Package trace holds a recording of GPU memory: the requests that a program
// made, the segments that its allocator took from the driver, the stacks that
// asked, and what was alive when the recording was written.
//
// It is the vocabulary that every other package speaks. Readers (torchsnap)
// and estimators (internal/estimate) make a Trace; replay, attribution, views
// and exports read one. The package has no I/O and knows no file format.
//
// Addresses are uint64, sizes are int64 bytes, times are microseconds since
// the Unix epoch. Events lie in columns, since recordings hold millions.
package trace

// Trace is the recording of one process.
type Trace struct {
	// Devices in ascending Ordinal order. A device of which the file holds
	// neither events nor segments is left out.
	Devices []Device

	// Stacks that events, segments and blocks refer to by StackID.
	Stacks Stacks

	// Labels that events refer to by LabelID: compile contexts, user metadata
	// and the names of actions that this package does not know. Label 0 is "".
	Labels Labels

	// Pools that events refer to by PoolID index. Pools[0] is the default pool.
	Pools []Pool

	// Settings of the allocator as the recording states them, nil where it
	// does not (before PyTorch 2.3).
	Settings *RecordedSettings

	// Annotations are regions that the program or a profiler named, in the
	// order of the file.
	Annotations []Annotation

	// Features says which optional parts the recording has, from which the
	// version of the program that wrote it can be inferred.
	Features Features

	// Warnings say what the reader found odd and read nevertheless: lines for
	// people, without a file name.
	Warnings []string
}

// Device is what happened on one card.
type Device struct {
	Ordinal  int
	Events   Events
	Segments []Segment // alive when the recording was written, by address

	// RingSize is the number of events that the recorder kept at most, 0
	// where the recording does not say (before PyTorch 2.12).
	RingSize int64
	// Overflowed says that the recorder dropped old events. It is known only
	// where RingSize is; History infers the rest.
	Overflowed bool
}

// Pool identifies the memory pool of a CUDA graph or a user's MemPool
// (c10::MempoolId_t). The zero Pool is the default one.
type Pool struct{ Graph, User uint64 }

// Segment is a range that the allocator holds from the driver.
type Segment struct {
	Address    uint64
	Size       int64
	Requested  int64 // sum of the requested bytes of its live blocks, -1 if not recorded
	Stream     uint64
	Pool       Pool
	Small      bool // holds requests of up to 1 MiB
	Expandable bool // a mapped run of a reserved address range
	Stack      StackID
	Blocks     []Block // contiguous, in address order
}

// Block is a piece of a segment.
type Block struct {
	Address   uint64
	Size      int64
	Requested int64 // bytes asked for; stale unless live; -1 if not recorded
	State     BlockState
	Stack     StackID
	// Traceback is the identity of the recorded traceback object, 0 if none.
	Traceback TracebackID
}

// BlockState says who has a block.
type BlockState uint8

// The states, with their names in a snapshot.
const (
	Inactive    BlockState = iota // "inactive": free inside its segment
	Active                        // "active_allocated": a tensor has it
	PendingFree                   // "active_pending_free": freed, waiting on a stream
)

func (s BlockState) String() string {
	switch s {
	case Active:
		return "active_allocated"
	case PendingFree:
		return "active_pending_free"
	}
	return "inactive"
}

// RecordedSettings is the allocator_settings entry of a snapshot: the state at
// the moment it was written. Run-time changes leave no event.
type RecordedSettings struct {
	Conf                string // the settings string that was parsed last, maybe ""
	MaxSplitBytes       int64  // -1: unlimited
	GCThreshold         float64
	Expandable          bool
	RoundupDivisions    map[int64]int64 // start of the interval in MiB → divisions
	ReleaseLockOnMalloc bool
	PinnedHostRegister  bool
	PinnedThreads       int64
	GraphStreamReuse    bool
	HasGraphStreamReuse bool // the key exists from PyTorch 2.10 on
	UnknownKeys         []string
}

// Annotation is the start or end of a named region.
type Annotation struct {
	Name   string
	End    bool
	Device int
	Time   int64
}

// Features are the optional parts of a recording.
type Features struct {
	Traces         bool // has device_traces
	Settings       bool // has allocator_settings (≥ 2.3)
	Annotations    bool // has external_annotations (≥ 2.5)
	Times          bool // events have time_us (≥ 2.2)
	BlockStacks    bool // blocks have frames rather than history (≥ 2.1)
	CompileContext bool // events have compile_context (≥ 2.7)
	UserMetadata   bool // events have user_metadata (≥ 2.9)
	EventPools     bool // events have pool_id (≥ 2.12)
	ForwardFrames  bool // backward allocations name their forward stack (≥ 2.12)
}
