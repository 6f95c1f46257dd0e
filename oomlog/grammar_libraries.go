package oomlog

import "strings"

func cutID(id string) (framework, form string, found bool) { return strings.Cut(id, "/") }

// runtimeGrammars are inference runtimes'.
func runtimeGrammars() []grammar {
	return libraryForms([]grammar{
		{id: "onnxruntime/arena", form: "the arena could not grow; the CPU arena says the same", memory: DeviceMemory,
			needles: []string{"Failed to allocate memory for requested buffer of size"},
			pattern: `Failed to allocate memory for requested buffer of size {tried:n}`},
		{id: "onnxruntime/limit", form: "the arena's limit (gpu_mem_limit)", memory: DeviceMemory,
			needles: []string{"is smaller than requested bytes of"},
			pattern: `Available memory of {free:n} is smaller than requested bytes of {tried:n}`},
		{id: "onnxruntime/cuda", form: "a CUDA call of the provider", memory: DeviceMemory,
			needles: []string{"CUDA failure 2: out of memory"},
			pattern: `CUDA failure 2: out of memory ?; GPU={device}`},
		{id: "triton-server/pool", form: "its own pool of 64 MiB, not the card; it goes on", kind: Warning, memory: DeviceMemory,
			needles: []string{"Failed to allocate CUDA memory with byte size"},
			pattern: `Failed to allocate CUDA memory with byte size {tried:n} on GPU {device}: {where:t}, falling back to pinned system memory`},
		{id: "triton-server/pinned", form: "its pinned pool; it goes on", kind: Warning, memory: PinnedMemory,
			needles: []string{"unable to allocate pinned system memory"},
			pattern: `unable to allocate pinned system memory`},
		{id: "ctranslate2/cuda", form: "faster-whisper and others; no sizes", memory: DeviceMemory,
			needles: []string{"CUDA failed with error out of memory"},
			pattern: `CUDA failed with error out of memory`},
	})
}

// libraryGrammars are those of array libraries and other frameworks.
func libraryGrammars() []grammar {
	return libraryForms([]grammar{
		{id: "cupy/7", version: ">=7", form: "bytes with commas", memory: DeviceMemory,
			needles: []string{"Out of memory allocating"},
			pattern: `Out of memory allocating {tried:n} bytes \(allocated so far: {allocated:n} bytes(?:, limit set to: {limit:n} bytes)?\)`},
		{id: "cupy/6", version: "<7", form: "the total includes the failed request", memory: DeviceMemory,
			needles: []string{"out of memory to allocate"},
			pattern: `out of memory to allocate {tried:n} bytes \(total {total_with_request:n} bytes\)`},
		{id: "numba/driver", form: "the driver's call", memory: DeviceMemory,
			needles: []string{"results in CUDA_ERROR_OUT_OF_MEMORY"},
			pattern: `Call to {op:word} results in CUDA_ERROR_OUT_OF_MEMORY`},
		{id: "rmm/cuda", form: "RMM and RAPIDS", memory: DeviceMemory,
			needles: []string{"std::bad_alloc:"},
			pattern: `std::bad_alloc: (?:out_of_memory: )?CUDA error(?: \(failed to allocate {tried:n} bytes\))? at: .{1,200}?:[0-9]+:? cudaErrorMemoryAllocation out of memory`},
		{id: "rmm/pool", form: "RMM's pool is at its limit", memory: DeviceMemory,
			needles: []string{"Maximum pool size exceeded"},
			pattern: `Maximum pool size exceeded(?: \(failed to allocate {tried}(?: bytes)?\))?`},
		{id: "xgboost/free", form: "GB means GiB", memory: DeviceMemory,
			needles: []string{"- Requested memory:"},
			pattern: `- Free memory: {free} - Requested memory: {tried}`},
		{id: "faiss/malloc", version: "<1.6", form: "cudaMalloc", memory: DeviceMemory,
			needles: []string{"failed to cudaMalloc"},
			pattern: `failed to cudaMalloc {tried:n} bytes`},
		{id: "faiss/alloc", version: ">=1.6", form: "StandardGpuResources", memory: DeviceMemory,
			needles: []string{"alloc fail type"},
			pattern: `alloc fail type {where:word} dev {device} space {op:word} stream 0x[0-9a-f]+ size {tried:n} bytes`},
		{id: "paddle/2", version: ">=1.6", form: "six decimals; GB means GiB", memory: DeviceMemory,
			needles: []string{"memory on GPU"},
			pattern: `Cannot allocate {tried} ?memory on GPU {device}, (?:{allocated} ?memory has been allocated and )?available memory is only {free}`},
		{id: "paddle/1", version: "<1.6", form: "the first check", memory: DeviceMemory,
			needles: []string{"enforce allocating <= available failed"},
			pattern: `enforce allocating <= available failed, {tried:n} > {free:n}`},
		{id: "mxnet/pool", form: "no sizes", memory: DeviceMemory,
			needles: []string{"pooled_storage_manager.h"},
			pattern: `pooled_storage_manager\.h:[0-9]+: cudaMalloc failed: out of memory`},
		{id: "mxnet/storage", form: "no sizes", memory: DeviceMemory,
			needles: []string{"storage_manager.h", "Memory allocation failed out of memory"},
			pattern: `(?:gpu_device_storage\.h|storage_manager\.h):[0-9]+: .{0,80}?(?:cudaMalloc failed|Memory allocation failed):? ?out of memory`},
	})
}

// libraryForms fills in what such rows have in common.
func libraryForms(forms []grammar) []grammar {
	for i := range forms {
		forms[i].framework, _, _ = cutID(forms[i].id)
		if forms[i].kind == "" {
			forms[i].kind = Fatal
		}
	}
	return forms
}
