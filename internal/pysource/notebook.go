package pysource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Cell is a code cell of a notebook: Number counts all cells from 1 as editors
// do, First is the line of File.Src, from 1, where it begins.
type Cell struct {
	Number, First int
}

// Cell returns the number of the cell that holds pos and the line within the
// cell, both from 1, or zeros where the file is no notebook.
func (f *File) Cell(pos int) (cell, line int) {
	n := f.SourceLine(pos)
	for i := len(f.Cells) - 1; i >= 0; i-- {
		if c := f.Cells[i]; c.First <= n {
			return c.Number, n - c.First + 1
		}
	}
	return 0, 0
}

// notebookReader walks the JSON of a notebook token by token, for the line of
// each source string (nbformat 4: cells[].source is a string or a list).
type notebookReader struct {
	f    *File
	dec  *json.Decoder
	data []byte
	last int // offset up to which lines are counted
	line int
	src  strings.Builder
	out  int // lines written to src
	cell int
}

type sourceLine struct {
	text string
	line int // of the .ipynb, from 1
}

func (f *File) readNotebook(data []byte) error {
	f.Notebook = true
	r := &notebookReader{f: f, dec: json.NewDecoder(bytes.NewReader(data)), data: data, line: 1}
	if err := r.object(func(key string) error {
		switch key {
		case "cells":
			return r.list(r.readCell)
		case "worksheets": // nbformat 3
			return r.list(func() error {
				return r.object(func(key string) error {
					if key == "cells" {
						return r.list(r.readCell)
					}
					return r.skip()
				})
			})
		}
		return r.skip()
	}); err != nil {
		return fmt.Errorf("is not a notebook: byte %d: %w", r.dec.InputOffset(), err)
	}
	f.Src = r.src.String()
	return nil
}

func (r *notebookReader) skip() error {
	var raw json.RawMessage
	return r.dec.Decode(&raw)
}

func (r *notebookReader) object(field func(key string) error) error {
	if err := r.delim('{'); err != nil {
		return err
	}
	for r.dec.More() {
		t, err := r.dec.Token()
		if err != nil {
			return err
		}
		key, _ := t.(string)
		if err := field(key); err != nil {
			return err
		}
	}
	_, err := r.dec.Token()
	return err
}

func (r *notebookReader) list(element func() error) error {
	if err := r.delim('['); err != nil {
		return err
	}
	for r.dec.More() {
		if err := element(); err != nil {
			return err
		}
	}
	_, err := r.dec.Token()
	return err
}

func (r *notebookReader) delim(want json.Delim) error {
	t, err := r.dec.Token()
	if err != nil {
		return err
	}
	if t != want {
		return fmt.Errorf("found %v where %v was expected", t, want)
	}
	return nil
}

// lineOf counts lines up to the decoder's place.
func (r *notebookReader) lineOf() int {
	to := int(r.dec.InputOffset())
	r.line += bytes.Count(r.data[r.last:to], []byte("\n"))
	r.last = to
	return r.line
}

func (r *notebookReader) readCell() error {
	r.cell++
	kind := ""
	var lines []sourceLine
	err := r.object(func(key string) error {
		switch key {
		case "cell_type":
			t, err := r.dec.Token()
			kind, _ = t.(string)
			if d, ok := t.(json.Delim); ok {
				return fmt.Errorf("found %v where a cell type was expected", d)
			}
			return err
		case "source", "input":
			t, err := r.dec.Token()
			if err != nil {
				return err
			}
			switch t := t.(type) {
			case string:
				line := r.lineOf()
				for _, s := range strings.SplitAfter(t, "\n") {
					lines = append(lines, sourceLine{s, line})
				}
				return nil
			case json.Delim:
				if t != '[' {
					return fmt.Errorf("found %v where source was expected", t)
				}
				for r.dec.More() {
					t, err := r.dec.Token()
					if err != nil {
						return err
					}
					s, ok := t.(string)
					if !ok {
						return fmt.Errorf("found %v where a line of source was expected", t)
					}
					line := r.lineOf()
					for _, part := range strings.SplitAfter(s, "\n") {
						n := len(lines)
						switch {
						case part == "":
						case n > 0 && !strings.HasSuffix(lines[n-1].text, "\n"): // the elements are joined as they are
							lines[n-1].text += part
						default:
							lines = append(lines, sourceLine{part, line})
						}
					}
				}
				_, err := r.dec.Token()
				return err
			}
			return nil
		}
		return r.skip()
	})
	if err == nil && kind == "code" {
		r.write(lines)
	}
	return err
}

// write adds a code cell to the source. Lines that are not Python become empty
// ones, so that the others keep their numbers.
func (r *notebookReader) write(lines []sourceLine) {
	r.f.Cells = append(r.f.Cells, Cell{r.cell, r.out + 1})
	magic := ""
	for i, l := range lines {
		text := strings.TrimRight(l.text, "\r\n")
		trimmed := strings.TrimLeft(text, " \t")
		if i == 0 && strings.HasPrefix(text, "%%") {
			if fields := strings.Fields(text[2:]); len(fields) > 0 {
				magic = fields[0]
			}
			text = ""
		}
		switch {
		case magic == "bash" || magic == "sh" || magic == "script":
			r.f.shell = append(r.f.shell, Shell{r.out + 1, text})
			text = ""
		case magic != "" && magic != "time" && magic != "timeit" && magic != "capture" && magic != "prun":
			text = ""
		case strings.HasPrefix(trimmed, "!"):
			r.f.shell = append(r.f.shell, Shell{r.out + 1, trimmed[1:]})
			text = indentOf(text) + "pass"
		case strings.HasPrefix(trimmed, "%"):
			if fields := strings.Fields(trimmed[1:]); len(fields) >= 2 && (fields[0] == "env" || fields[0] == "set_env") {
				setting := strings.Join(fields[1:], " ")
				if !strings.Contains(setting, "=") {
					setting = strings.Replace(setting, " ", "=", 1)
				}
				r.f.shell = append(r.f.shell, Shell{r.out + 1, "export " + setting})
			}
			text = indentOf(text) + "pass"
		case strings.HasPrefix(trimmed, "?") || strings.HasSuffix(trimmed, "?") && !strings.Contains(trimmed, "#"):
			text = indentOf(text) + "pass"
		}
		r.src.WriteString(text)
		r.src.WriteByte('\n')
		r.f.origin = append(r.f.origin, l.line)
		r.out++
	}
	// An empty line keeps cells apart.
	last := 1
	if n := len(lines); n > 0 {
		last = lines[n-1].line
	}
	r.src.WriteByte('\n')
	r.f.origin = append(r.f.origin, last)
	r.out++
}

func indentOf(s string) string { return s[:len(s)-len(strings.TrimLeft(s, " \t"))] }
