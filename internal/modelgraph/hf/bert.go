package hf

type bertLayer struct {
	q, k, v, out, inter, output linear
	ln1, ln2                    norm
}

// bert is BertForMaskedLM.
func bert(b *builder) { bertModel(b, "bert") }

// roberta is RobertaForMaskedLM: BERT with positions counted over the tokens
// that are not padding, and a head of its own.
func roberta(b *builder) { bertModel(b, "roberta") }

func bertModel(b *builder, prefix string) {
	c := b.c
	isRoberta := prefix == "roberta"
	hidden, inner, n := c.int("hidden_size"), c.int("intermediate_size"), c.layers("num_hidden_layers")
	heads, vocab, positions := c.int("num_attention_heads"), c.int("vocab_size"), c.int("max_position_embeddings")
	types := c.intOr(2, "type_vocab_size")
	c.divides(hidden, "hidden_size", heads, "num_attention_heads")
	act := c.str("gelu", "hidden_act")
	drop, attnDrop := c.float(0.1, "hidden_dropout_prob"), c.float(0.1, "attention_probs_dropout_prob")
	if *c.err != nil {
		return
	}
	dim := hidden / heads

	e := prefix + ".embeddings"
	word := b.Param(e+".word_embeddings.weight", vocab, hidden)
	var pos ValueID
	if !isRoberta {
		pos = b.Param(e+".position_embeddings.weight", positions, hidden)
	}
	typ := b.Param(e+".token_type_embeddings.weight", types, hidden)
	eln := b.layerNorm(e+".LayerNorm", hidden)
	if isRoberta {
		pos = b.Param(e+".position_embeddings.weight", positions, hidden)
	}
	layers := make([]bertLayer, n)
	for i := range layers {
		p := layerPath(prefix+".encoder.layer", int64(i))
		l := &layers[i]
		l.q = b.linear(p+".attention.self.query", hidden, hidden, true)
		l.k = b.linear(p+".attention.self.key", hidden, hidden, true)
		l.v = b.linear(p+".attention.self.value", hidden, hidden, true)
		l.out = b.linear(p+".attention.output.dense", hidden, hidden, true)
		l.ln1 = b.layerNorm(p+".attention.output.LayerNorm", hidden)
		l.inter = b.linear(p+".intermediate.dense", hidden, inner, true)
		l.output = b.linear(p+".output.dense", inner, hidden, true)
		l.ln2 = b.layerNorm(p+".output.LayerNorm", hidden)
	}
	headPath, transPath, lnPath := "cls.predictions.bias", "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"
	if isRoberta {
		headPath, transPath, lnPath = "lm_head.bias", "lm_head.dense", "lm_head.layer_norm"
	}
	bias := b.Param(headPath, vocab)
	trans := b.linear(transPath, hidden, hidden, true)
	tln := b.layerNorm(lnPath, hidden)
	b.Declare(Value{Name: e + ".position_ids", Kind: Buffer, DType: Int64, Shape: Consts(1, positions)})
	b.Declare(Value{Name: e + ".token_type_ids", Kind: Buffer, DType: Int64, Shape: Consts(1, positions)})

	ids := b.tokens("input_ids", Seq)
	b.Input("attention_mask", Int64, Batch, Seq)
	var h ValueID
	b.Call(prefix, func() {
		b.Call("embeddings", func() {
			var pids, tt ValueID
			if isRoberta {
				pids = b.paddedPositions()
				tt = b.Op("empty", Dims("size", Batch, Seq), Str("dtype", "int64"))
			} else {
				tt = b.Op("empty", Dims("size", Const(1), Seq), Str("dtype", "int64"))
				tt = b.Op("expand", tt, Dims("size", Batch, Seq))
				pids = b.Op("position_row", Dims("size", Const(1), Seq), Str("dtype", "int64"))
			}
			we := b.Op("embedding", word, ids)
			te := b.Op("embedding", typ, tt)
			s := b.Op("add", we, te)
			pe := b.Op("embedding", pos, pids)
			b.Hold(we, te, pe)
			s = b.Op("add", s, pe)
			s = b.normalize(eln, s)
			h = b.dropout(s, drop)
		})
		mask := b.bidirectionalMask(h)
		for i := range layers {
			l := &layers[i]
			b.Block(layerPath("encoder.layer", int64(i)), func() { h = b.bertLayer(l, h, mask, heads, dim, act, drop, attnDrop) })
		}
	})
	b.Hold(h)
	var logits ValueID
	b.Call("cls", func() {
		x := b.apply(trans, h)
		x = b.activation(act, x)
		x = b.normalize(tln, x)
		logits = b.Op("linear", x, word, bias)
	})
	if b.o.Train {
		b.outputs = append(b.outputs, b.maskedLoss(logits, ids, vocab))
	}
	b.outputs = append(b.outputs, logits)
}

// paddedPositions is create_position_ids_from_input_ids.
func (b *builder) paddedPositions() (p ValueID) {
	size := Dims("size", Batch, Seq)
	b.Call("positions", func() {
		ne := b.Op("empty", size, Str("dtype", "bool"))
		mask := b.Op("like", ne, Str("dtype", "int32"))
		b.Hold(mask)
		sum := b.Op("empty", size, Str("dtype", "int64"))
		b.Ops("scratch", 0, size, Str("dtype", "int64"))
		n := b.Op("like", sum, Str("dtype", "int32"))
		n = b.Op("like", n)
		n = b.Op("like", n)
		b.Hold(n)
		l := b.Op("like", n, Str("dtype", "int64"))
		p = b.Op("like", l)
	})
	return p
}

// bidirectionalMask looks whether the attention mask hides anything: for SDPA a
// mask of ones is dropped, for eager attention it becomes numbers.
func (b *builder) bidirectionalMask(like ValueID) (out ValueID) {
	out = None
	b.Call("mask", func() {
		m := b.Op("empty", Dims("size", Batch, Seq), Str("dtype", "bool"))
		b.Hold(m)
		if b.o.Attention == "eager" {
			w := b.Op("empty", Dims("size", Batch, Const(1), Seq, Seq), Str("dtype", "bool"))
			out = b.Op("mask_numbers", w, like)
			return
		}
		all := b.Op("empty", Ints("size"), Str("dtype", "bool"))
		b.Op("alias", all)
	})
	b.Hold(out)
	return out
}

func (b *builder) bertLayer(l *bertLayer, h, mask ValueID, heads, dim int64, act string, drop, attnDrop float64) ValueID {
	var a ValueID
	b.Call("attention", func() {
		var x ValueID
		b.Call("self", func() {
			q := b.heads(b.apply(l.q, h), Seq, heads, dim)
			k := b.heads(b.apply(l.k, h), Seq, heads, dim)
			v := b.heads(b.apply(l.v, h), Seq, heads, dim)
			b.Hold(q, k, v)
			x = b.attention(attend{q: q, k: k, v: v, mask: mask, heads: heads, kv: heads, dim: dim, n: Seq, dropout: attnDrop})
		})
		b.Call("output", func() {
			x = b.dropout(b.apply(l.out, x), drop)
			s := b.Op("add", x, h)
			a = b.normalize(l.ln1, s)
			b.Hold(x)
		})
	})
	x := b.activation(act, b.apply(l.inter, a))
	var y ValueID
	b.Call("output", func() {
		y = b.dropout(b.apply(l.output, x), drop)
		s := b.Op("add", y, a)
		b.Hold(y)
		y = b.normalize(l.ln2, s)
	})
	return y
}
