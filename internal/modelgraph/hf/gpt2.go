package hf

// gpt2 is GPT2LMHeadModel.
func gpt2(b *builder) {
	c := b.c
	hidden, n, heads, vocab := c.int("n_embd", "hidden_size"), c.layers("n_layer", "num_hidden_layers"), c.int("n_head", "num_attention_heads"), c.int("vocab_size")
	positions := c.int("n_positions", "max_position_embeddings")
	inner := c.intOr(4*hidden, "n_inner")
	c.divides(hidden, "n_embd", heads, "n_head")
	act := c.str("gelu_new", "activation_function")
	attnDrop, residDrop, embdDrop := c.float(0.1, "attn_pdrop"), c.float(0.1, "resid_pdrop"), c.float(0.1, "embd_pdrop")
	if *c.err != nil {
		return
	}
	dim := hidden / heads

	wte := b.Param("transformer.wte.weight", vocab, hidden)
	wpe := b.Param("transformer.wpe.weight", positions, hidden)
	type layer struct {
		ln1, ln2                norm
		attn, proj, fc, mlpProj linear
	}
	layers := make([]layer, n)
	for i := range layers {
		p := layerPath("transformer.h", int64(i))
		l := &layers[i]
		l.ln1 = b.layerNorm(p+".ln_1", hidden)
		l.attn = b.conv1D(p+".attn.c_attn", hidden, 3*hidden)
		l.proj = b.conv1D(p+".attn.c_proj", hidden, hidden)
		l.ln2 = b.layerNorm(p+".ln_2", hidden)
		l.fc = b.conv1D(p+".mlp.c_fc", hidden, inner)
		l.mlpProj = b.conv1D(p+".mlp.c_proj", inner, hidden)
	}
	lnf := b.layerNorm("transformer.ln_f", hidden)
	head := wte
	if !c.bool(true, "tie_word_embeddings") {
		head = b.Param("lm_head.weight", vocab, hidden)
	}

	ids := b.tokens("input_ids", Seq)
	lead := []Dim{Batch, Seq}
	var h ValueID
	b.Call("transformer", func() {
		b.Call("wte", func() { h = b.Op("embedding", wte, ids) })
		pos := b.positionIDs(Seq)
		pe := b.Op("embedding", wpe, pos)
		b.Hold(h, pe)
		h = b.Op("add", h, pe)
		mask := b.mask(0, h)
		h = b.dropout(h, embdDrop)
		for i := range layers {
			l := &layers[i]
			b.Block(layerPath("h", int64(i)), func() {
				x := b.normalize(l.ln1, h)
				var a ValueID
				b.Call("attn", func() {
					qkv := b.applyConv1D(l.attn, x, lead, hidden, 3*hidden)
					p := b.Ops("split", 3, qkv, Dims("split_size", Const(hidden)), Ints("dim", 2))
					q, k, v := b.heads(p[0], Seq, heads, dim), b.heads(p[1], Seq, heads, dim), b.heads(p[2], Seq, heads, dim)
					b.Hold(q, k, v)
					a = b.attention(attend{q: q, k: k, v: v, mask: mask, heads: heads, kv: heads, dim: dim, n: Seq, causal: true, dropout: attnDrop})
					a = b.applyConv1D(l.proj, a, lead, hidden, hidden)
					a = b.dropout(a, residDrop)
				})
				b.Hold(a)
				h = b.Op("add", a, h)
				b.Touch(x)
				x = b.normalize(l.ln2, h)
				var y ValueID
				b.Call("mlp", func() {
					y = b.activation(act, b.applyConv1D(l.fc, x, lead, hidden, inner))
					y = b.applyConv1D(l.mlpProj, y, lead, inner, hidden)
					y = b.dropout(y, residDrop)
				})
				b.Hold(y)
				h = b.Op("add", h, y)
				b.Touch(x)
			})
		}
		h = b.normalize(lnf, h)
		h = b.Op("view", h, Dims("size", Batch, Seq, Const(hidden)))
	})
	b.causalHead(h, head, ids, vocab, false)
}
