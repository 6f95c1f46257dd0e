package onnx

import (
	"slices"

	"vramscope/internal/modelgraph"
)

func (r *builder) reshape() {
	x, to := r.need(0), r.in(1)
	var want []modelgraph.Dim
	switch {
	case to != nil && to.ints != nil:
		want = to.ints
	case r.attr("shape") != nil: // operator sets before 5
		want = modelgraph.Consts(r.attrInts("shape")...)
	default:
		shape, ok := r.shapes.info(r.infos[r.n.out[0]])
		if !ok {
			r.fail("its shape is the result of nodes that are not understood")
			return
		}
		want = shape
	}
	want = slices.Clone(want)
	at := -1
	for i, d := range want {
		n, ok := d.Const()
		switch {
		case ok && n == -1 && at >= 0:
			r.fail("its shape %s has -1 twice", dimsText(want))
			return
		case ok && n == -1:
			at = i
		case ok && n == 0 && r.attrInt("allowzero", 0) == 0:
			if !x.known || i >= len(x.shape) {
				r.fail("its shape %s copies a size that is not known", dimsText(want))
				return
			}
			want[i] = x.shape[i]
		}
	}
	shape := slices.Clone(want)
	switch {
	case x.known:
		if at >= 0 {
			shape[at] = r.remainder(x.shape, want, at)
		}
		shape = r.shapes.simplify(shape)
		if !r.fits(x.shape, shape, want, at) {
			shape = nil // inferred wrongly, or the file contradicts itself
		}
	case at >= 0:
		shape = nil
	}
	r.emit("reshape", shape, x.dtype, r.arg(0), modelgraph.Dims("shape", want...))
}

// fits matches the axes of a tensor with those of the shape it gets, in groups
// of equal products: [n, 768, 14, 14] as [n, 768, 196] has the groups {n},
// {768} and {14, 14} → {196}. It notes the groups whose products part where
// sizes change, and reports whether all products are equal as exported.
func (r *builder) fits(from, to, want []modelgraph.Dim, at int) bool {
	base := r.shapes.probes[0]
	i, j := 0, 0
	for i < len(from) || j < len(to) {
		i0, j0 := i, j
		p, q := int64(1), int64(1)
		for first := true; first || p != q; first = false {
			switch {
			case i < len(from) && (p <= q || j == len(to)):
				i++
				p = product(from[i0:i], base)
			case j < len(to):
				j++
				q = product(to[j0:j], base)
			default:
				return false
			}
		}
		for ; i < len(from) && product(from[i:i+1], base) == 1; i++ {
		}
		for ; j < len(to) && product(to[j:j+1], base) == 1; j++ {
		}
		below := slices.Clone(to[j0:j])
		if j0 <= at && at < j {
			below = slices.Delete(below, at-j0, at-j0+1)
		}
		r.shapes.follow(r.literal("makes the sizes %s", dimsText(want)), func(b modelgraph.Binding) bool {
			n, rest := product(from[i0:i], b), product(below, b)
			if len(below) == j-j0 {
				return n == rest
			}
			return rest > 0 && n%rest == 0
		})
	}
	return true
}

// times multiplies sizes and leaves ones out.
func times(a, b modelgraph.Dim) modelgraph.Dim {
	if n, ok := a.Const(); ok && n == 1 {
		return b
	}
	if n, ok := b.Const(); ok && n == 1 {
		return a
	}
	return a.Mul(b)
}

// remainder is the size that -1 stands for at an axis of a shape. Sizes that
// both sides have are left out before the division.
func (r *builder) remainder(from, to []modelgraph.Dim, at int) modelgraph.Dim {
	rest := slices.Clone(from)
	below := modelgraph.Const(1)
	for i, d := range to {
		if i == at {
			continue
		}
		if j := slices.IndexFunc(rest, func(o modelgraph.Dim) bool { return r.shapes.equal(o, d) }); j >= 0 {
			rest = slices.Delete(rest, j, j+1)
			continue
		}
		below = times(below, d)
	}
	above := modelgraph.Const(1)
	for _, d := range rest {
		above = times(above, d)
	}
	if k, ok := below.Const(); ok {
		if k == 1 {
			return above
		}
		// Take the divisor out of the constant factors.
		n, sym := int64(1), modelgraph.Const(1)
		for _, d := range rest {
			if v, ok := d.Const(); ok {
				if m, err := modelgraph.MulSizes(n, v); err == nil {
					n = m
					continue
				}
			}
			sym = times(sym, d)
		}
		if k != 0 && n%k == 0 {
			if n == k {
				return sym
			}
			return sym.Mul(modelgraph.Const(n / k))
		}
	}
	return above.Div(below)
}
