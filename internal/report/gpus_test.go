package report

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"vramscope/internal/gpu/cards"
	"vramscope/internal/term"
)

func find(t *testing.T, name string) *cards.Card {
	t.Helper()
	c, err := cards.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestGPUsText(t *testing.T) {
	list := text(t, func(p *term.Printer) error { return NewGPUs(cards.All()).Text(p, false) })
	golden(t, "testdata/gpus.txt", list)
	for line := range strings.SplitSeq(list, "\n") {
		if n := utf8.RuneCountInString(line); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, name := range []string{"H200", "RTX 3060", "GB10"} {
		got := text(t, func(p *term.Printer) error { return NewGPUs([]*cards.Card{find(t, name)}).Text(p, true) })
		golden(t, "testdata/gpu_"+strings.ReplaceAll(strings.ToLower(name), " ", "")+".txt", got)
	}
}

func TestGPUsJSON(t *testing.T) {
	data, err := json.MarshalIndent(NewGPUs([]*cards.Card{find(t, "h200"), find(t, "GB10")}), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/gpus.json", string(data)+"\n")
}
