package remedy

import (
	"slices"
	"strings"
	"testing"
)

// TestEveryVariantHasARemedy: a measurement that no remedy shows is lost.
func TestEveryVariantHasARemedy(t *testing.T) {
	var shown []string
	for _, r := range All() {
		for _, v := range r.Measured {
			if slices.Contains(shown, v) {
				t.Errorf("%s: %q is shown twice", r.ID, v)
			}
			shown = append(shown, v)
		}
		if len(r.Measured) > 0 && len(Examples(r.ID)) == 0 {
			t.Errorf("%s: no measurement is called %q", r.ID, r.Measured)
		}
	}
	for _, e := range examples() {
		if !slices.Contains(shown, e.Variant) {
			t.Errorf("%s of %s belongs to no remedy", e.Variant, e.Job)
		}
	}
}

func TestExampleEffects(t *testing.T) {
	got := Examples("micro_batch")[0].Effects()
	want := "batch 16 → 8: reserved 7.88 GiB → 4.01 GiB, allocated 6.00 GiB → 3.17 GiB, step 0.051 → 0.027 s"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if Examples("no_such_remedy") != nil {
		t.Error("examples of a remedy that does not exist")
	}
}

func TestReadExamplesRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"no baseline": `{"job": "a", "variant": "b"}`,
		"not JSON":    `{"job": `,
	} {
		if _, err := readExamples(strings.NewReader(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
