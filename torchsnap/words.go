package torchsnap

import (
	"vramscope/torchsnap/internal/pickle"
	"vramscope/trace"
)

// Tags of what the builder knows lists and dicts as.
const (
	tagEvent      uint8 = iota // index of the row
	tagFrame                   // trace.FrameID
	tagStack                   // trace.StackID
	tagBlock                   // index into builder.blocks
	tagSegment                 // index into builder.segments
	tagAnnotation              // index into the trace's annotations
	tagAllocation              // of a block's history (≤ 2.0): index into builder.blocks
	tagUsed                    // a list that was read into its owner
)

// words are the strings that the format consists of. The decoder gives word i
// the index i; the first are the actions in the order of trace.Action.
var words = []string{
	"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap",
	"snapshot", "oom", "user_defined", "annotate",
	"action", "addr", "size", "stream", "time_us", "frames", "compile_context", "user_metadata", "device_free", "pool_id", "forward_frames",
	"name", "filename", "line",
	"address", "requested_size", "state", "history", "real_size", "inactive", "active_allocated", "active_pending_free", "active_awaiting_free",
	"device", "total_size", "allocated_size", "active_size", "segment_type", "segment_pool_id", "is_expandable", "blocks", "small",
	"stage", "segments", "device_traces", "allocator_settings", "external_annotations",
	"N/A", "",
}

// The same as values, in the same order (a test holds this).
const (
	wAlloc pickle.Value = iota<<8 | pickle.Value(pickle.String)
	wFreeRequested
	wFreeCompleted
	wSegmentAlloc
	wSegmentFree
	wSegmentMap
	wSegmentUnmap
	wSnapshot
	wOOM
	wUserDefined
	wAnnotate
	wAction
	wAddr
	wSize
	wStream
	wTime
	wFrames
	wCompile
	wMetadata
	wDeviceFree
	wPool
	wForwardFrames
	wName
	wFilename
	wLine
	wAddress
	wRequested
	wState
	wHistory
	wRealSize
	wInactive
	wActive
	wPendingFree
	wAwaitingFree
	wDevice
	wTotalSize
	wAllocatedSize
	wActiveSize
	wSegmentType
	wSegmentPool
	wExpandable
	wBlocks
	wSmall
	wStage
	wSegments
	wDeviceTraces
	wSettings
	wAnnotations
	wNotAvailable
	wEmpty
)

// action returns the action that a word names.
func action(v pickle.Value) (trace.Action, bool) {
	if v.Kind() == pickle.String && v <= wAnnotate {
		return trace.Action(v.Index()), true
	}
	return trace.Other, false
}
