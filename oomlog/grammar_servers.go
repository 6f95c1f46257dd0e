package oomlog

// serverGrammars are vLLM's, SGLang's and TensorRT-LLM's own: they manage a budget
// of their own and fail on it before the card does.
func serverGrammars() []grammar {
	g := func(id, version, form string, m Memory, pattern string, needles ...string) grammar {
		framework, _, _ := cutID(id)
		return grammar{id: id, framework: framework, version: version, form: form, needles: needles, kind: Fatal, memory: m, pattern: pattern}
	}
	return []grammar{
		g("vllm/startup-free", ">=0.8", "less is free at start than gpu_memory_utilization asks for", DeviceMemory,
			`Free memory on device (?:cuda:{device} )?\({free:g}/{capacity:g} GiB\) on startup is less than desired GPU memory utilization \({fraction:c}, {tried:g} GiB\)`, "Free memory on device"),
		g("vllm/no-blocks", "", "nothing is left for the KV cache", KVCacheMemory,
			`No available memory for the cache blocks`, "No available memory for the cache blocks"),
		g("vllm/kv-cache", ">=0.8", "one sequence of the maximum length does not fit the KV cache", KVCacheMemory,
			`To serve at least one request with the model(?:s's|'s|s)? max seq len \({max_seq_len:c}\), \(?{tried} KV cache is needed, which is larger than the available KV cache memory \({free}\)(?:\. Based on the available memory,? ?the estimated maximum model length is {fits_seq_len:c})?`, "To serve at least one request with the model"),
		g("vllm/kv-tokens", "<0.9", "the same in tokens (blocks of 16)", KVCacheMemory,
			`The model's max seq len \({max_seq_len:c}\) is larger than the maximum number of tokens that can be stored in KV cache \({fits_seq_len:c}\)`, "the maximum number of tokens that can be stored in KV cache"),
		g("vllm/sampler-warmup", ">=0.7", "the sampler's warm-up with max_num_seqs requests", DeviceMemory,
			`CUDA out of memory occurred when warming up sampler with {requests:c} dummy requests`, "CUDA out of memory occurred when warming up sampler"),
		g("vllm/pooler-warmup", ">=0.9", "the pooler's warm-up", DeviceMemory,
			`CUDA out of memory occurred when warming up pooler(?: \({where:word}\))? with {requests:c} dummy requests`, "CUDA out of memory occurred when warming up pooler"),
		g("vllm/profiling", ">=0.4", "another process freed or took memory while vLLM measured: not out of memory", UnknownMemory,
			`Error in memory profiling\. Initial free memory {initial_free}, current free memory {current_free}`, "Error in memory profiling."),
		g("vllm/profiling-used", "<0.8", "the same, in bytes", UnknownMemory,
			`Error in memory profiling\. Initial used memory {initial_used:n}, currently used memory {current_used:n}`, "Error in memory profiling."),
		g("vllm/zero-blocks", "<0.9", "no KV cache block", KVCacheMemory, `# GPU blocks: 0,`, "# GPU blocks: 0,"),
		g("sglang/static", "", "the static part is too small: raise it", KVCacheMemory,
			`Not enough memory[.;] Please try (?:to increase|increasing) --mem-fraction-static(?:\. Current value: (?:mem_fraction_static=)?{fraction:c})?(?:,? profiled value {profiled:c})?`, "try to increase --mem-fraction-static", "try increasing --mem-fraction-static"),
		g("sglang/capture", "", "graph capture: lower the static part", DeviceMemory,
			`Capture cuda graph failed: CUDA out of memory(?:\. Tried to allocate {tried}(?:\. GPU {device} has a total capacity of {capacity} of which {free} is free)?)?`, "Capture cuda graph failed: CUDA out of memory"),
		g("sglang/pool", "", "the KV pool ran full while serving", KVCacheMemory,
			`(?:Prefill|Decode) out of memory\. (?:Please|Try to) (?:try to )?lower(?:ing)? your batch size(?:\. Try to allocate {tokens:c} tokens)?`, "Prefill out of memory.", "Decode out of memory."),
		g("tensorrt-llm/one-sequence", "", "the KV cache does not hold one sequence", KVCacheMemory,
			`maxTokensInPagedKvCache must be large enough to process at least 1 sequence to completion`, "maxTokensInPagedKvCache must be large enough"),
		g("tensorrt-llm/kv-cache", "", "the KV cache manager", KVCacheMemory,
			`(?:[kK]vCacheManager|KV cache manager).{0,80}?(?:Failed to allocate|Insufficient|not enough|No (?:free|enough)).{0,100}?(?:blocks?|memory)`, "kvCacheManager", "KvCacheManager", "KV cache manager"),
		g("tensorrt/requested", "", "the builder's or the engine's allocator", DeviceMemory,
			`Requested amount of GPU memory \({tried:n} bytes\) could not be allocated`, "Requested amount of GPU memory"),
		g("tensorrt/resize", "", "the output allocator", DeviceMemory, `Requested size was {tried:n} bytes`, "Requested size was"),
		g("tensorrt/runtime", "", "a CUDA call of TensorRT's", DeviceMemory, `Cuda Runtime \(out of memory\)`, "Cuda Runtime (out of memory)"),
		g("tensorrt/code", "", "its error code", DeviceMemory, `Error Code 2: OutOfMemory(?: \(.{0,160}?\))?`, "Error Code 2: OutOfMemory"),
		{id: "tensorrt/tactic", framework: "tensorrt", form: "a tactic that is left out: no failure", kind: Warning, memory: DeviceMemory,
			needles: []string{"due to insufficient memory on requested size of"},
			pattern: `Skipping tactic (?:0x)?[0-9a-f]+ due to insufficient memory on requested size of {tried:n}`},
	}
}

// ggmlGrammars are llama.cpp's and Ollama's. The line of the backend comes first,
// then the one that says which buffer.
func ggmlGrammars() []grammar {
	g := func(id, version, form string, pattern string, needles ...string) grammar {
		return grammar{id: "ggml/" + id, framework: "ggml", version: version, form: form, needles: needles, kind: Fatal, memory: DeviceMemory, pattern: pattern}
	}
	forms := []grammar{
		g("backend-alloc", ">=2024", "the CUDA or ROCm backend asks the driver", `ggml_backend_\w+_alloc_buffer: allocating {tried:m} (?:MiB|MB) on device {device}: (?:cudaMalloc|hipMalloc) failed: out of memory`, "alloc_buffer: allocating"),
		g("weights", ">=2024", "weights or KV cache", `alloc_tensor_range: failed to allocate {where:word} buffer of size {tried:n}`, "alloc_tensor_range: failed to allocate"),
		g("compute", ">=2024", "the compute buffer", `ggml_gallocr_reserve_n(?:_impl)?: failed to allocate {where:word} buffer of size {tried:n}`, "ggml_gallocr_reserve_n"),
		g("unable", ">=2024", "which buffer, without its size", `unable to allocate {where:word} buffer`, "unable to allocate CUDA", "unable to allocate ROCm", "unable to allocate Vulkan", "unable to allocate Metal", "unable to allocate backend buffer"),
		g("compute-failed", ">=2024", "the context could not be made", `failed to allocate compute (?:pp )?buffers`, "failed to allocate compute buffers", "failed to allocate compute pp buffers"),
		g("kv-failed", ">=2024", "the KV cache could not be made", `failed to allocate (?:buffer for kv cache|kv cache)`, "failed to allocate buffer for kv cache"),
		g("pinned", ">=2024", "pinned memory: it goes on without", `failed to allocate {tried:m} (?:MiB|MB) of pinned memory: (?:invalid argument|out of memory)`, "of pinned memory:"),
		g("vulkan", ">=2024", "Vulkan; also for the largest single block, near 4 GiB", `Device memory allocation of size {tried:n} failed`, "Device memory allocation of size"),
		g("vulkan-code", ">=2024", "Vulkan's error", `ErrorOutOf(?:Device|Host)Memory`, "ErrorOutOfDeviceMemory", "ErrorOutOfHostMemory"),
		g("metal", ">=2023", "Metal", `Insufficient Memory \(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory\)`, "kIOGPUCommandBufferCallbackErrorOutOfMemory"),
		g("metal-status", ">=2023", "Metal, without the reason", `command buffer [0-9]+ failed with status 5`, "failed with status 5"),
		g("cuda-old", "2023", "the first CUDA backend", `CUDA error (?:2 )?at .{0,120}?ggml-cuda\S*?\.cu:[0-9]+: out of memory`, "ggml-cuda.cu"),
		g("cuda-error", ">=2024", "a CUDA call of the backend", `(?:CUDA|ROCm) error: out of memory current device: {device}, in function {op}`, "error: out of memory"),
		g("ollama-fit", "", "Ollama will not start it", `model requires more (?:system |gpu )?memory \({tried}\) than is available \({free}\)`, "model requires more"),
	}
	for i := range forms {
		switch forms[i].id {
		case "ggml/cuda-old":
			forms[i].back = 160
		case "ggml/pinned":
			forms[i].kind, forms[i].memory = Warning, PinnedMemory
		case "ggml/ollama-fit":
			forms[i].memory, forms[i].framework = HostMemory, "ollama"
		}
	}
	return forms
}
