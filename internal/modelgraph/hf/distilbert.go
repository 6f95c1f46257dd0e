package hf

// distilbert is DistilBertForMaskedLM.
func distilbert(b *builder) {
	c := b.c
	hidden, inner, n := c.int("dim", "hidden_size"), c.int("hidden_dim"), c.layers("n_layers", "num_hidden_layers")
	heads, vocab, positions := c.int("n_heads", "num_attention_heads"), c.int("vocab_size"), c.int("max_position_embeddings")
	c.divides(hidden, "dim", heads, "n_heads")
	act := c.str("gelu", "activation")
	drop, attnDrop := c.float(0.1, "dropout"), c.float(0.1, "attention_dropout")
	if *c.err != nil {
		return
	}
	dim := hidden / heads

	word := b.Param("distilbert.embeddings.word_embeddings.weight", vocab, hidden)
	pos := b.Param("distilbert.embeddings.position_embeddings.weight", positions, hidden)
	eln := b.layerNorm("distilbert.embeddings.LayerNorm", hidden)
	type layer struct {
		q, k, v, out, lin1, lin2 linear
		ln1, ln2                 norm
	}
	layers := make([]layer, n)
	for i := range layers {
		p := layerPath("distilbert.transformer.layer", int64(i))
		l := &layers[i]
		l.q = b.linear(p+".attention.q_lin", hidden, hidden, true)
		l.k = b.linear(p+".attention.k_lin", hidden, hidden, true)
		l.v = b.linear(p+".attention.v_lin", hidden, hidden, true)
		l.out = b.linear(p+".attention.out_lin", hidden, hidden, true)
		l.ln1 = b.layerNorm(p+".sa_layer_norm", hidden)
		l.lin1 = b.linear(p+".ffn.lin1", hidden, inner, true)
		l.lin2 = b.linear(p+".ffn.lin2", inner, hidden, true)
		l.ln2 = b.layerNorm(p+".output_layer_norm", hidden)
	}
	trans := b.linear("vocab_transform", hidden, hidden, true)
	tln := b.layerNorm("vocab_layer_norm", hidden)
	bias := b.Param("vocab_projector.bias", vocab)
	b.Buffer("distilbert.embeddings.position_ids", Int64, 1, positions)

	ids := b.tokens("input_ids", Seq)
	b.Input("attention_mask", Int64, Batch, Seq)
	var h ValueID
	b.Call("distilbert", func() {
		b.Call("embeddings", func() {
			we := b.Op("embedding", word, ids)
			pids := b.Op("position_row", Dims("size", Const(1), Seq))
			pe := b.Op("embedding", pos, pids)
			b.Hold(we, pe)
			s := b.Op("add", we, pe)
			s = b.normalize(eln, s)
			h = b.dropout(s, drop)
		})
		mask := b.bidirectionalMask(h)
		for i := range layers {
			l := &layers[i]
			b.Block(layerPath("transformer.layer", int64(i)), func() {
				x := h
				var a ValueID
				b.Call("attention", func() {
					q := b.heads(b.apply(l.q, x), Seq, heads, dim)
					k := b.heads(b.apply(l.k, x), Seq, heads, dim)
					v := b.heads(b.apply(l.v, x), Seq, heads, dim)
					b.Hold(q, k, v)
					a = b.attention(attend{q: q, k: k, v: v, mask: mask, heads: heads, kv: heads, dim: dim, n: Seq, dropout: attnDrop})
					a = b.apply(l.out, a)
				})
				s := b.Op("add", a, x)
				s = b.normalize(l.ln1, s)
				b.Touch(a) // sa_output is bound anew only now
				var y ValueID
				b.Call("ffn", func() {
					y = b.apply(l.lin1, s)
					y = b.activation(act, y)
					y = b.apply(l.lin2, y)
					y = b.dropout(y, drop)
				})
				s2 := b.Op("add", y, s)
				h = b.normalize(l.ln2, s2)
				b.Touch(y)
			})
		}
	})
	b.Hold(h)
	x := b.apply(trans, h)
	x = b.activation(act, x)
	x = b.normalize(tln, x)
	logits := b.Op("linear", x, word, bias)
	if b.o.Train {
		b.outputs = append(b.outputs, b.maskedLoss(logits, ids, vocab))
	}
	b.outputs = append(b.outputs, logits)
}
