package modelgraph

import (
	"fmt"
	"strings"
)

// WithClassLoss adds to a graph without loss what people train with: the first
// output as float32 against class numbers, by cross_entropy. An output of
// [batch, classes] takes one label each, one of [batch, classes, height, width]
// one for each point of the image.
func WithClassLoss(g *Graph) (*Graph, error) {
	if len(g.Outputs) == 0 {
		return nil, fmt.Errorf("the graph returns nothing that a loss could be made of")
	}
	out := g.Outputs[0]
	c := *g
	c.Values = append([]Value{}, g.Values...)
	c.Nodes = append([]Node{}, g.Nodes...)
	c.Inputs = append([]ValueID{}, g.Inputs...)
	c.Calls = append([]Call{}, g.Calls...)
	value := func(v Value) ValueID {
		c.Values = append(c.Values, v)
		return ValueID(len(c.Values) - 1)
	}
	shape := []Dim{Batch}
	for i := range g.Nodes {
		if n := &g.Nodes[i]; len(n.Out) > 0 && n.Out[0] == out && isSpatial(n.Op) {
			shape = []Dim{Batch, ImageH, ImageW}
		}
	}
	label := value(Value{Name: "label", Kind: Input, DType: Int64, Shape: shape})
	c.Inputs = append(c.Inputs, label)
	f, loss := value(Value{}), value(Value{})
	c.Nodes = append(c.Nodes,
		Node{Op: "to", In: []ValueID{out}, Out: []ValueID{f}, Attrs: []Attr{Str("dtype", "float32")}},
		Node{Op: "cross_entropy_loss", In: []ValueID{f, label}, Out: []ValueID{loss}, Drop: []ValueID{f}})
	c.Calls[0].Last = len(c.Nodes)
	c.Outputs = append([]ValueID{loss}, g.Outputs...)
	return &c, nil
}

// HasLoss reports whether the graph's first output is a loss.
func HasLoss(g *Graph) bool {
	if len(g.Outputs) == 0 {
		return false
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if len(n.Out) > 0 && n.Out[0] == g.Outputs[0] {
			return strings.HasSuffix(n.Op, "_loss")
		}
	}
	return false
}

func isSpatial(op string) bool {
	return strings.HasPrefix(op, "conv") || strings.HasPrefix(op, "upsample") || op == "interpolate"
}
