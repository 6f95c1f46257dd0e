package modelgraph

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Dim is an extent that may depend on symbols: a constant, or an expression
// over the batch, the sequence length, the image size. The zero Dim is 0.
type Dim struct {
	k int64
	e *dimExpr
}

type dimExpr struct {
	op   byte // 's' symbol, or one of + * / % M (maximum) m (minimum)
	sym  string
	a, b Dim
	n    int // the expression's size: symbols and operators
}

// maxDimSize limits expressions. Parts of one may be shared, so that a file
// could make one that takes longer than the universe to evaluate with a few
// dozen doublings.
const maxDimSize = 1 << 12

// size is the number of symbols and operators of a Dim.
func (d Dim) size() int {
	if d.e == nil {
		return 0
	}
	return d.e.n
}

// The symbols that readers use. Others are allowed.
var (
	Batch      = Sym("batch")
	Seq        = Sym("seq")
	EncoderSeq = Sym("encoder_seq") // of the encoder, where it has its own
	ImageH     = Sym("image_height")
	ImageW     = Sym("image_width")
)

// Const is a Dim that is always n.
func Const(n int64) Dim { return Dim{k: n} }

// Consts are constant Dims.
func Consts(n ...int64) []Dim {
	d := make([]Dim, len(n))
	for i, v := range n {
		d[i].k = v
	}
	return d
}

// Sym is a Dim that Binding gives a value.
func Sym(name string) Dim { return Dim{e: &dimExpr{op: 's', sym: name, n: 1}} }

func (d Dim) binary(op byte, o Dim) Dim {
	r := Dim{e: &dimExpr{op: op, a: d, b: o, n: min(d.size()+o.size()+1, maxDimSize+1)}}
	if d.e == nil && o.e == nil {
		if v, err := r.Eval(nil); err == nil {
			return Const(v)
		}
	}
	return r
}

// Add returns d + o.
func (d Dim) Add(o Dim) Dim { return d.binary('+', o) }

// Sub returns d - o.
func (d Dim) Sub(o Dim) Dim { return d.binary('+', o.Mul(Const(-1))) }

// Mul returns d * o.
func (d Dim) Mul(o Dim) Dim { return d.binary('*', o) }

// Div returns d / o, rounded down.
func (d Dim) Div(o Dim) Dim { return d.binary('/', o) }

// Mod returns d modulo o, with the sign of o.
func (d Dim) Mod(o Dim) Dim { return d.binary('%', o) }

// Max returns the greater of d and o.
func (d Dim) Max(o Dim) Dim { return d.binary('M', o) }

// Min returns the lesser of d and o.
func (d Dim) Min(o Dim) Dim { return d.binary('m', o) }

// Const returns the value of a Dim that depends on no symbol.
func (d Dim) Const() (int64, bool) { return d.k, d.e == nil }

// Binding gives symbols their values.
type Binding map[string]int64

// Eval computes the extent. The error names the symbol that has no value, or
// says that a size overflows 63 bits or is divided by zero.
func (d Dim) Eval(b Binding) (int64, error) {
	if d.e == nil {
		return d.k, nil
	}
	if d.e.n > maxDimSize {
		return 0, fmt.Errorf("a size is an expression of more than %d operators", maxDimSize)
	}
	if d.e.op == 's' {
		v, ok := b[d.e.sym]
		if !ok {
			return 0, fmt.Errorf("%s is not given", d.e.sym)
		}
		return v, nil
	}
	x, err := d.e.a.Eval(b)
	if err != nil {
		return 0, err
	}
	y, err := d.e.b.Eval(b)
	if err != nil {
		return 0, err
	}
	switch d.e.op {
	case '+':
		r := x + y
		if (r > x) != (y > 0) {
			return 0, fmt.Errorf("%s is too large", d)
		}
		return r, nil
	case '*':
		return MulSizes(x, y)
	case 'M':
		return max(x, y), nil
	case 'm':
		return min(x, y), nil
	}
	if y == 0 {
		return 0, fmt.Errorf("%s divides by zero", d)
	}
	q, m := x/y, x%y
	if m != 0 && (m < 0) != (y < 0) {
		q, m = q-1, m+y
	}
	if d.e.op == '%' {
		return m, nil
	}
	return q, nil
}

// MulSizes multiplies extents, with an error where the product overflows.
func MulSizes(x ...int64) (int64, error) {
	r := int64(1)
	for _, v := range x {
		neg := (r < 0) != (v < 0)
		hi, lo := bits.Mul64(abs(r), abs(v))
		if hi != 0 || lo > 1<<62 {
			return 0, fmt.Errorf("a size of %d × %d is too large", r, v)
		}
		r = int64(lo)
		if neg {
			r = -r
		}
	}
	return r, nil
}

func abs(v int64) uint64 {
	if v < 0 {
		return uint64(-v)
	}
	return uint64(v)
}

func (d Dim) String() string {
	if d.e == nil {
		return strconv.FormatInt(d.k, 10)
	}
	if d.e.op == 's' {
		return d.e.sym
	}
	if d.e.n > maxDimSize {
		return "(an expression of many operators)"
	}
	name := map[byte]string{'M': "max", 'm': "min"}[d.e.op]
	if name != "" {
		return fmt.Sprintf("%s(%s, %s)", name, d.e.a, d.e.b)
	}
	return fmt.Sprintf("(%s %c %s)", d.e.a, d.e.op, d.e.b)
}

func dimsString(dims []Dim) string {
	s := make([]string, len(dims))
	for i, d := range dims {
		s[i] = d.String()
	}
	return "[" + strings.Join(s, ", ") + "]"
}
