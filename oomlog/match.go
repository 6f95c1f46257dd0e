package oomlog

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// stream is what is known of one rank, worker or container.
type stream struct {
	name     string
	step     int // last counter, -1 before the first
	stepLine int
	// open are the indexes of the last failures that may yet turn out caught.
	open []int
	last int   // index in Report.Failures of the last message, -1
	done int64 // where the last message ended: offset of its line plus column
}

// maxStreams bounds the ranks that are told apart; later ones share one.
const maxStreams = 4096

func (s *scanner) streamOf(name string) *stream {
	st := s.streams[name]
	if st == nil {
		if len(s.streams) >= maxStreams {
			name = "others"
			if st = s.streams[name]; st != nil {
				return st
			}
		}
		st = &stream{name: name, step: -1, last: -1}
		s.streams[name] = st
		s.streamNames = append(s.streamNames, name)
	}
	return st
}

// region reads the candidates of the first ready of hits, with the lines around
// them; the others have their turn later. It returns the lines that messages took.
func (s *scanner) region(hits []hit, ready int) []span {
	limit := hits[ready-1].offset
	from := max(0, int(hits[0].offset-s.base)-lookBack)
	if i := bytes.IndexByte(s.buf[from:hits[0].offset-s.base+1], '\n'); from > 0 && i >= 0 {
		from += i + 1
	}
	to := min(len(s.buf), int(limit-s.base)+lookAhead)
	number := s.baseLine + bytes.Count(s.buf[:from], []byte("\n"))
	lines := splitLines(s.buf[from:to], s.base+int64(from), number)

	// By stream, the lines in order.
	byStream := map[string][]int{}
	position := make([]int, len(lines)) // of a line in its stream
	names := make([]string, len(lines))
	cache := map[source]string{}
	for i := range lines {
		name, ok := cache[lines[i].source]
		if !ok {
			name = lines[i].source.String()
			cache[lines[i].source] = name
		}
		names[i] = name
		position[i] = len(byStream[name])
		byStream[name] = append(byStream[name], i)
	}

	// The forms that may be found at each line. The states of a progress bar share
	// an offset: look at all of them.
	forms := map[int][]int{}
	var order []int
	for len(hits) > 0 && hits[0].offset < s.base+int64(to) {
		first := lineOf(lines, hits[0].offset)
		last := first
		for last+1 < len(lines) && lines[last+1].offset == lines[first].offset {
			last++
		}
		n := 0
		for ; n < len(hits) && (n == 0 || last+1 >= len(lines) || hits[n].offset < lines[last+1].offset); n++ {
			for i := first; i <= last; i++ {
				if len(forms[i]) == 0 {
					order = append(order, i)
				}
				forms[i] = append(forms[i], hits[n].form)
			}
		}
		hits = hits[n:]
	}

	var spans []span
	for _, i := range order {
		if lines[i].offset > limit {
			break
		}
		w := &window{lines: lines, of: byStream[names[i]], at: position[i]}
		// A needle that a line break cuts is found on the line after.
		all := slices.Clone(forms[i])
		for next := 1; next <= startsWithin && w.at+next < len(w.of); next++ {
			all = append(all, forms[w.of[w.at+next]]...)
		}
		slices.Sort(all)
		all = slices.Compact(all)
		found := s.candidates(w, all, s.streamOf(names[i]))
		if len(found) == 0 && !covered(spans, lines[i].number) && i > 0 && names[i] != names[i-1] {
			// The message may go on in a line that lost its prefix.
			found = s.candidates(&window{lines: lines, of: everyLine(lines), at: i}, all, s.streamOf(names[i]))
		}
		spans = append(spans, found...)
	}
	return spans
}

func everyLine(lines []line) []int {
	all := make([]int, len(lines))
	for i := range all {
		all[i] = i
	}
	return all
}

// startsWithin is how many lines after its first a message's needle may end.
const startsWithin = 4

// lineOf returns the first line that starts where the line with offset starts.
func lineOf(lines []line, offset int64) int {
	i, found := slices.BinarySearchFunc(lines, offset, func(l line, o int64) int {
		switch {
		case l.offset < o:
			return -1
		case l.offset > o:
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	i = max(i, 0)
	for i > 0 && lines[i-1].offset == lines[i].offset {
		i--
	}
	return i
}

// window is a place in one stream's lines.
type window struct {
	lines []line
	of    []int // the stream's lines
	at    int   // index in of
}

// line returns the stream's line i places after the window's, or nil.
func (w *window) line(i int) *line {
	if i += w.at; i < 0 || i >= len(w.of) {
		return nil
	}
	return &w.lines[w.of[i]]
}

// squeezed is text without white space that remembers where it came from.
type squeezed struct {
	b    []byte
	line []int32 // relative to the window
	col  []int32
	gap  []uint8 // what stood before the byte

	pending uint8 // what stands before the next one
}

const (
	noGap uint8 = iota
	spaceGap
	lineGap
)

// squeeze lays out in q the window's line, the ends of those before that no message
// has taken up to done, and most bytes of those that follow.
func (w *window) squeeze(q *squeezed, done int64, most int) {
	q.b, q.line, q.col, q.gap, q.pending = q.b[:0], q.line[:0], q.col[:0], q.gap[:0], noGap
	for i := -startsWithin; i < 0; i++ {
		if l := w.line(i); l != nil && l.at >= done {
			q.add(l, i, max(0, len(l.text)-512))
		}
	}
	first := w.line(0)
	q.add(first, 0, int(min(max(0, done-first.at), int64(len(first.text)))))
	most += len(q.b)
	for i := 1; i <= mostLines && len(q.b) < most; i++ {
		l := w.line(i)
		if l == nil {
			break
		}
		q.add(l, i, 0)
	}
}

// How far a message may go on after its first line: in lines, in squeezed bytes,
// and in bytes for the lines that add to one.
const (
	mostLines    = 60
	mostText     = 3 << 10
	mostAddition = 1 << 10
)

func (q *squeezed) add(l *line, index, from int) {
	text := l.text
	for i := from; i < len(text); i++ {
		b := text[i]
		if isSpace(b) {
			q.pending = max(q.pending, spaceGap)
			continue
		}
		if b == '\\' && i+1 < len(text) {
			// An escape, in a message that was printed as a literal.
			switch text[i+1] {
			case 'n', 'r', 't':
				q.pending = lineGap
				i++
				continue
			case '"', '\'':
				i++
				b = text[i]
			}
		}
		q.b = append(q.b, b)
		q.line = append(q.line, int32(index))
		q.col = append(q.col, int32(i))
		q.gap = append(q.gap, q.pending)
		q.pending = noGap
	}
	if !l.joins {
		q.pending = lineGap
	}
}

// found is a pattern's match in squeezed text.
type found struct {
	form int
	m    []int
}

// candidates reads what the given forms find on the window's line.
func (s *scanner) candidates(w *window, forms []int, st *stream) []span {
	most := mostAddition
	for _, form := range forms {
		if s.table[form].role != addsTo {
			most = mostText
		}
	}
	q := &s.scratch
	w.squeeze(q, st.done, most)
	place := func(i int) int64 { return w.line(int(q.line[i])).at + int64(q.col[i]) }
	read := func(lastStart int32) (all []found, weak bool) {
		until, _ := slices.BinarySearch(q.line, lastStart+1)
		for _, form := range forms {
			for at := 0; at < until; {
				m := s.match(form, q.b, at, until)
				if m == nil {
					break
				}
				q.clip(s.regexp(form), m)
				at = m[1]
				if q.line[m[1]-1] < 0 || q.inWord(m[0]) || place(m[0]) < st.done || s.shadowed(q, all, form, m) {
					continue
				}
				all = append(all, found{form, m})
				weak = weak || s.table[form].weak
			}
		}
		return all, weak
	}
	all, weak := read(0)
	if weak { // a better one may begin on the next lines
		all, _ = read(startsWithin)
	}
	slices.SortStableFunc(all, func(a, b found) int { return a.m[0] - b.m[0] })
	var spans []span
	for _, f := range all {
		if q.line[f.m[0]] > 0 {
			break // it has its turn with its own line
		}
		from, to := w.line(int(q.line[f.m[0]])), w.line(int(q.line[f.m[1]-1]))
		spans = append(spans, span{from.number, to.number})
		s.message(w, q, f, st)
		st.done = place(f.m[1]-1) + 1
	}
	return spans
}

// shadowed reports whether a match loses to those found before: to one that it
// overlaps, and a weak one to any on its line.
func (s *scanner) shadowed(q *squeezed, all []found, form int, m []int) bool {
	for _, f := range all {
		if m[0] < f.m[1] && f.m[0] < m[1] {
			return true
		}
		// "MemoryError: std::bad_alloc: ..." is one message.
		class := m[1] < len(q.b) && q.b[m[1]] == ':' && m[0] < f.m[0]
		if s.table[f.form].kind == Consequence {
			continue // its cause may stand on the same line
		}
		if s.table[form].weak && (class || q.line[f.m[0]] == q.line[m[0]]) {
			return true
		}
	}
	return false
}

// inWord reports whether the byte at i goes on a word.
func (q *squeezed) inWord(i int) bool {
	return i > 0 && q.gap[i] == noGap && isLetter(q.b[i]) && isLetter(q.b[i-1])
}

func isLetter(b byte) bool { return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '_' }

// message makes a failure of a match and hands it to the report.
func (s *scanner) message(w *window, q *squeezed, f found, st *stream) {
	g := &s.table[f.form]
	var failure Failure
	re := s.regexp(f.form)
	for i, name := range re.SubexpNames() {
		if name == "" || f.m[2*i] < 0 || f.m[2*i] == f.m[2*i+1] {
			continue
		}
		name, typ, _ := strings.Cut(name, "__")
		text := string(q.b[f.m[2*i]:f.m[2*i+1]])
		setField(&failure, strings.TrimRight(name, digits), typ, text, g.decimal)
	}
	if g.role == addsTo {
		s.addTo(st, g, &failure)
		return
	}
	failure.Grammar, failure.Framework, failure.Version = g.id, g.framework, g.version
	failure.Kind, failure.Memory = g.kind, g.memory
	failure.Details = append(failure.Details, g.fixed...)
	startLine := int(q.line[f.m[0]])
	l := w.line(startLine)
	failure.Line, failure.Offset, failure.Stream = l.number, l.offset, st.name
	if failure.Rank == nil && l.source.rank >= 0 {
		r := l.source.rank
		failure.Rank = &r
	}
	if s.repeated(&failure, st) {
		return
	}
	failure.Kind = g.kind
	s.messages++
	lead := w.lead(startLine, int(q.col[f.m[0]]))
	if m := exceptionSyntax.FindStringSubmatch(lead); m != nil {
		failure.Exception = m[1]
	}
	failure.Text = w.quoteMatch(startLine, int(q.col[f.m[0]]), int(q.line[f.m[1]-1]), int(q.col[f.m[1]-1])+1)
	end := &window{lines: w.lines, of: w.of, at: w.at + int(q.line[f.m[1]-1])}
	begin := &window{lines: w.lines, of: w.of, at: w.at + startLine}
	s.context(&failure, begin, end, lead, st)
	s.keep(failure, st)
}

// exceptionSyntax finds the class in front of a message.
var exceptionSyntax = regexp.MustCompile(`([A-Za-z_][\w.]*(?:Error|Exception|OutOfMemory|bad_alloc|ResourceExhausted\w*))(?: \(see above for traceback\))?: *(?:\[.*)?$`)

// clip ends whole numbers and words at white space, of which the pattern knows
// nothing: two numbers in a row must not become one. They go on over the end of a
// line only where a terminal wrapped it, or where the pattern proves it by what
// follows.
func (q *squeezed) clip(re *regexp.Regexp, m []int) {
	for i, name := range re.SubexpNames() {
		_, typ, _ := strings.Cut(name, "__")
		if m[2*i] < 0 || !clipped[typ] {
			continue
		}
		last := m[2*i+1] == m[1]
		for k := m[2*i] + 1; k < m[2*i+1]; k++ {
			if q.gap[k] == spaceGap || q.gap[k] == lineGap && last {
				m[2*i+1] = k
				if last {
					m[1] = k
				}
				break
			}
		}
	}
}

// clipped are the field types that white space ends.
var clipped = map[string]bool{"n": true, "i": true, "c": true, "g": true, "m": true, "w": true, "word": true}

// lead returns what stands before column col of a line, with the lines that run
// into it.
func (w *window) lead(index, col int) string {
	l := w.line(index)
	lead := l.text[:col]
	if len(lead) > 600 {
		return string(lead[len(lead)-600:])
	}
	if p := w.line(index - 1); p != nil && p.joins {
		head := p.text
		if len(head) > 600 {
			head = head[len(head)-600:]
		}
		lead = slices.Concat(head, lead)
	}
	return string(lead)
}

// quoteMatch returns the text of a match as printed, at most 2 KiB.
func (w *window) quoteMatch(line0, col0, line1, col1 int) string {
	var b bytes.Buffer
	for i := line0; i <= line1 && b.Len() < 2<<10; i++ {
		l := w.line(i)
		from, to := 0, len(l.text)
		if i == line0 {
			from = col0
		}
		if i == line1 {
			to = col1
		}
		if i > line0 && !w.line(i-1).joins {
			b.WriteByte('\n')
		}
		b.Write(l.text[from:max(from, to)])
	}
	out := bytes.ToValidUTF8(b.Bytes(), []byte("\uFFFD"))
	return string(out[:min(len(out), 2<<10)])
}

// addTo fills the last message of the stream with what a further line says.
func (s *scanner) addTo(st *stream, g *grammar, add *Failure) {
	if st.last < 0 {
		return
	}
	f := &s.report.Failures[st.last]
	if f.Framework != g.framework {
		return
	}
	fill(&f.Tried, add.Tried)
	fill(&f.Capacity, add.Capacity)
	fill(&f.Limit, add.Limit)
	fill(&f.Free, add.Free)
	fill(&f.Allocated, add.Allocated)
	fill(&f.Reserved, add.Reserved)
	fill(&f.Unallocated, add.Unallocated)
	fill(&f.Device, add.Device)
	if f.Op == "" {
		f.Op = add.Op
	}
	if f.Where == "" {
		f.Where = add.Where
	}
	if f.Shape == nil {
		f.Shape, f.DType = add.Shape, add.DType
	}
	for _, d := range slices.Concat(add.Details, g.fixed) {
		if len(f.Details) >= 64 {
			break
		}
		f.addDetail(d)
	}
}

// addDetail adds a number; counts of repeated lines add up when the name says so.
func (f *Failure) addDetail(d Detail) {
	for i := range f.Details {
		if f.Details[i].Name == d.Name {
			if strings.HasPrefix(d.Name, "sum_") {
				f.Details[i].Value += d.Value
			}
			return
		}
	}
	f.Details = append(f.Details, d)
}

func fill[T any](dst **T, v *T) {
	if *dst == nil {
		*dst = v
	}
}
