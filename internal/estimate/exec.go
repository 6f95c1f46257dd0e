package estimate

import (
	"slices"

	"vramscope/internal/modelgraph"
)

// program is a graph with its sizes bound: what the machine runs.
type program struct {
	g     *modelgraph.Graph
	bind  modelgraph.Binding
	ops   map[string]operator
	env   []*tensor // by ValueID
	where []string  // by node
	// unknown are the operators that no rule is known for.
	unknown []string
	// ckpt says that blocks are checkpointed.
	ckpt bool
}

// call is a node that runs, with its arguments.
type call struct {
	*machine
	p  *program
	n  *modelgraph.Node
	in []*tensor
}

// operator runs a node and returns its results, which the program then owns.
type operator func(c *call) []*tensor

func (c *call) dim(d modelgraph.Dim) int64 {
	v, err := d.Eval(c.p.bind)
	if err != nil {
		c.fail("%s: %w", c.n.Op, err)
	}
	return v
}

// ints returns an attribute's integers, nil where it is absent.
func (c *call) ints(key string) []int64 {
	a := c.n.Attr(key)
	if a == nil {
		return nil
	}
	out := make([]int64, len(a.Ints))
	for i, d := range a.Ints {
		out[i] = c.dim(d)
	}
	return out
}

// int returns an integer, or def where it is absent.
func (c *call) int(key string, def int64) int64 {
	if a := c.n.Attr(key); a != nil && len(a.Ints) > 0 {
		return c.dim(a.Ints[0])
	}
	return def
}

// axis returns a dimension of t, counted from the front.
func (c *call) axis(key string, def int64, rank int) int {
	d := int(c.int(key, def))
	if d < 0 {
		d += rank
	}
	if d < 0 || d >= rank {
		c.fail("%s: dimension %d of a tensor of %d", c.n.Op, d, rank)
	}
	return d
}

// axes returns dimensions, all of them where the attribute is absent.
func (c *call) axes(key string, rank int) []int {
	a := c.ints(key)
	var out []int
	if len(a) == 0 {
		for i := range rank {
			out = append(out, i)
		}
		return out
	}
	for _, d := range a {
		if d < 0 {
			d += int64(rank)
		}
		if d < 0 || d >= int64(rank) {
			c.fail("%s: dimension %d of a tensor of %d", c.n.Op, d, rank)
		}
		out = append(out, int(d))
	}
	return out
}

func (c *call) dtype(key string, def modelgraph.DType) modelgraph.DType {
	s := c.n.Str(key, "")
	if s == "" {
		return def
	}
	t, ok := modelgraph.DTypeByName(s)
	if !ok {
		c.fail("%s: unknown type %q", c.n.Op, s)
	}
	return t
}

// arg returns a tensor argument, nil where it is absent.
func (c *call) arg(i int) *tensor {
	if i < len(c.in) {
		return c.in[i]
	}
	return nil
}

// need returns a tensor argument that must be there.
func (c *call) need(i int) *tensor {
	t := c.arg(i)
	if t == nil {
		c.fail("%s: argument %d is missing", c.n.Op, i)
	}
	return t
}

// run runs the nodes [first, last).
func (p *program) run(m *machine, first, last int) {
	for i := first; i < last; i++ {
		if p.ckpt && m.block == nil && m.grad {
			if c := p.blockAt(i); c >= 0 {
				p.runBlock(m, c)
				i = p.g.Calls[c].Last - 1
				continue
			}
		}
		p.step(m, i)
	}
}

func (p *program) step(m *machine, i int) {
	n := &p.g.Nodes[i]
	if p.where == nil {
		p.where = make([]string, len(p.g.Nodes))
	}
	if p.where[i] == "" {
		p.where[i] = p.g.Calls[n.Call].Path + " " + n.Op
	}
	m.where = p.where[i]
	op := p.ops[n.Op]
	if op == nil {
		op = assumed
		if !slices.Contains(p.unknown, n.Op) {
			p.unknown = append(p.unknown, n.Op)
		}
	}
	c := &call{machine: m, p: p, n: n, in: make([]*tensor, len(n.In))}
	for k, id := range n.In {
		if id == modelgraph.None {
			continue
		}
		c.in[k] = p.env[id] // nil where a mask turned out to be needless
	}
	var out []*tensor
	if noGrad, grad := n.Bool("no_grad"), m.grad; noGrad {
		m.grad = false
		out = op(c)
		m.grad = grad
	} else {
		out = op(c)
	}
	if len(out) < len(n.Out) {
		m.fail("%s: %d results instead of %d", m.where, len(out), len(n.Out))
	}
	for k, id := range n.Out {
		p.env[id] = out[k]
	}
	m.unref(out[len(n.Out):]...)
	for _, id := range n.Drop {
		m.unref(p.env[id])
		p.env[id] = nil
	}
}

// assumed stands for an operator that no rule is known for: its results are as
// its first tensor, which it keeps for the backward pass.
func assumed(c *call) []*tensor {
	x := c.need(0)
	var outs []*tensor
	for range c.n.Out {
		outs = append(outs, c.pointwise(x.dtype, x))
	}
	if len(outs) > 0 && x.dtype.IsFloat() {
		c.record("UnknownBackward0", outs, one(x), one(x), func(f *gradFn, g []*tensor) []*tensor {
			return one(c.pointwise(x.dtype, x))
		})
	}
	return outs
}

// frame is a call of torch.utils.checkpoint without reentry: what its block
// saves for the backward pass is only counted, and made again when asked for.
type frame struct {
	p     *program
	call  int
	args  map[modelgraph.ValueID]*tensor // held until the block is gone
	order []modelgraph.ValueID           // of args
	total int                            // tensors that the block saves
	again *recomputation
	amp   bool
	refs  int // nodes that hold it
}

// recomputation runs a block a second time.
type recomputation struct {
	kept []*tensor
	need int
}

// count numbers saved tensors; in a recomputation it keeps them.
func (f *frame) count(m *machine, saved []*tensor) int {
	if r := f.again; r != nil {
		first := len(r.kept)
		for _, t := range saved {
			if t == nil {
				continue
			}
			r.kept = append(r.kept, m.alias(t, t.shape, t.stride))
		}
		return first
	}
	first := f.total
	for _, t := range saved {
		if t != nil {
			f.total++
		}
	}
	return first
}

// blockAt returns the checkpointed call that begins at node i, or -1.
func (p *program) blockAt(i int) int {
	for c := p.g.Nodes[i].Call; c >= 0; c = p.g.Calls[c].Parent {
		if p.g.Calls[c].Block && p.g.Calls[c].First == i {
			return c
		}
	}
	return -1
}

func (p *program) runBlock(m *machine, c int) {
	f := &frame{p: p, call: c, args: map[modelgraph.ValueID]*tensor{}, amp: m.amp}
	call := p.g.Calls[c]
	made := map[modelgraph.ValueID]bool{}
	for i := call.First; i < call.Last; i++ {
		for _, id := range p.g.Nodes[i].In {
			if id != modelgraph.None && !made[id] && f.args[id] == nil && p.g.Values[id].Kind != modelgraph.Param {
				f.args[id] = m.ref(p.env[id])
				f.order = append(f.order, id)
			}
		}
		for _, id := range p.g.Nodes[i].Out {
			made[id] = true
		}
	}
	m.block = f
	for i := call.First; i < call.Last; i++ {
		p.step(m, i)
	}
	m.block = nil
}

// unpack makes the saved tensors of f's block again, if that has not been done
// in this backward pass, and hands f its own.
func (m *machine) unpack(f *gradFn) {
	fr := f.frame
	if fr.again == nil {
		fr.recompute(m)
	}
	k := f.first
	for i := range f.saved {
		if k < len(fr.again.kept) && f.present[i] {
			f.saved[i] = fr.again.kept[k]
			fr.again.kept[k] = nil
			k++
		}
	}
}

func (f *frame) recompute(m *machine) {
	was := *m
	f.again = &recomputation{need: f.total}
	p := f.p
	// The block's values take the places of those of the forward pass for a
	// while.
	call := p.g.Calls[f.call]
	before := map[modelgraph.ValueID]*tensor{}
	for _, id := range f.order {
		before[id] = p.env[id]
		p.env[id] = m.ref(f.args[id])
	}
	for i := call.First; i < call.Last; i++ {
		for _, id := range p.g.Nodes[i].Out {
			before[id] = p.env[id]
			p.env[id] = nil
		}
	}
	m.block, m.grad, m.amp = f, true, f.amp
	// It stops as soon as all that was saved is there again.
	for i := call.First; i < call.Last && len(f.again.kept) < f.again.need; i++ {
		p.step(m, i)
	}
	// The frames unwind: all that the block made goes, but what is kept.
	for _, id := range f.order {
		m.unref(p.env[id])
		p.env[id] = before[id]
	}
	for i := call.First; i < call.Last; i++ {
		for _, id := range p.g.Nodes[i].Out {
			m.unref(p.env[id])
			p.env[id] = before[id]
		}
	}
	m.block, m.grad, m.amp, m.where = was.block, was.grad, was.amp, was.where
	if m.amp || f.amp {
		m.clearCasts()
	}
}

// done is called for each node of the block that has let its saved tensors go.
func (f *frame) done(m *machine) {
	f.refs--
	if f.refs > 0 {
		return
	}
	for _, id := range f.order {
		m.unref(f.args[id])
	}
	f.args = nil
	if f.again != nil {
		m.unref(f.again.kept...)
		f.again.kept = nil
	}
}
