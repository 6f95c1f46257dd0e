package modelgraph

import (
	"fmt"
	"slices"
	"strings"
)

// Builder makes a Graph, in the order in which the model runs. Errors stick:
// Finish returns the first.
type Builder struct {
	g       Graph
	names   map[string]ValueID // parameters and buffers
	call    int                // the current call
	held    []held
	touched []touched
	err     error
}

type touched struct {
	v          ValueID
	node, call int
}

type held struct {
	v    ValueID
	call int
}

// NewBuilder starts a graph.
func NewBuilder(name, source string) *Builder {
	return &Builder{
		g:     Graph{Name: name, Source: source, Calls: []Call{{Parent: -1}}},
		names: map[string]ValueID{},
	}
}

// Fail records an error.
func (b *Builder) Fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf(format, args...)
	}
}

// Err returns the first error.
func (b *Builder) Err() error { return b.err }

// Assume notes what was taken for granted.
func (b *Builder) Assume(format string, args ...any) {
	b.g.Assumptions = append(b.g.Assumptions, fmt.Sprintf(format, args...))
}

func (b *Builder) value(v Value) ValueID {
	b.g.Values = append(b.g.Values, v)
	return ValueID(len(b.g.Values) - 1)
}

// Param declares a parameter. Declare in the order of named_parameters.
func (b *Builder) Param(name string, shape ...int64) ValueID {
	return b.declare(Value{Name: name, Kind: Param, Shape: Consts(shape...)})
}

// Buffer declares a buffer.
func (b *Builder) Buffer(name string, t DType, shape ...int64) ValueID {
	return b.declare(Value{Name: name, Kind: Buffer, DType: t, Shape: Consts(shape...)})
}

// Declare declares a parameter or buffer in full.
func (b *Builder) Declare(v Value) ValueID { return b.declare(v) }

func (b *Builder) declare(v Value) ValueID {
	if id, ok := b.names[v.Name]; ok {
		b.Fail("%s is declared twice", v.Name)
		return id
	}
	for _, d := range v.Shape {
		if k, ok := d.Const(); !ok || k < 0 {
			b.Fail("%s has the shape %s", v.Name, dimsString(v.Shape))
		}
	}
	id := b.value(v)
	b.names[v.Name] = id
	b.g.Params = append(b.g.Params, id)
	return id
}

// Input declares what each step brings.
func (b *Builder) Input(name string, t DType, shape ...Dim) ValueID {
	id := b.value(Value{Name: name, Kind: Input, DType: t, Shape: shape})
	b.g.Inputs = append(b.g.Inputs, id)
	return id
}

// Ints is an attribute of integers.
func Ints(key string, v ...int64) Attr { return Attr{Key: key, Ints: Consts(v...)} }

// Dims is an attribute of extents.
func Dims(key string, v ...Dim) Attr { return Attr{Key: key, Ints: v} }

// Float is an attribute that is a number.
func Float(key string, v float64) Attr { return Attr{Key: key, Float: v} }

// Str is an attribute that is a word.
func Str(key, v string) Attr { return Attr{Key: key, Str: v} }

// Flag is an attribute that is true.
func Flag(key string) Attr { return Ints(key, 1) }

// Op adds a node with one result. Arguments are ValueIDs, in ATen's order, and
// Attrs.
func (b *Builder) Op(op string, args ...any) ValueID { return b.Ops(op, 1, args...)[0] }

// Ops adds a node with n results.
func (b *Builder) Ops(op string, n int, args ...any) []ValueID {
	node := Node{Op: op, Call: b.call}
	for _, a := range args {
		switch a := a.(type) {
		case ValueID:
			node.In = append(node.In, a)
		case []ValueID:
			node.In = append(node.In, a...)
		case Attr:
			node.Attrs = append(node.Attrs, a)
		default:
			panic(fmt.Sprintf("modelgraph: argument %T of %s", a, op))
		}
	}
	for range n {
		node.Out = append(node.Out, b.value(Value{}))
	}
	b.g.Nodes = append(b.g.Nodes, node)
	return node.Out
}

// Call runs f as the forward of the module of that name, below the current
// one. Values made outside and used inside live until it returns.
func (b *Builder) Call(name string, f func()) { b.enter(name, false, f) }

// Block is Call for a unit of activation checkpointing.
func (b *Builder) Block(name string, f func()) { b.enter(name, true, f) }

func (b *Builder) enter(name string, block bool, f func()) {
	parent := b.call
	path := name
	if p := b.g.Calls[parent].Path; p != "" {
		path = p + "." + name
	}
	b.call = len(b.g.Calls)
	b.g.Calls = append(b.g.Calls, Call{Path: path, Parent: parent, First: len(b.g.Nodes), Block: block})
	f()
	b.g.Calls[b.call].Last = len(b.g.Nodes)
	b.call = parent
}

// Path returns the path of the current module with a name appended.
func (b *Builder) Path(name string) string {
	return strings.TrimPrefix(b.g.Calls[b.call].Path+"."+name, ".")
}

// Hold keeps values until the current call returns: its local variables.
func (b *Builder) Hold(vs ...ValueID) {
	for _, v := range vs {
		b.held = append(b.held, held{v, b.call})
	}
}

// Touch says that variables are still bound to these values after the node
// added last.
func (b *Builder) Touch(vs ...ValueID) {
	for _, v := range vs {
		b.touched = append(b.touched, touched{v, len(b.g.Nodes) - 1, b.call})
	}
}

// HoldIn keeps values until a call that encloses the current one returns: up is
// how many calls further out its variables are, beginning with the parent.
func (b *Builder) HoldIn(up int, vs ...ValueID) {
	c := b.call
	for range up + 1 {
		if p := b.g.Calls[c].Parent; p >= 0 {
			c = p
		}
	}
	for _, v := range vs {
		b.held = append(b.held, held{v, c})
	}
}

// Finish says what forward returns, works out when values are dropped, and
// returns the graph.
func (b *Builder) Finish(outputs ...ValueID) (*Graph, error) {
	if b.err != nil {
		return nil, b.err
	}
	g := &b.g
	g.Calls[0].Last = len(g.Nodes)
	g.Outputs = outputs
	if err := g.check(); err != nil {
		return nil, err
	}
	b.lifetimes()
	return g, nil
}

// check finds nodes that use what is not made before them.
func (g *Graph) check() error {
	made := make([]bool, len(g.Values))
	for i, v := range g.Values {
		made[i] = v.Kind != Result
	}
	for i, n := range g.Nodes {
		for _, in := range n.In {
			if in != None && (int(in) < 0 || int(in) >= len(made) || !made[in]) {
				return fmt.Errorf("node %d (%s) uses value %d before it is made", i, n.Op, in)
			}
		}
		for _, out := range n.Out {
			made[out] = true
		}
	}
	return nil
}

// lifetimes fills Node.Drop by the rules in the package comment. Parameters
// and buffers are never dropped, inputs when the caller says (the executor),
// outputs by whoever asked for them.
func (b *Builder) lifetimes() {
	g := &b.g
	const never = 1 << 30
	const temporary = 1 << 30           // deeper than any call
	last := make([]int, len(g.Values))  // the node after which a value is dropped
	depth := make([]int, len(g.Values)) // of the call whose return drops it
	made := make([]int, len(g.Values))
	callDepth := make([]int, len(g.Calls))
	for i, c := range g.Calls {
		if c.Parent >= 0 {
			callDepth[i] = callDepth[c.Parent] + 1
		}
	}
	for i, v := range g.Values {
		last[i], made[i], depth[i] = -1, -1, temporary
		if v.Kind != Result {
			last[i] = never
		}
	}
	for _, id := range g.Outputs {
		if id != None {
			last[id] = never
		}
	}
	extend := func(id ValueID, end, d int) {
		if end > last[id] {
			last[id], depth[id] = end, d
		} else if end == last[id] {
			depth[id] = min(depth[id], d)
		}
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		for _, id := range n.Out {
			made[id] = i
			extend(id, i, temporary)
		}
		for _, id := range n.In {
			if id == None || last[id] == never {
				continue
			}
			extend(id, i, temporary)
			for c := n.Call; c >= 0 && g.Calls[c].First > made[id]; c = g.Calls[c].Parent {
				extend(id, g.Calls[c].Last-1, callDepth[c]-1)
			}
		}
	}
	for _, t := range b.touched {
		if last[t.v] != never {
			extend(t.v, t.node, callDepth[t.call])
		}
	}
	slot := make([]int, len(g.Values)) // of the local variable
	for i, h := range b.held {
		if h.v != None && last[h.v] != never {
			slot[h.v] = i + 1
			extend(h.v, g.Calls[h.call].Last-1, callDepth[h.call])
		}
	}
	for id, at := range last {
		if at >= 0 && at != never {
			g.Nodes[at].Drop = append(g.Nodes[at].Drop, ValueID(id))
		}
	}
	// What goes at the same moment goes from the inside out, local variables
	// in the order in which a function has them.
	for i := range g.Nodes {
		slices.SortStableFunc(g.Nodes[i].Drop, func(a, b ValueID) int {
			if depth[a] != depth[b] {
				return depth[b] - depth[a]
			}
			return slot[a] - slot[b]
		})
	}
}
