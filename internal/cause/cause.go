// Package cause names the reasons for which GPU jobs run out of memory. The
// ids are a promise to users of `explain --format json`; the package has no
// opinion on how a cause is recognised (internal/diagnose) or on what helps
// against it (internal/remedy).
package cause

// ID is the stable name of a cause.
type ID string

// The causes. Their titles and explanations are in All.
const (
	TooBig             ID = "too_big"
	Fragmentation      ID = "fragmentation"
	OtherProcess       ID = "other_process"
	OutsideFramework   ID = "outside_framework"
	Leak               ID = "leak"
	Limit              ID = "limit"
	OptimizerState     ID = "optimizer_state_spike"
	Evaluation         ID = "evaluation_spike"
	Generation         ID = "generation_spike"
	Checkpoint         ID = "checkpoint_spike"
	Logits             ID = "logits_spike"
	VariableLength     ID = "variable_length"
	KVCache            ID = "kv_cache"
	ServerStartup      ID = "server_startup"
	WorkspaceOrContext ID = "workspace_or_context"
	CollectiveBuffers  ID = "collective_buffers"
	Preallocation      ID = "preallocation"
	WrongDevice        ID = "wrong_device"
	HostRAM            ID = "host_ram"
	SharedMemory       ID = "shared_memory"
	PinnedMemory       ID = "pinned_memory"
	PlatformLimit      ID = "platform_limit"
	KernelResources    ID = "kernel_resources"
	CorruptSize        ID = "corrupt_size"
	WarningOnly        ID = "warning_only"
	DriverOrHardware   ID = "driver_or_hardware"
	NotMemory          ID = "not_memory"
	Unknown            ID = "unknown"
)

// Cause says what an id means.
type Cause struct {
	ID      ID
	Title   string // a few words, no full stop
	Explain string // what happened, in one or two sentences
}

// All lists the causes in the order of DESIGN.md, which is that of documents.
func All() []Cause { return table[:] }

// Lookup returns the cause with this id.
func Lookup(id ID) (Cause, bool) {
	for _, c := range table {
		if c.ID == id {
			return c, true
		}
	}
	return Cause{}, false
}

// Title returns the title of id, or id itself when it is no cause.
func (id ID) Title() string {
	if c, ok := Lookup(id); ok {
		return c.Title
	}
	return string(id)
}

var table = [...]Cause{
	{TooBig, "the job needs more than the card has",
		"The live tensors alone fill what the process may use. Less must be live at the peak, or the card must be larger: no allocator setting helps."},
	{Fragmentation, "reserved memory is in pieces that are too small",
		"The allocator holds enough bytes for the request, but in no single piece that is large enough."},
	{OtherProcess, "another process holds the memory",
		"Somebody else on this card holds what the job lacks. Shrinking the job treats the wrong patient."},
	{OutsideFramework, "memory of this job that its framework does not manage",
		"The CUDA context, libraries, a second framework or an extension of the same job took it: the framework can neither see nor return it."},
	{Leak, "live memory grows from step to step",
		"Something keeps tensors of past steps alive, mostly a list of losses or outputs that still carry their graphs."},
	{Limit, "a limit that somebody set was reached, not the end of the card",
		"A memory fraction, quota, slice of the card or static share stopped the job while the card still had room."},
	{OptimizerState, "the first optimizer step creates the optimizer's state",
		"Adam and its relatives make two more copies of the parameters at the first step; forward and backward had fitted before."},
	{Evaluation, "evaluation needs more than training did",
		"Evaluation keeps its outputs on the card, records gradients without need, or runs with a larger batch."},
	{Generation, "generating text needs more than the training step did",
		"The key/value cache grows with batch, beams and length while the training state stays on the card."},
	{Checkpoint, "saving or loading a checkpoint makes a second copy",
		"A state dict was loaded onto the card or gathered on one rank while the model already filled it."},
	{Logits, "the logits are larger than the model's other tensors",
		"Batch times length times vocabulary, in float32 and several copies, at the end of the forward pass and the start of the backward pass."},
	{VariableLength, "one long batch among shorter ones",
		"The peak is that of the longest or largest batch; varying sizes also leave holes in the allocator's segments."},
	{KVCache, "the key/value cache does not fit",
		"An inference server has too little left for the tokens that it was asked to serve."},
	{ServerStartup, "the server ran out of memory while starting",
		"Graph capture, warm-up with the maximum number of sequences, or memory profiling took what the static share had left."},
	{WorkspaceOrContext, "a library found no room for its workspace or context",
		"cuBLAS, cuDNN or another library allocates beside the framework and reports its own error when the card is full."},
	{CollectiveBuffers, "communication buffers did not fit",
		"NCCL, bucketed gradients or gathered parameters need memory beside the framework's own."},
	{Preallocation, "a framework took the card at its start",
		"JAX and TensorFlow reserve most of the card when they start; a second process, or a second framework, finds it taken."},
	{WrongDevice, "the memory is on another device than intended",
		"Tensors or ranks pile up on one card, mostly card 0, while others are empty."},
	{HostRAM, "the host's memory ran out, not the card's",
		"The kernel, a cgroup or a batch system ended a process for its use of host memory."},
	{SharedMemory, "/dev/shm is too small",
		"DataLoader workers hand over batches through shared memory, which containers limit to 64 MiB unless told otherwise."},
	{PinnedMemory, "page-locked host memory could not be had",
		"Pinned buffers are limited by the host's memory, by ulimit -l and by the platform; the message looks like one about the card."},
	{PlatformLimit, "a limit of the platform, not of the card",
		"WSL, the Windows commit limit, address space, the number of mappings, or the largest single allocation that a driver grants."},
	{KernelResources, "a kernel needs more on-chip memory than the chip has",
		"Shared memory or registers of one multiprocessor: the card's memory has nothing to do with it."},
	{CorruptSize, "the requested size is absurd",
		"A garbage size, often an overflow or the echo of an earlier failure on another rank. Find that one first."},
	{WarningOnly, "a warning, and the job went on",
		"The program asked, was refused and managed with less. Nothing has to change unless it is slow."},
	{DriverOrHardware, "the driver or the card is at fault",
		"A card that fell off the bus, memory errors or a driver fault; asking for less does not repair it."},
	{NotMemory, "not about memory",
		"The text has no memory failure in it."},
	{Unknown, "the text does not say enough",
		"There was a memory failure, and too few numbers to say why."},
}
