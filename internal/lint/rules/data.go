package rules

import (
	"strings"

	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

var dataRules = []Rule{
	{
		ID: "GM701", Name: "cuda-in-worker", Group: "data", Severity: Error,
		Says:    "CUDA is used in a DataLoader worker.",
		Cost:    "fork: “Cannot re-initialize CUDA in forked subprocess”; spawn: a CUDA context (hundreds of MB) and prefetched batches on the card for each worker",
		Instead: "return CPU tensors, pin_memory=True, and move in the loop with non_blocking=True",
		Quiet:   "num_workers=0; loaders that this file does not show",
		Source:  "pytorch/pytorch#40403, #77159, #98002", Remedy: "R25",
		Check: cudaInWorker,
	},
	{
		ID: "GM702", Name: "pin-cuda-tensor", Group: "data", Severity: Error,
		Says:    "Tensors on the GPU are to be pinned.",
		Cost:    "“cannot pin … only dense CPU tensors can be pinned”",
		Instead: "keep the data on the CPU; pinned memory is host memory",
		Quiet:   "data whose device is not known",
		Source:  "PyTorch aten/src/ATen/native/Memory.cpp", Remedy: "R25",
		Check: pinCUDA,
	},
	{
		ID: "GM703", Name: "dataset-on-gpu", Group: "data", Severity: Info,
		Says:    "A whole data set goes to the GPU and is sliced there.",
		Cost:    "its size for the whole run; slices are views that keep all of it. Right for what is small",
		Instead: "a DataLoader with pin_memory=True, and move batches",
		Quiet:   "graphs; sizes that are not known are advice only",
		Source:  "PyTorch docs/source/notes/faq.md", Remedy: "R01",
		Check: datasetOnGPU,
	},
	{
		ID: "GM706", Name: "all-ranks-on-one-gpu", Group: "data", Severity: Warning,
		Says:    "A distributed program moves its model to \"cuda\" and never chooses the device.",
		Cost:    "all ranks put model, buffers and contexts on GPU 0",
		Instead: "torch.cuda.set_device(local_rank) right after start",
		Quiet:   "launchers that set CUDA_VISIBLE_DEVICES; frameworks that place; any use of a local rank",
		Source:  "marcoamonteiro/pi-GAN#22, pytorch/pytorch#23138", Remedy: "R15",
		Check: allRanksOneGPU,
	},
}

// usesWorkers reports whether a DataLoader call has worker processes, as far
// as the source says.
func (p *Pass) usesWorkers(c *model.Call) bool {
	k := keyword(c.Node, "num_workers")
	if k == nil {
		return len(c.Node.Args) > 5
	}
	return p.constant(k.Value) != "0"
}

func cudaInWorker(p *Pass) {
	datasets := map[*model.ClassInfo]bool{}
	for _, c := range p.M.To("torch.utils.data.DataLoader") {
		if !p.usesWorkers(c) {
			continue
		}
		for _, name := range []string{"collate_fn", "worker_init_fn"} {
			if k := keyword(c.Node, name); k != nil {
				if v := p.M.Value(k.Value); v.Func != nil {
					p.reportCUDA(v.Func.Def, name)
				} else if l, ok := k.Value.(*pysource.Lambda); ok {
					p.reportCUDA(l, name)
				}
			}
		}
		if ds := c.Arg(0, "dataset"); ds != nil {
			if v := p.M.Value(ds); v.Class != nil && !datasets[v.Class] {
				datasets[v.Class] = true
				if f := v.Class.Methods["__getitem__"]; f != nil {
					p.reportCUDA(f.Def, "__getitem__")
				}
				if f := v.Class.Methods["__iter__"]; f != nil && v.Class.Is("torch.utils.data.Dataset") {
					p.reportCUDA(f.Def, "__iter__")
				}
			}
		}
	}
}

// reportCUDA reports the first move to the GPU in what a worker runs.
func (p *Pass) reportCUDA(n pysource.Node, where string) {
	for _, c := range p.callsIn(n) {
		a, ok := c.Node.Fun.(*pysource.Attribute)
		if !ok || p.guarded(c.Node) {
			continue
		}
		move := a.Name == "cuda" && len(c.Node.Args) == 0
		if a.Name == "to" && len(c.Node.Args) > 0 {
			v := p.M.Value(c.Node.Args[0])
			move = (v.Is(model.String) || v.Is(model.Device)) && strings.HasPrefix(v.Const, "cuda")
		}
		if move {
			p.Report(c.Node, "%s runs in the worker processes of a DataLoader: CUDA there fails after fork, and costs a context of hundreds of MB per worker otherwise. Return CPU tensors and move the batch in the loop.", where)
			return
		}
	}
}

func pinCUDA(p *Pass) {
	for _, c := range p.calls() {
		if c.Method() == "pin_memory" && c.Recv != nil && c.Recv.Dev == "cuda" {
			p.Report(c.Node, "only CPU tensors can be pinned: this one is on the GPU (RuntimeError).")
		}
		if c.Callee != "torch.utils.data.DataLoader" || !p.isTrue(c, "pin_memory") {
			continue
		}
		ds, ok := p.resolve(c.Arg(0, "dataset")).(*pysource.Call)
		if !ok {
			continue
		}
		if k := p.M.Call(ds); k == nil || !strings.HasSuffix(k.Callee, "TensorDataset") {
			continue
		}
		for _, a := range ds.Args {
			if v := p.M.Value(a); v.Is(model.Tensor) && v.Dev == "cuda" {
				p.Report(keyword(c.Node, "pin_memory"), "pin_memory=True with a data set on the GPU: only CPU tensors can be pinned (RuntimeError).")
				break
			}
		}
	}
}

func datasetOnGPU(p *Pass) {
	p.inspectAll(p.File.Body, func(n pysource.Node) bool {
		loop, ok := n.(*pysource.For)
		if !ok {
			return true
		}
		iter := p.M.Call(loop.Iter)
		i, isName := loop.Target.(*pysource.Name)
		if iter == nil || iter.Callee != "range" || !isName || len(loop.Iter.(*pysource.Call).Args) != 3 {
			return true
		}
		done := map[string]bool{}
		p.inspectAll(loop.Body, func(n pysource.Node) bool {
			s, ok := n.(*pysource.Subscript)
			if !ok {
				return true
			}
			sl, ok := s.Index.(*pysource.Slice)
			name, isName := s.X.(*pysource.Name)
			if !ok || !isName || sl.Lo == nil || p.key(sl.Lo) != i.Ident || done[name.Ident] {
				return true
			}
			v := p.M.Value(name)
			src := v
			for src.Of != nil && src.Name != "factory" {
				src = src.Of
			}
			if v.Is(model.Tensor) && v.Dev == "cuda" && src.Name == "factory" {
				if c, ok := src.Origin.(*pysource.Call); ok {
					switch k := p.M.Call(c); k.Callee {
					case "torch.tensor", "torch.from_numpy", "torch.as_tensor":
						done[name.Ident] = true
						p.Report(s, "%s is the whole data set on the GPU for the whole run, and each batch is a view of it. For what is not small, move batches (DataLoader with pin_memory).", name.Ident)
					}
				}
			}
			return true
		})
		return true
	})
}

func allRanksOneGPU(p *Pass) {
	inits := p.M.To("torch.distributed.init_process_group")
	if len(inits) == 0 || p.imports("accelerate", "lightning", "deepspeed", "transformers", "horovod") ||
		p.mentions("set_device", "CUDA_VISIBLE_DEVICES", "local_rank", "LOCAL_RANK", "device_ids", "cuda:", "device(rank", ".cuda(rank", ".to(rank", "device_mesh", "cuda.device(") {
		return
	}
	if len(inits[0].Node.Args) > 0 || keyword(inits[0].Node, "backend") != nil {
		backend := p.constant(inits[0].Arg(0, "backend"))
		if backend != "nccl" {
			return
		}
	}
	for _, c := range p.calls() {
		if v := p.M.Value(c.Node); v.Kind == model.Net && (c.Method() == "cuda" && len(c.Node.Args) == 0 || c.Method() == "to" && len(c.Node.Args) > 0 && p.constant(c.Node.Args[0]) == "cuda") {
			p.Report(c.Node, "every rank puts its model on the current device, which is GPU 0 as nothing chooses another. Call torch.cuda.set_device(local_rank) first.")
			return
		}
	}
}
