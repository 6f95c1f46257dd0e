package estimate

import (
	"math/bits"
	"slices"
)

// reduceScratch is the memory that a reduction kernel needs beside its output
// when it splits the input over thread blocks: a buffer for partial results and
// the semaphores (ATen/native/cuda/Reduce.cuh, setReduceConfig and
// ReduceConfig::global_memory_size). t is the input, reduced the dimensions
// that go; acc is the size of the accumulator.
func (m *machine) reduceScratch(t *tensor, reduced []bool, acc, out int64) (buffer, semaphores int64) {
	type axis struct {
		n, stride int64
		reduced   bool
	}
	var axes []axis
	outputs := int64(1)
	for d, n := range t.shape {
		if !reduced[d] {
			outputs *= n
		}
		if n != 1 {
			axes = append(axes, axis{n, t.stride[d], reduced[d]})
		}
	}
	inputs := t.numel() / max(outputs, 1)
	// Dimensions are ordered with the reduced ones first, each by stride, and
	// neighbours that follow each other in memory are merged.
	slices.SortStableFunc(axes, func(a, b axis) int {
		if a.reduced != b.reduced {
			if a.reduced {
				return -1
			}
			return 1
		}
		return int(min(max(a.stride-b.stride, -1), 1))
	})
	merged := axes[:0:0]
	for _, a := range axes {
		if k := len(merged) - 1; k >= 0 && merged[k].reduced == a.reduced && merged[k].stride*merged[k].n == a.stride {
			merged[k].n *= a.n
			continue
		}
		merged = append(merged, a)
	}
	axes = merged
	reducedDims := 0
	for _, a := range axes {
		if a.reduced {
			reducedDims++
		}
	}
	dim0, dim1, onFastest := inputs, outputs, true
	fastest := int64(1)
	if len(axes) > 0 {
		onFastest = reducedDims == len(axes) || reducedDims > 0 && axes[0].stride < axes[reducedDims].stride
		if onFastest {
			fastest = axes[0].stride
		} else {
			dim0, dim1, fastest = outputs, inputs, axes[reducedDims].stride
		}
	}
	outVec, element := int64(1), t.dtype.Size()
	if fastest == 1 {
		vector := int64(4)
		if onFastest && dim0 > 128 && len(axes) == 1 {
			dim0 /= vector
		} else if !onFastest {
			// get_output_vec_size: all outer strides and the extent divide.
			outVec = 4
			for outVec > 1 && axes[reducedDims].n%outVec != 0 {
				outVec /= 2
			}
			for i, a := range axes {
				for outVec > 1 && i != reducedDims && a.stride%outVec != 0 {
					outVec /= 2
				}
			}
			dim0 /= outVec
		}
	}
	maxThreads := 512 / outVec
	if element == 16 {
		maxThreads /= 2
	}
	p0, p1 := lastPow2(dim0), lastPow2(dim1)
	width := min(p0, 32)
	height := min(p1, maxThreads/width)
	width = min(p0, maxThreads/height)
	threads := width * height
	step, perThread := int64(1), func(step int64) int64 { return ceilDiv(inputs, step) }
	outStep := int64(1)
	blockX := len(axes) == 0 || onFastest
	if blockX {
		step *= width
	} else {
		outStep *= width
	}
	split := perThread(step) >= height*16 || perThread(step) >= 256
	if split {
		step *= height
	} else {
		outStep *= height
	}
	if !split || perThread(step) < 256 {
		return 0, 0
	}
	grid := ceilDiv(outputs/outVec, outStep)
	target := m.card.multiprocessors * (m.card.threadsPerMP / threads)
	if grid > target {
		return 0, 0
	}
	ctas := max(min(ceilDiv(target, grid), ceilDiv(perThread(step), 16)), ceilDiv(perThread(step), 256))
	if ctas <= 1 {
		return 0, 0
	}
	buffer = acc * outputs * ctas
	if !blockX {
		buffer *= width * outVec
	}
	return buffer, 4 * grid
}

func lastPow2(n int64) int64 {
	if n < 1 {
		return 1
	}
	return 1 << (bits.Len64(uint64(n)) - 1)
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// reduce allocates the result of a reduction over dims and runs its scratch.
func (m *machine) reduce(t *tensor, dims []int, keep bool) *tensor {
	reduced := make([]bool, len(t.shape))
	for _, d := range dims {
		reduced[d] = true
	}
	var shape []int64
	for d, n := range t.shape {
		switch {
		case !reduced[d]:
			shape = append(shape, n)
		case keep:
			shape = append(shape, 1)
		}
	}
	out := m.empty(t.dtype, shape, nil)
	buffer, sem := m.reduceScratch(t, reduced, max(t.dtype.Size(), 4), out.numel())
	if buffer > 0 {
		a := m.scratch(buffer)
		b := m.scratch(sem)
		m.unref(b, a)
	}
	return out
}

// sumTo is at::sum_to: the sum of a gradient over what was broadcast.
func (m *machine) sumTo(g *tensor, shape []int64) *tensor {
	lead := len(g.shape) - len(shape)
	var dims []int
	for d, n := range g.shape {
		if d < lead || shape[d-lead] == 1 && n != 1 {
			dims = append(dims, d)
		}
	}
	if len(dims) == 0 {
		return m.alias(g, shape, viewOrContiguous(g, shape))
	}
	s := m.reduce(g, dims, true)
	if lead > 0 {
		v := m.alias(s, shape, contiguousStrides(shape))
		m.unref(s)
		return v
	}
	return s
}

func viewOrContiguous(t *tensor, shape []int64) []int64 {
	if s := viewStrides(t.shape, t.stride, shape); s != nil {
		return s
	}
	return contiguousStrides(shape)
}
