package holders

import (
	"testing"

	"vramscope/replay"

	"pgregory.net/rapid"
)

// replayed replays a program that was made from others.
func replayed(t *testing.T, p *replay.Program, limit int64) *replay.Outcome {
	t.Helper()
	o, err := p.Run(t.Context(), replay.Scenario{Settings: &p.Recorded, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestFitIsExact predicts recordings of the U-Net from two others.
func TestFitIsExact(t *testing.T) {
	const limit = 10 << 30 // as on the card
	b8, b16, b32 := recorded(t, "unet_10gib_b8_ok"), recorded(t, "unet_10gib_b16_ok"), recorded(t, "unet_10gib_b32_oom")
	up, down := FitBatches(b8, 8, b16, 16), FitBatches(b16, 16, b8, 8)
	if up.Matched < up.Requests-2 || down.Matched < down.Requests-2 {
		t.Errorf("matched %d of %d and %d of %d requests", up.Matched, up.Requests, down.Matched, down.Requests)
	}
	if got, want := replayed(t, up.Program(16), limit).PeakReserved, b16.Outcome.PeakReserved; got != want {
		t.Errorf("16 from 8: reserved %d, want %d", got, want)
	}
	if got, want := replayed(t, down.Program(8), limit).PeakReserved, b8.Outcome.PeakReserved; got != want {
		t.Errorf("8 from 16: reserved %d, want %d", got, want)
	}
	// Batch 32 died under 10 GiB, asking for 512 MiB.
	o := replayed(t, up.Program(32), limit)
	if x, y := o.FatalOOM, b32.Outcome.FatalOOM; x == nil || y == nil || x.SegmentBytes != y.SegmentBytes {
		t.Errorf("32: died of %+v, want as recorded %+v", x, y)
	}
	if o := replayed(t, up.Program(12), limit); o.FirstOOM != nil || o.PeakReserved <= b8.Outcome.PeakReserved || o.PeakReserved >= b16.Outcome.PeakReserved {
		t.Errorf("12: reserved %d, refused %+v", o.PeakReserved, o.FirstOOM)
	}
}

// TestScaleBatch estimates from one recording, within what is said in
// docs/accuracy-holders.md.
func TestScaleBatch(t *testing.T) {
	b8, b16 := recorded(t, "unet_10gib_b8_ok"), recorded(t, "unet_10gib_b16_ok")
	for _, tc := range []struct {
		a        *Analysis
		from, to int
		want     int64
		within   float64
	}{
		{b8, 8, 16, b16.Outcome.PeakReserved, 0.01},
		{b16, 16, 8, b8.Outcome.PeakReserved, 0.04},
		{b8, 8, 8, b8.Outcome.PeakReserved, 0},
	} {
		got := replayed(t, tc.a.ScaleBatch(tc.from, tc.to), 0).PeakReserved
		if d := float64(got)/float64(tc.want) - 1; d > tc.within || d < -tc.within {
			t.Errorf("%d from %d: reserved %d, %.2f %% from %d", tc.to, tc.from, got, 100*d, tc.want)
		}
	}
	if o := replayed(t, b8.ScaleBatch(8, 32), 10<<30); o.FirstOOM == nil {
		t.Error("batch 32 fits 10 GiB")
	}
}

func TestScaleBatchOfScript(t *testing.T) {
	a := training{steps: 3}.record(t)
	b := training{steps: 3, batch: 4 * mib}.record(t)
	p := a.ScaleBatch(1, 4)
	for i := range p.Requests {
		want := b.Program.Requests[i].Size
		if a.Rules[i] == ruleForwardSaved && a.Program.Requests[i].Size == 4 {
			want *= 4 // the loss: it does not grow, and one recording does not tell
		}
		if p.Requests[i].Size != want {
			t.Errorf("request %d, %v: %d bytes, want %d", i, a.Category(i), p.Requests[i].Size, want)
		}
	}
	f := FitBatches(a, 1, b, 4)
	c := training{steps: 3, batch: 7 * mib}.record(t)
	for i, r := range f.Program(7).Requests {
		if r.Size != c.Program.Requests[i].Size {
			t.Errorf("request %d, %v: %d bytes from two recordings, want %d", i, a.Category(i), r.Size, c.Program.Requests[i].Size)
		}
	}
}

func TestScaled(t *testing.T) {
	for _, tc := range []struct{ size, to, from, want int64 }{
		{8, 16, 8, 16}, {9, 1, 2, 5}, {1 << 60, 3, 1 << 30, 3 << 30}, {7, 7, 7, 7},
	} {
		if got := scaled(tc.size, tc.to, tc.from); got != tc.want {
			t.Errorf("scaled(%d, %d, %d) = %d, want %d", tc.size, tc.to, tc.from, got, tc.want)
		}
	}
}

// batchSteps are recordings whose steps have different batches.
var batchSteps = []struct {
	recording        string
	step, other      int
	samples, becomes int // of the two steps: images, or tokens
	least            float64
}{
	{"empty_cache_each", 0, 1, 8, 12, 0.999},
	{"empty_cache_each", 0, 4, 8, 24, 0.999},
	{"empty_cache_each", 4, 0, 24, 8, 0.999},
	{"varlen_limit_default_oom", 0, 1, 3520, 528, 0.999},
	{"varlen_limit_default_oom", 1, 0, 528, 3520, 0.998},
}

// TestScalesBetweenSteps estimates one step's requests from another's.
func TestScalesBetweenSteps(t *testing.T) {
	for _, k := range batchSteps {
		a := recorded(t, k.recording)
		share := scaledRight(a, stepFit(a, k.step, k.other), k.samples, k.becomes, func(c Category) bool { return c != Workspace && c != Temporary })
		if share < k.least {
			t.Errorf("%s: of step %d %.2f %% of the bytes are as estimated in step %d, want %.2f %%", k.recording, k.step, 100*share, k.other, 100*k.least)
		}
	}
}

// scaledRight is the share of a step's requested bytes, of some categories,
// that Scales estimates exactly for another step.
func scaledRight(a *Analysis, f *Fit, samples, becomes int, of func(Category) bool) float64 {
	scales := a.Scales()
	right, total := int64(0), int64(0)
	for i, size := range f.partner {
		if size < 0 || !of(a.Category(i)) {
			continue
		}
		s := a.Program.Requests[i].Size
		total += s
		if want := scaled(s, int64(becomes), int64(samples)); size == want && scales[i] || size == s && !scales[i] {
			right += s
		}
	}
	return float64(right) / float64(total)
}

// stepFit aligns one step of a recording with another.
func stepFit(a *Analysis, step, other int) *Fit {
	f := &Fit{base: a, batch: 1, other: 1, partner: make([]int64, len(a.Rules))}
	for i := range f.partner {
		f.partner[i] = -1
	}
	keys := a.stackKeys(map[string]int32{})
	phases := a.byPhase()
	for i, x := range a.Phases {
		for j, y := range a.Phases {
			if x.Kind == y.Kind && x.Step == step && y.Step == other {
				f.align(phases[i], phases[j], a, a, keys, keys)
			}
		}
	}
	return f
}

// TestAlignment compares with the whole table on random sequences.
func TestAlignment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.SliceOfN(rapid.IntRange(0, 3), 0, 120)
		x, y := letters.Draw(t, "x"), letters.Draw(t, "y")
		if rapid.Bool().Draw(t, "alike") && len(x) > 2 {
			y = append(append([]int{}, x[:len(x)/3]...), x[len(x)/2:]...)
		}
		cost := func(i, j int) int32 {
			switch {
			case x[i] == y[j]:
				return 0
			case x[i]/2 == y[j]/2:
				return oddCost
			}
			return never
		}
		whole := newTable(max(len(x), 1), len(y), len(y)+len(x))
		got, li, lj := int32(len(x)+len(y))*gapCost, len(x), len(y)
		for i, j := range alignment(len(x), len(y), cost) {
			if i >= li || j >= lj {
				t.Fatalf("pair %d, %d after %d, %d", i, j, li, lj)
			}
			if cost(i, j) >= never {
				t.Fatalf("pair %d, %d may not be", i, j)
			}
			got += cost(i, j) - 2*gapCost
			li, lj = i, j
		}
		if len(x) == 0 {
			return
		}
		whole.fill(cost)
		if want := whole.at(len(x), len(y)); got != want {
			t.Fatalf("cost %d, want %d", got, want)
		}
	})
}
