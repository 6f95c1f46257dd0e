package onnx

import (
	"math"
	"slices"

	"vramscope/internal/modelgraph"
)

func (r *builder) flatten() {
	x := r.need(0)
	axis := r.attrInt("axis", 1)
	if !x.known {
		r.emit("flatten", nil, x.dtype, r.arg(0), modelgraph.Ints("start_dim", axis))
		return
	}
	a := r.axis(axis, len(x.shape))
	shape := []modelgraph.Dim{modelgraph.Const(1), modelgraph.Const(1)}
	for i, d := range x.shape {
		if i < a {
			shape[0] = times(shape[0], d)
		} else {
			shape[1] = times(shape[1], d)
		}
	}
	shape = r.shapes.simplify(shape)
	if a == 1 {
		r.emit("flatten", shape, x.dtype, r.arg(0), modelgraph.Ints("start_dim", 1))
		return
	}
	r.emit("reshape", shape, x.dtype, r.arg(0), modelgraph.Dims("shape", shape...))
}

func (r *builder) transpose() {
	x := r.need(0)
	perm := r.attrInts("perm")
	if perm == nil && x.known {
		for i := range x.shape {
			perm = append(perm, int64(len(x.shape)-1-i))
		}
	}
	var shape []modelgraph.Dim
	if x.known {
		if len(perm) != len(x.shape) {
			r.fail("it permutes %d axes of a tensor of %d", len(perm), len(x.shape))
			return
		}
		shape = make([]modelgraph.Dim, len(perm))
		for i, p := range perm {
			if p < 0 || p >= int64(len(perm)) {
				r.fail("its permutation %v has the axis %d", perm, p)
				return
			}
			shape[i] = x.shape[p]
		}
	}
	result := r.n.out[0]
	if x.weight != nil && x.id != modelgraph.None && len(perm) == 2 && perm[0] == 1 && r.uses[result] == 1 {
		// The weight of a linear layer as seen by a product.
		if n := &r.p.graph.nodes[r.userOf(result)]; n.op == "MatMul" && n.in[1] == result {
			r.set(result, &tensor{id: x.id, shape: shape, known: true, dtype: x.dtype, weight: x.weight, transposed: !x.transposed})
			return
		}
	}
	r.emit("permute", shape, x.dtype, r.arg(0), modelgraph.Ints("dims", perm...))
}

// userOf is a node that reads a value, or the current one where it is a result
// of the model.
func (r *builder) userOf(name string) int {
	if i, ok := r.users[name]; ok && len(r.p.graph.nodes[i].in) > 1 {
		return i
	}
	return r.index
}

func (r *builder) squeeze() {
	x := r.need(0)
	axes, ok := r.settings("axes", 1)
	op := "unsqueeze"
	if r.n.op == "Squeeze" {
		op = "squeeze"
	}
	if !ok && op == "squeeze" && x.known {
		for i, d := range x.shape {
			if n, ok := d.Const(); ok && n == 1 {
				axes = append(axes, int64(i))
			}
		}
		ok = true
	}
	if !ok {
		r.fail("its axes are not constants")
		return
	}
	rank := len(x.shape)
	if op == "unsqueeze" {
		rank += len(axes)
	}
	for i, a := range axes {
		if a < 0 && x.known {
			axes[i] = a + int64(rank)
		}
	}
	slices.Sort(axes)
	if op == "squeeze" {
		slices.Reverse(axes)
	}
	v := &tensor{id: r.arg(0), shape: x.shape, known: x.known, dtype: x.dtype}
	for _, a := range axes {
		var shape []modelgraph.Dim
		if v.known {
			at := r.axis(a, len(v.shape))
			if op == "unsqueeze" {
				shape = slices.Insert(slices.Clone(v.shape), at, modelgraph.Const(1))
			} else if at < len(v.shape) {
				shape = slices.Delete(slices.Clone(v.shape), at, at+1)
			}
		}
		v = r.op(op, shape, x.dtype, v.id, modelgraph.Ints("dim", a))
	}
	r.out(0, v)
}

func (r *builder) expand() {
	x, to := r.need(0), r.need(1)
	if to.ints == nil {
		shape, ok := r.shapes.info(r.infos[r.n.out[0]])
		if !ok {
			r.fail("its shape is the result of nodes that are not understood")
			return
		}
		to = &tensor{ints: shape}
	}
	shape := to.ints
	if x.known {
		shape = r.broadcast(x, &tensor{shape: to.ints, known: true})
	}
	r.emit("expand", shape, x.dtype, r.arg(0), modelgraph.Dims("size", shape...))
}

func (r *builder) concat() {
	first := r.need(0)
	known := true
	args := []any{}
	for i := range r.n.in {
		v := r.need(i)
		known = known && v.known && len(v.shape) == len(first.shape)
		args = append(args, r.arg(i))
	}
	axis := r.attrInt("axis", 0)
	var shape []modelgraph.Dim
	if known && len(first.shape) > 0 {
		at := r.axis(axis, len(first.shape)-1)
		if axis < 0 {
			at = r.axis(axis, len(first.shape))
		}
		shape = slices.Clone(first.shape)
		for i := 1; i < len(r.n.in); i++ {
			v := r.need(i)
			for j, d := range v.shape {
				if j == at {
					shape[j] = shape[j].Add(d)
				} else {
					r.same(shape[j], d)
				}
			}
		}
		shape = r.shapes.simplify(shape)
	}
	r.emit("cat", shape, first.dtype, append(args, modelgraph.Ints("dim", axis))...)
}

func (r *builder) split() {
	x := r.need(0)
	axis := r.attrInt("axis", 0)
	sizes, ok := r.settings("split", 1)
	n := len(r.n.out)
	dims := make([]modelgraph.Dim, n)
	if ok && len(sizes) == n {
		copy(dims, modelgraph.Consts(sizes...))
	} else if x.known && r.axis(axis, len(x.shape)) < len(x.shape) {
		each := x.shape[r.axis(axis, len(x.shape))].Add(modelgraph.Const(int64(n - 1))).Div(modelgraph.Const(int64(max(n, 1))))
		for i := range dims {
			dims[i] = each
		}
	}
	if r.err != nil {
		return
	}
	ids := r.b.Ops("split_with_sizes", n, r.arg(0), modelgraph.Dims("split_sizes", dims...), modelgraph.Ints("dim", axis))
	for i, id := range ids {
		v := &tensor{id: id, dtype: x.dtype}
		if x.known && len(x.shape) > 0 {
			v.shape, v.known = slices.Clone(x.shape), true
			if at := r.axis(axis, len(x.shape)); at < len(v.shape) {
				v.shape[at] = dims[i]
			}
			v.shape = r.shapes.simplify(v.shape)
		}
		r.out(i, v)
	}
}

func (r *builder) slice() {
	x := r.need(0)
	starts, ends := r.bounds("starts", 1), r.bounds("ends", 2)
	axes, hasAxes := r.settings("axes", 3)
	steps, hasSteps := r.settings("steps", 4)
	if starts == nil || ends == nil || len(starts) != len(ends) || hasAxes && len(axes) != len(starts) || hasSteps && len(steps) != len(starts) {
		r.fail("its bounds are the result of nodes that are not understood")
		return
	}
	v := &tensor{id: r.arg(0), shape: x.shape, known: x.known, dtype: x.dtype}
	for i := range starts {
		axis, step := int64(i), int64(1)
		if hasAxes {
			axis = axes[i]
		}
		if hasSteps {
			step = steps[i]
		}
		var shape []modelgraph.Dim
		if v.known {
			at := r.axis(axis, len(v.shape))
			if at >= len(v.shape) {
				r.fail("its axis %d is outside a tensor of %d axes", axis, len(v.shape))
				return
			}
			shape = slices.Clone(v.shape)
			shape[at] = r.cut(shape[at], starts[i], ends[i], step)
			shape = r.shapes.simplify(shape)
		}
		v = r.op("slice", shape, x.dtype, v.id, modelgraph.Ints("dim", axis), modelgraph.Dims("start", starts[i]), modelgraph.Dims("end", ends[i]), modelgraph.Ints("step", step))
	}
	r.out(0, v)
}

// bounds is like settings, with symbols.
func (r *builder) bounds(name string, input int) []modelgraph.Dim {
	if a := r.attr(name); a != nil {
		return modelgraph.Consts(a.ints...)
	}
	if t := r.in(input); t != nil {
		return t.ints
	}
	return nil
}

// cut is the size of d[start:end:step].
func (r *builder) cut(d, start, end modelgraph.Dim, step int64) modelgraph.Dim {
	if step < 0 {
		return d // a reversal, as far as sizes go
	}
	s, okS := start.Const()
	e, okE := end.Const()
	if okE && e >= math.MaxInt32 {
		end = d
	} else if okE && e < 0 {
		end = d.Add(end)
	} else if okE {
		if !r.shapes.follow(r.literal("cuts at %d", e), func(b modelgraph.Binding) bool {
			n, err := d.Eval(b)
			return err == nil && e >= n
		}) {
			end = end.Min(d)
		} else {
			end = d
		}
	}
	if okS && s < 0 {
		start = d.Add(start).Max(modelgraph.Const(0))
	}
	n := end.Sub(start)
	if s, ok := start.Const(); ok && s == 0 {
		n = end
	}
	if step > 1 {
		n = n.Add(modelgraph.Const(step - 1)).Div(modelgraph.Const(step))
	}
	return n
}

func (r *builder) gather() {
	x, idx := r.need(0), r.need(1)
	axis := r.attrInt("axis", 0)
	if x.weight != nil && len(x.shape) == 2 && axis == 0 && idx.ints == nil && idx.id != modelgraph.None && x.dtype.IsFloat() {
		var shape []modelgraph.Dim
		if idx.known {
			shape = append(slices.Clone(idx.shape), x.shape[1])
		}
		r.emit("embedding", shape, x.dtype, r.arg(0), r.arg(1))
		return
	}
	var shape []modelgraph.Dim
	if x.known && idx.known && len(x.shape) > 0 {
		at := r.axis(axis, len(x.shape))
		if at >= len(x.shape) {
			r.fail("its axis %d is outside a tensor of %d axes", axis, len(x.shape))
			return
		}
		shape = slices.Concat(x.shape[:at], idx.shape, x.shape[at+1:])
	}
	switch {
	case len(idx.ints) == 1 && len(idx.shape) == 0:
		r.emit("select", shape, x.dtype, r.arg(0), modelgraph.Ints("dim", axis), modelgraph.Dims("index", idx.ints[0]))
	case idx.known && len(idx.shape) == 1:
		r.emit("index_select", shape, x.dtype, r.arg(0), modelgraph.Ints("dim", axis), r.arg(1))
	default:
		args := []any{r.arg(0)}
		for range max(axis, 0) {
			args = append(args, modelgraph.None)
			if len(args) > 64 {
				break
			}
		}
		r.emit("index", shape, x.dtype, append(args, r.arg(1))...)
	}
}

func (r *builder) pad() {
	x := r.need(0)
	pads, ok := r.settings("pads", 1)
	if !ok || !x.known || len(pads) != 2*len(x.shape) {
		r.unknown()
		return
	}
	n := len(x.shape)
	shape := slices.Clone(x.shape)
	pad := []int64{}
	for i := n - 1; i >= 0; i-- {
		pad = append(pad, pads[i], pads[n+i])
		shape[i] = shape[i].Add(modelgraph.Const(pads[i] + pads[n+i]))
	}
	for len(pad) > 2 && pad[len(pad)-1] == 0 && pad[len(pad)-2] == 0 {
		pad = pad[:len(pad)-2]
	}
	shape = r.shapes.simplify(shape)
	mode := "constant"
	if a := r.attr("mode"); a != nil && a.s != "" {
		mode = a.s
	}
	r.emit("pad", shape, x.dtype, r.arg(0), modelgraph.Ints("pad", pad...), modelgraph.Str("mode", mode))
}

func (r *builder) resize() {
	x := r.need(0)
	scales, sizes := r.in(2), r.in(3)
	if r.n.op == "Upsample" {
		scales = r.in(1)
	}
	if !x.known || len(x.shape) < 3 || len(x.shape) > 5 {
		r.unknown()
		return
	}
	n := len(x.shape)
	shape := slices.Clone(x.shape)
	switch {
	case sizes != nil && len(sizes.ints) == n:
		for i := 2; i < n; i++ {
			shape[i] = sizes.ints[i]
		}
	case scales != nil && len(scales.floats) == n:
		for i := 2; i < n; i++ {
			// A scale is a fraction of small numbers: 2, 0.5, 1.5.
			f := scales.floats[i]
			if !(f > 0) || f > 1<<20 {
				r.fail("its scale is %v", f)
				return
			}
			shape[i] = shape[i].Mul(modelgraph.Const(int64(math.Round(f * 64)))).Div(modelgraph.Const(64))
		}
	default:
		r.unknown()
		return
	}
	shape = r.shapes.simplify(shape)
	mode := "nearest"
	if a := r.attr("mode"); a != nil && a.s != "" {
		mode = a.s
	}
	op, ok := map[string]string{
		"nearest1": "upsample_nearest1d", "nearest2": "upsample_nearest2d", "nearest3": "upsample_nearest3d",
		"linear1": "upsample_linear1d", "linear2": "upsample_bilinear2d", "linear3": "upsample_trilinear3d", "cubic2": "upsample_bicubic2d",
	}[mode+string(rune('0'+n-2))]
	if !ok {
		r.unknown()
		return
	}
	r.emit(op, shape, x.dtype, r.arg(0), modelgraph.Dims("output_size", shape[2:]...))
}

func (r *builder) full() {
	size := r.need(0)
	if size.ints == nil {
		r.fail("its shape is the result of nodes that are not understood")
		return
	}
	dtype, value := modelgraph.Float32, 0.0
	if a := r.attr("value"); a != nil && a.t != nil {
		v := r.constant(a.t, nil)
		dtype, value = v.dtype, v.number
	}
	r.emit("full", size.ints, dtype, modelgraph.Dims("size", size.ints...), modelgraph.Float("fill_value", value), modelgraph.Str("dtype", dtype.String()))
}

func (r *builder) arange() {
	start, end, step := r.need(0), r.need(1), r.need(2)
	if len(start.ints) != 1 || len(end.ints) != 1 || len(step.ints) != 1 {
		r.unknown()
		return
	}
	k, ok := step.ints[0].Const()
	if !ok || k == 0 {
		r.unknown()
		return
	}
	n := end.ints[0].Sub(start.ints[0])
	if s, ok := start.ints[0].Const(); ok && s == 0 {
		n = end.ints[0]
	}
	if k != 1 {
		n = n.Add(modelgraph.Const(k - 1)).Div(modelgraph.Const(k))
	}
	r.emit("arange", r.shapes.simplify([]modelgraph.Dim{n}), end.dtype, modelgraph.Dims("end", n), modelgraph.Str("dtype", end.dtype.String()))
}
