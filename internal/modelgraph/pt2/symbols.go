package pt2

import (
	"math"
	"strings"

	"vramscope/internal/modelgraph"
)

// symbols maps the symbols of the export to those of the graph.
type symbols struct {
	byName map[string]modelgraph.Dim
	dims   map[string]modelgraph.Dim // by the text of the expression
	order  []string
	known  map[string]*modelgraph.Symbol
	ranges map[string]bounds
	inputs []namedInput
	static map[string]uint64 // by input, the static axes that are open all the same
}

func newSymbols(p *program) *symbols {
	s := &symbols{byName: map[string]modelgraph.Dim{}, dims: map[string]modelgraph.Dim{}, known: map[string]*modelgraph.Symbol{}, ranges: p.ranges, static: map[string]uint64{}}
	var inputs []namedInput
	for _, spec := range p.inputs {
		if spec.kind == "user_input" && spec.arg.kind == argTensor {
			if meta, ok := p.graph.tensors[spec.arg.text]; ok {
				inputs = append(inputs, namedInput{spec.arg.text, meta})
			}
		}
	}
	s.inputs = inputs
	for _, in := range inputs {
		for axis, v := range in.meta.sizes {
			name := axisSymbol(in, axis, inputs)
			if sym := soleSymbol(v.expr); sym != "" && name != "" {
				s.add(sym, name, v.value)
			}
		}
	}
	return s
}

type namedInput struct {
	name string
	meta tensorMeta
}

func axisSymbol(in namedInput, axis int, all []namedInput) string {
	names := make([]string, len(all))
	for i, o := range all {
		names[i] = o.name
	}
	return modelgraph.AxisSymbol(in.name, len(in.meta.sizes), axis, scalarTypes[in.meta.dtype], names)
}

// soleSymbol returns the symbol that an expression consists of, or "".
func soleSymbol(expr string) string {
	name := expr
	if rest, ok := strings.CutPrefix(expr, "Symbol("); ok {
		name, _, _ = strings.Cut(rest, ",")
		name = strings.Trim(name, `'")`)
	}
	for _, c := range name {
		if c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return ""
		}
	}
	if name == "" || name[0] <= '9' {
		return ""
	}
	return name
}

// add makes the export's symbol sym stand for the graph's symbol name. An
// encoder that has the decoder's length shares its symbol.
func (s *symbols) add(sym, name string, value int64) {
	if _, ok := s.byName[sym]; ok {
		return
	}
	s.byName[sym] = modelgraph.Sym(name)
	k := s.known[name]
	if k == nil {
		k = &modelgraph.Symbol{Name: name, Min: 1, Max: modelgraph.NoLimit}
		s.known[name] = k
		s.order = append(s.order, name)
	}
	if value > 0 && k.Value == 0 {
		k.Value = value
	}
	if b, ok := s.ranges[sym]; ok {
		if b.hasMin {
			k.Min = max(k.Min, b.min)
		}
		// PyTorch writes "no limit" as null, or as a number near 2^63.
		if b.hasMax && b.max < math.MaxInt64/2 {
			k.Max = min(k.Max, b.max)
		}
	}
}

// addFixed adds a symbol for static axes; why says what fixes them.
func (s *symbols) addFixed(name string, value int64, why string) {
	s.known[name] = &modelgraph.Symbol{Name: name, Value: value, Min: 1, Max: modelgraph.NoLimit, Fixed: why}
	s.order = append(s.order, name)
}

// symbol is the Dim of an export's symbol. Those that no axis of an input
// explains keep their names.
func (s *symbols) symbol(sym string) modelgraph.Dim {
	if _, ok := s.byName[sym]; !ok {
		s.add(sym, sym, 0)
	}
	return s.byName[sym]
}

func (s *symbols) list() []modelgraph.Symbol {
	out := make([]modelgraph.Symbol, len(s.order))
	for i, name := range s.order {
		out[i] = *s.known[name]
	}
	return out
}
