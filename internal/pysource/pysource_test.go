package pysource

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func parse(t testing.TB, src string) *File {
	t.Helper()
	f, err := Parse("x.py", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// names lists the identifiers of a file in the order of the source.
func names(f *File) string {
	var out []string
	InspectAll(f.Body, func(n Node) bool {
		if n, ok := n.(*Name); ok {
			out = append(out, n.Ident)
		}
		return true
	})
	return strings.Join(out, " ")
}

func TestPython2(t *testing.T) {
	for _, src := range []string{
		`print "hello %s" % x, y`, `print`, `print >>sys.stderr, "x"`, `print not x`, `print ("a"), b,`,
		`exec "code" in ns`, `exec code`, `raise ValueError, "x"`, `raise E, v, tb`,
		"try:\n  pass\nexcept (A, B), e:\n  pass\nexcept C, e:\n  pass", "x = `1` + 0777 + 10L + 0xFFL",
		`if a <> b: pass`, `x = ur"abc" + u'x'`, "def f(a, (b, c), d=1):\n\treturn a",
		`[x for x in 1, 2, 3]`, `print "a" if b else "c"`, `async = 1; await = 2; f(async=True)`,
		`lambda (a, b): 1`,
	} {
		f := parse(t, src+"\n")
		for _, e := range f.Errors {
			t.Errorf("%q: %d: %s", src, e.Pos, e.Msg)
		}
	}
}

func TestRecent(t *testing.T) {
	for _, src := range []string{
		"type X[T: int = str, *Ts, **P] = list[T]", "def f[T](x: T) -> T: ...", "class A[T](B[T]): pass",
		`x = f"{d["k"]!r:{w}.{p}} {f'{y}'} {x:%H:%M}"`, `t"hello {name}"`, `f"{'\n'.join(a)}"`,
		"try:\n  pass\nexcept A, B:\n  pass", "match x:\n  case {'a': 1, **r}: pass\n  case _: pass",
		`f"{x:{'{'}>10}"`, "f'''{\nx\n}'''", `f"{a['b']}" 'c' f"{d=}"`, `f'{{x}} \N{DASH} {y}'`,
	} {
		f := parse(t, src+"\n")
		for _, e := range f.Errors {
			t.Errorf("%q: %d: %s", src, e.Pos, e.Msg)
		}
	}
	if got, want := names(parse(t, `x = f"{d["k"]!r:{w}.{p}}" f'{f"{y + z}"}'`)), "x d w p y z"; got != want {
		t.Errorf("names in f-strings: got %q, want %q", got, want)
	}
}

// TestRecovery: a line that cannot be read costs that line.
func TestRecovery(t *testing.T) {
	for _, tt := range []struct{ name, src, names string }{
		{"bad line", "a\nb = = 3\nc\n", "a c"},
		{"open bracket", "a(1,\ndef f():\n    b\nc\n", "b c"},
		{"bad header", "if x y:\n    b\nc\n", "b c"},
		{"bad header in a class", "class C:\n  def f(self, 3):\n    b\n  c\nd\n", "b c d"},
		{"closing bracket", "a)\nb\n", "a b"},
		{"open string", "a = 'abc\nb\n", "a b"},
		{"indentation", "if a:\n        b\n    c\nd\n", "a b c d"},
		{"conflict marks", "a\n<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> x\nd\n", "a b c d"},
		{"template", "a = {{ cookiecutter.x }}\nb = {% if x %}\nc\n", "a cookiecutter c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := parse(t, tt.src)
			if len(f.Errors) == 0 && tt.name != "template" {
				t.Error("no error reported")
			}
			if got := names(f); got != tt.names {
				t.Errorf("names: got %q, want %q", got, tt.names)
			}
		})
	}
}

// TestHostile: inputs that would exhaust the stack of a careless reader.
func TestHostile(t *testing.T) {
	const n = 100_000
	for name, src := range map[string]string{
		"brackets":    strings.Repeat("(", n) + "\nx\n",
		"closed":      strings.Repeat("[", n) + strings.Repeat("]", n) + "\nx\n",
		"unary":       strings.Repeat("-", n) + "1\nx\n",
		"not":         strings.Repeat("not ", n) + "1\nx\n",
		"sum":         strings.Repeat("a + ", n) + "1\nx\n",
		"dots":        "a" + strings.Repeat(".b", n) + "\nx\n",
		"calls":       "a" + strings.Repeat("()", n) + "\nx\n",
		"lambda":      strings.Repeat("lambda: ", n) + "1\nx\n",
		"conditional": strings.Repeat("a if b else ", n) + "1\nx\n",
		"powers":      strings.Repeat("a ** ", n) + "1\nx\n",
		"elif":        "if a: b\n" + strings.Repeat("elif a: b\n", n) + "x\n",
		"f-strings":   strings.Repeat(`f"{`, n) + "\nx\n",
		"await":       strings.Repeat("await ", n) + "x\nx\n",
		"blocks": func() string {
			var b strings.Builder
			for i := range 2000 {
				b.WriteString(strings.Repeat(" ", i) + "if x:\n")
			}
			return b.String()
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			f := parse(t, src)
			f.Parent(&Name{}) // walks everything
			if len(f.Errors) == 0 && name != "closed" {
				t.Error("want a word about it")
			}
		})
	}
}

func TestDecode(t *testing.T) {
	for _, tt := range []struct{ name, data, want, err string }{
		{"utf-8", "é", "é", ""},
		{"mark", "\xef\xbb\xbfx", "x", ""},
		{"latin-1", "# -*- coding: latin-1 -*-\n\xe9", "# -*- coding: latin-1 -*-\né", ""},
		{"second line", "#!/usr/bin/python\n# vim: set fileencoding=iso-8859-1\n\xe9", "#!/usr/bin/python\n# vim: set fileencoding=iso-8859-1\né", ""},
		{"undeclared", "a\n\xe9", "", "is not UTF-8 at byte 2"},
		{"other", "# coding: euc-jp\n\xe9", "", "is written in eucjp, which is not read; save it as UTF-8"},
		{"binary", "\x7fELF\x00", "", "is binary, not text"},
		{"utf-16", "\xff\xfex\x00", "", "is UTF-16; save it as UTF-8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Decode([]byte(tt.data))
			msg := ""
			if err != nil {
				msg = err.Error()
			}
			if got != tt.want || msg != tt.err {
				t.Errorf("got %q, %q; want %q, %q", got, msg, tt.want, tt.err)
			}
		})
	}
	if _, err := Parse("big.py", make([]byte, MaxSize+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("large file: %v", err)
	}
}

func TestNotebook(t *testing.T) {
	name := filepath.Join("testdata", "cells.ipynb")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse(name, data)
	if err != nil || len(f.Errors) > 0 {
		t.Fatal(err, f.Errors)
	}
	lines := strings.Split(string(data), "\n")
	type place struct {
		Name             string
		Cell, InCell, Ln int
	}
	var got []place
	InspectAll(f.Body, func(n Node) bool {
		if n, ok := n.(*Name); ok {
			cell, in := f.Cell(n.Pos())
			line, _ := f.Position(n.Pos())
			got = append(got, place{n.Ident, cell, in, line})
			if !strings.Contains(lines[line-1], n.Ident) {
				t.Errorf("line %d of the notebook has no %s: %s", line, n.Ident, lines[line-1])
			}
		}
		return true
	})
	want := []place{{"x", 2, 2, 19}, {"y", 4, 2, 38}, {"z", 4, 4, 40}, {"w", 6, 1, 59}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	shell := []Shell{{1, "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"}, {6, "pip install torch"}, {9, ""}, {10, "export A=b"}}
	if diff := cmp.Diff(shell, f.ShellLines()); diff != "" {
		t.Error(diff)
	}
}

func TestNotebookErrors(t *testing.T) {
	for _, data := range []string{"", "[]", "{", `{"cells": 3}`, `{"cells": [{"source": [1]}]}`, `{"cells": [{"cell_type": []}]}`} {
		if _, err := Parse("x.ipynb", []byte(data)); err == nil {
			t.Errorf("%q: no error", data)
		}
	}
}

func TestComments(t *testing.T) {
	f := parse(t, "#!/bin/python\nx = 1  # one\n# two\ns = '# no'\nf(a, # three\n  b)\n")
	var got []string
	for _, c := range f.Comments {
		got = append(got, f.Src[c.Pos:c.End])
	}
	if diff := cmp.Diff([]string{"#!/bin/python", "# one", "# two", "# three"}, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"modern.py", "cells.ipynb", "dump.py"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, strings.HasSuffix(name, ".ipynb"))
	}
	f.Add([]byte("if x:\n\ty\n  z\nf\"{a:{b}}\" (\n"), false)
	f.Fuzz(func(t *testing.T, data []byte, notebook bool) {
		name := "x.py"
		if notebook {
			name = "x.ipynb"
		}
		file, err := Parse(name, data)
		if err != nil {
			return
		}
		seen := make([]bool, file.NumNodes)
		InspectAll(file.Body, func(n Node) bool {
			if n.Pos() < 0 || n.End() < n.Pos() || n.End() > len(file.Src) {
				t.Fatalf("%T at %d to %d of %d", n, n.Pos(), n.End(), len(file.Src))
			}
			if seen[n.ID()] {
				t.Fatalf("%T: ID %d twice", n, n.ID())
			}
			seen[n.ID()] = true
			file.Position(n.Pos())
			file.Cell(n.Pos())
			return true
		})
	})
}

func BenchmarkParse(b *testing.B) {
	data, err := os.ReadFile("testdata/modern.py")
	if err != nil {
		b.Fatal(err)
	}
	src := []byte(strings.Repeat(string(data), 20))
	b.SetBytes(int64(len(src)))
	lines := strings.Count(string(src), "\n")
	for b.Loop() {
		if _, err := Parse("x.py", src); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(lines*b.N)/b.Elapsed().Seconds(), "lines/s")
}
