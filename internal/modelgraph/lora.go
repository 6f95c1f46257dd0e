package modelgraph

import (
	"fmt"
	"slices"
	"strings"
)

// LoRA says how low-rank adapters are put on a model's linear layers, as peft
// does it.
type LoRA struct {
	Rank    int64
	Targets []string // last parts of module paths; "all-linear" is every layer but the head
	Dropout float64
}

// WithLoRA freezes the parameters of a graph and gives the linear layers that
// are named adapters to train. Each computes base(x) + B(A(dropout(x))) · scale.
func WithLoRA(g *Graph, l LoRA) (*Graph, error) {
	if l.Rank < 1 || l.Rank > 1<<20 {
		return nil, fmt.Errorf("a rank of %d: a positive number is needed", l.Rank)
	}
	c := *g
	c.Values = slices.Clone(g.Values)
	c.Calls = slices.Clone(g.Calls)
	c.Params = slices.Clone(g.Params)
	for i := range c.Values {
		if c.Values[i].Kind == Param {
			c.Values[i].Frozen = true
		}
	}
	value := func(v Value) ValueID {
		c.Values = append(c.Values, v)
		return ValueID(len(c.Values) - 1)
	}
	c.Nodes = nil
	start := make([]int, len(g.Nodes)+1) // new index of each old node
	type pair struct{ a, b ValueID }
	adapters := map[ValueID]pair{}
	for i := range g.Nodes {
		start[i] = len(c.Nodes)
		n := g.Nodes[i]
		module := g.Calls[n.Call].Path
		if !l.adapts(g, &n, module) {
			c.Nodes = append(c.Nodes, n)
			continue
		}
		x, w := n.In[0], n.In[1]
		swapped := n.Op == "addmm" // transformers' Conv1D: [in, out]
		if swapped {
			x, w = n.In[1], n.In[2]
		}
		in, out := g.Values[w].Shape[1], g.Values[w].Shape[0]
		if swapped {
			in, out = out, in
		}
		ad, ok := adapters[w]
		if !ok {
			// Adapters stay in float32 whatever the model is in (autocast_adapter_dtype).
			ad.a = value(Value{Name: module + ".lora_A.default.weight", Kind: Param, Shape: []Dim{Const(l.Rank), in}, FixedType: true})
			ad.b = value(Value{Name: module + ".lora_B.default.weight", Kind: Param, Shape: []Dim{out, Const(l.Rank)}, FixedType: true})
			c.Params = append(c.Params, ad.a, ad.b)
			adapters[w] = ad
		}
		drops := n.Drop
		final := n.Out[0]
		base := value(Value{})
		n.Out, n.Drop = []ValueID{base}, nil
		c.Nodes = append(c.Nodes, n)
		add := func(op string, drop []ValueID, attrs []Attr, in ...ValueID) ValueID {
			o := value(Value{})
			c.Nodes = append(c.Nodes, Node{Op: op, In: in, Out: []ValueID{o}, Attrs: attrs, Call: n.Call, Drop: drop})
			return o
		}
		cast := add("type_as", nil, nil, x, ad.a)
		h, gone := cast, []ValueID(nil)
		if l.Dropout > 0 {
			h = add("dropout", nil, []Attr{Float("p", l.Dropout)}, cast)
			gone = []ValueID{h}
		}
		a := add("linear", gone, nil, h, ad.a, None)
		b := add("linear", []ValueID{a}, nil, a, ad.b, None)
		s := add("mul", []ValueID{b}, nil, b)
		sum := add("add", []ValueID{s}, nil, base, s)
		c.Nodes = append(c.Nodes, Node{Op: "type_as", In: []ValueID{sum, base}, Out: []ValueID{final}, Call: n.Call, Drop: slices.Concat([]ValueID{sum, base, cast}, drops)})
	}
	start[len(g.Nodes)] = len(c.Nodes)
	for i := range c.Calls {
		c.Calls[i].First, c.Calls[i].Last = start[c.Calls[i].First], start[c.Calls[i].Last]
	}
	if len(adapters) == 0 {
		return nil, fmt.Errorf("no linear layer is called %s: there are %s", strings.Join(l.Targets, ", "), strings.Join(linearNames(g), ", "))
	}
	return &c, nil
}

// adapts reports whether a node is the product of a layer that is to have an
// adapter.
func (l *LoRA) adapts(g *Graph, n *Node, module string) bool {
	w := None
	switch {
	case n.Op == "linear" && len(n.In) > 1:
		w = n.In[1]
	case n.Op == "addmm" && len(n.In) > 2:
		w = n.In[2]
	}
	if w == None || g.Values[w].Kind != Param || len(g.Values[w].Shape) != 2 || !strings.HasSuffix(g.Values[w].Name, module+".weight") || module == "" {
		return false
	}
	last := module[strings.LastIndexByte(module, '.')+1:]
	for _, t := range l.Targets {
		if t == last || t == "all-linear" && last != "lm_head" && last != "classifier" {
			return true
		}
	}
	return false
}

func linearNames(g *Graph) []string {
	var names []string
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.Op == "linear" || n.Op == "addmm" {
			p := g.Calls[n.Call].Path
			if last := p[strings.LastIndexByte(p, '.')+1:]; last != "" && !slices.Contains(names, last) {
				names = append(names, last)
			}
		}
	}
	return names
}
