package replay

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vramscope/cachealloc"
	"vramscope/torchsnap"
	"vramscope/trace"
)

// recording is a line of testdata/recordings/index.json: what the card's own
// statistics said.
type recording struct {
	Name      string
	File      string
	Conf      string
	Limit     int64 `json:"limit_bytes"`
	Allocated int64 `json:"peak_allocated_bytes"`
	Reserved  int64 `json:"peak_reserved_bytes"`
	Retries   int64 `json:"num_alloc_retries"`
	OOMs      int64 `json:"num_ooms"`
	Error     *string
	Complete  bool
	Disturbed bool
	// Changed says that the settings changed while the program ran. When
	// exactly leaves no trace, so sizes of a few blocks are not known.
	Changed bool   `json:"settings_changed"`
	TakenAt string `json:"taken_at"`
	Stats   map[string]int64
	path    string
	// inRepository says that the file lies in testdata or examples.
	inRepository bool
}

const recordingsDir = "../testdata/recordings"

func recordings(t testing.TB) []recording {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(recordingsDir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []recording
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		all[i].path = filepath.Join(recordingsDir, all[i].File)
	}
	return all
}

func compileFile(t testing.TB, path string) *Program {
	t.Helper()
	tr, err := torchsnap.ReadFile(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Compile(tr, &tr.Devices[0])
}

func program(t testing.TB, name string) *Program {
	t.Helper()
	for _, r := range recordings(t) {
		if r.Name == name {
			return compileFile(t, r.path)
		}
	}
	t.Fatalf("no recording %s", name)
	return nil
}

func run(t testing.TB, p *Program, sc Scenario) *Outcome {
	t.Helper()
	o, err := p.Run(context.Background(), sc)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestRecordings replays each recording under its own settings: every segment
// event, every block's address, the final segments and the card's statistics
// must come out equal.
func TestRecordings(t *testing.T) {
	for _, r := range recordings(t) {
		t.Run(r.Name, func(t *testing.T) {
			p := compileFile(t, r.path)
			o := run(t, p, Scenario{Limit: r.Limit})
			if o.Divergence != nil {
				t.Errorf("parts from the recording at event %d: %s", o.Divergence.Event, o.Divergence.Reason)
			}
			if p.Complete() != r.Complete {
				t.Fatalf("complete: %v, want %v (%s)", p.Complete(), r.Complete, p.History().Reason)
			}
			if !r.Complete {
				if o.Matches != nil {
					t.Errorf("an incomplete recording claims to match: %v", *o.Matches)
				}
				return
			}
			if o.Matches == nil || !*o.Matches || o.Misplaced > 0 {
				t.Errorf("matches %v, %d misplaced", o.Matches, o.Misplaced)
			}
			if r.Changed {
				if d := o.PeakAllocated - r.Allocated; o.PeakReserved != r.Reserved || d > r.Allocated/1000 || -d > r.Allocated/1000 {
					t.Errorf("reserved %d, allocated %d; the card: %d, about %d", o.PeakReserved, o.PeakAllocated, r.Reserved, r.Allocated)
				}
				return
			}
			if o.PeakReserved != r.Reserved || o.PeakAllocated != r.Allocated {
				t.Errorf("reserved %d, allocated %d; the card: %d, %d", o.PeakReserved, o.PeakAllocated, r.Reserved, r.Allocated)
			}
			if o.Retries != r.Retries || o.OOMs != r.OOMs {
				t.Errorf("%d retries, %d refusals; the card: %d, %d", o.Retries, o.OOMs, r.Retries, r.OOMs)
			}
			if peak, _ := p.RecordedReserved(); peak != r.Reserved {
				t.Errorf("the segment events add up to %d; the card: %d", peak, r.Reserved)
			}
			if r.TakenAt == "end" { // else the statistics are of later
				compareStats(t, &o.Stats, r.Stats)
			}
		})
	}
}

// compareStats compares with torch.cuda.memory_stats().
func compareStats(t *testing.T, s *cachealloc.Stats, card map[string]int64) {
	t.Helper()
	byPool := map[string]*cachealloc.StatByPool{
		"allocation": &s.Allocation, "segment": &s.Segment, "active": &s.Active, "inactive_split": &s.InactiveSplit,
		"allocated_bytes": &s.AllocatedBytes, "reserved_bytes": &s.ReservedBytes, "active_bytes": &s.ActiveBytes,
		"inactive_split_bytes": &s.InactiveSplitBytes, "requested_bytes": &s.RequestedBytes,
	}
	for key, want := range card {
		parts := strings.Split(key, ".")
		var got int64
		switch stat, ok := byPool[parts[0]]; {
		case ok && len(parts) == 3 && parts[1] == "all":
			got = statField(&stat.All, parts[2])
		case key == "num_device_alloc":
			got = s.NumDeviceAlloc
		case key == "num_device_free":
			got = s.NumDeviceFree
		case parts[0] == "oversize_segments":
			got = statField(&s.OversizeSegments, parts[1])
		case parts[0] == "oversize_allocations":
			got = statField(&s.OversizeAllocations, parts[1])
		default:
			t.Errorf("no statistic %s", key)
			continue
		}
		if strings.HasPrefix(key, "inactive_split") && strings.HasSuffix(key, ".peak") ||
			parts[0] == "inactive_split" || parts[0] == "inactive_split_bytes" || key == "active_bytes.all.peak" || key == "active.all.peak" {
			// A retry's frees may come a moment earlier or later (settle.go):
			// only what is left counts there.
			if s.NumAllocRetries > 0 && !strings.HasSuffix(key, ".current") {
				continue
			}
		}
		if got != want {
			t.Errorf("%s: %d; the card: %d", key, got, want)
		}
	}
}

func statField(s *cachealloc.Stat, name string) int64 {
	return map[string]int64{"current": s.Current, "peak": s.Peak, "allocated": s.Allocated, "freed": s.Freed}[name]
}

// TestOtherSettings replays a recording under the settings (and the limit) of
// another run of the same program, and compares with what the card did there.
func TestOtherSettings(t *testing.T) {
	for _, tc := range []struct {
		source, conf string
		limit        int64
		reserved     int64
	}{
		// The card's figures: data/snapshots/index.json of the project.
		{"varimg_default", "max_split_size_mb:128", 0, 10850664448},
		{"varimg_default", "expandable_segments:True", 0, 5068816384},
		{"random7_gc", "", 0, 7948206080},
	} {
		t.Run(tc.source+" "+tc.conf, func(t *testing.T) {
			p := program(t, tc.source)
			s, err := cachealloc.ParseSettings(tc.conf, p.To)
			if err != nil {
				t.Fatal(err)
			}
			o := run(t, p, Scenario{Settings: &s, Limit: tc.limit})
			if o.PeakReserved != tc.reserved {
				t.Errorf("reserved %d; the card: %d", o.PeakReserved, tc.reserved)
			}
			if o.Matches != nil {
				t.Error("claims to match under other settings")
			}
		})
	}
}

// TestDeath replays with a limit and compares with what died on the card.
func TestDeath(t *testing.T) {
	for _, tc := range []struct {
		name     string
		tried    int64 // "Tried to allocate", as the card's message rounds it
		survived int
	}{
		{"unet_10gib_b32_oom", 512 << 20, 26},
		{"varlen_limit_default_oom", 884 << 20, 0},
		{"random_limit", 262 << 20, 0},
		{"optimizer_state", 64 << 20, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := program(t, tc.name)
			for _, limit := range []int64{0, limitOf(t, tc.name)} { // inferred, and told
				o := run(t, p, Scenario{Limit: limit})
				if o.FatalOOM == nil || o.FatalOOM.SegmentBytes != tc.tried || o.Survived != tc.survived {
					t.Fatalf("limit %d: fatal %+v, survived %d", limit, o.FatalOOM, o.Survived)
				}
				b := p.InferBound(o)
				if known := limitOf(t, tc.name); b.ByDriver || b.Low > known || known >= b.High {
					t.Errorf("limit inferred between %d and %d (by driver: %v); it was %d", b.Low, b.High, b.ByDriver, known)
				}
			}
		})
	}
}

// TestCapacity gives the recorded settings a smaller card: the answers of the
// recorded driver no longer count.
func TestCapacity(t *testing.T) {
	p := program(t, "unet_10gib_b16_ok")
	const capacity = 6 << 30
	o := run(t, p, Scenario{Capacity: capacity})
	if o.Fits() || o.PeakReserved > capacity || o.Matches != nil {
		t.Errorf("reserved %d of %d, fatal %+v, matches %v", o.PeakReserved, int64(capacity), o.FatalOOM, o.Matches)
	}
	if o := run(t, p, Scenario{Capacity: 10 << 30}); o.Matches == nil || !*o.Matches {
		t.Error("a card that is large enough does not match the recording")
	}
}

func limitOf(t *testing.T, name string) int64 {
	for _, r := range recordings(t) {
		if r.Name == name {
			return r.Limit
		}
	}
	t.Fatalf("no recording %s", name)
	return 0
}

// TestFixedPoint replays what a replay did: under any settings, the segment
// events and addresses of a replay, taken as a recording, replay to themselves.
func TestFixedPoint(t *testing.T) {
	for _, name := range []string{"streams", "graph", "caught_oom", "empty_cache_each", "unet_10gib_b8_ok"} {
		for _, conf := range []string{"", "expandable_segments:True", "max_split_size_mb:64", "roundup_power2_divisions:8"} {
			t.Run(name+" "+conf, func(t *testing.T) {
				p := program(t, name)
				s, err := cachealloc.ParseSettings(conf, p.To)
				if err != nil {
					t.Fatal(err)
				}
				tr := p.Record(Scenario{Settings: &s})
				again := Compile(tr, &tr.Devices[0])
				o := run(t, again, Scenario{})
				if o.Matches == nil || !*o.Matches || o.Misplaced > 0 {
					t.Fatalf("does not match itself: %+v, %d misplaced", o.Divergence, o.Misplaced)
				}
			})
		}
	}
}

func BenchmarkRun(b *testing.B) {
	for _, conf := range []string{"recorded", "", "expandable_segments:True", "max_split_size_mb:128"} {
		b.Run("conf="+conf, func(b *testing.B) {
			p := program(b, "varimg_default")
			sc := Scenario{}
			if conf != "recorded" {
				s, err := cachealloc.ParseSettings(conf, p.To)
				if err != nil {
					b.Fatal(err)
				}
				sc.Settings = &s
			}
			for b.Loop() {
				run(b, p, sc)
			}
			events := float64(p.Device.Events.Len()) * float64(b.N)
			b.ReportMetric(events/b.Elapsed().Seconds()/1e6, "Mevents/s")
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	tr, err := torchsnap.ReadFile(filepath.Join(recordingsDir, "varimg_default.pickle.zst"), nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		Compile(tr, &tr.Devices[0])
	}
	b.ReportMetric(float64(tr.Devices[0].Events.Len())*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}

// FuzzReplay gives the replay recordings that no program made. Whatever they
// hold, it ends, and accounts for what it did.
func FuzzReplay(f *testing.F) {
	f.Add([]byte{0, 1, 9, 3, 1, 9, 1, 1, 9, 2, 1, 9, 8, 0, 3}, "")
	f.Add([]byte{5, 1, 200, 0, 1, 200, 6, 1, 200, 0, 2, 100}, "expandable_segments:True")
	f.Fuzz(func(t *testing.T, data []byte, conf string) {
		s, err := cachealloc.ParseSettings(conf, cachealloc.Version{})
		if err != nil {
			t.Skip()
		}
		var d trace.Device
		for ; len(data) >= 3 && d.Events.Len() < 2000; data = data[3:] {
			d.Events.Append(trace.Event{
				Action: trace.Action(data[0] % 12), Addr: uint64(data[1]) << 20, Size: int64(data[2])*int64(data[2])<<10 + int64(data[0])<<40*int64(data[1]/250),
				Stream: uint64(data[0]) / 100, Traceback: trace.TracebackID(data[1] % 5),
			})
		}
		if len(data) > 1 {
			d.Segments = []trace.Segment{{Address: uint64(data[0]) << 20, Size: 2 << 20, Expandable: data[1] > 100,
				Blocks: []trace.Block{{Address: uint64(data[0]) << 20, Size: 2 << 20, Requested: 5, State: trace.BlockState(data[1] % 3)}}}}
		}
		tr := &trace.Trace{Devices: []trace.Device{d}, Pools: []trace.Pool{{}}, Settings: &trace.RecordedSettings{Expandable: s.ExpandableSegments, MaxSplitBytes: -1}}
		p := Compile(tr, &tr.Devices[0])
		for _, sc := range []Scenario{{}, {Settings: &s, Limit: 1 << 30}, {Settings: &s, Capacity: 100 << 20}} {
			o := run(t, p, sc)
			if sc.Limit > 0 && o.PeakReserved > sc.Limit && p.Complete() {
				t.Fatalf("reserved %d beyond the limit", o.PeakReserved)
			}
			if o.PeakAllocated > o.PeakReserved {
				t.Fatalf("allocated %d of %d reserved", o.PeakAllocated, o.PeakReserved)
			}
		}
	})
}

func TestVersionInferred(t *testing.T) {
	p := program(t, "graph")
	if from := p.From.String(); from != "2.10" || p.To.String() != "2.11" {
		t.Errorf("inferred %s to %s; it was 2.11", from, p.To)
	}
}
