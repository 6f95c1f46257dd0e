package term

import (
	"errors"
	"strings"
	"testing"
)

func TestWrap(t *testing.T) {
	for _, tc := range []struct{ name, first, text, want string }{
		{"fits", "- ", "one two", "- one two\n"},
		{"breaks at spaces, with an indent", "- ", "one two three four five six", "- one two three four\n    five six\n"},
		{"a long word stands alone", "", "a/very/long/path/of/a/file.py x", "a/very/long/path/of/a/file.py\n    x\n"},
		{"a number keeps its unit", "", "it wants some 512.00 MiB, now", "it wants some\n    512.00 MiB, now\n"},
		{"a percentage too", "", "the confidence is 50 %)", "the confidence is\n    50 %)\n"},
		{"a unit alone is a word", "", "what a GiB is", "what a GiB is\n"},
		{"nothing", "- ", "", "- \n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b strings.Builder
			p := New(&b, func(string) string { return "" })
			p.Width = 20
			p.Wrap(tc.first, 4, tc.text)
			if b.String() != tc.want {
				t.Errorf("got\n%q\nwant\n%q", b.String(), tc.want)
			}
		})
	}
}

func TestSafe(t *testing.T) {
	for text, want := range map[string]string{
		"plain → text":       "plain → text",
		"\x1b[31mred":        "·[31mred",
		"a\nb\tc\x7f":        "a·b·c·",
		"bidi \u202e \u2066": "bidi · ·",
		"bad \xff utf-8":     "bad · utf-8",
		"C1 \u009b31m":       "C1 ·31m",
	} {
		if got := Safe(text); got != want {
			t.Errorf("Safe(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestNoColor: what is no terminal gets 80 columns and no escapes.
func TestNoColor(t *testing.T) {
	var b strings.Builder
	p := New(&b, func(string) string { return "" })
	p.Print(p.Styled(Red, "x"))
	if b.String() != "x" || p.Width != 80 {
		t.Errorf("%q, %d columns", b.String(), p.Width)
	}
}

type broken struct{}

var errBroken = errors.New("broken")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// TestErr: the first error of the writer is kept.
func TestErr(t *testing.T) {
	p := New(broken{}, func(string) string { return "" })
	p.Print("x")
	p.Wrap("", 0, "y")
	if !errors.Is(p.Err(), errBroken) {
		t.Errorf("got %v", p.Err())
	}
}
