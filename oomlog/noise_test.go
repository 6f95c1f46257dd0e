package oomlog

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// dress are the ways in which a line reaches a log.
var dresses = []struct {
	name string
	// prefix stands before each line; end after it.
	prefix, end string
	whole       func(string) string
}{
	{name: "plain"},
	{name: "crlf", end: "\r"},
	{name: "colours", prefix: "\x1b[1;31m", end: "\x1b[0m"},
	{name: "torchrun", prefix: "[rank3]: "},
	{name: "default", prefix: "[default5]:"},
	{name: "slurm", prefix: " 3: "},
	{name: "mpirun", prefix: "[1,3]<stderr>: "},
	{name: "cri", prefix: "2026-01-02T03:04:05.123456789Z stderr F "},
	{name: "kubectl", prefix: "[pod/train-7/main] "},
	{name: "compose", prefix: "trainer-1  | "},
	{name: "journal", prefix: "Jan  2 03:04:05 box python3[4242]: "},
	{name: "logger", prefix: "2026-01-02 03:04:05,678 "},
	{name: "ray", prefix: "\x1b[36m(Worker pid=4242, ip=10.0.0.7)\x1b[0m "},
	{name: "vllm", prefix: "(EngineCore pid=4242) ERROR 01-02 03:04:05 [core.py:708] "},
	{name: "docker", whole: func(text string) string {
		var b strings.Builder
		for _, l := range strings.Split(text, "\n") {
			fmt.Fprintf(&b, "{\"log\":%q,\"stream\":\"stderr\",\"time\":\"2026-01-02T03:04:05.6Z\"}\n", strings.ReplaceAll(l, "\x02", "")+"\n")
		}
		return strings.ReplaceAll(b.String(), `\x1b`, `\u001b`)
	}},
	{name: "progress bar before", whole: func(text string) string {
		return " 41%|####      | 41/100 [00:10<00:14,  4.10it/s]\r" + text + "\n"
	}},
}

// wear puts a dress on a text.
func wear(i int, text string) string {
	d := dresses[i]
	if d.whole != nil {
		return d.whole(text)
	}
	var b strings.Builder
	for _, l := range strings.Split(text, "\n") {
		b.WriteString(d.prefix + l + d.end + "\n")
	}
	return b.String()
}

// wrap breaks lines as a terminal of width columns does.
func wrap(text string, width int) string {
	if width == 0 {
		return text
	}
	var b strings.Builder
	for _, l := range strings.SplitAfter(text, "\n") {
		column, escape := 0, false
		for _, r := range l {
			switch {
			case r == 0x1b:
				escape = true
			case escape:
				escape = !(r >= 'a' && r <= 'z')
			case r == '\r':
				column = 0
			case r != '\n':
				if column == width {
					b.WriteByte('\n')
					column = 0
				}
				column++
			}
			b.WriteRune(r)
		}
	}
	return b.String()
}

// wordWrap breaks lines between words, as mail programs do.
func wordWrap(text string, width int) string {
	var b strings.Builder
	column := 0
	for _, w := range strings.SplitAfter(text, " ") {
		if n := utf8.RuneCountInString(w); column+n > width && column > 0 {
			b.WriteByte('\n')
			column = 0
		}
		b.WriteString(w)
		column += utf8.RuneCountInString(w)
		if strings.Contains(w, "\n") {
			column = 0
		}
	}
	return b.String()
}

// TestEveryMessageInEveryDress: a message reads the same through prefixes and
// wrapped lines.
func TestEveryMessageInEveryDress(t *testing.T) {
	for _, s := range allSamples() {
		plain := mustScan(t, s.before+s.text+"\n")
		want := fieldsOf(&plain.Failures[0])
		for i, d := range dresses {
			for _, width := range []int{0, 80, 120, -72} {
				if width != 0 && (d.whole != nil || d.name == "crlf") {
					continue
				}
				text := wear(i, s.before+s.text)
				if width > 0 {
					text = wrap(text, width)
				} else if width < 0 {
					if d.prefix != "" || s.text[0] == '(' || s.text[0] == '[' {
						continue
					}
					text = wordWrap(text, -width)
				}
				report := mustScan(t, "a line before\n"+text+"a line after\n")
				if len(report.Failures) != 1 {
					t.Errorf("%s as %s at %d columns: %d messages; want 1\n%s", s.grammar, d.name, width, len(report.Failures), text)
					continue
				}
				f := report.Failures[0]
				got := fieldsOf(&f)
				if f.Rank != nil && want["rank"] == "" {
					delete(got, "rank")
				}
				if f.Grammar != plain.Failures[0].Grammar || f.Kind != plain.Failures[0].Kind {
					t.Errorf("%s as %s at %d columns: read as %s, %s (%v)\n%s", s.grammar, d.name, width, f.Grammar, f.Kind, f.Why, text)
				}
				if diff := cmp.Diff(want, got); diff != "" && !(want["rank"] != "" && d.prefix != "") {
					t.Errorf("%s as %s at %d columns: (-plain +dressed)\n%s\n%s", s.grammar, d.name, width, diff, text)
				}
			}
		}
	}
}

// TestInterleavedRanks: messages of several ranks that write in turn, line by
// line, read as each would alone.
func TestInterleavedRanks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	samples := allSamples()
	for round := range 60 {
		type rank struct {
			lines []string
			want  map[string]string
			id    string
		}
		var ranks []rank
		total := 0
		for len(ranks) < 6 {
			s := samples[random.IntN(len(samples))]
			plain := mustScan(t, s.before+s.text+"\n")
			if plain.Failures[0].Rank != nil { // it has a prefix or a rank of its own
				continue
			}
			text := "step 1 loss 2.0\n" + s.before + s.text + "\nlast words"
			ranks = append(ranks, rank{strings.Split(text, "\n"), fieldsOf(&plain.Failures[0]), s.grammar})
			total += len(ranks[len(ranks)-1].lines)
		}
		var b strings.Builder
		for left := total; left > 0; {
			i := random.IntN(len(ranks))
			if r := &ranks[i]; len(r.lines) > 0 {
				fmt.Fprintf(&b, "[rank%d]: %s\n", i, r.lines[0])
				r.lines = r.lines[1:]
				left--
			}
		}
		report := mustScan(t, b.String())
		if len(report.Failures) != len(ranks) {
			t.Errorf("round %d: %d messages; want %d\n%s", round, len(report.Failures), len(ranks), b.String())
			continue
		}
		for _, f := range report.Failures {
			got := fieldsOf(&f)
			delete(got, "rank")
			if diff := cmp.Diff(ranks[*f.Rank].want, got); diff != "" {
				t.Errorf("round %d, rank %d, %s: (-alone +interleaved)\n%s\n%s", round, *f.Rank, ranks[*f.Rank].id, diff, b.String())
			}
		}
	}
}
