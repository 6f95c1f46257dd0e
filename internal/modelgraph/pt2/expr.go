package pt2

import (
	"fmt"
	"strconv"
	"strings"

	"vramscope/internal/modelgraph"
)

// An export writes extents as SymPy does: since 2.7 as calls
// ("Add(Mul(Integer(2), Symbol('s0', integer=True)), Integer(1))", srepr),
// before that as a formula ("2*s0 + 1"). One grammar reads both:
//
//	sum     = product { ("+" | "-") product }
//	product = power { ("*" | "//" | "/" | "%") power }
//	power   = [ "-" ] primary [ "**" power ]
//	primary = number | name | name "(" sum { "," sum } ")" | "(" sum ")"
type exprParser struct {
	text   string
	pos    int
	depth  int
	symbol func(name string) modelgraph.Dim
	err    error
}

// maxExpr bounds the text of one extent, in bytes.
const maxExpr = 1 << 14

// parseExpr reads an extent; symbol says what a symbol stands for.
func parseExpr(text string, symbol func(string) modelgraph.Dim) (modelgraph.Dim, error) {
	p := &exprParser{text: text, symbol: symbol}
	if len(text) > maxExpr {
		return modelgraph.Dim{}, fmt.Errorf("a size of %d characters", len(text))
	}
	d := p.sum()
	p.space()
	if p.err == nil && p.pos < len(text) {
		p.fail("%q", text[p.pos:])
	}
	if p.err != nil {
		return modelgraph.Dim{}, p.err
	}
	return d, nil
}

func (p *exprParser) fail(format string, args ...any) modelgraph.Dim {
	if p.err == nil {
		p.err = fmt.Errorf("the size %q cannot be read at %s", p.text, fmt.Sprintf(format, args...))
	}
	p.pos = len(p.text)
	return modelgraph.Dim{}
}

func (p *exprParser) space() {
	for p.pos < len(p.text) && p.text[p.pos] == ' ' {
		p.pos++
	}
}

// take consumes the operator op. A "*" is not half of "**", nor "/" of "//".
func (p *exprParser) take(op string) bool {
	p.space()
	rest := p.text[p.pos:]
	if !strings.HasPrefix(rest, op) || len(op) == 1 && strings.HasPrefix(rest, op+op) && (op == "*" || op == "/") {
		return false
	}
	p.pos += len(op)
	return true
}

func (p *exprParser) sum() modelgraph.Dim {
	if p.depth++; p.depth > 100 {
		return p.fail("a nesting of more than 100")
	}
	defer func() { p.depth-- }()
	d := p.product()
	for p.err == nil {
		switch {
		case p.take("+"):
			d = d.Add(p.product())
		case p.take("-"):
			d = d.Sub(p.product())
		default:
			return d
		}
	}
	return d
}

func (p *exprParser) product() modelgraph.Dim {
	d := p.power()
	for p.err == nil {
		switch {
		case p.take("*"):
			d = d.Mul(p.power())
		case p.take("//"), p.take("/"):
			d = d.Div(p.power())
		case p.take("%"):
			d = d.Mod(p.power())
		default:
			return d
		}
	}
	return d
}

func (p *exprParser) power() modelgraph.Dim {
	if p.take("-") {
		return modelgraph.Const(-1).Mul(p.power())
	}
	d := p.primary()
	if p.take("**") {
		return p.raise(d, p.power())
	}
	return d
}

func (p *exprParser) raise(d, exponent modelgraph.Dim) modelgraph.Dim {
	n, ok := exponent.Const()
	if !ok || n < 0 || n > 8 {
		return p.fail("the exponent %s", exponent)
	}
	r := modelgraph.Const(1)
	for range n {
		r = r.Mul(d)
	}
	return r
}

func (p *exprParser) word() string {
	p.space()
	start := p.pos
	for p.pos < len(p.text) {
		c := p.text[p.pos]
		if c != '_' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			break
		}
		p.pos++
	}
	return p.text[start:p.pos]
}

func (p *exprParser) primary() modelgraph.Dim {
	if p.take("(") {
		d := p.sum()
		if !p.take(")") {
			return p.fail("%.20q, a bracket is missing", p.text[p.pos:])
		}
		return d
	}
	w := p.word()
	if w == "" {
		return p.fail("%.20q", p.text[p.pos:])
	}
	if '0' <= w[0] && w[0] <= '9' {
		v, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			return p.fail("%q", w)
		}
		return modelgraph.Const(v)
	}
	if !p.take("(") {
		return p.symbol(w)
	}
	if w == "Symbol" {
		return p.symbolCall()
	}
	var args []modelgraph.Dim
	for p.err == nil && !p.take(")") {
		if len(args) > 0 && !p.take(",") {
			return p.fail("%.20q", p.text[p.pos:])
		}
		args = append(args, p.sum())
	}
	if p.err != nil {
		return modelgraph.Dim{}
	}
	return p.call(w, args)
}

// symbolCall reads the rest of Symbol('s0', positive=True, integer=True).
func (p *exprParser) symbolCall() modelgraph.Dim {
	text, _, ok := strings.Cut(p.text[p.pos:], ")")
	name, _, _ := strings.Cut(text, ",")
	name = strings.Trim(name, `'" `)
	if !ok || name == "" {
		return p.fail("%.20q", p.text[p.pos:])
	}
	p.pos += len(text) + 1
	return p.symbol(name)
}

// call applies the functions of torch/utils/_sympy/functions.py that whole
// numbers can have.
func (p *exprParser) call(name string, args []modelgraph.Dim) modelgraph.Dim {
	fold := func(f func(a, b modelgraph.Dim) modelgraph.Dim) modelgraph.Dim {
		d := args[0]
		for _, a := range args[1:] {
			d = f(d, a)
		}
		return d
	}
	switch {
	case len(args) == 0:
	case name == "Integer" && len(args) == 1, name == "ToFloat", name == "TruncToInt", name == "CeilToInt", name == "FloorToInt", name == "Identity":
		return args[0]
	case name == "Add":
		return fold(modelgraph.Dim.Add)
	case name == "Mul":
		return fold(modelgraph.Dim.Mul)
	case name == "Max":
		return fold(modelgraph.Dim.Max)
	case name == "Min":
		return fold(modelgraph.Dim.Min)
	case len(args) != 2:
	case name == "FloorDiv", name == "CleanDiv", name == "IntTrueDiv":
		return args[0].Div(args[1])
	case name == "CeilDiv":
		return args[0].Add(args[1]).Sub(modelgraph.Const(1)).Div(args[1])
	case name == "Mod", name == "PythonMod":
		return args[0].Mod(args[1])
	case name == "Pow", name == "PowByNatural":
		return p.raise(args[0], args[1])
	}
	return p.fail("%s of %d arguments", name, len(args))
}
