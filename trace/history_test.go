package trace_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"vramscope/trace"
)

const mib = 1 << 20

func device(segments []trace.Segment, events ...trace.Event) *trace.Device {
	d := &trace.Device{Segments: segments}
	for _, e := range events {
		d.Events.Append(e)
	}
	return d
}

// TestHistoryExpandable maps and unmaps parts of runs, of which some are from
// before the first event.
func TestHistoryExpandable(t *testing.T) {
	d := device(
		[]trace.Segment{{Address: 100 * mib, Size: 40 * mib, Expandable: true}},
		trace.Event{Action: trace.SegmentMap, Addr: 120 * mib, Size: 20 * mib},   // joins the run of before
		trace.Event{Action: trace.SegmentUnmap, Addr: 140 * mib, Size: 60 * mib}, // of before
		trace.Event{Action: trace.SegmentMap, Addr: 200 * mib, Size: 20 * mib},
		trace.Event{Action: trace.SegmentUnmap, Addr: 200 * mib, Size: 20 * mib},
	)
	h := d.History()
	want := []trace.PreSegment{
		{Address: 100 * mib, Size: 20 * mib, Expandable: true, Freed: -1},
		{Address: 140 * mib, Size: 60 * mib, Expandable: true, Freed: 1},
	}
	if diff := cmp.Diff(want, h.PreexistingSegments); diff != "" {
		t.Errorf("segments from before (-want +got):\n%s", diff)
	}
	if h.Complete {
		t.Error("complete")
	}
}

// TestHistoryBlocks has a block that is only seen to be freed, one that waits
// on a stream, and one that lived through.
func TestHistoryBlocks(t *testing.T) {
	d := device(
		[]trace.Segment{{Address: mib, Size: 2 * mib, Blocks: []trace.Block{
			{Address: mib, Size: 512, Requested: 500, State: trace.Active},
			{Address: mib + 512, Size: 2*mib - 512, Requested: 0},
		}}},
		trace.Event{Action: trace.FreeCompleted, Addr: mib + 1024, Size: 300},
		trace.Event{Action: trace.Alloc, Addr: mib + 512, Size: 100},
		trace.Event{Action: trace.FreeRequested, Addr: mib + 2048, Size: 900},
		trace.Event{Action: trace.FreeCompleted, Addr: mib + 2048, Size: 900},
		trace.Event{Action: trace.FreeRequested, Addr: mib + 512, Size: 100},
	)
	h := d.History()
	want := []trace.PreBlock{
		{Address: mib, Size: 512, Requested: 500, State: trace.Active, Freed: -1},
		{Address: mib + 1024, Size: -1, Requested: 300, State: trace.PendingFree, Freed: 0},
		{Address: mib + 2048, Size: -1, Requested: 900, State: trace.Active, Freed: 2},
	}
	if diff := cmp.Diff(want, h.Preexisting); diff != "" {
		t.Errorf("blocks from before (-want +got):\n%s", diff)
	}
	if h.CompleteFrom != 4 {
		t.Errorf("complete from event %d, want 4", h.CompleteFrom)
	}
}
