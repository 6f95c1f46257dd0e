package torchsnap_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vramscope/torchsnap"
	"vramscope/trace"
)

// recording reads one of the real recordings under testdata.
func recording(tb testing.TB, name string) *trace.Trace {
	tb.Helper()
	t, err := torchsnap.ReadFile(filepath.Join("testdata", name+".pickle.zst"), nil)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// facts are counts and sums over a recording.
type facts struct {
	Name        string         `json:"name"`
	Actions     map[string]int `json:"actions"`
	SumAddr     uint64         `json:"sum_addr"`
	SumSize     uint64         `json:"sum_size"`
	SumTime     uint64         `json:"sum_time"`
	SumStream   uint64         `json:"sum_stream"`
	SumDepth    int            `json:"sum_depth"`
	Stacks      int            `json:"stacks"`
	Frames      int            `json:"frames"`
	Tracebacks  int            `json:"tracebacks"`
	Repeated    int            `json:"repeated"`
	WithBlock   int            `json:"with_block"`
	Segments    int            `json:"segments"`
	Blocks      int            `json:"blocks"`
	SumBlocks   uint64         `json:"sum_blocks"`
	Active      int            `json:"active"`
	Annotations int            `json:"annotations"`
	Conf        string         `json:"conf"`
}

func factsOf(name string, t *trace.Trace) facts {
	f := facts{
		Name: name, Actions: map[string]int{}, Stacks: t.Stacks.Len(), Frames: t.Stacks.NumFrames(),
		Annotations: len(t.Annotations), Conf: t.Settings.Conf,
	}
	events := map[trace.TracebackID]bool{}
	blocks := map[trace.TracebackID]bool{}
	for _, d := range t.Devices {
		last := trace.TracebackID(0)
		for i := range d.Events.Len() {
			e := d.Events.At(i)
			f.Actions[e.Action.String()]++
			f.SumAddr += e.Addr
			f.SumSize += uint64(e.Size)
			f.SumTime += uint64(e.Time)
			f.SumStream += e.Stream
			f.SumDepth += len(t.Stacks.Calls(e.Stack))
			if e.Traceback != 0 {
				events[e.Traceback] = true
				if e.Traceback == last {
					f.Repeated++
				}
			}
			last = e.Traceback
		}
		f.Segments += len(d.Segments)
		for _, s := range d.Segments {
			for _, b := range s.Blocks {
				f.Blocks++
				f.SumBlocks += b.Address + uint64(b.Size) + uint64(b.Requested)
				if b.State == trace.Active {
					f.Active++
				}
				if events[b.Traceback] && !blocks[b.Traceback] {
					f.WithBlock++
				}
				blocks[b.Traceback] = true
			}
		}
	}
	f.Tracebacks = len(events)
	return f
}

// TestRecordings compares what is read with what CPython reads, which
// testdata/facts.py wrote down.
func TestRecordings(t *testing.T) {
	data, err := os.ReadFile("testdata/facts.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []facts
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	for _, want := range all {
		t.Run(want.Name, func(t *testing.T) {
			tr := recording(t, want.Name)
			if diff := cmp.Diff(want, factsOf(want.Name, tr)); diff != "" {
				t.Errorf("CPython (-) and torchsnap (+) differ:\n%s", diff)
			}
			if len(tr.Warnings) > 0 {
				t.Errorf("warnings: %q", tr.Warnings)
			}
		})
	}
}

func TestHistory(t *testing.T) {
	for _, tc := range []struct {
		name             string
		reason           string // part of it, "" for a complete recording
		blocks, segments int
		from             int
	}{
		{"graph", "", 0, 0, 0},
		{"streams", "", 0, 0, 0},
		{"unet_10gib_b32_oom", "", 0, 0, 0},
		{"mempool", "", 0, 0, 0},
		{"caught_oom", "", 0, 0, 0},
		{"cpp_stacks", "", 0, 0, 0},
		{"ring_overflow", "3000 events, a round number", 260, 44, 21},
		{"late_start", "began late or dropped", 249, 44, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := recording(t, tc.name).Devices[0].History()
			if h.Complete != (tc.reason == "") || !strings.Contains(h.Reason, tc.reason) {
				t.Errorf("complete %v, reason %q, want one with %q", h.Complete, h.Reason, tc.reason)
			}
			if got := len(h.Preexisting); got != tc.blocks {
				t.Errorf("%d blocks from before, want %d", got, tc.blocks)
			}
			if got := len(h.PreexistingSegments); got != tc.segments {
				t.Errorf("%d segments from before, want %d", got, tc.segments)
			}
			if h.CompleteFrom != tc.from {
				t.Errorf("complete from event %d, want %d", h.CompleteFrom, tc.from)
			}
		})
	}
}
