package onnx

import (
	"math"
	"slices"

	"vramscope/internal/modelgraph"
)

// fold works out nodes that compute on shapes and other small constants. It
// reports whether the current node is one; then its result has a content and
// no operator.
func (r *builder) fold() bool {
	n := r.n
	switch n.op {
	case "Constant":
		r.constantNode()
		return true
	case "Shape":
		return r.foldShape()
	case "Size":
		x := r.need(0)
		if !x.known {
			return false
		}
		size := modelgraph.Const(1)
		for _, d := range x.shape {
			size = size.Mul(d)
		}
		r.content(r.shapes.simplify([]modelgraph.Dim{size}), 0)
		return true
	}
	if len(n.in) == 0 || len(n.in) > smallTensor {
		return false
	}
	ints, numbers := true, true
	for i := range n.in {
		v := r.in(i)
		ints = ints && v != nil && v.ints != nil
		numbers = numbers && v != nil && v.isNumber
	}
	return ints && r.foldInts() || numbers && r.foldNumbers()
}

// content makes the current node's result a small tensor of integers.
func (r *builder) content(v []modelgraph.Dim, rank int) {
	t := &tensor{id: modelgraph.None, ints: v, known: true, dtype: modelgraph.Int64, shape: []modelgraph.Dim{}}
	if rank > 0 {
		t.shape = modelgraph.Consts(int64(len(v)))
	}
	if len(v) == 1 {
		if k, ok := v[0].Const(); ok {
			t.number, t.isNumber = float64(k), true
		}
	}
	r.out(0, t)
}

func (r *builder) constantNode() {
	for _, a := range r.n.attrs {
		switch a.name {
		case "value":
			if a.t != nil {
				a.t.name = r.n.out[0]
				v := r.constant(a.t, &weight{t: a.t, uses: r.uses[r.n.out[0]]})
				r.out(0, v)
				if v.ints == nil && !v.isNumber {
					r.tensorOf(v, r.n.out[0])
				}
				return
			}
		case "value_int":
			r.content(modelgraph.Consts(a.i), 0)
			return
		case "value_ints":
			r.content(modelgraph.Consts(a.ints...), 1)
			return
		case "value_float":
			r.out(0, &tensor{id: modelgraph.None, known: true, shape: []modelgraph.Dim{}, number: a.f, isNumber: true, weight: &weight{}})
			return
		}
	}
	r.unknown()
}

func (r *builder) foldShape() bool {
	x := r.need(0)
	if !x.known {
		return false
	}
	rank := int64(len(x.shape))
	bound := func(name string, def int64) int64 {
		v := r.attrInt(name, def)
		if v < 0 {
			v += rank
		}
		return min(max(v, 0), rank)
	}
	start, end := bound("start", 0), bound("end", rank)
	r.content(slices.Clone(x.shape[start:max(start, end)]), 1)
	return true
}

// foldInts computes on integers. Axes do not matter: the content has one.
func (r *builder) foldInts() bool {
	x := r.need(0)
	rank := len(x.shape)
	switch r.n.op {
	case "Identity", "Cast", "Floor", "Ceil", "Round", "Abs":
		v := *x
		if t, ok := elementTypes[r.attrInt("to", 0)]; ok {
			v.dtype = t
		}
		if len(x.ints) == 1 && !v.isNumber && v.dtype.IsFloat() {
			return false // a number that depends on a symbol
		}
		r.out(0, &v)
	case "Reshape", "Flatten":
		r.content(x.ints, 1)
	case "Unsqueeze":
		r.content(x.ints, 1)
	case "Squeeze":
		if len(x.ints) == 1 {
			rank = 0
		}
		r.content(x.ints, rank)
	case "Concat":
		out := []modelgraph.Dim{}
		for i := range r.n.in {
			out = append(out, r.need(i).ints...)
		}
		if len(out) > smallTensor {
			return false
		}
		r.content(out, 1)
	case "Gather":
		out := []modelgraph.Dim{}
		idx := r.need(1)
		for _, d := range idx.ints {
			i, ok := d.Const()
			if i < 0 {
				i += int64(len(x.ints))
			}
			if !ok || i < 0 || i >= int64(len(x.ints)) {
				r.fail("its index %s is outside a list of %d", d, len(x.ints))
				return true
			}
			out = append(out, x.ints[i])
		}
		r.content(out, len(idx.shape))
	case "Slice":
		return r.foldSlice(x)
	case "Neg":
		return r.foldBinary(&tensor{ints: modelgraph.Consts(0)}, x, modelgraph.Dim.Sub)
	case "Add":
		return r.foldBinary(x, r.need(1), modelgraph.Dim.Add)
	case "Sub":
		return r.foldBinary(x, r.need(1), modelgraph.Dim.Sub)
	case "Mul":
		return r.foldBinary(x, r.need(1), modelgraph.Dim.Mul)
	case "Div":
		return r.foldBinary(x, r.need(1), modelgraph.Dim.Div)
	case "Mod":
		return r.foldBinary(x, r.need(1), modelgraph.Dim.Mod)
	case "Max":
		return len(r.n.in) == 2 && r.foldBinary(x, r.need(1), modelgraph.Dim.Max)
	case "Min":
		return len(r.n.in) == 2 && r.foldBinary(x, r.need(1), modelgraph.Dim.Min)
	case "Equal":
		return r.foldBinary(x, r.need(1), func(a, b modelgraph.Dim) modelgraph.Dim {
			if r.shapes.equal(a, b) {
				return modelgraph.Const(1)
			}
			return modelgraph.Const(0)
		})
	case "Where":
		a, b := r.need(1).ints, r.need(2).ints
		if len(a) != len(x.ints) || len(b) != len(x.ints) {
			return false
		}
		out := slices.Clone(b)
		for i, c := range x.ints {
			if k, _ := c.Const(); k != 0 {
				out[i] = a[i]
			}
		}
		r.content(out, rank)
	case "ReduceProd":
		out := modelgraph.Const(1)
		for _, d := range x.ints {
			out = out.Mul(d)
		}
		r.content(r.shapes.simplify([]modelgraph.Dim{out}), int(r.attrInt("keepdims", 1)))
	case "ConstantOfShape":
		n, ok := int64(0), len(x.ints) == 1
		if ok {
			n, ok = x.ints[0].Const()
		}
		a := r.attr("value")
		if !ok || n < 0 || n > smallTensor || a == nil || a.t == nil || len(a.t.ints) != 1 {
			return false
		}
		out := make([]modelgraph.Dim, n)
		for i := range out {
			out[i] = modelgraph.Const(a.t.ints[0])
		}
		r.content(out, 1)
	default:
		return false
	}
	return true
}

func (r *builder) foldBinary(a, b *tensor, f func(a, b modelgraph.Dim) modelgraph.Dim) bool {
	n := max(len(a.ints), len(b.ints))
	if len(a.ints) != n && len(a.ints) != 1 || len(b.ints) != n && len(b.ints) != 1 {
		return false
	}
	out := make([]modelgraph.Dim, n)
	for i := range out {
		out[i] = f(a.ints[min(i, len(a.ints)-1)], b.ints[min(i, len(b.ints)-1)])
	}
	r.content(r.shapes.simplify(out), max(len(a.shape), len(b.shape)))
	return true
}

func (r *builder) foldSlice(x *tensor) bool {
	starts, ok1 := r.settings("starts", 1)
	ends, ok2 := r.settings("ends", 2)
	steps, ok3 := r.settings("steps", 4)
	if !ok1 || !ok2 || len(starts) != 1 || len(ends) != 1 || ok3 && (len(steps) != 1 || steps[0] != 1) {
		return false
	}
	n := int64(len(x.ints))
	bound := func(v int64) int64 {
		if v < 0 {
			v += n
			if v < -n { // the least integer wraps
				v = 0
			}
		}
		return min(max(v, 0), n)
	}
	start, end := bound(starts[0]), bound(ends[0])
	r.content(slices.Clone(x.ints[start:max(start, end)]), 1)
	return true
}

// foldNumbers computes on scalars, such as an attention's scale.
func (r *builder) foldNumbers() bool {
	a := r.need(0).number
	b := math.NaN()
	if len(r.n.in) > 1 {
		b = r.need(1).number
	}
	v := *r.need(0)
	switch r.n.op {
	case "Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape":
	case "Sqrt":
		a = math.Sqrt(a)
	case "Reciprocal":
		a = 1 / a
	case "Neg":
		a = -a
	case "Add":
		a += b
	case "Sub":
		a -= b
	case "Mul":
		a *= b
	case "Div":
		a /= b
	case "Pow":
		a = math.Pow(a, b)
	default:
		return false
	}
	if t, ok := elementTypes[r.attrInt("to", 0)]; ok {
		v.dtype = t
	}
	r.out(0, &tensor{id: modelgraph.None, known: true, shape: v.shape, dtype: v.dtype, number: a, isNumber: true, weight: v.weight})
	return true
}
