package torchsnap_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vramscope/torchsnap"
	"vramscope/trace"
)

// dialect reads one of the files that testdata/dialects/make.py writes.
func dialect(t *testing.T, name string) *trace.Trace {
	t.Helper()
	tr, err := torchsnap.ReadFile("testdata/dialects/"+name+".pickle", nil)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

const (
	addrA = 0x7f0000000000
	addrB = 0x7f0000200000
)

// TestBase checks the snapshot that all dialects write, value by value.
func TestBase(t *testing.T) {
	tr := dialect(t, "protocol4")
	if len(tr.Devices) != 2 || tr.Devices[0].Ordinal != 0 || tr.Devices[1].Ordinal != 2 {
		t.Fatalf("devices %+v, want 0 and 2", tr.Devices)
	}
	d := tr.Devices[0]
	e := d.Events
	if diff := cmp.Diff([]trace.Action{trace.SegmentAlloc, trace.Alloc, trace.Alloc, trace.FreeRequested, trace.OOM, trace.Snapshot}, e.Action); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]uint64{addrA, addrA, addrA + 1024, addrA + 1024, 5 << 30, 0}, e.Addr); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int64{2 << 20, 1000, 400, 400, 1 << 40, 1536}, e.Size); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
	// The live block's list is that of its alloc and of the segment; the free
	// has a list of its own, empty; the snapshot has none. Equal stacks of two
	// lists are one stack and two tracebacks.
	if diff := cmp.Diff([]trace.TracebackID{1, 1, 2, 3, 4, 0}, e.Traceback); diff != "" {
		t.Errorf("tracebacks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]trace.StackID{1, 1, 2, 0, 1, 0}, e.Stack); diff != "" {
		t.Errorf("stacks (-want +got):\n%s", diff)
	}
	want := []trace.Segment{{
		Address: addrA, Size: 2 << 20, Requested: 1000, Small: true, Stack: 1,
		Blocks: []trace.Block{
			{Address: addrA, Size: 1024, Requested: 1000, State: trace.Active, Stack: 1, Traceback: 1},
			{Address: addrA + 1024, Size: 512, Requested: 400, State: trace.PendingFree, Stack: 2, Traceback: 2},
			{Address: addrA + 1536, Size: 2<<20 - 1536},
		},
	}}
	if diff := cmp.Diff(want, d.Segments); diff != "" {
		t.Errorf("segments (-want +got):\n%s", diff)
	}
	frames := slices.Collect(tr.Stacks.All(2))
	if diff := cmp.Diff([]trace.Frame{{Function: "loss", File: "train/main.py", Line: 47}, {Function: "step", File: "train/main.py", Line: 31}, {Function: "<module>", File: "train/main.py", Line: 9}}, frames); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
	settings := &trace.RecordedSettings{
		Conf: "max_split_size_mb:128", MaxSplitBytes: 128 << 20, GCThreshold: 0.5, ReleaseLockOnMalloc: true, PinnedThreads: 1,
		RoundupDivisions: map[int64]int64{1: 0, 2: 4, 32768: 8},
	}
	if diff := cmp.Diff(settings, tr.Settings); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]trace.Annotation{{Name: "## forward ##", Time: 5}, {Name: "## forward ##", End: true, Time: 9}}, tr.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(trace.Features{Traces: true, Settings: true, Annotations: true, Times: true, BlockStacks: true, CompileContext: true, UserMetadata: true}, tr.Features); diff != "" {
		t.Errorf("features (-want +got):\n%s", diff)
	}
}

// TestDialects checks that the same snapshot is read from every pickle dialect.
func TestDialects(t *testing.T) {
	want := dialect(t, "protocol4")
	for _, name := range []string{"protocol0", "protocol1", "protocol2", "protocol3", "protocol5", "pure_python", "torchscript"} {
		t.Run(name, func(t *testing.T) {
			if diff := equalTraces(want, dialect(t, name)); diff != "" {
				t.Errorf("protocol 4 (-) and %s (+) differ:\n%s", name, diff)
			}
		})
	}
}

func TestCompressedAndPiped(t *testing.T) {
	data, err := os.ReadFile("testdata/dialects/protocol4.pickle")
	if err != nil {
		t.Fatal(err)
	}
	want := read(t, data)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(data)
	z.Close()
	if diff := equalTraces(want, read(t, packed.Bytes())); diff != "" {
		t.Errorf("gzip:\n%s", diff)
	}
	r, w := io.Pipe()
	go func() {
		for _, c := range data { // the smallest pieces that a pipe can give
			w.Write([]byte{c})
		}
		w.Close()
	}()
	var seen int64
	got, err := torchsnap.Read(r, &torchsnap.Options{Progress: func(n, _ int64) { seen = n }})
	if err != nil {
		t.Fatal(err)
	}
	if diff := equalTraces(want, got); diff != "" {
		t.Errorf("pipe:\n%s", diff)
	}
	if seen != int64(len(data)) {
		t.Errorf("progress ended at %d of %d bytes", seen, len(data))
	}
}

func TestOldList(t *testing.T) {
	tr := dialect(t, "old_list")
	if tr.Features != (trace.Features{}) || tr.Settings != nil || len(tr.Devices) != 2 {
		t.Fatalf("features %+v, %d devices", tr.Features, len(tr.Devices))
	}
	want := []trace.Segment{{
		Address: addrA, Size: 2 << 20, Requested: -1, Small: true,
		Blocks: []trace.Block{
			{Address: addrA, Size: 1024, Requested: -1, State: trace.Active},
			{Address: addrA + 1024, Size: 512, Requested: -1, State: trace.PendingFree},
			{Address: addrA + 1536, Size: 2<<20 - 1536, Requested: -1},
		},
	}}
	if diff := cmp.Diff(want, tr.Devices[0].Segments); diff != "" {
		t.Errorf("segments (-want +got):\n%s", diff)
	}
	if h := tr.Devices[0].History(); h.Complete || h.Reason != "the recording has no events" || len(h.Preexisting) != 2 {
		t.Errorf("history %+v", h)
	}
}

func TestVersion1_13(t *testing.T) {
	tr := dialect(t, "v1_13")
	if diff := cmp.Diff(trace.Features{Traces: true}, tr.Features); diff != "" {
		t.Errorf("features (-want +got):\n%s", diff)
	}
	d := tr.Devices[0]
	want := []trace.Block{
		{Address: addrA, Size: 1024, Requested: 1000, State: trace.Active, Stack: 1, Traceback: 1},
		{Address: addrA + 1024, Size: 512, Requested: 400, State: trace.PendingFree, Stack: 2, Traceback: 2},
		{Address: addrA + 1536, Size: 2<<20 - 1536, Requested: -1},
	}
	if diff := cmp.Diff(want, d.Segments[0].Blocks); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	if d.Events.Time != nil || d.Events.Traceback[1] != 1 {
		t.Errorf("times %v, tracebacks %v", d.Events.Time, d.Events.Traceback)
	}
}

func TestVersion2_15(t *testing.T) {
	tr := dialect(t, "v2_15")
	if f := tr.Features; !f.EventPools || !f.ForwardFrames {
		t.Errorf("features %+v", f)
	}
	d := tr.Devices[0]
	if got := tr.Pools[d.Events.At(1).Pool]; got != (trace.Pool{Graph: 7}) {
		t.Errorf("pool of event 1 is %v", got)
	}
	e := d.Events.At(1)
	if tr.Labels.Text(e.Compile) != "0/1" || tr.Labels.Text(e.Metadata) != "weights" {
		t.Errorf("labels of event 1 are %q and %q", tr.Labels.Text(e.Compile), tr.Labels.Text(e.Metadata))
	}
	if e := d.Events.At(6); e.Action != trace.Annotate || e.Addr != addrA {
		t.Errorf("event 6 is %+v", e)
	}
	if e := d.Events.At(7); e.Action != trace.Other || tr.Labels.Text(e.Name) != "defragment" {
		t.Errorf("event 7 is %+v", e)
	}
	if d.RingSize != 100000 || !d.Overflowed {
		t.Errorf("ring of %d, overflowed %v", d.RingSize, d.Overflowed)
	}
	if h := d.History(); h.Complete {
		t.Error("the history of a ring that overflowed is complete")
	}
	if diff := cmp.Diff([]string{"new_setting"}, tr.Settings.UnknownKeys); diff != "" {
		t.Errorf("unknown settings (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{`unknown part "new_part" left out`}, tr.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestLongStack(t *testing.T) {
	tr := dialect(t, "long_stack")
	if got := len(tr.Stacks.Calls(tr.Devices[0].Events.Stack[1])); got != 2201 {
		t.Errorf("%d frames, want 2201", got)
	}
	if diff := equalTraces(tr, read(t, write(t, tr))); diff != "" {
		t.Errorf("written and read again:\n%s", diff)
	}
}
