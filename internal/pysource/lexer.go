package pysource

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokEOF tokenKind = iota
	tokNewline
	tokIndent
	tokDedent
	tokName
	tokKeyword
	tokNumber
	tokString
	tokOp
)

type token struct {
	kind     tokenKind
	pos, end int32
}

// maxIndent is the deepest nesting of blocks, as in CPython (MAXINDENT in
// Parser/lexer/state.h is 100).
const maxIndent = 100

// keywords are the words that are never names in any Python 3. print, exec,
// match, case, type, async, await and nonlocal are decided by the parser.
func isKeyword(s string) bool {
	switch s {
	case "and", "as", "assert", "break", "class", "continue", "def", "del", "elif", "else",
		"except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
		"not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
		"None", "True", "False":
		return true
	}
	return false
}

// startsStatement are keywords that cannot occur within brackets: one at the
// start of a line says that a bracket above was never closed.
func startsStatement(s string) bool {
	switch s {
	case "def", "class", "import", "return", "while", "with", "try", "raise", "assert", "del",
		"pass", "break", "continue", "global", "except", "finally", "elif":
		return true
	}
	return false
}

// lexer turns source into tokens. Within [start, end) of an f-string it runs
// with depth 1, so that newlines do not count.
type lexer struct {
	src      string
	pos, end int
	depth    int // open brackets
	indents  []int
	tokens   []token
	comments []Comment
	errs     []SyntaxError
	isExpr   bool // an f-string's placeholder: no lines, no indentation
}

func (l *lexer) errorf(pos int, msg string) {
	if len(l.errs) < maxErrors {
		l.errs = append(l.errs, SyntaxError{pos, msg})
	}
}

func (l *lexer) add(k tokenKind, pos, end int) {
	l.tokens = append(l.tokens, token{k, int32(pos), int32(end)})
}

// run reads everything. The tokens end with EOF.
func (l *lexer) run() {
	if !l.isExpr {
		l.indents = append(l.indents, 0)
		l.lineStart()
	}
	for l.pos < l.end {
		l.next()
	}
	if !l.isExpr {
		if n := len(l.tokens); n > 0 && l.tokens[n-1].kind != tokNewline && l.tokens[n-1].kind != tokDedent {
			l.add(tokNewline, l.end, l.end)
		}
		for len(l.indents) > 1 {
			l.indents = l.indents[:len(l.indents)-1]
			l.add(tokDedent, l.end, l.end)
		}
	}
	l.add(tokEOF, l.end, l.end)
}

// lineStart reads indentation, skipping empty and comment lines, and gives
// Indent or Dedent tokens.
func (l *lexer) lineStart() {
	for {
		col := 0
	indentation:
		for l.pos < l.end {
			switch l.src[l.pos] {
			case ' ':
				col++
			case '\t':
				col = col/8*8 + 8
			case '\f':
				col = 0
			default:
				break indentation
			}
			l.pos++
		}
		if l.pos >= l.end {
			return
		}
		switch l.src[l.pos] {
		case '#':
			l.comment(true)
			continue
		case '\n', '\r':
			l.pos++
			continue
		case '\\':
			// A continuation on an otherwise empty line: the indentation is
			// that of this line.
			if n := l.continuation(); n > 0 {
				l.pos += n
				for l.pos < l.end && (l.src[l.pos] == ' ' || l.src[l.pos] == '\t') {
					l.pos++
				}
			}
		}
		l.indentTo(col)
		return
	}
}

func (l *lexer) indentTo(col int) {
	top := l.indents[len(l.indents)-1]
	if col > top {
		if len(l.indents) > maxIndent {
			l.errorf(l.pos, "too many levels of indentation")
			return
		}
		l.indents = append(l.indents, col)
		l.add(tokIndent, l.pos, l.pos)
		return
	}
	for col < l.indents[len(l.indents)-1] {
		l.indents = l.indents[:len(l.indents)-1]
		l.add(tokDedent, l.pos, l.pos)
	}
	if col != l.indents[len(l.indents)-1] {
		l.errorf(l.pos, "this line's indentation matches no block above")
	}
}

// continuation returns the length of a backslash and line end at pos, or 0.
func (l *lexer) continuation() int {
	rest := l.src[l.pos:l.end]
	switch {
	case strings.HasPrefix(rest, "\\\r\n"):
		return 3
	case strings.HasPrefix(rest, "\\\n"), strings.HasPrefix(rest, "\\\r"):
		return 2
	}
	return 0
}

func (l *lexer) comment(ownLine bool) {
	start := l.pos
	for l.pos < l.end && l.src[l.pos] != '\n' && l.src[l.pos] != '\r' {
		l.pos++
	}
	l.comments = append(l.comments, Comment{start, l.pos, ownLine})
}

func (l *lexer) next() {
	c := l.src[l.pos]
	switch {
	case c == ' ' || c == '\t' || c == '\f':
		l.pos++
	case c == '\n' || c == '\r':
		l.newline()
	case c == '#':
		l.comment(false)
	case c == '\\' && l.continuation() > 0:
		l.pos += l.continuation()
	case isNameStart(c):
		l.name()
	case c >= '0' && c <= '9', c == '.' && l.pos+1 < l.end && isDigit(l.src[l.pos+1]):
		l.number()
	case c == '"' || c == '\'':
		l.str(l.pos, l.pos)
	case c >= 0x80:
		r, n := utf8.DecodeRuneInString(l.src[l.pos:l.end])
		switch {
		case unicode.IsLetter(r):
			l.name()
		case unicode.IsSpace(r) || r == '\ufeff' || r == '\u200b':
			l.pos += n
		default:
			l.errorf(l.pos, "a character that Python does not know")
			l.pos += n
		}
	default:
		l.op()
	}
}

func (l *lexer) newline() {
	start := l.pos
	l.pos++
	if l.isExpr {
		return
	}
	if l.depth > 0 {
		if l.closesBracketsHere() {
			l.errorf(start, "a bracket above is never closed")
			l.depth = 0
		} else {
			return
		}
	}
	l.add(tokNewline, start, start)
	l.lineStart()
}

// closesBracketsHere looks at the first word of the line at pos.
func (l *lexer) closesBracketsHere() bool {
	i := l.pos
	for i < l.end && (l.src[i] == ' ' || l.src[i] == '\t') {
		i++
	}
	start := i
	for i < l.end && l.src[i] >= 'a' && l.src[i] <= 'z' {
		i++
	}
	if i == start || i < l.end && (isNameByte(l.src[i]) || l.src[i] == '=' || l.src[i] == ',' || l.src[i] == ')') {
		return false
	}
	return startsStatement(l.src[start:i])
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isNameStart(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }

func isNameByte(c byte) bool { return isNameStart(c) || isDigit(c) || c >= 0x80 }

func (l *lexer) name() {
	start := l.pos
	for l.pos < l.end && isNameByte(l.src[l.pos]) {
		l.pos++
	}
	word := l.src[start:l.pos]
	if l.pos < l.end && (l.src[l.pos] == '"' || l.src[l.pos] == '\'') && isStringPrefix(word) {
		l.str(start, l.pos)
		return
	}
	if isKeyword(word) {
		l.add(tokKeyword, start, l.pos)
		return
	}
	l.add(tokName, start, l.pos)
}

func isStringPrefix(s string) bool {
	if len(s) > 3 {
		return false
	}
	for i := 0; i < len(s); i++ {
		switch s[i] | 0x20 {
		case 'r', 'b', 'u', 'f', 't':
		default:
			return false
		}
	}
	return true
}

func (l *lexer) number() {
	start := l.pos
	hex := l.src[l.pos] == '0' && l.pos+1 < l.end && l.src[l.pos+1]|0x20 == 'x'
	for l.pos < l.end {
		c := l.src[l.pos]
		switch {
		case c == '.' && !hex, isDigit(c), c == '_', c >= 'a' && c <= 'f', c >= 'A' && c <= 'F',
			c|0x20 == 'x', c|0x20 == 'o', c|0x20 == 'l', c|0x20 == 'j':
			// `1if x else y` and `0or y` are legal: a letter that begins a
			// keyword ends the number.
			if !hex && (c|0x20 == 'a' || c|0x20 == 'f' || c|0x20 == 'o' && l.pos != start+1) {
				l.add(tokNumber, start, l.pos)
				return
			}
			if !hex && c == 'e' && l.pos+1 < l.end && !isDigit(l.src[l.pos+1]) && l.src[l.pos+1] != '+' && l.src[l.pos+1] != '-' {
				l.add(tokNumber, start, l.pos)
				return
			}
			l.pos++
			if !hex && c|0x20 == 'e' && l.pos < l.end && (l.src[l.pos] == '+' || l.src[l.pos] == '-') {
				l.pos++
			}
		default:
			l.add(tokNumber, start, l.pos)
			return
		}
	}
	l.add(tokNumber, start, l.pos)
}

// str reads a string literal whose prefix starts at start and quote at quote.
func (l *lexer) str(start, quote int) {
	prefix := l.src[start:quote]
	formatted := strings.ContainsAny(prefix, "fFtT")
	raw := strings.ContainsAny(prefix, "rR")
	end, ok := -1, false
	if formatted {
		end, ok = scanFormatted(l.src[:l.end], quote, raw, 0)
	}
	if !ok {
		end, ok = scanString(l.src[:l.end], quote)
	}
	if !ok {
		l.errorf(start, "this string never ends")
	}
	l.pos = end
	l.add(tokString, start, end)
}

// quoteAt returns the quote at i: one character or three.
func quoteAt(src string, i int) string {
	q := src[i : i+1]
	if i+3 <= len(src) && src[i:i+3] == q+q+q {
		return src[i : i+3]
	}
	return q
}

// scanString returns where the literal with its quote at i ends. Of one that
// never does it is the end of the line, or of the source where it has three
// quotes.
func scanString(src string, i int) (int, bool) {
	q := quoteAt(src, i)
	for i += len(q); i < len(src); i++ {
		switch c := src[i]; {
		case c == '\\':
			if i+2 < len(src) && src[i+1] == '\r' && src[i+2] == '\n' {
				i++
			}
			i++
		case (c == '\n' || c == '\r') && len(q) == 1:
			return i, false
		case c == q[0] && strings.HasPrefix(src[i:], q):
			return i + len(q), true
		}
	}
	return len(src), false
}

const maxFormatNesting = 20

// scanFormatted is scanString for f-strings, where a placeholder may hold the
// same quotes again (PEP 701).
func scanFormatted(src string, i int, raw bool, level int) (int, bool) {
	q := quoteAt(src, i)
	for i += len(q); i < len(src); i++ {
		switch c := src[i]; {
		case c == '\\' && !raw && strings.HasPrefix(src[i:], `\N{`):
			for i < len(src) && src[i] != '}' && src[i] != '\n' {
				i++
			}
		case c == '\\' && i+1 < len(src) && src[i+1] != '{' && src[i+1] != '}':
			i++
		case (c == '\n' || c == '\r') && len(q) == 1:
			return i, false
		case c == q[0] && strings.HasPrefix(src[i:], q):
			return i + len(q), true
		case c == '{':
			if i+1 < len(src) && src[i+1] == '{' {
				i++
				continue
			}
			end, ok := scanPlaceholder(src, i, q, level+1)
			if !ok {
				return end, false
			}
			i = end - 1
		}
	}
	return len(src), false
}

// scanPlaceholder returns where the placeholder that opens at i ends, after its
// closing brace.
func scanPlaceholder(src string, i int, q string, level int) (int, bool) {
	if level > maxFormatNesting {
		return i, false
	}
	depth := 0
	for i++; i < len(src); i++ {
		switch c := src[i]; {
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']':
			depth--
		case c == '}':
			if depth <= 0 {
				return i + 1, true
			}
			depth--
		case c == '"' || c == '\'':
			start := i
			for start > 0 && isNameStart(src[start-1]) {
				start--
			}
			prefix := src[start:i]
			var end int
			var ok bool
			if isStringPrefix(prefix) && strings.ContainsAny(prefix, "fFtT") {
				end, ok = scanFormatted(src, i, strings.ContainsAny(prefix, "rR"), level)
			} else {
				end, ok = scanString(src, i)
			}
			if !ok {
				return end, false
			}
			i = end - 1
		case (c == '\n' || c == '\r') && len(q) == 1 && depth < 0:
			return i, false
		case c == '#' && len(q) == 3:
			for i < len(src) && src[i] != '\n' {
				i++
			}
		case c == ':' && depth == 0:
			return scanSpec(src, i+1, q, level)
		}
	}
	return len(src), false
}

// scanSpec reads a format specification up to and with its closing brace.
func scanSpec(src string, i int, q string, level int) (int, bool) {
	for ; i < len(src); i++ {
		switch c := src[i]; {
		case c == '}':
			return i + 1, true
		case c == '{':
			end, ok := scanPlaceholder(src, i, q, level+1)
			if !ok {
				return end, false
			}
			i = end - 1
		case strings.HasPrefix(src[i:], q):
			return i, false
		case (c == '\n' || c == '\r') && len(q) == 1:
			return i, false
		}
	}
	return len(src), false
}

func (l *lexer) op() {
	start := l.pos
	rest := l.src[l.pos:l.end]
	n := opLen(rest)
	if n == 0 {
		l.errorf(l.pos, "a character that Python does not know")
		l.pos++
		return
	}
	switch rest[0] {
	case '(', '[', '{':
		l.depth++
	case ')', ']', '}':
		if l.depth > 0 {
			l.depth--
		}
	}
	l.pos += n
	l.add(tokOp, start, l.pos)
}

// opLen returns the length of the operator that s begins with.
func opLen(s string) int {
	if len(s) >= 3 {
		switch s[:3] {
		case "**=", "//=", ">>=", "<<=", "...":
			return 3
		}
	}
	if len(s) >= 2 {
		switch s[:2] {
		case "**", "//", ">>", "<<", "<=", ">=", "==", "!=", "<>", "->", ":=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "@=":
			return 2
		}
	}
	switch s[0] {
	case '+', '-', '*', '/', '%', '@', '&', '|', '^', '~', '<', '>', '(', ')', '[', ']', '{', '}',
		',', ':', '.', ';', '=', '`', '!', '?', '$':
		return 1
	}
	return 0
}
