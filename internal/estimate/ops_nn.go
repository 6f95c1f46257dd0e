package estimate

import (
	"slices"

	"vramscope/internal/modelgraph"
)

// layerNorm is F.layer_norm over the last n dimensions.
func (m *machine) layerNorm(x, w, bias *tensor, n int) *tensor {
	if m.amp {
		cb := m.autocastTo(bias, f32)
		cw := m.autocastTo(w, f32)
		cx := m.autocastTo(x, f32)
		defer m.unref(cx, cw, cb)
		x, w, bias = cx, cw, cb
	}
	c := m.contiguous(x)
	stats := slices.Clone(x.shape)
	for i := x.dim() - n; i < x.dim(); i++ {
		stats[i] = 1
	}
	out := m.empty(x.dtype, x.shape, nil)
	mean := m.empty(f32, stats, nil)
	rstd := m.empty(f32, stats, nil)
	m.record("NativeLayerNormBackward0", []*tensor{out}, []*tensor{x, w, bias}, []*tensor{x, mean, rstd}, func(f *gradFn, g []*tensor) []*tensor {
		r := make([]*tensor, 3)
		if !x.isContiguous() {
			xc := m.empty(x.dtype, x.shape, nil)
			defer m.unref(xc)
		}
		gc := g[0]
		if !gc.isContiguous() {
			gc = m.empty(gc.dtype, gc.shape, nil)
			defer m.unref(gc)
		}
		if f.need(0) {
			r[0] = m.empty(x.dtype, x.shape, nil)
		}
		for i, t := range []*tensor{w, bias} {
			if f.need(i + 1) {
				r[i+1] = m.empty(t.dtype, t.shape, nil)
			}
		}
		// Many rows of few columns are summed in two steps
		// (LaunchGammaBetaBackwardCUDAKernel).
		cols := numel(x.shape[x.dim()-n:])
		rows := x.numel() / max(cols, 1)
		if rows > 64*1024 && cols/32 < m.card.multiprocessors/2 && (f.need(1) || f.need(2)) {
			a := m.scratch(ceilDiv(rows, 32) * cols * 4)
			b := m.scratch(ceilDiv(rows, 32) * cols * 4)
			m.unref(b, a)
		}
		return r
	})
	m.unref(c, mean, rstd)
	return out
}

// meanOp is Tensor.mean over dims.
func (m *machine) meanOp(x *tensor, dims []int, keep bool) *tensor {
	out := m.reduce(x, dims, keep)
	shape := x.shape
	m.record("MeanBackward1", []*tensor{out}, []*tensor{x}, nil, func(f *gradFn, g []*tensor) []*tensor {
		like := m.broadcastLike(g[0], shape, dims, keep)
		return []*tensor{m.empty(g[0].dtype, shape, pointwiseStrides(shape, []*tensor{like}))}
	})
	return out
}

// sumOp is Tensor.sum over dims.
func (m *machine) sumOp(x *tensor, dims []int, keep bool) *tensor {
	if m.amp && x.dtype != f32 && x.dtype.IsFloat() {
		x = m.to(x, f32)
		defer m.unref(x)
	}
	out := m.reduce(x, dims, keep)
	shape := x.shape
	m.record("SumBackward1", []*tensor{out}, []*tensor{x}, nil, func(f *gradFn, g []*tensor) []*tensor {
		like := m.broadcastLike(g[0], shape, dims, keep)
		return []*tensor{m.alias(g[0], shape, like.stride)}
	})
	return out
}

// broadcastLike is a gradient expanded to the shape before a reduction, as a
// description: it holds no memory.
func (m *machine) broadcastLike(g *tensor, shape []int64, dims []int, keep bool) *tensor {
	st := make([]int64, len(shape))
	j := 0
	for d := range shape {
		if slices.Contains(dims, d) {
			if keep {
				j++
			}
			continue
		}
		st[d] = g.stride[j]
		j++
	}
	return &tensor{shape: shape, stride: st, dtype: g.dtype}
}

// embedding is F.embedding(weight, indices). Its gradient is as large as the
// weight; on the way the indices are sorted (EmbeddingBackwardKernel.cu).
func (m *machine) embedding(w, idx *tensor) *tensor {
	var c *tensor
	if !idx.isContiguous() {
		c = m.empty(idx.dtype, idx.shape, nil)
	}
	out := m.empty(w.dtype, append(slices.Clone(idx.shape), w.size(1)), nil)
	m.unref(c)
	m.record("EmbeddingBackward0", []*tensor{out}, []*tensor{w}, []*tensor{idx}, func(f *gradFn, g []*tensor) []*tensor {
		var gc, ic *tensor
		if !g[0].isContiguous() {
			gc = m.empty(g[0].dtype, g[0].shape, nil)
		}
		if !idx.isContiguous() {
			ic = m.empty(idx.dtype, idx.shape, nil)
		}
		r := m.empty(w.dtype, w.shape, nil)
		n := idx.numel()
		if n > 3072 {
			sorted := m.scratch(n * 8)
			orig := m.scratch(n * 8)
			m.unref(sorted, orig)
		}
		m.unref(ic, gc)
		return []*tensor{r}
	})
	return out
}

// logSoftmax is F.log_softmax over the last dimension or dim 1.
func (m *machine) logSoftmax(x *tensor, dt modelgraph.DType) *tensor {
	in := m.to(x, dt)
	out := m.empty(dt, x.shape, nil)
	m.record("LogSoftmaxBackward0", []*tensor{out}, []*tensor{in}, []*tensor{out}, func(f *gradFn, g []*tensor) []*tensor {
		return []*tensor{m.empty(g[0].dtype, g[0].shape, nil)}
	})
	m.unref(in)
	return out
}

// crossEntropy is F.cross_entropy with class indices and the mean.
func (m *machine) crossEntropy(logits, target *tensor) *tensor {
	lp := m.logSoftmax(logits, logits.dtype)
	spatial := logits.dim() == 4
	name := "NllLossBackward0"
	if spatial {
		name = "NllLoss2DBackward0"
	}
	if m.amp {
		lp2 := m.to(lp, f32)
		m.unref(lp)
		lp = lp2
	}
	out := m.empty(lp.dtype, nil, nil)
	total := m.empty(lp.dtype, nil, nil)
	m.record(name, []*tensor{out}, []*tensor{lp}, []*tensor{lp, target, total}, func(f *gradFn, g []*tensor) []*tensor {
		return []*tensor{m.empty(lp.dtype, lp.shape, nil)}
	})
	m.unref(lp, total)
	return out
}
