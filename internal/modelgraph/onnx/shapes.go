package onnx

import (
	"fmt"
	"strconv"
	"strings"

	"vramscope/internal/modelgraph"
)

// shapes infers sizes with symbols. A size is compared with another by its
// values in a few bindings of the symbols, the probes, which also keeps one
// expression for each size that occurs.
type shapes struct {
	symbols []modelgraph.Symbol
	probes  []modelgraph.Binding
	opened  []string // opened[i] is doubled, alone, in probes[free+i]
	fixed   map[string]string
	names   []string // of the inputs
	open    map[string]bool
	params  map[string]modelgraph.Dim // the file's names of sizes
	canon   map[[maxProbes]int64]modelgraph.Dim
}

const (
	free      = 3 // probes in which all symbols differ
	maxProbes = free + 5
)

func newShapes(p *modelProto, open map[string]bool) *shapes {
	s := &shapes{fixed: map[string]string{}, open: open, params: map[string]modelgraph.Dim{}, canon: map[[maxProbes]int64]modelgraph.Dim{}}
	inits := map[string]bool{}
	for i := range p.graph.inits {
		inits[p.graph.inits[i].name] = true
	}
	var ins []*valueInfo
	for i := range p.graph.inputs {
		if in := &p.graph.inputs[i]; !inits[in.name] {
			s.names = append(s.names, in.name)
			ins = append(ins, in)
		}
	}
	for _, in := range ins {
		for axis, d := range in.dims {
			name := s.axis(in, axis)
			switch {
			case d.param != "" && s.params[d.param] == (modelgraph.Dim{}):
				if name == "" {
					name = d.param
				}
				s.params[d.param] = modelgraph.Sym(name)
				s.symbol(name, 0)
			case d.param == "" && name != "" && d.value > 0:
				s.symbol(name, d.value)
			}
		}
	}
	if len(s.symbols) <= maxSymbols {
		s.probe()
	}
	return s
}

// maxSymbols is how many sizes a file may leave open.
const maxSymbols = 200

func (s *shapes) axis(in *valueInfo, axis int) string {
	return modelgraph.AxisSymbol(in.name, len(in.dims), axis, elementTypes[in.dtype], s.names)
}

// symbol notes a symbol; value is 0 where the file leaves the size open.
func (s *shapes) symbol(name string, value int64) {
	if len(s.symbols) > maxSymbols {
		return
	}
	for _, k := range s.symbols {
		if k.Name == name {
			return
		}
	}
	s.symbols = append(s.symbols, modelgraph.Symbol{Name: name, Value: value, Min: 1, Max: modelgraph.NoLimit})
	if value > 0 && s.open[name] && len(s.opened) < maxProbes-free {
		s.opened = append(s.opened, name)
	}
}

// probe chooses the probes. Where the file does not say a size, a small one
// that many architectures accept.
func (s *shapes) probe() {
	usual := map[string]int64{"batch": 4, "seq": 64, "encoder_seq": 96, "image_height": 224, "image_width": 224}
	base := modelgraph.Binding{}
	for i, k := range s.symbols {
		v := k.Value
		if v == 0 {
			v = usual[k.Name]
		}
		if v == 0 {
			v = 32 + 2*int64(i)
		}
		base[k.Name] = v
	}
	scaled := func(factor func(i int) int64) modelgraph.Binding {
		b := modelgraph.Binding{}
		for i, k := range s.symbols {
			b[k.Name] = base[k.Name] * factor(i)
		}
		return b
	}
	s.probes = []modelgraph.Binding{
		base,
		scaled(func(i int) int64 { return int64(2 + i) }),
		scaled(func(i int) int64 { return int64(3 + 2*i) }),
	}
	for _, name := range s.opened {
		s.probes = append(s.probes, scaled(func(i int) int64 {
			if s.symbols[i].Name == name {
				return 2
			}
			return 1
		}))
	}
}

// input is the shape of an input, with symbols for what is open.
func (s *shapes) input(in *valueInfo) []modelgraph.Dim {
	shape := make([]modelgraph.Dim, len(in.dims))
	for axis, d := range in.dims {
		name := s.axis(in, axis)
		switch {
		case d.param != "":
			shape[axis] = s.params[d.param]
		case name != "" && s.isOpen(name, d.value):
			shape[axis] = modelgraph.Sym(name)
		default:
			shape[axis] = modelgraph.Const(max(d.value, 0))
		}
	}
	return s.simplify(shape)
}

func (s *shapes) isOpen(name string, value int64) bool {
	for i, k := range s.symbols {
		if k.Name == name {
			for _, o := range s.opened {
				if o == name && s.symbols[i].Value == value {
					return true
				}
			}
		}
	}
	return false
}

// info is the shape that the file gives for a value. Sizes with names that no
// input has are not understood.
func (s *shapes) info(v *valueInfo) ([]modelgraph.Dim, bool) {
	if v == nil || !v.shape || len(s.opened) > 0 {
		return nil, false // with sizes opened, the file's are too narrow
	}
	shape := make([]modelgraph.Dim, len(v.dims))
	for i, d := range v.dims {
		switch known, ok := s.params[d.param]; {
		case d.param == "" && d.value >= 0:
			shape[i] = modelgraph.Const(d.value)
		case ok:
			shape[i] = known
		default:
			n, sym, ok := strings.Cut(d.param, "*")
			k, err := strconv.ParseInt(n, 10, 64)
			known, is := s.params[sym]
			if !ok || err != nil || !is {
				return nil, false
			}
			shape[i] = known.Mul(modelgraph.Const(k))
		}
	}
	return s.simplify(shape), true
}

// values are the values of a size in the probes. ok is false where it has none.
func (s *shapes) values(d modelgraph.Dim) (v [maxProbes]int64, ok bool) {
	for i, b := range s.probes {
		n, err := d.Eval(b)
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

// simplify replaces sizes by the first expression of the same values.
func (s *shapes) simplify(shape []modelgraph.Dim) []modelgraph.Dim {
	for i, d := range shape {
		if _, ok := d.Const(); ok {
			continue
		}
		if v, ok := s.values(d); ok {
			if first, ok := s.canon[v]; ok {
				shape[i] = first
			} else {
				s.canon[v] = d
			}
		}
	}
	return shape
}

// equal reports whether two sizes are the same in all probes.
func (s *shapes) equal(a, b modelgraph.Dim) bool {
	if x, ok := a.Const(); ok {
		if y, ok := b.Const(); ok {
			return x == y
		}
	}
	x, ok1 := s.values(a)
	y, ok2 := s.values(b)
	return ok1 && ok2 && x == y
}

// follow notes the opened symbols with which a condition that holds as
// exported holds no more: why says what the node has. It reports whether the
// condition holds as exported.
func (s *shapes) follow(why string, holds func(b modelgraph.Binding) bool) bool {
	if !holds(s.probes[0]) {
		return false
	}
	for i, name := range s.opened {
		if _, known := s.fixed[name]; !known && !holds(s.probes[free+i]) {
			s.fixed[name] = why
		}
	}
	return true
}

// product multiplies sizes at a binding; 0 where that is not possible.
func product(shape []modelgraph.Dim, b modelgraph.Binding) int64 {
	v := make([]int64, 0, 8)
	for _, d := range shape {
		n, err := d.Eval(b)
		if err != nil {
			return 0
		}
		v = append(v, n)
	}
	n, err := modelgraph.MulSizes(append(v, 1)...)
	if err != nil {
		return 0
	}
	return n
}

func dimsText(shape []modelgraph.Dim) string {
	parts := make([]string, len(shape))
	for i, d := range shape {
		parts[i] = d.String()
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// literal describes the current node for follow.
func (r *builder) literal(format string, args ...any) string {
	return fmt.Sprintf("node %s (%s) ", r.nodeName(), r.n.op) + fmt.Sprintf(format, args...)
}

// broadcast is the shape of an elementwise operator's result.
func (r *builder) broadcast(ts ...*tensor) []modelgraph.Dim {
	rank := 0
	for _, t := range ts {
		if !t.known {
			return nil
		}
		rank = max(rank, len(t.shape))
	}
	out := make([]modelgraph.Dim, rank)
	for i := range out {
		out[i] = modelgraph.Const(1)
		for _, t := range ts {
			j := i - rank + len(t.shape)
			if j < 0 {
				continue
			}
			d := t.shape[j]
			if n, ok := d.Const(); ok && n == 1 {
				continue
			}
			if n, ok := out[i].Const(); ok && n == 1 {
				out[i] = d
				continue
			}
			r.same(out[i], d)
			if _, literal := out[i].Const(); !literal {
				continue
			}
			out[i] = d
		}
	}
	return out
}

// same notes what is fixed by two sizes that must be equal.
func (r *builder) same(a, b modelgraph.Dim) {
	if r.shapes.equal(a, b) {
		return
	}
	r.shapes.follow(r.literal("has %s where it needs %s", a, b), func(p modelgraph.Binding) bool {
		x, err1 := a.Eval(p)
		y, err2 := b.Eval(p)
		return err1 == nil && err2 == nil && x == y
	})
}
