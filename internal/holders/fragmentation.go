package holders

import (
	"cmp"
	"context"
	"slices"

	"vramscope/replay"
	"vramscope/trace"
)

// Fragmentation is what was reserved and not in use at a moment.
type Fragmentation struct {
	Event     int
	Reserved  int64
	Allocated int64
	// Free bytes in blocks that a request could get, those of segments that
	// hold nothing (empty_cache would give them back), and those that wait
	// for a stream.
	Free, FreeInEmpty, Pending int64
	// LargestFree is the largest contiguous free block.
	LargestFree int64
	// Segments that hold both live and free bytes, most free bytes first.
	Segments []OpenSegment
	// Pools lists what each pool and stream could serve.
	Pools []PoolRoom
}

// OpenSegment is a segment that cannot be given back.
type OpenSegment struct {
	Address       uint64
	Size, Free    int64
	LargestFree   int64
	Small         bool
	Expandable    bool
	Stream        uint64
	Pool          trace.Pool
	Live          int  // blocks in use
	Holds         Held // the largest block in it
	OldestHolding Held // the block in it that is in use for the longest time
}

// Held is a live block.
type Held struct {
	Request  int // index in Program.Requests, -1 if not known
	Bytes    int64
	Line     string
	Category Category
}

// PoolRoom is the largest request that a pool can serve on a stream without
// more memory from the driver.
type PoolRoom struct {
	Small   bool
	Stream  uint64
	Pool    trace.Pool
	Free    int64
	Largest int64
}

// Fragmentation replays the program to the moment right after event and looks
// at its segments. The error is the context's.
func (a *Analysis) Fragmentation(ctx context.Context, event int) (*Fragmentation, error) {
	var segments []trace.Segment
	_, err := a.Program.Run(ctx, replay.Scenario{AtEvent: event, At: func(s []trace.Segment) { segments = s }})
	if err != nil {
		return nil, err
	}
	return a.fragmentation(event, segments), nil
}

func (a *Analysis) fragmentation(event int, segments []trace.Segment) *Fragmentation {
	f := &Fragmentation{Event: event}
	rooms := map[PoolRoom]*PoolRoom{}
	for i := range segments {
		s := &segments[i]
		o := OpenSegment{Address: s.Address, Size: s.Size, Small: s.Small, Expandable: s.Expandable, Stream: s.Stream, Pool: s.Pool,
			Holds: Held{Request: -1}, OldestHolding: Held{Request: -1}}
		key := PoolRoom{Small: s.Small, Stream: s.Stream, Pool: s.Pool}
		room := rooms[key]
		if room == nil {
			room = &key
			rooms[key] = room
		}
		busy := int64(0)
		for j := range s.Blocks {
			b := &s.Blocks[j]
			switch b.State {
			case trace.Inactive:
				o.Free += b.Size
				o.LargestFree = max(o.LargestFree, b.Size)
				continue
			case trace.PendingFree:
				f.Pending += b.Size
			default:
				f.Allocated += b.Size
			}
			busy += b.Size
			o.Live++
			h := a.held(b)
			if h.Bytes > o.Holds.Bytes {
				o.Holds = h
			}
			if o.OldestHolding.Request < 0 || h.Request >= 0 && h.Request < o.OldestHolding.Request {
				o.OldestHolding = h
			}
		}
		f.Reserved += s.Size
		f.Free += o.Free
		f.LargestFree = max(f.LargestFree, o.LargestFree)
		room.Free += o.Free
		room.Largest = max(room.Largest, o.LargestFree)
		switch {
		case busy == 0:
			f.FreeInEmpty += o.Free
		case o.Free > 0:
			o.Holds.Line = a.heldLine(o.Holds)
			o.OldestHolding.Line = a.heldLine(o.OldestHolding)
			f.Segments = append(f.Segments, o)
		}
	}
	slices.SortStableFunc(f.Segments, func(x, y OpenSegment) int {
		return cmp.Or(-cmp.Compare(x.Free, y.Free), cmp.Compare(x.Address, y.Address))
	})
	for _, r := range rooms {
		f.Pools = append(f.Pools, *r)
	}
	slices.SortFunc(f.Pools, func(x, y PoolRoom) int {
		small := func(r PoolRoom) int {
			if r.Small {
				return 1
			}
			return 0
		}
		return cmp.Or(-cmp.Compare(x.Free, y.Free), cmp.Compare(x.Stream, y.Stream), cmp.Compare(small(x), small(y)),
			cmp.Compare(x.Pool.Graph, y.Pool.Graph), cmp.Compare(x.Pool.User, y.Pool.User))
	})
	return f
}

// held names the request of a block: the replay puts its index plus one where
// a recording has the traceback.
func (a *Analysis) held(b *trace.Block) Held {
	h := Held{Request: int(b.Traceback) - 1, Bytes: b.Size}
	if h.Request >= 0 && h.Request < len(a.Rules) {
		h.Category = a.Category(h.Request)
	} else {
		h.Request = -1
	}
	return h
}

func (a *Analysis) heldLine(h Held) string {
	if h.Request < 0 {
		return "(unknown)"
	}
	return a.requestName(h.Request)
}

// requestName is the user line of a request, or where it comes from if its
// stack does not say.
func (a *Analysis) requestName(i int) string {
	if s := a.Line(a.stacks[i]); s != "" {
		return s
	}
	return a.kindOf(i).withoutStack()
}
