package hf

// opt is OPTForCausalLM.
func opt(b *builder) {
	c := b.c
	hidden, inner, n := c.int("hidden_size"), c.int("ffn_dim"), c.layers("num_hidden_layers")
	heads, vocab, positions := c.int("num_attention_heads"), c.int("vocab_size"), c.int("max_position_embeddings")
	embedDim := c.intOr(hidden, "word_embed_proj_dim")
	before := c.bool(true, "do_layer_norm_before")
	c.divides(hidden, "hidden_size", heads, "num_attention_heads")
	bias := c.bool(true, "enable_bias")
	act := c.str("relu", "activation_function")
	drop, attnDrop := c.float(0.1, "dropout"), c.float(0, "attention_dropout")
	if *c.err != nil {
		return
	}
	dim := hidden / heads

	const d = "model.decoder"
	word := b.Param(d+".embed_tokens.weight", vocab, embedDim)
	pos := b.Param(d+".embed_positions.weight", positions+2, hidden)
	var projOut, projIn linear
	projected := embedDim != hidden
	if projected {
		projOut = b.linear(d+".project_out", hidden, embedDim, false)
		projIn = b.linear(d+".project_in", embedDim, hidden, false)
	}
	var final norm
	hasFinal := before && !c.bool(false, "_remove_final_layer_norm")
	if hasFinal {
		final = b.layerNorm(d+".final_layer_norm", hidden)
	}
	type layer struct {
		q, k, v, out, fc1, fc2 linear
		ln1, ln2               norm
	}
	layers := make([]layer, n)
	for i := range layers {
		p := layerPath(d+".layers", int64(i))
		l := &layers[i]
		l.k = b.linear(p+".self_attn.k_proj", hidden, hidden, bias)
		l.v = b.linear(p+".self_attn.v_proj", hidden, hidden, bias)
		l.q = b.linear(p+".self_attn.q_proj", hidden, hidden, bias)
		l.out = b.linear(p+".self_attn.out_proj", hidden, hidden, bias)
		l.ln1 = b.layerNorm(p+".self_attn_layer_norm", hidden)
		l.fc1 = b.linear(p+".fc1", hidden, inner, bias)
		l.fc2 = b.linear(p+".fc2", inner, hidden, bias)
		l.ln2 = b.layerNorm(p+".final_layer_norm", hidden)
	}
	head := word
	if !c.bool(true, "tie_word_embeddings") {
		head = b.Param("lm_head.weight", vocab, embedDim)
	}

	ids := b.tokens("input_ids", Seq)
	var h ValueID
	b.Call("model.decoder", func() {
		e := b.Op("embedding", word, ids)
		ones := b.Op("empty", Dims("size", Batch, Seq))
		b.Hold(e, ones)
		pids := b.Op("opt_positions", ones)
		b.Hold(pids)
		mask := b.optMask(ones)
		p2 := b.Op("like", pids)
		pe := b.Op("embedding", pos, p2)
		x := e
		if projected {
			x = b.apply(projIn, e)
		}
		h = b.Op("add", x, pe)
		b.Hold(x, pe)
		for i := range layers {
			l := &layers[i]
			b.Block(layerPath("layers", int64(i)), func() {
				x := h
				if before {
					x = b.normalize(l.ln1, h)
				}
				var a ValueID
				b.Call("self_attn", func() {
					q := b.Op("mul", b.apply(l.q, x))
					q = b.heads(q, Seq, heads, dim)
					k := b.heads(b.apply(l.k, x), Seq, heads, dim)
					v := b.heads(b.apply(l.v, x), Seq, heads, dim)
					b.Hold(q, k, v)
					a = b.attention(attend{q: q, k: k, v: v, mask: mask, heads: heads, kv: heads, dim: dim, n: Seq, causal: true, dropout: attnDrop})
					a = b.apply(l.out, a)
				})
				a = b.dropout(a, drop)
				h = b.Op("add", h, a)
				if !before {
					h = b.normalize(l.ln1, h)
				}
				h = b.Op("reshape", h, Ints("size", -1, hidden))
				x = h
				b.Hold(h)
				if before {
					x = b.normalize(l.ln2, h)
				}
				y := b.activation(act, b.apply(l.fc1, x))
				y = b.dropout(b.apply(l.fc2, y), drop)
				h = b.Op("add", h, y)
				h = b.Op("view", h, Dims("size", Batch, Seq, Const(hidden)))
				if !before {
					h = b.normalize(l.ln2, h)
				}
			})
		}
		if hasFinal {
			h = b.normalize(final, h)
		}
		if projected {
			h = b.apply(projOut, h)
		}
	})
	h = b.Op("contiguous", h)
	b.causalHead(h, head, ids, vocab, false)
}

// optMask looks whether the mask of ones hides anything but the future.
func (b *builder) optMask(ones ValueID) ValueID {
	if b.o.Attention == "eager" {
		return b.maskOf(0, ones, true)
	}
	b.Call("mask", func() {
		m := b.Op("like", ones, Str("dtype", "bool"))
		s := b.Op("empty", Ints("size"), Str("dtype", "int64"))
		b.Ops("scratch", 0, Dims("size", Batch, Seq), Str("dtype", "int64"))
		e := b.Op("empty_after", s, Ints("size"), Str("dtype", "bool"))
		b.Op("alias", e)
		b.Hold(m)
	})
	return None
}
