package estimate

// cardRules is what depends on the card and its libraries.
type cardRules struct {
	multiprocessors int64
	threadsPerMP    int64
	blasWorkspace   int64 // of a cuBLAS handle: one for the program's thread, one for the backward pass
	ltWorkspace     int64 // of cuBLASLt, likewise
	cudnnAttention  bool  // scaled_dot_product_attention prefers cuDNN in 16 bits
	flash           bool
}

// hopper: measured on an H200 with PyTorch 2.11, CUDA 13.0.
func hopper() cardRules {
	return cardRules{multiprocessors: 132, threadsPerMP: 2048, blasWorkspace: 32 << 20, ltWorkspace: 1 << 20, cudnnAttention: true, flash: true}
}
