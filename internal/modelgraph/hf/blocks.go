package hf

import (
	"fmt"

	"vramscope/internal/modelgraph"
)

// builder is a modelgraph.Builder with the model's configuration.
type builder struct {
	*modelgraph.Builder
	c           *config
	o           Options
	scaleLogits bool
	outputs     []ValueID // the loss while training, then what the model's output holds
}

// linear is an nn.Linear, or transformers' Conv1D where transposed.
type linear struct {
	name string // the last part of its path
	w, b ValueID
	conv bool
}

func (b *builder) linear(path string, in, out int64, bias bool) linear {
	l := linear{name: lastPart(path), w: b.Param(path+".weight", out, in), b: None}
	if bias {
		l.b = b.Param(path+".bias", out)
	}
	return l
}

func (b *builder) conv1D(path string, in, out int64) linear {
	return linear{name: lastPart(path), w: b.Param(path+".weight", in, out), b: b.Param(path+".bias", out), conv: true}
}

func lastPart(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '.' {
			return path[i+1:]
		}
	}
	return path
}

// apply runs a linear layer.
func (b *builder) apply(l linear, x ValueID) (y ValueID) {
	b.Call(l.name, func() { y = b.Op("linear", x, l.w, l.b) })
	return y
}

// applyConv1D runs a Conv1D on [batch, seq, in].
func (b *builder) applyConv1D(l linear, x ValueID, lead []Dim, in, out int64) (y ValueID) {
	b.Call(l.name, func() {
		v := b.Op("view", x, Dims("size", Const(-1), Const(in)))
		y = b.Op("addmm", l.b, v, l.w)
		y = b.Op("view", y, Dims("size", append(append([]Dim{}, lead...), Const(out))...))
	})
	return y
}

// norm is a layer norm or RMS norm.
type norm struct {
	name string
	w, b ValueID
	rms  bool
	unit bool // gemma's: (1 + weight), multiplied in float32
	t5   bool // t5's: the square is taken in float32, the product is not
}

func (b *builder) layerNorm(path string, n int64) norm {
	return norm{name: lastPart(path), w: b.Param(path+".weight", n), b: b.Param(path+".bias", n)}
}

func (b *builder) rmsNorm(path string, n int64) norm {
	return norm{name: lastPart(path), w: b.Param(path+".weight", n), b: None, rms: true}
}

func (b *builder) normalize(n norm, x ValueID) (y ValueID) {
	b.Call(n.name, func() {
		switch {
		case n.unit:
			f := b.Op("to", x, Str("dtype", "float32"))
			sq := b.Op("pow", f)
			v := b.Op("mean", sq, Ints("dim", -1), Flag("keepdim"))
			v = b.Op("add", v)
			r := b.Op("rsqrt", v)
			out := b.Op("mul", f, r)
			wf := b.Op("to", n.w, Str("dtype", "float32"))
			w1 := b.Op("add", wf)
			out = b.Op("mul", out, w1)
			y = b.Op("type_as", out, x)
		case n.rms:
			f := b.Op("to", x, Str("dtype", "float32"))
			sq := b.Op("pow", f)
			v := b.Op("mean", sq, Ints("dim", -1), Flag("keepdim"))
			b.Hold(v)
			e := b.Op("add", v)
			r := b.Op("rsqrt", e)
			from := f
			if n.t5 {
				from = x // only the square is taken in float32
			}
			h := b.Op("mul", from, r)
			if n.t5 {
				// The product is cast only where the weight is of 16 bits.
				h = b.Op("to_weight_type", h, n.w)
			} else {
				h = b.Op("type_as", h, x)
			}
			y = b.Op("mul", n.w, h)
		default:
			y = b.Op("layer_norm", x, n.w, n.b, Ints("normalized_shape", 1))
		}
	})
	return y
}

// dropout is nn.Dropout.
func (b *builder) dropout(x ValueID, p float64) ValueID {
	if p == 0 || !b.o.Train {
		return x
	}
	return b.Op("dropout", x, Float("p", p))
}

// activation is one of transformers' ACT2FN.
func (b *builder) activation(name string, x ValueID) (y ValueID) {
	b.Call("act", func() {
		switch name {
		case "gelu_new", "gelu_fast":
			half := b.Op("mul", x)
			p := b.Op("pow", x)
			q := b.Op("mul", p)
			s := b.Op("add", x, q)
			t := b.Op("mul", s)
			th := b.Op("tanh", t)
			u := b.Op("add", th)
			y = b.Op("mul", half, u)
		case "gelu", "gelu_python", "gelu_pytorch_tanh", "gelu_10":
			y = b.Op("gelu", x)
		case "quick_gelu":
			s := b.Op("mul", x)
			g := b.Op("sigmoid", s)
			y = b.Op("mul", x, g)
		case "silu", "swish":
			y = b.Op("silu", x)
		case "relu":
			y = b.Op("relu", x)
		case "relu2":
			r := b.Op("relu", x)
			y = b.Op("pow", r)
		case "tanh":
			y = b.Op("tanh", x)
		default:
			b.Fail("activation %q is not known: known are gelu, gelu_new, gelu_pytorch_tanh, quick_gelu, silu, relu, relu2, tanh", name)
		}
	})
	return y
}

// hiddenStates is an input of token numbers.
func (b *builder) tokens(name string, n Dim) ValueID { return b.Input(name, Int64, Batch, n) }

// positionIDs are torch.arange(seq) + 0, as a row.
func (b *builder) positionIDs(n Dim) ValueID {
	a := b.Op("empty", Dims("size", n), Str("dtype", "int64"))
	p := b.Op("like", a)
	p = b.Op("unsqueeze", p, Ints("dim", 0))
	b.Hold(p)
	return p
}

// packedCheck is find_packed_sequence_indices of masking_utils.py, which looks
// whether positions start anew inside a row. For SDPA nothing of it is kept.
func (b *builder) packedCheck() {
	bs := []Dim{Batch, Seq}
	b.Call("mask", func() {
		first := b.Op("empty", Dims("size", Batch, Const(1)), Str("dtype", "int64"))
		joined := b.Op("empty", Dims("size", Batch, Seq.Add(Const(1))), Str("dtype", "int64"))
		diff := b.Op("empty_after", joined, Dims("size", bs...), Str("dtype", "int64"))
		ne := b.Op("like", diff, Str("dtype", "bool"))
		sum := b.Op("empty_after", ne, Dims("size", bs...), Str("dtype", "int64"))
		cast := b.Op("like", ne, Str("dtype", "int64"))
		b.Op("alias", cast)
		b.Op("alias", ne)
		eq := b.Op("empty", Dims("size", Batch), Str("dtype", "bool"))
		all := b.Op("empty_after", eq, Ints("size"), Str("dtype", "bool"))
		b.Op("alias", all)
		b.Hold(first, diff, sum)
	})
}

// rotary is what a rotary embedding hands to the layers.
type rotary struct{ cos, sin ValueID }

// rotaryEmbedding is LlamaRotaryEmbedding.forward.
func (b *builder) rotaryEmbedding(x, invFreq ValueID, half int64, posRows Dim) (r rotary) {
	b.Call("rotary_emb", func() {
		pos := b.Op("empty", Dims("size", posRows, Const(1), Seq))
		freq := b.Op("expand", invFreq, Dims("size", posRows, Const(half)))
		freq = b.Op("unsqueeze", freq, Ints("dim", 2))
		f := b.Op("bmm32", freq, pos)
		f = b.Op("transpose", f, Ints("dim0", 1), Ints("dim1", 2))
		emb := b.Op("cat", f, f, Ints("dim", -1))
		b.Hold(pos, f, emb)
		c := b.Op("cos", emb)
		c = b.Op("mul", c)
		s := b.Op("sin", emb)
		s = b.Op("mul", s)
		r.cos = b.Op("type_as", c, x)
		r.sin = b.Op("type_as", s, x)
	})
	return r
}

// rotate is apply_rotary_pos_emb for one of q and k.
func (b *builder) rotate(x ValueID, r rotary, dim int64) ValueID {
	a := b.Op("mul", x, r.cos)
	x1 := b.Op("slice", x, Ints("dim", -1), Ints("end", dim/2))
	x2 := b.Op("slice", x, Ints("dim", -1), Ints("start", dim/2), Ints("end", dim))
	n := b.Op("neg", x2)
	h := b.Op("cat", n, x1, Ints("dim", -1))
	c := b.Op("mul", h, r.sin)
	return b.Op("add", a, c)
}

// heads views [batch, n, heads*dim] as [batch, heads, n, dim].
func (b *builder) heads(x ValueID, n Dim, heads, dim int64) ValueID {
	v := b.Op("view", x, Dims("size", Batch, n, Const(heads), Const(dim)))
	return b.Op("transpose", v, Ints("dim0", 1), Ints("dim1", 2))
}

// attend describes the middle of an attention module.
type attend struct {
	q, k, v   ValueID
	mask      ValueID // None where there is none
	heads, kv int64
	dim       int64
	n         Dim // queries
	causal    bool
	dropout   float64
	softcap   bool
	t5        bool // eager attention of T5: nothing is scaled
	float32   bool // eager softmax in float32, cast back
}

// attention runs the attention interface and returns [batch, n, heads*dim].
func (b *builder) attention(a attend) ValueID {
	var out ValueID
	switch b.o.Attention {
	case "eager":
		k, v := a.k, a.v
		if a.kv != a.heads {
			k = b.Op("repeat_kv", k, Ints("n", a.heads/a.kv))
			v = b.Op("repeat_kv", v, Ints("n", a.heads/a.kv))
			b.Hold(k, v)
		}
		kt := b.Op("transpose", k, Ints("dim0", 2), Ints("dim1", 3))
		s := b.Op("matmul", a.q, kt)
		s = b.Op("mul", s)
		if a.softcap {
			s = b.Op("div", s)
			s = b.Op("tanh", s)
			s = b.Op("mul", s)
		}
		if a.mask != None {
			s = b.Op("add", s, a.mask)
		}
		var p ValueID
		if a.float32 {
			p = b.Op("softmax", s, Str("dtype", "float32"), Ints("dim", -1))
			p = b.Op("type_as", p, a.q)
		} else {
			p = b.Op("softmax", s, Ints("dim", -1))
		}
		p = b.dropout(p, a.dropout)
		out = b.Op("matmul", p, v)
		b.Hold(p)
		out = b.Op("transpose", out, Ints("dim0", 1), Ints("dim1", 2))
		out = b.Op("contiguous", out)
	default:
		k, v := a.k, a.v
		grouped := a.kv != a.heads
		if grouped && a.mask != None {
			// With a mask, transformers repeats the heads itself.
			k = b.Op("repeat_kv_masked", k, a.mask, Ints("n", a.heads/a.kv))
			v = b.Op("repeat_kv_masked", v, a.mask, Ints("n", a.heads/a.kv))
			b.Hold(k, v)
		}
		args := []any{a.q, k, v, a.mask}
		if a.dropout > 0 && b.o.Train {
			args = append(args, Float("dropout_p", a.dropout))
		}
		if a.causal {
			args = append(args, Flag("is_causal"))
		}
		if grouped {
			args = append(args, Flag("enable_gqa"))
		}
		out = b.Op("scaled_dot_product_attention", args...)
		out = b.Op("transpose", out, Ints("dim0", 1), Ints("dim1", 2))
		out = b.Op("contiguous", out)
	}
	return b.Op("reshape", out, Dims("size", Batch, a.n, Const(a.heads*a.dim)))
}

// causalLoss is ForCausalLMLoss: float32 logits against the labels shifted.
func (b *builder) causalLoss(logits, labels ValueID, vocab int64) (loss ValueID) {
	b.Call("loss", func() {
		f := b.Op("to", logits, Str("dtype", "float32"))
		pad := b.Op("empty", Dims("size", Batch, Seq.Add(Const(1))), Str("dtype", "int64"))
		b.Hold(f, pad)
		shift := b.Op("empty", Dims("size", Batch, Seq), Str("dtype", "int64"))
		flat := b.Op("view", f, Ints("size", -1, vocab))
		target := b.Op("view", shift, Ints("size", -1))
		loss = b.Op("cross_entropy_loss", flat, target)
		_ = labels
	})
	return loss
}

// maskedLoss is the loss of masked language models, whose logits stay in their
// type (autocast makes float32 of them).
func (b *builder) maskedLoss(logits, labels ValueID, vocab int64) (loss ValueID) {
	b.Call("loss", func() {
		flat := b.Op("view", logits, Ints("size", -1, vocab))
		target := b.Op("view", labels, Ints("size", -1))
		loss = b.Op("cross_entropy_loss", flat, target)
	})
	return loss
}

func layerPath(prefix string, i int64) string { return fmt.Sprintf("%s.%d", prefix, i) }
