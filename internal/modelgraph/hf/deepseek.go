package hf

// deepseek is DeepseekV3ForCausalLM (and V2's, whose router differs in small
// tensors only): latent attention, experts beside shared ones.
func deepseek(b *builder) {
	c := b.c
	hidden, inner, moeInner := c.int("hidden_size"), c.int("intermediate_size"), c.int("moe_intermediate_size")
	n, heads, vocab := c.layers("num_hidden_layers"), c.int("num_attention_heads"), c.int("vocab_size")
	qRank, kvRank := c.intOr(0, "q_lora_rank"), c.int("kv_lora_rank")
	rope, nope, vdim := c.int("qk_rope_head_dim"), c.int("qk_nope_head_dim"), c.int("v_head_dim")
	e := &experts{n: c.int("n_routed_experts"), top: c.int("num_experts_per_tok"), inner: moeInner}
	shared := c.intOr(0, "n_shared_experts") * moeInner
	dense := c.intOr(0, "first_k_dense_replace")
	interleave := c.bool(true, "rope_interleave")
	act := c.str("silu", "hidden_act")
	attnBias := c.bool(false, "attention_bias")
	drop := c.float(0, "attention_dropout")
	if *c.err != nil {
		return
	}
	qk := nope + rope

	embed := b.Param("model.embed_tokens.weight", vocab, hidden)
	type layer struct {
		qa, qb, q, kva, kvb, o linear
		qaNorm, kvaNorm        norm
		mlp                    decoderLayer
		shared                 decoderLayer
		moe                    moeLayer
		ln1, ln2               norm
	}
	gated := func(p string, inner int64) decoderLayer {
		return decoderLayer{gate: b.linear(p+".gate_proj", hidden, inner, false), up: b.linear(p+".up_proj", hidden, inner, false), down: b.linear(p+".down_proj", inner, hidden, false)}
	}
	layers := make([]layer, n)
	var biases []string
	for i := range layers {
		p := layerPath("model.layers", int64(i))
		l := &layers[i]
		if qRank > 0 {
			l.qa = b.linear(p+".self_attn.q_a_proj", hidden, qRank, attnBias)
			l.qaNorm = b.rmsNorm(p+".self_attn.q_a_layernorm", qRank)
			l.qb = b.linear(p+".self_attn.q_b_proj", qRank, heads*qk, false)
		} else {
			l.q = b.linear(p+".self_attn.q_proj", hidden, heads*qk, false)
		}
		l.kva = b.linear(p+".self_attn.kv_a_proj_with_mqa", hidden, kvRank+rope, attnBias)
		l.kvaNorm = b.rmsNorm(p+".self_attn.kv_a_layernorm", kvRank)
		l.kvb = b.linear(p+".self_attn.kv_b_proj", kvRank, heads*(nope+vdim), false)
		l.o = b.linear(p+".self_attn.o_proj", heads*vdim, hidden, attnBias)
		if int64(i) < dense {
			l.mlp = gated(p+".mlp", inner)
		} else {
			l.moe.gateUp = b.Param(p+".mlp.experts.gate_up_proj", e.n, 2*e.inner, hidden)
			l.moe.down = b.Param(p+".mlp.experts.down_proj", e.n, hidden, e.inner)
			l.moe.router = b.Param(p+".mlp.gate.weight", e.n, hidden)
			biases = append(biases, p+".mlp.gate.e_score_correction_bias")
			if shared > 0 {
				l.shared = gated(p+".mlp.shared_experts", shared)
			}
		}
		l.ln1, l.ln2 = b.rmsNorm(p+".input_layernorm", hidden), b.rmsNorm(p+".post_attention_layernorm", hidden)
	}
	final := b.rmsNorm("model.norm", hidden)
	head := embed
	if !c.bool(false, "tie_word_embeddings") {
		head = b.Param("lm_head.weight", vocab, hidden)
	}
	for _, name := range biases {
		b.Buffer(name, Float32, e.n)
	}
	inv := b.Buffer("model.rotary_emb.inv_freq", Float32, rope/2)
	b.Buffer("model.rotary_emb.original_inv_freq", Float32, rope/2)

	ids := b.tokens("input_ids", Seq)
	var h ValueID
	b.Call("model", func() {
		b.Call("embed_tokens", func() { h = b.Op("embedding", embed, ids) })
		b.Hold(h)
		b.positionIDs(Seq)
		mask := b.mask(0, h)
		rot := b.rotaryEmbedding(h, inv, rope/2, Const(1))
		b.Hold(rot.cos, rot.sin)
		turn := func(x ValueID, r rotary, heads int64) ValueID {
			if interleave {
				x = b.Op("view", x, Dims("size", Batch, Const(heads), Seq, Const(rope/2), Const(2)))
				x = b.Op("transpose", x, Ints("dim0", 4), Ints("dim1", 3))
				x = b.Op("reshape", x, Dims("size", Batch, Const(heads), Seq, Const(rope)))
			}
			return b.rotate(x, r, rope)
		}
		for i := range layers {
			l := &layers[i]
			b.Block(layerPath("layers", int64(i)), func() {
				x := b.normalize(l.ln1, h)
				var a ValueID
				b.Call("self_attn", func() {
					var q ValueID
					if qRank > 0 {
						q = b.apply(l.qb, b.normalize(l.qaNorm, b.apply(l.qa, x)))
					} else {
						q = b.apply(l.q, x)
					}
					q = b.heads(q, Seq, heads, qk)
					qs := b.Ops("split_with_sizes", 2, q, Ints("split_sizes", nope, rope), Ints("dim", -1))
					kv := b.apply(l.kva, x)
					ks := b.Ops("split_with_sizes", 2, kv, Ints("split_sizes", kvRank, rope), Ints("dim", -1))
					k := b.heads(b.apply(l.kvb, b.normalize(l.kvaNorm, ks[0])), Seq, heads, nope+vdim)
					kp := b.Ops("split_with_sizes", 2, k, Ints("split_sizes", nope, vdim), Ints("dim", -1))
					kr := b.Op("view", ks[1], Dims("size", Batch, Const(1), Seq, Const(rope)))
					var qr ValueID
					b.Call("rotary", func() {
						r := rotary{b.Op("unsqueeze", rot.cos, Ints("dim", 1)), b.Op("unsqueeze", rot.sin, Ints("dim", 1))}
						qr, kr = turn(qs[1], r, heads), turn(kr, r, 1)
					})
					kr = b.Op("expand", kr, Dims("size", Batch, Const(heads), Seq, Const(-1)))
					query := b.Op("cat", qs[0], qr, Ints("dim", -1))
					key := b.Op("cat", kp[0], kr, Ints("dim", -1))
					b.Hold(q, qs[0], qr, kv, k, kr, kp[1], query, key)
					a = b.attention(attend{q: query, k: key, v: kp[1], mask: mask, heads: heads, kv: heads, dim: vdim, n: Seq, causal: true, dropout: drop, float32: true})
					a = b.apply(l.o, a)
				})
				h = b.Op("add", h, a)
				b.Hold(h)
				x = b.normalize(l.ln2, h)
				var y ValueID
				if int64(i) < dense {
					b.Call("mlp", func() { y = b.gatedMLP(&l.mlp, style{}, x, inner, act) })
				} else {
					y = b.latentExperts(&l.moe, e, x, hidden, act, shared, &l.shared)
				}
				h = b.Op("add", h, y)
			})
		}
		h = b.normalize(final, h)
	})
	b.causalHead(h, head, ids, vocab, false)
}

// latentExperts is DeepseekV3MoE: a router in float32 with sigmoids, experts,
// and the shared ones beside them.
func (b *builder) latentExperts(l *moeLayer, e *experts, x ValueID, hidden int64, act string, shared int64, s *decoderLayer) (y ValueID) {
	b.Call("mlp", func() {
		flat := b.Op("view", x, Ints("size", -1, hidden))
		var weights, index ValueID
		b.Call("gate", func() {
			f := b.Op("to", flat, Str("dtype", "float32"))
			w := b.Op("to", l.router, Str("dtype", "float32"))
			logits := b.Op("linear", f, w, None)
			p := b.Op("sigmoid", logits)
			t := b.Ops("topk", 2, p, Ints("k", e.top))
			index = t[1]
			sum := b.Op("sum", t[0], Ints("dim", -1), Flag("keepdim"))
			weights = b.Op("div", t[0], sum)
			weights = b.Op("mul", weights)
			b.Hold(f, w, logits, p)
		})
		b.Hold(weights, index)
		y = b.expertProducts(l, e, flat, weights, index, x, hidden, act)
		if shared > 0 {
			var z ValueID
			b.Call("shared_experts", func() { z = b.gatedMLP(s, style{}, x, shared, act) })
			y = b.Op("add", y, z)
		}
	})
	return y
}
