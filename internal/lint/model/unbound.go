package model

import "vramscope/internal/pysource"

// builtins are Python's own functions and types that the model or a rule may
// meet; a name that is bound nowhere and is none of them is a fragment's.
func isBuiltin(name string) bool {
	switch name {
	case "abs", "all", "any", "ascii", "bin", "bool", "breakpoint", "bytearray", "bytes", "callable", "chr", "classmethod", "compile",
		"complex", "delattr", "dict", "dir", "divmod", "enumerate", "eval", "exec", "filter", "float", "format", "frozenset", "getattr",
		"globals", "hasattr", "hash", "help", "hex", "id", "input", "int", "isinstance", "issubclass", "iter", "len", "list", "locals",
		"map", "max", "memoryview", "min", "next", "object", "oct", "open", "ord", "pow", "print", "property", "range", "repr", "reversed",
		"round", "set", "setattr", "slice", "sorted", "staticmethod", "str", "sum", "super", "tuple", "type", "vars", "zip", "__import__",
		"xrange", "unicode", "basestring", "reduce", "raw_input", "reveal", "tqdm",
		"Exception", "RuntimeError", "ValueError", "TypeError", "KeyError", "OSError", "ImportError", "MemoryError", "StopIteration",
		"NotImplementedError", "AttributeError", "IndexError", "KeyboardInterrupt", "BaseException", "__name__", "__file__", "__doc__":
		return true
	}
	return false
}

// conventional is what a name that is bound nowhere in the file stands for, in
// fragments (a cell of a notebook, an example in a document) and after
// `from x import *`. A name that is bound is never looked up here.
var conventional = map[string]string{
	"nn": "torch.nn", "F": "torch.nn.functional", "th": "torch", "dist": "torch.distributed", "optim": "torch.optim", "np": "numpy",
	"tf": "tensorflow", "jnp": "jax.numpy", "L": "lightning", "pl": "lightning",
	"Dataset": "torch.utils.data.Dataset", "DataLoader": "torch.utils.data.DataLoader", "TensorDataset": "torch.utils.data.TensorDataset",
	"DDP": "torch.nn.parallel.DistributedDataParallel", "DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
	"FSDP": "torch.distributed.fsdp.FullyShardedDataParallel", "FullyShardedDataParallel": "torch.distributed.fsdp.FullyShardedDataParallel",
	"fully_shard": "torch.distributed.fsdp.fully_shard", "checkpoint": "torch.utils.checkpoint.checkpoint", "make_dot": "torchviz.make_dot",
	"GradScaler": "torch.amp.GradScaler", "autocast": "torch.amp.autocast", "Adam": "torch.optim.Adam", "AdamW": "torch.optim.AdamW", "SGD": "torch.optim.SGD",
	"TrainingArguments": "transformers.TrainingArguments", "Seq2SeqTrainingArguments": "transformers.Seq2SeqTrainingArguments",
	"Trainer": "transformers.Trainer", "Seq2SeqTrainer": "transformers.Seq2SeqTrainer", "BitsAndBytesConfig": "transformers.BitsAndBytesConfig",
	"AutoModel": "transformers.AutoModel", "AutoModelForCausalLM": "transformers.AutoModelForCausalLM", "AutoModelForSeq2SeqLM": "transformers.AutoModelForSeq2SeqLM",
	"get_peft_model": "peft.get_peft_model", "LoraConfig": "peft.LoraConfig", "DPOTrainer": "trl.DPOTrainer",
	"Accelerator": "accelerate.Accelerator", "DeepSpeedPlugin": "accelerate.DeepSpeedPlugin",
	"find_executable_batch_size": "accelerate.utils.find_executable_batch_size",
}

// unboundName is the value of a name that nothing in the file binds.
func (m *Model) unboundName(name string) *Value {
	if v := m.unbound[name]; v != nil {
		return v
	}
	v := &Value{}
	switch {
	case isBuiltin(name):
		v.Kind, v.Name = Namespace, name
	case conventional[name] != "" && !m.binds[name]:
		v.Kind, v.Name = Namespace, conventional[name]
	case isLibrary(name):
		v.Kind, v.Name = Namespace, m.canonical(name)
	}
	m.unbound[name] = v
	return v
}

func isLibrary(name string) bool {
	switch name {
	case "torch", "torchvision", "transformers", "tensorflow", "keras", "jax", "optax", "flax", "numpy", "os", "sys", "gc", "copy", "functools", "itertools",
		"math", "time", "random", "contextlib", "lightning", "pytorch_lightning", "accelerate", "deepspeed", "peft", "trl", "timm", "collections", "tqdm":
		return true
	}
	return false
}

// boundNames returns the names that some statement of the file binds, in any
// scope.
func boundNames(f *pysource.File) map[string]bool {
	out := map[string]bool{}
	target := func(x pysource.Node) {
		if x == nil {
			return
		}
		pysource.Inspect(x, func(n pysource.Node) bool {
			switch n := n.(type) {
			case *pysource.Name:
				out[n.Ident] = true
			case *pysource.Attribute, *pysource.Subscript:
				return false
			}
			return true
		})
	}
	pysource.InspectAll(f.Body, func(n pysource.Node) bool {
		switch n := n.(type) {
		case *pysource.Assign:
			for _, t := range n.Targets {
				target(t)
			}
		case *pysource.AnnAssign:
			target(n.Target)
		case *pysource.For:
			target(n.Target)
		case *pysource.Function:
			out[n.Name] = true
		case *pysource.Class:
			out[n.Name] = true
		case *pysource.Param:
			out[n.Name] = true
		case *pysource.WithItem:
			if n.Target != nil {
				target(n.Target)
			}
		case *pysource.Import:
			for _, a := range n.Names {
				if a.As != "" {
					out[a.As] = true
				} else {
					out[topOf(a.Name)] = true
				}
			}
		}
		return true
	})
	return out
}
