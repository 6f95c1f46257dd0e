package hf

import . "vramscope/internal/modelgraph"

// style says how a family differs from Llama.
type style struct {
	attentionBias func(c *config) (qkv, out bool)
}

func llamaStyle(c *config) style {
	return style{attentionBias: func(c *config) (bool, bool) { v := c.bool(false, "attention_bias"); return v, v }}
}

type decoderLayer struct {
	q, k, v, o     linear
	gate, up, down linear
	ln1, ln2       norm
}

// decoder is the family of Llama: rotary positions, RMS norms, gated MLP.
func decoder(of func(c *config) style) family {
	return func(b *builder) {
		c := b.c
		s := of(c)
		hidden, inner, n := c.int("hidden_size"), c.int("intermediate_size"), c.layers("num_hidden_layers")
		heads := c.int("num_attention_heads")
		kv := c.intOr(heads, "num_key_value_heads")
		vocab := c.int("vocab_size")
		if _, ok := c.opt("head_dim"); !ok {
			c.divides(hidden, "hidden_size", heads, "num_attention_heads")
		}
		dim := c.intOr(hidden/heads, "head_dim")
		c.divides(heads, "num_attention_heads", kv, "num_key_value_heads")
		act := c.str("silu", "hidden_act", "hidden_activation")
		drop := c.float(0, "attention_dropout")
		mlpBias := c.bool(false, "mlp_bias")
		if *c.err != nil {
			return
		}
		qkvBias, outBias := s.attentionBias(c)

		embed := b.Param("model.embed_tokens.weight", vocab, hidden)
		layers := make([]decoderLayer, n)
		for i := range layers {
			p := layerPath("model.layers", int64(i))
			l := &layers[i]
			l.q = b.linear(p+".self_attn.q_proj", hidden, heads*dim, qkvBias)
			l.k = b.linear(p+".self_attn.k_proj", hidden, kv*dim, qkvBias)
			l.v = b.linear(p+".self_attn.v_proj", hidden, kv*dim, qkvBias)
			l.o = b.linear(p+".self_attn.o_proj", heads*dim, hidden, outBias)
			l.gate = b.linear(p+".mlp.gate_proj", hidden, inner, mlpBias)
			l.up = b.linear(p+".mlp.up_proj", hidden, inner, mlpBias)
			l.down = b.linear(p+".mlp.down_proj", inner, hidden, mlpBias)
			l.ln1 = b.rmsNorm(p+".input_layernorm", hidden)
			l.ln2 = b.rmsNorm(p+".post_attention_layernorm", hidden)
		}
		final := b.rmsNorm("model.norm", hidden)
		head := embed
		if !c.bool(false, "tie_word_embeddings") {
			head = b.Param("lm_head.weight", vocab, hidden)
		}
		inv := b.Buffer("model.rotary_emb.inv_freq", Float32, dim/2)
		b.Buffer("model.rotary_emb.original_inv_freq", Float32, dim/2)

		ids := b.tokens("input_ids", Seq)
		var h ValueID
		b.Call("model", func() {
			b.Call("embed_tokens", func() { h = b.Op("embedding", embed, ids) })
			b.Hold(h)
			b.positionIDs(Seq)
			b.packedCheck()
			rot := b.rotaryEmbedding(h, inv, dim/2, Const(1))
			b.Hold(rot.cos, rot.sin)
			for i := range layers {
				l := &layers[i]
				b.Block(layerPath("layers", int64(i)), func() {
					x := b.normalize(l.ln1, h)
					var a ValueID
					b.Call("self_attn", func() {
						q := b.heads(b.apply(l.q, x), Seq, heads, dim)
						k := b.heads(b.apply(l.k, x), Seq, kv, dim)
						v := b.heads(b.apply(l.v, x), Seq, kv, dim)
						b.Call("rotary", func() {
							cos := b.Op("unsqueeze", rot.cos, Ints("dim", 1))
							sin := b.Op("unsqueeze", rot.sin, Ints("dim", 1))
							r := rotary{cos, sin}
							q = b.rotate(q, r, dim)
							k = b.rotate(k, r, dim)
						})
						b.Hold(q, k, v)
						a = b.attention(attend{q: q, k: k, v: v, mask: None, heads: heads, kv: kv, dim: dim, n: Seq, causal: true, dropout: drop, float32: true})
						a = b.apply(l.o, a)
					})
					h = b.Op("add", h, a)
					x = b.normalize(l.ln2, h)
					var y ValueID
					b.Call("mlp", func() {
						g := b.activation(act, b.apply(l.gate, x))
						u := b.apply(l.up, x)
						y = b.apply(l.down, b.Op("mul", g, u))
					})
					h = b.Op("add", h, y)
				})
			}
			h = b.normalize(final, h)
		})
		b.causalHead(h, head, ids, vocab)
	}
}

// causalHead is the head of a causal language model and its loss.
func (b *builder) causalHead(h, head, labels ValueID, vocab int64) {
	b.Hold(h)
	var logits ValueID
	b.Call("lm_head", func() { logits = b.Op("linear", h, head, None) })
	if b.o.Train {
		b.outputs = append(b.outputs, b.causalLoss(logits, labels, vocab))
	}
	b.outputs = append(b.outputs, logits)
}
