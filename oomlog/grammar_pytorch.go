package oomlog

// Parts of PyTorch's message (c10/cuda/CUDACachingAllocator.cpp, the throw at the
// end of malloc) that several generations share. Each tail is optional from the
// inside out, so that a message that was cut off gives what it still holds.
const (
	torchHint = `(?: ?If reserved (?:but unallocated )?memory is (?:>> allocated memory|large) try setting .{0,64}?to avoid fragmentation\.)`
	// The list of processes stands between what is free and what is allowed.
	torchHeld = `{procs}(?:{limit} allowed; )?(?:Of the allocated memory {allocated} is allocated by PyTorch(?:, with {private} allocated in private pools \(e\.g\., (?:CUDA|HIP|XPU) Graphs\))?(?:, and {unallocated} is reserved by PyTorch but unallocated)?\.?)?`
	torchWord = `(?:CUDA|HIP|MUSA|DCU)`
)

// pytorchGrammars are the caching allocator's messages, newest first. The version
// boundaries are those of the pull requests named.
func pytorchGrammars() []grammar {
	torch := func(form, version, note, pattern string, needles ...string) grammar {
		return grammar{id: "pytorch/" + form, framework: "pytorch", version: version, form: note,
			needles: needles, kind: Fatal, memory: DeviceMemory, pattern: pattern}
	}
	const tried = "out of memory. Tried to allocate"
	forms := []grammar{
		torch("2.10", ">=2.10", "the hint names docs.pytorch.org or PYTORCH_ALLOC_CONF",
			torchWord+` out of memory\. Tried to allocate {tried}\. GPU {device}? has a total capacity of {capacity} of which {free} is free\. `+
				`{procs}(?:{limit} allowed; )?Of the allocated memory {allocated} is allocated by PyTorch(?:, with {private} allocated in private pools \(e\.g\., (?:CUDA|HIP) Graphs\))?, and {unallocated} is reserved by PyTorch but unallocated\.`+
				` If reserved but unallocated memory is large try setting (?:PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation\.(?: See documentation for Memory Management \(https://(?:docs\.)?pytorch\.org[^)]{0,120}\))?|PYTORCH_(?:CUDA|HIP)_ALLOC_CONF=expandable_segments:True to avoid fragmentation\. See documentation for Memory Management \(https://docs\.pytorch\.org[^)]{0,120}\))`, tried),
		torch("2.5-allowed", ">=2.5, <2.10", "S allowed stands before what is allocated (#124673)",
			torchWord+` out of memory\. Tried to allocate {tried}\. GPU {device}? has a total capacity of {capacity} of which {free} is free\. `+
				`{procs}{limit} allowed; Of the allocated memory {allocated} is allocated by PyTorch(?:, with {private} allocated in private pools \(e\.g\., (?:CUDA|HIP) Graphs\))?, and {unallocated} is reserved by PyTorch but unallocated\.`+torchHint+`(?: See documentation for Memory Management \(https://pytorch\.org[^)]{0,120}\))`, tried),
		torch("2.4-pools", ">=2.4, <2.10", "private pools are named (#124673)",
			torchWord+` out of memory\. Tried to allocate {tried}\. GPU {device}? has a total capacity of {capacity} of which {free} is free\. `+
				`{procs}Of the allocated memory {allocated} is allocated by PyTorch, with {private} allocated in private pools \(e\.g\., (?:CUDA|HIP) Graphs\), and {unallocated} is reserved by PyTorch but unallocated\.`+torchHint+`(?: See documentation for Memory Management \(https://pytorch\.org[^)]{0,120}\))`, tried),
		torch("2.2", ">=2.2, <2.10", "capacity; the hint names expandable_segments and pytorch.org",
			torchWord+` out of memory\. Tried to allocate {tried}\. GPU {device}? has a total capacity of {capacity} of which {free} is free\. `+
				`{procs}Of the allocated memory {allocated} is allocated by PyTorch, and {unallocated} is reserved by PyTorch but unallocated\.`+torchHint+`(?: See documentation for Memory Management \(https://pytorch\.org[^)]{0,120}\))`, tried),
		torch("2.1", ">=2.1, <2.2", "the misspelled capacty; S allowed is missing even when a fraction is set (#99699)",
			torchWord+` out of memory\. Tried to allocate {tried}\. GPU {device}? has a total capacty of {capacity}(?: of which {free} is free\. ?`+torchHeld+`(?:`+torchHint+`(?: See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF)?)?)?`, tried),
		torch("2", ">=2.2", "capacity, with another hint, without one (2.14 and later with expandable segments on) or cut off",
			torchWord+` out of memory\. Tried to allocate {tried}\. GPU {device}? has a total capacity of {capacity}(?: of which {free} is free\. ?`+torchHeld+`(?:`+torchHint+`)?)?`, tried),
		torch("1.10-allowed", ">=1.10, <2.1", "S allowed and the hint max_split_size_mb",
			torchWord+` out of memory\. Tried to allocate {tried} \(GPU {device}; {capacity} total capacity; {allocated} already allocated; {free} free; {limit} allowed; {reserved} reserved in total by PyTorch\)`+torchHint+`(?: See documentation for Memory Management and PYTORCH_(?:CUDA|HIP)_ALLOC_CONF)?`, tried),
		torch("1.10", ">=1.10, <2.1", "reserved in total, with the hint max_split_size_mb",
			torchWord+` out of memory\. Tried to allocate {tried} \(GPU {device}; {capacity} total capacity; {allocated} already allocated; {free} free; {reserved} reserved in total by PyTorch\)`+torchHint+`(?: See documentation for Memory Management and PYTORCH_(?:CUDA|HIP)_ALLOC_CONF)?`, tried),
		torch("1.8-allowed", ">=1.8, <1.10", "S allowed when a memory fraction is set",
			torchWord+` out of memory\. Tried to allocate {tried} \(GPU {device}; {capacity} total capacity; {allocated} already allocated; {free} free; {limit} allowed; {reserved} reserved in total by PyTorch\)`, tried),
		torch("1.4", ">=1.4, <1.10", "reserved in total, allocated included",
			torchWord+` out of memory\. Tried to allocate {tried} \(GPU {device}; {capacity} total capacity; {allocated} already allocated; {free} free; {reserved} reserved in total by PyTorch\)`, tried),
		torch("1.0-cached", ">=1.0, <1.4", "cached: reserved minus allocated (#13751)",
			torchWord+` out of memory\. Tried to allocate {tried} \(GPU {device}; {capacity} total capacity; {allocated} already allocated; {free} free; {unallocated} cached\)`, tried),
		torch("1EB", ">=1.9", "a request of more than 2^60 bytes: a corrupt size",
			torchWord+` out of memory\. Tried to allocate more than 1EB memory`, tried),
		torch("cudaMallocAsync", ">=1.13", "the cudaMallocAsync backend's six lines",
			`Allocation on device {device} would exceed allowed memory\. \(out of memory\)(?: Currently allocated: {allocated})?(?: Requested: {tried})?(?: Device limit: {capacity})?(?: Free \(according to CUDA\): {free})?(?: PyTorch limit \(set by user-supplied memory fraction\): {limit})?`,
			"would exceed allowed memory. (out of memory)"),
		torch("nvml-assert", ">=1.13", "an assertion that is an out-of-memory failure on MIG, Jetson and where NVML refuses",
			`NVML_SUCCESS == r INTERNAL ASSERT FAILED at .{0,200}?CUDACachingAllocator\.cpp.{0,4}:[0-9]+`, "NVML_SUCCESS == r INTERNAL ASSERT FAILED"),
		torch("0-runtime", "<1.0", "cuda runtime error (2), without sizes; the file says what was allocated",
			`cuda runtime error \(2\) : out of memory at {where:t}\.(?:cu|cpp|c|h):[0-9]+`, "cuda runtime error (2) : out of memory"),
		torch("0-check", "<1.0", "THCudaCheck, the line before the exception",
			`THCudaCheck FAIL file={where:t} line=[0-9]+ error=2 : out of memory`, "THCudaCheck FAIL"),
		torch("cpu", "", "the CPU allocator",
			`DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate {tried:n} bytes`, "DefaultCPUAllocator:"),
		torch("cpu-posix", "<1.5", "posix_memalign; 12 is errno",
			`posix_memalign\(&data, gAlignment, nbytes\) == 0\. 12 vs 0`, "posix_memalign(&data, gAlignment, nbytes) == 0. 12"),
		torch("cpu-windows", "", "the CPU allocator on Windows",
			`not enough memory: you tried to allocate {tried:n} bytes`, "not enough memory: you tried to allocate"),
		torch("fsdp-clone", "", "a warning of FSDP that holds the only text about memory",
			`Failed to clone\(\) tensor with name {op} on rank {rank}`, "Failed to clone() tensor with name"),
	}
	for i := range forms {
		switch forms[i].id {
		case "pytorch/cpu", "pytorch/cpu-posix", "pytorch/cpu-windows":
			forms[i].memory = HostMemory
		case "pytorch/1EB":
			forms[i].memory = UnknownMemory
		}
	}
	return forms
}

// pytorchDeviceGrammars are the allocators of PyTorch's other devices.
func pytorchDeviceGrammars() []grammar {
	return []grammar{
		{id: "pytorch-xpu/2.4", framework: "pytorch-xpu", version: ">=2.4", form: "in tree", kind: Fatal, memory: DeviceMemory,
			needles: []string{"XPU out of memory. Tried to allocate"},
			pattern: `XPU out of memory\. Tried to allocate {tried}\. GPU {device}? has a total capacity of {capacity}(?: of which {free} is free)?\. (?:{limit} allowed; )?Of the allocated memory {allocated} is allocated by PyTorch(?:, with {private} allocated in private pools \(e\.g\., XPU Graphs\))?, and {unallocated} is reserved by PyTorch but unallocated\.(?: Please use \x60empty_cache\x60 to release all unoccupied cached memory\.)?`},
		{id: "pytorch-xpu/ipex", framework: "pytorch-xpu", version: "ipex 1.x, 2.x", form: "IPEX: DPCPP, later XPU; no free field", kind: Fatal, memory: DeviceMemory,
			needles: []string{"XPU out of memory. Tried to allocate", "DPCPP out of memory. Tried to allocate"},
			pattern: `(?:XPU|DPCPP) out of memory\. Tried to allocate {tried} \(GPU {device}; {capacity} total capacity; {allocated} already allocated; {reserved} reserved in total by PyTorch\)`},
		{id: "pytorch-xpu/4gb", framework: "pytorch-xpu", version: "ipex", form: "the largest single block", kind: Fatal, memory: PlatformMemory,
			needles: []string{"can NOT allocate memory block with size larger than"},
			pattern: `Current platform can NOT allocate memory block with size larger than {limit}!(?: Tried to allocate {tried}(?: \(GPU {device}(?:; {capacity} total capacity(?:; {allocated} already allocated(?:; {reserved} reserved in total by PyTorch)?)?)?)?)?`},
		{id: "pytorch-npu/current", framework: "pytorch-npu", version: "", form: "Ascend: with current active", kind: Fatal, memory: DeviceMemory,
			needles: []string{"NPU out of memory. Tried to allocate"},
			pattern: `NPU out of memory\. Tried to allocate {tried} \(NPU {device}; {capacity} total capacity; {allocated} already allocated; {active} current active; {free} free; (?:{limit} allowed; )?{reserved} reserved in total by PyTorch\)(?:` + torchHint + `)?`},
		{id: "pytorch-npu/workspace", framework: "pytorch-npu", version: "", form: "Ascend: the workspace allocator", kind: Fatal, memory: DeviceMemory,
			needles: []string{"NPUWorkspaceAllocator tried to allocate"},
			pattern: `NPUWorkspaceAllocator tried to allocate {tried} ?\(NPU {device}; {capacity} total capacity; {free} free\)`},
		{id: "pytorch-mps/limit", framework: "pytorch-mps", version: ">=1.13", form: "Metal; GB means GiB up to about 2.5", kind: Fatal, memory: DeviceMemory,
			needles: []string{"MPS backend out of memory (MPS allocated"},
			pattern: `MPS backend out of memory \(MPS allocated: {allocated}, other allocations: {other}, max allowed: {limit}\)\. Tried to allocate {tried} on (?:private|shared) pool`},
		{id: "pytorch-mps/unlimited", framework: "pytorch-mps", version: ">=1.13", form: "Metal, with the ratio at 0", kind: Fatal, memory: DeviceMemory,
			needles: []string{"MPS backend out of memory (MPS allocated"},
			pattern: `MPS backend out of memory \(MPS allocated: {allocated}, other allocations: {other}\)\. Tried to allocate {tried} on (?:private|shared) pool`},
		{id: "pytorch-directml/tensor", framework: "pytorch-directml", version: "", form: "DirectML", kind: Fatal, memory: DeviceMemory,
			needles: []string{"There is not enough GPU video memory available!"},
			pattern: `Could not allocate tensor with {tried:n} bytes\. There is not enough GPU video memory available!`},
	}
}

// cudaGrammars are what the driver, the runtime and NVIDIA's libraries say, and
// those messages whose cause is memory though they do not say so.
func cudaGrammars() []grammar {
	g := func(id, form string, m Memory, pattern string, needles ...string) grammar {
		return grammar{id: "cuda/" + id, framework: "cuda", form: form, needles: needles, kind: Fatal, memory: m, pattern: pattern}
	}
	masked := []Detail{{"masked", 1, "flag"}}
	forms := []grammar{
		g("hip-runtime", "the same on ROCm", DeviceMemory, `HIP error: out of memory`, "HIP error: out of memory"),
		g("pin-invalid", "pinning memory was refused: host side", PinnedMemory,
			`(?:cudaHostRegister|cudaHostAlloc|pin_memory).{0,80}?(?:CUDA error: )?(?:invalid argument|out of memory)`, "cudaHostRegister", "cudaHostAlloc"),
		g("cublas-alloc", "cuBLAS could not get its workspace", DeviceMemory,
			`CUBLAS_STATUS_ALLOC_FAILED(?: when calling \x60?{op})?`, "CUBLAS_STATUS_ALLOC_FAILED"),
		g("cublas-init", "cuBLAS could not start: most often a full card", DeviceMemory,
			`CUBLAS_STATUS_NOT_INITIALIZED(?: when calling \x60?{op})?`, "CUBLAS_STATUS_NOT_INITIALIZED"),
		g("cudnn-alloc", "cuDNN could not get memory", DeviceMemory, `CUDNN_STATUS_ALLOC_FAILED`, "CUDNN_STATUS_ALLOC_FAILED"),
		g("cudnn-init", "cuDNN could not start: most often a full card", DeviceMemory,
			`CUDNN_STATUS_NOT_INITIALIZED`, "CUDNN_STATUS_NOT_INITIALIZED"),
		g("cudnn-algorithm", "no convolution algorithm fits the free memory", DeviceMemory,
			`(?:Unable to find a valid cuDNN algorithm to run convolution|no valid convolution algorithms available in CuDNN|FIND was unable to find an engine to execute this computation)`,
			"valid cuDNN algorithm to run convolution", "no valid convolution algorithms available in CuDNN", "FIND was unable to find an engine"),
		g("cufft-alloc", "cuFFT could not get its work area", DeviceMemory, `(?:CUFFT_ALLOC_FAILED|cuFFT error: CUFFT_ALLOC_FAILED|CUFFT_INTERNAL_ERROR)`, "CUFFT_ALLOC_FAILED", "CUFFT_INTERNAL_ERROR"),
		g("cusparse-alloc", "cuSPARSE could not get memory", DeviceMemory,
			`CUSPARSE_STATUS_(?:ALLOC_FAILED|INSUFFICIENT_RESOURCES)(?: when calling \x60?{op})?`, "CUSPARSE_STATUS_ALLOC_FAILED", "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES"),
		g("cusolver-alloc", "cuSOLVER could not get memory", DeviceMemory, `CUSOLVER_STATUS_ALLOC_FAILED`, "CUSOLVER_STATUS_ALLOC_FAILED"),
		g("triton-onchip", "a Triton kernel needs more shared memory than a multiprocessor has", OnChipMemory,
			`out of resource: shared memory, Required: {tried:n}, Hardware limit: {limit:n}`, "out of resource: shared memory, Required"),
	}
	for i := range forms {
		switch forms[i].id {
		case "cuda/cublas-init", "cuda/cudnn-init", "cuda/cudnn-algorithm", "cuda/cublas-alloc", "cuda/cufft-alloc":
			forms[i].fixed = masked
		}
	}
	return forms
}

// collectiveGrammars are NCCL's. The rank that fails to allocate is the culprit;
// see consequenceGrammars for what its peers say.
func collectiveGrammars() []grammar {
	g := func(id, form, pattern string, needles ...string) grammar {
		return grammar{id: "nccl/" + id, framework: "nccl", form: form, needles: needles, kind: Fatal, memory: DeviceMemory, pattern: pattern}
	}
	return []grammar{
		g("calloc", "a buffer of a communicator", `NCCL WARN (?:Failed to CUDA (?:calloc|malloc|host alloc)(?: async)?|Cuda failure \(?Failed to CUDA calloc) {tried:n} bytes`, "NCCL WARN Failed to CUDA"),
		g("cuda-failure", "a CUDA call of NCCL's", `NCCL WARN Cuda failure (?:2 )?'out of memory'`, "NCCL WARN Cuda failure 'out of memory'", "NCCL WARN Cuda failure 2 'out of memory'"),
		g("last-error", "NCCL's error in the exception's text", `Last error: (?:Failed to CUDA calloc(?: async)? {tried:n} bytes|Cuda failure (?:2 )?'out of memory')`, "Last error: Failed to CUDA calloc", "Last error: Cuda failure 'out of memory'", "Last error: Cuda failure 2 'out of memory'"),
	}
}

// lastGrammars are the forms that say least; they read what no other does.
func lastGrammars() []grammar {
	const tried = "out of memory. Tried to allocate"
	torch := func(form, version, note, pattern string, needles ...string) grammar {
		return grammar{id: "pytorch/" + form, framework: "pytorch", version: version, form: note,
			needles: needles, kind: Fatal, memory: DeviceMemory, pattern: pattern, weak: true}
	}
	g := func(id, form string, m Memory, pattern string, needles ...string) grammar {
		return grammar{id: "cuda/" + id, framework: "cuda", form: form, needles: needles, kind: Fatal, memory: m, pattern: pattern, weak: true}
	}
	return []grammar{
		torch("partial", "", "cut off or rewritten after the size",
			`out of memory\. Tried to allocate {tried}(?: \(GPU {device}(?:; {capacity} total capacity(?:; {allocated} already allocated(?:; {free} free(?:; {limit} allowed)?)?)?)?|\. GPU {device}?(?: has a total capac(?:i?ty)(?: of {capacity})?)?)?`, tried),
		torch("partial-class", "", "the class and the size alone",
			`OutOfMemoryError: [^.]{0,40}\. Tried to allocate {tried}(?:\. GPU {device} has a total capac(?:i?ty) of {capacity}(?: of which {free} is free)?)?`, "OutOfMemoryError:"),
		torch("cudaMallocAsync-short", ">=1.13", "the first words alone, as ComfyUI prints them",
			`Allocation on device(?: {device})?(?: would exceed allowed memory\.)?`, "Allocation on device"),
		g("runtime", "a call outside the allocator: context creation, pinned memory, a library", DeviceMemory,
			`CUDA error: out of memory`, "CUDA error: out of memory"),
		g("runtime-api", "the runtime's code, as C and C++ programs print it", DeviceMemory,
			`(?:cudaErrorMemoryAllocation|hipErrorOutOfMemory|CUDA_ERROR_OUT_OF_MEMORY(?:: out of memory)?)`, "cudaErrorMemoryAllocation", "hipErrorOutOfMemory", "CUDA_ERROR_OUT_OF_MEMORY"),
		torch("bare", "", "the exception without sizes, as wrappers shorten it",
			`(?:torch\.(?:cuda\.)?OutOfMemoryError|RuntimeError): (?:CUDA|HIP|XPU|NPU|MPS backend) out of memory`, "Error: CUDA out of memory", "Error: HIP out of memory", "Error: XPU out of memory", "Error: NPU out of memory", "Error: MPS backend out of memory"),
		{id: "ggml/cuda-malloc", framework: "ggml", form: "the last words of its message, as Ollama prints them", kind: Fatal, memory: DeviceMemory, weak: true,
			needles: []string{"cudaMalloc failed: out of memory", "hipMalloc failed: out of memory"}, pattern: `(?:cuda|hip)Malloc failed: out of memory`},
		{id: "python/memoryerror", framework: "python", form: "Python", kind: Fatal, memory: HostMemory, weak: true,
			needles: []string{"MemoryError"}, pattern: `MemoryError`},
	}
}
