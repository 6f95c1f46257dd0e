package hf

// style says how a family differs from Llama.
type style struct {
	qkvBias, outBias bool
	qkNorm           bool // an RMS norm of each head of q and k
	unitNorm         bool // norms multiply by 1 + weight
	sandwich         bool // a norm after each sublayer too
	scaleEmbed       bool // embeddings are multiplied by sqrt(hidden)
	scaleResidual    bool // what a sublayer adds is multiplied by a number
	scaleLogits      bool
	twoRotary        bool // sliding and full attention turn by different angles
	fused            bool // qkv_proj and gate_up_proj
	outFirst         bool // o_proj is declared before qkv_proj
	experts          *experts
	finalSoftcap     bool
	attnSoftcap      bool
	act              string
	window           int64            // of sliding attention, 0 for none
	sliding          func(i int) bool // which layers slide
	rotaryFactor     float64
	embedScale       bool // a buffer
}

func attentionBias(c *config) style {
	v := c.bool(false, "attention_bias")
	return style{qkvBias: v, outBias: v}
}

func slidesEvery(c *config, def func(i int) bool) func(i int) bool {
	types := c.strings("layer_types")
	return func(i int) bool {
		if i < len(types) {
			return types[i] == "sliding_attention"
		}
		return def(i)
	}
}

func always(int) bool { return true }
func never(int) bool  { return false }

func llamaStyle(c *config) style { return attentionBias(c) }

func mistralStyle(c *config) style {
	return style{window: c.intOr(0, "sliding_window"), sliding: always}
}

func qwen2Style(c *config) style {
	s := style{qkvBias: true}
	if c.bool(false, "use_sliding_window") {
		s.window = c.intOr(0, "sliding_window")
	}
	s.sliding = slidesEvery(c, never)
	return s
}

func qwen3Style(c *config) style {
	s := attentionBias(c)
	s.qkNorm = true
	if c.bool(false, "use_sliding_window") {
		s.window = c.intOr(0, "sliding_window")
	}
	s.sliding = slidesEvery(c, never)
	return s
}

func gemmaStyle(c *config) style {
	s := attentionBias(c)
	s.unitNorm, s.scaleEmbed, s.embedScale, s.act = true, true, true, "gelu_pytorch_tanh"
	return s
}

func gemma2Style(c *config) style {
	s := gemmaStyle(c)
	s.sandwich = true
	s.finalSoftcap = c.float(0, "final_logit_softcapping") != 0
	s.attnSoftcap = c.float(0, "attn_logit_softcapping") != 0
	s.window = c.intOr(0, "sliding_window")
	s.sliding = slidesEvery(c, func(i int) bool { return i%2 == 0 })
	return s
}

func gemma3Style(c *config) style {
	s := gemma2Style(c)
	s.qkNorm = true
	s.sliding = slidesEvery(c, func(i int) bool { return (i+1)%6 != 0 })
	s.twoRotary = true
	return s
}

func phi3Style(c *config) style {
	return style{fused: true, outFirst: true, window: c.intOr(0, "sliding_window"), sliding: always, rotaryFactor: c.float(1, "partial_rotary_factor")}
}

func graniteStyle(c *config) style {
	s := attentionBias(c)
	s.scaleEmbed, s.scaleResidual, s.scaleLogits = true, true, true
	return s
}

func mixtralStyle(c *config) style {
	s := style{window: c.intOr(0, "sliding_window"), sliding: always}
	s.experts = &experts{n: c.int("num_local_experts", "num_experts"), top: c.int("num_experts_per_tok"), inner: c.int("intermediate_size"), normalize: true}
	return s
}

func qwen3MoeStyle(c *config) style {
	s := qwen3Style(c)
	s.experts = &experts{n: c.int("num_experts", "num_local_experts"), top: c.int("num_experts_per_tok"), inner: c.int("moe_intermediate_size"), normalize: c.bool(false, "norm_topk_prob"), routerLast: true}
	return s
}

type decoderLayer struct {
	q, k, v, o, qkv        linear
	gate, up, down, gateUp linear
	qn, kn                 norm
	ln                     [4]norm // before and after attention, before and after the MLP
	moe                    moeLayer
}

// decoder is the family of Llama: rotary positions, RMS norms, gated MLP.
func decoder(of func(c *config) style) family {
	return func(b *builder) {
		c := b.c
		s := of(c)
		hidden, n := c.int("hidden_size"), c.layers("num_hidden_layers")
		inner := int64(1)
		if s.experts == nil {
			inner = c.int("intermediate_size")
		}
		heads := c.int("num_attention_heads")
		kv := c.intOr(heads, "num_key_value_heads")
		vocab := c.int("vocab_size")
		if _, ok := c.opt("head_dim"); !ok {
			c.divides(hidden, "hidden_size", heads, "num_attention_heads")
		}
		dim := c.intOr(hidden/heads, "head_dim")
		c.divides(heads, "num_attention_heads", kv, "num_key_value_heads")
		act := c.str(or(s.act, "silu"), "hidden_act", "hidden_activation")
		drop := c.float(0, "attention_dropout")
		mlpBias := c.bool(false, "mlp_bias")
		rotaryDim := dim
		if s.rotaryFactor > 0 {
			rotaryDim = int64(float64(dim) * s.rotaryFactor)
		}
		if *c.err != nil {
			return
		}

		embed := b.Param("model.embed_tokens.weight", vocab, hidden)
		layers := make([]decoderLayer, n)
		for i := range layers {
			p := layerPath("model.layers", int64(i))
			l := &layers[i]
			if s.fused {
				l.o = b.linear(p+".self_attn.o_proj", heads*dim, hidden, s.outBias)
				l.qkv = b.linear(p+".self_attn.qkv_proj", hidden, (heads+2*kv)*dim, s.qkvBias)
				l.gateUp = b.linear(p+".mlp.gate_up_proj", hidden, 2*inner, mlpBias)
				l.down = b.linear(p+".mlp.down_proj", inner, hidden, mlpBias)
			} else {
				l.q = b.linear(p+".self_attn.q_proj", hidden, heads*dim, s.qkvBias)
				l.k = b.linear(p+".self_attn.k_proj", hidden, kv*dim, s.qkvBias)
				l.v = b.linear(p+".self_attn.v_proj", hidden, kv*dim, s.qkvBias)
				l.o = b.linear(p+".self_attn.o_proj", heads*dim, hidden, s.outBias)
				if s.qkNorm {
					l.qn, l.kn = b.rms(s, p+".self_attn.q_norm", dim), b.rms(s, p+".self_attn.k_norm", dim)
				}
				if s.experts != nil {
					l.moe = b.moeLayer(p+".mlp", s.experts, hidden)
				} else {
					l.gate = b.linear(p+".mlp.gate_proj", hidden, inner, mlpBias)
					l.up = b.linear(p+".mlp.up_proj", hidden, inner, mlpBias)
					l.down = b.linear(p+".mlp.down_proj", inner, hidden, mlpBias)
				}
			}
			names := []string{"input_layernorm", "post_attention_layernorm"}
			if s.sandwich {
				names = append(names, "pre_feedforward_layernorm", "post_feedforward_layernorm")
			}
			for k, name := range names {
				l.ln[k] = b.rms(s, p+"."+name, hidden)
			}
		}
		final := b.rms(s, "model.norm", hidden)
		head := embed
		if !c.bool(s.embedScale, "tie_word_embeddings") {
			head = b.Param("lm_head.weight", vocab, hidden)
		}
		if s.embedScale {
			b.Buffer("model.embed_tokens.embed_scale", Float32)
		}
		kinds := []string{""}
		if s.twoRotary {
			kinds = []string{"full_attention_", "sliding_attention_"}
		}
		var inv []ValueID
		for _, k := range kinds {
			inv = append(inv, b.Buffer("model.rotary_emb."+k+"inv_freq", Float32, rotaryDim/2))
			b.Buffer("model.rotary_emb."+k+"original_inv_freq", Float32, rotaryDim/2)
		}

		ids := b.tokens("input_ids", Seq)
		var h ValueID
		b.Call("model", func() {
			b.Call("embed_tokens", func() {
				h = b.Op("embedding", embed, ids)
				if s.scaleEmbed {
					h = b.Op("mul", h)
				}
			})
			b.Hold(h)
			b.positionIDs(Seq)
			masks := b.causalMasks(&s, int(n), h)
			var rots []rotary
			for _, f := range inv {
				r := b.rotaryEmbedding(h, f, rotaryDim/2, Const(1))
				b.Hold(r.cos, r.sin)
				rots = append(rots, r)
			}
			for i := range layers {
				l := &layers[i]
				rot := rots[0]
				if s.twoRotary && s.sliding(i) {
					rot = rots[1]
				}
				b.Block(layerPath("layers", int64(i)), func() {
					x := b.normalize(l.ln[0], h)
					var a ValueID
					b.Call("self_attn", func() {
						var q, k, v ValueID
						if s.fused {
							all := b.apply(l.qkv, x)
							q = b.heads(b.Op("slice", all, Ints("dim", -1), Ints("end", heads*dim)), Seq, heads, dim)
							k = b.heads(b.Op("slice", all, Ints("dim", -1), Ints("start", heads*dim), Ints("end", (heads+kv)*dim)), Seq, kv, dim)
							v = b.heads(b.Op("slice", all, Ints("dim", -1), Ints("start", (heads+kv)*dim), Ints("end", (heads+2*kv)*dim)), Seq, kv, dim)
							b.Hold(all)
						} else if s.qkNorm {
							q = b.normHeads(l.qn, b.apply(l.q, x), heads, dim)
							k = b.normHeads(l.kn, b.apply(l.k, x), kv, dim)
							v = b.heads(b.apply(l.v, x), Seq, kv, dim)
						} else {
							q = b.heads(b.apply(l.q, x), Seq, heads, dim)
							k = b.heads(b.apply(l.k, x), Seq, kv, dim)
							v = b.heads(b.apply(l.v, x), Seq, kv, dim)
						}
						b.Call("rotary", func() {
							r := rotary{b.Op("unsqueeze", rot.cos, Ints("dim", 1)), b.Op("unsqueeze", rot.sin, Ints("dim", 1))}
							q = b.rotatePart(q, r, rotaryDim, dim, s.rotaryFactor > 0)
							k = b.rotatePart(k, r, rotaryDim, dim, s.rotaryFactor > 0)
						})
						b.Hold(q, k, v)
						a = b.attention(attend{q: q, k: k, v: v, mask: masks[i], heads: heads, kv: kv, dim: dim, n: Seq, causal: true, dropout: drop, float32: true, softcap: s.attnSoftcap})
						a = b.apply(l.o, a)
					})
					if s.sandwich {
						a = b.normalize(l.ln[1], a)
					}
					if s.scaleResidual {
						a = b.Op("mul", a)
					}
					h = b.Op("add", h, a)
					b.Hold(h) // residual
					x = b.normalize(l.ln[1+b2i(s.sandwich)], h)
					var y ValueID
					if s.experts != nil {
						y = b.runExperts(&l.moe, s.experts, x, hidden, act)
					} else {
						b.Call("mlp", func() { y = b.gatedMLP(l, s, x, inner, act) })
					}
					if s.sandwich {
						y = b.normalize(l.ln[3], y)
					}
					if s.scaleResidual {
						y = b.Op("mul", y)
					}
					h = b.Op("add", h, y)
				})
			}
			h = b.normalize(final, h)
		})
		b.scaleLogits = s.scaleLogits
		b.causalHead(h, head, ids, vocab, s.finalSoftcap)
	}
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func b2i(v bool) int {
	if v {
		return 1
	}
	return 0
}

func (b *builder) rms(s style, path string, n int64) norm {
	r := b.rmsNorm(path, n)
	r.unit = s.unitNorm
	return r
}

func (b *builder) gatedMLP(l *decoderLayer, s style, x ValueID, inner int64, act string) ValueID {
	if s.fused {
		both := b.apply(l.gateUp, x)
		p := b.Ops("chunk", 2, both, Ints("chunks", 2), Ints("dim", -1))
		b.Hold(both, p[0])
		up := b.Op("mul", p[1], b.activation(act, p[0]))
		return b.apply(l.down, up)
	}
	g := b.activation(act, b.apply(l.gate, x))
	u := b.apply(l.up, x)
	return b.apply(l.down, b.Op("mul", g, u))
}

// normHeads is q_norm(q_proj(x).view(heads)).transpose(1, 2).
func (b *builder) normHeads(n norm, x ValueID, heads, dim int64) ValueID {
	v := b.Op("view", x, Dims("size", Batch, Seq, Const(heads), Const(dim)))
	v = b.normalize(n, v)
	return b.Op("transpose", v, Ints("dim0", 1), Ints("dim1", 2))
}

// rotatePart rotates the first part of each head. Families that know a partial
// rotary factor join the parts even where the second is empty.
func (b *builder) rotatePart(x ValueID, r rotary, part, dim int64, cat bool) ValueID {
	if !cat {
		return b.rotate(x, r, dim)
	}
	a := b.Op("slice", x, Ints("dim", -1), Ints("end", part))
	rest := b.Op("slice", x, Ints("dim", -1), Ints("start", part), Ints("end", dim))
	return b.Op("cat", b.rotate(a, r, part), rest, Ints("dim", -1))
}

// causalMasks makes the masks of full and of sliding attention and returns the
// one of each layer. SDPA needs none where nothing but the future is hidden.
func (b *builder) causalMasks(s *style, n int, like ValueID) []ValueID {
	full, slide := None, None
	haveFull, haveSlide := false, false
	masks := make([]ValueID, n)
	for i := range masks {
		slides := s.window > 0 && s.sliding != nil && s.sliding(i)
		if slides && !haveSlide {
			haveSlide = true
			slide = b.mask(s.window, like)
		}
		if !slides && !haveFull {
			haveFull = true
			full = b.mask(0, like)
		}
		masks[i] = full
		if slides {
			masks[i] = slide
		}
	}
	return masks
}

// mask is create_causal_mask and create_sliding_window_causal_mask.
func (b *builder) mask(window int64, like ValueID) (m ValueID) {
	b.packedCheck()
	if b.o.Attention == "eager" {
		return b.maskOf(window, like, true)
	}
	if window == 0 || b.o.Attention != "sdpa" {
		return None
	}
	// Only from the window's length on is there something to hide.
	m = b.Op("window_mask", Dims("size", Batch, Const(1), Seq, Seq), Ints("window", window))
	b.Hold(m)
	return m
}

// maskOf builds a mask in full: of Booleans, then for eager attention of
// numbers.
func (b *builder) maskOf(window int64, like ValueID, numbers bool) (m ValueID) {
	b.Call("mask", func() {
		rows := b.Op("empty", Dims("size", Batch), Str("dtype", "int64"))
		one := b.Op("empty", Ints("size", 1), Str("dtype", "int64"))
		q := b.Op("like", b.Op("empty", Dims("size", Seq), Str("dtype", "int64")))
		k := b.Op("like", b.Op("empty", Dims("size", Seq), Str("dtype", "int64")))
		le := b.Op("empty", Dims("size", Seq, Seq), Str("dtype", "bool"))
		if window > 0 {
			gt := b.Op("empty", Dims("size", Seq, Seq), Str("dtype", "bool"))
			le = b.Op("like", le, gt)
		}
		m = b.Op("expand", le, Dims("size", Batch, Const(1), Seq, Seq))
		b.Ops("release", 0, rows, one, q, k)
		if numbers {
			lo := b.Op("empty", Ints("size"))
			hi := b.Op("empty", Ints("size"))
			m = b.Op("mask_numbers", m, like)
			b.Hold(lo, hi)
		}
	})
	b.Hold(m)
	return m
}

// causalHead is the head of a causal language model and its loss.
func (b *builder) causalHead(h, head, labels ValueID, vocab int64, softcap bool) {
	b.Hold(h)
	var logits ValueID
	b.Call("lm_head", func() { logits = b.Op("linear", h, head, None) })
	if b.scaleLogits {
		logits = b.Op("div", logits)
	}
	if softcap {
		logits = b.Op("div", logits)
		logits = b.Op("tanh", logits)
		logits = b.Op("mul", logits)
	}
	if b.o.Train {
		b.outputs = append(b.outputs, b.causalLoss(logits, labels, vocab))
	}
	b.outputs = append(b.outputs, logits)
}
