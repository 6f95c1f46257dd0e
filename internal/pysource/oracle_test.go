package pysource

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAgainstCPython reads files with both parsers and compares kind and place
// of every node. Beside testdata/*.py, PYSOURCE_CORPUS names a folder to walk.
func TestAgainstCPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on PATH to compare with")
	}
	names, _ := filepath.Glob("testdata/*.py")
	if corpus := os.Getenv("PYSOURCE_CORPUS"); corpus != "" {
		filepath.WalkDir(corpus, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, ".py") {
				names = append(names, path)
			}
			return nil
		})
	}
	cmd := exec.Command(python, "testdata/dump.py")
	cmd.Stdin = strings.NewReader(strings.Join(names, "\n"))
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("python3 does not run here: %v", err)
	}
	compared, differ, fstrings := 0, 0, false
	name, want := "", []string(nil)
	check := func() {
		if name == "" {
			return
		}
		compared++
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Parse(name, data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		for _, e := range f.Errors {
			line, col := f.Position(e.Pos)
			t.Errorf("%s:%d:%d: %s", name, line, col, e.Msg)
		}
		if diff := cmp.Diff(want, dump(f, fstrings)); diff != "" && len(f.Errors) == 0 {
			if differ++; differ < 20 {
				t.Errorf("%s: nodes (-CPython +pysource):\n%.1500s", name, diff)
			}
		}
	}
	s := bufio.NewScanner(bytes.NewReader(out))
	for s.Scan() {
		switch line := s.Text(); {
		case line == "fstrings": // from 3.12 on CPython knows the places within them
			fstrings = true
		case strings.HasPrefix(line, "= "), strings.HasPrefix(line, "! "):
			check()
			name, want = "", nil
			if line[0] == '=' {
				name = line[2:]
			}
		case line != "":
			want = append(want, line)
		}
	}
	check()
	if compared == 0 {
		t.Error("CPython read none of the files")
	}
	t.Logf("%d files compared, %d differ", compared, differ)
}

// dump lists the nodes as testdata/dump.py does.
func dump(f *File, fstrings bool) []string {
	var out []string
	for _, s := range f.Body {
		Inspect(s, func(n Node) bool {
			kind := strings.TrimPrefix(reflect.TypeOf(n).String(), "*pysource.")
			switch n := n.(type) {
			case *Case:
				if n.Guard != nil {
					out = append(out, dumpOf(f, n.Guard, fstrings)...)
				}
				for _, b := range n.Body {
					out = append(out, dumpOf(f, b, fstrings)...)
				}
				return false
			case *Str:
				if n.Formatted && !fstrings {
					return false
				}
			}
			out = append(out, dumpNode(f, n, kind)...)
			return true
		})
	}
	slices.Sort(out)
	return out
}

func dumpOf(f *File, n Node, fstrings bool) []string {
	sub := &File{Src: f.Src, lines: f.lines, NumNodes: f.NumNodes}
	switch n := n.(type) {
	case Stmt:
		sub.Body = []Stmt{n}
	case Expr:
		sub.Body = []Stmt{&Return{X: n}}
		out := dump(sub, fstrings)
		return slices.DeleteFunc(out, func(s string) bool { return strings.HasSuffix(s, " Return") && !strings.HasPrefix(s, " ") })
	}
	return dump(sub, fstrings)
}

func dumpNode(f *File, n Node, kind string) []string {
	decorators := 0
	switch n := n.(type) {
	case *Function:
		decorators = len(n.Decorators)
	case *Class:
		decorators = len(n.Decorators)
	case *Comp:
		if n.Kind == '(' {
			return []string{"generator"}
		}
	case *Sequence, *Number, *Str, *Constant, *Keyword, *Param, *Slice, *CompFor, *Starred, *Handler, *WithItem, *TypeAlias:
		return nil
	}
	line := f.SourceLine(n.Pos())
	if decorators > 0 {
		return []string{fmt.Sprintf("%d %s", line, kind)}
	}
	return []string{fmt.Sprintf("%d:%d %s", line, n.Pos()-f.lines[line-1], kind)}
}
