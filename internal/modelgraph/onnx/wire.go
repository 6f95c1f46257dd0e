package onnx

import (
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// source reads a file through a window, since weights, which are not read, may
// make it larger than memory. The first error sticks, with its offset.
type source struct {
	r      io.ReaderAt
	size   int64
	at     int64  // offset of window
	window []byte // bytes of the file from at
	buf    []byte
	err    error
	items  int
}

const windowSize = 64 << 10

// maxItems limits nodes, names, attributes and numbers together: a small file
// cannot ask for much memory.
const maxItems = 1_500_000

// maxDepth limits messages inside messages: a node in a graph in an attribute
// takes three levels.
const maxDepth = 40

func (s *source) fail(at int64, format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("byte %d: %s", at, fmt.Sprintf(format, args...))
	}
}

func (s *source) count(at int64, n int) {
	if s.items += n; s.items > maxItems {
		s.fail(at, "more than %d nodes, names and numbers", maxItems)
	}
}

// peek returns the bytes at an offset, up to n of them and no further than
// end. They are valid until the next peek.
func (s *source) peek(at, end int64, n int) []byte {
	n = int(min(int64(n), end-at))
	if s.err != nil || n <= 0 {
		return nil
	}
	if at < s.at || at+int64(n) > s.at+int64(len(s.window)) {
		want := max(n, windowSize)
		if cap(s.buf) < want {
			s.buf = make([]byte, want)
		}
		got, err := s.r.ReadAt(s.buf[:min(int64(want), s.size-at)], at)
		if got < n {
			s.fail(at, "cannot be read: %v", err)
			return nil
		}
		s.at, s.window = at, s.buf[:got]
	}
	return s.window[at-s.at:][:n]
}

// message is a part of the file that holds the fields of a message.
type message struct {
	s        *source
	pos, end int64
	depth    int
	// The field at pos, after next.
	num   protowire.Number
	typ   protowire.Type
	start int64 // of its tag
}

// next moves to the next field; its value must then be read or skipped.
func (m *message) next() bool {
	if m.s.err != nil || m.pos >= m.end {
		return false
	}
	num, typ, n := protowire.ConsumeTag(m.s.peek(m.pos, m.end, 20))
	if n < 0 {
		m.s.fail(m.pos, "no field starts here (%v); this is not an ONNX file, or it is damaged", protowire.ParseError(n))
		return false
	}
	m.start = m.pos
	m.num, m.typ = num, typ
	m.pos += int64(n)
	return true
}

func (m *message) wrong(typ protowire.Type) bool {
	if m.typ != typ {
		m.s.fail(m.start, "field %d has the wire type %d instead of %d", m.num, m.typ, typ)
		return true
	}
	return false
}

func (m *message) consumeVarint() uint64 {
	v, n := protowire.ConsumeVarint(m.s.peek(m.pos, m.end, 10))
	if n < 0 {
		m.s.fail(m.pos, "a number ends early or is too long")
		return 0
	}
	m.pos += int64(n)
	return v
}

// int reads an integer.
func (m *message) int() int64 {
	if m.wrong(protowire.VarintType) {
		return 0
	}
	return int64(m.consumeVarint())
}

// ints reads an integer or a packed list of them.
func (m *message) ints(to []int64) []int64 {
	if m.typ == protowire.VarintType {
		m.s.count(m.start, 1)
		return append(to, int64(m.consumeVarint()))
	}
	for p := m.sub(); p.pos < p.end && m.s.err == nil; {
		m.s.count(p.pos, 1)
		to = append(to, int64(p.consumeVarint()))
	}
	return to
}

// float reads a 32-bit number.
func (m *message) float() float64 {
	if m.wrong(protowire.Fixed32Type) {
		return 0
	}
	v, n := protowire.ConsumeFixed32(m.s.peek(m.pos, m.end, 4))
	if n < 0 {
		m.s.fail(m.pos, "a number ends early")
		return 0
	}
	m.pos += int64(n)
	return float64(math.Float32frombits(v))
}

// sub returns the message that the field holds, and passes over it.
func (m *message) sub() message {
	if m.wrong(protowire.BytesType) {
		return message{s: m.s}
	}
	n := m.consumeVarint()
	if m.s.err == nil && n > uint64(m.end-m.pos) {
		m.s.fail(m.start, "field %d claims %d bytes, and %d are left", m.num, n, m.end-m.pos)
	}
	if m.depth >= maxDepth {
		m.s.fail(m.start, "messages nested deeper than %d levels", maxDepth)
	}
	if m.s.err != nil {
		return message{s: m.s}
	}
	inner := message{s: m.s, pos: m.pos, end: m.pos + int64(n), depth: m.depth + 1}
	m.pos = inner.end
	return inner
}

// bytes reads a string of at most limit bytes; a longer one is cut.
func (m *message) bytes(limit int) []byte {
	b := m.sub()
	return b.s.peek(b.pos, b.end, limit)
}

// maxName limits names, in bytes.
const maxName = 4096

func (m *message) name() string {
	m.s.count(m.start, 1)
	return string(m.bytes(maxName))
}

// skip passes over the field.
func (m *message) skip() {
	switch m.typ {
	case protowire.VarintType:
		m.consumeVarint()
	case protowire.Fixed32Type:
		m.advance(4)
	case protowire.Fixed64Type:
		m.advance(8)
	case protowire.BytesType:
		m.sub()
	default:
		m.s.fail(m.start, "field %d has the wire type %d, which ONNX does not use", m.num, m.typ)
	}
}

func (m *message) advance(n int64) {
	if m.pos += n; m.pos > m.end {
		m.s.fail(m.start, "field %d ends early", m.num)
	}
}
