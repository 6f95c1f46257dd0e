package pysource

// maxNesting bounds recursion: brackets, lambdas, unary operators and the like
// within each other. CPython refuses 200 nested parentheses.
const maxNesting = 400

// maxChain bounds what is deep without brackets: a + b + …, a.b.c, elif chains.
const maxChain = 20_000

type parser struct {
	src     string
	toks    []token
	i       int
	nesting int
	nextID  int32
	lex     *lexer
	// inPattern allows `as NAME` within an expression.
	inPattern bool
	// noIn makes `in` end an expression: the target of a for.
	noIn bool
}

// bailout unwinds to the statement being read.
type bailout struct{ err SyntaxError }

func (p *parser) fail(msg string) {
	panic(bailout{SyntaxError{int(p.toks[p.i].pos), msg}})
}

func (p *parser) tok() token { return p.toks[p.i] }

func (p *parser) kind() tokenKind { return p.toks[p.i].kind }

func (p *parser) text() string { return p.src[p.toks[p.i].pos:p.toks[p.i].end] }

func (p *parser) peek(n int) token {
	if p.i+n < len(p.toks) {
		return p.toks[p.i+n]
	}
	return p.toks[len(p.toks)-1]
}

func (p *parser) textOf(t token) string { return p.src[t.pos:t.end] }

func (p *parser) advance() token {
	t := p.toks[p.i]
	if t.kind != tokEOF {
		p.i++
	}
	return t
}

// is reports whether the current token is the operator or keyword s.
func (p *parser) is(s string) bool {
	t := p.toks[p.i]
	return (t.kind == tokOp || t.kind == tokKeyword) && p.src[t.pos:t.end] == s
}

// isName reports whether the current token is the name s (a soft keyword).
func (p *parser) isName(s string) bool {
	return p.kind() == tokName && p.text() == s
}

func (p *parser) accept(s string) bool {
	if p.is(s) {
		p.i++
		return true
	}
	return false
}

func (p *parser) expect(s string) token {
	if !p.is(s) {
		p.fail("expected " + s)
	}
	return p.advance()
}

func (p *parser) ident() (string, int) {
	if p.kind() != tokName {
		p.fail("expected a name")
	}
	t := p.advance()
	return p.textOf(t), int(t.pos)
}

// enter guards recursion; the caller defers nothing, but calls leave.
func (p *parser) enter() {
	if p.nesting++; p.nesting > maxNesting {
		p.fail("too deeply nested to read")
	}
}

func (p *parser) leave() { p.nesting-- }

// start begins a node at the current token; done ends it at the last one read.
func (p *parser) start() int32 { return p.toks[p.i].pos }

func (p *parser) done(start int32) at {
	end := start
	if p.i > 0 {
		end = max(start, p.toks[p.i-1].end)
	}
	id := p.nextID
	p.nextID++
	return at{start, end, id}
}

func (p *parser) exprDone(start int32) exprAt { return exprAt{p.done(start)} }

func (p *parser) stmtDone(start int32) stmtAt { return stmtAt{p.done(start)} }
