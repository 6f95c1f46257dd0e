// Package term prints for people: width and colour where the output is a
// terminal, plain text of 80 columns where it is not.
package term

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Printer writes text with colours, if it has them. Errors of the writer are
// kept and returned by Err, so that reports read without error checks.
type Printer struct {
	w     io.Writer
	Width int // columns
	Color bool
	err   error
}

// New returns a Printer for w. Colour and width follow the terminal; NO_COLOR
// (no-color.org) and TERM=dumb turn colour off.
func New(w io.Writer, getenv func(string) string) *Printer {
	p := &Printer{w: w, Width: 80}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return p
	}
	if cols, _, err := term.GetSize(int(f.Fd())); err == nil && cols >= 40 {
		p.Width = min(cols, 120)
	}
	p.Color = getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
	return p
}

// Printf prints as fmt.Printf does.
func (p *Printer) Printf(format string, args ...any) { p.Print(fmt.Sprintf(format, args...)) }

// Print prints text as it is.
func (p *Printer) Print(text string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, text)
	}
}

// Err returns the first error of the writer.
func (p *Printer) Err() error { return p.err }

// Style is how a piece of text looks on a terminal.
type Style string

// The styles, as SGR codes (ECMA-48).
const (
	Bold  Style = "1"
	Faint Style = "2"
	Red   Style = "31"
	Green Style = "32"
	Gold  Style = "33"
	Blue  Style = "34"
)

// Styled returns text in a style, or as it is without colour.
func (p *Printer) Styled(s Style, text string) string {
	if !p.Color || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// Wrap prints text broken at spaces to the width, each line after a prefix of
// indent spaces, the first after first. A number stays with its unit.
func (p *Printer) Wrap(first string, indent int, text string) {
	line, col := first, utf8.RuneCountInString(first)
	empty := true
	for _, word := range words(text) {
		n := utf8.RuneCountInString(word)
		if !empty && col+1+n > p.Width {
			p.Print(line + "\n")
			line, col, empty = strings.Repeat(" ", indent), indent, true
		}
		if !empty {
			line, col = line+" ", col+1
		}
		line, col, empty = line+word, col+n, false
	}
	p.Print(line + "\n")
}

// words splits text at spaces, but for the one between a number and its unit.
func words(text string) []string {
	out := strings.Fields(text)
	n := 0
	for _, word := range out {
		if n > 0 && unit(word) && isDigit(out[n-1]) {
			out[n-1] += " " + word
			continue
		}
		out[n] = word
		n++
	}
	return out[:n]
}

func isDigit(word string) bool {
	last := word[len(word)-1]
	return last >= '0' && last <= '9'
}

func unit(word string) bool {
	switch strings.TrimRight(word, ".,;:)") {
	case "%", "B", "KiB", "MiB", "GiB", "TiB", "GB/s":
		return true
	}
	return false
}

// Safe makes text from a file harmless for a terminal: control characters,
// escape sequences among them, become visible.
func Safe(text string) string {
	if strings.IndexFunc(text, isControl) < 0 && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if isControl(r) || r == utf8.RuneError {
			r = '·'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// isControl covers C0, DEL, C1 and the bidirectional overrides.
func isControl(r rune) bool {
	return r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}
