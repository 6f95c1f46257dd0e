package onnx

import (
	"fmt"
	"strings"

	"vramscope/internal/modelgraph"
)

// tensor is what is known of a value while the graph is built.
type tensor struct {
	id    modelgraph.ValueID // None until something needs it as a tensor
	shape []modelgraph.Dim
	known bool // shape is known
	dtype modelgraph.DType
	// ints is the content of a small tensor of integers: a shape, an index.
	ints []modelgraph.Dim
	// number is the content of a scalar.
	number   float64
	isNumber bool
	floats   []float64 // the content of a small tensor of numbers
	// weight is the initializer that this is, or whose transpose it is.
	weight     *weight
	transposed bool
}

// weight is an initializer.
type weight struct {
	t       *tensorProto
	uses    int
	swapped bool // declared with its two axes swapped, as PyTorch keeps it
}

// builder turns a model into a graph, for one choice of open sizes.
type builder struct {
	p       *modelProto
	b       *modelgraph.Builder
	vals    map[string]*tensor
	weights map[string]*weight
	uses    map[string]int
	users   map[string]int // a node that reads the value
	done    map[int]bool   // nodes that another took in
	infos   map[string]*valueInfo
	n       *nodeProto // the current node
	index   int
	shapes  *shapes
	seen    map[string]bool
	err     error
}

// build builds the graph. Sizes that the file fixes but that its nodes would
// follow are found by trying: each is opened, and closed again where a node
// holds a literal that does not fit twice its value.
func build(p *modelProto, name string) (*modelgraph.Graph, error) {
	open := map[string]bool{"batch": true, "seq": true, "encoder_seq": true, "image_height": true, "image_width": true}
	why := map[string]string{}
	for {
		r := newBuilder(p, name, open)
		if len(r.shapes.symbols) > maxSymbols {
			return nil, fmt.Errorf("more than %d named sizes in its inputs", maxSymbols)
		}
		g, err := r.build()
		if err != nil {
			return nil, err
		}
		if len(r.shapes.fixed) == 0 {
			for i := range g.Symbols {
				g.Symbols[i].Fixed = why[g.Symbols[i].Name]
			}
			return g, nil
		}
		for sym, reason := range r.shapes.fixed {
			why[sym] = reason
			delete(open, sym)
		}
	}
}

func newBuilder(p *modelProto, name string, open map[string]bool) *builder {
	r := &builder{
		p: p, b: modelgraph.NewBuilder(name, "onnx"),
		vals: map[string]*tensor{}, weights: map[string]*weight{}, uses: map[string]int{}, users: map[string]int{},
		done: map[int]bool{}, infos: map[string]*valueInfo{}, seen: map[string]bool{},
	}
	r.shapes = newShapes(p, open)
	return r
}

func (r *builder) fail(format string, args ...any) {
	if r.err != nil {
		return
	}
	r.err = fmt.Errorf(format, args...)
	if r.n != nil {
		r.err = fmt.Errorf("byte %d: node %s (%s): %w", r.n.at, r.nodeName(), r.n.op, r.err)
	}
}

// nodeName names the current node, by its result where it has no name.
func (r *builder) nodeName() string {
	switch {
	case r.n.name != "":
		return r.n.name
	case len(r.n.out) > 0:
		return r.n.out[0]
	}
	return fmt.Sprint(r.index)
}

// assume notes a sentence once.
func (r *builder) assume(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !r.seen[s] {
		r.seen[s] = true
		r.b.Assume("%s", s)
	}
}

func (r *builder) build() (*modelgraph.Graph, error) {
	g := r.p.graph
	for i := range g.infos {
		r.infos[g.infos[i].name] = &g.infos[i]
	}
	for i := range g.nodes {
		for _, name := range g.nodes[i].in {
			r.uses[name]++
			r.users[name] = i
		}
	}
	for _, o := range g.outputs {
		r.uses[o.name]++
	}
	r.initializers()
	r.inputs()
	r.constants()
	stacks := make([][]modelgraph.Frame, len(g.nodes))
	for i := range g.nodes {
		stacks[i] = stackOf(&g.nodes[i], r.p.producer)
		if stacks[i] == nil && i > 0 {
			stacks[i] = stacks[i-1]
		}
	}
	r.b.Nest(len(g.nodes), func(i int) []modelgraph.Frame { return stacks[i] }, func(i int) {
		if r.err == nil && !r.done[i] {
			r.n, r.index = &g.nodes[i], i
			r.node()
		}
	})
	r.n = nil
	outputs := r.outputs()
	r.modes()
	if r.err != nil {
		return nil, r.err
	}
	out, err := r.b.Finish(outputs...)
	if err != nil {
		return nil, err
	}
	out.Symbols = r.shapes.symbols
	return out, nil
}

// constants reads the nodes that are constants, which may stand anywhere.
func (r *builder) constants() {
	for i := range r.p.graph.nodes {
		if n := &r.p.graph.nodes[i]; n.op == "Constant" && n.domain == "" && len(n.out) == 1 && len(n.in) == 0 && r.err == nil {
			r.n, r.index = n, i
			r.constantNode()
			r.done[i] = true
		}
	}
	r.n = nil
}

func (r *builder) inputs() {
	for _, in := range r.p.graph.inputs {
		if r.weights[in.name] != nil {
			continue // before IR version 4, initializers are inputs too
		}
		dtype, ok := elementTypes[in.dtype]
		if !ok {
			r.assume("the input %s is not a tensor of numbers and was passed over", in.name)
			continue
		}
		if r.vals[in.name] != nil {
			r.fail("the input %q is there twice", in.name)
			return
		}
		shape := r.shapes.input(&in)
		r.vals[in.name] = &tensor{id: r.b.Input(in.name, dtype, shape...), shape: shape, known: in.shape, dtype: dtype}
		if !in.shape {
			r.assume("the input %s has no shape in the file; it was taken for a scalar", in.name)
		}
	}
}

// initializers sorts initializers into parameters, buffers and constants by
// what reads them.
func (r *builder) initializers() {
	g := r.p.graph
	stat, operand := map[string]bool{}, map[string]bool{}
	for i := range g.nodes {
		n := &g.nodes[i]
		for j, name := range n.in {
			switch {
			case n.op == "BatchNormalization" && j >= 3:
				stat[name] = true
			case !settingInput(n.op, j):
				operand[name] = true
			}
		}
	}
	for i := range g.inits {
		t := &g.inits[i]
		if r.weights[t.name] != nil {
			r.fail("the initializer %q is there twice", t.name)
			return
		}
		if _, ok := t.elements(); !ok {
			r.fail("the initializer %q has the shape %v", t.name, t.dims)
			return
		}
		w := &weight{t: t, uses: r.uses[t.name]}
		r.weights[t.name] = w
		r.vals[t.name] = r.constant(t, w)
		dtype := elementTypes[t.dtype]
		switch {
		case stat[t.name]:
			r.declare(t.name, modelgraph.Buffer)
		case dtype.IsFloat() && operand[t.name] && !r.vals[t.name].isNumber:
			w.swapped = r.keptSwapped(t)
			r.declare(t.name, modelgraph.Param)
		}
	}
}

// settingInput reports whether an operator's input is not a tensor in ATen
// but a setting: a shape, axes, a limit.
func settingInput(op string, i int) bool {
	switch op {
	case "Reshape", "Slice", "Unsqueeze", "Squeeze", "Expand", "Tile", "Pad", "Resize", "Upsample", "Split", "TopK", "Clip", "Dropout", "CumSum", "Trilu", "OneHot":
		return i > 0
	case "ConstantOfShape", "Range":
		return true
	}
	return strings.HasPrefix(op, "Reduce") && i > 0
}

// constant is the tensor of a TensorProto.
func (r *builder) constant(t *tensorProto, w *weight) *tensor {
	v := &tensor{id: modelgraph.None, shape: modelgraph.Consts(t.dims...), known: true, dtype: elementTypes[t.dtype], weight: w}
	if t.ints != nil && len(t.dims) < 2 {
		v.ints = modelgraph.Consts(t.ints...)
	}
	v.floats = t.flts
	switch n, _ := t.elements(); {
	case n != 1:
	case t.ints != nil:
		v.number, v.isNumber = float64(t.ints[0]), true
	case t.flts != nil:
		v.number, v.isNumber = t.flts[0], true
	}
	return v
}

// keptSwapped reports whether PyTorch keeps a matrix the other way round: it
// is the right side of one product, as exporters write a linear layer.
func (r *builder) keptSwapped(t *tensorProto) bool {
	if len(t.dims) != 2 || r.uses[t.name] != 1 {
		return false
	}
	n := &r.p.graph.nodes[r.users[t.name]]
	if len(n.in) < 2 || n.in[1] != t.name {
		return false
	}
	if n.op == "Gemm" {
		transB, transA := int64(0), int64(0)
		for _, a := range n.attrs {
			switch a.name {
			case "transB":
				transB = a.i
			case "transA":
				transA = a.i
			}
		}
		return transA == 0 && transB == 0
	}
	return n.op == "MatMul"
}

// declare makes an initializer a parameter or buffer.
func (r *builder) declare(name string, kind modelgraph.Kind) {
	v := r.vals[name]
	if v.id != modelgraph.None {
		return
	}
	shape := v.shape
	if v.weight != nil && v.weight.swapped {
		shape = []modelgraph.Dim{shape[1], shape[0]}
	}
	v.id = r.b.Declare(modelgraph.Value{Name: name, Kind: kind, Shape: shape, DType: v.dtype})
}

func (r *builder) outputs() []modelgraph.ValueID {
	var ids []modelgraph.ValueID
	for _, o := range r.p.graph.outputs {
		v := r.vals[o.name]
		if v == nil {
			r.fail("the result %q is made by no node", o.name)
			return nil
		}
		ids = append(ids, r.tensorOf(v, o.name))
	}
	return ids
}

// tensorOf is the value of a tensor, which it makes where only the content was
// known so far.
func (r *builder) tensorOf(v *tensor, name string) modelgraph.ValueID {
	if v.id != modelgraph.None {
		return v.id
	}
	constant := true
	for _, d := range v.ints {
		_, ok := d.Const()
		constant = constant && ok
	}
	if v.weight != nil || constant {
		shape := v.shape
		for _, d := range shape {
			if _, ok := d.Const(); !ok {
				shape = nil
			}
		}
		v.id = r.b.Declare(modelgraph.Value{Name: name, Kind: modelgraph.Buffer, Shape: shape, DType: v.dtype})
		return v.id
	}
	// A computed shape that is used as a tensor.
	v.id = r.b.Op("arange", modelgraph.Dims("end", modelgraph.Const(int64(len(v.ints)))), modelgraph.Str("dtype", v.dtype.String()))
	return v.id
}

// in is the i-th input of the current node, nil where it is absent.
func (r *builder) in(i int) *tensor {
	if i >= len(r.n.in) || r.n.in[i] == "" {
		return nil
	}
	v := r.vals[r.n.in[i]]
	if v == nil {
		r.fail("its input %q is made by no node before it", r.n.in[i])
		v = &tensor{id: modelgraph.None}
		r.vals[r.n.in[i]] = v
	}
	return v
}

// need is in for an input that must be there.
func (r *builder) need(i int) *tensor {
	v := r.in(i)
	if v == nil {
		r.fail("its input %d is missing", i)
		v = &tensor{id: modelgraph.None}
	}
	return v
}

// arg is the i-th input as an argument.
func (r *builder) arg(i int) modelgraph.ValueID {
	v := r.in(i)
	if v == nil || r.err != nil {
		return modelgraph.None
	}
	return r.tensorOf(v, r.n.in[i])
}

func (r *builder) attr(name string) *attrProto {
	for i := range r.n.attrs {
		if r.n.attrs[i].name == name {
			return &r.n.attrs[i]
		}
	}
	return nil
}

func (r *builder) attrInt(name string, def int64) int64 {
	if a := r.attr(name); a != nil {
		return a.i
	}
	return def
}

func (r *builder) attrFloat(name string, def float64) float64 {
	if a := r.attr(name); a != nil {
		return a.f
	}
	return def
}

func (r *builder) attrInts(name string) []int64 {
	if a := r.attr(name); a != nil {
		return a.ints
	}
	return nil
}

// settings is an attribute of older operator sets that is an input in newer
// ones, as constants. ok is false where there is none.
func (r *builder) settings(name string, input int) (v []int64, ok bool) {
	if a := r.attr(name); a != nil {
		return a.ints, true
	}
	t := r.in(input)
	if t == nil || t.ints == nil {
		return nil, false
	}
	for _, d := range t.ints {
		k, _ := d.Const()
		v = append(v, k)
	}
	return v, true
}

// out says what the i-th result of the current node is.
func (r *builder) out(i int, v *tensor) {
	if i < len(r.n.out) && r.n.out[i] != "" {
		r.set(r.n.out[i], v)
	}
}

func (r *builder) set(name string, v *tensor) {
	if r.vals[name] != nil {
		r.fail("its result %q is made twice", name)
		return
	}
	if !v.known {
		v.shape, v.known = r.shapes.info(r.infos[name])
	}
	if info := r.infos[name]; info != nil {
		if t, ok := elementTypes[info.dtype]; ok {
			v.dtype = t
		}
	}
	r.vals[name] = v
}

// emit adds an operator whose one result is the node's first, of that shape
// (nil where unknown) and type.
func (r *builder) emit(op string, shape []modelgraph.Dim, dtype modelgraph.DType, args ...any) {
	r.out(0, r.op(op, shape, dtype, args...))
}

// op adds an operator inside the current node.
func (r *builder) op(op string, shape []modelgraph.Dim, dtype modelgraph.DType, args ...any) *tensor {
	if r.err != nil {
		return &tensor{id: modelgraph.None}
	}
	return &tensor{id: r.b.Op(op, args...), shape: shape, known: shape != nil, dtype: dtype}
}

// modes notes what the format hides.
func (r *builder) modes() {
	conv, norm, training := false, false, false
	for i := range r.p.graph.nodes {
		n := &r.p.graph.nodes[i]
		switch n.op {
		case "Conv":
			conv = true
		case "BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization":
			norm = true
		}
		for _, a := range n.attrs {
			training = training || a.name == "training_mode" && a.i == 1
		}
	}
	if training {
		return
	}
	if conv && !norm {
		r.assume("the file holds the model as for inference: batch normalisation is part of the convolutions, and training would keep more; a torch.export file is exact")
	} else {
		r.assume("the file holds the model as for inference: dropout and in-place operators are not in it; a torch.export file is exact")
	}
}
