package estimate

import "slices"

// useBLAS makes the workspace of this thread's cuBLAS handle, at its first
// matrix product.
func (m *machine) useBLAS() {
	h := &m.handles[m.thread()]
	if h.blas == nil && m.card.blasWorkspace > 0 {
		h.blas = m.scratch(m.card.blasWorkspace)
	}
}

// useLt makes the workspace of cuBLASLt, at the first product with a bias.
func (m *machine) useLt() {
	h := &m.handles[m.thread()]
	if h.lt == nil && m.card.ltWorkspace > 0 {
		h.lt = m.scratch(m.card.ltWorkspace)
	}
}

func (m *machine) thread() int {
	if m.backward {
		return 1
	}
	return 0
}

// mmRaw is a matrix product outside autograd.
func (m *machine) mmRaw(rows, cols int64, like *tensor) *tensor {
	out := m.empty(like.dtype, []int64{rows, cols}, nil)
	m.useBLAS()
	return out
}

// likeMat2 is the layout of the gradient of a matrix: mm_mat1_backward and
// mm_mat2_backward keep a column-major matrix column-major.
func (m *machine) likeMatrix(t *tensor, dtOf *tensor) *tensor {
	g := m.empty(dtOf.dtype, t.shape, nil)
	if len(t.stride) == 2 && t.stride[0] == 1 && t.stride[1] == t.shape[0] && t.shape[0] != 1 {
		g.stride = slices.Clone(t.stride)
	}
	m.useBLAS()
	return g
}

// mm is torch.mm(a, b) of matrices.
func (m *machine) mm(a, b *tensor) *tensor {
	if a.size(1) != b.size(0) {
		m.fail("%s: cannot multiply %v by %v", m.where, a.shape, b.shape)
	}
	out := m.mmRaw(a.size(0), b.size(1), a)
	m.product(a.dtype, a.size(0), a.size(1), b.size(1))
	saved := make([]*tensor, 2) // mat2_, self_
	if a.requires() {
		saved[0] = b
	}
	if b.requires() {
		saved[1] = a
	}
	m.record("MmBackward0", []*tensor{out}, []*tensor{a, b}, saved, func(f *gradFn, g []*tensor) []*tensor {
		r := make([]*tensor, 2)
		if f.need(1) {
			m.product(g[0].dtype, a.size(0), a.size(1), b.size(1))
			r[1] = m.likeMatrix(b, g[0])
		}
		if f.need(0) {
			m.product(g[0].dtype, a.size(0), a.size(1), b.size(1))
			r[0] = m.likeMatrix(a, g[0])
		}
		return r
	})
	return out
}

// addmm is torch.addmm(bias, a, b).
func (m *machine) addmm(bias, a, b *tensor) *tensor {
	if a.size(1) != b.size(0) {
		m.fail("%s: cannot multiply %v by %v", m.where, a.shape, b.shape)
	}
	out := m.mmRaw(a.size(0), b.size(1), a)
	m.product(a.dtype, a.size(0), a.size(1), b.size(1))
	if bias.dim() == 1 && bias.isContiguous() && b.size(1) > 1 {
		m.useLt()
	}
	saved := make([]*tensor, 2) // mat1_, mat2_
	if b.requires() {
		saved[0] = a
	}
	if a.requires() {
		saved[1] = b
	}
	m.record("AddmmBackward0", []*tensor{out}, []*tensor{bias, a, b}, saved, func(f *gradFn, g []*tensor) []*tensor {
		r := make([]*tensor, 3)
		if f.need(0) {
			r[0] = m.ref(g[0])
		}
		if f.need(1) {
			m.product(g[0].dtype, a.size(0), a.size(1), b.size(1))
			r[1] = m.likeMatrix(a, g[0])
		}
		if f.need(2) {
			m.product(g[0].dtype, a.size(0), a.size(1), b.size(1))
			r[2] = m.likeMatrix(b, g[0])
		}
		return r
	})
	return out
}

// bmm is torch.bmm of batches of matrices.
func (m *machine) bmm(a, b *tensor) *tensor {
	if a.size(0) != b.size(0) || a.size(2) != b.size(1) {
		m.fail("%s: cannot multiply %v by %v", m.where, a.shape, b.shape)
	}
	out := m.empty(a.dtype, []int64{a.size(0), a.size(1), b.size(2)}, nil)
	m.useBLAS()
	m.product(a.dtype, a.size(0), a.size(1), a.size(2), b.size(2))
	saved := make([]*tensor, 2)
	if a.requires() {
		saved[0] = b
	}
	if b.requires() {
		saved[1] = a
	}
	m.record("BmmBackward0", []*tensor{out}, []*tensor{a, b}, saved, func(f *gradFn, g []*tensor) []*tensor {
		r := make([]*tensor, 2)
		if f.need(1) {
			m.product(g[0].dtype, a.size(0), a.size(1), a.size(2), b.size(2))
			r[1] = m.empty(g[0].dtype, b.shape, nil)
			m.useBLAS()
		}
		if f.need(0) {
			m.product(g[0].dtype, a.size(0), a.size(1), a.size(2), b.size(2))
			r[0] = m.empty(g[0].dtype, a.shape, nil)
			m.useBLAS()
		}
		return r
	})
	return out
}

// matmul is torch.matmul.
func (m *machine) matmul(a, b *tensor) *tensor {
	if m.amp {
		// Arguments are cast from the last to the first.
		cb := m.autocastTo(b, m.autocast)
		ca := m.autocastTo(a, m.autocast)
		defer m.unref(ca, cb)
		a, b = ca, cb
	}
	return m.matmulRaw(a, b)
}

func (m *machine) matmulRaw(a, b *tensor) *tensor {
	switch {
	case a.dim() == 0 || b.dim() == 0:
		m.fail("%s: a product of a number", m.where)
	case a.dim() == 1:
		u := m.unsqueeze(a, 0)
		r := m.matmulRaw(u, b)
		out := m.squeeze(r, []int{r.dim() - 2})
		m.unref(u, r)
		return out
	case b.dim() == 1:
		u := m.unsqueeze(b, 1)
		r := m.matmulRaw(a, u)
		out := m.squeeze(r, []int{r.dim() - 1})
		m.unref(u, r)
		return out
	case a.dim() == 2 && b.dim() == 2:
		return m.mm(a, b)
	case b.dim() == 2:
		// should_fold
		v := m.reshape(a, []int64{-1, a.size(-1)})
		r := m.mm(v, b)
		out := m.reshape(r, append(slices.Clone(a.shape[:a.dim()-1]), b.size(1)))
		m.unref(v, r)
		return out
	}
	lead, ok := broadcast(a.shape[:a.dim()-2], b.shape[:b.dim()-2])
	if !ok {
		m.fail("%s: cannot multiply %v by %v", m.where, a.shape, b.shape)
	}
	n := numel(lead)
	flat := func(t *tensor) *tensor {
		e := m.expand(t, append(slices.Clone(lead), t.shape[t.dim()-2:]...))
		r := m.reshape(e, []int64{n, t.size(-2), t.size(-1)})
		m.unref(e)
		return r
	}
	fa, fb := flat(a), flat(b)
	r := m.bmm(fa, fb)
	out := m.reshape(r, append(slices.Clone(lead), a.size(-2), b.size(-1)))
	m.unref(fa, fb, r)
	return out
}

// linear is F.linear.
func (m *machine) linear(x, w, bias *tensor) *tensor {
	if m.amp {
		cb := m.autocastTo(bias, m.autocast)
		cw := m.autocastTo(w, m.autocast)
		cx := m.autocastTo(x, m.autocast)
		defer m.unref(cx, cw, cb)
		x, w, bias = cx, cw, cb
	}
	if x.size(-1) != w.size(-1) {
		m.fail("%s: input %v, weight %v", m.where, x.shape, w.shape)
	}
	wt := m.transpose(w, 0, 1)
	defer m.unref(wt)
	if bias == nil {
		return m.matmulRaw(x, wt)
	}
	if x.dim() == 2 {
		return m.addmm(bias, x, wt)
	}
	if x.isContiguous() {
		v := m.reshape(x, []int64{-1, x.size(-1)})
		r := m.addmm(bias, v, wt)
		out := m.reshape(r, append(slices.Clone(x.shape[:x.dim()-1]), w.size(0)))
		m.unref(v, r)
		return out
	}
	r := m.matmulRaw(x, wt)
	// output.add_(bias)
	out := m.inPlace(r)
	m.recordBinary("add", out, r, bias)
	m.unref(r)
	return out
}
