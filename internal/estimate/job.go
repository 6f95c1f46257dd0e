package estimate

import (
	"strings"

	"vramscope/internal/modelgraph"
)

// job is a program with its parameters on the card.
type job struct {
	m          *machine
	p          *program
	r          Request
	params     []*param // in the order of named_parameters
	all        []*param
	paramBytes int64
	inOut      int64 // elements of inputs and outputs
}

// weightType is the type of weights that are not of a fixed type.
func (r *Request) weightType() modelgraph.DType {
	switch r.Precision {
	case BF16:
		return modelgraph.BFloat16
	case FP16:
		return modelgraph.Float16
	}
	return f32
}

// load is model.to(device): children before a module's own parameters, then
// its buffers.
func (j *job) load() {
	g := j.p.g
	j.m.where = "parameters"
	for i, id := range moveOrder(g) {
		v := &g.Values[id]
		dt := v.DType
		if dt.IsFloat() && !v.FixedType {
			dt = j.r.weightType()
		}
		shape := make([]int64, len(v.Shape))
		for k, d := range v.Shape {
			shape[k], _ = d.Const()
		}
		t := j.m.empty(dt, shape, nil)
		if j.r.ChannelsLast && len(shape) == 4 {
			t.stride = channelsLastStrides(shape)
		}
		j.m.setCategory(t, Parameter)
		p := &param{name: v.Name, t: t, trainable: v.Kind == modelgraph.Param && !v.Frozen && dt.IsFloat() && j.r.Mode == Train, index: i}
		if v.Kind == modelgraph.Param {
			t.leaf = p
			j.paramBytes += numel(shape) * dt.Size()
		}
		j.p.env[id] = t
		j.all = append(j.all, p)
	}
	for _, id := range g.Params {
		if t := j.p.env[id]; t.leaf != nil && t.leaf.trainable {
			j.params = append(j.params, t.leaf)
		}
	}
}

// moveOrder is the order in which Module._apply meets parameters and buffers.
func moveOrder(g *modelgraph.Graph) []modelgraph.ValueID {
	type module struct {
		children []string
		index    map[string]*module
		own      []modelgraph.ValueID
		buffers  []modelgraph.ValueID
	}
	root := &module{index: map[string]*module{}}
	for _, id := range g.Params {
		v := &g.Values[id]
		parts := strings.Split(v.Name, ".")
		mod := root
		for _, p := range parts[:len(parts)-1] {
			c := mod.index[p]
			if c == nil {
				c = &module{index: map[string]*module{}}
				mod.index[p] = c
				mod.children = append(mod.children, p)
			}
			mod = c
		}
		if v.Kind == modelgraph.Param {
			mod.own = append(mod.own, id)
		} else {
			mod.buffers = append(mod.buffers, id)
		}
	}
	var out []modelgraph.ValueID
	var walk func(mod *module)
	walk = func(mod *module) {
		for _, c := range mod.children {
			walk(mod.index[c])
		}
		out = append(out, mod.own...)
		out = append(out, mod.buffers...)
	}
	walk(root)
	return out
}

// inputs makes what a step brings.
func (j *job) inputs() {
	g := j.p.g
	j.m.where = "inputs"
	c := &call{machine: j.m, p: j.p, n: &modelgraph.Node{Op: "inputs"}}
	for _, id := range g.Inputs {
		v := &g.Values[id]
		shape := make([]int64, len(v.Shape))
		for k, d := range v.Shape {
			shape[k] = c.dim(d)
		}
		t := j.m.empty(v.DType, shape, nil)
		j.m.setCategory(t, InputData)
		j.p.env[id] = t
	}
}

func (j *job) drop(ids ...modelgraph.ValueID) {
	for _, id := range ids {
		if id != modelgraph.None {
			j.m.unref(j.p.env[id])
			j.p.env[id] = nil
		}
	}
}

func (j *job) forward() {
	m := j.m
	switch j.r.Precision {
	case AMPBF16:
		m.amp, m.autocast = true, modelgraph.BFloat16
	case AMPFP16:
		m.amp, m.autocast = true, modelgraph.Float16
	}
	j.p.run(m, 0, len(j.p.g.Nodes))
	j.inOut = 0
	for _, ids := range [][]modelgraph.ValueID{j.p.g.Inputs, j.p.g.Outputs} {
		for _, id := range ids {
			if t := j.p.env[id]; t != nil {
				j.inOut += t.numel()
			}
		}
	}
	if m.amp {
		m.amp = false
	}
}

// infer is three forward passes without gradients.
func (j *job) infer() {
	for range j.r.Steps {
		j.inputs()
		j.forward()
		j.m.clearCasts()
		j.drop(j.p.g.Outputs...)
		j.drop(j.p.g.Inputs...)
	}
}

// train is steps of training as people write them: forward, loss divided by
// the accumulation, backward, optimizer, zero_grad.
func (j *job) train() error {
	m, g := j.m, j.p.g
	opt, err := newOptimizer(j.r.Optimizer)
	if err != nil {
		return err
	}
	if len(g.Outputs) == 0 {
		m.fail("the graph has no loss")
	}
	for range j.r.Steps {
		for range j.r.Accumulate {
			j.inputs()
			m.grad = true
			j.forward()
			// Outputs[0] is the loss; the others go as the model's output does.
			j.drop(g.Outputs[1:]...)
			m.clearCasts()
			loss := j.p.env[g.Outputs[0]]
			if loss.numel() != 1 || loss.fn == nil {
				m.fail("the graph's first output is not a loss")
			}
			m.where = "loss"
			l := m.scalar("div", loss)
			m.where = "backward"
			root := m.empty(l.dtype, l.shape, nil)
			m.runBackward(l, m.ref(root))
			m.unref(root)
			j.drop(g.Outputs[0])
			m.unref(l)
			j.drop(g.Inputs...)
		}
		m.grad = false
		opt.step(m, j.params)
		opt.zeroGrad(m, j.params, !j.r.KeepGrads)
	}
	return nil
}
