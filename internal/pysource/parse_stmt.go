package pysource

// file reads statements to the end of the source.
func (p *parser) file() []Stmt {
	var body []Stmt
	for p.kind() != tokEOF {
		body = p.statements(body, tokEOF)
		if p.kind() == tokDedent { // left over from a line that could not be read
			p.advance()
		}
	}
	return body
}

// statements appends statements up to a Dedent, EOF or the token end.
func (p *parser) statements(body []Stmt, end tokenKind) []Stmt {
	for {
		switch p.kind() {
		case tokEOF, end, tokDedent:
			return body
		case tokNewline:
			p.advance()
		case tokIndent:
			// The body of a header that could not be read, or a stray indent:
			// its statements count as if they stood here.
			p.advance()
			if p.nesting > maxNesting-10 {
				p.skipBlock()
				continue
			}
			p.nesting++
			body = p.statements(body, tokDedent)
			p.nesting--
			if p.kind() == tokDedent {
				p.advance()
			}
		default:
			body = p.statementLine(body)
		}
	}
}

func (p *parser) skipBlock() {
	for depth := 1; depth > 0 && p.kind() != tokEOF; {
		switch p.advance().kind {
		case tokIndent:
			depth++
		case tokDedent:
			depth--
		}
	}
}

// statementLine reads one logical line, and the block of a compound statement.
// A line that cannot be read becomes a BadStmt.
func (p *parser) statementLine(body []Stmt) (out []Stmt) {
	begin, nesting := p.i, p.nesting
	inPattern, noIn := p.inPattern, p.noIn
	start := p.start()
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(bailout)
			if !ok {
				panic(r)
			}
			p.lex.errorf(b.err.Pos, b.err.Msg)
			p.nesting, p.inPattern, p.noIn = nesting, inPattern, noIn
			if p.i == begin {
				p.advance()
			}
			for p.kind() != tokNewline && p.kind() != tokEOF && p.kind() != tokIndent && p.kind() != tokDedent {
				p.advance()
			}
			if p.kind() == tokNewline {
				p.advance()
			}
			out = append(body, &BadStmt{p.stmtDone(start)})
		}
	}()
	if s := p.compound(); s != nil {
		return append(body, s)
	}
	for {
		body = append(body, p.simple())
		if !p.accept(";") || p.kind() == tokNewline || p.kind() == tokEOF {
			break
		}
	}
	if p.kind() != tokNewline && p.kind() != tokEOF {
		p.fail("expected the end of the statement")
	}
	if p.kind() == tokNewline {
		p.advance()
	}
	return body
}

// compound reads a statement with a block, or returns nil.
func (p *parser) compound() Stmt {
	start := p.start()
	switch p.kind() {
	case tokKeyword:
		switch p.text() {
		case "if":
			return p.ifStmt(0)
		case "for":
			return p.forStmt(start)
		case "while":
			p.advance()
			test := p.named()
			body := p.block()
			els := p.elseBlock()
			return &While{p.stmtDone(start), test, body, els}
		case "try":
			return p.try(start)
		case "with":
			return p.with(start)
		case "def":
			return p.function(start, nil, false)
		case "class":
			return p.class(start, nil)
		}
	case tokOp:
		if p.is("@") {
			return p.decorated(start)
		}
	case tokName:
		switch p.text() {
		case "async":
			next := p.peek(1)
			if next.kind != tokKeyword {
				return nil
			}
			switch p.textOf(next) {
			case "def":
				p.advance()
				return p.function(start, nil, true)
			case "for":
				p.advance()
				return p.forStmt(start)
			case "with":
				p.advance()
				return p.with(start)
			}
		case "match":
			if p.isMatch() {
				return p.match(start)
			}
		}
	}
	return nil
}

// block reads `:` and an indented block, or simple statements on the same line.
func (p *parser) block() []Stmt {
	p.expect(":")
	if p.kind() != tokNewline {
		var body []Stmt
		for {
			body = append(body, p.simple())
			if !p.accept(";") || p.kind() == tokNewline || p.kind() == tokEOF {
				break
			}
		}
		if p.kind() == tokNewline {
			p.advance()
		} else if p.kind() != tokEOF {
			p.fail("expected the end of the statement")
		}
		return body
	}
	p.advance()
	if p.kind() != tokIndent {
		p.lex.errorf(int(p.tok().pos), "expected an indented block")
		return nil
	}
	p.advance()
	p.enter()
	body := p.statements(nil, tokDedent)
	p.leave()
	if p.kind() == tokDedent {
		p.advance()
	}
	return body
}

func (p *parser) elseBlock() []Stmt {
	if p.accept("else") {
		return p.block()
	}
	return nil
}

func (p *parser) ifStmt(chain int) Stmt {
	if chain > maxChain/10 {
		p.fail("too many elif to read")
	}
	start := p.start()
	p.advance()
	test := p.named()
	body := p.block()
	var els []Stmt
	if p.is("elif") {
		els = []Stmt{p.ifStmt(chain + 1)}
	} else {
		els = p.elseBlock()
	}
	return &If{p.stmtDone(start), test, body, els}
}

func (p *parser) forStmt(start int32) Stmt {
	p.expect("for")
	target := p.target()
	p.expect("in")
	iter := p.exprList()
	body := p.block()
	els := p.elseBlock()
	return &For{p.stmtDone(start), target, iter, body, els}
}

func (p *parser) try(start int32) Stmt {
	p.advance()
	t := &Try{Body: p.block()}
	for p.is("except") {
		hs := p.start()
		p.advance()
		p.accept("*")
		h := &Handler{}
		if !p.is(":") {
			h.Type = p.expr()
			switch {
			case p.accept("as"):
				h.Name, _ = p.ident()
			case p.accept(","): // Python 2: except E, e; 3.14: except A, B
				second := p.exprList()
				n, isName := second.(*Name)
				if isName && !p.is("as") && !isUpper(n.Ident) {
					h.Name = n.Ident
				} else {
					h.Type = &Sequence{p.exprDone(int32(h.Type.Pos())), '(', []Expr{h.Type, second}}
				}
				if p.accept("as") {
					h.Name, _ = p.ident()
				}
			}
		}
		h.Body = p.block()
		h.at = p.done(hs)
		t.Handlers = append(t.Handlers, h)
	}
	t.Else = p.elseBlock()
	if p.accept("finally") {
		t.Finally = p.block()
	}
	t.stmtAt = p.stmtDone(start)
	return t
}

func isUpper(s string) bool { return s[0] >= 'A' && s[0] <= 'Z' }

func (p *parser) with(start int32) Stmt {
	p.expect("with")
	w := &With{}
	if p.is("(") && p.withParens() {
		p.advance()
		for !p.is(")") {
			w.Items = append(w.Items, p.withItem())
			if !p.accept(",") {
				break
			}
		}
		p.expect(")")
	} else {
		for {
			w.Items = append(w.Items, p.withItem())
			if !p.accept(",") {
				break
			}
		}
	}
	w.Body = p.block()
	w.stmtAt = p.stmtDone(start)
	return w
}

// withParens looks whether the bracket here is that of `with (a as b, c):`: it
// is closed just before the colon and holds `as` or a comma at its own level.
func (p *parser) withParens() bool {
	depth, inner := 0, false
	for j := p.i; j < len(p.toks); j++ {
		t := p.toks[j]
		switch t.kind {
		case tokNewline, tokEOF:
			return false
		case tokKeyword:
			if depth == 1 {
				switch p.textOf(t) {
				case "as":
					inner = true
				case "for":
					return false
				}
			}
		case tokOp:
			switch p.textOf(t) {
			case "(", "[", "{":
				depth++
			case ",":
				inner = inner || depth == 1
			case ")", "]", "}":
				if depth--; depth == 0 {
					return inner && p.textOf(p.toks[j+1]) == ":"
				}
			}
		}
	}
	return false
}

func (p *parser) withItem() *WithItem {
	start := p.start()
	it := &WithItem{X: p.expr()}
	if p.accept("as") {
		s := p.start()
		if p.accept("*") {
			x := p.primary()
			it.Target = &Starred{p.exprDone(s), x}
		} else {
			it.Target = p.primary()
		}
	}
	it.at = p.done(start)
	return it
}

func (p *parser) decorated(start int32) Stmt {
	var decorators []Expr
	for p.accept("@") {
		decorators = append(decorators, p.named())
		if p.kind() != tokNewline {
			p.fail("expected the end of the decorator")
		}
		p.advance()
	}
	switch {
	case p.is("def"):
		return p.function(start, decorators, false)
	case p.is("class"):
		return p.class(start, decorators)
	case p.isName("async"):
		p.advance()
		return p.function(start, decorators, true)
	}
	p.fail("expected a function or class after the decorator")
	return nil
}

func (p *parser) function(start int32, decorators []Expr, async bool) Stmt {
	p.expect("def")
	f := &Function{Decorators: decorators, Async: async}
	if p.kind() == tokKeyword { // Python 2: def None()
		t := p.advance()
		f.Name, f.NamePos = p.textOf(t), int(t.pos)
	} else {
		f.Name, f.NamePos = p.ident()
	}
	p.typeParams()
	p.expect("(")
	f.Params = p.params(")", true)
	p.expect(")")
	if p.accept("->") {
		f.Returns = p.exprList()
	}
	f.Body = p.block()
	f.stmtAt = p.stmtDone(start)
	return f
}

// typeParams skips PEP 695's [T: bound = default].
func (p *parser) typeParams() {
	if !p.is("[") {
		return
	}
	for depth := 0; p.kind() != tokEOF && p.kind() != tokNewline; {
		switch p.textOf(p.advance()) {
		case "[", "(", "{":
			depth++
		case "]", ")", "}":
			if depth--; depth == 0 {
				return
			}
		}
	}
}

func (p *parser) params(closer string, annotations bool) []*Param {
	var ps []*Param
	keywordOnly := false
	for !p.is(closer) {
		start := p.start()
		q := &Param{KeywordOnly: keywordOnly}
		switch {
		case p.accept("/"):
			if !p.accept(",") {
				return ps
			}
			continue
		case p.accept("**"):
			q.Star = "**"
		case p.accept("*"):
			keywordOnly = true
			if p.is(",") || p.is(closer) {
				if !p.accept(",") {
					return ps
				}
				continue
			}
			q.Star = "*"
		}
		if p.is("(") { // Python 2: def f(a, (b, c))
			p.atom()
		} else {
			q.Name, _ = p.ident()
		}
		if annotations && p.accept(":") {
			if p.is("*") {
				q.Ann = p.starOrNamed()
			} else {
				q.Ann = p.expr()
			}
		}
		if p.accept("=") {
			q.Default = p.expr()
		}
		q.at = p.done(start)
		ps = append(ps, q)
		if !p.accept(",") {
			break
		}
	}
	return ps
}

func (p *parser) class(start int32, decorators []Expr) Stmt {
	p.expect("class")
	c := &Class{Decorators: decorators}
	c.Name, c.NamePos = p.ident()
	p.typeParams()
	if p.accept("(") {
		c.Bases, c.Keywords = p.arguments()
		p.expect(")")
	}
	c.Body = p.block()
	c.stmtAt = p.stmtDone(start)
	return c
}

// isMatch decides whether the name match here begins a match statement: the
// logical line ends in a colon and the block begins with case.
func (p *parser) isMatch() bool {
	if next := p.peek(1); next.kind == tokNewline || next.kind == tokOp && (p.textOf(next) == "=" || p.textOf(next) == "." || p.textOf(next) == ":") {
		return false
	}
	for j := p.i; j+2 < len(p.toks); j++ {
		switch p.toks[j].kind {
		case tokNewline:
			return p.textOf(p.toks[j-1]) == ":" && p.toks[j+1].kind == tokIndent && p.textOf(p.toks[j+2]) == "case"
		case tokEOF:
			return false
		}
	}
	return false
}

func (p *parser) match(start int32) Stmt {
	p.advance()
	m := &Match{Subject: p.exprList()}
	p.expect(":")
	p.advance() // Newline
	p.advance() // Indent
	for p.isName("case") {
		cs := p.start()
		p.advance()
		p.inPattern = true
		c := &Case{Pattern: p.exprList()}
		p.inPattern = false
		if p.accept("if") {
			c.Guard = p.named()
		}
		c.Body = p.block()
		c.at = p.done(cs)
		m.Cases = append(m.Cases, c)
	}
	if p.kind() == tokDedent {
		p.advance()
	}
	m.stmtAt = p.stmtDone(start)
	return m
}

// simple reads a statement without a block.
func (p *parser) simple() Stmt {
	start := p.start()
	if p.kind() == tokKeyword {
		switch word := p.text(); word {
		case "pass", "break", "continue":
			p.advance()
			return &Jump{p.stmtDone(start), word}
		case "return":
			p.advance()
			var x Expr
			if p.startsExpr() {
				x = p.exprList()
			}
			return &Return{p.stmtDone(start), x}
		case "raise":
			return p.raise(start)
		case "del":
			p.advance()
			var xs []Expr
			if p.startsExpr() {
				xs = p.commaList()
			}
			return &Delete{p.stmtDone(start), xs}
		case "assert":
			p.advance()
			test := p.named()
			var msg Expr
			if p.accept(",") {
				msg = p.named()
			}
			return &Assert{p.stmtDone(start), test, msg}
		case "global":
			return p.scope(start)
		case "import":
			return p.importStmt(start)
		case "from":
			return p.fromStmt(start)
		}
	}
	if p.kind() == tokName {
		next := p.peek(1)
		switch word := p.text(); word {
		case "nonlocal":
			if next.kind == tokName {
				return p.scope(start)
			}
		case "print", "exec":
			if p.isPy2Statement(next) {
				return p.py2Call(start)
			}
		case "type":
			if next.kind == tokName {
				p.advance()
				name, _ := p.ident()
				p.typeParams()
				p.expect("=")
				v := p.expr()
				return &TypeAlias{p.stmtDone(start), name, v}
			}
		}
	}
	return p.exprStmt(start)
}

func (p *parser) commaList() []Expr {
	xs := []Expr{p.starOrNamed()}
	for p.accept(",") {
		if !p.startsExpr() {
			break
		}
		xs = append(xs, p.starOrNamed())
	}
	return xs
}

func (p *parser) raise(start int32) Stmt {
	p.advance()
	r := &Raise{}
	if p.startsExpr() {
		r.X = p.expr()
		for p.accept(",") { // Python 2: raise E, value, traceback
			p.expr()
		}
		if p.accept("from") {
			r.From = p.expr()
		}
	}
	r.stmtAt = p.stmtDone(start)
	return r
}

func (p *parser) scope(start int32) Stmt {
	s := &Scope{Word: p.textOf(p.advance())}
	for {
		name, _ := p.ident()
		s.Names = append(s.Names, name)
		if !p.accept(",") {
			break
		}
	}
	s.stmtAt = p.stmtDone(start)
	return s
}

// isPy2Statement tells print "x" from print("x"), print and print = x.
func (p *parser) isPy2Statement(next token) bool {
	switch next.kind {
	case tokName, tokNumber, tokString:
		return true
	case tokKeyword:
		switch p.textOf(next) {
		case "not", "lambda", "None", "True", "False":
			return true
		}
	case tokOp:
		switch p.textOf(next) {
		case "`", "~", "{":
			return true
		case ">>":
			return p.textOf(p.peek(3)) != "="
		}
	}
	return false
}

func (p *parser) py2Call(start int32) Stmt {
	t := p.advance()
	name := &Name{p.exprDone(start), p.textOf(t)}
	if p.accept(">>") {
		p.expr()
		p.accept(",")
	}
	var args []Expr
	if p.startsExpr() {
		args = p.commaList()
	}
	call := &Call{p.exprDone(start), name, args, nil}
	return &ExprStmt{p.stmtDone(start), call}
}

func (p *parser) importStmt(start int32) Stmt {
	p.advance()
	imp := &Import{}
	for {
		pos := int(p.tok().pos)
		a := Alias{Name: p.dotted(), Pos: pos}
		if p.accept("as") {
			a.As, _ = p.ident()
		}
		imp.Names = append(imp.Names, a)
		if !p.accept(",") {
			break
		}
	}
	imp.stmtAt = p.stmtDone(start)
	return imp
}

func (p *parser) dotted() string {
	start := p.tok().pos
	p.ident()
	for p.is(".") && (p.peek(1).kind == tokName || p.peek(1).kind == tokKeyword) {
		p.advance()
		p.advance()
	}
	return p.src[start:p.toks[p.i-1].end]
}

func (p *parser) fromStmt(start int32) Stmt {
	p.advance()
	imp := &Import{IsFrom: true}
	for p.is(".") || p.is("...") {
		imp.Level += len(p.textOf(p.advance()))
	}
	if p.kind() == tokName {
		imp.Module = p.dotted()
	}
	p.expect("import")
	if p.accept("*") {
		imp.Star = true
		imp.stmtAt = p.stmtDone(start)
		return imp
	}
	parens := p.accept("(")
	for !p.is(")") {
		pos := int(p.tok().pos)
		name, _ := p.ident()
		a := Alias{Name: name, Pos: pos}
		if p.accept("as") {
			a.As, _ = p.ident()
		}
		imp.Names = append(imp.Names, a)
		if !p.accept(",") {
			break
		}
	}
	if parens {
		p.expect(")")
	}
	imp.stmtAt = p.stmtDone(start)
	return imp
}

func (p *parser) exprStmt(start int32) Stmt {
	x := p.exprList()
	if p.kind() == tokOp {
		switch op := p.text(); op {
		case "=":
			return p.assign(start, x)
		case ":":
			p.advance()
			a := &AnnAssign{Target: x, Ann: p.expr()}
			if p.accept("=") {
				a.Value = p.exprList()
			}
			a.stmtAt = p.stmtDone(start)
			return a
		case "+=", "-=", "*=", "/=", "//=", "%=", "@=", "&=", "|=", "^=", ">>=", "<<=", "**=":
			p.advance()
			v := p.exprList()
			return &AugAssign{p.stmtDone(start), op[:len(op)-1], x, v}
		}
	}
	return &ExprStmt{p.stmtDone(start), x}
}

func (p *parser) assign(start int32, first Expr) Stmt {
	a := &Assign{Targets: []Expr{first}}
	for p.accept("=") {
		if a.Value != nil {
			a.Targets = append(a.Targets, a.Value)
		}
		a.Value = p.exprList()
	}
	a.stmtAt = p.stmtDone(start)
	return a
}
