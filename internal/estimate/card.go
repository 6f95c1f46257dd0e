package estimate

import "strconv"

// cardRules is what depends on the card and its libraries.
type cardRules struct {
	multiprocessors int64
	threadsPerMP    int64
	blasWorkspace   int64 // of a cuBLAS handle: one for the program's thread, one for the backward pass
	ltWorkspace     int64 // of cuBLASLt, likewise
	cudnnAttention  bool  // scaled_dot_product_attention prefers cuDNN in 16 bits
	flash           bool  // FlashAttention 2 runs
}

// Measured is the compute capability whose rules were measured: an H200 with
// PyTorch 2.11 and CUDA 13.0.
const Measured = "9.0"

// rulesFor returns the rules of a compute capability such as "8.6". Those of
// other cards than Hopper's come from PyTorch's sources: CUDAContext.cpp
// (workspaces of cuBLAS), sdp_utils.cpp (which attention runs).
func rulesFor(compute string) cardRules {
	c, err := strconv.ParseFloat(compute, 64)
	if compute == "" || compute == Measured {
		c, err = 9, nil
	}
	r := cardRules{multiprocessors: 108, threadsPerMP: 1536, blasWorkspace: 8519680, ltWorkspace: 1 << 20}
	if err != nil {
		return r // another vendor's
	}
	if c >= 9 {
		r = cardRules{multiprocessors: 132, threadsPerMP: 2048, blasWorkspace: 32 << 20, ltWorkspace: 1 << 20, cudnnAttention: true}
	}
	if c == 8 || c == 7 {
		r.threadsPerMP = 2048
	}
	r.flash = c >= 8
	return r
}
