package estimate

import (
	"slices"

	"vramscope/internal/modelgraph"
)

// conv describes a convolution or, transposed, the gradient of one.
type conv struct {
	x, w, bias *tensor
	stride     []int64
	padding    []int64
	outPadding []int64
	dilation   []int64
	groups     int64
	transposed bool
}

func visionOperators() map[string]operator {
	ops := map[string]operator{
		"batch_norm": func(c *call) []*tensor { return one(c.batchNorm()) },
		"group_norm": func(c *call) []*tensor {
			x := c.need(0)
			return one(c.groupNorm(x, c.arg(1), c.arg(2), c.int("num_groups", 1)))
		},
		"max_pool2d": func(c *call) []*tensor { return one(c.maxPool()) },
		"avg_pool2d": func(c *call) []*tensor {
			x := c.need(0)
			k, s, p := c.pair("kernel_size", 1), c.pair("stride", 0), c.pair("padding", 0)
			if s[0] == 0 {
				s = k
			}
			return one(c.pool("AvgPool2DBackward0", x, pooled(x.shape, k, s, p, []int64{1, 1}, c.n.Bool("ceil_mode")), []*tensor{x}))
		},
		"adaptive_avg_pool2d": func(c *call) []*tensor {
			x := c.need(0)
			size := c.pair("output_size", 1)
			if size[0] == 1 && size[1] == 1 {
				n := x.dim()
				return one(c.meanOp(x, []int{n - 2, n - 1}, true))
			}
			return one(c.pool("AdaptiveAvgPool2DBackward0", x, append(slices.Clone(x.shape[:x.dim()-2]), size...), []*tensor{x}))
		},
		"pad": func(c *call) []*tensor {
			x, p := c.need(0), c.ints("pad")
			shape := slices.Clone(x.shape)
			zero := true
			for i := 0; i+1 < len(p); i += 2 {
				d := x.dim() - 1 - i/2
				shape[d] += p[i] + p[i+1]
				zero = zero && p[i] == 0 && p[i+1] == 0
			}
			if zero {
				// constant_pad_nd of nothing is a clone.
				return one(c.clone(x, preservedStrides(x)))
			}
			out := c.empty(x.dtype, shape, nil)
			c.record("ConstantPadNdBackward0", one(out), one(x), nil, func(f *gradFn, g []*tensor) []*tensor {
				return one(c.empty(g[0].dtype, x.shape, nil))
			})
			return one(out)
		},
		"roll": func(c *call) []*tensor {
			x := c.need(0)
			out := c.empty(x.dtype, x.shape, nil)
			c.record("RollBackward0", one(out), one(x), nil, func(f *gradFn, g []*tensor) []*tensor {
				return one(c.empty(g[0].dtype, x.shape, nil))
			})
			return one(out)
		},
		"dropout_": func(c *call) []*tensor {
			x := c.need(0)
			if !c.training || c.n.Float("p", 0) == 0 {
				return one(c.ref(x))
			}
			noise := c.pointwise(x.dtype, x)
			out := c.inPlace(x)
			c.record("MulBackward0", one(out), one(x), one(noise), func(f *gradFn, g []*tensor) []*tensor {
				return one(c.pointwise(g[0].dtype, g[0]))
			})
			c.unref(noise)
			return one(out)
		},
		"bernoulli_": func(c *call) []*tensor {
			out := c.inPlace(c.need(0))
			out.noise = !c.training
			return one(out)
		},
		"fill_":     func(c *call) []*tensor { return one(c.inPlace(c.need(0))) },
		"copy_":     func(c *call) []*tensor { return one(c.inPlace(c.need(0))) },
		"new_zeros": newLike, "new_ones": newLike, "new_full": newLike, "new_empty": newLike,
		"upsample": func(c *call) []*tensor {
			x := c.need(0)
			return one(c.pool("UpsampleBackward0", x, append(slices.Clone(x.shape[:2]), c.pair("output_size", 1)...), nil))
		},
	}
	for _, name := range []string{"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"} {
		ops[name] = convOperator(name)
	}
	ops["upsample_bilinear2d"], ops["upsample_nearest2d"], ops["upsample_bicubic2d"] = ops["upsample"], ops["upsample"], ops["upsample"]
	ops["constant_pad_nd"] = ops["pad"]
	return ops
}

// newLike is Tensor.new_zeros and its like: a size of its own, the type of a
// tensor.
func newLike(c *call) []*tensor {
	return one(c.empty(c.dtype("dtype", c.need(0).dtype), c.ints("size"), nil))
}

// pair returns an attribute of one or two integers as two.
func (c *call) pair(key string, def int64) []int64 { return c.spread(key, def, 2) }

func (c *call) spread(key string, def int64, n int) []int64 {
	v := c.ints(key)
	switch len(v) {
	case 0:
		v = []int64{def}
	case n:
		return v
	}
	out := make([]int64, n)
	for i := range out {
		out[i] = v[0]
	}
	return out
}

func convOperator(name string) operator {
	transposed := len(name) > 6 && name[:6] == "conv_t"
	return func(c *call) []*tensor {
		x, w := c.need(0), c.need(1)
		n := w.dim() - 2
		if n < 1 {
			c.fail("%s: a weight of %d dimensions", name, w.dim())
		}
		v := conv{x: x, w: w, bias: c.arg(2), stride: c.spread("stride", 1, n), padding: c.spread("padding", 0, n),
			outPadding: c.spread("output_padding", 0, n), dilation: c.spread("dilation", 1, n), groups: max(c.int("groups", 1), 1), transposed: transposed}
		return one(c.conv(v))
	}
}

func (v *conv) outShape(m *machine) []int64 {
	n := v.w.dim() - 2
	channels := v.w.size(0)
	if v.transposed {
		channels = v.w.size(1) * v.groups
	}
	shape := []int64{v.x.size(0), channels}
	for i := range n {
		in, k := v.x.size(2+i), v.dilation[i]*(v.w.size(2+i)-1)+1
		var o int64
		if v.transposed {
			o = (in-1)*v.stride[i] - 2*v.padding[i] + k + v.outPadding[i]
		} else {
			o = (in+2*v.padding[i]-k)/max(v.stride[i], 1) + 1
		}
		if o < 1 {
			m.fail("%s: an input of %v is too small for a kernel of %v", m.where, v.x.shape, v.w.shape)
		}
		shape = append(shape, o)
	}
	return shape
}

// conv is F.conv*. cuDNN works on channels_last: for other layouts it has
// copies of what it reads and writes in its workspace.
func (m *machine) conv(v conv) *tensor {
	if m.amp {
		b := m.autocastTo(v.bias, m.autocast)
		w := m.autocastTo(v.w, m.autocast)
		x := m.autocastTo(v.x, m.autocast)
		defer m.unref(x, w, b)
		v.x, v.w, v.bias = x, w, b
	}
	channelsIn := v.w.size(1) * v.groups
	if v.transposed {
		channelsIn = v.w.size(0)
	}
	if v.x.dim() != v.w.dim() || v.x.size(1) != channelsIn {
		m.fail("%s: input %v, weight %v", m.where, v.x.shape, v.w.shape)
	}
	last := v.x.dim() == 4 && (v.x.isChannelsLast() && !v.x.isContiguous() || v.w.isChannelsLast() && !v.w.isContiguous())
	layout := func(shape []int64) []int64 {
		if last {
			return channelsLastStrides(shape)
		}
		return nil
	}
	var xc *tensor
	if last && !v.x.isChannelsLast() || !last && !v.x.isContiguous() {
		xc = m.clone(v.x, layout(v.x.shape))
	} else {
		xc = m.ref(v.x)
	}
	defer m.unref(xc)
	depthwise := v.groups > 1 && v.groups == v.x.size(1) && !v.transposed
	shape := v.outShape(m)
	out := m.empty(v.x.dtype, shape, layout(shape))
	work := []int64{numel(shape), numel(v.w.shape[1:])}
	if v.transposed {
		work = []int64{v.x.numel(), numel(v.w.shape[1:])}
	}
	m.product(v.x.dtype, work...)
	dt := v.x.dtype
	workspace := func(weightGradient bool) {
		if n := m.convWorkspace(&v, shape, depthwise || last, weightGradient); n > 0 {
			m.unref(m.scratch(n))
		}
	}
	if last && !v.w.isChannelsLast() {
		m.unref(m.empty(v.w.dtype, v.w.shape, layout(v.w.shape))) // the kernel in channels_last
	}
	workspace(false)
	m.record("ConvolutionBackward0", []*tensor{out}, []*tensor{v.x, v.w, v.bias}, []*tensor{xc, v.w}, func(f *gradFn, g []*tensor) []*tensor {
		r := make([]*tensor, 3)
		gc := g[0]
		if last && !gc.isChannelsLast() || !last && !gc.isContiguous() {
			gc = m.empty(gc.dtype, gc.shape, layout(gc.shape))
			defer m.unref(gc)
		}
		if f.need(0) {
			m.product(dt, work...)
			r[0] = m.empty(dt, v.x.shape, layout(v.x.shape))
			workspace(false)
		}
		if f.need(1) {
			m.product(dt, work...)
			r[1] = m.empty(dt, v.w.shape, layout(v.w.shape))
			workspace(true)
		}
		if f.need(2) {
			dims := []int{0}
			for d := 2; d < len(shape); d++ {
				dims = append(dims, d)
			}
			r[2] = m.reduce(gc, dims, false)
		}
		return r
	})
	return out
}

// convWorkspace is what cuDNN's kernels on Hopper take beside their tensors, as
// recordings show it (docs/accuracy-fit.md): copies in channels_last of what is
// read and written, the kernel where it is more than a point, and for the
// weights' gradient the partial sums of a product split over the
// multiprocessors. Products with a single point need no copies.
func (m *machine) convWorkspace(v *conv, out []int64, native, weightGradient bool) int64 {
	size := v.x.dtype.Size()
	if native {
		if weightGradient && v.groups > 1 && v.groups == v.x.size(1) && size == 4 && numel(v.w.shape[2:]) >= 49 {
			// A depthwise kernel of 7 × 7 in channels_last.
			return 9 * size * v.x.numel()
		}
		return 0
	}
	channels := v.x.size(1)
	if channels <= 4 { // the colours of an image
		patches := slices.Equal(v.stride, v.w.shape[2:])
		small := numel(v.w.shape[2:]) <= 9
		if (patches || small) && !weightGradient || small && size == 4 {
			return 0 // a direct kernel
		}
	}
	// Tensor cores read several channels at once.
	if size == 2 {
		channels = ceilDiv(channels, 8) * 8
	} else if weightGradient {
		channels = ceilDiv(channels, 4) * 4
	}
	perChannel := v.x.numel() / v.x.size(1)
	copies := size * (perChannel*channels + numel(out))
	weight := v.w.numel()
	if v.pointwise() {
		switch {
		case !weightGradient && (v.unitStride() || v.x.size(1) <= 64):
			return 0
		case !weightGradient && size*numel(out) > 32<<20:
			return size*(perChannel*channels+weight) + 16 // a large result is written in place
		case weightGradient && min(v.w.size(0), v.w.size(1)) < 64 && perChannel/v.x.size(0) >= 28*28:
			return copies + m.card.multiprocessors*4*weight + 147
		case weightGradient && v.unitStride():
			// One product for each image, summed at the end, unless copies
			// are much smaller.
			if n := v.x.size(0) * 4 * weight; n <= 3*copies {
				return n
			}
		case weightGradient:
			return copies + m.splitProduct(v) + 147
		}
		return copies + 16
	}
	copies += size * weight / v.x.size(1) * channels
	if !weightGradient {
		return copies + 16
	}
	return copies + m.splitProduct(v) + 147
}

// splitProduct is the memory for partial sums of a weight's gradient: its tiles
// are at most 128 × 128, and as many copies of all tiles as the multiprocessors
// can work on are summed at the end.
func (m *machine) splitProduct(v *conv) int64 {
	side := func(n int64) int64 {
		if n <= 64 {
			return 64
		}
		return 128
	}
	a, b := side(v.w.size(0)), side(v.w.size(1))
	tiles := ceilDiv(v.w.size(0), a) * ceilDiv(v.w.size(1), b) * numel(v.w.shape[2:])
	if split := m.card.multiprocessors / tiles; split > 1 {
		return split * tiles * a * b * 4
	}
	return 0
}

// pointwise reports a kernel of one point.
func (v *conv) pointwise() bool { return numel(v.w.shape[2:]) == 1 }

func (v *conv) unitStride() bool {
	return !slices.ContainsFunc(v.stride, func(s int64) bool { return s != 1 })
}

// batchNorm is F.batch_norm: cuDNN's for float32, PyTorch's own otherwise.
func (c *call) batchNorm() *tensor {
	m, x, w, b := c.machine, c.need(0), c.arg(1), c.arg(2)
	xc := m.ref(x)
	if !x.isContiguous() && !x.isChannelsLast() {
		m.unref(xc)
		xc = m.contiguous(x)
	}
	defer m.unref(xc)
	last := xc.isChannelsLast() && !xc.isContiguous()
	out := m.empty(x.dtype, x.shape, preservedStrides(xc))
	if !m.training {
		m.record("NativeBatchNormBackward0", one(out), []*tensor{x, w, b}, []*tensor{xc, w}, func(f *gradFn, g []*tensor) []*tensor {
			return []*tensor{m.empty(x.dtype, x.shape, preservedStrides(xc)), nil, nil}
		})
		return out
	}
	n := []int64{x.size(1)}
	mean, invstd := m.empty(f32, n, nil), m.empty(f32, n, nil)
	var reserve *tensor
	if last {
		reserve = m.scratch(x.numel()/8 + 4096)
	}
	m.record("BatchNormBackward0", one(out), []*tensor{x, w, b}, []*tensor{xc, mean, invstd, reserve}, func(f *gradFn, g []*tensor) []*tensor {
		r := make([]*tensor, 3)
		gc := g[0]
		if !gc.isDense() || last && !gc.isChannelsLast() || !last && !gc.isContiguous() {
			gc = m.empty(gc.dtype, gc.shape, preservedStrides(xc))
			defer m.unref(gc)
		}
		r[0] = m.empty(x.dtype, x.shape, preservedStrides(xc))
		for i := 1; i < 3; i++ {
			if f.need(i) {
				r[i] = m.empty(f32, n, nil)
			}
		}
		return r
	})
	m.unref(mean, invstd, reserve)
	return out
}

func (m *machine) groupNorm(x, w, b *tensor, groups int64) *tensor {
	if m.amp {
		x = m.autocastTo(x, f32)
		defer m.unref(x)
	}
	out := m.empty(x.dtype, x.shape, preservedStrides(x))
	stats := []int64{x.size(0), groups}
	mean, rstd := m.empty(x.dtype, stats, nil), m.empty(x.dtype, stats, nil)
	m.record("NativeGroupNormBackward0", one(out), []*tensor{x, w, b}, []*tensor{x, w, mean, rstd}, func(f *gradFn, g []*tensor) []*tensor {
		r := []*tensor{m.empty(x.dtype, x.shape, preservedStrides(x)), nil, nil}
		for i, t := range []*tensor{w, b} {
			if f.need(i + 1) {
				r[i+1] = m.empty(t.dtype, t.shape, nil)
			}
		}
		return r
	})
	m.unref(mean, rstd)
	return out
}

func pooled(in, k, s, p, d []int64, ceil bool) []int64 {
	out := slices.Clone(in[:len(in)-2])
	for i := range 2 {
		n := in[len(in)-2+i] + 2*p[i] - d[i]*(k[i]-1) - 1
		if ceil {
			n += s[i] - 1
		}
		out = append(out, n/s[i]+1)
	}
	return out
}

// pool is a pooling or resampling operator; its gradient has the input's size.
func (m *machine) pool(name string, x *tensor, shape []int64, saved []*tensor) *tensor {
	for _, n := range shape {
		if n < 1 {
			m.fail("%s: an input of %v is too small", m.where, x.shape)
		}
	}
	strides := func(t *tensor, shape []int64) []int64 {
		if t.isChannelsLast() && !t.isContiguous() {
			return channelsLastStrides(shape)
		}
		return nil
	}
	out := m.empty(x.dtype, shape, strides(x, shape))
	m.record(name, one(out), one(x), saved, func(f *gradFn, g []*tensor) []*tensor {
		return one(m.empty(x.dtype, x.shape, strides(x, x.shape)))
	})
	return out
}

// maxPool is F.max_pool2d, whose indices are numbers of 8 bytes.
func (c *call) maxPool() *tensor {
	m, x := c.machine, c.need(0)
	k, s, p, d := c.pair("kernel_size", 1), c.pair("stride", 0), c.pair("padding", 0), c.pair("dilation", 1)
	if s[0] == 0 {
		s = k
	}
	shape := pooled(x.shape, k, s, p, d, c.n.Bool("ceil_mode"))
	out := m.pool("MaxPool2DWithIndicesBackward0", x, shape, []*tensor{x})
	idx := m.empty(modelgraph.Int64, shape, out.stride)
	if out.fn != nil {
		m.save(out.fn, idx)
	}
	m.unref(idx)
	return out
}
