package onnx

import "vramscope/internal/modelgraph"

// unaryOps are elementwise operators with one tensor, as ATen calls them.
var unaryOps = map[string]string{
	"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Erf": "erf", "Exp": "exp", "Log": "log", "Sqrt": "sqrt",
	"Neg": "neg", "Abs": "abs", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Reciprocal": "reciprocal", "Sign": "sign",
	"Floor": "floor", "Ceil": "ceil", "Round": "round", "Not": "logical_not", "IsNaN": "isnan", "IsInf": "isinf",
	"HardSwish": "hardswish", "HardSigmoid": "hardsigmoid", "Gelu": "gelu", "Mish": "mish", "Selu": "selu",
	"Elu": "elu", "Celu": "celu", "LeakyRelu": "leaky_relu", "Softplus": "softplus", "Softsign": "softsign", "BitwiseNot": "bitwise_not",
}

// binaryOps are elementwise operators with two tensors, as ATen calls them.
var binaryOps = map[string]string{
	"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Pow": "pow", "Mod": "remainder", "PRelu": "prelu",
	"Equal": "eq", "Greater": "gt", "GreaterOrEqual": "ge", "Less": "lt", "LessOrEqual": "le",
	"And": "logical_and", "Or": "logical_or", "Xor": "logical_xor", "Min": "minimum", "Max": "maximum",
}

// reductions take axes.
var reductions = map[string]string{
	"ReduceMean": "mean", "ReduceSum": "sum", "ReduceMax": "amax", "ReduceMin": "amin", "ReduceProd": "prod",
	"ReduceL2": "norm", "ReduceL1": "norm", "ReduceLogSumExp": "logsumexp", "ArgMax": "argmax", "ArgMin": "argmin",
}

// node emits what the current node is.
func (r *builder) node() {
	n := r.n
	if n.domain != "" && n.domain != "ai.onnx" {
		r.unknown()
		return
	}
	if r.fold() {
		return
	}
	switch {
	case unaryOps[n.op] != "":
		r.unary(unaryOps[n.op])
		return
	case binaryOps[n.op] != "":
		r.binary(binaryOps[n.op])
		return
	case reductions[n.op] != "":
		r.reduce(reductions[n.op])
		return
	}
	switch n.op {
	case "Conv", "ConvTranspose":
		r.conv(n.op == "ConvTranspose")
	case "MaxPool", "AveragePool":
		r.pool()
	case "GlobalAveragePool", "GlobalMaxPool":
		r.globalPool()
	case "BatchNormalization":
		r.batchNorm()
	case "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", "InstanceNormalization", "GroupNormalization":
		r.norm()
	case "Gemm":
		r.gemm()
	case "MatMul":
		r.matmul()
	case "Einsum":
		r.list("einsum", r.attrStr("equation", "equation"))
	case "Softmax", "LogSoftmax":
		r.softmax()
	case "Attention":
		r.attention()
	case "Dropout":
		r.dropout()
	case "Identity", "Cast", "CastLike":
		r.cast()
	case "Where":
		r.where()
	case "Clip":
		r.clip()
	case "CumSum", "TopK", "Trilu":
		r.alike()
	case "Reshape":
		r.reshape()
	case "Flatten":
		r.flatten()
	case "Transpose":
		r.transpose()
	case "Squeeze", "Unsqueeze":
		r.squeeze()
	case "Expand":
		r.expand()
	case "Concat":
		r.concat()
	case "Split":
		r.split()
	case "Slice":
		r.slice()
	case "Gather":
		r.gather()
	case "GatherElements":
		x, i := r.need(0), r.need(1)
		r.emit("gather", i.shape, x.dtype, r.arg(0), modelgraph.Ints("dim", r.attrInt("axis", 0)), r.arg(1))
	case "Pad":
		r.pad()
	case "Resize", "Upsample":
		r.resize()
	case "ConstantOfShape":
		r.full()
	case "Range":
		r.arange()
	default:
		r.unknown()
	}
}

func (r *builder) attrStr(name, key string) modelgraph.Attr {
	if a := r.attr(name); a != nil {
		return modelgraph.Str(key, a.s)
	}
	return modelgraph.Str(key, "")
}

// unknown emits an operator that has no rule here, under its own name.
func (r *builder) unknown() {
	n := r.n
	args := []any{}
	var dtype modelgraph.DType
	for i := range n.in {
		if v := r.in(i); i == 0 && v != nil {
			dtype = v.dtype
		}
		args = append(args, r.arg(i))
	}
	for _, a := range n.attrs {
		switch {
		case a.graphs:
			r.assume("the graphs inside onnx.%s were passed over", n.op)
		case a.ints != nil:
			args = append(args, modelgraph.Ints(a.name, a.ints...))
		case a.s != "":
			args = append(args, modelgraph.Str(a.name, a.s))
		case a.f != 0:
			args = append(args, modelgraph.Float(a.name, a.f))
		case a.t == nil:
			args = append(args, modelgraph.Ints(a.name, a.i))
		}
	}
	if r.err != nil {
		return
	}
	for i, id := range r.b.Ops("onnx."+n.op, len(n.out), args...) {
		r.out(i, &tensor{id: id, dtype: dtype})
	}
}

func (r *builder) unary(op string) {
	x := r.need(0)
	args := []any{r.arg(0)}
	switch op {
	case "gelu":
		if a := r.attr("approximate"); a != nil && a.s != "none" {
			args = append(args, modelgraph.Str("approximate", a.s))
		}
	case "leaky_relu":
		args = append(args, modelgraph.Float("negative_slope", r.attrFloat("alpha", 0.01)))
	case "elu", "celu":
		args = append(args, modelgraph.Float("alpha", r.attrFloat("alpha", 1)))
	}
	dtype := x.dtype
	if op == "logical_not" || op == "isnan" || op == "isinf" {
		dtype = modelgraph.Bool
	}
	r.emit(op, x.shape, dtype, args...)
}

func (r *builder) binary(op string) {
	if op == "div" && r.gelu() {
		return
	}
	a, b := r.need(0), r.need(1)
	dtype := a.dtype
	switch op {
	case "eq", "gt", "ge", "lt", "le", "logical_and", "logical_or", "logical_xor":
		dtype = modelgraph.Bool
	}
	if len(r.n.in) > 2 { // Min and Max of many
		r.unknown()
		return
	}
	switch {
	case b.isNumber && !a.isNumber && op != "prelu":
		key := "other"
		if op == "pow" {
			key = "exponent"
		}
		r.emit(op, a.shape, dtype, r.arg(0), modelgraph.Float(key, b.number))
	case a.isNumber && !b.isNumber:
		if dtype != modelgraph.Bool {
			dtype = b.dtype
		}
		switch op {
		case "sub":
			r.emit("rsub", b.shape, dtype, r.arg(1), modelgraph.Float("other", a.number))
		case "div":
			x := r.op("reciprocal", b.shape, dtype, r.arg(1))
			if a.number != 1 {
				x = r.op("mul", b.shape, dtype, x.id, modelgraph.Float("other", a.number))
			}
			r.out(0, x)
		case "add", "mul":
			r.emit(op, b.shape, dtype, r.arg(1), modelgraph.Float("other", a.number))
		default:
			r.emit(op, b.shape, dtype, r.arg(0), r.arg(1))
		}
	default:
		r.emit(op, r.broadcast(a, b), dtype, r.arg(0), r.arg(1))
	}
}

func (r *builder) reduce(op string) {
	if op == "mean" && r.layerNorm() {
		return
	}
	x := r.need(0)
	arg := op == "argmax" || op == "argmin"
	keep := r.attrInt("keepdims", 1) != 0
	axes, ok := r.settings("axes", 1)
	if arg {
		axes, ok = []int64{r.attrInt("axis", 0)}, true
	}
	if (!ok || len(axes) == 0) && r.attrInt("noop_with_empty_axes", 0) != 0 {
		r.alias(x)
		return
	}
	args := []any{r.arg(0)}
	if ok && len(axes) > 0 {
		args = append(args, modelgraph.Ints("dim", axes...))
	}
	if keep {
		args = append(args, modelgraph.Flag("keepdim"))
	}
	dtype := x.dtype
	if arg {
		dtype = modelgraph.Int64
	}
	var shape []modelgraph.Dim
	if x.known {
		drop := map[int]bool{}
		for _, a := range axes {
			drop[r.axis(a, len(x.shape))] = true
		}
		shape = []modelgraph.Dim{}
		for i, d := range x.shape {
			switch {
			case !drop[i] && len(axes) > 0:
				shape = append(shape, d)
			case keep:
				shape = append(shape, modelgraph.Const(1))
			}
		}
	}
	r.emit(op, shape, dtype, args...)
}

// axis makes an axis count from the front.
func (r *builder) axis(a int64, rank int) int {
	if a < 0 {
		a += int64(rank)
	}
	if a < 0 || a > int64(rank) {
		r.fail("its axis %d is outside a tensor of %d axes", a, rank)
		return 0
	}
	return int(a)
}

// alias makes the current node's result its input.
func (r *builder) alias(x *tensor) {
	if x.id == modelgraph.None && x.ints == nil && !x.isNumber {
		r.tensorOf(x, r.n.in[0])
	}
	v := *x
	r.out(0, &v)
}

func (r *builder) softmax() {
	x := r.need(0)
	def := int64(-1)
	if r.p.opset < 13 {
		def = 1
	}
	op := map[string]string{"Softmax": "softmax", "LogSoftmax": "log_softmax"}[r.n.op]
	r.emit(op, x.shape, x.dtype, r.arg(0), modelgraph.Ints("dim", r.attrInt("axis", def)))
}

// attention is the operator of set 23, where heads have an axis of their own.
func (r *builder) attention() {
	q, v := r.need(0), r.need(2)
	if !q.known || len(q.shape) != 4 || !v.known || len(v.shape) != 4 || len(r.n.in) > 4 {
		r.unknown()
		return
	}
	args := []any{r.arg(0), r.arg(1), r.arg(2), r.arg(3)}
	if r.attrInt("is_causal", 0) != 0 {
		args = append(args, modelgraph.Flag("is_causal"))
	}
	shape := append(append([]modelgraph.Dim{}, q.shape[:3]...), v.shape[3])
	r.emit("scaled_dot_product_attention", shape, q.dtype, args...)
}

func (r *builder) dropout() {
	x := r.need(0)
	train := r.in(2)
	if train == nil || !train.isNumber || train.number == 0 {
		r.alias(x) // inference
		return
	}
	p := r.attrFloat("ratio", 0.5)
	if t := r.in(1); t != nil && t.isNumber {
		p = t.number
	}
	r.emit("dropout", x.shape, x.dtype, r.arg(0), modelgraph.Float("p", p), modelgraph.Flag("train"))
}

func (r *builder) cast() {
	x := r.need(0)
	dtype := x.dtype
	switch r.n.op {
	case "Cast":
		t, ok := elementTypes[r.attrInt("to", 0)]
		if !ok {
			r.fail("the element type number %d is not known", r.attrInt("to", 0))
			return
		}
		dtype = t
	case "CastLike":
		dtype = r.need(1).dtype
	}
	if dtype == x.dtype {
		r.alias(x)
		return
	}
	r.emit("to", x.shape, dtype, r.arg(0), modelgraph.Str("dtype", dtype.String()))
}

func (r *builder) where() {
	c, a, b := r.need(0), r.need(1), r.need(2)
	dtype := a.dtype
	if a.isNumber {
		dtype = b.dtype
	}
	args := []any{r.arg(0)}
	for i, key := range []string{"self", "other"} {
		if v := r.need(1 + i); v.isNumber && v.id == modelgraph.None {
			args = append(args, modelgraph.Float(key, v.number))
		} else {
			args = append(args, r.arg(1+i))
		}
	}
	r.emit("where", r.broadcast(c, a, b), dtype, args...)
}

func (r *builder) clip() {
	x := r.need(0)
	limit := func(name string, input int) (float64, bool) {
		if a := r.attr(name); a != nil {
			return a.f, true
		}
		if t := r.in(input); t != nil && t.isNumber {
			return t.number, true
		}
		return 0, false
	}
	lo, hasLo := limit("min", 1)
	hi, hasHi := limit("max", 2)
	if hasLo && hasHi && lo == 0 && hi == 6 {
		r.emit("hardtanh", x.shape, x.dtype, r.arg(0), modelgraph.Float("min_val", 0), modelgraph.Float("max_val", 6))
		return
	}
	args := []any{r.arg(0)}
	if hasLo {
		args = append(args, modelgraph.Float("min", lo))
	}
	if hasHi {
		args = append(args, modelgraph.Float("max", hi))
	}
	r.emit("clamp", x.shape, x.dtype, args...)
}

// alike are operators with results of their input's shape, and TopK.
func (r *builder) alike() {
	x := r.need(0)
	switch r.n.op {
	case "CumSum":
		axes, _ := r.settings("axis", 1)
		r.emit("cumsum", x.shape, x.dtype, r.arg(0), modelgraph.Ints("dim", append(axes, 0)[0]))
	case "Trilu":
		op := "tril"
		if r.attrInt("upper", 1) != 0 {
			op = "triu"
		}
		r.emit(op, x.shape, x.dtype, r.arg(0))
	case "TopK":
		k, ok := r.settings("k", 1)
		if !ok || len(k) != 1 || !x.known || len(x.shape) == 0 {
			r.unknown()
			return
		}
		axis := r.axis(r.attrInt("axis", -1), len(x.shape))
		shape := append([]modelgraph.Dim{}, x.shape...)
		if axis < len(shape) {
			shape[axis] = modelgraph.Const(k[0])
		}
		args := []any{r.arg(0), modelgraph.Ints("k", k[0]), modelgraph.Ints("dim", int64(axis))}
		if r.err != nil {
			return
		}
		ids := r.b.Ops("topk", 2, args...)
		r.out(0, &tensor{id: ids[0], shape: shape, known: true, dtype: x.dtype})
		r.out(1, &tensor{id: ids[1], shape: shape, known: true, dtype: modelgraph.Int64})
	}
}

// list emits an operator of all the node's inputs.
func (r *builder) list(op string, attrs ...modelgraph.Attr) {
	args := []any{}
	for i := range r.n.in {
		args = append(args, r.arg(i))
	}
	for _, a := range attrs {
		args = append(args, a)
	}
	r.emit(op, nil, r.need(0).dtype, args...)
}
