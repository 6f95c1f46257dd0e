package estimate

import (
	"vramscope/internal/modelgraph"
)

const (
	f32     = modelgraph.Float32
	boolean = modelgraph.Bool
)

// pointwise allocates the result of an elementwise operator.
func (m *machine) pointwise(dt modelgraph.DType, in ...*tensor) *tensor {
	shapes := make([][]int64, len(in))
	for i, t := range in {
		shapes[i] = t.shape
	}
	shape, ok := broadcast(shapes...)
	if !ok {
		m.fail("%s: shapes %v do not fit together", m.where, shapes)
	}
	return m.empty(dt, shape, pointwiseStrides(shape, in))
}

// promote is the type of a result of tensors of these types. A tensor without
// dimensions does not decide between types of one kind.
func promote(in ...*tensor) modelgraph.DType {
	rank := func(t modelgraph.DType) int {
		switch t {
		case modelgraph.Bool:
			return 0
		case modelgraph.UInt8, modelgraph.Int8:
			return 1
		case modelgraph.Int16:
			return 2
		case modelgraph.Int32:
			return 3
		case modelgraph.Int64:
			return 4
		case modelgraph.Float8:
			return 5
		case modelgraph.Float16, modelgraph.BFloat16:
			return 6
		case modelgraph.Float32:
			return 7
		case modelgraph.Float64:
			return 8
		}
		return 9
	}
	best, found := modelgraph.Bool, false
	for _, zeroDim := range []bool{false, true} {
		for _, t := range in {
			if (t.dim() == 0) != zeroDim {
				continue
			}
			if !found || !zeroDim && rank(t.dtype) > rank(best) ||
				zeroDim && t.dtype.IsFloat() && !best.IsFloat() {
				if found && !zeroDim && rank(t.dtype) == 6 && rank(best) == 6 && t.dtype != best {
					best = f32
				} else {
					best = t.dtype
				}
				found = true
			} else if !zeroDim && rank(t.dtype) == 6 && rank(best) == 6 && t.dtype != best {
				best = f32
			}
		}
	}
	return best
}

// unarySaved says what the backward pass of an elementwise operator of one
// tensor needs.
type unarySaved uint8

const (
	savesNothing unarySaved = iota
	savesInput
	savesResult
)

// unaryRule describes an elementwise operator of one tensor.
type unaryRule struct {
	name  string // of its autograd node, without "Backward0"
	saves unarySaved
	// temps are the extra tensors of that size that its gradient makes before
	// the result, freed in the reverse order.
	temps int
}

// unaryRules: tools/autograd/derivatives.yaml of PyTorch 2.11.
func unaryRules(op string) (unaryRule, bool) {
	switch op {
	case "neg":
		return unaryRule{"Neg", savesNothing, 0}, true
	case "silu":
		return unaryRule{"Silu", savesInput, 0}, true
	case "gelu":
		return unaryRule{"Gelu", savesInput, 0}, true
	case "tanh":
		return unaryRule{"Tanh", savesResult, 0}, true
	case "relu":
		return unaryRule{"Relu", savesResult, 0}, true
	case "sigmoid":
		return unaryRule{"Sigmoid", savesResult, 0}, true
	case "hardswish":
		return unaryRule{"Hardswish", savesInput, 0}, true
	case "hardsigmoid":
		return unaryRule{"Hardsigmoid", savesInput, 0}, true
	case "hardtanh", "relu6", "clamp":
		return unaryRule{"Hardtanh", savesInput, 0}, true
	case "leaky_relu":
		return unaryRule{"LeakyRelu", savesInput, 0}, true
	case "elu":
		return unaryRule{"Elu", savesInput, 0}, true
	case "mish":
		return unaryRule{"Mish", savesInput, 0}, true
	case "softplus":
		return unaryRule{"Softplus", savesInput, 0}, true
	case "exp":
		return unaryRule{"Exp", savesResult, 0}, true
	case "log":
		return unaryRule{"Log", savesInput, 0}, true
	case "sqrt":
		return unaryRule{"Sqrt", savesResult, 1}, true
	case "rsqrt":
		return unaryRule{"Rsqrt", savesResult, 2}, true
	case "sin":
		return unaryRule{"Sin", savesInput, 1}, true
	case "cos":
		return unaryRule{"Cos", savesInput, 2}, true
	case "erf":
		return unaryRule{"Erf", savesInput, 3}, true
	case "abs":
		return unaryRule{"Abs", savesInput, 1}, true
	case "reciprocal":
		return unaryRule{"Reciprocal", savesResult, 2}, true
	}
	return unaryRule{}, false
}

// float32Ops are the operators that autocast runs in float32.
func float32Op(op string) bool {
	switch op {
	case "pow", "rsqrt", "exp", "log", "softplus", "reciprocal", "layer_norm", "group_norm", "softmax",
		"log_softmax", "cumsum", "cumprod", "prod", "sum", "norm", "nll_loss", "cross_entropy", "mse_loss",
		"l1_loss", "smooth_l1_loss", "cosine_similarity", "cdist", "renorm", "rms_norm", "erfinv", "tan", "acos", "asin", "cosh", "sinh":
		return true
	}
	return false
}

func (m *machine) unary(op string, x *tensor) *tensor {
	r, ok := unaryRules(op)
	if !ok {
		m.fail("%s: unknown elementwise operator", op)
	}
	if m.amp && float32Op(op) {
		x = m.autocastTo(x, f32)
		defer m.unref(x)
	}
	out := m.pointwise(x.dtype, x)
	var saved []*tensor
	switch r.saves {
	case savesInput:
		saved = []*tensor{x}
	case savesResult:
		saved = []*tensor{out}
	}
	dt := x.dtype
	m.record(r.name+"Backward0", []*tensor{out}, []*tensor{x}, saved, func(f *gradFn, g []*tensor) []*tensor {
		var temps []*tensor
		for range r.temps {
			temps = append(temps, m.pointwise(dt, g[0]))
		}
		res := m.pointwise(dt, g[0])
		for i := len(temps) - 1; i >= 0; i-- {
			m.unref(temps[i])
		}
		return []*tensor{res}
	})
	return out
}

// unaryInPlace is relu_ and its like: the result takes the input's memory.
func (m *machine) unaryInPlace(op string, x *tensor) *tensor {
	r, _ := unaryRules(op)
	if r.saves == savesInput && m.wants(x) {
		// hardswish_(x) saves a clone of what it overwrites.
		c := m.pointwise(x.dtype, x)
		out := m.inPlace(x)
		m.record(r.name+"Backward0", []*tensor{out}, []*tensor{x}, []*tensor{c}, func(f *gradFn, g []*tensor) []*tensor {
			return []*tensor{m.pointwise(g[0].dtype, g[0])}
		})
		m.unref(c)
		return out
	}
	out := m.inPlace(x)
	m.record(r.name+"Backward0", []*tensor{out}, []*tensor{x}, []*tensor{out}, func(f *gradFn, g []*tensor) []*tensor {
		return []*tensor{m.pointwise(g[0].dtype, g[0])}
	})
	return out
}

// inPlace is the tensor after an operator that overwrote it.
func (m *machine) inPlace(x *tensor) *tensor {
	out := m.alias(x, x.shape, x.stride)
	out.view, out.noise = x.view, x.noise
	if x.fn != nil {
		x.fn.refs++
		out.fn, out.nr = x.fn, x.nr
	}
	return out
}

// cast is Tensor.to(dtype), outside autograd.
func (m *machine) cast(x *tensor, dt modelgraph.DType) *tensor {
	if x.dtype == dt {
		return m.ref(x)
	}
	return m.empty(dt, x.shape, preservedStrides(x))
}

// preservedStrides are empty_like's: those of a dense tensor, else those of an
// elementwise operator.
func preservedStrides(x *tensor) []int64 {
	if x.isDense() {
		return x.stride
	}
	return pointwiseStrides(x.shape, []*tensor{x})
}

// to is Tensor.to(dtype).
func (m *machine) to(x *tensor, dt modelgraph.DType) *tensor {
	if x.dtype == dt {
		return m.ref(x)
	}
	out := m.cast(x, dt)
	if dt.IsFloat() {
		was := x.dtype
		m.record("ToCopyBackward0", []*tensor{out}, []*tensor{x}, nil, func(f *gradFn, g []*tensor) []*tensor {
			return []*tensor{m.cast(g[0], was)}
		})
	}
	return out
}

// autocastTo is cached_cast: casts of parameters to the lower type are kept
// until autocast ends.
func (m *machine) autocastTo(x *tensor, dt modelgraph.DType) *tensor {
	if x == nil || !x.dtype.IsFloat() || x.dtype == dt || x.dtype == modelgraph.Float64 {
		return m.ref(x)
	}
	if x.leaf != nil && x.leaf.trainable && x.dtype == f32 && dt == m.autocast {
		if c := m.casts[x.leaf]; c != nil {
			return m.ref(c)
		}
		c := m.to(x, dt)
		m.casts[x.leaf] = m.ref(c)
		m.castOrder = append(m.castOrder, x.leaf)
		return c
	}
	return m.to(x, dt)
}

// clearCasts is what leaving autocast does.
func (m *machine) clearCasts() {
	for _, p := range m.castOrder {
		m.unref(m.casts[p])
		delete(m.casts, p)
	}
	m.castOrder = m.castOrder[:0]
}

// binary is add, sub, mul, div and so on of two tensors.
func (m *machine) binary(op string, a, b *tensor) *tensor {
	dt := promote(a, b)
	if op == "div" && !dt.IsFloat() {
		dt = f32
	}
	out := m.pointwise(dt, a, b)
	m.recordBinary(op, out, a, b)
	return out
}

func (m *machine) recordBinary(op string, out, a, b *tensor) {
	ga, gb := m.grad && a.requires(), m.grad && b.requires()
	if !ga && !gb {
		m.seq++
		return
	}
	switch op {
	case "add":
		m.record("AddBackward0", []*tensor{out}, []*tensor{a, b}, nil, func(f *gradFn, g []*tensor) []*tensor {
			r := make([]*tensor, 2)
			for i := range r {
				if f.need(i) {
					r[i] = m.ref(g[0])
				}
			}
			return r
		})
	case "sub":
		m.record("SubBackward0", []*tensor{out}, []*tensor{a, b}, nil, func(f *gradFn, g []*tensor) []*tensor {
			r := make([]*tensor, 2)
			if f.need(0) {
				r[0] = m.ref(g[0])
			}
			if f.need(1) {
				r[1] = m.pointwise(g[0].dtype, g[0])
			}
			return r
		})
	case "mul":
		saved := make([]*tensor, 2) // other_, self_
		if ga {
			saved[0] = b
		}
		if gb {
			saved[1] = a
		}
		m.record("MulBackward0", []*tensor{out}, []*tensor{a, b}, saved, func(f *gradFn, g []*tensor) []*tensor {
			r := make([]*tensor, 2)
			if f.need(0) {
				r[0] = m.pointwise(promote(g[0], b), g[0], b)
			}
			if f.need(1) {
				r[1] = m.pointwise(promote(g[0], a), g[0], a)
			}
			return r
		})
	case "div":
		saved := []*tensor{b, nil}
		if gb {
			saved[1] = a
		}
		m.record("DivBackward0", []*tensor{out}, []*tensor{a, b}, saved, func(f *gradFn, g []*tensor) []*tensor {
			r := make([]*tensor, 2)
			if f.need(0) {
				r[0] = m.pointwise(promote(g[0], b), g[0], b)
			}
			if f.need(1) {
				n := m.pointwise(promote(g[0]), g[0])
				q := m.pointwise(promote(a, b), a, b)
				q2 := m.pointwise(promote(q, b), q, b)
				m.unref(q)
				r[1] = m.pointwise(promote(n, q2), n, q2)
				m.unref(q2, n)
			}
			return r
		})
	default:
		m.fail("%s: no rule for its gradient", op)
	}
}

// scalar is an operator of a tensor and a number.
func (m *machine) scalar(op string, a *tensor) *tensor {
	dt := a.dtype
	if !dt.IsFloat() && op == "div" {
		dt = f32
	}
	out := m.pointwise(dt, a)
	name := map[string]string{"add": "AddBackward0", "sub": "SubBackward0", "rsub": "RsubBackward1", "mul": "MulBackward0", "div": "DivBackward0"}[op]
	m.record(name, []*tensor{out}, []*tensor{a}, nil, func(f *gradFn, g []*tensor) []*tensor {
		if op == "add" || op == "sub" {
			return []*tensor{m.ref(g[0])}
		}
		return []*tensor{m.pointwise(g[0].dtype, g[0])}
	})
	return out
}

// pow is Tensor.pow(number).
func (m *machine) pow(a *tensor) *tensor {
	if m.amp {
		a = m.autocastTo(a, f32)
		defer m.unref(a)
	}
	out := m.pointwise(a.dtype, a)
	m.record("PowBackward0", []*tensor{out}, []*tensor{a}, []*tensor{a}, func(f *gradFn, g []*tensor) []*tensor {
		p := m.pointwise(a.dtype, a)
		q := m.pointwise(a.dtype, p)
		r := m.pointwise(a.dtype, g[0], q)
		m.unref(q, p)
		return []*tensor{r}
	})
	return out
}

// compare is eq, ne, lt and so on.
func (m *machine) compare(in ...*tensor) *tensor { return m.pointwise(boolean, in...) }

// dropout is F.dropout while training, by its fused kernel.
func (m *machine) dropout(x *tensor) *tensor {
	mask := m.empty(boolean, x.shape, preservedStrides(x))
	out := m.empty(x.dtype, x.shape, preservedStrides(x))
	m.record("NativeDropoutBackward0", []*tensor{out}, []*tensor{x}, []*tensor{mask}, func(f *gradFn, g []*tensor) []*tensor {
		return []*tensor{m.empty(g[0].dtype, g[0].shape, preservedStrides(g[0]))}
	})
	m.unref(mask)
	return out
}

// where is torch.where(cond, a, b); a or b may be a number.
func (m *machine) whereOp(cond, a, b *tensor) *tensor {
	in := []*tensor{cond}
	dt := modelgraph.Float32
	for _, t := range []*tensor{a, b} {
		if t != nil {
			in = append(in, t)
		}
	}
	if len(in) > 1 {
		dt = promote(in[1:]...)
	}
	out := m.pointwise(dt, in...)
	m.record("WhereBackward0", []*tensor{out}, []*tensor{a, b}, []*tensor{cond}, func(f *gradFn, g []*tensor) []*tensor {
		r := make([]*tensor, 2)
		z := m.empty(g[0].dtype, nil, nil)
		for i := range r {
			if f.need(i) {
				r[i] = m.pointwise(g[0].dtype, cond, g[0])
			}
		}
		m.unref(z)
		return r
	})
	return out
}

// maskedFill is Tensor.masked_fill(mask, number).
func (m *machine) maskedFill(x, mask *tensor) *tensor {
	out := m.pointwise(x.dtype, x, mask)
	m.record("MaskedFillBackward0", []*tensor{out}, []*tensor{x}, []*tensor{mask}, func(f *gradFn, g []*tensor) []*tensor {
		return []*tensor{m.pointwise(g[0].dtype, g[0], mask)}
	})
	return out
}
