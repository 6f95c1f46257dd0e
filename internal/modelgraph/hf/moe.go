package hf

// experts describes a layer of experts.
type experts struct {
	n, top, inner int64
	normalize     bool // the top weights are divided by their sum
	routerLast    bool // declared after the experts
}

type moeLayer struct {
	router       ValueID
	gateUp, down ValueID
}

func (b *builder) moeLayer(path string, e *experts, hidden int64) moeLayer {
	var l moeLayer
	router := func() { l.router = b.Param(path+".gate.weight", e.n, hidden) }
	if !e.routerLast {
		router()
	}
	l.gateUp = b.Param(path+".experts.gate_up_proj", e.n, 2*e.inner, hidden)
	l.down = b.Param(path+".experts.down_proj", e.n, hidden, e.inner)
	if e.routerLast {
		router()
	}
	return l
}

// runExperts is a router and its experts as transformers 5 runs them: tokens
// sorted by expert, then grouped matrix products
// (integrations/moe.py, grouped_mm_experts_forward).
func (b *builder) runExperts(l *moeLayer, e *experts, x ValueID, hidden int64, act string) (y ValueID) {
	b.Call("mlp", func() {
		flat := b.Op("view", x, Ints("size", -1, hidden))
		var weights, index ValueID
		var logits ValueID
		b.Call("gate", func() {
			logits = b.Op("linear", flat, l.router, None)
			p := b.Op("softmax", logits, Str("dtype", "float32"), Ints("dim", -1))
			t := b.Ops("topk", 2, p, Ints("k", e.top))
			weights, index = t[0], t[1]
			if e.normalize {
				s := b.Op("sum", weights, Ints("dim", -1), Flag("keepdim"))
				w := b.Op("clone", weights)
				weights = b.Op("div_", w, s)
			}
			b.Hold(p)
		})
		b.Hold(logits, weights)
		y = b.expertProducts(l, e, flat, weights, index, x, hidden, act)
	})
	return y
}

// expertProducts sorts tokens by expert and runs the grouped products.
func (b *builder) expertProducts(l *moeLayer, e *experts, flat, weights, index, x ValueID, hidden int64, act string) (y ValueID) {
	pairs := Batch.Mul(Seq).Mul(Const(e.top))
	b.Call("experts", func() {
		w := b.Op("reshape", weights, Ints("size", -1))
		ids := b.Op("reshape", index, Ints("size", -1))
		srt := b.Ops("sort", 2, ids)
		sorted, perm := srt[0], srt[1]
		b.Ops("scratch", 0, Dims("size", pairs), Str("dtype", "int64"))
		from := b.Op("like", perm) // perm // top
		xs := b.Op("index", flat, from, Dims("rows", pairs))
		ws := b.Op("index", w, perm, Dims("rows", pairs))
		cast := b.Op("like", sorted, Str("dtype", "int32"))
		counts := b.Op("empty", Ints("size", e.n), Str("dtype", "int32"))
		offsets := b.Op("like", counts)
		b.Ops("scratch", 0, Ints("size", 1023), Str("dtype", "uint8"))
		unused := b.Op("empty", Dims("size", pairs, Const(1)), Str("dtype", "bool"))
		u := b.Op("grouped_mm", xs, l.gateUp, offsets, Flag("transposed"))
		u = b.Op("masked_fill", u, unused)
		var g ValueID
		b.Call("gate", func() {
			p := b.Ops("chunk", 2, u, Ints("chunks", 2), Ints("dim", -1))
			a := b.activation(act, p[0])
			g = b.Op("mul", a, p[1])
		})
		d := b.Op("grouped_mm", g, l.down, offsets, Flag("transposed"))
		d = b.Op("masked_fill", d, unused)
		wv := b.Op("unsqueeze", ws, Ints("dim", -1))
		d = b.Op("mul", d, wv)
		inv := b.Op("like", perm)
		b.Ops("scratch", 0, Dims("size", pairs), Str("dtype", "int64"))
		out := b.Op("index", d, inv, Dims("rows", pairs))
		v := b.Op("view", out, Ints("size", -1, e.top, hidden))
		s := b.Op("sum", v, Ints("dim", 1))
		b.Hold(sorted, cast, counts, out, perm, inv, from, ws, xs, u, g, offsets, unused)
		s = b.Op("type_as", s, x)
		y = b.Op("view", s, Dims("size", Batch, Seq, Const(hidden)))
	})
	return y
}
