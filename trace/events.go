package trace

import (
	"fmt"
	"slices"
)

// Action is the kind of an event.
type Action uint8

// The actions, with their names in a snapshot.
const (
	Alloc         Action = iota // "alloc": the program got a block; Size is what it asked for
	FreeRequested               // "free_requested": the program gave it back
	FreeCompleted               // "free_completed": it can be used again
	SegmentAlloc                // "segment_alloc": cudaMalloc succeeded
	SegmentFree                 // "segment_free": cudaFree follows
	SegmentMap                  // "segment_map": an expandable segment grew
	SegmentUnmap                // "segment_unmap": an expandable segment shrank
	Snapshot                    // "snapshot": an earlier dump was taken
	OOM                         // "oom": a request was refused; Size is the rounded request
	UserDefined                 // "user_defined": a marker (PyTorch trunk, mid-2024)
	Annotate                    // "annotate": a live block was named (≥ 2.14)
	Other                       // an action that this version does not know; Name tells it
	numActions
)

var actionNames = [numActions]string{
	"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
	"segment_map", "segment_unmap", "snapshot", "oom", "user_defined", "annotate", "other",
}

func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("action(%d)", uint8(a))
}

// ActionByName returns the action that a snapshot calls name.
func ActionByName(name string) (Action, bool) {
	for a := range Other {
		if actionNames[a] == name {
			return a, true
		}
	}
	return Other, false
}

// TracebackID is the identity of a traceback object that the program captured,
// 0 if none. PyTorch captures one for each call of its allocator, so events
// with equal identity belong to one call (or, for frees recorded without their
// own stack, to the life of one block).
type TracebackID uint32

// LabelID is an index into Trace.Labels.
type LabelID uint32

// Event is one row of Events.
type Event struct {
	Action Action
	// Addr is the block's or segment's address; for an OOM event the bytes
	// that the driver had free.
	Addr      uint64
	Size      int64
	Stream    uint64
	Time      int64 // microseconds since the epoch, 0 if not recorded
	Stack     StackID
	Traceback TracebackID
	Pool      uint16  // index into Trace.Pools; meaningful if Features.EventPools
	Compile   LabelID // compile_context
	Metadata  LabelID // user_metadata
	Name      LabelID // the action's name, for Other
}

// Events are rows in columns, oldest first. The first six columns have one
// value a row; the others are nil where no row has a value.
type Events struct {
	Action    []Action
	Addr      []uint64
	Size      []int64
	Stream    []uint64
	Stack     []StackID
	Traceback []TracebackID

	Time     []int64
	Pool     []uint16
	Compile  []LabelID
	Metadata []LabelID
	Name     []LabelID
}

// Len returns the number of rows.
func (e *Events) Len() int { return len(e.Action) }

// At returns row i.
func (e *Events) At(i int) Event {
	ev := Event{
		Action: e.Action[i], Addr: e.Addr[i], Size: e.Size[i],
		Stream: e.Stream[i], Stack: e.Stack[i], Traceback: e.Traceback[i],
	}
	if e.Time != nil {
		ev.Time = e.Time[i]
	}
	if e.Pool != nil {
		ev.Pool = e.Pool[i]
	}
	if e.Compile != nil {
		ev.Compile = e.Compile[i]
	}
	if e.Metadata != nil {
		ev.Metadata = e.Metadata[i]
	}
	if e.Name != nil {
		ev.Name = e.Name[i]
	}
	return ev
}

// Append adds a row. A column that was nil and gets its first value is filled
// with zeros for the rows before.
func (e *Events) Append(ev Event) {
	n := len(e.Action)
	e.Action = append(e.Action, ev.Action)
	e.Addr = append(e.Addr, ev.Addr)
	e.Size = append(e.Size, ev.Size)
	e.Stream = append(e.Stream, ev.Stream)
	e.Stack = append(e.Stack, ev.Stack)
	e.Traceback = append(e.Traceback, ev.Traceback)
	e.Time = appendOptional(e.Time, n, ev.Time)
	e.Pool = appendOptional(e.Pool, n, ev.Pool)
	e.Compile = appendOptional(e.Compile, n, ev.Compile)
	e.Metadata = appendOptional(e.Metadata, n, ev.Metadata)
	e.Name = appendOptional(e.Name, n, ev.Name)
}

func appendOptional[T comparable](column []T, rows int, v T) []T {
	var zero T
	if column == nil {
		if v == zero {
			return nil
		}
		column = make([]T, rows, max(rows+rows/8, 64))
	}
	return append(column, v)
}

// Truncate drops the rows from n on.
func (e *Events) Truncate(n int) {
	e.Action, e.Addr, e.Size = e.Action[:n], e.Addr[:n], e.Size[:n]
	e.Stream, e.Stack, e.Traceback = e.Stream[:n], e.Stack[:n], e.Traceback[:n]
	e.Time = e.Time[:min(n, len(e.Time))]
	e.Pool = e.Pool[:min(n, len(e.Pool))]
	e.Compile = e.Compile[:min(n, len(e.Compile))]
	e.Metadata = e.Metadata[:min(n, len(e.Metadata))]
	e.Name = e.Name[:min(n, len(e.Name))]
}

// AppendRows adds rows from to to of another recording with the same stacks,
// labels and pools.
func (e *Events) AppendRows(src *Events, from, to int) {
	n := len(e.Action)
	e.Action = append(e.Action, src.Action[from:to]...)
	e.Addr = append(e.Addr, src.Addr[from:to]...)
	e.Size = append(e.Size, src.Size[from:to]...)
	e.Stream = append(e.Stream, src.Stream[from:to]...)
	e.Stack = append(e.Stack, src.Stack[from:to]...)
	e.Traceback = append(e.Traceback, src.Traceback[from:to]...)
	e.Time = appendRows(e.Time, n, src.Time, from, to)
	e.Pool = appendRows(e.Pool, n, src.Pool, from, to)
	e.Compile = appendRows(e.Compile, n, src.Compile, from, to)
	e.Metadata = appendRows(e.Metadata, n, src.Metadata, from, to)
	e.Name = appendRows(e.Name, n, src.Name, from, to)
}

func appendRows[T any](column []T, rows int, src []T, from, to int) []T {
	if column == nil && src == nil {
		return nil
	}
	if column == nil {
		column = make([]T, rows, rows+to-from)
	}
	if src == nil {
		return append(column, make([]T, to-from)...)
	}
	return append(column, src[from:to]...)
}

// Grow makes room for n more rows, so that appending them copies nothing.
func (e *Events) Grow(n int) {
	e.Action = slices.Grow(e.Action, n)
	e.Addr = slices.Grow(e.Addr, n)
	e.Size = slices.Grow(e.Size, n)
	e.Stream = slices.Grow(e.Stream, n)
	e.Stack = slices.Grow(e.Stack, n)
	e.Traceback = slices.Grow(e.Traceback, n)
	e.Time = growOptional(e.Time, n)
	e.Pool = growOptional(e.Pool, n)
	e.Compile = growOptional(e.Compile, n)
	e.Metadata = growOptional(e.Metadata, n)
	e.Name = growOptional(e.Name, n)
}

func growOptional[T any](column []T, n int) []T {
	if column == nil {
		return nil
	}
	return slices.Grow(column, n)
}

// Rows returns rows from to to, sharing memory with e.
func (e *Events) Rows(from, to int) Events {
	return Events{
		Action: e.Action[from:to:to], Addr: e.Addr[from:to:to], Size: e.Size[from:to:to],
		Stream: e.Stream[from:to:to], Stack: e.Stack[from:to:to], Traceback: e.Traceback[from:to:to],
		Time:     optionalRows(e.Time, from, to),
		Pool:     optionalRows(e.Pool, from, to),
		Compile:  optionalRows(e.Compile, from, to),
		Metadata: optionalRows(e.Metadata, from, to),
		Name:     optionalRows(e.Name, from, to),
	}
}

// optionalRows is nil where no row has a value.
func optionalRows[T comparable](column []T, from, to int) []T {
	var zero T
	if column == nil || !slices.ContainsFunc(column[from:to], func(v T) bool { return v != zero }) {
		return nil
	}
	return column[from:to:to]
}
