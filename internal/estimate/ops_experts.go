package estimate

import (
	"slices"

	"vramscope/internal/modelgraph"
)

// selectionOperators pick and sort: routing of experts, gathers, masks.
func selectionOperators() map[string]operator {
	return map[string]operator{
		"topk": func(c *call) []*tensor {
			x := c.need(0)
			shape := slices.Clone(x.shape)
			shape[len(shape)-1] = c.int("k", 1)
			v, i := c.empty(x.dtype, shape, nil), c.empty(modelgraph.Int64, shape, nil)
			c.record("TopkBackward0", one(v), one(x), one(i), func(f *gradFn, g []*tensor) []*tensor {
				return one(c.empty(x.dtype, x.shape, nil)) // zeros, scattered into
			})
			return []*tensor{v, i}
		},
		"sort": func(c *call) []*tensor {
			x := c.need(0)
			return []*tensor{c.empty(x.dtype, x.shape, nil), c.empty(modelgraph.Int64, x.shape, nil)}
		},
		"index": func(c *call) []*tensor {
			x := c.need(0)
			for _, i := range c.in[1:] {
				if i != nil && i.dtype == boolean {
					c.fail("index: how many elements a mask selects depends on the data")
				}
			}
			return one(c.indexTensor(x, c.in[1:]))
		},
		"grouped_mm": func(c *call) []*tensor {
			return one(c.groupedMM(c.need(0), c.need(1), c.need(2)))
		},
		"window_mask": func(c *call) []*tensor {
			size := c.ints("size")
			n := size[len(size)-1]
			if n < c.int("window", 0) {
				return one(nil)
			}
			mask := c.empty(boolean, []int64{n, n}, nil)
			gt := c.empty(boolean, []int64{n, n}, nil)
			both := c.empty(boolean, []int64{n, n}, nil)
			c.unref(gt, mask)
			out := c.expand(both, size)
			c.unref(both)
			return one(out)
		},
		"repeat_kv_masked": func(c *call) []*tensor {
			if c.arg(1) == nil {
				return one(c.ref(c.need(0)))
			}
			return one(c.repeatKV(c.need(0), c.int("n", 1)))
		},
		"mask_numbers": func(c *call) []*tensor {
			x := c.need(0)
			return one(c.empty(c.need(1).dtype, x.shape, nil))
		},
		"slice_rows": func(c *call) []*tensor { // the first rows of a parameter
			return one(c.slice(c.need(0), 0, 0, c.int("rows", 0), 1))
		},
		"clamp_float16": func(c *call) []*tensor { // T5 keeps float16 from infinity
			x := c.need(0)
			if x.dtype != modelgraph.Float16 {
				return one(c.ref(x))
			}
			c.unref(c.pointwise(boolean, x))
			out := c.pointwise(x.dtype, x)
			c.record("ClampBackward1", one(out), one(x), one(x), func(f *gradFn, g []*tensor) []*tensor {
				lo, hi := c.pointwise(boolean, x), c.pointwise(boolean, x)
				both := c.pointwise(boolean, lo, hi)
				r := c.pointwise(x.dtype, g[0])
				c.unref(both, hi, lo)
				return one(r)
			})
			return one(out)
		},
		"opt_positions": func(c *call) []*tensor {
			x := c.need(0)
			sum := c.empty(f32, x.shape, nil)
			prod := c.empty(f32, x.shape, nil)
			sub := c.empty(f32, x.shape, nil)
			c.unref(prod)
			out := c.empty(modelgraph.Int64, x.shape, nil)
			c.unref(sub, sum)
			return one(out)
		},
		"gather": func(c *call) []*tensor {
			x, i := c.need(0), c.need(1)
			out := c.empty(x.dtype, i.shape, nil)
			c.record("GatherBackward0", one(out), one(x), one(i), func(f *gradFn, g []*tensor) []*tensor {
				return one(c.empty(x.dtype, x.shape, nil))
			})
			return one(out)
		},
		"cumsum": func(c *call) []*tensor {
			x := c.need(0)
			dt := x.dtype
			if !dt.IsFloat() {
				dt = modelgraph.Int64
			}
			out := c.pointwise(c.dtype("dtype", dt), x)
			c.record("CumsumBackward0", one(out), one(x), nil, func(f *gradFn, g []*tensor) []*tensor {
				return one(c.pointwise(x.dtype, x))
			})
			return one(out)
		},
		"diff": func(c *call) []*tensor {
			x := c.need(0)
			shape := slices.Clone(x.shape)
			if len(c.in) > 1 && c.in[1] != nil {
				shape[len(shape)-1] += c.in[1].size(-1)
			}
			shape[len(shape)-1] = max(shape[len(shape)-1]-1, 0)
			return one(c.empty(x.dtype, shape, nil))
		},
		"arange": func(c *call) []*tensor {
			start, end, step := c.int("start", 0), c.int("end", 0), max(c.int("step", 1), 1)
			return one(c.empty(c.dtype("dtype", modelgraph.Int64), []int64{max(ceilDiv(end-start, step), 0)}, nil))
		},
		"histc":      func(c *call) []*tensor { return one(c.empty(c.need(0).dtype, []int64{c.int("bins", 100)}, nil)) },
		"index_put_": func(c *call) []*tensor { return one(c.inPlace(c.need(0))) },
		"masked_fill_": func(c *call) []*tensor {
			x, mask := c.need(0), c.need(1)
			out := c.inPlace(x)
			c.record("MaskedFillBackward0", one(out), one(x), one(mask), func(f *gradFn, g []*tensor) []*tensor {
				return one(c.pointwise(g[0].dtype, g[0], mask))
			})
			return one(out)
		},
		"transformers.grouped_mm_fallback": func(c *call) []*tensor {
			x, w := c.need(0), c.need(1)
			t := c.transpose(w, -2, -1)
			defer c.unref(t)
			return one(c.groupedMM(x, t, c.arg(2)))
		},
		"release": func(c *call) []*tensor { return nil },
	}
}

// indexTensor is x[i, j, …] with tensors of numbers, nil for a whole dimension.
// Its gradient is accumulated into zeros by index_put, which sorts the numbers.
func (m *machine) indexTensor(x *tensor, idx []*tensor) *tensor {
	var shapes [][]int64
	first, last, count := -1, -1, 0
	for d, i := range idx {
		if i == nil {
			continue
		}
		if first < 0 {
			first = d
		}
		last = d
		count++
		shapes = append(shapes, i.shape)
	}
	if count == 0 || len(idx) > x.dim() {
		m.fail("%s: %d indices into %v", m.where, count, x.shape)
	}
	common, ok := broadcast(shapes...)
	if !ok {
		m.fail("%s: indices of shapes %v", m.where, shapes)
	}
	// Indices that stand together stay where they are, others come first.
	at := first
	if last-first+1 != count {
		at = 0
	}
	var rest []int64
	for d, n := range x.shape {
		if d >= len(idx) || idx[d] == nil {
			rest = append(rest, n)
		}
	}
	at = min(at, len(rest))
	shape := slices.Concat(rest[:at], common, rest[at:])
	out := m.empty(x.dtype, shape, nil)
	saved := slices.DeleteFunc(slices.Clone(idx), func(t *tensor) bool { return t == nil })
	n := numel(common) * 8
	m.record("IndexBackward0", one(out), one(x), saved, func(f *gradFn, g []*tensor) []*tensor {
		r := m.empty(x.dtype, x.shape, nil)
		a := m.scratch(n)
		b := m.scratch(n)
		m.unref(a)
		sorted, orig := m.scratch(n), m.scratch(n)
		ar := m.scratch(n)
		m.unref(m.scratch(1))
		m.unref(ar, orig, sorted, b)
		return one(r)
	})
	return out
}

// groupedMM is torch._grouped_mm(x, w.transpose(-2, -1), offs): each group of
// rows times its own matrix. Autocast leaves it alone.
func (m *machine) groupedMM(x, w, offsets *tensor) *tensor {
	if w.dim() != 3 || x.size(-1) != w.size(2) {
		m.fail("%s: cannot multiply %v by %v", m.where, x.shape, w.shape)
	}
	out := m.empty(x.dtype, []int64{x.size(0), w.size(1)}, nil)
	m.product(x.dtype, x.size(0), x.size(1), w.size(1))
	saved := []*tensor{nil, offsets, nil} // mat2_, offs_, self_
	if x.requires() {
		saved[0] = w
	}
	if w.requires() {
		saved[2] = x
	}
	m.record("GroupedMmBackward0", one(out), []*tensor{x, w}, saved, func(f *gradFn, g []*tensor) []*tensor {
		r := make([]*tensor, 2)
		if f.need(1) {
			m.product(g[0].dtype, x.size(0), x.size(1), w.size(1))
			r[1] = m.empty(g[0].dtype, w.shape, nil)
		}
		if f.need(0) {
			m.product(g[0].dtype, x.size(0), x.size(1), w.size(1))
			r[0] = m.empty(g[0].dtype, x.shape, nil)
		}
		return r
	})
	return out
}
