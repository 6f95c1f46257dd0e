package spelling

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestNearest(t *testing.T) {
	names := []string{"micro_batch", "empty_cache", "expandable_segments", "no_grad", "qlora", "lora"}
	for _, test := range []struct {
		word string
		want []string
	}{
		{"expandable_segment", []string{"expandable_segments"}},
		{"Expandable", []string{"expandable_segments"}},
		{"emtpy_cache", []string{"empty_cache"}},
		{"lora", []string{"lora", "qlora"}},
		{"something_else", nil},
		{"", nil},
		{strings.Repeat("x", 1000), nil},
	} {
		if diff := cmp.Diff(test.want, Nearest(test.word, names, 2)); diff != "" {
			t.Errorf("%.20q: (-want +got)\n%s", test.word, diff)
		}
	}
}

// TestDistance: a metric that counts single edits.
func TestDistance(t *testing.T) {
	word := rapid.StringMatching(`[a-e]{0,12}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := word.Draw(t, "a"), word.Draw(t, "b"), word.Draw(t, "c")
		if (distance(a, b) == 0) != (a == b) || distance(a, b) != distance(b, a) {
			t.Fatalf("distance(%q, %q) = %d, back %d", a, b, distance(a, b), distance(b, a))
		}
		if distance(a, c) > distance(a, b)+distance(b, c) {
			t.Fatalf("%q, %q, %q: no triangle", a, b, c)
		}
		at := rapid.IntRange(0, len(a)).Draw(t, "at")
		if got := distance(a, a[:at]+"x"+a[at:]); got != 1 {
			t.Fatalf("one insertion costs %d", got)
		}
	})
}
