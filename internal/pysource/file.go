// Package pysource reads Python: source files of versions 2 to 3.14 and Jupyter
// notebooks, without a Python at hand. It is made for looking at code that is
// not one's own, so a line that cannot be read costs that line and not the
// file. It neither compiles nor formats, and accepts more than any one Python.
package pysource

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// MaxSize is the largest source that Parse takes: more is generated data.
const MaxSize = 8 << 20

// maxErrors bounds how many errors of one file are kept.
const maxErrors = 100

// The reasons for which a source is not read at all.
var (
	ErrBinary   = errors.New("is binary, not text")
	ErrTooLarge = fmt.Errorf("is larger than %d MiB", MaxSize>>20)
)

// SyntaxError is a place that could not be read; Pos is a byte offset.
type SyntaxError struct {
	Pos int
	Msg string
}

// Comment is one comment, from its # to the end of the line.
type Comment struct {
	Pos, End int
	OwnLine  bool // nothing but space before it
}

// File is a source that has been read.
type File struct {
	Name     string
	Src      string // UTF-8 without a byte order mark; the cells of a notebook one after the other
	Body     []Stmt
	Comments []Comment
	Errors   []SyntaxError
	NumNodes int // the IDs of nodes are below it
	Cells    []Cell
	Notebook bool

	lines   []int   // offset of each line's start
	origin  []int   // of a notebook: the line of the .ipynb for each line
	parents []Node  // by ID
	shell   []Shell // of a notebook
}

// Shell is a line for a shell, or an environment setting, in a notebook.
type Shell struct {
	Line int // of Src, from 1
	Text string
}

// ShellLines returns the `!command`, `%env` and `%%bash` lines of a notebook.
func (f *File) ShellLines() []Shell { return f.shell }

// Parse reads Python source, or a notebook where the name ends in .ipynb. The
// error says why nothing could be read; errors within are in File.Errors.
func Parse(name string, data []byte) (*File, error) {
	if len(data) > MaxSize {
		return nil, ErrTooLarge
	}
	f := &File{Name: name}
	if strings.HasSuffix(name, ".ipynb") {
		if err := f.readNotebook(data); err != nil {
			return nil, err
		}
	} else {
		src, err := Decode(data)
		if err != nil {
			return nil, err
		}
		f.Src = src
	}
	f.indexLines()
	lex := &lexer{src: f.Src, end: len(f.Src)}
	lex.tokens = make([]token, 0, len(f.Src)/4+8)
	if strings.HasPrefix(f.Src, "#!") {
		lex.comment(true)
	}
	lex.run()
	p := &parser{src: f.Src, toks: lex.tokens, lex: lex}
	f.Body = p.file()
	f.Comments, f.Errors, f.NumNodes = lex.comments, lex.errs, int(p.nextID)
	slices.SortStableFunc(f.Errors, func(a, b SyntaxError) int { return a.Pos - b.Pos })
	return f, nil
}

// codingCookie is PEP 263's declaration.
var codingCookie = regexp.MustCompile(`^[ \t\f]*#.*?coding[:=][ \t]*([-_.a-zA-Z0-9]+)`)

// Decode turns a file into UTF-8 text by its byte order mark or PEP 263
// declaration. It refuses binary data.
func Decode(data []byte) (string, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return "", errors.New("is UTF-16; save it as UTF-8")
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return "", ErrBinary
	}
	if utf8.Valid(data) {
		return string(data), nil
	}
	switch coding := declared(data); coding {
	case "latin1", "iso88591", "iso885915", "cp1252", "windows1252", "ascii", "l1":
		// The differences within this family do not matter to the grammar.
		runes := make([]rune, len(data))
		for i, b := range data {
			runes[i] = rune(b)
		}
		return string(runes), nil
	case "":
		return "", fmt.Errorf("is not UTF-8 at byte %d", invalidAt(data))
	default:
		return "", fmt.Errorf("is written in %s, which is not read; save it as UTF-8", coding)
	}
}

func declared(data []byte) string {
	for range 2 {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		if m := codingCookie.FindSubmatch(line); m != nil {
			return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(string(m[1])))
		}
		data = rest
	}
	return ""
}

func invalidAt(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(data)
}

func (f *File) indexLines() {
	f.lines = append(f.lines, 0)
	for i := 0; i < len(f.Src); i++ {
		switch f.Src[i] {
		case '\r':
			if i+1 < len(f.Src) && f.Src[i+1] == '\n' {
				i++
			}
			f.lines = append(f.lines, i+1)
		case '\n':
			f.lines = append(f.lines, i+1)
		}
	}
}

// SourceLine returns the line of Src, from 1, that holds offset pos.
func (f *File) SourceLine(pos int) int {
	return sort.SearchInts(f.lines, pos+1)
}

// Position returns line and column, both from 1, the column in characters. Of a
// notebook, the line is that of the .ipynb file.
func (f *File) Position(pos int) (line, column int) {
	pos = min(max(pos, 0), len(f.Src))
	n := f.SourceLine(pos)
	column = 1 + utf8.RuneCountInString(f.Src[f.lines[n-1]:pos])
	if f.origin != nil {
		if n-1 < len(f.origin) {
			n = f.origin[n-1]
		} else if len(f.origin) > 0 {
			n = f.origin[len(f.origin)-1]
		}
	}
	return n, column
}

// Offset returns the byte offset of a line of Src and a column, both from 1.
func (f *File) Offset(line, column int) int {
	if line < 1 {
		return 0
	}
	if line > len(f.lines) {
		return len(f.Src)
	}
	pos := f.lines[line-1]
	for ; column > 1 && pos < len(f.Src) && f.Src[pos] != '\n'; column-- {
		_, n := utf8.DecodeRuneInString(f.Src[pos:])
		pos += n
	}
	return pos
}

// Line returns the text of the line that holds pos, without its end, and the
// offset of its start.
func (f *File) Line(pos int) (text string, start int) {
	n := f.SourceLine(pos)
	start = f.lines[n-1]
	end := len(f.Src)
	if n < len(f.lines) {
		end = f.lines[n]
	}
	return strings.TrimRight(f.Src[start:end], "\r\n"), start
}

// Text returns the source of a node.
func (f *File) Text(n Node) string { return f.Src[n.Pos():n.End()] }

// Parent returns the node that n is a direct part of, nil for a statement of
// the file.
func (f *File) Parent(n Node) Node {
	if f.parents == nil {
		f.parents = make([]Node, f.NumNodes)
		var set func(Node)
		set = func(p Node) {
			Children(p, func(c Node) {
				f.parents[c.ID()] = p
				set(c)
			})
		}
		for _, s := range f.Body {
			set(s)
		}
	}
	return f.parents[n.ID()]
}

// ReadText reads a file that is not Python, for its lines and positions.
func ReadText(name string, data []byte) (*File, error) {
	if len(data) > MaxSize {
		return nil, ErrTooLarge
	}
	src, err := Decode(data)
	if err != nil {
		return nil, err
	}
	f := &File{Name: name, Src: src}
	f.indexLines()
	return f, nil
}
