package estimate

import (
	"slices"

	"vramscope/internal/modelgraph"
)

// storage is the memory behind one or more tensors.
type storage struct {
	refs  int32
	bytes int64
	cat   Category
	mem   int32 // the machine's handle, 0 for no memory (0 bytes)
	id    int32 // the number of the request
}

// tensor is a handle, as a TensorImpl is: a view of a storage with a place in
// the autograd graph. Whoever keeps one holds a reference.
type tensor struct {
	refs   int32
	st     *storage
	shape  []int64
	stride []int64
	dtype  modelgraph.DType
	fn     *gradFn // grad_fn
	nr     int     // which of fn's outputs
	leaf   *param  // set for parameters
	view   bool
	noise  bool // random factors of a graph exported for training, absent in evaluation
}

func (t *tensor) numel() int64 { return numel(t.shape) }

func (t *tensor) dim() int { return len(t.shape) }

// size returns the extent of a dimension; negative ones count from the end.
func (t *tensor) size(d int) int64 {
	if d < 0 {
		d += len(t.shape)
	}
	return t.shape[d]
}

// requires reports requires_grad.
func (t *tensor) requires() bool {
	return t != nil && (t.fn != nil || t.leaf != nil && t.leaf.trainable)
}

func numel(shape []int64) int64 {
	n := int64(1)
	for _, s := range shape {
		n *= s
	}
	return n
}

// contiguousStrides are the strides of a new tensor.
func contiguousStrides(shape []int64) []int64 {
	st := make([]int64, len(shape))
	n := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		st[i] = n
		n *= max(shape[i], 1)
	}
	return st
}

// channelsLastStrides are the strides of a 4-D tensor in channels_last.
func channelsLastStrides(shape []int64) []int64 {
	return []int64{shape[1] * shape[2] * shape[3], 1, shape[1] * shape[3], shape[1]}
}

func (t *tensor) isContiguous() bool {
	n := int64(1)
	for i := len(t.shape) - 1; i >= 0; i-- {
		if t.shape[i] != 1 && t.stride[i] != n {
			return false
		}
		n *= t.shape[i]
	}
	return true
}

func (t *tensor) isChannelsLast() bool {
	if len(t.shape) != 4 {
		return false
	}
	n := int64(1)
	for _, d := range [4]int{1, 3, 2, 0} {
		if t.shape[d] != 1 {
			if t.stride[d] != n {
				return false
			}
			n *= t.shape[d]
		}
	}
	return true
}

// isDense reports is_non_overlapping_and_dense.
func (t *tensor) isDense() bool {
	if t.isContiguous() {
		return true
	}
	order := make([]int, len(t.shape))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if t.shape[a] < 2 || t.shape[b] < 2 {
			return int(min(t.shape[b], 2) - min(t.shape[a], 2))
		}
		return int(min(max(t.stride[a]-t.stride[b], -1), 1))
	})
	n := int64(1)
	for _, d := range order {
		if t.shape[d] < 2 {
			break
		}
		if t.stride[d] != n {
			return false
		}
		n *= t.shape[d]
	}
	return true
}

// permutedStrides are dense strides in the order of dimensions given, the
// fastest first.
func permutedStrides(shape []int64, fastestFirst []int) []int64 {
	st := make([]int64, len(shape))
	n := int64(1)
	for _, d := range fastestFirst {
		st[d] = n
		n *= max(shape[d], 1)
	}
	return st
}

// viewStrides is at::detail::computeStride: the strides of a view with another
// shape, or nil where only a copy can have it.
func viewStrides(shape, stride, to []int64) []int64 {
	if numel(shape) == 0 {
		return contiguousStrides(to)
	}
	out := make([]int64, len(to))
	v := len(to) - 1
	chunk := int64(1)
	if len(stride) > 0 {
		chunk = stride[len(stride)-1]
	}
	tn, vn := int64(1), int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		tn *= shape[d]
		if d == 0 || shape[d-1] != 1 && stride[d-1] != tn*chunk {
			for v >= 0 && (vn < tn || to[v] == 1) {
				out[v] = vn * chunk
				vn *= to[v]
				v--
			}
			if vn != tn {
				return nil
			}
			if d > 0 {
				chunk = stride[d-1]
				tn, vn = 1, 1
			}
		}
	}
	if v != -1 {
		if len(shape) == 0 {
			for i := range out {
				out[i] = 1
			}
			return out
		}
		return nil
	}
	return out
}

// broadcast is the shape of an elementwise operator's result.
func broadcast(shapes ...[]int64) ([]int64, bool) {
	n := 0
	for _, s := range shapes {
		n = max(n, len(s))
	}
	out := make([]int64, n)
	for i := range out {
		out[i] = 1
	}
	for _, s := range shapes {
		off := n - len(s)
		for i, v := range s {
			switch {
			case out[off+i] == 1:
				out[off+i] = v
			case v != 1 && v != out[off+i]:
				return nil, false
			}
		}
	}
	return out, true
}

// pointwiseStrides are the strides that TensorIterator gives a new output: the
// order of the inputs' strides, the first inputs deciding.
func pointwiseStrides(shape []int64, in []*tensor) []int64 {
	n := len(shape)
	plain, last := true, n == 4
	var dense *tensor
	for _, t := range in {
		if !slices.Equal(t.shape, shape) {
			plain, last, dense = false, false, nil
			break
		}
		plain = plain && t.isContiguous()
		last = last && t.isChannelsLast()
		if dense == nil {
			dense = t
		}
	}
	if plain {
		return contiguousStrides(shape)
	}
	if last {
		return channelsLastStrides(shape)
	}
	if dense != nil && dense.isDense() && !slices.ContainsFunc(in, func(t *tensor) bool { return !slices.Equal(t.stride, dense.stride) }) {
		return slices.Clone(dense.stride)
	}
	strides := make([][]int64, len(in)) // of each input in the output's dimensions, 0 where it is broadcast
	for k, t := range in {
		s := make([]int64, n)
		off := n - len(t.shape)
		for d := off; d < n; d++ {
			if t.shape[d-off] != 1 || shape[d] == 1 {
				s[d] = t.stride[d-off]
			}
		}
		strides[k] = s
	}
	// TensorIteratorBase::reorder_dimensions: an insertion sort over the
	// dimensions, from the last to the first.
	compare := func(a, b int) int {
		for _, s := range strides {
			sa, sb := s[a], s[b]
			if sa == 0 || sb == 0 {
				continue
			}
			if sa < sb {
				return -1
			}
			if sa > sb {
				return 1
			}
			if shape[a] > shape[b] {
				return 1
			}
		}
		return 0
	}
	perm := make([]int, n)
	for i := range perm {
		perm[i] = n - 1 - i
	}
	for i := 1; i < n; i++ {
		d1 := i
		for d0 := i - 1; d0 >= 0; d0-- {
			c := compare(perm[d0], perm[d1])
			if c > 0 {
				perm[d0], perm[d1] = perm[d1], perm[d0]
				d1 = d0
			} else if c < 0 {
				break
			}
		}
	}
	return permutedStrides(shape, perm)
}
