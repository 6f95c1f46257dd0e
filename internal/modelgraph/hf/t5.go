package hf

import "strings"

type t5Attention struct{ q, k, v, o linear }

type t5Layer struct {
	self, cross  t5Attention
	ln           [3]norm
	wi, wi0, wi1 linear
	wo           linear
	bias         ValueID // relative_attention_bias, of the first layer
}

type t5Model struct {
	*builder
	heads, dim int64
	drop       float64
	gated      bool
	act        string
}

// t5 is T5ForConditionalGeneration; the decoder's input is the labels, shifted.
func t5(b *builder) {
	c := b.c
	hidden, inner, dim, heads := c.int("d_model"), c.int("d_ff"), c.int("d_kv"), c.int("num_heads")
	n := c.layers("num_layers")
	nd := c.intOr(n, "num_decoder_layers")
	vocab, buckets := c.int("vocab_size"), c.intOr(32, "relative_attention_num_buckets")
	proj := c.str("relu", "feed_forward_proj")
	t := t5Model{builder: b, heads: heads, dim: dim, drop: c.float(0.1, "dropout_rate"), gated: strings.HasPrefix(proj, "gated-"), act: strings.TrimPrefix(proj, "gated-")}
	if t.gated && t.act == "gelu" {
		t.act = "gelu_new"
	}
	tied := c.bool(true, "tie_word_embeddings")
	if *c.err != nil {
		return
	}

	shared := b.Param("shared.weight", vocab, hidden)
	norm := func(path string) norm {
		r := b.rmsNorm(path, hidden)
		r.t5 = true
		return r
	}
	attention := func(path string) t5Attention {
		return t5Attention{b.linear(path+".q", hidden, heads*dim, false), b.linear(path+".k", hidden, heads*dim, false),
			b.linear(path+".v", hidden, heads*dim, false), b.linear(path+".o", heads*dim, hidden, false)}
	}
	stack := func(name string, n int64, decoder bool) ([]t5Layer, norm2) {
		layers := make([]t5Layer, n)
		for i := range layers {
			p := layerPath(name+".block", int64(i)) + ".layer"
			l := &layers[i]
			l.bias = None
			l.self = attention(p + ".0.SelfAttention")
			if i == 0 {
				l.bias = b.Param(p+".0.SelfAttention.relative_attention_bias.weight", buckets, heads)
			}
			l.ln[0] = norm(p + ".0.layer_norm")
			ff := p + ".1"
			if decoder {
				l.cross = attention(p + ".1.EncDecAttention")
				l.ln[1] = norm(p + ".1.layer_norm")
				ff = p + ".2"
			}
			if t.gated {
				l.wi0 = b.linear(ff+".DenseReluDense.wi_0", hidden, inner, false)
				l.wi1 = b.linear(ff+".DenseReluDense.wi_1", hidden, inner, false)
			} else {
				l.wi = b.linear(ff+".DenseReluDense.wi", hidden, inner, false)
			}
			l.wo = b.linear(ff+".DenseReluDense.wo", inner, hidden, false)
			l.ln[2] = norm(ff + ".layer_norm")
		}
		return layers, norm2{norm(name + ".final_layer_norm")}
	}
	enc, encNorm := stack("encoder", n, false)
	dec, decNorm := stack("decoder", nd, true)
	head := shared
	if !tied {
		head = b.Param("lm_head.weight", vocab, hidden)
	}

	encSeq := Seq
	ids := b.tokens("input_ids", encSeq)
	var e ValueID
	b.Call("encoder", func() { e = t.run(enc, encNorm.norm, shared, ids, None, encSeq, encSeq) })
	b.Hold(e)
	decIDs := b.Op("empty", Dims("size", Batch, Seq), Str("dtype", "int64"))
	b.Hold(decIDs)
	var h ValueID
	b.Call("decoder", func() { h = t.run(dec, decNorm.norm, shared, decIDs, e, Seq, encSeq) })
	if tied && c.bool(true, "scale_decoder_outputs") {
		h = b.Op("mul", h)
	}
	b.Hold(h)
	var logits ValueID
	b.Call("lm_head", func() { logits = b.Op("linear", h, head, None) })
	if b.o.Train {
		b.outputs = append(b.outputs, b.maskedLoss(logits, ids, vocab))
	}
	b.outputs = append(b.outputs, logits)
}

type norm2 struct{ norm norm }

// run is T5Stack.forward.
func (t *t5Model) run(layers []t5Layer, final norm, shared, ids, encoded ValueID, n, encSeq Dim) ValueID {
	b := t.builder
	embeds := b.Op("embedding", shared, ids)
	h := b.dropout(embeds, t.drop)
	b.Hold(embeds)
	var bias ValueID = None
	for i := range layers {
		l := &layers[i]
		first := i == 0
		b.Block(layerPath("block", int64(i)), func() {
			b.Call("layer.0", func() {
				x := b.normalize(l.ln[0], h)
				var a ValueID
				b.Call("SelfAttention", func() {
					q, k, v := b.heads(b.apply(l.self.q, x), n, t.heads, t.dim), b.heads(b.apply(l.self.k, x), n, t.heads, t.dim), b.heads(b.apply(l.self.v, x), n, t.heads, t.dim)
					b.Hold(q, k, v)
					if first {
						bias = t.relativeBias(l.bias, n)
					}
					a = t.attend(q, k, v, bias, encoded != None, n)
					a = b.apply(l.self.o, a)
				})
				b.Hold(a)
				h = b.Op("add", h, b.dropout(a, t.drop))
			})
			h = b.Op("clamp_float16", h)
			if first {
				b.HoldIn(0, bias)
			}
			if encoded != None {
				b.Call("layer.1", func() {
					x := b.normalize(l.ln[1], h)
					var a ValueID
					b.Call("EncDecAttention", func() {
						q := b.heads(b.apply(l.cross.q, x), n, t.heads, t.dim)
						k, v := b.heads(b.apply(l.cross.k, encoded), encSeq, t.heads, t.dim), b.heads(b.apply(l.cross.v, encoded), encSeq, t.heads, t.dim)
						b.Hold(q, k, v)
						a = b.attention(attend{q: q, k: k, v: v, mask: None, heads: t.heads, kv: t.heads, dim: t.dim, n: n, dropout: t.drop})
						a = b.apply(l.cross.o, a)
					})
					b.Hold(a)
					h = b.Op("add", h, b.dropout(a, t.drop))
				})
				h = b.Op("clamp_float16", h)
			}
			b.Call("layer.ff", func() {
				x := b.normalize(l.ln[2], h)
				var y ValueID
				b.Call("DenseReluDense", func() {
					if t.gated {
						g := b.activation(t.act, b.apply(l.wi0, x))
						u := b.apply(l.wi1, x)
						y = b.Op("mul", g, u)
					} else {
						y = b.activation(t.act, b.apply(l.wi, x))
					}
					y = b.dropout(y, t.drop)
					y = b.apply(l.wo, y)
				})
				b.Hold(y)
				h = b.Op("add", h, b.dropout(y, t.drop))
			})
			h = b.Op("clamp_float16", h)
		})
	}
	return b.dropout(b.normalize(final, h), t.drop)
}

// relativeBias is compute_bias: a learned number for each bucket of distances
// and head.
func (t *t5Model) relativeBias(weight ValueID, n Dim) ValueID {
	b := t.builder
	var v ValueID
	b.Call("relative_attention_bias", func() {
		rel := b.Op("empty", Dims("size", n, n), Str("dtype", "int64"))
		small := b.Op("like", rel, Str("dtype", "bool"))
		abs := b.Op("like", rel)
		large := b.Op("like", rel, Str("dtype", "int64"))
		b.Op("alias", large)
		bucket := b.Op("like", rel)
		v = b.Op("embedding", weight, bucket)
		b.Hold(rel, small, abs)
		v = b.Op("permute", v, Ints("dims", 2, 0, 1))
		v = b.Op("unsqueeze", v, Ints("dim", 0))
	})
	return v
}

// attend adds the positions' bias to the scores, which keeps SDPA from its
// fast implementations.
func (t *t5Model) attend(q, k, v, bias ValueID, causal bool, n Dim) ValueID {
	b := t.builder
	mask := bias
	if causal {
		future := b.Op("empty", Dims("size", n, n), Str("dtype", "bool"))
		mask = b.Op("where", future, bias)
	}
	return b.attention(attend{q: q, k: k, v: v, mask: mask, heads: t.heads, kv: t.heads, dim: t.dim, n: n, dropout: t.drop, t5: true})
}
