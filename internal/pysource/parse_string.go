package pysource

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// stringLiteral reads adjacent string tokens as one literal.
func (p *parser) stringLiteral() Expr {
	start := p.start()
	s := &Str{}
	var text strings.Builder
	for n := 0; p.kind() == tokString; n++ {
		t := p.advance()
		lit := p.textOf(t)
		q := strings.IndexAny(lit, `"'`)
		prefix := lit[:q]
		quote := quoteAt(lit, q)
		body := lit[q+len(quote):]
		body = strings.TrimSuffix(body, quote)
		raw := strings.ContainsAny(prefix, "rR")
		s.Bytes = s.Bytes || strings.ContainsAny(prefix, "bB")
		switch {
		case strings.ContainsAny(prefix, "fFtT"):
			s.Formatted = true
			p.formatted(s, &text, body, int(t.pos)+q+len(quote), raw)
		case n == 0 && p.kind() != tokString && (raw || strings.IndexByte(body, '\\') < 0):
			s.Value = body
			s.exprAt = p.exprDone(start)
			return s
		case raw:
			text.WriteString(body)
		default:
			unescape(&text, body)
		}
	}
	s.Value = text.String()
	s.exprAt = p.exprDone(start)
	return s
}

// formatted reads the text of an f-string that begins at base in the source.
func (p *parser) formatted(s *Str, text *strings.Builder, body string, base int, raw bool) {
	lit := 0
	flush := func(to int) {
		if raw {
			text.WriteString(body[lit:to])
		} else {
			unescape(text, body[lit:to])
		}
	}
	for i := 0; i < len(body); {
		switch {
		case body[i] == '\\' && !raw && strings.HasPrefix(body[i:], `\N{`):
			if end := strings.IndexByte(body[i:], '}'); end > 0 {
				i += end + 1
			} else {
				i++
			}
		case body[i] == '\\' && !raw && i+1 < len(body) && body[i+1] != '{' && body[i+1] != '}':
			i += 2
		case body[i] == '{' && i+1 < len(body) && body[i+1] == '{',
			body[i] == '}' && i+1 < len(body) && body[i+1] == '}':
			flush(i + 1)
			i += 2
			lit = i
		case body[i] == '{':
			flush(i)
			end, ok := scanPlaceholder(body, i, `"""`, 0)
			if !ok {
				end = len(body)
			}
			text.WriteByte(0)
			p.placeholder(s, base+i+1, base+end-1)
			i = end
			lit = i
		default:
			i++
		}
	}
	flush(len(body))
}

// placeholder reads the expressions of {…} between two offsets of the source
// with a lexer of its own, whose errors do not matter to the rest.
func (p *parser) placeholder(s *Str, from, to int) {
	if from >= to || p.nesting > maxNesting-50 {
		return
	}
	lex := &lexer{src: p.src, pos: from, end: to, depth: 1, isExpr: true}
	lex.run()
	sub := &parser{src: p.src, toks: lex.tokens, nesting: p.nesting + 20, nextID: p.nextID, lex: lex}
	defer func() {
		p.nextID = sub.nextID
		if r := recover(); r != nil {
			if _, ok := r.(bailout); !ok {
				panic(r)
			}
		}
	}()
	if x := sub.exprList(); x != nil {
		s.Parts = append(s.Parts, x)
	}
	// The specification after ':' may hold placeholders again.
	for i := int(sub.tok().pos); i < to; i++ {
		if p.src[i] == '{' {
			end, ok := scanPlaceholder(p.src[:to], i, `"""`, 1)
			if !ok {
				return
			}
			sub.placeholder(s, i+1, end-1)
			i = end - 1
		}
	}
}

// unescape writes s with Python's escapes resolved; unknown ones stay.
func unescape(b *strings.Builder, s string) {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 >= len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case '\n':
		case '\r':
			if i+1 < len(s) && s[i+1] == '\n' {
				i++
			}
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'r':
			b.WriteByte('\r')
		case '\\', '\'', '"':
			b.WriteByte(c)
		case 'x', 'u', 'U':
			n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			if i+n < len(s) {
				if v, err := strconv.ParseUint(s[i+1:i+1+n], 16, 32); err == nil && utf8.ValidRune(rune(v)) {
					b.WriteRune(rune(v))
					i += n
					continue
				}
			}
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
}
