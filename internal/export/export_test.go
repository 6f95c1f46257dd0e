package export

import (
	"bytes"
	"encoding/csv"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"vramscope/internal/holders"
	"vramscope/internal/timeline"
	"vramscope/replay"
	"vramscope/torchsnap"
)

// recordings that differ in what they hold: a failure, streams, a start in the
// middle, an overflowed ring, no stacks.
var recordings = []string{
	"../../examples/unet-10gib-oom", "../../testdata/recordings/streams", "../../testdata/recordings/late_start",
	"../../testdata/recordings/ring_overflow", "../../testdata/recordings/random_limit",
}

func open(t testing.TB, path string) *holders.Analysis {
	t.Helper()
	tr, err := torchsnap.ReadFile(path+".pickle.zst", nil)
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for i := range tr.Devices {
		if tr.Devices[i].Events.Len() > tr.Devices[most].Events.Len() {
			most = i
		}
	}
	a, err := holders.Analyze(t.Context(), replay.Compile(tr, &tr.Devices[most]))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// liveBytes is what the formats must add up to.
func liveBytes(a *holders.Analysis, event int) (bytes, blocks int64) {
	for i := range a.Live(event) {
		bytes += a.Allocated[i]
		blocks++
	}
	return bytes, blocks
}

func TestPProf(t *testing.T) {
	for _, path := range recordings {
		t.Run(filepath.Base(path), func(t *testing.T) {
			a := open(t, path)
			var b bytes.Buffer
			if err := PProf(&b, a, a.PeakAllocated); err != nil {
				t.Fatal(err)
			}
			p, err := profile.Parse(&b)
			if err != nil {
				t.Fatal(err)
			}
			var got [4]int64
			for _, s := range p.Sample {
				for i, v := range s.Value {
					got[i] += v
				}
			}
			var want [4]int64
			for i, r := range a.Program.Requests {
				if r.Event >= 0 && a.Allocated[i] > 0 {
					want[0]++
					want[1] += a.Allocated[i]
				}
			}
			want[3], want[2] = liveBytes(a, a.PeakAllocated)
			if got != want {
				t.Errorf("alloc objects, bytes, in use objects, bytes: got %v, want %v", got, want)
			}
		})
	}
}

// TestGoToolPProf opens a profile with the tool that people have.
func TestGoToolPProf(t *testing.T) {
	a := open(t, recordings[0])
	path := filepath.Join(t.TempDir(), "memory.pb.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := PProf(f, a, a.PeakAllocated); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "tool", "pprof", "-top", "-unit=B", "-tagfocus=category=activation", path)
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want int64
	for _, h := range a.At(a.PeakAllocated, holders.ByCategory) {
		if h.Category == holders.Activation {
			want = h.Bytes
		}
	}
	text := string(out)
	if !strings.Contains(text, "Type: inuse_space") || !strings.Contains(text, strconv.FormatInt(want, 10)+"B") {
		t.Errorf("go tool pprof -top does not show the %d bytes of activations:\n%s", want, text)
	}
	if !strings.Contains(text, "torch/nn/modules/conv.py") {
		t.Errorf("no convolution among the functions:\n%s", text)
	}
}

func TestFolded(t *testing.T) {
	for _, path := range recordings {
		t.Run(filepath.Base(path), func(t *testing.T) {
			a := open(t, path)
			var b bytes.Buffer
			if err := Folded(&b, a, a.PeakAllocated); err != nil {
				t.Fatal(err)
			}
			var got int64
			lines := strings.Split(strings.TrimSpace(b.String()), "\n")
			for i, line := range lines {
				at := strings.LastIndexByte(line, ' ')
				n, err := strconv.ParseInt(line[at+1:], 10, 64)
				if err != nil {
					t.Fatalf("line %d: %q", i+1, line)
				}
				got += n
			}
			if want, _ := liveBytes(a, a.PeakAllocated); got != want {
				t.Errorf("got %d bytes, want %d", got, want)
			}
		})
	}
}

func TestEventsCSV(t *testing.T) {
	for _, path := range recordings {
		t.Run(filepath.Base(path), func(t *testing.T) {
			a := open(t, path)
			s, out, err := timeline.Of(t.Context(), a.Program, replay.Scenario{})
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := EventsCSV(&b, a, s); err != nil {
				t.Fatal(err)
			}
			rows, err := csv.NewReader(&b).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			if got, want := len(rows)-1, a.Program.Device.Events.Len(); got != want {
				t.Fatalf("%d rows, want %d", got, want)
			}
			var peak int64
			requests := 0
			for _, row := range rows[1:] {
				v, err := strconv.ParseInt(row[8], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				peak = max(peak, v)
				if row[10] != "" {
					requests++
				}
			}
			if peak != out.PeakReserved {
				t.Errorf("peak of reserved_bytes is %d, of the replay %d", peak, out.PeakReserved)
			}
			want := 0
			for _, r := range a.Program.Requests {
				if r.Event >= 0 {
					want++
				}
			}
			if requests != want {
				t.Errorf("%d rows have a category, want %d", requests, want)
			}
		})
	}
}

func TestSafeCell(t *testing.T) {
	for in, want := range map[string]string{"=cmd()": "'=cmd()", "+1": "'+1", "-1": "'-1", "@x": "'@x", "a=b": "a=b", "": ""} {
		if got := safeCell(in); got != want {
			t.Errorf("safeCell(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestHoldersCSV(t *testing.T) {
	a := open(t, recordings[0])
	var b bytes.Buffer
	list := a.At(a.PeakAllocated, holders.ByLine)
	if err := HoldersCSV(&b, list); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(list)+1 || rows[1][2] != strconv.FormatInt(list[0].Bytes, 10) {
		t.Errorf("got %d rows, the first %q", len(rows), rows[1])
	}
}
