package timeline

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"vramscope/internal/holders"
	"vramscope/replay"
	"vramscope/torchsnap"
	"vramscope/trace"
)

var recordings = []string{
	"../../examples/unet-10gib-oom", "../../testdata/recordings/streams", "../../testdata/recordings/late_start",
	"../../testdata/recordings/ring_overflow", "../../testdata/recordings/caught_oom",
}

func open(t testing.TB, path string) *holders.Analysis {
	t.Helper()
	tr, err := torchsnap.ReadFile(path+".pickle.zst", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := holders.Analyze(t.Context(), replay.Compile(tr, &tr.Devices[0]))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestSeries(t *testing.T) {
	for _, path := range recordings {
		t.Run(filepath.Base(path), func(t *testing.T) {
			a := open(t, path)
			s, out, err := Of(t.Context(), a.Program, replay.Scenario{})
			if err != nil {
				t.Fatal(err)
			}
			if s.Len() != a.Program.Device.Events.Len() {
				t.Fatalf("%d values for %d events", s.Len(), a.Program.Device.Events.Len())
			}
			reserved, allocated := NewPyramid(s.Reserved), NewPyramid(s.Allocated)
			_, r := reserved.Extremes(0, s.Len())
			_, al := allocated.Extremes(0, s.Len())
			if s.Reserved[r] != out.PeakReserved || s.Allocated[al] != out.PeakAllocated {
				t.Errorf("peaks %d and %d, of the replay %d and %d", s.Reserved[r], s.Allocated[al], out.PeakReserved, out.PeakAllocated)
			}
			for i := range s.Len() {
				if s.Allocated[i] > s.Active[i] || s.Active[i] > s.Reserved[i] {
					t.Fatalf("event %d: allocated %d, active %d, reserved %d", i, s.Allocated[i], s.Active[i], s.Reserved[i])
				}
			}
		})
	}
}

// TestSeriesEnds: a replay that dies has no values after its death.
func TestSeriesEnds(t *testing.T) {
	a := open(t, recordings[1])
	s, out, err := Of(t.Context(), a.Program, replay.Scenario{Limit: a.Outcome.PeakReserved / 2})
	if err != nil {
		t.Fatal(err)
	}
	if out.FatalOOM == nil || s.Len() >= a.Program.Device.Events.Len() || s.Len() < out.FatalOOM.Event {
		t.Errorf("%d values of %d events; died: %+v", s.Len(), a.Program.Device.Events.Len(), out.FatalOOM)
	}
}

func TestPyramid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Int64Range(-5, 50), 1, 5000).Draw(t, "values")
		from := rapid.IntRange(0, len(v)-1).Draw(t, "from")
		to := rapid.IntRange(from+1, len(v)).Draw(t, "to")
		least, most := from, from
		for i := from; i < to; i++ {
			if v[i] < v[least] {
				least = i
			}
			if v[i] > v[most] {
				most = i
			}
		}
		if a, b := NewPyramid(v).Extremes(from, to); a != least || b != most {
			t.Fatalf("extremes of [%d, %d) at %d and %d, want %d and %d", from, to, a, b, least, most)
		}
	})
}

// TestStack: the groups add up to the allocated bytes of the series after each
// allocation.
func TestStack(t *testing.T) {
	for _, path := range recordings {
		t.Run(filepath.Base(path), func(t *testing.T) {
			a := open(t, path)
			series, _, err := Of(t.Context(), a.Program, replay.Scenario{})
			if err != nil {
				t.Fatal(err)
			}
			for name, s := range map[string]*Stack{
				"category": ByCategory(a), "line": ByHolder(a, holders.ByLine, a.PeakAllocated),
			} {
				var sums []int64
				for i, action := range a.Program.Device.Events.Action {
					if action != trace.Alloc {
						continue
					}
					sums = s.At(sums[:0], i)
					var total int64
					for _, v := range sums {
						total += v
					}
					if total != series.Allocated[i] {
						t.Fatalf("by %s, event %d: groups add up to %d, allocated are %d", name, i, total, series.Allocated[i])
					}
				}
			}
			byCategory := map[string]int64{}
			s := ByCategory(a)
			for i, v := range s.At(nil, a.PeakAllocated) {
				byCategory[s.Groups[i]] = v
			}
			for _, h := range a.At(a.PeakAllocated, holders.ByCategory) {
				if byCategory[h.Name] != h.Bytes {
					t.Errorf("%s: %d bytes at the peak, holders say %d", h.Name, byCategory[h.Name], h.Bytes)
				}
			}
		})
	}
}

func TestLargest(t *testing.T) {
	a := open(t, recordings[0])
	n := a.Program.Device.Events.Len()
	all, count := Largest(a, 0, n, 1<<30)
	if len(all) != count {
		t.Fatalf("%d blocks of %d", len(all), count)
	}
	few, count := Largest(a, 0, n, 10)
	if len(few) != 10 || count != len(all) {
		t.Fatalf("%d blocks of %d", len(few), count)
	}
	area := func(b Block) float64 { return float64(b.Bytes) * float64(b.To-max(b.From, 0)+1) }
	least := area(few[0])
	for _, b := range few {
		least = min(least, area(b))
	}
	larger := 0
	for _, b := range all {
		if area(b) > least {
			larger++
		}
	}
	if larger >= 10 {
		t.Errorf("%d blocks are larger than the least of the ten largest", larger)
	}
}

func BenchmarkPyramid(b *testing.B) {
	v := make([]int64, 1_000_000)
	for i := range v {
		v[i] = rand.Int64()
	}
	for b.Loop() {
		NewPyramid(v)
	}
}

func BenchmarkExtremes(b *testing.B) {
	v := make([]int64, 1_000_000)
	for i := range v {
		v[i] = rand.Int64()
	}
	p := NewPyramid(v)
	for b.Loop() {
		for x := range 2000 {
			p.Extremes(x*450+1, (x+1)*450)
		}
	}
}
