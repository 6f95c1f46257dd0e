package estimate

import (
	"slices"

	"vramscope/internal/modelgraph"
)

// attention describes a call of scaled_dot_product_attention.
type attention struct {
	q, k, v, mask *tensor
	dropout       bool
	causal        bool
	gqa           bool
}

// sdpa is F.scaled_dot_product_attention: which implementation runs follows
// from the types, the mask and the card, as in ATen/native/transformers/cuda/
// sdp_utils.cpp.
func (m *machine) sdpa(a attention) *tensor {
	if m.amp {
		v := m.autocastTo(a.v, m.autocast)
		k := m.autocastTo(a.k, m.autocast)
		q := m.autocastTo(a.q, m.autocast)
		mask := a.mask
		if mask != nil && mask.dtype != boolean {
			mask = m.autocastTo(mask, m.autocast)
		} else {
			m.ref(mask)
		}
		defer m.unref(q, k, v, mask)
		a.q, a.k, a.v, a.mask = q, k, v, mask
	}
	if a.q.dim() != 4 || a.k.dim() != 4 || a.v.dim() != 4 {
		return m.sdpaMath(a)
	}
	m.product(a.q.dtype, 2, numel(a.q.shape), a.k.size(2))
	if a.mask != nil && a.mask.dtype == boolean {
		// convert_boolean_attn_mask makes numbers of it, which are kept.
		z := m.empty(a.q.dtype, nil, nil)
		a.mask = m.empty(a.q.dtype, a.mask.shape, nil)
		m.unref(z)
		defer m.unref(a.mask)
	}
	half := a.q.dtype == modelgraph.BFloat16 || a.q.dtype == modelgraph.Float16
	grouped := a.q.size(1) != a.k.size(1)
	maskGrad := m.grad && a.mask.requires()
	d := a.q.size(3)
	switch {
	case maskGrad:
		return m.sdpaMath(a)
	case half && m.card.cudnnAttention && d%8 == 0 && d <= 256 && a.q.size(2) > 1:
		return m.sdpaCuDNN(a)
	case half && m.card.flash && a.mask == nil && d <= 256:
		return m.sdpaFlash(a)
	case !grouped && (a.q.dtype == f32 || half):
		return m.sdpaEfficient(a)
	}
	return m.sdpaMath(a)
}

// backwardQKV allocates the three gradients, in the layout of their tensors.
func (m *machine) backwardQKV(a attention, layout func(t *tensor) []int64) []*tensor {
	m.product(a.q.dtype, 5, numel(a.q.shape), a.k.size(2))
	var r []*tensor
	for _, t := range []*tensor{a.q, a.k, a.v} {
		r = append(r, m.empty(t.dtype, t.shape, layout(t)))
	}
	return r
}

// sdpaCuDNN is cuDNN's fused attention: aten/src/ATen/native/cudnn/MHA.cpp.
func (m *machine) sdpaCuDNN(a attention) *tensor {
	seed := m.empty(modelgraph.Int64, nil, nil)
	offset := m.empty(modelgraph.Int64, nil, nil)
	out := m.empty(a.q.dtype, append(slices.Clone(a.q.shape[:3]), a.v.size(3)), preservedStrides(a.q))
	var lse *tensor
	b, h, s, d := a.q.size(0), a.q.size(1), a.q.size(2), a.q.size(3)
	if m.wants(a.q, a.k, a.v) {
		lse = m.empty(f32, []int64{b, h, s, 1}, nil)
	}
	m.unref(m.scratch(256))
	m.record("ScaledDotProductCudnnAttentionBackward0", []*tensor{out}, []*tensor{a.q, a.k, a.v},
		[]*tensor{a.mask, a.k, a.q, a.v, lse, out, offset, seed}, func(f *gradFn, g []*tensor) []*tensor {
			r := m.backwardQKV(a, preservedStrides)
			// A float32 accumulator of dQ, the row sums, and with grouped
			// heads dK and dV for each query head.
			ws := b*h*s*d*4 + b*h*s*4 + 256
			if a.k.size(1) != h {
				ws += 2 * b * h * a.k.size(2) * d * a.q.dtype.Size()
			}
			m.unref(m.scratch(ws))
			return r
		})
	m.unref(lse, offset, seed)
	return out
}

// sdpaFlash is FlashAttention 2.
func (m *machine) sdpaFlash(a attention) *tensor {
	b, h, s, d := a.q.size(0), a.q.size(1), a.q.size(2), a.q.size(3)
	bshd := func(t *tensor) []int64 { return permutedStrides(t.shape, []int{3, 1, 2, 0}) }
	out := m.empty(a.q.dtype, a.q.shape, bshd(a.q))
	lse := m.empty(f32, []int64{b, h, s}, nil)
	seed := m.empty(modelgraph.Int64, []int64{2}, nil)
	m.record("ScaledDotProductFlashAttentionBackward0", []*tensor{out}, []*tensor{a.q, a.k, a.v},
		[]*tensor{a.k, a.q, a.v, lse, out, seed}, func(f *gradFn, g []*tensor) []*tensor {
			r := m.backwardQKV(a, bshd)
			rounded := ceilDiv(s, 128) * 128
			sum := m.scratch(b * h * rounded * 4)
			acc := m.scratch(b * rounded * h * ceilDiv(d, 32) * 32 * 4)
			if a.k.size(1) != h {
				x := m.scratch(2 * b * h * a.k.size(2) * d * a.q.dtype.Size())
				m.unref(x)
			}
			m.unref(acc, sum)
			return r
		})
	m.unref(lse, seed)
	return out
}

// sdpaEfficient is the memory-efficient kernel (xFormers' CUTLASS kernel).
func (m *machine) sdpaEfficient(a attention) *tensor {
	b, h, s, d := a.q.size(0), a.q.size(1), a.q.size(2), a.q.size(3)
	bshd := func(t *tensor) []int64 { return permutedStrides(t.shape, []int{3, 1, 2, 0}) }
	outShape := []int64{b, h, s, a.v.size(3)}
	out := m.empty(a.q.dtype, outShape, permutedStrides(outShape, []int{3, 1, 2, 0}))
	var lse *tensor
	if m.wants(a.q, a.k, a.v) {
		lse = m.empty(f32, []int64{b, h, ceilDiv(s, 32) * 32}, nil)
	}
	m.record("ScaledDotProductEfficientAttentionBackward0", []*tensor{out}, []*tensor{a.q, a.k, a.v},
		[]*tensor{a.mask, a.k, a.q, a.v, lse, out}, func(f *gradFn, g []*tensor) []*tensor {
			r := m.backwardQKV(a, bshd)
			// delta = (grad.float() * out.float()).sum(-1)
			var up []*tensor
			if g[0].dtype != f32 {
				up = append(up, m.cast(g[0], f32), m.cast(out, f32))
			}
			p := m.empty(f32, out.shape, preservedStrides(out))
			m.unref(up...)
			sum := m.empty(f32, []int64{b, h, s}, nil)
			c := m.empty(f32, []int64{b, h, s}, nil)
			m.unref(sum, p)
			// GradQTempStorage for each block of 64 queries.
			ws := m.scratch(b * h * ceilDiv(s, 64) * ceilDiv(d, 64) * (64*64*4 + 16))
			m.unref(c, ws)
			return r
		})
	m.unref(lse)
	return out
}

// sdpaMath is _scaled_dot_product_attention_math.
func (m *machine) sdpaMath(a attention) *tensor {
	orig := a.q.dtype
	q, k, v := a.q, a.k, a.v
	was := m.amp
	m.amp = false
	defer func() { m.amp = was }()
	upcast := func(t *tensor) *tensor { return m.to(t, f32) }
	if orig == modelgraph.BFloat16 || orig == modelgraph.Float16 {
		q, k, v = upcast(q), upcast(k), upcast(v)
	} else {
		m.ref(q)
		m.ref(k)
		m.ref(v)
	}
	qs := m.scalar("mul", q)
	m.unref(q)
	mask := m.ref(a.mask)
	if a.causal {
		ones := m.empty(boolean, []int64{a.q.size(-2), a.k.size(-2)}, nil)
		tril := m.empty(boolean, ones.shape, nil)
		m.unref(ones)
		mask = tril
	}
	if mask != nil && mask.dtype == boolean {
		z, n := m.empty(f32, nil, nil), m.empty(f32, nil, nil)
		w := m.empty(qs.dtype, mask.shape, nil)
		m.unref(n, z, mask)
		mask = w
	}
	if a.gqa && q.dim() == 4 && k.size(1) != q.size(1) {
		k, v = m.repeatHeads(k, q.size(1)), m.repeatHeads(v, q.size(1))
	}
	ks := m.scalar("mul", k)
	kt := m.transpose(ks, -2, -1)
	m.unref(ks)
	scores := m.matmulRaw(qs, kt)
	m.unref(kt)
	if mask != nil {
		// attn.add_(mask)
		s2 := m.inPlace(scores)
		m.recordBinary("add", s2, scores, mask)
		m.unref(scores)
		scores = s2
	}
	attn := m.safeSoftmax(scores)
	m.unref(scores)
	if a.dropout {
		d := m.dropout(attn)
		m.unref(attn)
		attn = d
	}
	probabilities := m.to(attn, orig) // also returned, in the original type
	out := m.matmulRaw(attn, v)
	o := m.to(out, orig)
	m.unref(out, probabilities)
	out = o
	m.unref(attn, k, v, qs, mask)
	return out
}

// repeatHeads is repeat_interleave over the heads: an expanded view, copied.
func (m *machine) repeatHeads(t *tensor, heads int64) *tensor {
	n := heads / t.size(1)
	u := m.unsqueeze(t, 2)
	e := m.expand(u, []int64{t.size(0), t.size(1), n, t.size(2), t.size(3)})
	c := m.clone(e, nil)
	r := m.reshape(c, []int64{t.size(0), heads, t.size(2), t.size(3)})
	m.unref(t, u, e, c)
	return r
}

// safeSoftmax is _safe_softmax: softmax, and zeros where a row is masked out.
func (m *machine) safeSoftmax(x *tensor) *tensor {
	out := m.empty(x.dtype, x.shape, nil)
	m.record("SafeSoftmaxBackward0", []*tensor{out}, []*tensor{x}, []*tensor{out}, m.softmaxBackward)
	inf := m.empty(boolean, x.shape, nil)
	all := m.empty(boolean, append(slices.Clone(x.shape[:x.dim()-1]), 1), nil)
	z := m.empty(x.dtype, nil, nil)
	m.unref(z, all, inf)
	return out
}

func (m *machine) softmaxBackward(f *gradFn, g []*tensor) []*tensor {
	r := m.empty(g[0].dtype, g[0].shape, nil)
	m.unref(m.empty(g[0].dtype, g[0].shape, nil)) // grad * output
	return []*tensor{r}
}

// softmax is F.softmax(x, dim, dtype).
func (m *machine) softmax(x *tensor, dt modelgraph.DType) *tensor {
	if m.amp && dt == x.dtype {
		dt = f32
	}
	from := x.dtype
	var in *tensor
	if dt != from && dt == f32 && (from == modelgraph.Float16 || from == modelgraph.BFloat16) && !m.amp {
		in = m.to(x, dt)
	} else {
		in = m.to(x, dt)
	}
	out := m.empty(dt, x.shape, nil)
	m.record("SoftmaxBackward0", []*tensor{out}, []*tensor{in}, []*tensor{out}, m.softmaxBackward)
	m.unref(in)
	return out
}
