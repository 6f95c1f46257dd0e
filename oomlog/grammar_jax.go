package oomlog

// jaxGrammars are JAX's and XLA's, on GPU and TPU.
func jaxGrammars() []grammar {
	g := func(id, version, form string, k Kind, pattern string, needles ...string) grammar {
		return grammar{id: "jax/" + id, framework: "jax", version: version, form: form,
			needles: needles, kind: k, memory: DeviceMemory, pattern: pattern}
	}
	add := func(id, form, pattern string, needles ...string) grammar {
		d := g(id, "", form, Fatal, pattern, needles...)
		d.role = addsTo
		return d
	}
	const exhausted = `(?:RESOURCE_EXHAUSTED|Resource exhausted)`
	return []grammar{
		g("allocator", ">=0.6", "prints the size with its unit, the allocator and the device", Fatal,
			exhausted+`: Out of memory while trying to allocate {tried} with allocator {where:word} on device {device}\.(?: \[executable_name='{op:quoted}'\])?(?: \[tf-allocator-allocation-error='[^']{0,200}'\])?`,
			"of memory while trying to allocate"),
		g("bytes", "<0.6", "prints whole bytes; the buffer assignment follows", Fatal,
			exhausted+`: Out of memory while trying to allocate {tried:n} bytes\.?`, "of memory while trying to allocate"),
		g("size", ">=0.5", "prints the size with its unit", Fatal,
			exhausted+`: Out of memory while trying to allocate {tried}\.?`, "of memory while trying to allocate"),
		g("request", ">=0.4", "outside the arena, or the arena is full", Fatal,
			exhausted+`: Failed to allocate request for [0-9.]+[KMGT]?i?B \({tried}\) on device ordinal {device}`, "Failed to allocate request for"),
		g("hbm-compile", "TPU", "the program's plan does not fit, at compile time", Fatal,
			`Ran out of memory in memory space hbm\. Used {needed} of {capacity} hbm\. Exceeded hbm capacity by {exceeds}`, "Ran out of memory in memory space hbm"),
		g("hbm-vmem", "TPU", "on-chip memory", Fatal,
			`Ran out of memory in memory space (?:vmem|smem)\. (?:Used {needed} of {limit} (?:vmem|smem))?`, "Ran out of memory in memory space vmem", "Ran out of memory in memory space smem"),
		g("hbm-reserve", "TPU", "at run time", Fatal,
			`Attempting to reserve {tried}(?: at the bottom of memory)?\.(?: That was not possible\.)? There are {free} free`, "Attempting to reserve"),
		g("allocate-on", "TPU", "at run time", Fatal,
			`Attempting to allocate {tried}\. That was not possible\. There are {free} free`, "Attempting to allocate"),
		g("autotune", "", "an algorithm that autotuning leaves out: no failure", Warning,
			`(?:Slow kernel|(?:Some )?autotun\w+|Autotuning) .{0,120}?(?:out of memory|OOM|RESOURCE_EXHAUSTED)`, "utotuning"),
		g("rematerialization", "", "XLA could not bring the program under its limit: no failure yet", Warning,
			`Can't reduce memory use below {goal}(?: \([0-9]+ bytes\))? by rematerialization; only reduced to {reached}`, "Can't reduce memory use below"),
		add("parameters", "buffer assignment: arguments", `parameter allocation: {parameter_allocation}`, "parameter allocation:"),
		add("constants", "buffer assignment: constants", `constant allocation: {constant_allocation}`, "constant allocation:"),
		add("outputs", "buffer assignment: results", `maybe_live_out allocation: {output_allocation}`, "maybe_live_out allocation:"),
		add("temporaries", "buffer assignment: temporaries", `preallocated temp allocation: {temp_allocation}`, "preallocated temp allocation:"),
		add("temp-fragmentation", "buffer assignment: waste", `preallocated temp fragmentation: {temp_fragmentation}`, "preallocated temp fragmentation:"),
		add("total", "buffer assignment: total of this program, not of the card", `total allocation: {total_allocation}`, "total allocation:"),
		add("total-fragmentation", "buffer assignment: waste in total", `total fragmentation: {total_fragmentation}`, "total fragmentation:"),
		add("peak-buffer", "buffer assignment: the largest buffer", `Buffer 1: Size: {largest_buffer}(?: Operator: op_name="{op:quoted}")?`, "Peak buffers:", "Buffer 1:"),
	}
}
