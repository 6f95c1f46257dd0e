package estimate

import (
	"slices"

	"vramscope/internal/modelgraph"
)

// viewOf records a view whose gradient is another view.
func (m *machine) viewOf(name string, x *tensor, shape, stride []int64, back func(g *tensor) *tensor) *tensor {
	out := m.alias(x, shape, stride)
	m.record(name, []*tensor{out}, []*tensor{x}, nil, func(f *gradFn, g []*tensor) []*tensor {
		return []*tensor{back(g[0])}
	})
	return out
}

// resolveShape fills in a -1.
func (m *machine) resolveShape(n int64, shape []int64) []int64 {
	shape = slices.Clone(shape)
	known, at := int64(1), -1
	for i, s := range shape {
		if s == -1 {
			at = i
		} else {
			known *= s
		}
	}
	if at >= 0 && known > 0 && n%known == 0 {
		shape[at] = n / known
		known = n
	}
	if known != n {
		m.fail("%s: %d elements do not fit the shape %v", m.where, n, shape)
	}
	return shape
}

// view is Tensor.view. Where a view is impossible it copies, as reshape does.
func (m *machine) reshape(x *tensor, shape []int64) *tensor {
	shape = m.resolveShape(x.numel(), shape)
	from := x.shape
	st := viewStrides(x.shape, x.stride, shape)
	if st == nil {
		c := m.contiguous(x)
		out := m.reshape(c, shape)
		m.unref(c)
		return out
	}
	return m.viewOf("ViewBackward0", x, shape, st, func(g *tensor) *tensor { return m.reshapeGrad(g, from) })
}

// reshapeGrad is grad.reshape outside autograd.
func (m *machine) reshapeGrad(g *tensor, shape []int64) *tensor {
	if st := viewStrides(g.shape, g.stride, shape); st != nil {
		return m.alias(g, shape, st)
	}
	c := m.empty(g.dtype, shape, nil)
	return c
}

// contiguous is Tensor.contiguous.
func (m *machine) contiguous(x *tensor) *tensor {
	if x.isContiguous() {
		return m.ref(x)
	}
	return m.clone(x, contiguousStrides(x.shape))
}

func (m *machine) clone(x *tensor, stride []int64) *tensor {
	out := m.empty(x.dtype, x.shape, stride)
	m.record("CloneBackward0", []*tensor{out}, []*tensor{x}, nil, func(f *gradFn, g []*tensor) []*tensor {
		return []*tensor{m.ref(g[0])}
	})
	return out
}

func (m *machine) permute(x *tensor, perm []int) *tensor {
	shape, stride := permuted(x, perm)
	inverse := make([]int, len(perm))
	for i, p := range perm {
		inverse[p] = i
	}
	return m.viewOf("PermuteBackward0", x, shape, stride, func(g *tensor) *tensor {
		sh, st := permuted(g, inverse)
		return m.alias(g, sh, st)
	})
}

func permuted(x *tensor, perm []int) (shape, stride []int64) {
	for _, p := range perm {
		shape = append(shape, x.shape[p])
		stride = append(stride, x.stride[p])
	}
	return shape, stride
}

func (m *machine) transpose(x *tensor, a, b int) *tensor {
	n := len(x.shape)
	perm := make([]int, n)
	for i := range perm {
		perm[i] = i
	}
	a, b = (a+n)%n, (b+n)%n
	perm[a], perm[b] = b, a
	return m.permute(x, perm)
}

// sliceGrad is slice_backward and select_backward: zeros with the gradient
// copied in.
func (m *machine) narrow(name string, x *tensor, dim int, n int64) *tensor {
	shape := slices.Clone(x.shape)
	shape[dim] = n
	from := x.shape
	return m.viewOf(name, x, shape, x.stride, func(g *tensor) *tensor { return m.empty(g.dtype, from, nil) })
}

func (m *machine) slice(x *tensor, dim int, start, end, step int64) *tensor {
	n := x.shape[dim]
	if start < 0 {
		start += n
	}
	if end < 0 {
		end += n
	}
	start, end = min(max(start, 0), n), min(max(end, 0), n)
	count := max(ceilDiv(end-start, step), 0)
	if count == n {
		return m.ref(x) // Python's indexing leaves out a slice of everything
	}
	out := m.narrow("SliceBackward0", x, dim, count)
	if step != 1 {
		out.stride = slices.Clone(out.stride)
		out.stride[dim] *= step
	}
	return out
}

func (m *machine) selectDim(x *tensor, dim int) *tensor {
	shape := slices.Delete(slices.Clone(x.shape), dim, dim+1)
	stride := slices.Delete(slices.Clone(x.stride), dim, dim+1)
	from := x.shape
	return m.viewOf("SelectBackward0", x, shape, stride, func(g *tensor) *tensor { return m.empty(g.dtype, from, nil) })
}

func (m *machine) unsqueeze(x *tensor, dim int) *tensor {
	if dim < 0 {
		dim += len(x.shape) + 1
	}
	st := int64(1)
	if dim < len(x.shape) {
		st = x.shape[dim] * x.stride[dim]
	}
	shape, stride := slices.Insert(slices.Clone(x.shape), dim, 1), slices.Insert(slices.Clone(x.stride), dim, st)
	from := x.shape
	return m.viewOf("UnsqueezeBackward0", x, shape, stride, func(g *tensor) *tensor {
		return m.alias(g, from, slices.Delete(slices.Clone(g.stride), dim, dim+1))
	})
}

func (m *machine) squeeze(x *tensor, dims []int) *tensor {
	var shape, stride []int64
	for i, n := range x.shape {
		if n == 1 && slices.Contains(dims, i) {
			continue
		}
		shape, stride = append(shape, n), append(stride, x.stride[i])
	}
	from := x.shape
	return m.viewOf("SqueezeBackward1", x, shape, stride, func(g *tensor) *tensor { return m.reshapeGrad(g, from) })
}

func (m *machine) expand(x *tensor, to []int64) *tensor {
	lead := len(to) - len(x.shape)
	if lead < 0 {
		m.fail("%s: %v does not expand to %v", m.where, x.shape, to)
	}
	shape, stride := slices.Clone(to), make([]int64, len(to))
	for i := range shape {
		if i < lead {
			continue
		}
		n := x.shape[i-lead]
		if shape[i] == -1 {
			shape[i] = n
		}
		if n == shape[i] {
			stride[i] = x.stride[i-lead]
		} else if n != 1 {
			m.fail("%s: %v does not expand to %v", m.where, x.shape, to)
		}
	}
	from := x.shape
	if slices.Equal(from, shape) {
		return m.viewOf("ExpandBackward0", x, shape, x.stride, func(g *tensor) *tensor { return m.ref(g) })
	}
	return m.viewOf("ExpandBackward0", x, shape, stride, func(g *tensor) *tensor { return m.sumTo(g, from) })
}

// split is Tensor.split: views, whose gradients are joined by cat.
func (m *machine) split(x *tensor, dim int, sizes []int64) []*tensor {
	outs := make([]*tensor, len(sizes))
	for i, n := range sizes {
		shape := slices.Clone(x.shape)
		shape[dim] = n
		outs[i] = m.alias(x, shape, x.stride)
	}
	from, dt := x.shape, x.dtype
	m.record("SplitBackward0", outs, []*tensor{x}, nil, func(f *gradFn, g []*tensor) []*tensor {
		var in, made []*tensor
		for i, t := range g {
			if t == nil {
				t = m.empty(dt, outs[i].shape, nil) // zeros
				made = append(made, t)
			}
			in = append(in, t)
		}
		r := m.empty(dt, from, catStrides(from, in))
		m.unref(made...)
		return []*tensor{r}
	})
	return outs
}

// catStrides: cat keeps channels_last where all its inputs have it.
func catStrides(shape []int64, in []*tensor) []int64 {
	if len(shape) != 4 {
		return contiguousStrides(shape)
	}
	for _, t := range in {
		if !t.isChannelsLast() || t.isContiguous() {
			return contiguousStrides(shape)
		}
	}
	return channelsLastStrides(shape)
}

func (m *machine) cat(in []*tensor, dim int) *tensor {
	if len(in) == 0 {
		m.fail("%s: nothing to join", m.where)
	}
	if dim < 0 {
		dim += in[0].dim()
	}
	shape := slices.Clone(in[0].shape)
	shape[dim] = 0
	for _, t := range in {
		shape[dim] += t.shape[dim]
	}
	out := m.empty(promote(in...), shape, catStrides(shape, in))
	sizes := make([]int64, len(in))
	types := make([]modelgraph.DType, len(in))
	for i, t := range in {
		sizes[i], types[i] = t.shape[dim], t.dtype
	}
	m.record("CatBackward0", []*tensor{out}, in, nil, func(f *gradFn, g []*tensor) []*tensor {
		r := make([]*tensor, len(sizes))
		for i, n := range sizes {
			if !f.need(i) {
				continue
			}
			sh := slices.Clone(g[0].shape)
			sh[dim] = n
			v := m.alias(g[0], sh, g[0].stride)
			r[i] = m.cast(v, types[i])
			m.unref(v)
		}
		return r
	})
	return out
}
