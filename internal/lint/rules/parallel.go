package rules

import (
	"strings"

	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

var parallelRules = []Rule{
	{
		ID: "GM801", Name: "data-parallel", Group: "parallel", Severity: Warning,
		Says:    "nn.DataParallel puts outputs and states on one GPU.",
		Cost:    "device 0 holds all outputs and the optimizer, and fills first; replicas are rebuilt in each forward pass",
		Instead: "DistributedDataParallel, one process per GPU, gradient_as_bucket_view=True",
		Quiet:   "one device; a submodule only; programs that do not train",
		Source:  "pytorch/pytorch#1893, transformers#279; PyTorch docs/source/notes/ddp.rst", Remedy: "R11",
		Check: dataParallel,
	},
	{
		ID: "GM804", Name: "sharded-as-one", Group: "parallel", Severity: Warning,
		Says:    "The whole model is one FSDP unit.",
		Cost:    "all parameters are gathered at once: the peak has the full model, and nothing overlaps",
		Instead: "for layer in model.layers: fully_shard(layer); then fully_shard(model)",
		Quiet:   "any other wrapping in the file; an auto_wrap_policy; a model of a few layers",
		Source:  "PyTorch docs/source/distributed.fsdp.fully_shard.md", Remedy: "R41",
		Check: shardedAsOne,
	},
	{
		ID: "GM807", Name: "device-map-auto-distributed", Group: "parallel", Severity: Error,
		Says:    "device_map=\"auto\" in a program with one process per GPU.",
		Cost:    "every rank spreads its model over all GPUs; Accelerate refuses to train it",
		Instead: "device_map={\"\": local_rank}",
		Quiet:   "single processes; inference",
		Source:  "accelerate accelerator.py:1478", Remedy: "R42b",
		Check: deviceMapAuto,
	},
	{
		ID: "GM806", Name: "deepspeed-config", Group: "parallel", Severity: Error, Text: true,
		Says:    "A DeepSpeed configuration contradicts itself.",
		Cost:    "an offload that does not happen, a stop at start, or another batch than planned",
		Instead: "stage 3 for offload_param; one of fp16 and bf16; \"auto\" under Hugging Face",
		Quiet:   "\"auto\" values",
		Source:  "DeepSpeed docs/_pages/config-json.md; DeepSpeed#3306, #2665, PR #7309", Remedy: "R42",
		Check: deepspeedConfig,
	},
}

func dataParallel(p *Pass) {
	trains := !p.mentions("no_grad", "inference_mode", ".eval()")
	for _, c := range p.calls() {
		trains = trains || c.Effect&(model.Backward|model.Step) != 0
	}
	for _, c := range p.M.To("torch.nn.DataParallel") {
		if len(c.Node.Args) == 0 || !trains || p.IsTest {
			continue
		}
		if a, ok := c.Node.Args[0].(*pysource.Attribute); ok && base(a) != "self" {
			continue // a submodule
		}
		if ids, ok := c.Arg(1, "device_ids").(*pysource.Sequence); ok && len(ids.Elts) == 1 {
			continue
		}
		p.Report(c.Node, "DataParallel gathers outputs on device 0, which fills first, and rebuilds the replicas in each forward pass. Use DistributedDataParallel with one process per GPU.")
	}
}

func shardedAsOne(p *Pass) {
	shards := p.M.To("torch.distributed.fsdp.fully_shard")
	if len(shards) == 1 && len(shards[0].Node.Args) > 0 && p.M.Loop(shards[0].Node) == nil && !p.mentions("apply(fully_shard", "map(fully_shard") && p.isRoot(shards[0].Node.Args[0]) {
		p.Report(shards[0].Node, "only the whole model is sharded: all its parameters are gathered at once, so the peak has the full model. Shard each layer first.")
	}
	wraps := p.M.To("torch.distributed.fsdp.FullyShardedDataParallel")
	if len(wraps) == 1 {
		c := wraps[0]
		if c.Arg(3, "auto_wrap_policy") == nil && !c.HasStar() && p.M.Loop(c.Node) == nil && len(c.Node.Args) > 0 && p.isRoot(c.Node.Args[0]) && !p.mentions("enable_wrap", "wrap(", "auto_wrap") {
			p.Report(c.Node, "FSDP without auto_wrap_policy makes the whole model one unit: all its parameters are gathered at once, so the peak has the full model.")
		}
	}
}

// isRoot reports whether an expression is a module made here, and not a part
// of another or a parameter of a helper.
func (p *Pass) isRoot(x pysource.Expr) bool {
	if _, ok := x.(*pysource.Attribute); ok {
		return false
	}
	v := p.M.Value(x)
	return v.Is(model.Net) && v.Param == nil && !isSmall(v.Class)
}

// isSmall reports whether a class of this file is a block rather than a model:
// a few layers and no list of them.
func isSmall(c *model.ClassInfo) bool {
	if c == nil {
		return false
	}
	layers := 0
	for _, a := range c.Attrs {
		switch {
		case a.Name == "torch.nn.ModuleList" || a.Name == "torch.nn.Sequential" || a.Name == "torch.nn.ModuleDict":
			return false
		case a.Is(model.Net):
			layers++
		}
	}
	return layers <= 3
}

func deviceMapAuto(p *Pass) {
	for _, c := range p.calls() {
		if !strings.HasSuffix(c.Callee, ".from_pretrained") {
			continue
		}
		k := keyword(c.Node, "device_map")
		if k == nil || p.constant(k.Value) != "auto" {
			continue
		}
		distributed := len(p.M.To("torch.distributed.init_process_group", "deepspeed.initialize", "deepspeed.init_distributed")) > 0
		if len(p.M.To("accelerate.Accelerator.backward")) > 0 {
			distributed = true
		}
		if distributed {
			p.Report(k, "device_map=\"auto\" in a program with one process per GPU: every rank spreads its model over all cards, and Accelerate refuses to train it. Use {\"\": local_rank}.")
		}
	}
}
