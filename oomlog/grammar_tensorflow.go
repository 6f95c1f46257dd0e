package oomlog

// tensorflowGrammars are TensorFlow's: the BFC allocator
// (core/common_runtime/bfc_allocator.cc), the kernels' exception and
// StreamExecutor's warnings. Sizes there are powers of two whatever the unit, and
// have no space before it.
func tensorflowGrammars() []grammar {
	g := func(id, version, form string, k Kind, pattern string, needles ...string) grammar {
		return grammar{id: "tensorflow/" + id, framework: "tensorflow", version: version, form: form,
			needles: needles, kind: k, memory: DeviceMemory, pattern: pattern}
	}
	add := func(id, form, pattern string, needles ...string) grammar {
		d := g(id, "", form, Fatal, pattern, needles...)
		d.role = addsTo
		return d
	}
	forms := []grammar{
		g("oom-tensor", ">=1.0", "ResourceExhaustedError of a kernel", Fatal,
			`OOM when allocating tensor (?:with shape ?(?P<shape__t>\[[0-9,]*\])|of shape ?(?P<shape2__t>\[[0-9,]*\]))(?: and type {dtype:t} on /job:\w+?/replica:[0-9]+/task:[0-9]+/device:(?:GPU|CPU|XLA_GPU):{device} by allocator {where:word}(?: \[Op:{op:word}\])?| and type {dtype2:word})?`,
			"OOM when allocating tensor"),
		g("bfc-warning", ">=1.0", "an allocation that its caller can do without: no failure", Warning,
			`Allocator \({where:word}\) ran out of memory trying to allocate {tried}(?: \(rounded to {rounded:n}\))?(?: with freed_by_count=[0-9]+)?\. The caller indicates that this is not a failure`,
			"ran out of memory trying to allocate"),
		g("bfc", ">=1.0", "the BFC allocator before its dump; an exception follows", Fatal,
			`Allocator \({where:word}\) ran out of memory trying to allocate {tried}(?: \(rounded to {rounded:n}\))?(?: ?requested by op {op})?`,
			"ran out of memory trying to allocate"),
		g("bfc-waiting", "<1.3", "the same in older words", Fatal,
			`Ran out of memory trying to allocate {tried}\. See logs for memory state`, "Ran out of memory trying to allocate"),
		add("bfc-chunks", "BFC dump: chunks of one size", `[0-9]+ Chunks of size [0-9]+ totalling {chunks_total}`, "Chunks of size"),
		add("bfc-sum", "BFC dump: sum of the chunks in use", `Sum Total of in-use chunks: {in_use}`, "Sum Total of in-use chunks:"),
		add("bfc-stats", "BFC dump: its statistics", `Limit: {limit:n} InUse: {allocated:n} MaxInUse: {max_in_use:n} NumAllocs: {num_allocs:c} MaxAllocSize: {max_alloc:n}(?: Reserved: {reserved_by_bfc:n} PeakReserved: {peak_reserved:n} LargestFreeBlock: {largest_free_block:n})?`, "MaxInUse:"),
		add("bfc-free-chunk", "BFC dump: a free chunk", `Free ?(?: at)? ?0x[0-9a-f]+ of size {sum_free_chunks:n}(?: next [0-9]+)?`, "Free at 0x", "Free 0x"),
		add("bfc-bin", "BFC dump: a bin; its number is a bound, no use", `Bin \([0-9]+\): Total Chunks: {sum_chunks:c}, Chunks in use: {sum_chunks_in_use:c}\.`, "Total Chunks:"),
		g("driver-alloc", ">=1.0", "StreamExecutor asks the driver, again and again with nine tenths", Warning,
			`failed to alloc(?:ate)? {tried} \([0-9]+ bytes\) from device: CUDA_ERROR_OUT_OF_MEMORY(?:: out of memory)?`,
			"from device: CUDA_ERROR_OUT_OF_MEMORY"),
		g("host-alloc", ">=1.0", "pinned host memory", Warning,
			`failed to alloc(?:ate)? {tried:n} bytes on host: CUDA_ERROR_OUT_OF_MEMORY(?:: out of memory)?`, "bytes on host: CUDA_ERROR"),
		g("pinned", ">=1.0", "the line after it", Warning, `could not allocate pinned host memory of size: {tried:n}`, "could not allocate pinned host memory of size"),
		g("cudnn-handle", ">=1.0", "cuDNN could not be created: most often a full card", Fatal,
			`(?:Could|could) not create cudnn handle: CUDNN_STATUS_\w+`, "not create cudnn handle:"),
		g("cublas-handle", ">=1.0", "cuBLAS could not be created: most often a full card", Fatal,
			`failed to create cublas handle: (?:CUBLAS_STATUS_\w+|the library was not initialized|the resource allocation failed)`, "failed to create cublas handle:"),
		g("conv-algorithm", ">=1.13", "the exception after it", Fatal,
			`Failed to get convolution algorithm\. This is probably because cuDNN failed to initialize`, "Failed to get convolution algorithm."),
		g("xla-conv", ">=2.0", "XLA found no convolution algorithm that fits", Fatal,
			`Failed to determine best cudnn convolution algorithm`, "Failed to determine best cudnn convolution algorithm"),
		g("cpu-allocation", ">=1.10", "a large allocation in main memory: no failure", Warning,
			`Allocation of {tried:n} exceeds [0-9]+% of (?:free )?system memory`, "of free system memory", "of system memory."),
	}
	for i := range forms {
		switch forms[i].id {
		case "tensorflow/host-alloc", "tensorflow/pinned":
			forms[i].memory = PinnedMemory
		case "tensorflow/cpu-allocation":
			forms[i].memory = HostMemory
		case "tensorflow/cudnn-handle", "tensorflow/cublas-handle", "tensorflow/conv-algorithm", "tensorflow/xla-conv":
			forms[i].fixed = []Detail{{"masked", 1, "flag"}}
		}
	}
	return forms
}
