package onnx

import (
	"math"
	"slices"

	"vramscope/internal/modelgraph"
)

// Operators that exporters take apart, because the operator set has no name
// for them, become one again where nothing else reads what is between: it is
// one operator in PyTorch, which keeps less.

// sole is the index of the only node that reads a value, where it is op and
// comes later, else -1.
func (r *builder) sole(name, op string) int {
	i, ok := r.users[name]
	if !ok || r.uses[name] != 1 || i <= r.index {
		return -1
	}
	if n := &r.p.graph.nodes[i]; n.op == op && len(n.out) == 1 {
		return i
	}
	return -1
}

// number reports whether an input of a node is a scalar near value.
func (r *builder) number(i int, value float64) bool {
	return slices.ContainsFunc(r.p.graph.nodes[i].in, func(name string) bool {
		v := r.vals[name]
		return v != nil && v.isNumber && math.Abs(v.number-value) < 1e-6
	})
}

// result is the value that a node makes.
func (r *builder) result(i int) string { return r.p.graph.nodes[i].out[0] }

// takeIn marks nodes as part of the current one.
func (r *builder) takeIn(nodes ...int) {
	for _, i := range nodes {
		r.done[i] = true
	}
}

// gelu takes in x·(1 + erf(x/√2))·½, from the division on.
func (r *builder) gelu() bool {
	x := r.n.in[0]
	if d := r.need(1); !d.isNumber || math.Abs(d.number-math.Sqrt2) > 1e-3 || len(r.n.out) != 1 {
		return false
	}
	erf := r.sole(r.n.out[0], "Erf")
	if erf < 0 {
		return false
	}
	add := r.sole(r.result(erf), "Add")
	if add < 0 || !r.number(add, 1) {
		return false
	}
	mul := r.sole(r.result(add), "Mul")
	if mul < 0 || !slices.Contains(r.p.graph.nodes[mul].in, x) {
		return false
	}
	half := r.sole(r.result(mul), "Mul")
	if half < 0 || !r.number(half, 0.5) {
		return false
	}
	r.takeIn(erf, add, mul, half)
	v := r.need(0)
	r.set(r.result(half), r.op("gelu", v.shape, v.dtype, r.arg(0)))
	return true
}

// layerNorm takes in (x - mean(x)) / √(mean((x - mean(x))²) + ε) · w + b over
// the last axis, from the first mean on.
func (r *builder) layerNorm() bool {
	nodes := r.p.graph.nodes
	x := r.need(0)
	axes, _ := r.settings("axes", 1)
	if len(axes) != 1 || !x.known || axes[0] != -1 && axes[0] != int64(len(x.shape)-1) || len(r.n.out) != 1 {
		return false
	}
	sub := r.sole(r.n.out[0], "Sub")
	if sub < 0 || nodes[sub].in[0] != r.n.in[0] || r.uses[r.result(sub)] != 2 {
		return false
	}
	centred := r.result(sub)
	div := r.users[centred] // the last of the two
	pow := -1
	for i := sub + 1; i < div && i < sub+16; i++ {
		if nodes[i].op == "Pow" && nodes[i].in[0] == centred && len(nodes[i].out) == 1 && r.number(i, 2) {
			pow = i
		}
	}
	if pow < 0 || nodes[div].op != "Div" || len(nodes[div].out) != 1 || nodes[div].in[0] != centred {
		return false
	}
	mean := r.sole(r.result(pow), "ReduceMean")
	if mean < 0 {
		return false
	}
	add := r.sole(r.result(mean), "Add")
	if add < 0 {
		return false
	}
	root := r.sole(r.result(add), "Sqrt")
	if root < 0 || len(nodes[div].in) != 2 || nodes[div].in[1] != r.result(root) {
		return false
	}
	eps := 0.0
	for _, name := range nodes[add].in {
		if v := r.vals[name]; v != nil && v.isNumber {
			eps = v.number
		}
	}
	parameter := func(i int) *tensor {
		if i >= 0 {
			for _, name := range nodes[i].in {
				if v := r.vals[name]; v != nil && v.weight != nil && v.id != modelgraph.None && len(v.shape) == 1 {
					return v
				}
			}
		}
		return nil
	}
	scale := r.sole(r.result(div), "Mul")
	weight := parameter(scale)
	if weight == nil {
		return false
	}
	shift := r.sole(r.result(scale), "Add")
	bias := parameter(shift)
	last, biasID := scale, modelgraph.None
	if bias != nil {
		last, biasID = shift, bias.id
		r.takeIn(shift)
	}
	r.takeIn(sub, pow, mean, add, root, div, scale)
	r.set(r.result(last), r.op("layer_norm", x.shape, x.dtype, r.arg(0), weight.id, biasID,
		modelgraph.Dims("normalized_shape", weight.shape...), modelgraph.Float("eps", eps)))
	return true
}
