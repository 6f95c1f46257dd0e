package replay

import (
	"fmt"

	"vramscope/cachealloc"
	"vramscope/trace"
)

// recordedDriver answers as the card did: each question of the allocator is
// compared with the segment events that the recording holds for the operation
// under way. Where they part it goes on as an empty card.
type recordedDriver struct {
	cachealloc.Card
	events  *trace.Events
	segment []int32 // the program's segment events
	at, end int     // those of the operation
	refuses bool    // the operation is a refused request
	split   *Divergence
	op      int32 // event of the operation
	matched int
}

// Divergence is where a replay first parts from its recording.
type Divergence struct {
	Event  int    // of the recording
	Reason string // what was recorded, and what was simulated
}

func (d *recordedDriver) begin(o op) {
	if d.split == nil && d.at < d.end {
		i := d.segment[d.at]
		d.part(int(i), fmt.Sprintf("recorded %s of %d bytes, simulated nothing", d.events.Action[i], d.events.Size[i]))
	}
	d.at, d.end, d.op = int(o.from), int(o.to), o.event
	d.refuses = o.kind == opRefused
}

func (d *recordedDriver) part(event int, reason string) {
	if d.split == nil {
		d.split = &Divergence{event, reason}
	}
}

// peek returns the next recorded segment event of the operation.
func (d *recordedDriver) peek() (event int32, ok bool) {
	if d.split != nil || d.at >= d.end {
		return 0, false
	}
	return d.segment[d.at], true
}

// refusesNow reports whether the recording shows that the driver, or a limit
// that the replay was not told, refused at this point: memory was released, or
// the request was refused, rather than memory got.
func (d *recordedDriver) refusesNow() bool {
	if d.split != nil {
		return false
	}
	i, ok := d.peek()
	if !ok {
		return d.refuses
	}
	a := d.events.Action[i]
	return a == trace.SegmentFree || a == trace.SegmentUnmap
}

func (d *recordedDriver) Alloc(size int64) (uint64, bool) {
	if d.refusesNow() {
		return 0, false
	}
	if i, ok := d.peek(); ok && d.events.Action[i] == trace.SegmentAlloc {
		return d.events.Addr[i], true
	}
	return d.Card.Alloc(size)
}

func (d *recordedDriver) Reserve(size int64) uint64 {
	if i, ok := d.peek(); ok && d.events.Action[i] == trace.SegmentMap {
		return d.events.Addr[i]
	}
	return d.Card.Reserve(size)
}

func (d *recordedDriver) Map(addr uint64, size int64) bool {
	return !d.refusesNow()
}

func (d *recordedDriver) Free(uint64, int64)  {}
func (d *recordedDriver) Unmap(uint64, int64) {}

// compare is called for each simulated segment event.
func (d *recordedDriver) compare(a trace.Action, addr uint64, size int64, stream uint64) {
	if d.split != nil {
		return
	}
	i, ok := d.peek()
	if !ok {
		d.part(int(d.op), fmt.Sprintf("simulated %s of %d bytes, recorded nothing", a, size))
		return
	}
	ra, rs := d.events.Action[i], d.events.Size[i]
	if ra != a || rs != size || d.events.Addr[i] != addr || d.events.Stream[i] != stream {
		d.part(int(i), fmt.Sprintf("recorded %s of %d bytes at %#x, simulated %s of %d bytes at %#x", ra, rs, d.events.Addr[i], a, size, addr))
		return
	}
	d.at++
	d.matched++
}

// finish compares what is left with the final segments of the recording.
func (d *recordedDriver) finish(got, want []trace.Segment) {
	d.begin(op{})
	if d.split != nil {
		return
	}
	end := d.events.Len()
	if len(got) != len(want) {
		d.part(end, fmt.Sprintf("recorded %d segments at the end, simulated %d", len(want), len(got)))
		return
	}
	for i := range got {
		g, w := &got[i], &want[i]
		if g.Address != w.Address || g.Size != w.Size || g.Stream != w.Stream || g.Small != w.Small ||
			g.Expandable != w.Expandable || g.Pool != w.Pool || len(g.Blocks) != len(w.Blocks) {
			d.part(end, fmt.Sprintf("final segment %#x of %d bytes with %d blocks, simulated %#x of %d bytes with %d blocks",
				w.Address, w.Size, len(w.Blocks), g.Address, g.Size, len(g.Blocks)))
			return
		}
		for j := range g.Blocks {
			if gb, wb := &g.Blocks[j], &w.Blocks[j]; gb.Address != wb.Address || gb.Size != wb.Size || gb.State != wb.State {
				d.part(end, fmt.Sprintf("final block %#x of %d bytes, %s, simulated %#x of %d bytes, %s",
					wb.Address, wb.Size, wb.State, gb.Address, gb.Size, gb.State))
				return
			}
		}
	}
}
