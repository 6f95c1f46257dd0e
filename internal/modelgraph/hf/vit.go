package hf

// vit is ViTForImageClassification.
func vit(b *builder) {
	c := b.c
	hidden, inner, n, heads := c.int("hidden_size"), c.int("intermediate_size"), c.layers("num_hidden_layers"), c.int("num_attention_heads")
	image, patch, channels := c.int("image_size"), c.int("patch_size"), c.intOr(3, "num_channels")
	c.divides(hidden, "hidden_size", heads, "num_attention_heads")
	c.divides(image, "image_size", patch, "patch_size")
	bias := c.bool(true, "qkv_bias")
	act := c.str("gelu", "hidden_act")
	drop, attnDrop := c.float(0, "hidden_dropout_prob"), c.float(0, "attention_probs_dropout_prob")
	labels := c.intOr(2, "num_labels")
	if m := c.sub("id2label"); m != nil && len(m.m) > 0 {
		labels = int64(len(m.m))
	}
	if *c.err != nil {
		return
	}
	dim, side := hidden/heads, image/patch
	tokens := Const(side*side + 1)

	cls := b.Param("vit.embeddings.cls_token", 1, 1, hidden)
	pos := b.Param("vit.embeddings.position_embeddings", 1, side*side+1, hidden)
	pw := b.Param("vit.embeddings.patch_embeddings.projection.weight", hidden, channels, patch, patch)
	pb := b.Param("vit.embeddings.patch_embeddings.projection.bias", hidden)
	type layer struct {
		q, k, v, o, fc1, fc2 linear
		ln1, ln2             norm
	}
	layers := make([]layer, n)
	for i := range layers {
		p := layerPath("vit.layers", int64(i))
		l := &layers[i]
		l.q = b.linear(p+".attention.q_proj", hidden, hidden, bias)
		l.k = b.linear(p+".attention.k_proj", hidden, hidden, bias)
		l.v = b.linear(p+".attention.v_proj", hidden, hidden, bias)
		l.o = b.linear(p+".attention.o_proj", hidden, hidden, true)
		l.ln1 = b.layerNorm(p+".layernorm_before", hidden)
		l.ln2 = b.layerNorm(p+".layernorm_after", hidden)
		l.fc1 = b.linear(p+".mlp.fc1", hidden, inner, true)
		l.fc2 = b.linear(p+".mlp.fc2", inner, hidden, true)
	}
	final := b.layerNorm("vit.layernorm", hidden)
	head := b.linear("classifier", hidden, labels, true)

	pixels := b.Input("pixel_values", Float32, Batch, Const(channels), Const(image), Const(image))
	target := b.Input("labels", Int64, Batch)
	var h ValueID
	b.Call("vit", func() {
		b.Call("embeddings", func() {
			x := b.Op("type_as", pixels, pw)
			x = b.Op("conv2d", x, pw, pb, Ints("stride", patch, patch))
			x = b.Op("flatten", x, Ints("start_dim", 2))
			x = b.Op("transpose", x, Ints("dim0", 1), Ints("dim1", 2))
			t := b.Op("expand", cls, Dims("size", Batch, Const(-1), Const(-1)))
			x = b.Op("cat", t, x, Ints("dim", 1))
			x = b.Op("add", x, pos)
			h = b.dropout(x, drop)
		})
		for i := range layers {
			l := &layers[i]
			b.Block(layerPath("layers", int64(i)), func() {
				x := b.normalize(l.ln1, h)
				var a ValueID
				b.Call("attention", func() {
					q, k, v := b.heads(b.apply(l.q, x), tokens, heads, dim), b.heads(b.apply(l.k, x), tokens, heads, dim), b.heads(b.apply(l.v, x), tokens, heads, dim)
					b.Hold(q, k, v)
					a = b.attention(attend{q: q, k: k, v: v, mask: None, heads: heads, kv: heads, dim: dim, n: tokens, dropout: attnDrop})
					a = b.dropout(b.apply(l.o, a), drop)
				})
				h = b.Op("add", a, h)
				x = b.normalize(l.ln2, h)
				b.Hold(h)
				y := b.activation(act, b.apply(l.fc1, x))
				y = b.dropout(b.apply(l.fc2, y), drop)
				h = b.Op("add", y, h)
			})
		}
		h = b.normalize(final, h)
	})
	b.Hold(h)
	first := b.Op("select", h, Ints("dim", 1), Ints("index", 0))
	logits := b.apply(head, first)
	if b.o.Train {
		b.outputs = append(b.outputs, b.maskedLoss(logits, target, labels))
	}
	b.outputs = append(b.outputs, logits)
}
