package estimate

import (
	"fmt"
	"slices"

	"vramscope/internal/modelgraph"
)

// optimizer keeps the state of torch.optim's optimizers and makes the
// temporaries of a step.
type optimizer struct {
	kind  string
	state map[*param][]*tensor
}

// Optimizers are the names that Request.Optimizer accepts.
func Optimizers() []string {
	return []string{"adamw", "adamw-fused", "adamw-loop", "adam", "sgd", "sgdm", "adafactor", "rmsprop", "adagrad", "lion", "adam8bit", "none"}
}

func newOptimizer(kind string) (*optimizer, error) {
	if !slices.Contains(Optimizers(), kind) {
		return nil, fmt.Errorf("optimizer %q: want one of %v", kind, Optimizers())
	}
	return &optimizer{kind: kind, state: map[*param][]*tensor{}}, nil
}

// like makes a tensor of state for a parameter.
func (o *optimizer) like(m *machine, p *param) *tensor {
	t := m.empty(p.t.dtype, p.t.shape, layoutOf(p.t))
	m.setCategory(t, OptimizerState)
	return t
}

func (o *optimizer) number(m *machine) *tensor {
	t := m.empty(f32, nil, nil)
	m.setCategory(t, OptimizerState)
	return t
}

// step is Optimizer.step.
func (o *optimizer) step(m *machine, params []*param) {
	m.where = "optimizer step"
	var ps []*param
	for _, p := range params {
		if p.grad != nil {
			ps = append(ps, p)
		}
	}
	if len(ps) == 0 {
		return
	}
	switch o.kind {
	case "adamw", "adam":
		o.init(m, ps, func(p *param) []*tensor { return []*tensor{o.like(m, p), o.like(m, p)} })
		o.foreachTemporary(m, ps)
	case "adamw-fused":
		o.init(m, ps, func(p *param) []*tensor { return []*tensor{o.number(m), o.like(m, p), o.like(m, p)} })
	case "adamw-loop":
		o.init(m, ps, func(p *param) []*tensor { return []*tensor{o.like(m, p), o.like(m, p)} })
		var denom *tensor
		for _, p := range ps {
			sqrt := m.temporary(p.t)
			d := m.temporary(p.t)
			m.unref(sqrt, denom)
			denom = d
		}
		m.unref(denom)
	case "sgdm":
		o.init(m, ps, func(p *param) []*tensor { return []*tensor{o.like(m, p)} })
	case "lion":
		o.init(m, ps, func(p *param) []*tensor { return []*tensor{o.like(m, p)} })
		for _, p := range ps {
			m.unref(m.temporary(p.t))
		}
	case "rmsprop", "adagrad":
		o.init(m, ps, func(p *param) []*tensor { return []*tensor{o.like(m, p)} })
		o.foreachTemporary(m, ps)
	case "adafactor":
		o.adafactor(m, ps)
	case "adam8bit":
		o.adam8bit(m, ps)
	}
}

func (m *machine) temporary(like *tensor) *tensor {
	t := m.empty(like.dtype, like.shape, nil)
	m.setCategory(t, Temporary)
	return t
}

// init makes the state of parameters that have none yet.
func (o *optimizer) init(m *machine, ps []*param, make func(p *param) []*tensor) {
	for _, p := range ps {
		if o.state[p] == nil {
			o.state[p] = make(p)
		}
	}
}

// foreachTemporary is the list of square roots of a foreach optimizer, which
// Python frees from its end.
func (o *optimizer) foreachTemporary(m *machine, ps []*param) {
	var dtypes []modelgraph.DType
	for _, p := range ps {
		if !slices.Contains(dtypes, p.t.dtype) {
			dtypes = append(dtypes, p.t.dtype)
		}
	}
	for _, dt := range dtypes {
		var list []*tensor
		for _, p := range ps {
			if p.t.dtype == dt {
				list = append(list, m.temporary(p.t))
			}
		}
		for _, t := range slices.Backward(list) {
			m.unref(t)
		}
	}
}

// adafactor is torch.optim.Adafactor: row and column variances, and
// temporaries of one parameter at a time.
func (o *optimizer) adafactor(m *machine, ps []*param) {
	o.init(m, ps, func(p *param) []*tensor {
		vector := func(shape []int64) *tensor {
			t := m.empty(p.t.dtype, shape, nil)
			m.setCategory(t, OptimizerState)
			return t
		}
		if p.t.dim() > 1 {
			row, col := slices.Clone(p.t.shape), slices.Clone(p.t.shape)
			row[len(row)-1] = 1
			col[len(col)-2] = 1
			return []*tensor{vector(row), vector(col)}
		}
		return []*tensor{vector(p.t.shape)}
	})
	// Python's variables hold the last parameter's until they are bound anew.
	var row, col, square, update *tensor
	for _, p := range ps {
		if d := p.t.dim(); d > 1 {
			r := m.reduce(p.grad, []int{d - 1}, true)
			m.unref(row)
			row = r
			c := m.reduce(p.grad, []int{d - 2}, true)
			m.unref(col)
			col = c
		} else {
			q := m.temporary(p.t)
			m.unref(square)
			square = q
		}
		u := m.temporary(p.t)
		m.unref(update)
		update = u
	}
	m.unref(row, col, square, update)
}

// adam8bit is bitsandbytes' Adam with two states of a byte for tensors of 4,096
// elements and more, with a float32 for each 256 (rule: its documentation).
func (o *optimizer) adam8bit(m *machine, ps []*param) {
	o.init(m, ps, func(p *param) []*tensor {
		n := p.t.numel()
		dt, scales := modelgraph.UInt8, ceilDiv(n, 256)
		if n < 4096 {
			dt, scales = f32, 0
		}
		var st []*tensor
		for range 2 {
			t := m.empty(dt, []int64{n}, nil)
			m.setCategory(t, OptimizerState)
			st = append(st, t)
			if scales > 0 {
				s := m.empty(f32, []int64{scales}, nil)
				m.setCategory(s, OptimizerState)
				st = append(st, s)
			}
		}
		return st
	})
}

// zeroGrad is Optimizer.zero_grad.
func (o *optimizer) zeroGrad(m *machine, params []*param, setToNone bool) {
	if !setToNone {
		return
	}
	for _, p := range params {
		if p.grad != nil {
			m.unref(p.grad)
			p.grad = nil
		}
	}
}
