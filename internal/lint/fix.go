package lint

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"vramscope/internal/lint/rules"
)

// Change is a file before and after its fixes.
type Change struct {
	File          string
	Before, After []byte
	Fixed         int // findings
}

// Fixes applies the safe fixes of a result to the files' contents, without
// writing them. Where two overlap, the first one is applied.
func Fixes(r *Result) ([]Change, error) {
	byFile := map[string][]Finding{}
	var order []string
	for _, f := range r.Findings {
		if f.Fix == "" {
			continue
		}
		if byFile[f.File] == nil {
			order = append(order, f.File)
		}
		byFile[f.File] = append(byFile[f.File], f)
	}
	var out []Change
	for _, name := range order {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %s", name, plainError(err))
		}
		after, n := applyFixes(data, byFile[name])
		if n > 0 {
			out = append(out, Change{name, data, after, n})
		}
	}
	return out, nil
}

// applyFixes returns the text with the fixes, and how many were applied.
// Offsets are those of the text without a byte order mark.
func applyFixes(data []byte, findings []Finding) ([]byte, int) {
	mark := []byte("\xef\xbb\xbf")
	body, hasMark := bytes.CutPrefix(data, mark)
	var edits []rules.Edit
	n := 0
	for _, f := range findings {
		if len(f.Edits) > 0 && fits(edits, f.Edits, len(body)) {
			edits = append(edits, f.Edits...)
			n++
		}
	}
	slices.SortStableFunc(edits, func(a, b rules.Edit) int { return a.Start - b.Start })
	var out bytes.Buffer
	if hasMark {
		out.Write(mark)
	}
	at := 0
	for _, e := range edits {
		out.Write(body[at:e.Start])
		out.WriteString(e.New)
		at = e.End
	}
	out.Write(body[at:])
	return out.Bytes(), n
}

func fits(have, more []rules.Edit, size int) bool {
	for _, m := range more {
		if m.Start < 0 || m.End < m.Start || m.End > size {
			return false
		}
		for _, h := range have {
			if m.Start < h.End && h.Start < m.End || m.Start == h.Start {
				return false
			}
		}
	}
	return true
}

// Write replaces the file: whole or not at all, with the same permissions.
func (c Change) Write() error {
	info, err := os.Stat(c.File)
	if err != nil {
		return err
	}
	target := c.File
	if resolved, err := filepath.EvalSymlinks(c.File); err == nil {
		target = resolved
	}
	tmp, err := os.CreateTemp(filepath.Dir(target), ".vramscope-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if _, err := tmp.Write(c.After); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Chmod(info.Mode().Perm()); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), target)
}

// Diff returns the change as a unified diff. The fixes keep the number of
// lines, so lines are compared one by one.
func (c Change) Diff() string {
	before, after := strings.SplitAfter(string(c.Before), "\n"), strings.SplitAfter(string(c.After), "\n")
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", c.File, c.File)
	const around = 3
	for i := 0; i < len(before); {
		if i < len(after) && before[i] == after[i] {
			i++
			continue
		}
		from, last := max(0, i-around), i
		for j := i; j < len(before) && j <= last+2*around; j++ {
			if j >= len(after) || before[j] != after[j] {
				last = j
			}
		}
		to := min(len(before), last+around+1)
		if to == len(before) && before[to-1] == "" {
			to--
		}
		fmt.Fprintf(&b, "@@ -%d,%d +%d,%d @@\n", from+1, to-from, from+1, to-from)
		for j := from; j < to; {
			if before[j] == after[j] {
				b.WriteString(" " + line(before[j]))
				j++
				continue
			}
			end := j
			for end < to && before[end] != after[end] {
				end++
			}
			for k := j; k < end; k++ {
				b.WriteString("-" + line(before[k]))
			}
			for k := j; k < end; k++ {
				b.WriteString("+" + line(after[k]))
			}
			j = end
		}
		i = to
	}
	return b.String()
}

func line(s string) string {
	if strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n\\ No newline at end of file\n"
}
