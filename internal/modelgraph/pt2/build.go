package pt2

import (
	"fmt"
	"slices"
	"strings"

	"vramscope/internal/modelgraph"
)

// builder turns a program into a Graph.
type builder struct {
	p       *program
	b       *modelgraph.Builder
	symbols *symbols
	steps   []step
	local   *locals
	seen    map[string]bool // assumptions made
	err     error
}

// scope is the names of one graph; graphs inside graphs have their own.
type scope struct {
	g      *graph
	values map[string]modelgraph.ValueID
	grad   bool
	cast   string // autocast: "", "off" or a type
}

// step is a node to emit, or the beginning or end of a graph inside a graph.
type step struct {
	n     *node
	sc    *scope
	stack []modelgraph.Frame
	enter *scope // names to bind from sc, by args
	leave *scope // results to bind in sc
	args  []arg
}

func build(p *program, name string) (*modelgraph.Graph, error) {
	r := &builder{p: p, b: modelgraph.NewBuilder(name, "torch.export"), seen: map[string]bool{}}
	r.symbols = newSymbols(p)
	top := &scope{g: p.graph, values: map[string]modelgraph.ValueID{}, grad: true}
	r.flatten(top, nil, 0)
	r.fixSizes(top)
	r.declare(top)
	r.local = newLocals()
	r.b.Nest(len(r.steps), func(i int) []modelgraph.Frame { return r.steps[i].stack }, func(i int) {
		if r.err == nil {
			r.emit(&r.steps[i])
		}
	})
	if err := r.b.Err(); err != nil && r.err == nil {
		r.err = err
	}
	outputs := r.results(top)
	if r.err != nil {
		return nil, r.err
	}
	r.modes()
	g, err := r.b.Finish(outputs...)
	if err != nil {
		return nil, err
	}
	g.Symbols = r.symbols.list()
	r.local.extend(g)
	return g, nil
}

func (r *builder) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *builder) failNode(n *node, format string, args ...any) {
	r.fail("byte %d: node %s (%s): %s", n.at, n.name, opName(n.target), fmt.Sprintf(format, args...))
}

// assume notes a sentence once.
func (r *builder) assume(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !r.seen[s] {
		r.seen[s] = true
		r.b.Assume("%s", s)
	}
}

// declare declares parameters, buffers, constants and inputs.
func (r *builder) declare(sc *scope) {
	same := r.tied()
	for i, spec := range r.p.inputs {
		name := spec.arg.text
		switch spec.kind {
		case "parameter", "buffer", "tensor_constant", "user_input":
		case "token", "custom_obj", "constant_input":
			continue
		default:
			r.assume("an input of the unknown kind %q was passed over", spec.kind)
			continue
		}
		if spec.arg.kind != argTensor {
			if spec.kind != "user_input" {
				r.fail("input %d (%s) names no tensor", i, spec.kind)
				return
			}
			continue // a number among the inputs
		}
		meta, ok := sc.g.tensors[name]
		if !ok {
			r.fail("input %d: %q has no entry in tensor_values", i, name)
			return
		}
		dtype, ok := scalarTypes[meta.dtype]
		if !ok {
			r.fail("%s has the element type number %d, which is not known", name, meta.dtype)
			return
		}
		if _, twice := sc.values[name]; twice {
			r.fail("the input %q is there twice", name)
			return
		}
		if spec.kind == "user_input" {
			shape := make([]modelgraph.Dim, len(meta.sizes))
			for d, v := range meta.sizes {
				shape[d] = r.dim(sc, v, nil)
				if has(r.symbols.static[name], d) {
					shape[d] = modelgraph.Sym(axisSymbol(namedInput{name, meta}, d, r.symbols.inputs))
				}
			}
			sc.values[name] = r.b.Input(name, dtype, shape...)
			continue
		}
		if first := same[i]; first != i {
			sc.values[name] = sc.values[r.p.inputs[first].arg.text]
			continue
		}
		v := modelgraph.Value{Name: spec.name, Kind: modelgraph.Param, DType: dtype, Frozen: spec.kind == "parameter" && !meta.grad}
		if spec.kind != "parameter" {
			v.Kind = modelgraph.Buffer
		}
		for _, s := range meta.sizes {
			v.Shape = append(v.Shape, r.dim(sc, s, nil))
		}
		sc.values[name] = r.b.Declare(v)
	}
}

// results are the tensors that forward returns. Buffers that a functional
// export returns to write them back are not among them.
func (r *builder) results(sc *scope) []modelgraph.ValueID {
	var out []modelgraph.ValueID
	add := func(a arg) {
		names := a.names
		if a.kind == argTensor {
			names = []string{a.text}
		}
		for _, name := range names {
			if id, ok := sc.values[name]; ok {
				out = append(out, id)
			} else if name != "" {
				r.fail("the result %q is made by no node", name)
			}
		}
	}
	if len(r.p.outputs) == 0 {
		for _, a := range sc.g.outputs {
			add(a)
		}
	}
	for _, o := range r.p.outputs {
		if o.kind == "user_output" || o.kind == "loss_output" {
			add(o.arg)
		}
	}
	return out
}

// dim is an extent in a scope.
func (r *builder) dim(sc *scope, v symInt, n *node) modelgraph.Dim {
	if v.name != "" {
		known, ok := sc.g.ints[v.name]
		if !ok || known.name != "" {
			if n != nil {
				r.failNode(n, "the size %q has no entry in sym_int_values", v.name)
			} else {
				r.fail("the size %q has no entry in sym_int_values", v.name)
			}
			return modelgraph.Dim{}
		}
		v = known
	}
	if v.expr == "" {
		return modelgraph.Const(v.value)
	}
	if d, ok := r.symbols.dims[v.expr]; ok {
		return d
	}
	d, err := parseExpr(v.expr, r.symbols.symbol)
	switch {
	case err != nil && v.value > 0:
		r.assume("%v; the exported value %d was taken", err, v.value)
		d = modelgraph.Const(v.value)
	case err != nil && n != nil:
		r.failNode(n, "%v", err)
	case err != nil:
		r.fail("%v", err)
	}
	r.symbols.dims[v.expr] = d
	return d
}

// flatten lists the nodes of a graph, those of graphs inside it in their place.
func (r *builder) flatten(sc *scope, stack []modelgraph.Frame, level int) {
	for i := range sc.g.nodes {
		n := &sc.g.nodes[i]
		if r.err != nil {
			return
		}
		if fs, ok := parseStack(n.stack); ok {
			stack = fs
		} else if n.stack != "" {
			stack = nil
		}
		at := slices.IndexFunc(n.inputs, func(a arg) bool { return a.kind == argGraph })
		if at < 0 {
			if bookkeeping(opName(n.target)) || !hasTensor(n.outputs) {
				continue
			}
			r.steps = append(r.steps, step{n: n, sc: sc, stack: stack})
			continue
		}
		if level > 8 || len(r.steps) > maxItems {
			r.failNode(n, "graphs inside graphs, more than 8 deep")
			return
		}
		r.inline(sc, n, at, stack, level)
	}
}

func hasTensor(args []arg) bool {
	return slices.ContainsFunc(args, func(a arg) bool { return a.kind == argTensor || a.kind == argTensors })
}

// inline replaces a higher-order operator by the graph it runs: the arguments
// after its graphs are the graph's.
func (r *builder) inline(sc *scope, n *node, at int, stack []modelgraph.Frame, level int) {
	inner := &scope{g: n.inputs[at].graph, values: map[string]modelgraph.ValueID{}, grad: sc.grad, cast: sc.cast}
	rest := n.inputs[at+1:]
	if inner.g == nil {
		r.failNode(n, "its graph is missing")
		return
	}
	switch op := opName(n.target); op {
	case "higher_order.wrap_with_set_grad_enabled":
		inner.grad = at > 0 && len(n.inputs[0].ints) == 1 && n.inputs[0].ints[0].value != 0
	case "higher_order.wrap_with_autocast":
		inner.cast = autocastOf(n.inputs[:at])
	case "higher_order.tag_activation_checkpoint", "higher_order.wrap", "higher_order.invoke_subgraph", "higher_order.wrap_activation_checkpoint":
		for len(rest) > 0 && rest[0].kind == argString { // invoke_subgraph's identifier
			rest = rest[1:]
		}
	default:
		for len(rest) > 0 && rest[0].kind == argGraph {
			rest = rest[1:]
		}
		r.assume("%s was taken to run its first graph once", op)
	}
	// Operands may come as one list.
	var args []arg
	for _, a := range rest {
		if a.kind == argTensors && len(inner.g.inputs) != len(rest) {
			for _, name := range a.names {
				args = append(args, arg{kind: argTensor, text: name})
			}
			continue
		}
		args = append(args, a)
	}
	if len(args) < len(inner.g.inputs) {
		r.failNode(n, "its graph takes %d inputs and gets %d", len(inner.g.inputs), len(args))
		return
	}
	r.steps = append(r.steps, step{n: n, sc: sc, stack: stack, enter: inner, args: args[:len(inner.g.inputs)]})
	r.flatten(inner, stack, level+1)
	r.steps = append(r.steps, step{n: n, sc: sc, stack: stack, leave: inner})
}

// autocastOf reads wrap_with_autocast's (device_type, dtype, enabled, …).
func autocastOf(args []arg) string {
	kind := ""
	for _, a := range args {
		switch a.kind {
		case argDType:
			kind = scalarTypes[a.ints[0].value].String()
		case argInts:
			if len(a.ints) == 1 && a.ints[0].value == 0 {
				return "off"
			}
			return kind
		}
	}
	return kind
}

// opName is ATen's name without overload; other libraries keep theirs in
// front.
func opName(target string) string {
	name := strings.TrimPrefix(target, "torch.ops.")
	name = strings.TrimPrefix(name, "aten.")
	space, rest, ok := strings.Cut(name, ".")
	if !ok {
		return name
	}
	if len(name) < len(target)-len("torch.ops.") { // it was ATen's
		return space
	}
	op, _, _ := strings.Cut(rest, ".")
	return space + "." + op
}

// emit adds the node of a step.
func (r *builder) emit(s *step) {
	switch {
	case s.enter != nil:
		for i, in := range s.enter.g.inputs {
			if id, ok := r.lookup(s, s.args[i].text); ok && in.kind == argTensor && s.args[i].kind == argTensor {
				s.enter.values[in.text] = id
			}
		}
		return
	case s.leave != nil:
		r.bindResults(s)
		return
	}
	n := s.n
	op := opName(n.target)
	args := make([]any, 0, len(n.inputs)+2)
	if names, ok := tensorArgs[op]; ok {
		for _, name := range names {
			id := modelgraph.None
			if i := slices.IndexFunc(n.inputs, func(a arg) bool { return a.name == name }); i >= 0 && n.inputs[i].kind == argTensor {
				id, _ = r.lookup(s, n.inputs[i].text)
			}
			args = append(args, id)
		}
	}
	for i := range n.inputs {
		args = r.argument(s, &n.inputs[i], tensorArgs[op], args)
	}
	if !s.sc.grad {
		args = append(args, modelgraph.Flag("no_grad"))
	}
	if s.sc.cast != "" {
		args = append(args, modelgraph.Str("autocast", s.sc.cast))
	}
	names := outputNames(n)
	ids := r.b.Ops(op, len(names), args...)
	for i, name := range names {
		s.sc.values[name] = ids[i]
	}
	r.local.ran(s, ids)
}

func outputNames(n *node) []string {
	var names []string
	for _, o := range n.outputs {
		switch o.kind {
		case argTensor:
			names = append(names, o.text)
		case argTensors:
			names = append(names, o.names...)
		}
	}
	return names
}

func (r *builder) bindResults(s *step) {
	inner := s.leave.g.outputs
	var have []modelgraph.ValueID
	for _, o := range inner {
		for _, name := range append(slices.Clone(o.names), o.text) {
			if id, ok := s.leave.values[name]; ok {
				have = append(have, id)
			}
		}
	}
	names := outputNames(s.n)
	if len(names) > len(have) {
		r.failNode(s.n, "its graph returns %d tensors instead of %d", len(have), len(names))
		return
	}
	for i, name := range names {
		s.sc.values[name] = have[i]
	}
}

func (r *builder) lookup(s *step, name string) (modelgraph.ValueID, bool) {
	id, ok := s.sc.values[name]
	if !ok && name != "" {
		r.failNode(s.n, "its argument %q is made by no node before it", name)
	}
	if !ok {
		id = modelgraph.None
	}
	return id, ok
}

// argument appends what one argument is in the graph. Tensors with a place of
// their own are there already.
func (r *builder) argument(s *step, a *arg, placed []string, args []any) []any {
	switch a.kind {
	case argTensor:
		if !slices.Contains(placed, a.name) {
			id, _ := r.lookup(s, a.text)
			args = append(args, id)
		}
	case argTensors:
		for _, name := range a.names {
			id, _ := r.lookup(s, name)
			args = append(args, id)
		}
	case argInts:
		dims := make([]modelgraph.Dim, len(a.ints))
		for i, v := range a.ints {
			dims[i] = r.dim(s.sc, v, s.n)
		}
		args = append(args, modelgraph.Attr{Key: a.name, Ints: dims})
	case argFloat, argFloats:
		args = append(args, modelgraph.Float(a.name, a.float))
	case argString:
		args = append(args, modelgraph.Str(a.name, a.text))
	case argDType:
		if t, ok := scalarTypes[a.ints[0].value]; ok {
			args = append(args, modelgraph.Str(a.name, t.String()))
		} else if v := a.ints[0].value; v != 0 {
			r.failNode(s.n, "the element type number %d is not known", v)
		}
	case argFormat:
		if f := memoryFormats[a.ints[0].value]; f != "" {
			args = append(args, modelgraph.Str(a.name, f))
		}
	}
	return args
}

// modes notes what the way of exporting hides.
func (r *builder) modes() {
	switch r.p.verifier {
	case "", "TRAINING":
	default:
		r.assume("the export is functional (%s): operators that the source runs in place were taken as written", r.p.verifier)
	}
	eval := 0
	for i := range r.steps {
		n := r.steps[i].n
		for _, a := range n.inputs {
			if (a.name == "training" || a.name == "train") && a.kind == argInts && len(a.ints) == 1 && a.ints[0].value == 0 {
				eval++
			}
		}
		if opName(n.target) == "_native_batch_norm_legit_no_training" {
			eval++
		}
	}
	if eval > 0 {
		r.assume("the model was exported in evaluation mode: %d normalisations or dropouts run as in inference", eval)
	}
}
