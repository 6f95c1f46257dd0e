package report

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"vramscope/internal/cause"
	"vramscope/internal/remedy"
	"vramscope/internal/term"
)

func text(t *testing.T, write func(p *term.Printer) error) string {
	t.Helper()
	var b strings.Builder
	if err := write(term.New(&b, func(string) string { return "" })); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestRemediesText(t *testing.T) {
	micro, _ := remedy.ByID("micro_batch")
	empty, _ := remedy.ByID("empty_cache")
	for _, test := range []struct {
		name string
		r    *Remedies
		one  bool
	}{
		{"list", NewRemedies(remedy.All(), "", ""), false},
		{"fragmentation", NewRemedies(remedy.ForCause(cause.Fragmentation), "", cause.Fragmentation), false},
		{"micro_batch", NewRemedies([]*remedy.Remedy{micro}, "", ""), true},
		{"empty_cache_jax", NewRemedies([]*remedy.Remedy{empty}, "jax", ""), true},
	} {
		got := text(t, func(p *term.Printer) error { return test.r.Text(p, test.one) })
		golden(t, "testdata/remedies_"+test.name+".txt", got)
	}
}

// TestRemediesWidth: lists fit 80 columns; so do entries, but for code and
// addresses, which must not be broken.
func TestRemediesWidth(t *testing.T) {
	check := func(name, got string) {
		for line := range strings.SplitSeq(got, "\n") {
			code := strings.HasPrefix(line, "    ")
			address := strings.HasPrefix(strings.TrimLeft(line, "Sources -"), "docs.")
			if utf8.RuneCountInString(line) > 80 && !code && !address {
				t.Errorf("%s: %d columns: %s", name, utf8.RuneCountInString(line), line)
			}
		}
	}
	check("list", text(t, func(p *term.Printer) error { return NewRemedies(remedy.All(), "", "").Text(p, false) }))
	for _, r := range remedy.All() {
		check(r.ID, text(t, func(p *term.Printer) error { return NewRemedies([]*remedy.Remedy{r}, "", "").Text(p, true) }))
	}
}

func TestRemediesJSON(t *testing.T) {
	r, _ := remedy.ByID("expandable_segments")
	data, err := json.MarshalIndent(NewRemedies([]*remedy.Remedy{r}, "transformers", ""), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/remedies_expandable_segments.json", string(data)+"\n")
}

// TestRemediesPage holds docs/remedies.md to the catalogue.
func TestRemediesPage(t *testing.T) {
	golden(t, "../../docs/remedies.md", RemediesMarkdown())
}
