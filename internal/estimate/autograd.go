package estimate

import (
	"container/heap"
	"math"
	"slices"

	"vramscope/internal/modelgraph"
)

// param is a parameter or buffer on the card.
type param struct {
	name      string
	t         *tensor
	trainable bool
	grad      *tensor
	acc       *gradFn // AccumulateGrad
	index     int
}

// gradFn is a node of the autograd graph.
type gradFn struct {
	name  string
	refs  int32
	seq   int
	next  []edge
	outs  int
	saved []*tensor
	// apply takes the gradients of the outputs (nil where there is none; the
	// engine holds them) and returns those of the inputs, which the engine
	// then owns.
	apply func(f *gradFn, g []*tensor) []*tensor
	// frame is the checkpointed block that this node belongs to: its saved
	// tensors are numbers first.. of the block's, made again on demand.
	frame   *frame
	first   int
	present []bool
	shape   [][]int64 // of the outputs, for validate_outputs of their producers
	types   []modelgraph.DType
	acc     *param

	// The engine's state.
	deps   int
	buffer []*tensor
	mark   int
}

type edge struct {
	fn *gradFn
	nr int
}

// need reports whether input i wants a gradient.
func (f *gradFn) need(i int) bool { return i < len(f.next) && f.next[i].fn != nil }

func (m *machine) edgeOf(t *tensor) edge {
	switch {
	case t == nil:
		return edge{}
	case t.fn != nil:
		t.fn.refs++
		return edge{t.fn, t.nr}
	case t.leaf != nil && t.leaf.trainable:
		p := t.leaf
		if p.acc == nil {
			p.acc = &gradFn{name: "AccumulateGrad", seq: math.MaxInt, acc: p, outs: 1, refs: 1,
				shape: [][]int64{p.t.shape}, types: []modelgraph.DType{p.t.dtype}}
		}
		p.acc.refs++
		return edge{p.acc, 0}
	}
	return edge{}
}

// wants reports whether an operator on these inputs is recorded.
func (m *machine) wants(in ...*tensor) bool {
	return m.grad && slices.ContainsFunc(in, (*tensor).requires)
}

// record makes outs results of one autograd node, if any input requires a
// gradient. saved is what the node keeps; the caller gives no references away.
func (m *machine) record(name string, outs, in, saved []*tensor, apply func(f *gradFn, g []*tensor) []*tensor) *gradFn {
	m.seq++
	if !m.wants(in...) {
		return nil
	}
	f := &gradFn{name: name, seq: m.seq, outs: len(outs), apply: apply}
	for _, t := range in {
		f.next = append(f.next, m.edgeOf(t))
	}
	for i, o := range outs {
		if o == nil {
			f.shape, f.types = append(f.shape, nil), append(f.types, 0)
			continue
		}
		if o.fn != nil {
			m.unrefFn(o.fn)
		}
		o.fn, o.nr = f, i
		f.refs++
		f.shape, f.types = append(f.shape, o.shape), append(f.types, o.dtype)
	}
	m.save(f, saved...)
	return f
}

// save keeps tensors for the backward pass. In a checkpointed block they are
// numbered instead.
func (m *machine) save(f *gradFn, saved ...*tensor) {
	if m.block != nil {
		f.first = m.block.count(m, saved)
		if m.block.again == nil {
			f.frame = m.block
			f.frame.refs++
		}
		f.saved = make([]*tensor, len(saved))
		f.present = make([]bool, len(saved))
		for i, t := range saved {
			f.present[i] = t != nil
		}
		return
	}
	for _, t := range saved {
		if t == nil {
			f.saved = append(f.saved, nil)
			continue
		}
		// A saved output does not hold its own node, as a SavedVariable does not.
		s := t
		if t.fn == f {
			s = m.alias(t, t.shape, t.stride)
		} else {
			m.ref(t)
		}
		f.saved = append(f.saved, s)
	}
}

func (m *machine) unrefFn(f *gradFn) {
	f.refs--
	if f.refs > 0 {
		return
	}
	m.release(f)
	for _, e := range f.next {
		if e.fn != nil {
			m.unrefFn(e.fn)
		}
	}
	f.next = nil
}

// release is release_variables.
func (m *machine) release(f *gradFn) {
	m.unref(f.saved...)
	f.saved = nil
	if f.frame != nil {
		fr := f.frame
		f.frame = nil
		fr.done(m)
	}
}

type readyQueue []*gradFn

func (q readyQueue) Len() int           { return len(q) }
func (q readyQueue) Less(i, j int) bool { return q[i].seq > q[j].seq }
func (q readyQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *readyQueue) Push(x any)        { *q = append(*q, x.(*gradFn)) }
func (q *readyQueue) Pop() any {
	o := *q
	f := o[len(o)-1]
	*q = o[:len(o)-1]
	return f
}

// runBackward is Engine::execute for one root. It takes over the reference to
// the root's gradient.
func (m *machine) runBackward(root *tensor, g *tensor) {
	was, wasGrad := m.backward, m.grad
	m.backward, m.grad = true, false
	defer func() { m.backward, m.grad = was, wasGrad }()
	m.seq++
	mark := m.seq
	stack := []*gradFn{root.fn}
	root.fn.mark, root.fn.deps = mark, 0
	for len(stack) > 0 {
		f := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, e := range f.next {
			if e.fn == nil {
				continue
			}
			if e.fn.mark != mark {
				e.fn.mark, e.fn.deps, e.fn.buffer = mark, 0, nil
				stack = append(stack, e.fn)
			}
			e.fn.deps++
		}
	}
	root.fn.buffer = make([]*tensor, root.fn.outs)
	root.fn.buffer[root.nr] = g
	q := readyQueue{root.fn}
	for len(q) > 0 {
		f := heap.Pop(&q).(*gradFn)
		m.evaluate(f, &q)
	}
}

// evaluate is Engine::evaluate_function.
func (m *machine) evaluate(f *gradFn, q *readyQueue) {
	in := f.buffer
	f.buffer = nil
	if f.acc != nil {
		m.accumulateGrad(f.acc, in[0])
		return
	}
	was := m.where
	defer func() { m.where = was }()
	m.where = f.name
	var out []*tensor
	if slices.ContainsFunc(in, func(t *tensor) bool { return t != nil }) {
		if f.frame != nil && len(f.saved) > 0 {
			m.unpack(f)
		}
		out = f.apply(f, in)
		if f.frame != nil {
			// Unpacked tensors are local to apply.
			m.unref(f.saved...)
			f.saved = nil
		}
		m.validate(f, out)
	} else {
		out = make([]*tensor, len(f.next))
	}
	m.unref(in...)
	m.release(f)
	for i, e := range f.next {
		var g *tensor
		if i < len(out) {
			g = out[i]
		}
		if e.fn == nil {
			m.unref(g)
			continue
		}
		if e.fn.buffer == nil {
			e.fn.buffer = make([]*tensor, e.fn.outs)
		}
		if g != nil {
			m.bufferAdd(e.fn.buffer, e.nr, g)
		}
		e.fn.deps--
		if e.fn.deps == 0 {
			heap.Push(q, e.fn)
		}
	}
}

// validate is validate_outputs: gradients get the shape and type of what they
// are the gradient of.
func (m *machine) validate(f *gradFn, out []*tensor) {
	for i, g := range out {
		if g == nil || i >= len(f.next) || f.next[i].fn == nil {
			continue
		}
		e := f.next[i]
		if want := e.fn.shape[e.nr]; !slices.Equal(g.shape, want) {
			s := m.sumTo(g, want)
			m.unref(g)
			out[i], g = s, s
		}
		if want := e.fn.types[e.nr]; g.dtype != want {
			c := m.cast(g, want)
			m.unref(g)
			out[i] = c
		}
	}
}

// inplace is can_accumulate_inplace. A view never is: even without grad mode it
// keeps its base, and with it a second reference to the storage.
func inplace(t *tensor) bool { return !t.view && t.isDense() && t.refs == 1 && t.st.refs == 1 }

// bufferAdd is InputBuffer::add.
func (m *machine) bufferAdd(buf []*tensor, nr int, g *tensor) {
	old := buf[nr]
	switch {
	case old == nil:
		buf[nr] = g
	case inplace(old):
		m.unref(g)
	default:
		s := m.pointwise(old.dtype, old, g)
		m.unref(g, old)
		buf[nr] = s
	}
}

// accumulateGrad is AccumulateGrad::apply: take the gradient over, copy it, or
// add it to the one that is there.
func (m *machine) accumulateGrad(p *param, g *tensor) {
	if g == nil {
		return
	}
	switch {
	case p.grad != nil:
		m.unref(g)
	case g.refs == 1 && obeysLayout(g, p.t):
		p.grad = g
		m.setCategory(g, Gradient)
	default:
		m.where = "AccumulateGrad"
		p.grad = m.empty(g.dtype, g.shape, layoutOf(p.t))
		m.setCategory(p.grad, Gradient)
		m.unref(g)
	}
}

// obeysLayout is utils::obeys_layout_contract: the gradient has the strides of
// a dense parameter, else is contiguous.
func obeysLayout(g, p *tensor) bool {
	if !p.isDense() {
		return g.isContiguous()
	}
	for i := range p.shape {
		if p.shape[i] != 1 && g.stride[i] != p.stride[i] {
			return false
		}
	}
	return true
}

func layoutOf(p *tensor) []int64 {
	if p.isDense() {
		return p.stride
	}
	return contiguousStrides(p.shape)
}
