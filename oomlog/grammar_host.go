package oomlog

// hostGrammars are about main memory, /dev/shm and the limits of operating
// systems, which users take for the card's.
func hostGrammars() []grammar {
	g := func(id, form string, k Kind, m Memory, pattern string, needles ...string) grammar {
		framework, _, _ := cutID(id)
		return grammar{id: id, framework: framework, form: form, needles: needles, kind: k, memory: m, pattern: pattern}
	}
	forms := []grammar{
		g("linux/cgroup", "the kernel ended a process: its container was at its limit", Fatal, HostMemory,
			`Memory cgroup out of memory: Kill(?:ed)? process {pid} \({where:t}\)(?:,? total-vm:{total_vm}, anon-rss:{allocated}(?:, file-rss:{file_rss})?(?:, shmem-rss:{shmem_rss})?)?`, "Memory cgroup out of memory"),
		g("linux/oom", "the kernel ended a process: the whole host was out of memory", Fatal, HostMemory,
			`Out of memory: Kill(?:ed)? process {pid} \({where:t}\)(?:,? (?:score [0-9]+ or sacrifice child|total-vm:{total_vm}, anon-rss:{allocated}(?:, file-rss:{file_rss})?(?:, shmem-rss:{shmem_rss})?))?`, "Out of memory: Kill"),
		g("linux/constraint", "the kernel's summary", Fatal, HostMemory,
			`oom-kill:constraint=CONSTRAINT_{where:word},`, "oom-kill:constraint="),
		g("kubernetes/oomkilled", "a container was ended at its memory limit", Fatal, HostMemory,
			`(?:Reason: ?OOMKilled|reason: ?OOMKilled|"reason": ?"OOMKilled"|OOMKilled ?\(exit code 137\))`, "OOMKilled"),
		g("slurm/oom", "Slurm saw the kernel end processes of a step", Fatal, HostMemory,
			`slurmstepd: error: Detected {events:c} oom[-_]kill event(?:\(?s?\)?) in (?:StepId|step )=?{where:step}(?: cgroup)?`, "slurmstepd: error: Detected"),
		g("slurm/task", "Slurm's word on a task", Fatal, HostMemory,
			`srun: error: {where:t}: tasks? {rank}(?:-[0-9]+)?: Out Of Memory`, "Out Of Memory"),
		g("python/loader-bus", "a DataLoader worker met a full /dev/shm", Fatal, SharedMemory,
			`DataLoader worker \(pid\(?s?\)? ?{pid}\) is killed by signal: Bus error(?:\. It is possible that dataloader's workers are out of shared memory)?`, "is killed by signal: Bus error"),
		g("python/loader-killed", "a DataLoader worker was ended: main memory, most often", Fatal, HostMemory,
			`DataLoader worker \(pid\(?s?\)? ?{pid}\) is killed by signal: Killed`, "is killed by signal: Killed"),
		g("python/loader-exit", "DataLoader workers exited: the reason stands above", Consequence, HostMemory,
			`DataLoader worker \(pid\(s\) {where:t}\) exited unexpectedly`, "exited unexpectedly"),
		g("python/shm", "PyTorch's hint", Fatal, SharedMemory,
			`(?:Unexpected bus error encountered in worker\. This might be caused by )?insufficient shared memory \(shm\)`, "insufficient shared memory (shm)"),
		g("python/shm-write", "a full /dev/shm", Fatal, SharedMemory,
			`unable to (?:write to|open|resize) (?:file|shared memory object) <?/torch_{where:word}>?(?: in read-write mode)?(?:: No space left on device \(28\)|: Too many open files \(24\))?`, "unable to write to file </torch_", "unable to open shared memory object </torch_", "unable to resize file </torch_"),
		g("python/shm-mmap", "the number of mappings is at its limit (vm.max_map_count)", Fatal, PlatformMemory,
			`unable to mmap {tried:n} bytes from file <?{where:t}>?: Cannot allocate memory \(12\)`, "bytes from file <"),
		g("python/bus", "a bus error: /dev/shm, most often", Fatal, SharedMemory,
			`(?:Fatal Python error: Bus error|Bus error \(core dumped\))`, "Bus error (core dumped)", "Fatal Python error: Bus error"),
		g("python/numpy", "NumPy", Fatal, HostMemory,
			`Unable to allocate {tried} for an array with shape (?P<shape__t>\([0-9, ]*\)) and data type {dtype:word}`, "for an array with shape"),
		g("python/fork", "no memory for a further process", Fatal, HostMemory,
			`(?:OSError|BlockingIOError): \[Errno 12\] Cannot allocate memory`, "[Errno 12] Cannot allocate memory"),
		g("cxx/bad-alloc", "C++", Fatal, HostMemory, `what\(\): std::bad_alloc`, "what(): std::bad_alloc"),
		g("windows/paging-file", "Windows' commit limit", Fatal, PlatformMemory,
			`(?:WinError 1455|os error 1455)`, "WinError 1455", "os error 1455"),
		g("wsl/cuda", "WSL's driver", Fatal, PlatformMemory, `dxgkio_make_resident: .{0,60}?(?:-12|out of memory)|dxgk: dxgkio_\w+: Ioctl failed: -12`, "dxgkio_make_resident", "Ioctl failed: -12"),
		g("ray/host", "Ray's memory monitor ended a worker", Fatal, HostMemory,
			`(?:Task was killed due to the node running low on memory|[0-9]+ Workers \(tasks / actors\) killed due to memory pressure \(OOM\)|Memory on the node \(IP: .{1,60}?\) .{0,60}?was {used} / {capacity})`, "killed due to the node running low on memory", "killed due to memory pressure (OOM)", "Memory on the node (IP"),
	}
	for i := range forms {
		switch forms[i].id {
		case "slurm/task", "python/shm": // a list of nodes, a sentence before it
			forms[i].back = 200
		}
	}
	return forms
}

// consequenceGrammars are what peers and launchers say after a failure elsewhere.
// Alone they prove nothing about memory.
func consequenceGrammars() []grammar {
	g := func(id, form, pattern string, needles ...string) grammar {
		framework, _, _ := cutID(id)
		return grammar{id: id, framework: framework, form: form, needles: needles, kind: Consequence, memory: UnknownMemory, pattern: pattern}
	}
	return []grammar{
		g("nccl/watchdog", "a collective timed out", `Watchdog caught collective operation timeout`, "Watchdog caught collective operation timeout"),
		g("nccl/watchdog-end", "the watchdog takes the process down", `(?:Some NCCL operations have failed or timed out|taking the entire process down|ProcessGroupNCCL's watchdog got stuck)`, "Some NCCL operations have failed or timed out", "taking the entire process down", "watchdog got stuck"),
		g("gloo/peer", "a peer closed its connection", `(?:gloo/transport/tcp/pair\.cc.{0,80}?|Gloo .{0,60}?)(?:Connection (?:closed|reset) by peer|Timed out)`, "gloo/transport/tcp"),
		g("nccl/peer", "a peer closed its connection", `(?:Connection closed by (?:remote )?peer|NCCL WARN Call to recv from .{1,80}? failed : Connection reset by peer|socketProgress: Connection closed)`, "Connection closed by remote peer", "Connection closed by peer", "socketProgress: Connection closed", "NCCL WARN Call to recv from"),
		g("nccl/unhandled", "a CUDA call of NCCL's failed: its warning says which", `(?:ncclUnhandledCudaError|unhandled cuda error)`, "ncclUnhandledCudaError", "unhandled cuda error"),
		g("nccl/remote", "another rank failed", `(?:ncclRemoteError|ncclSystemError: System call)`, "ncclRemoteError"),
		g("torchrun/sigterm", "the launcher stops the other ranks", `Sending process {pid} closing signal SIG\w+`, "closing signal SIG"),
		g("torchrun/signal", "a rank was told to stop", `(?:SignalException: Process [0-9]+ got signal: 15|Received (?:Signals\.)?(?:15|SIGTERM) death signal)`, "got signal: 15", "death signal"),
		g("torchrun/failed", "the launcher's summary", `failed \(exitcode: {exit_code:c}\) local_rank: {rank} \(pid: {pid}\)`, "failed (exitcode:"),
		g("torchrun/summary", "the launcher's exception", `ChildFailedError`, "ChildFailedError"),
		g("launcher/killed", "a process ended by SIGKILL, which the kernel's log must explain", `(?:died with <Signals\.SIGKILL: 9>|exits with return code = -9|Signal 9 \(SIGKILL\) received by PID {pid}|exitcode ?: ?-9|exit code(?: is)?:? 137|returned non-zero exit status 137|exited with code 137|exited with exit code 137)`,
			"died with <Signals.SIGKILL: 9>", "exits with return code = -9", "Signal 9 (SIGKILL) received by PID", "exitcode: -9", "exit code 137", "exit code: 137", "exit status 137", "exited with code 137"),
		g("vllm/engine", "the engine's parent", `(?:Engine core initialization failed\. See root cause above|EngineCore failed to start|EngineDeadError|Engine process failed to start)`, "Engine core initialization failed", "EngineCore failed to start", "EngineDeadError", "Engine process failed to start"),
		g("ollama/runner", "Ollama's report of its runner", `llama runner process has terminated`, "llama runner process has terminated"),
		g("ggml/model", "the model could not be loaded: the reason stands above", `(?:error loading model|failed to load model|llama_init_from_model: failed to initialize|llama_model_load: error)`, "error loading model:", "failed to load model", "failed to initialize the context"),
		g("ray/actor", "an actor died", `(?:The actor died (?:unexpectedly|because)|RayActorError|ActorDiedError)`, "The actor died", "ActorDiedError", "RayActorError"),
		g("tensorrt/engine", "no engine, because it was not built", `Could not deserialize engine`, "Could not deserialize engine"),
	}
}
