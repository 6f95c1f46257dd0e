package pysource

// exprList reads a, b, *c: a tuple where there is a comma, else the expression.
func (p *parser) exprList() Expr {
	start := p.start()
	first := p.starOrNamed()
	if !p.is(",") {
		return first
	}
	elts := []Expr{first}
	for p.accept(",") {
		if !p.startsExpr() {
			break
		}
		elts = append(elts, p.starOrNamed())
	}
	return &Sequence{p.exprDone(start), '(', elts}
}

// startsExpr reports whether an expression can begin here.
func (p *parser) startsExpr() bool {
	switch p.kind() {
	case tokName, tokNumber, tokString:
		return true
	case tokKeyword:
		switch p.text() {
		case "not", "lambda", "None", "True", "False", "yield":
			return true
		}
	case tokOp:
		switch p.text() {
		case "(", "[", "{", "-", "+", "~", "*", "**", "...", "`":
			return true
		}
	}
	return false
}

func (p *parser) starOrNamed() Expr {
	if p.is("*") || p.inPattern && p.is("**") {
		start := p.start()
		p.advance()
		x := p.binary(precBitOr)
		return &Starred{p.exprDone(start), x}
	}
	return p.named()
}

// named reads an expression, which may be name := value, or a pattern with as.
func (p *parser) named() Expr {
	start := p.start()
	x := p.expr()
	switch {
	case p.is(":="):
		p.advance()
		v := p.expr()
		return &Walrus{p.exprDone(start), x, v}
	case p.inPattern && p.is("as"):
		p.advance()
		ns := p.start()
		name, _ := p.ident()
		n := &Name{p.exprDone(ns), name}
		return &Walrus{p.exprDone(start), n, x}
	}
	return x
}

// expr reads a full expression without := at its top.
func (p *parser) expr() Expr {
	p.enter()
	defer p.leave()
	start := p.start()
	switch {
	case p.is("lambda"):
		return p.lambda()
	case p.is("yield"):
		return p.yield()
	}
	x := p.or()
	if !p.is("if") || p.inPattern {
		return x
	}
	p.advance()
	test := p.or()
	p.expect("else")
	els := p.expr()
	return &Cond{p.exprDone(start), test, x, els}
}

func (p *parser) yield() Expr {
	start := p.start()
	p.advance()
	if p.accept("from") {
		x := p.expr()
		return &Yield{p.exprDone(start), x, true}
	}
	var x Expr
	if p.startsExpr() {
		x = p.exprList()
	}
	return &Yield{p.exprDone(start), x, false}
}

func (p *parser) lambda() Expr {
	start := p.start()
	p.advance()
	params := p.params(":", false)
	p.expect(":")
	body := p.expr()
	return &Lambda{p.exprDone(start), params, body}
}

func (p *parser) or() Expr { return p.boolean("or", p.and) }

func (p *parser) and() Expr { return p.boolean("and", p.not) }

func (p *parser) boolean(op string, operand func() Expr) Expr {
	start := p.start()
	x := operand()
	if !p.is(op) {
		return x
	}
	xs := []Expr{x}
	for p.accept(op) {
		xs = append(xs, operand())
	}
	return &Bool{p.exprDone(start), op, xs}
}

func (p *parser) not() Expr {
	if !p.is("not") {
		return p.comparison()
	}
	p.enter()
	defer p.leave()
	start := p.start()
	p.advance()
	x := p.not()
	return &Unary{p.exprDone(start), "not", x}
}

func (p *parser) comparison() Expr {
	start := p.start()
	x := p.binary(precBitOr)
	op := p.comparisonOp()
	if op == "" {
		return x
	}
	xs, ops := []Expr{x}, []string(nil)
	for ; op != ""; op = p.comparisonOp() {
		ops = append(ops, op)
		xs = append(xs, p.binary(precBitOr))
	}
	return &Compare{p.exprDone(start), ops, xs}
}

// comparisonOp takes a comparison operator, if there is one.
func (p *parser) comparisonOp() string {
	t := p.tok()
	if t.kind != tokOp && t.kind != tokKeyword {
		return ""
	}
	switch s := p.textOf(t); s {
	case "<", ">", "<=", ">=", "==", "!=", "<>":
		p.advance()
		return s
	case "in":
		if p.noIn {
			return ""
		}
		p.advance()
		return s
	case "not":
		if next := p.peek(1); p.textOf(next) == "in" {
			p.advance()
			p.advance()
			return "not in"
		}
	case "is":
		p.advance()
		if p.accept("not") {
			return "is not"
		}
		return s
	}
	return ""
}

const (
	precBitOr = 1 + iota
	precBitXor
	precBitAnd
	precShift
	precSum
	precProduct
)

func precedence(op string) int {
	switch op {
	case "|":
		return precBitOr
	case "^":
		return precBitXor
	case "&":
		return precBitAnd
	case "<<", ">>":
		return precShift
	case "+", "-":
		return precSum
	case "*", "/", "//", "%", "@":
		return precProduct
	}
	return 0
}

func (p *parser) binary(min int) Expr {
	start := p.start()
	x := p.unary()
	for n := 0; p.kind() == tokOp; n++ {
		op := p.text()
		prec := precedence(op)
		if prec < min || prec == 0 {
			break
		}
		if n > maxChain {
			p.fail("an expression of too many parts to read")
		}
		p.advance()
		y := p.binary(prec + 1)
		x = &Binary{p.exprDone(start), op, x, y}
	}
	return x
}

func (p *parser) unary() Expr {
	if p.kind() == tokOp {
		switch op := p.text(); op {
		case "-", "+", "~":
			p.enter()
			defer p.leave()
			start := p.start()
			p.advance()
			x := p.unary()
			return &Unary{p.exprDone(start), op, x}
		}
	}
	return p.power()
}

func (p *parser) power() Expr {
	start := p.start()
	x := p.awaited()
	if !p.is("**") || p.inPattern {
		return x
	}
	p.enter()
	defer p.leave()
	p.advance()
	y := p.unary()
	return &Binary{p.exprDone(start), "**", x, y}
}

func (p *parser) awaited() Expr {
	if p.isName("await") {
		switch next := p.peek(1); next.kind {
		case tokName, tokNumber, tokString:
			return p.await()
		case tokOp:
			if s := p.textOf(next); s == "(" || s == "[" || s == "{" {
				return p.await()
			}
		}
	}
	return p.primary()
}

func (p *parser) await() Expr {
	start := p.start()
	p.advance()
	x := p.primary()
	return &Await{p.exprDone(start), x}
}

func (p *parser) primary() Expr {
	start := p.start()
	x := p.atom()
	for n := 0; p.kind() == tokOp; n++ {
		if n > maxChain {
			p.fail("an expression of too many parts to read")
		}
		switch p.text() {
		case ".":
			p.advance()
			if k := p.kind(); k != tokName && k != tokKeyword {
				p.fail("expected a name after the dot")
			}
			t := p.advance()
			x = &Attribute{p.exprDone(start), x, p.textOf(t), int(t.pos)}
		case "(":
			x = p.call(start, x)
		case "[":
			p.enter()
			p.advance()
			idx := p.index()
			p.expect("]")
			p.leave()
			x = &Subscript{p.exprDone(start), x, idx}
		default:
			return x
		}
	}
	return x
}

func (p *parser) call(start int32, fun Expr) Expr {
	p.enter()
	p.advance()
	args, keywords := p.arguments()
	p.expect(")")
	p.leave()
	return &Call{p.exprDone(start), fun, args, keywords}
}

func (p *parser) arguments() (args []Expr, keywords []*Keyword) {
	defer func(noIn bool) { p.noIn = noIn }(p.noIn)
	p.noIn = false
	for !p.is(")") {
		start := p.start()
		switch {
		case p.accept("**"):
			v := p.expr()
			keywords = append(keywords, &Keyword{p.done(start), "", v})
		case p.accept("*"):
			v := p.expr()
			args = append(args, &Starred{p.exprDone(start), v})
		case p.kind() == tokName && p.textOf(p.peek(1)) == "=" || p.isDebugKeyword():
			name := p.textOf(p.advance())
			p.advance()
			var v Expr
			if p.inPattern {
				v = p.named()
			} else {
				v = p.expr()
			}
			keywords = append(keywords, &Keyword{p.done(start), name, v})
		default:
			x := p.named()
			if p.isCompFor() {
				x = p.comprehension(start, '(', x, nil)
			}
			args = append(args, x)
		}
		if !p.accept(",") {
			break
		}
	}
	return args, keywords
}

// isDebugKeyword allows Python 2's f(None=1) and f(print=x).
func (p *parser) isDebugKeyword() bool {
	return p.kind() == tokKeyword && p.textOf(p.peek(1)) == "="
}

func (p *parser) index() Expr {
	defer func(noIn bool) { p.noIn = noIn }(p.noIn)
	p.noIn = false
	start := p.start()
	first := p.slice()
	if !p.is(",") {
		return first
	}
	elts := []Expr{first}
	for p.accept(",") {
		if p.is("]") {
			break
		}
		elts = append(elts, p.slice())
	}
	return &Sequence{p.exprDone(start), '(', elts}
}

func (p *parser) slice() Expr {
	start := p.start()
	var lo, hi, step Expr
	if !p.is(":") {
		lo = p.starOrNamed()
		if !p.is(":") {
			return lo
		}
	}
	p.advance()
	if p.startsExpr() {
		hi = p.expr()
	}
	if p.accept(":") && p.startsExpr() {
		step = p.expr()
	}
	return &Slice{p.exprDone(start), lo, hi, step}
}

func (p *parser) atom() Expr {
	start := p.start()
	switch p.kind() {
	case tokName:
		t := p.advance()
		return &Name{p.exprDone(start), p.textOf(t)}
	case tokNumber:
		t := p.advance()
		return &Number{p.exprDone(start), p.textOf(t)}
	case tokString:
		return p.stringLiteral()
	case tokKeyword:
		switch s := p.text(); s {
		case "None", "True", "False":
			p.advance()
			return &Constant{p.exprDone(start), s}
		}
	case tokOp:
		switch p.text() {
		case "(":
			return p.bracketed(start, '(', ")")
		case "[":
			return p.bracketed(start, '[', "]")
		case "{":
			return p.braces(start)
		case "...":
			p.advance()
			return &Constant{p.exprDone(start), "..."}
		case "`": // Python 2: repr
			p.enter()
			p.advance()
			x := p.exprList()
			p.expect("`")
			p.leave()
			return &Unary{p.exprDone(start), "`", x}
		}
	}
	p.fail("expected an expression")
	return nil
}

func (p *parser) isCompFor() bool {
	return p.is("for") || p.isName("async") && p.textOf(p.peek(1)) == "for"
}

func (p *parser) bracketed(start int32, kind byte, closer string) Expr {
	p.enter()
	defer p.leave()
	defer func(noIn bool) { p.noIn = noIn }(p.noIn)
	p.noIn = false
	p.advance()
	if p.accept(closer) {
		return &Sequence{p.exprDone(start), kind, nil}
	}
	first := p.starOrNamed()
	if p.isCompFor() {
		x := p.comprehension(start, kind, first, nil)
		p.expect(closer)
		x.end = p.toks[p.i-1].end
		return x
	}
	if kind == '(' && p.accept(closer) {
		return first
	}
	elts := []Expr{first}
	for p.accept(",") {
		if p.is(closer) {
			break
		}
		elts = append(elts, p.starOrNamed())
	}
	p.expect(closer)
	return &Sequence{p.exprDone(start), kind, elts}
}

// comprehension reads the for and if parts after elt (and value).
func (p *parser) comprehension(start int32, kind byte, elt, value Expr) *Comp {
	var fors []*CompFor
	for p.isCompFor() {
		fs := p.start()
		if p.isName("async") {
			p.advance()
		}
		p.advance()
		target := p.target()
		p.expect("in")
		// Python 2 allows [x for x in 1, 2, 3] in lists; a condition without
		// parentheses may not hold `if … else`.
		iter := p.compOperand()
		if kind == '[' && p.is(",") {
			elts := []Expr{iter}
			for p.accept(",") && p.startsExpr() {
				elts = append(elts, p.or())
			}
			iter = &Sequence{p.exprDone(int32(iter.Pos())), '(', elts}
		}
		var ifs []Expr
		for p.accept("if") {
			ifs = append(ifs, p.compCondition())
		}
		fors = append(fors, &CompFor{p.done(fs), target, iter, ifs})
	}
	return &Comp{p.exprDone(start), kind, elt, value, fors}
}

func (p *parser) compOperand() Expr {
	if p.is("lambda") {
		return p.expr()
	}
	return p.or()
}

func (p *parser) compCondition() Expr {
	start := p.start()
	x := p.compOperand()
	if p.accept(":=") {
		v := p.or()
		return &Walrus{p.exprDone(start), x, v}
	}
	return x
}

// target reads the target of a for: an expression list that ends at `in`.
func (p *parser) target() Expr {
	defer func(noIn bool) { p.noIn = noIn }(p.noIn)
	p.noIn = true
	start := p.start()
	one := func() Expr {
		s := p.start()
		if p.accept("*") {
			x := p.binary(precBitOr)
			return &Starred{p.exprDone(s), x}
		}
		return p.binary(precBitOr)
	}
	first := one()
	if !p.is(",") {
		return first
	}
	elts := []Expr{first}
	for p.accept(",") {
		if p.is("in") || p.is("=") {
			break
		}
		elts = append(elts, one())
	}
	return &Sequence{p.exprDone(start), '(', elts}
}

func (p *parser) braces(start int32) Expr {
	p.enter()
	defer p.leave()
	defer func(noIn bool) { p.noIn = noIn }(p.noIn)
	p.noIn = false
	p.advance()
	if p.accept("}") {
		return &Dict{p.exprDone(start), nil, nil}
	}
	if p.is("**") {
		return p.dict(start, nil, nil)
	}
	first := p.starOrNamed()
	if p.accept(":") {
		v := p.dictValue()
		if p.isCompFor() {
			x := p.comprehension(start, ':', first, v)
			p.expect("}")
			x.end = p.toks[p.i-1].end
			return x
		}
		if !p.is("}") {
			p.expect(",")
		}
		return p.dict(start, []Expr{first}, []Expr{v})
	}
	if p.isCompFor() {
		x := p.comprehension(start, '{', first, nil)
		p.expect("}")
		x.end = p.toks[p.i-1].end
		return x
	}
	elts := []Expr{first}
	for p.accept(",") {
		if p.is("}") {
			break
		}
		elts = append(elts, p.starOrNamed())
	}
	p.expect("}")
	return &Sequence{p.exprDone(start), '{', elts}
}

func (p *parser) dictValue() Expr {
	if p.inPattern {
		return p.named()
	}
	return p.expr()
}

func (p *parser) dict(start int32, keys, values []Expr) Expr {
	for !p.is("}") {
		if p.accept("**") {
			keys = append(keys, nil)
			values = append(values, p.binary(precBitOr))
		} else {
			k := p.expr()
			p.expect(":")
			keys = append(keys, k)
			values = append(values, p.dictValue())
		}
		if !p.accept(",") {
			break
		}
	}
	p.expect("}")
	return &Dict{p.exprDone(start), keys, values}
}
