package hf

// neox is GPTNeoXForCausalLM.
func neox(b *builder) {
	c := b.c
	hidden, inner, n, heads, vocab := c.int("hidden_size"), c.int("intermediate_size"), c.layers("num_hidden_layers"), c.int("num_attention_heads"), c.int("vocab_size")
	c.divides(hidden, "hidden_size", heads, "num_attention_heads")
	bias := c.bool(true, "attention_bias")
	act := c.str("gelu", "hidden_act")
	parallel := c.bool(true, "use_parallel_residual")
	drop, attnDrop := c.float(0, "hidden_dropout"), c.float(0, "attention_dropout")
	if *c.err != nil {
		return
	}
	dim := hidden / heads
	part := c.float(0.25, "rotary_pct")
	if r := c.sub("rope_parameters"); r != nil {
		part = r.float(part, "partial_rotary_factor")
	}
	rotaryDim := int64(float64(dim) * part)

	embed := b.Param("gpt_neox.embed_in.weight", vocab, hidden)
	type layer struct {
		ln1, ln2             norm
		qkv, dense, up, down linear
	}
	layers := make([]layer, n)
	for i := range layers {
		p := layerPath("gpt_neox.layers", int64(i))
		l := &layers[i]
		l.ln1, l.ln2 = b.layerNorm(p+".input_layernorm", hidden), b.layerNorm(p+".post_attention_layernorm", hidden)
		l.qkv, l.dense = b.linear(p+".attention.query_key_value", hidden, 3*hidden, bias), b.linear(p+".attention.dense", hidden, hidden, bias)
		l.up, l.down = b.linear(p+".mlp.dense_h_to_4h", hidden, inner, true), b.linear(p+".mlp.dense_4h_to_h", inner, hidden, true)
	}
	final := b.layerNorm("gpt_neox.final_layer_norm", hidden)
	head := embed
	if !c.bool(false, "tie_word_embeddings") {
		head = b.Param("lm_head.weight", vocab, hidden)
	}
	inv := b.Buffer("gpt_neox.rotary_emb.inv_freq", Float32, rotaryDim/2)
	b.Buffer("gpt_neox.rotary_emb.original_inv_freq", Float32, rotaryDim/2)

	ids := b.tokens("input_ids", Seq)
	var h ValueID
	b.Call("gpt_neox", func() {
		b.Call("embed_in", func() { h = b.Op("embedding", embed, ids) })
		b.Hold(h)
		b.positionIDs(Seq)
		mask := b.mask(0, h)
		h = b.dropout(h, drop)
		rot := b.rotaryEmbedding(h, inv, rotaryDim/2, Const(1))
		b.Hold(rot.cos, rot.sin)
		for i := range layers {
			l := &layers[i]
			b.Block(layerPath("layers", int64(i)), func() {
				x := b.normalize(l.ln1, h)
				var a ValueID
				b.Call("attention", func() {
					v := b.heads(b.apply(l.qkv, x), Seq, heads, 3*dim)
					p := b.Ops("chunk", 3, v, Ints("chunks", 3), Ints("dim", -1))
					q, k := p[0], p[1]
					b.Call("rotary", func() {
						r := rotary{b.Op("unsqueeze", rot.cos, Ints("dim", 1)), b.Op("unsqueeze", rot.sin, Ints("dim", 1))}
						q = b.rotatePart(q, r, rotaryDim, dim, true)
						k = b.rotatePart(k, r, rotaryDim, dim, true)
					})
					b.Hold(v, q, k)
					a = b.attention(attend{q: q, k: k, v: p[2], mask: mask, heads: heads, kv: heads, dim: dim, n: Seq, causal: true, dropout: attnDrop, float32: true})
					a = b.apply(l.dense, a)
				})
				a = b.dropout(a, drop)
				b.Hold(a)
				mlp := func(x ValueID) ValueID {
					var y ValueID
					b.Call("mlp", func() { y = b.apply(l.down, b.activation(act, b.apply(l.up, x))) })
					return b.dropout(y, drop)
				}
				if parallel {
					y := mlp(b.normalize(l.ln2, h))
					b.Hold(y)
					h = b.Op("add", b.Op("add", y, a), h)
				} else {
					m := b.Op("add", a, h)
					b.Hold(m)
					y := mlp(b.normalize(l.ln2, m))
					h = b.Op("add", y, m)
				}
			})
		}
		h = b.normalize(final, h)
	})
	b.causalHead(h, head, ids, vocab, false)
}
