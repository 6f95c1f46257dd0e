// Package remedy is the catalogue of measures against running out of GPU
// memory: what each saves and by which formula, when it is useless, what it
// costs and risks, and the exact change for each framework. It is data
// (catalog/*.yaml) with the sources beside it, plus the effects that were
// measured on a card. Which remedy suits a failure is decided elsewhere
// (internal/diagnose, internal/plan).
package remedy

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/goccy/go-yaml"

	"vramscope/internal/cause"
)

// Remedy is one measure.
type Remedy struct {
	ID          string            `yaml:"id"`      // stable, snake_case
	Group       string            `yaml:"-"`       // title of its group
	Title       string            `yaml:"title"`   // a few words
	Summary     string            `yaml:"summary"` // what is done
	Saves       Saves             `yaml:"saves"`
	UselessWhen []string          `yaml:"useless_when"` // when it does not help
	Cost        Cost              `yaml:"cost"`
	Risk        Risk              `yaml:"risk"`
	Causes      []cause.ID        `yaml:"causes"`   // what it is an answer to
	Measured    []string          `yaml:"measured"` // variants in effects.jsonl and settings.jsonl
	Changes     map[string]Change `yaml:"changes"`  // by framework id
	Sources     []string          `yaml:"sources"`
	CUDAOnly    bool              `yaml:"cuda_only"` // not on Apple, Intel and Ascend devices
}

// Saves is the effect on memory.
type Saves struct {
	Text    string     `yaml:"text"`
	Formula FormulaID  `yaml:"formula"`
	ActsOn  []Category `yaml:"acts_on"`
}

// Cost is the effect on speed.
type Cost struct {
	// RelativeStepTime is a typical factor on the time of a step, 1 being
	// unchanged; nil where no single number is honest.
	RelativeStepTime *float64 `yaml:"relative_step_time"`
	Basis            string   `yaml:"basis"` // measured, quoted, estimated or rule
	Note             string   `yaml:"note"`
}

// Risk is the effect on what is computed.
type Risk struct {
	Level string `yaml:"level"` // none, rounding, changes_training or quality
	Note  string `yaml:"note"`
}

// Change is what to write for one framework.
type Change struct {
	Text  string `yaml:"text"`  // code, a setting or a command line
	Needs string `yaml:"needs"` // the version that this spelling needs; "" for all in use
}

// Category is the part of the memory that a remedy acts on.
type Category string

// The categories: those of the design's vocabulary, and the holders of memory
// that are no tensors.
const (
	Parameters     Category = "parameters"
	Gradients      Category = "gradients"
	OptimizerState Category = "optimizer_state"
	Activations    Category = "activations"
	Input          Category = "input"
	Logits         Category = "logits"
	KVCache        Category = "kv_cache"
	Temporary      Category = "temporary" // intermediates, as of an optimizer step
	Workspace      Category = "workspace" // of cuBLAS, cuDNN and the like
	Context        Category = "context"   // CUDA context and library code
	Collective     Category = "collective_buffers"
	Fragmentation  Category = "fragmentation" // reserved − allocated
	OtherProcess   Category = "other_process"
	OtherFramework Category = "other_framework" // a second framework of this job
	HostMemory     Category = "host_memory"
	SharedMemory   Category = "shared_memory"
)

var categories = []Category{Parameters, Gradients, OptimizerState, Activations, Input, Logits, KVCache, Temporary,
	Workspace, Context, Collective, Fragmentation, OtherProcess, OtherFramework, HostMemory, SharedMemory}

// Framework is one for which the catalogue has changes. Parent is where to
// look when a remedy has no change of its own for it. Aliases are other names
// of it, among them those that package oomlog gives to messages.
type Framework struct {
	ID, Name, Parent string
	Aliases          []string
}

// Any is the framework id of changes that suit every framework: shell and
// system settings.
const Any = "any"

// Frameworks lists the ids in the order in which changes are shown.
func Frameworks() []Framework { return frameworks[:] }

var frameworks = [...]Framework{
	{"pytorch", "PyTorch", Any, []string{"torch", "pytorch-xpu", "pytorch-npu", "pytorch-mps", "pytorch-directml"}},
	{"transformers", "Hugging Face Trainer", "pytorch", []string{"huggingface", "hf", "hf_trainer", "trl"}},
	{"accelerate", "Accelerate", "pytorch", nil},
	{"lightning", "Lightning", "pytorch", []string{"pytorch-lightning"}},
	{"deepspeed", "DeepSpeed", "pytorch", nil},
	{"fsdp2", "FSDP2", "pytorch", []string{"fsdp"}},
	{"tensorflow", "TensorFlow 2", Any, []string{"tf"}},
	{"keras", "Keras 3", Any, nil},
	{"jax", "JAX", Any, []string{"xla", "flax"}},
	{"vllm", "vLLM", Any, nil},
	{"sglang", "SGLang", Any, nil},
	{"llama.cpp", "llama.cpp", Any, []string{"ggml", "llamacpp", "llama_cpp"}},
	{"ollama", "Ollama", Any, nil},
	{"onnxruntime", "ONNX Runtime", Any, []string{"onnx"}},
	{"tensorrt", "TensorRT", Any, []string{"tensorrt-llm"}},
	{"cupy", "CuPy and RAPIDS", Any, []string{"rmm"}},
	{"paddle", "Paddle", Any, []string{"paddlepaddle"}},
	{Any, "any framework", "", nil},
}

// withoutCUDA are the names of PyTorch on devices that have neither CUDA nor
// HIP. (ROCm's PyTorch reads PYTORCH_CUDA_ALLOC_CONF as well.)
var withoutCUDA = [...]string{"pytorch-xpu", "pytorch-npu", "pytorch-mps", "pytorch-directml"}

// LookupFramework returns the framework with this id or alias.
func LookupFramework(id string) (Framework, bool) {
	for _, f := range frameworks {
		if f.ID == id || slices.Contains(f.Aliases, id) {
			return f, true
		}
	}
	return Framework{}, false
}

// Change returns the change for a framework: its own, or the one of the
// framework that it is built on, or one that suits all, which is also what an
// unknown framework gets. It is false where the remedy does not exist there.
func (r *Remedy) Change(framework string) (Change, bool) {
	if r.CUDAOnly && slices.Contains(withoutCUDA[:], framework) {
		return Change{}, false
	}
	f, ok := LookupFramework(framework)
	for ok {
		if c, has := r.Changes[f.ID]; has {
			return c, true
		}
		f, ok = LookupFramework(f.Parent)
	}
	c, has := r.Changes[Any]
	return c, has
}

// Answers reports whether the remedy is an answer to a cause.
func (r *Remedy) Answers(id cause.ID) bool { return slices.Contains(r.Causes, id) }

// All returns the catalogue in the order of documents: by group, and within a
// group what is tried first comes first. Callers must not change it.
func All() []*Remedy { return catalogue() }

// ByID returns one remedy.
func ByID(id string) (*Remedy, bool) {
	for _, r := range All() {
		if r.ID == id {
			return r, true
		}
	}
	return nil, false
}

// ForCause returns the answers to a cause in the order of the catalogue.
func ForCause(id cause.ID) []*Remedy {
	var out []*Remedy
	for _, r := range All() {
		if r.Answers(id) {
			out = append(out, r)
		}
	}
	return out
}

//go:embed catalog/*.yaml
var files embed.FS

// catalogue decodes the embedded files once. They are part of the program and
// checked by its tests, so an error is one of the programmer.
var catalogue = sync.OnceValue(func() []*Remedy {
	all, err := load(files)
	if err != nil {
		panic(err)
	}
	return all
})

// load reads the groups in the order of their files' names.
func load(fsys fs.FS) ([]*Remedy, error) {
	names, err := fs.Glob(fsys, "catalog/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []*Remedy
	for _, name := range names {
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		var group struct {
			Title    string    `yaml:"title"`
			Remedies []*Remedy `yaml:"remedies"`
		}
		if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&group); err != nil {
			return nil, fmt.Errorf("remedy: %s: %w", name, err)
		}
		for _, r := range group.Remedies {
			r.Group = group.Title
		}
		all = append(all, group.Remedies...)
	}
	return all, nil
}
