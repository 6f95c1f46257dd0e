package pt2

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth limits nesting. A graph inside a graph takes eight levels, and
// exports nest graphs two or three deep.
const maxDepth = 200

// scanner reads JSON from front to back without building values that nobody
// asked for: most of an export is strides, hints and stack traces. The first
// error sticks, with its offset; after it every method returns a zero value.
// Python's NaN and Infinity are numbers here.
type scanner struct {
	data  []byte
	pos   int
	depth int
	err   error
	buf   []byte // for strings with escapes
}

func (s *scanner) fail(format string, args ...any) { s.failAt(s.pos, format, args...) }

func (s *scanner) failAt(pos int, format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("byte %d: %s", pos, fmt.Sprintf(format, args...))
	}
	s.pos = len(s.data)
}

// peek returns the next byte that is not space, 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\n', '\t', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// want consumes the byte c.
func (s *scanner) want(c byte) bool {
	if got := s.peek(); got != c {
		s.unexpected(fmt.Sprintf("%q", c))
		return false
	}
	s.pos++
	return true
}

func (s *scanner) unexpected(wanted string) {
	if c := s.peek(); c != 0 {
		s.fail("found %q instead of %s", c, wanted)
	} else {
		s.fail("the text ends where %s should be", wanted)
	}
}

func (s *scanner) enter(c byte) bool {
	if !s.want(c) {
		return false
	}
	if s.depth++; s.depth > maxDepth {
		s.fail("nested deeper than %d levels", maxDepth)
		return false
	}
	return true
}

// more reports whether another element follows in a list that ends with end.
func (s *scanner) more(end byte, first bool) bool {
	if s.err != nil {
		return false
	}
	if s.peek() == end {
		s.pos++
		s.depth--
		return false
	}
	return first || s.want(',')
}

// object calls f for each key; f must consume the value. The key is valid
// until f reads.
func (s *scanner) object(f func(key []byte)) {
	if s.null() || !s.enter('{') {
		return
	}
	for first := true; s.more('}', first); first = false {
		key := s.bytes()
		if s.want(':') {
			f(key)
		}
	}
}

// array calls f for each element; f must consume it.
func (s *scanner) array(f func()) {
	if s.null() || !s.enter('[') {
		return
	}
	for first := true; s.more(']', first); first = false {
		f()
	}
}

func (s *scanner) literal(word string) bool {
	if bytes.HasPrefix(s.data[s.pos:], []byte(word)) {
		s.pos += len(word)
		return true
	}
	return false
}

// null consumes null, where it is next.
func (s *scanner) null() bool { return s.peek() == 'n' && s.literal("null") }

// bool reads true or false.
func (s *scanner) bool() bool {
	switch c := s.peek(); {
	case c == 't' && s.literal("true"):
		return true
	case c == 'f' && s.literal("false"):
		return false
	}
	s.unexpected("true or false")
	return false
}

// number returns the text of a number.
func (s *scanner) number() []byte {
	s.peek()
	start := s.pos
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case '0' <= c && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E', c == 'I', c == 'N', 'a' <= c && c <= 'z', c == 'A':
			s.pos++
			continue
		}
		break
	}
	if s.pos == start {
		s.unexpected("a number")
	}
	return s.data[start:s.pos]
}

// int reads an integer; null is 0.
func (s *scanner) int() int64 {
	if s.null() {
		return 0
	}
	at := s.pos
	text := s.number()
	if s.err != nil {
		return 0
	}
	v, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		s.failAt(at, "%.40q is not an integer of 64 bits", text)
	}
	return v
}

// float reads a number, or a string that holds one: exports write infinities
// both ways.
func (s *scanner) float() float64 {
	if s.null() {
		return 0
	}
	at := s.pos
	text := []byte(nil)
	if s.peek() == '"' {
		text = s.bytes()
	} else {
		text = s.number()
	}
	switch string(text) {
	case "Infinity", "inf":
		return math.Inf(1)
	case "-Infinity", "-inf":
		return math.Inf(-1)
	}
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil && s.err == nil {
		s.failAt(at, "%.40q is not a number", text)
	}
	return v
}

// string reads a string; null is "".
func (s *scanner) string() string {
	if s.null() {
		return ""
	}
	return string(s.bytes())
}

// bytes reads a string. The result is valid until the next call.
func (s *scanner) bytes() []byte {
	if !s.want('"') {
		return nil
	}
	start := s.pos
	i := bytes.IndexByte(s.data[start:], '"')
	if i < 0 {
		s.failAt(start-1, "this string does not end")
		return nil
	}
	if text := s.data[start : start+i]; bytes.IndexByte(text, '\\') < 0 {
		s.pos += i + 1
		return text
	}
	s.buf = s.buf[:0]
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case '"':
			s.pos++
			return s.buf
		case '\\':
			s.escape()
		default:
			s.buf = append(s.buf, c)
			s.pos++
		}
	}
	s.failAt(start-1, "this string does not end")
	return nil
}

func (s *scanner) escape() {
	at := s.pos
	s.pos++
	if s.pos >= len(s.data) {
		return
	}
	c := s.data[s.pos]
	s.pos++
	switch c {
	case 'n':
		c = '\n'
	case 't':
		c = '\t'
	case 'r':
		c = '\r'
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case '"', '\\', '/':
	case 'u':
		r := s.hex4()
		if utf16.IsSurrogate(r) && s.literal(`\u`) {
			r = utf16.DecodeRune(r, s.hex4())
		}
		s.buf = utf8.AppendRune(s.buf, r)
		return
	default:
		s.failAt(at, "a string with the unknown escape \\%c", c)
	}
	s.buf = append(s.buf, c)
}

func (s *scanner) hex4() rune {
	if s.pos+4 > len(s.data) {
		s.fail("a string ends inside an escape")
		return utf8.RuneError
	}
	v, err := strconv.ParseUint(string(s.data[s.pos:s.pos+4]), 16, 16)
	if err != nil {
		s.fail("%q is not a character code", s.data[s.pos:s.pos+4])
		return utf8.RuneError
	}
	s.pos += 4
	return rune(v)
}

// skip passes over a value without looking at its contents more than is
// needed to find its end.
func (s *scanner) skip() {
	open := 0
	for s.err == nil {
		switch s.peek() {
		case 0:
			s.unexpected("a value")
			return
		case '"':
			s.skipString()
		case '{', '[':
			if open++; s.depth+open > maxDepth {
				s.fail("nested deeper than %d levels", maxDepth)
				return
			}
			s.pos++
			continue
		case '}', ']':
			if open--; open < 0 {
				s.unexpected("a value")
				return
			}
			s.pos++
		case ',', ':':
			s.pos++
			continue
		default:
			s.number()
		}
		if open == 0 {
			return
		}
	}
}

func (s *scanner) skipString() {
	start := s.pos
	for i := s.pos + 1; ; {
		j := bytes.IndexByte(s.data[i:], '"')
		if j < 0 {
			s.failAt(start, "this string does not end")
			return
		}
		i += j
		back := i
		for s.data[back-1] == '\\' {
			back--
		}
		i++
		if (i-1-back)%2 == 0 {
			s.pos = i
			return
		}
	}
}
