package trace

import (
	"cmp"
	"fmt"
	"slices"
)

// History says how much of a device's past its recording holds, and what was
// there before it begins. A file from before PyTorch 2.12 does not tell, so it
// is found by comparing the events with the final segments.
type History struct {
	// Complete says that the device held nothing before the first event, so
	// that a replay can start from nothing.
	Complete bool
	// CompleteFrom is the first event from which on all memory in use is known
	// to the byte: the one after the last that returned a block of unknown
	// size. 0 where nothing is unknown.
	CompleteFrom int
	// Reason says in words why the recording is not complete, "" if it is.
	Reason string

	// Preexisting are the blocks in use before the first event, by address.
	Preexisting []PreBlock
	// PreexistingSegments are the segments, and mapped runs of expandable
	// ones, from before the first event, by address.
	PreexistingSegments []PreSegment
}

// PreBlock is a block that was in use before the first event.
type PreBlock struct {
	Address   uint64
	Size      int64 // -1 if unknown: it was given back before the end
	Requested int64 // what its owner asked for, -1 if not recorded
	State     BlockState
	Stream    uint64
	Pool      Pool // of the segment there at the end, if any
	Stack     StackID
	Freed     int // the event that began to give it back, -1 if it lived to the end
}

// PreSegment is a segment that was there before the first event.
type PreSegment struct {
	Address    uint64
	Size       int64
	Stream     uint64
	Pool       Pool
	Small      bool // guessed from the size for one that was released
	Expandable bool
	Freed      int // the event that released it, -1 if it lived to the end
}

// smallSegment is the size of every segment of the small pool: kSmallBuffer in
// CUDACachingAllocator.cpp, all versions.
const smallSegment = 2 << 20

// maxMoves bounds the work on a made-up recording that gives back hundreds of
// thousands of segments which it never got. Real ones stay below a thousandth.
const maxMoves = 1 << 27

// History compares d's events with its final segments. It takes time in
// proportion to both, and sorts.
func (d *Device) History() History {
	h := History{PreexistingSegments: d.segmentsBefore()}
	doubled := d.blocksBefore(&h)
	slices.SortFunc(h.Preexisting, func(a, b PreBlock) int { return cmp.Compare(a.Address, b.Address) })
	h.Reason = d.incomplete(&h, doubled)
	h.Complete = h.Reason == ""
	return h
}

// incomplete says why a recording is not complete.
func (d *Device) incomplete(h *History, doubled int) string {
	n := d.Events.Len()
	older := fmt.Sprintf("%s and %s are older than its first event",
		count(len(h.Preexisting), "block"), count(len(h.PreexistingSegments), "segment"))
	switch {
	case len(h.Preexisting)+len(h.PreexistingSegments) == 0 && doubled >= 0:
		return fmt.Sprintf("event %d allocates an address that is in use: frees were not recorded", doubled)
	case len(h.Preexisting)+len(h.PreexistingSegments) == 0 && !d.Overflowed:
		return ""
	case n == 0:
		return "the recording has no events"
	case d.Overflowed:
		return fmt.Sprintf("the recorder kept the last %d events and dropped older ones: %s", n, older)
	case round(n):
		return fmt.Sprintf("the recorder kept %d events, a round number, so that it probably dropped older ones: %s", n, older)
	}
	return fmt.Sprintf("the recording began late or dropped old events: %s", older)
}

// round reports whether somebody may have chosen n as a limit.
func round(n int) bool {
	return n >= 100 && (n&(n-1) == 0 || n%1000 == 0 || n < 1000 && n%100 == 0)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// blocksBefore finds the blocks that are given back, or there at the end,
// without having been allocated. It returns the first event that allocates
// memory in use, -1 if there is none.
func (d *Device) blocksBefore(h *History) (doubled int) {
	const (
		live = 1 + iota
		pending
		gone
	)
	e := &d.Events
	state := make(map[uint64]uint8, 1024)
	pre := map[uint64]int{} // index in h.Preexisting of those not returned yet
	doubled = -1
	for i, a := range e.Action {
		addr := e.Addr[i]
		switch a {
		case Alloc:
			if s := state[addr]; doubled < 0 && (s == live || s == pending) {
				doubled = i
			}
			state[addr] = live
		case FreeRequested:
			if state[addr] == 0 {
				pre[addr] = len(h.Preexisting)
				h.Preexisting = append(h.Preexisting, PreBlock{
					Address: addr, Size: -1, Requested: e.Size[i], State: Active,
					Stream: e.Stream[i], Pool: d.poolAt(addr), Freed: i,
				})
			}
			state[addr] = pending
		case FreeCompleted:
			if state[addr] == 0 {
				h.Preexisting = append(h.Preexisting, PreBlock{
					Address: addr, Size: -1, Requested: e.Size[i], State: PendingFree,
					Stream: e.Stream[i], Pool: d.poolAt(addr), Freed: i,
				})
				h.CompleteFrom = i + 1
			} else if _, ok := pre[addr]; ok {
				h.CompleteFrom = i + 1
				delete(pre, addr)
			}
			state[addr] = gone
		}
	}
	for _, s := range d.Segments {
		for _, b := range s.Blocks {
			if b.State == Inactive {
				continue
			}
			switch state[b.Address] {
			case 0:
				h.Preexisting = append(h.Preexisting, PreBlock{
					Address: b.Address, Size: b.Size, Requested: b.Requested, State: b.State,
					Stream: s.Stream, Pool: s.Pool, Stack: b.Stack, Freed: -1,
				})
			case pending: // its size is seen after all
				if k, ok := pre[b.Address]; ok {
					h.Preexisting[k].Size = b.Size
				}
			}
			// Segments may be a little newer than the events (they are copied
			// second), so a block that is gone may be there again.
		}
	}
	return doubled
}

// segmentAt returns the index of the final segment around addr, -1 if none.
func (d *Device) segmentAt(addr uint64) int {
	i, found := slices.BinarySearchFunc(d.Segments, addr, func(s Segment, a uint64) int { return cmp.Compare(s.Address, a) })
	if !found {
		i--
	}
	if i >= 0 && addr-d.Segments[i].Address < uint64(d.Segments[i].Size) {
		return i
	}
	return -1
}

func (d *Device) poolAt(addr uint64) Pool {
	if i := d.segmentAt(addr); i >= 0 {
		return d.Segments[i].Pool
	}
	return Pool{}
}

// segmentsBefore runs the segment events backwards from the final segments.
func (d *Device) segmentsBefore() []PreSegment {
	r := make(ranges, 0, len(d.Segments))
	for _, s := range d.Segments {
		r = append(r, PreSegment{s.Address, s.Size, s.Stream, s.Pool, s.Small, s.Expandable, -1})
	}
	slices.SortStableFunc(r, func(a, b PreSegment) int { return cmp.Compare(a.Address, b.Address) })
	e := &d.Events
	work := 0 // entries that insertions may have moved
	for i := e.Len() - 1; i >= 0; i-- {
		switch a := e.Action[i]; a {
		case SegmentAlloc, SegmentMap:
			r.remove(e.Addr[i], e.Size[i])
		case SegmentFree, SegmentUnmap:
			if work += len(r); work > maxMoves {
				return r // no program has so many: the recording is made up
			}
			r.insert(PreSegment{
				Address: e.Addr[i], Size: e.Size[i], Stream: e.Stream[i], Pool: d.poolAt(e.Addr[i]),
				Small: a == SegmentFree && e.Size[i] == smallSegment, Expandable: a == SegmentUnmap, Freed: i,
			})
		}
	}
	if len(r) == 0 {
		return nil
	}
	return r
}

// ranges are segments by address, which do not overlap in a sound recording.
type ranges []PreSegment

// after returns the index of the first range that ends after addr.
func (r ranges) after(addr uint64) int {
	i, _ := slices.BinarySearchFunc(r, addr, func(s PreSegment, a uint64) int {
		if s.Address+uint64(s.Size) > a {
			return 1
		}
		return -1
	})
	return i
}

func (r *ranges) insert(s PreSegment) { *r = slices.Insert(*r, r.after(s.Address), s) }

// remove takes a range away: a segment, or a part of a mapped run.
func (r *ranges) remove(addr uint64, size int64) {
	end := addr + uint64(size)
	from := r.after(addr)
	to := from
	var rest []PreSegment
	for ; to < len(*r) && (*r)[to].Address < end; to++ {
		s := (*r)[to]
		if s.Address < addr {
			left := s
			left.Size = int64(addr - s.Address)
			rest = append(rest, left)
		}
		if stop := s.Address + uint64(s.Size); stop > end {
			right := s
			right.Address, right.Size = end, int64(stop-end)
			rest = append(rest, right)
		}
	}
	*r = slices.Replace(*r, from, to, rest...)
}
