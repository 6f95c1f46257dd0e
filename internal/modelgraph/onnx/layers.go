package onnx

import (
	"fmt"

	"vramscope/internal/modelgraph"
)

// window is the geometry of a convolution or pooling, one entry per axis.
type window struct {
	kernel, stride, dilation []int64
	before, after            []int64 // padding
	ceil                     bool
}

// window reads it; n is the number of axes, kernel the default of
// kernel_shape.
func (r *builder) window(x *tensor, n int, kernel []int64) window {
	w := window{kernel: kernel, stride: r.attrInts("strides"), dilation: r.attrInts("dilations"), ceil: r.attrInt("ceil_mode", 0) != 0}
	if k := r.attrInts("kernel_shape"); k != nil {
		w.kernel = k
	}
	fill := func(v []int64) []int64 {
		if v == nil {
			v = make([]int64, n)
			for i := range v {
				v[i] = 1
			}
		}
		return v
	}
	w.stride, w.dilation = fill(w.stride), fill(w.dilation)
	pads := r.attrInts("pads")
	if pads == nil {
		pads = make([]int64, 2*n)
	}
	if len(w.kernel) != n || len(w.stride) != n || len(w.dilation) != n || len(pads) != 2*n {
		r.fail("its kernel, strides, dilations and pads are not of %d axes", n)
		return window{kernel: fill(nil), stride: fill(nil), dilation: fill(nil), before: make([]int64, n), after: make([]int64, n)}
	}
	for i := range n {
		if w.kernel[i] < 1 || w.stride[i] < 1 || w.dilation[i] < 1 || w.kernel[i] > 1<<31 || w.dilation[i] > 1<<31 {
			r.fail("its kernel %v, strides %v or dilations %v are not positive", w.kernel, w.stride, w.dilation)
			w.stride[i], w.kernel[i], w.dilation[i] = 1, 1, 1
		}
	}
	w.before, w.after = pads[:n], pads[n:]
	if a := r.attr("auto_pad"); a != nil && (a.s == "SAME_UPPER" || a.s == "SAME_LOWER") {
		w.before, w.after = make([]int64, n), make([]int64, n)
		for i := range n {
			total := w.dilation[i]*(w.kernel[i]-1) + 1 - w.stride[i]
			if x.known && len(x.shape) == n+2 {
				if d, ok := x.shape[2+i].Const(); ok && d%w.stride[i] != 0 {
					total = w.dilation[i]*(w.kernel[i]-1) + 1 - d%w.stride[i]
				}
			}
			total = max(total, 0)
			w.before[i], w.after[i] = total/2, total-total/2
		}
	}
	return w
}

// sizes are the sizes after the window has passed over x.
func (w *window) sizes(x []modelgraph.Dim) []modelgraph.Dim {
	out := []modelgraph.Dim{}
	for i, d := range x[2:] {
		span := w.before[i] + w.after[i] - w.dilation[i]*(w.kernel[i]-1) - 1
		if w.ceil {
			span += w.stride[i] - 1
		}
		out = append(out, d.Add(modelgraph.Const(span)).Div(modelgraph.Const(w.stride[i])).Add(modelgraph.Const(1)))
	}
	return out
}

// padded returns x with what PyTorch's own padding cannot express, different
// amounts before and after, done by an operator of its own.
func (r *builder) padded(x *tensor, w *window) (modelgraph.ValueID, []int64) {
	same := true
	for i := range w.before {
		same = same && w.before[i] == w.after[i]
	}
	id := r.arg(0)
	if same {
		return id, w.before
	}
	pad := []int64{}
	for i := len(w.before) - 1; i >= 0; i-- {
		pad = append(pad, w.before[i], w.after[i])
	}
	v := r.op("constant_pad_nd", nil, x.dtype, id, modelgraph.Ints("pad", pad...))
	return v.id, make([]int64, len(w.before))
}

func (r *builder) conv(transposed bool) {
	x, weight := r.need(0), r.need(1)
	rank := len(weight.shape)
	if rank < 3 || rank > 5 || x.known && len(x.shape) != rank {
		r.fail("a convolution of %d axes with weights of %d", len(x.shape), rank)
		return
	}
	kernel := []int64{}
	for _, d := range weight.shape[2:] {
		k, _ := d.Const()
		kernel = append(kernel, k)
	}
	w := r.window(x, rank-2, kernel)
	if r.err != nil {
		return
	}
	groups := r.attrInt("group", 1)
	var shape []modelgraph.Dim
	if !transposed {
		if x.known {
			shape = r.shapes.simplify(append([]modelgraph.Dim{x.shape[0], weight.shape[0]}, w.sizes(x.shape)...))
		}
		id, pad := r.padded(x, &w)
		args := []any{id, r.arg(1), r.arg(2), modelgraph.Ints("stride", w.stride...), modelgraph.Ints("padding", pad...),
			modelgraph.Ints("dilation", w.dilation...), modelgraph.Ints("groups", groups)}
		r.emit(fmt.Sprintf("conv%dd", rank-2), shape, x.dtype, args...)
		return
	}
	extra := r.attrInts("output_padding")
	if len(extra) != rank-2 {
		extra = make([]int64, rank-2)
	}
	if x.known {
		shape = []modelgraph.Dim{x.shape[0], weight.shape[1].Mul(modelgraph.Const(groups))}
		for i, d := range x.shape[2:] {
			span := w.dilation[i]*(w.kernel[i]-1) + 1 - w.before[i] - w.after[i] + extra[i]
			shape = append(shape, d.Sub(modelgraph.Const(1)).Mul(modelgraph.Const(w.stride[i])).Add(modelgraph.Const(span)))
		}
		shape = r.shapes.simplify(shape)
	}
	r.emit(fmt.Sprintf("conv_transpose%dd", rank-2), shape, x.dtype, r.arg(0), r.arg(1), r.arg(2),
		modelgraph.Ints("stride", w.stride...), modelgraph.Ints("padding", w.before...), modelgraph.Ints("output_padding", extra...),
		modelgraph.Ints("groups", groups), modelgraph.Ints("dilation", w.dilation...))
}

func (r *builder) pool() {
	x := r.need(0)
	n := len(r.attrInts("kernel_shape"))
	if n < 1 || n > 3 || x.known && len(x.shape) != n+2 {
		r.fail("a pooling of %d axes over a tensor of %d", n, len(x.shape))
		return
	}
	w := r.window(x, n, nil)
	if r.err != nil {
		return
	}
	var shape []modelgraph.Dim
	if x.known {
		shape = r.shapes.simplify(append([]modelgraph.Dim{x.shape[0], x.shape[1]}, w.sizes(x.shape)...))
	}
	id, pad := r.padded(x, &w)
	args := []any{id, modelgraph.Ints("kernel_size", w.kernel...), modelgraph.Ints("stride", w.stride...), modelgraph.Ints("padding", pad...)}
	if r.n.op == "MaxPool" {
		args = append(args, modelgraph.Ints("dilation", w.dilation...))
	}
	if w.ceil {
		args = append(args, modelgraph.Flag("ceil_mode"))
	}
	if r.n.op == "AveragePool" {
		r.emit(fmt.Sprintf("avg_pool%dd", n), shape, x.dtype, append(args, modelgraph.Ints("count_include_pad", r.attrInt("count_include_pad", 0)))...)
		return
	}
	if len(r.n.out) > 1 && r.n.out[1] != "" {
		ids := r.b.Ops(fmt.Sprintf("max_pool%dd_with_indices", n), 2, args...)
		r.out(0, &tensor{id: ids[0], shape: shape, known: shape != nil, dtype: x.dtype})
		r.out(1, &tensor{id: ids[1], shape: shape, known: shape != nil, dtype: modelgraph.Int64})
		return
	}
	r.emit(fmt.Sprintf("max_pool%dd", n), shape, x.dtype, args...)
}

func (r *builder) globalPool() {
	x := r.need(0)
	if !x.known || len(x.shape) < 3 || len(x.shape) > 5 {
		r.unknown()
		return
	}
	n := len(x.shape) - 2
	ones := []int64{1, 1, 1}[:n]
	kind := "avg"
	if r.n.op == "GlobalMaxPool" {
		kind = "max"
	}
	shape := append([]modelgraph.Dim{x.shape[0], x.shape[1]}, modelgraph.Consts(ones...)...)
	r.emit(fmt.Sprintf("adaptive_%s_pool%dd", kind, n), shape, x.dtype, r.arg(0), modelgraph.Ints("output_size", ones...))
}

func (r *builder) batchNorm() {
	x := r.need(0)
	training := r.attrInt("training_mode", 0)
	// ONNX weighs the old average, PyTorch the new value.
	r.emit("batch_norm", x.shape, x.dtype, r.arg(0), r.arg(1), r.arg(2), r.arg(3), r.arg(4),
		modelgraph.Ints("training", training), modelgraph.Float("momentum", 1-r.attrFloat("momentum", 0.9)), modelgraph.Float("eps", r.attrFloat("epsilon", 1e-5)))
}

func (r *builder) norm() {
	x, scale := r.need(0), r.need(1)
	eps := modelgraph.Float("eps", r.attrFloat("epsilon", 1e-5))
	switch r.n.op {
	case "LayerNormalization":
		r.emit("layer_norm", x.shape, x.dtype, r.arg(0), r.arg(1), r.arg(2), modelgraph.Dims("normalized_shape", scale.shape...), eps)
	case "InstanceNormalization":
		r.emit("instance_norm", x.shape, x.dtype, r.arg(0), r.arg(1), r.arg(2), modelgraph.None, modelgraph.None, modelgraph.Flag("use_input_stats"), eps)
	case "GroupNormalization":
		r.emit("group_norm", x.shape, x.dtype, r.arg(0), r.arg(1), r.arg(2), modelgraph.Ints("num_groups", r.attrInt("num_groups", 1)), eps)
	default:
		r.emit("rms_norm", x.shape, x.dtype, r.arg(0), r.arg(1), modelgraph.Dims("normalized_shape", scale.shape...), eps)
	}
}

// linear emits a linear layer whose weight PyTorch keeps as [out, in], with the
// addition of a bias that follows it, where nothing else reads the product.
func (r *builder) linear(x *tensor, weight *tensor, out modelgraph.Dim, bias modelgraph.ValueID) {
	var shape []modelgraph.Dim
	if x.known && len(x.shape) > 0 {
		shape = append(append(shape, x.shape[:len(x.shape)-1]...), out)
	}
	result := r.n.out[0]
	if bias == modelgraph.None && r.uses[result] == 1 {
		nodes := r.p.graph.nodes
		if i, ok := r.users[result]; ok && i > r.index && nodes[i].op == "Add" && len(nodes[i].in) == 2 && len(nodes[i].out) == 1 {
			other := nodes[i].in[0]
			if other == result {
				other = nodes[i].in[1]
			}
			if b := r.vals[other]; b != nil && b.weight != nil && len(b.shape) == 1 && b.id != modelgraph.None && r.shapes.equal(b.shape[0], out) {
				bias, result = b.id, nodes[i].out[0]
				r.done[i] = true
			}
		}
	}
	r.set(result, r.op("linear", shape, x.dtype, r.arg(0), weight.id, bias))
}

// isLayer reports whether the right side of a product is a weight that PyTorch
// keeps the other way round.
func isLayer(b *tensor) bool {
	return b.weight != nil && b.id != modelgraph.None && len(b.shape) == 2 && b.weight.swapped != b.transposed
}

func (r *builder) matmul() {
	a, b := r.need(0), r.need(1)
	if isLayer(b) && len(r.n.out) == 1 {
		r.linear(a, b, b.shape[1], modelgraph.None)
		return
	}
	var shape []modelgraph.Dim
	if a.known && b.known && len(a.shape) >= 2 && len(b.shape) >= 2 {
		n, m := len(a.shape), len(b.shape)
		lead := r.broadcast(&tensor{shape: a.shape[:n-2], known: true}, &tensor{shape: b.shape[:m-2], known: true})
		r.same(a.shape[n-1], b.shape[m-2])
		shape = append(append([]modelgraph.Dim{}, lead...), a.shape[n-2], b.shape[m-1])
	}
	r.emit("matmul", shape, a.dtype, r.arg(0), r.arg(1))
}

func (r *builder) gemm() {
	a, b := r.need(0), r.need(1)
	transA, transB := r.attrInt("transA", 0) != 0, r.attrInt("transB", 0) != 0
	if !a.known || !b.known || len(a.shape) != 2 || len(b.shape) != 2 {
		r.unknown()
		return
	}
	if transB { // as torch keeps it
		t := *b
		t.shape = []modelgraph.Dim{b.shape[1], b.shape[0]}
		t.transposed = !b.transposed
		b = &t
	}
	bias := r.arg(2)
	if c := r.in(2); c != nil && len(c.shape) != 1 {
		bias = modelgraph.None
	}
	if isLayer(b) && !transA && len(r.n.out) == 1 && (len(r.n.in) < 3 || bias != modelgraph.None) {
		r.same(a.shape[1], b.shape[0])
		r.linear(a, b, b.shape[1], bias)
		return
	}
	left, right := r.arg(0), r.arg(1)
	rows := a.shape[0]
	if transA {
		left = r.op("t", []modelgraph.Dim{a.shape[1], a.shape[0]}, a.dtype, left).id
		rows = a.shape[1]
	}
	if transB {
		right = r.op("t", b.shape, b.dtype, right).id
	}
	shape := []modelgraph.Dim{rows, b.shape[1]}
	if c := r.arg(2); c != modelgraph.None {
		r.emit("addmm", shape, a.dtype, c, left, right)
		return
	}
	r.emit("mm", shape, a.dtype, left, right)
}
