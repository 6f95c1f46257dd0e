package estimate

import (
	"strings"

	"vramscope/internal/modelgraph"
)

// operators is the table of what can run: ATen's names, and below them those
// that only builders use.
func operators() map[string]operator {
	ops := map[string]operator{
		"linear": func(c *call) []*tensor { return one(c.linear(c.need(0), c.need(1), c.arg(2))) },
		"addmm": func(c *call) []*tensor {
			b, x, y := c.need(0), c.need(1), c.need(2)
			if c.amp {
				cy, cx := c.autocastTo(y, c.autocast), c.autocastTo(x, c.autocast)
				cb := c.autocastTo(b, c.autocast)
				defer c.unref(cb, cx, cy)
				b, x, y = cb, cx, cy
			}
			return one(c.addmm(b, x, y))
		},
		"mm":     func(c *call) []*tensor { return one(c.matmul(c.need(0), c.need(1))) },
		"bmm":    func(c *call) []*tensor { return one(c.matmul(c.need(0), c.need(1))) },
		"matmul": func(c *call) []*tensor { return one(c.matmul(c.need(0), c.need(1))) },
		"embedding": func(c *call) []*tensor {
			return one(c.embedding(c.need(0), c.need(1)))
		},
		"layer_norm": func(c *call) []*tensor {
			return one(c.layerNorm(c.need(0), c.arg(1), c.arg(2), max(len(c.ints("normalized_shape")), 1)))
		},
		"dropout": func(c *call) []*tensor {
			if !c.training || c.n.Float("p", 0) == 0 {
				return one(c.ref(c.need(0)))
			}
			return one(c.dropout(c.need(0)))
		},
		"pow":    func(c *call) []*tensor { return one(c.pow(c.need(0))) },
		"square": func(c *call) []*tensor { return one(c.pow(c.need(0))) },
		"mean": func(c *call) []*tensor {
			return one(c.meanOp(c.need(0), c.axes("dim", c.need(0).dim()), c.n.Bool("keepdim")))
		},
		"sum": func(c *call) []*tensor {
			return one(c.sumOp(c.need(0), c.axes("dim", c.need(0).dim()), c.n.Bool("keepdim")))
		},
		"softmax": func(c *call) []*tensor { return one(c.softmax(c.need(0), c.dtype("dtype", c.need(0).dtype))) },
		"log_softmax": func(c *call) []*tensor {
			def := c.need(0).dtype
			if c.amp {
				def = f32
			}
			return one(c.logSoftmax(c.need(0), c.dtype("dtype", def)))
		},
		"cross_entropy_loss": func(c *call) []*tensor { return one(c.crossEntropy(c.need(0), c.need(1))) },
		"scaled_dot_product_attention": func(c *call) []*tensor {
			return one(c.sdpa(attention{q: c.need(0), k: c.need(1), v: c.need(2), mask: c.arg(3),
				dropout: c.training && c.n.Float("dropout_p", 0) > 0, causal: c.n.Bool("is_causal"), gqa: c.n.Bool("enable_gqa")}))
		},
		"cat": func(c *call) []*tensor { return one(c.cat(c.in, int(c.int("dim", 0)))) },
		"stack": func(c *call) []*tensor {
			var u []*tensor
			for _, t := range c.in {
				u = append(u, c.unsqueeze(t, int(c.int("dim", 0))))
			}
			out := c.cat(u, int(c.int("dim", 0)))
			c.unref(u...)
			return one(out)
		},
		"where":       func(c *call) []*tensor { return one(c.whereOp(c.need(0), c.arg(1), c.arg(2))) },
		"masked_fill": func(c *call) []*tensor { return one(c.maskedFill(c.need(0), c.need(1))) },
		"baddbmm":     func(c *call) []*tensor { return one(c.matmul(c.need(1), c.need(2))) },
		"empty": func(c *call) []*tensor {
			return one(c.empty(c.dtype("dtype", f32), c.ints("size"), nil))
		},
		"position_row": func(c *call) []*tensor { // a view of a buffer of positions
			return one(&tensor{refs: 1, st: &storage{refs: 1}, shape: c.ints("size"), stride: contiguousStrides(c.ints("size")), dtype: modelgraph.Int64, view: true})
		},
		"empty_after": func(c *call) []*tensor { // a new tensor computed from another
			return one(c.empty(c.dtype("dtype", f32), c.ints("size"), nil))
		},
		"bmm32": func(c *call) []*tensor { // in float32 whatever autocast says
			was := c.amp
			c.amp = false
			x := c.to(c.need(0), f32)
			out := c.matmulRaw(x, c.need(1))
			c.unref(x)
			c.amp = was
			return one(out)
		},
		"to_weight_type": func(c *call) []*tensor {
			if w := c.need(1).dtype; w == modelgraph.BFloat16 || w == modelgraph.Float16 {
				return one(c.to(c.need(0), w))
			}
			return one(c.ref(c.need(0)))
		},
		"scratch": func(c *call) []*tensor {
			c.unref(c.empty(c.dtype("dtype", f32), c.ints("size"), nil))
			return nil
		},
		"like": func(c *call) []*tensor { // a new tensor of a tensor's shape, outside autograd
			return one(c.pointwise(c.dtype("dtype", c.need(0).dtype), c.in...))
		},
	}
	for _, name := range []string{"add", "sub", "mul", "div"} {
		ops[name] = binaryOperator(name)
		ops[name+"_"] = binaryInPlaceOperator(name)
	}
	ops["rsub"] = func(c *call) []*tensor { return one(c.scalar("rsub", c.need(0))) }
	for _, name := range []string{"neg", "silu", "gelu", "tanh", "relu", "sigmoid", "hardswish", "hardsigmoid", "hardtanh", "relu6", "clamp",
		"leaky_relu", "elu", "mish", "softplus", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "erf", "abs", "reciprocal"} {
		ops[name] = func(c *call) []*tensor { return one(c.unary(name, c.need(0))) }
		ops[name+"_"] = func(c *call) []*tensor { return one(c.unaryInPlace(name, c.need(0))) }
	}
	for _, name := range []string{"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "isneginf", "isinf"} {
		ops[name] = func(c *call) []*tensor { return one(c.compare(c.in...)) }
	}
	for _, name := range []string{"__and__", "__or__", "__xor__", "bitwise_and", "bitwise_or", "bitwise_not", "logical_xor", "isnan", "isfinite"} {
		ops[name] = ops["eq"]
	}
	for _, name := range []string{"zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like", "floor_divide", "remainder", "minimum", "maximum", "round", "floor", "ceil", "sign"} {
		ops[name] = ops["like"]
	}
	for _, name := range []string{"zeros", "ones", "full", "scalar_tensor", "rand", "randn"} {
		ops[name] = ops["empty"]
	}
	for _, name := range []string{"amin", "amax", "min", "max", "any", "all", "prod", "argmax", "argmin"} {
		ops[name] = func(c *call) []*tensor {
			x := c.need(0)
			out := c.reduce(x, c.axes("dim", x.dim()), c.n.Bool("keepdim"))
			if len(c.n.Out) > 1 {
				return []*tensor{out, c.empty(modelgraph.Int64, out.shape, nil)}
			}
			return one(out)
		}
	}
	for name, op := range viewOperators() {
		ops[name] = op
	}
	for name, op := range visionOperators() {
		ops[name] = op
	}
	for name, op := range selectionOperators() {
		ops[name] = op
	}
	return ops
}

func one(t *tensor) []*tensor { return []*tensor{t} }

func binaryOperator(name string) operator {
	return func(c *call) []*tensor {
		if b := c.arg(1); b != nil {
			switch {
			case b.noise:
				return one(c.ref(c.need(0)))
			case c.need(0).noise:
				return one(c.ref(b))
			}
			return one(c.binary(name, c.need(0), b))
		}
		return one(c.scalar(name, c.need(0)))
	}
}

func binaryInPlaceOperator(name string) operator {
	return func(c *call) []*tensor {
		a := c.need(0)
		out := c.inPlace(a)
		if b := c.arg(1); b != nil {
			c.recordBinary(name, out, a, b)
		} else if name == "mul" || name == "div" {
			c.record("MulBackward0", one(out), one(a), nil, func(f *gradFn, g []*tensor) []*tensor {
				return one(c.pointwise(g[0].dtype, g[0]))
			})
		}
		return one(out)
	}
}

func viewOperators() map[string]operator {
	reshape := func(c *call) []*tensor {
		size := c.ints("size")
		if size == nil {
			size = c.ints("shape")
		}
		return one(c.reshape(c.need(0), size))
	}
	same := func(c *call) []*tensor { return one(c.ref(c.need(0))) }
	return map[string]operator{
		"view": reshape, "reshape": reshape, "_unsafe_view": reshape,
		"flatten": func(c *call) []*tensor {
			x := c.need(0)
			a, b := c.axis("start_dim", 0, max(x.dim(), 1)), c.axis("end_dim", -1, max(x.dim(), 1))
			shape := append([]int64{}, x.shape[:a]...)
			shape = append(shape, numel(x.shape[a:b+1]))
			return one(c.reshape(x, append(shape, x.shape[b+1:]...)))
		},
		"unflatten": func(c *call) []*tensor {
			x := c.need(0)
			d := c.axis("dim", 0, x.dim())
			shape := append([]int64{}, x.shape[:d]...)
			shape = append(shape, c.resolveShape(x.shape[d], c.ints("sizes"))...)
			return one(c.reshape(x, append(shape, x.shape[d+1:]...)))
		},
		"t": func(c *call) []*tensor { return one(c.transpose(c.need(0), 0, 1)) },
		"transpose": func(c *call) []*tensor {
			x := c.need(0)
			return one(c.transpose(x, c.axis("dim0", 0, x.dim()), c.axis("dim1", 1, x.dim())))
		},
		"permute": func(c *call) []*tensor { return one(c.permute(c.need(0), c.axes("dims", c.need(0).dim()))) },
		"contiguous": func(c *call) []*tensor {
			if strings.Contains(c.n.Str("memory_format", ""), "channels_last") && c.need(0).dim() == 4 {
				x := c.need(0)
				if x.isChannelsLast() {
					return one(c.ref(x))
				}
				return one(c.clone(x, channelsLastStrides(x.shape)))
			}
			return one(c.contiguous(c.need(0)))
		},
		"clone": func(c *call) []*tensor {
			x := c.need(0)
			if strings.Contains(c.n.Str("memory_format", ""), "contiguous") {
				return one(c.clone(x, nil))
			}
			return one(c.clone(x, preservedStrides(x)))
		},
		"alias": same, "detach": func(c *call) []*tensor { return one(c.alias(c.need(0), c.need(0).shape, c.need(0).stride)) },
		"lift_fresh_copy": same, "to_device": same,
		"to":      func(c *call) []*tensor { return one(c.to(c.need(0), c.dtype("dtype", c.need(0).dtype))) },
		"type_as": func(c *call) []*tensor { return one(c.to(c.need(0), c.need(1).dtype)) },
		"slice": func(c *call) []*tensor {
			x := c.need(0)
			d := c.axis("dim", 0, x.dim())
			return one(c.slice(x, d, c.int("start", 0), c.int("end", x.shape[d]), max(c.int("step", 1), 1)))
		},
		"narrow": func(c *call) []*tensor {
			x := c.need(0)
			d := c.axis("dim", 0, x.dim())
			s := c.int("start", 0)
			return one(c.slice(x, d, s, s+c.int("length", 1), 1))
		},
		"select":    func(c *call) []*tensor { return one(c.selectDim(c.need(0), c.axis("dim", 0, c.need(0).dim()))) },
		"unsqueeze": func(c *call) []*tensor { return one(c.unsqueeze(c.need(0), int(c.int("dim", 0)))) },
		"squeeze":   func(c *call) []*tensor { return one(c.squeeze(c.need(0), c.axes("dim", c.need(0).dim()))) },
		"expand":    func(c *call) []*tensor { return one(c.expand(c.need(0), c.ints("size"))) },
		"expand_as": func(c *call) []*tensor { return one(c.expand(c.need(0), c.need(1).shape)) },
		"split": func(c *call) []*tensor {
			x := c.need(0)
			d := c.axis("dim", 0, x.dim())
			n := max(c.int("split_size", 1), 1)
			var sizes []int64
			for left := x.shape[d]; left > 0; left -= n {
				sizes = append(sizes, min(n, left))
			}
			return c.split(x, d, sizes)
		},
		"split_with_sizes": func(c *call) []*tensor {
			x := c.need(0)
			return c.split(x, c.axis("dim", 0, x.dim()), c.ints("split_sizes"))
		},
		"chunk": func(c *call) []*tensor {
			x := c.need(0)
			d := c.axis("dim", 0, x.dim())
			n := ceilDiv(x.shape[d], max(c.int("chunks", 1), 1))
			var sizes []int64
			for left := x.shape[d]; left > 0; left -= n {
				sizes = append(sizes, min(n, left))
			}
			return c.split(x, d, sizes)
		},
		"unbind": func(c *call) []*tensor {
			x := c.need(0)
			d := c.axis("dim", 0, x.dim())
			var out []*tensor
			for range x.shape[d] {
				out = append(out, c.selectDim(x, d))
			}
			return out
		},
		"repeat_kv": func(c *call) []*tensor { // transformers' repeat_kv
			return one(c.repeatKV(c.need(0), c.int("n", 1)))
		},
	}
}

// repeatKV is transformers' repeat_kv: hidden_states[:, :, None, :, :]
// expanded and reshaped.
func (m *machine) repeatKV(x *tensor, n int64) *tensor {
	if n == 1 {
		return m.ref(x)
	}
	u := m.unsqueeze(x, 2)
	e := m.expand(u, []int64{x.size(0), x.size(1), n, x.size(2), x.size(3)})
	r := m.reshape(e, []int64{x.size(0), x.size(1) * n, x.size(2), x.size(3)})
	m.unref(u, e)
	return r
}
