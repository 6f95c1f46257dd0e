package hf

type whisperAttention struct{ k, v, q, out linear }

type whisperLayer struct {
	self, cross whisperAttention
	fc1, fc2    linear
	ln          [3]norm
}

// whisper is WhisperForConditionalGeneration: 30 s of audio, whose features are
// halved by the second convolution, and the labels, shifted.
func whisper(b *builder) {
	c := b.c
	hidden, vocab, mels := c.int("d_model"), c.int("vocab_size"), c.int("num_mel_bins")
	ne, nd := c.layers("encoder_layers"), c.layers("decoder_layers")
	eh, dh := c.int("encoder_attention_heads"), c.int("decoder_attention_heads")
	ef, df := c.int("encoder_ffn_dim"), c.int("decoder_ffn_dim")
	source, target := c.int("max_source_positions"), c.int("max_target_positions")
	c.divides(hidden, "d_model", eh, "encoder_attention_heads")
	c.divides(hidden, "d_model", dh, "decoder_attention_heads")
	act := c.str("gelu", "activation_function")
	drop, attnDrop, actDrop := c.float(0, "dropout"), c.float(0, "attention_dropout"), c.float(0, "activation_dropout")
	if *c.err != nil {
		return
	}

	attention := func(path string) whisperAttention {
		return whisperAttention{b.linear(path+".k_proj", hidden, hidden, false), b.linear(path+".v_proj", hidden, hidden, true),
			b.linear(path+".q_proj", hidden, hidden, true), b.linear(path+".out_proj", hidden, hidden, true)}
	}
	stack := func(name string, n, inner int64, decoder bool) []whisperLayer {
		layers := make([]whisperLayer, n)
		for i := range layers {
			p := layerPath("model."+name+".layers", int64(i))
			l := &layers[i]
			l.self = attention(p + ".self_attn")
			l.ln[0] = b.layerNorm(p+".self_attn_layer_norm", hidden)
			if decoder {
				l.cross = attention(p + ".encoder_attn")
				l.ln[1] = b.layerNorm(p+".encoder_attn_layer_norm", hidden)
			}
			l.fc1 = b.linear(p+".fc1", hidden, inner, true)
			l.fc2 = b.linear(p+".fc2", inner, hidden, true)
			l.ln[2] = b.layerNorm(p+".final_layer_norm", hidden)
		}
		return layers
	}
	conv1 := linear{name: "conv1", w: b.Param("model.encoder.conv1.weight", hidden, mels, 3), b: b.Param("model.encoder.conv1.bias", hidden)}
	conv2 := linear{name: "conv2", w: b.Param("model.encoder.conv2.weight", hidden, hidden, 3), b: b.Param("model.encoder.conv2.bias", hidden)}
	encPos := b.Declare(Value{Name: "model.encoder.embed_positions.weight", Kind: Param, Shape: Consts(source, hidden), Frozen: true})
	enc := stack("encoder", ne, ef, false)
	encNorm := b.layerNorm("model.encoder.layer_norm", hidden)
	tokens := b.Param("model.decoder.embed_tokens.weight", vocab, hidden)
	decPos := b.Param("model.decoder.embed_positions.weight", target, hidden)
	dec := stack("decoder", nd, df, true)
	decNorm := b.layerNorm("model.decoder.layer_norm", hidden)

	features := b.Input("input_features", Float32, Batch, Const(mels), Const(2*source))
	ids := b.tokens("labels", Seq)
	decIDs := b.Op("empty", Dims("size", Batch, Seq), Str("dtype", "int64"))
	b.Hold(decIDs)
	frames := Const(source)
	var e, h ValueID
	b.Call("model.encoder", func() {
		x := b.Op("conv1d", features, conv1.w, conv1.b, Ints("stride", 1), Ints("padding", 1))
		x = b.activation("gelu", x)
		x = b.Op("conv1d", x, conv2.w, conv2.b, Ints("stride", 2), Ints("padding", 1))
		x = b.activation("gelu", x)
		x = b.Op("permute", x, Ints("dims", 0, 2, 1))
		pos := b.Op("empty", Dims("size", frames), Str("dtype", "int64"))
		pe := b.Op("embedding", encPos, pos)
		b.Hold(x, pos)
		e = b.dropout(b.Op("add", x, pe), drop)
		for i := range enc {
			l := &enc[i]
			b.Block(layerPath("layers", int64(i)), func() {
				a := b.whisperAttend(l.self, b.normalize(l.ln[0], e), None, "self_attn", frames, frames, hidden, eh, attnDrop, false)
				e = b.Op("add", e, b.dropout(a, drop))
				b.Hold(e)
				e = b.Op("add", e, b.whisperMLP(l, e, act, drop, actDrop))
			})
		}
		e = b.normalize(encNorm, e)
	})
	b.Hold(e)
	b.Call("model.decoder", func() {
		we := b.Op("embedding", tokens, decIDs)
		pos := b.Op("position_row", Dims("size", Const(1), Seq))
		pe := b.Op("slice_rows", decPos, pos, Dims("rows", Seq))
		b.Hold(we)
		h = b.dropout(b.Op("add", we, pe), drop)
		mask := b.mask(0, h)
		for i := range dec {
			l := &dec[i]
			b.Block(layerPath("layers", int64(i)), func() {
				a := b.whisperAttend(l.self, b.normalize(l.ln[0], h), None, "self_attn", Seq, Seq, hidden, dh, attnDrop, true, mask)
				h = b.Op("add", h, b.dropout(a, drop))
				a = b.whisperAttend(l.cross, b.normalize(l.ln[1], h), e, "encoder_attn", Seq, frames, hidden, dh, attnDrop, false)
				h = b.Op("add", h, b.dropout(a, drop))
				b.Hold(h)
				h = b.Op("add", h, b.whisperMLP(l, h, act, drop, actDrop))
			})
		}
		h = b.normalize(decNorm, h)
	})
	b.Hold(h)
	logits := b.Op("linear", h, tokens, None)
	if b.o.Train {
		b.outputs = append(b.outputs, b.maskedLoss(logits, ids, vocab))
	}
	b.outputs = append(b.outputs, logits)
}

// whisperAttend is WhisperAttention: q, k and v are made contiguous by head.
func (b *builder) whisperAttend(l whisperAttention, x, from ValueID, name string, n, m Dim, hidden, heads int64, drop float64, causal bool, masks ...ValueID) (out ValueID) {
	dim := hidden / heads
	if from == None {
		from = x
	}
	mask := None
	if len(masks) > 0 {
		mask = masks[0]
	}
	b.Call(name, func() {
		q := b.Op("mul", b.apply(l.q, x))
		q = b.Op("contiguous", b.heads(q, n, heads, dim))
		k := b.Op("contiguous", b.heads(b.apply(l.k, from), m, heads, dim))
		v := b.Op("contiguous", b.heads(b.apply(l.v, from), m, heads, dim))
		b.Hold(q, k, v)
		out = b.attention(attend{q: q, k: k, v: v, mask: mask, heads: heads, kv: heads, dim: dim, n: n, causal: causal, dropout: drop})
		out = b.apply(l.out, out)
	})
	return out
}

func (b *builder) whisperMLP(l *whisperLayer, h ValueID, act string, drop, actDrop float64) ValueID {
	x := b.normalize(l.ln[2], h)
	y := b.dropout(b.activation(act, b.apply(l.fc1, x)), actDrop)
	return b.dropout(b.apply(l.fc2, y), drop)
}
