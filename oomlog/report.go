package oomlog

import "vramscope/bytesize"

// Kind says what a message amounts to.
type Kind string

const (
	// Fatal is an allocation that failed and ended what the program was doing.
	Fatal Kind = "failure"
	// Caught is a failure after which the program went on.
	Caught Kind = "caught"
	// Warning is a message about memory that its author says is no failure.
	Warning Kind = "warning"
	// Consequence is what a failure elsewhere causes: collective time-outs,
	// peers that were stopped, the launcher's summary.
	Consequence Kind = "consequence"
	// Mention is a text that speaks of such a failure and is none.
	Mention Kind = "mention"
)

// Memory says which memory a message is about.
type Memory string

const (
	DeviceMemory   Memory = "device"        // the memory of an accelerator
	HostMemory     Memory = "host"          // main memory
	SharedMemory   Memory = "shared_memory" // /dev/shm
	PinnedMemory   Memory = "pinned"        // page-locked main memory
	OnChipMemory   Memory = "on_chip"       // a kernel's shared memory and registers
	KVCacheMemory  Memory = "kv_cache"      // a server's own budget for the KV cache
	PlatformMemory Memory = "platform"      // address space, commit limit, mapping count
	UnknownMemory  Memory = "unknown"
)

// Failure is one message about memory. A number that the message does not hold
// is nil; all sizes are bytes.
type Failure struct {
	// Grammar is the id of the message form, as in [Grammars].
	Grammar   string `json:"grammar"`
	Framework string `json:"framework"`
	// Version is the range of versions that print this form, such as ">=2.5, <2.10".
	Version string `json:"framework_version,omitempty"`
	Kind    Kind   `json:"kind"`
	// Why says what decided the kind when it is not the message itself, with the
	// line that shows it.
	Why    *Fact  `json:"why,omitempty"`
	Memory Memory `json:"memory"`

	// Device is the ordinal the process uses, which CUDA_VISIBLE_DEVICES
	// renumbers; Rank is the launcher's or the logger's rank.
	Device *int `json:"device"`
	Rank   *int `json:"rank"`
	// Stream names the source within the log: a rank, worker, pod or container.
	Stream string `json:"stream,omitempty"`

	Tried       *bytesize.Size `json:"tried_bytes"`
	Capacity    *bytesize.Size `json:"capacity_bytes"`
	Limit       *bytesize.Size `json:"limit_bytes"`
	Free        *bytesize.Size `json:"free_bytes"`
	Allocated   *bytesize.Size `json:"allocated_bytes"`
	Reserved    *bytesize.Size `json:"reserved_bytes"`
	Unallocated *bytesize.Size `json:"reserved_unallocated_bytes"`
	// PrivatePools is held by CUDA graphs and memory pools. PyTorch counts it in
	// Allocated from 2.4 on: do not add it.
	PrivatePools *bytesize.Size `json:"private_pools_bytes"`
	// ThisProcess is what the driver counts for the process itself.
	ThisProcess *bytesize.Size `json:"this_process_bytes"`
	// Processes are the other processes the message names. In a container the
	// process itself may be among them: see [Failure.Self].
	Processes []Process `json:"processes,omitempty"`

	// Where is the allocator, pool, buffer, call or program that the message names.
	Where string  `json:"where,omitempty"`
	Op    string  `json:"op,omitempty"`
	Shape []int64 `json:"shape,omitempty"`
	DType string  `json:"dtype,omitempty"`
	// Details are the further numbers of this form.
	Details []Detail `json:"details,omitempty"`

	// Line counts from 1; Offset is where that line starts (for UTF-16 input:
	// in the text as UTF-8). Text is the message as printed, at most 2 KiB.
	Line   int    `json:"line"`
	Offset int64  `json:"offset"`
	Text   string `json:"text"`
	// Exception is the class in front of the message.
	Exception string     `json:"exception,omitempty"`
	Traceback *Traceback `json:"traceback,omitempty"`
	// Facts are what the lines around the message say, nearest last.
	Facts []Fact `json:"facts,omitempty"`
	// Repeats counts further copies of this message (a logger and the exception,
	// or the rungs of a retry ladder); they are not listed.
	Repeats int `json:"repeats,omitempty"`
}

// Process is a process with memory on the device.
type Process struct {
	PID  int           `json:"pid"`
	Used bytesize.Size `json:"used_bytes"`
	Name string        `json:"name,omitempty"`
}

// Detail is a number that only some message forms hold. Unit is "bytes" or what
// is counted ("tokens", "blocks", "count", "fraction").
type Detail struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Detail returns the named number.
func (f *Failure) Detail(name string) (float64, bool) {
	for _, d := range f.Details {
		if d.Name == name {
			return d.Value, true
		}
	}
	return 0, false
}

// Fact is a line of the log that matters for the explanation.
type Fact struct {
	// Kind is one of the Fact constants.
	Kind FactKind `json:"kind"`
	// Name narrows the kind: the phase, the setting, the counter.
	Name  string   `json:"name,omitempty"`
	Value *float64 `json:"value,omitempty"`
	Unit  string   `json:"unit,omitempty"`
	Line  int      `json:"line"`
	Text  string   `json:"text"`
}

// FactKind groups facts.
type FactKind string

const (
	PhaseFact    FactKind = "phase"    // Name is one of the Phase constants
	StepFact     FactKind = "step"     // Name "step", "epoch" or "progress"; Value is the count
	UsageFact    FactKind = "usage"    // memory use that the job printed; Value is bytes
	SettingFact  FactKind = "setting"  // a setting that limits or shapes memory
	StartupFact  FactKind = "startup"  // what a server or trainer says when it starts
	MIGFact      FactKind = "mig"      // a MIG slice
	CaughtFact   FactKind = "caught"   // the program handled the failure or went on
	QuotedFact   FactKind = "quoted"   // the message is part of a text
	DeathFact    FactKind = "death"    // a process or job ended
	CapacityFact FactKind = "capacity" // total or free memory of a device, as some library saw it
)

// Phase names, from frames of the traceback or from lines before the message.
const (
	PhaseOptimizer  = "optimizer_step"
	PhaseBackward   = "backward"
	PhaseForward    = "forward"
	PhaseLoss       = "loss"
	PhaseEvaluate   = "evaluate"
	PhaseGenerate   = "generate"
	PhaseSave       = "checkpoint_save"
	PhaseLoad       = "checkpoint_load"
	PhaseModel      = "model_to_device"
	PhaseCapture    = "graph_capture"
	PhaseWarmUp     = "warm_up"
	PhasePin        = "pin_memory"
	PhaseContext    = "context_creation"
	PhaseCollective = "collective"
	PhaseData       = "data_loading"
	PhaseCompile    = "compile"
)

// Traceback is the Python traceback that ends in a message, outermost frame first.
type Traceback struct {
	Line   int     `json:"line"`
	Frames []Frame `json:"frames"`
	// Chained is set when the exception was raised while handling another.
	Chained bool `json:"chained,omitempty"`
}

// Frame is one frame of a traceback. Source is the line of code, where printed.
type Frame struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Function string `json:"function"`
	Source   string `json:"source,omitempty"`
}

// Report is what a log says about memory.
type Report struct {
	// Failures are in the order of the log; see [Report.First].
	Failures []Failure `json:"failures"`
	// Mentions counts texts that speak of memory running out and are no message
	// of a framework; MentionFacts holds the first few.
	Mentions     int    `json:"mentions,omitempty"`
	MentionFacts []Fact `json:"mention_facts,omitempty"`
	// Facts are lines of the whole log: settings, start-up lines, memory use.
	Facts []Fact `json:"facts,omitempty"`
	// Usage is memory use over the log, at most a few hundred samples.
	Usage []Sample `json:"usage,omitempty"`

	Bytes int64 `json:"bytes"`
	Lines int   `json:"lines"`
	// Encoding is "utf-8", "utf-16le" or "utf-16be".
	Encoding string `json:"encoding"`
	// Dropped counts candidate messages that were not read because there were
	// more than [Options.MaxFailures].
	Dropped int `json:"dropped,omitempty"`
	// Streams are the ranks, workers and containers seen near messages.
	Streams []string `json:"streams,omitempty"`
}

// First returns the first failure that ended something, or nil. When every
// failure was caught, or there is none, it returns nil.
func (r *Report) First() *Failure {
	for i := range r.Failures {
		if r.Failures[i].Kind == Fatal {
			return &r.Failures[i]
		}
	}
	return nil
}

// OfKind returns the messages of one kind, in the order of the log.
func (r *Report) OfKind(k Kind) []*Failure {
	var out []*Failure
	for i := range r.Failures {
		if r.Failures[i].Kind == k {
			out = append(out, &r.Failures[i])
		}
	}
	return out
}

// Sample is memory use that a job printed along the way.
type Sample struct {
	Line int `json:"line"`
	// Stream is the rank or worker, Step the counter in the same line, -1 when
	// there is none.
	Stream string        `json:"stream,omitempty"`
	Step   int           `json:"step"`
	Name   string        `json:"name"`
	Used   bytesize.Size `json:"used_bytes"`
}
