package holders

import (
	"testing"

	"vramscope/trace"

	"github.com/google/go-cmp/cmp"
)

func TestDiffOfBatches(t *testing.T) {
	b8, b16 := recorded(t, "unet_10gib_b8_ok"), recorded(t, "unet_10gib_b16_ok")
	for _, by := range []By{ByLine, ByStack, ByModule, ByCategory} {
		d := Diff(b8, b8.PeakAllocated, b16, b16.PeakAllocated, by)
		if d.Before != b8.Outcome.PeakAllocated || d.After != b16.Outcome.PeakAllocated {
			t.Errorf("by %v: %d to %d bytes", by, d.Before, d.After)
		}
		sum := int64(0)
		for _, g := range d.Holders {
			sum += g.Bytes()
			if g.Category == Activation && g.Before > 1<<20 && (g.After < g.Before*19/10 || g.After > g.Before*21/10) {
				t.Errorf("by %v: %s grew from %d to %d with twice the batch", by, g.Holder, g.Before, g.After)
			}
		}
		if sum != d.After-d.Before {
			t.Errorf("by %v: holders grew by %d, all by %d", by, sum, d.After-d.Before)
		}
	}
	if d := Diff(b8, b8.PeakAllocated, b8, b8.PeakAllocated, ByStack); len(d.Holders) != 0 || d.Same == 0 {
		t.Errorf("a recording differs from itself: %+v", d.Holders)
	}
}

// TestDiffMatchesMovedLines compares a program before and after an edit that
// moves its lines down by two and adds a call of the same function.
func TestDiffMatchesMovedLines(t *testing.T) {
	call := func(line int) []trace.Frame {
		return []trace.Frame{{Function: "cat", File: "site-packages/torch/functional.py", Line: 1}, {Function: "main", File: "train.py", Line: line}}
	}
	record := func(sizes map[int]int64, lines ...int) *Analysis {
		s := newScript()
		for _, l := range lines {
			s.alloc(sizes[l], call(l))
		}
		return s.analyze(t)
	}
	a := record(map[int]int64{10: 512, 20: 1024}, 10, 20)
	b := record(map[int]int64{12: 512, 22: 2048, 30: 4096}, 12, 22, 30)
	d := Diff(a, 99, b, 99, ByLine)
	name := func(line string) string { return "train.py:" + line + " main → torch/functional.py cat" }
	want := []Growth{
		{Holder: name("30"), After: 4096, AfterBlocks: 1},
		{Holder: name("22"), Was: name("20"), Before: 1024, After: 2048, BeforeBlocks: 1, AfterBlocks: 1},
	}
	if diff := cmp.Diff(want, d.Holders); diff != "" {
		t.Error(diff)
	}
	if d.Same != 1 {
		t.Errorf("%d holders did not change, want that of line 10", d.Same)
	}
}
