package oomlog

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sort"
)

// Options are the limits of a scan. The zero value is good.
type Options struct {
	// MaxFailures bounds Report.Failures; 0 means 1,000.
	MaxFailures int
}

const (
	lookBack  = 128 << 10 // for tracebacks and the last steps, of all ranks together
	lookAhead = 64 << 10  // for the rest of the message and what follows it
	blockSize = 256 << 10
)

// Scan reads a log to its end. It keeps under a megabyte of it, and reads several
// hundred megabytes a second where nothing is wrong.
//
// Input that is no text is refused with [ErrBinary], an empty one with
// [ErrEmpty]; the report of what was read before an error of r is returned with it.
func Scan(r io.Reader, opts Options) (Report, error) {
	if opts.MaxFailures <= 0 {
		opts.MaxFailures = 1000
	}
	text, encoding, err := openText(r)
	if err != nil {
		return Report{}, err
	}
	s := &scanner{matcher: sharedMatcher(), opts: opts, streams: map[string]*stream{}, factCount: map[string]int{}}
	s.report.Encoding = encoding
	err = s.run(text)
	s.finish()
	return s.report, err
}

// hit is a needle that was found.
type hit struct {
	offset int64 // of its last byte
	form   int
}

type scanner struct {
	*matcher
	opts   Options
	report Report

	buf      []byte
	base     int64 // offset of buf[0]
	baseLine int   // its line number, from 1
	scanned  int   // bytes of buf that the automaton has seen
	sampled  int   // bytes of buf whose counters have been read
	state    uint32
	hits     []hit

	streams     map[string]*stream
	streamNames []string
	factCount   map[string]int
	messages    int // read so far, with the copies
	scratch     squeezed
	lastDeath   int // line of the last sign that a process ended
	usageEvery  int
	usageSeen   int
}

func (s *scanner) run(r io.Reader) error {
	const whole = lookBack + blockSize + lookAhead
	s.buf = make([]byte, 0, whole/16) // most pastes are small
	s.baseLine, s.state = 1, s.find.root
	for {
		if len(s.buf) == cap(s.buf) && len(s.buf) < whole {
			s.buf = slices.Grow(s.buf, min(whole-len(s.buf), 3*len(s.buf)))
		}
		n, err := readSome(r, s.buf[len(s.buf):cap(s.buf)])
		s.buf = s.buf[:len(s.buf)+n]
		fresh := s.buf[s.scanned:]
		s.collect(fresh)
		s.scanned = len(s.buf)
		s.process(err != nil)
		s.sample(err != nil)
		if err == io.EOF {
			s.report.Bytes = s.base + int64(len(s.buf))
			s.report.Lines = s.baseLine + bytes.Count(s.buf, []byte("\n"))
			if len(s.buf) > 0 && s.buf[len(s.buf)-1] == '\n' {
				s.report.Lines--
			}
			return nil
		}
		if err != nil {
			s.report.Bytes = s.base + int64(len(s.buf))
			return fmt.Errorf("at byte %d: %w", s.report.Bytes, err)
		}
		s.discard()
	}
}

// readSome fills p or reads to the end.
func readSome(r io.Reader, p []byte) (int, error) {
	n := 0
	for n < len(p) {
		k, err := r.Read(p[n:])
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// collect runs the automaton over fresh bytes.
func (s *scanner) collect(fresh []byte) {
	at := s.base + int64(s.scanned)
	s.state = s.find.scan(s.state, fresh, func(end int, words []int) {
		for _, w := range words {
			s.hits = append(s.hits, hit{at + int64(end) - 1, s.byWord[w]})
		}
	})
}

// process handles the hits that have enough text after them.
func (s *scanner) process(end bool) {
	ready := len(s.hits)
	if !end && len(s.buf) <= lookAhead {
		return
	}
	if !end {
		limit := s.base + int64(len(s.buf)) - lookAhead
		at := int(limit - s.base)
		if i := bytes.LastIndexByte(s.buf[max(0, at-maxLine):at], '\n'); i >= 0 {
			limit = s.base + int64(max(0, at-maxLine)+i) // the hits of a line go together
		}
		ready = sort.Search(len(s.hits), func(i int) bool { return s.hits[i].offset >= limit })
	}
	if ready > 0 {
		s.processHits(ready)
		s.hits = append(s.hits[:0], s.hits[ready:]...)
	}
}

// processHits reads the candidates among the first ready hits, in order.
func (s *scanner) processHits(ready int) {
	var region []hit
	now := 0
	for i, h := range s.hits {
		if s.table[h.form].role == factRole || s.table[h.form].kind == Mention {
			continue
		}
		region = append(region, h)
		if i < ready {
			now++
		}
	}
	var messages []span
	if now > 0 {
		if len(s.report.Failures) >= s.opts.MaxFailures || s.messages >= 4*s.opts.MaxFailures {
			s.report.Dropped += now
		} else {
			messages = s.region(region, now)
		}
	}
	hits := s.hits[:ready]
	// Facts and mentions need their own line only.
	at, number := s.base, s.baseLine
	for _, h := range hits {
		g := &s.table[h.form]
		if g.role != factRole && g.kind != Mention {
			continue
		}
		number += bytes.Count(s.buf[at-s.base:h.offset-s.base], []byte("\n"))
		at = h.offset
		if g.kind == Mention {
			if !covered(messages, number) {
				s.mention(h, number)
			}
			continue
		}
		s.fact(h, number)
	}
}

// span is a range of line numbers that a message takes.
type span struct{ from, to int }

func covered(spans []span, number int) bool {
	for _, m := range spans {
		if m.from <= number && number <= m.to {
			return true
		}
	}
	return false
}

// lineAround returns the line that holds the byte at offset, at most 4 KiB to
// either side, and its start.
func (s *scanner) lineAround(offset int64) ([]byte, int64) {
	at := int(offset - s.base)
	from := max(0, at-4<<10)
	if i := bytes.LastIndexByte(s.buf[from:at], '\n'); i >= 0 {
		from += i + 1
	}
	to := min(len(s.buf), at+4<<10)
	if i := bytes.IndexByte(s.buf[at:to], '\n'); i >= 0 {
		to = at + i
	}
	return s.buf[from:to], s.base + int64(from)
}

func (s *scanner) mention(h hit, number int) {
	raw, _ := s.lineAround(h.offset)
	if len(s.report.MentionFacts) > 0 && s.report.MentionFacts[len(s.report.MentionFacts)-1].Line == number {
		return
	}
	s.report.Mentions++
	if len(s.report.MentionFacts) < 8 {
		s.report.MentionFacts = append(s.report.MentionFacts, Fact{Kind: QuotedFact, Line: number, Text: quote(raw)})
	}
}

// maxFacts bounds the facts of each form; the first and the last are kept.
const maxFacts = 32

func (s *scanner) fact(h hit, number int) {
	g := &s.table[h.form]
	if s.factCount[g.id] >= maxFacts {
		return
	}
	raw, offset := s.lineAround(h.offset)
	for _, l := range appendLine(nil, raw, offset, number) {
		sq := squeeze(l.text)
		m := s.match(h.form, sq, 0, len(sq))
		if m == nil {
			continue
		}
		fact := Fact{Kind: g.fact, Name: g.factName, Line: number, Text: quote(l.text)}
		for i, name := range s.regexp(h.form).SubexpNames() {
			if name == "" || m[2*i] < 0 {
				continue
			}
			if v, unit, ok := factValue(name, string(sq[m[2*i]:m[2*i+1]])); ok && fact.Value == nil {
				fact.Value, fact.Unit = &v, unit
			}
		}
		if g.fact == DeathFact {
			s.lastDeath = number
		}
		s.factCount[g.id]++
		s.report.Facts = append(s.report.Facts, fact)
		return
	}
}

// discard drops what is no longer needed from the front of the buffer.
func (s *scanner) discard() {
	keep := len(s.buf) - lookAhead - lookBack
	if len(s.hits) > 0 {
		keep = min(keep, int(s.hits[0].offset-s.base)-lookBack)
	}
	if keep <= 0 {
		return
	}
	s.baseLine += bytes.Count(s.buf[:keep], []byte("\n"))
	s.base += int64(keep)
	s.buf = s.buf[:copy(s.buf, s.buf[keep:])]
	s.scanned -= keep
	s.sampled = max(0, s.sampled-keep)
}

// quote cuts a text for evidence.
func quote(b []byte) string {
	b = bytes.TrimSpace(bytes.Map(func(r rune) rune {
		if r < ' ' && r != '\t' && r != '\n' {
			return -1
		}
		return r
	}, b))
	if len(b) > 400 {
		return string(bytes.ToValidUTF8(b[:400], nil)) + " …"
	}
	return string(bytes.ToValidUTF8(b, []byte("\uFFFD")))
}
