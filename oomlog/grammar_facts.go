package oomlog

// factGrammars are lines that limit or describe memory and are no failure; they
// become facts of the report. The first field is the fact's value.
func factGrammars() []grammar {
	f := func(kind FactKind, name, pattern string, needles ...string) grammar {
		return grammar{id: "fact/" + string(kind) + "/" + name, role: factRole, fact: kind, factName: name,
			kind: Warning, needles: needles, pattern: pattern}
	}
	forms := []grammar{
		// Settings that limit or shape memory.
		f(SettingFact, "memory_fraction", `(?:set_per_process_memory_fraction\(|per_process_gpu_memory_fraction\s*[:=]\s*|XLA_PYTHON_CLIENT_MEM_FRACTION=|XLA_CLIENT_MEM_FRACTION=){value:c}`, "set_per_process_memory_fraction(", "per_process_gpu_memory_fraction", "XLA_PYTHON_CLIENT_MEM_FRACTION=", "XLA_CLIENT_MEM_FRACTION="),
		f(SettingFact, "gpu_memory_utilization", `gpu[_-]memory[_-]utilization['"]?(?: ?[:=] ?|)[('"]?{value:c}`, "gpu_memory_utilization", "gpu-memory-utilization"),
		f(SettingFact, "mem_fraction_static", `mem[_-]fraction[_-]static ?[:=]? ?{value:c}`, "mem_fraction_static", "mem-fraction-static"),
		f(SettingFact, "alloc_conf", `PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF(?:['"]?\]? ?[=:] ?['"]?)(?P<value__w>[a-z][\w:,.\[\]-]*)`, "ALLOC_CONF=", "ALLOC_CONF'", "ALLOC_CONF\"", "ALLOC_CONF:"),
		f(SettingFact, "allow_growth", `(?:TF_FORCE_GPU_ALLOW_GROWTH=|allow_growth\s*[:=]\s*)(?P<value__w>\w+)`, "TF_FORCE_GPU_ALLOW_GROWTH=", "allow_growth"),
		f(SettingFact, "preallocate", `XLA_PYTHON_CLIENT_PREALLOCATE=(?P<value__w>\w+)`, "XLA_PYTHON_CLIENT_PREALLOCATE="),
		f(SettingFact, "visible_devices", `(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES ?[=:] ?['"\[]?(?P<value__w>[\w,-]+)`, "VISIBLE_DEVICES"),
		f(MIGFact, "slice", `MIG ?[0-9]g\.{value:c}gb`, "MIG 1g.", "MIG 2g.", "MIG 3g.", "MIG 4g.", "MIG 7g."),
		// Memory of a device, as a library saw it.
		f(CapacityFact, "tensorflow_device", `Created (?:TensorFlow )?device \(?.{0,120}? with {value} memory`, "Created TensorFlow device", "Created device /job:"),
		f(CapacityFact, "tensorflow_total", `[tT]otal ?[mM]emory: {value} (?:freeMemory|Free memory): {free}`, "totalMemory:", "Total memory:"),
		f(CapacityFact, "ggml_device", `ggml_cuda_init: found {value:c} (?:CUDA|ROCm) devices`, "ggml_cuda_init: found"),
		// Servers at start.
		f(StartupFact, "model_weights", `(?:Model loading took|[mM]odel weights take) {value}`, "Model loading took", "odel weights take"),
		f(StartupFact, "available_kv_cache", `Available KV cache memory: {value}`, "Available KV cache memory:"),
		f(StartupFact, "kv_cache_tokens", `GPU KV cache size: {value:c} tokens`, "GPU KV cache size:"),
		f(StartupFact, "gpu_blocks", `# (?:GPU|cuda) blocks: {value:c}`, "# GPU blocks:", "# cuda blocks:"),
		f(StartupFact, "max_concurrency", `Maximum concurrency for [0-9,]+ tokens per request: {value:c}x`, "Maximum concurrency for"),
		f(StartupFact, "graph_capture", `Graph capturing finished in [0-9.]+ secs?, took {value}`, "Graph capturing finished in"),
		f(StartupFact, "vllm_usage", `(?:PyTorch activation peak memory takes|non_torch_memory takes) {value}`, "activation peak memory takes"),
		f(StartupFact, "sglang_weights", `Load weight end\. .{0,200}?avail mem={value}`, "Load weight end."),
		f(StartupFact, "ggml_buffer", `(?:CUDA|ROCm|Vulkan|Metal)[0-9]? (?:model buffer size|KV buffer size|compute buffer size|buffer size) ?= ?{value}`, "buffer size ="),
		f(StartupFact, "ggml_offloaded", `offloaded {value:c}/[0-9]+ layers to GPU`, "layers to GPU"),
		// Trainers at start.
		f(StartupFact, "train_examples", `Num examples ?= ?{value:c}`, "Num examples ="),
		f(StartupFact, "per_device_batch", `(?:Instantaneous batch size per device|per_device_train_batch_size) ?[=:] ?{value:c}`, "Instantaneous batch size per device", "per_device_train_batch_size"),
		f(StartupFact, "total_batch", `Total train batch size .{0,80}?= ?{value:c}`, "Total train batch size"),
		f(StartupFact, "accumulation", `(?:Gradient Accumulation steps|gradient_accumulation_steps) ?[=:] ?{value:c}`, "Gradient Accumulation steps", "gradient_accumulation_steps"),
		f(StartupFact, "trainable_parameters", `(?:Number of trainable parameters ?=|trainable params:) ?{value:c}`, "Number of trainable parameters", "trainable params:"),
		f(StartupFact, "total_steps", `Total optimization steps ?= ?{value:c}`, "Total optimization steps"),
		f(StartupFact, "cuda_graphs", `(?:Capturing (?:CUDA|cuda) graphs?|Capturing CUDA graph shapes|cudagraph_capture_sizes|Capture cuda graph begin)`, "Capturing CUDA graph", "Capturing cuda graph", "cudagraph_capture_sizes", "Capture cuda graph begin"),
		f(StartupFact, "resumed", `(?:[rR]esum(?:ing|ed) (?:training )?from|Continuing training from checkpoint)`, "esuming training from", "esuming from", "esumed from", "Continuing training from checkpoint"),
		// Versions.
		f(StartupFact, "torch_version", `(?:torch|PyTorch)(?: version)? ?[:=]{1,2} ?v?(?P<value__w>[0-9]+\.[0-9]+\.[0-9]+[\w.+]*)`, "torch version", "PyTorch version", "torch==", "torch:"),
		// Growth.
		f(UsageFact, "deepspeed", `MA {value} Max_MA {max} CA {cached} Max_CA {max_cached}`, " Max_MA "),
		f(DeathFact, "segfault", `(?:Segmentation fault|core dumped|terminate called after throwing)`, "Segmentation fault", "core dumped", "terminate called after throwing"),
		f(DeathFact, "killed", `^Killed$`, "\nKilled"),
	}
	return append(forms,
		grammar{id: "mention", kind: Mention, pattern: `out of memory`, role: ownMessage,
			needles: []string{"out of memory", "Out of memory", "Out Of Memory", "OutOfMemory", "out-of-memory"}},
	)
}
