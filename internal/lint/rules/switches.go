package rules

import (
	"vramscope/internal/lint/model"
)

var switchRules = []Rule{
	{
		ID: "GM501", Name: "empty-cache-in-loop", Group: "allocator", Severity: Warning,
		Says:    "empty_cache() or gc.collect() runs in every step.",
		Cost:    "cudaFree, cudaMalloc and a synchronisation each step (PEFT: 250 steps in 65 s instead of 45 s, 108 s with gc), and no more memory for PyTorch, which does it by itself before it fails",
		Instead: "leave it out, or call it once between phases",
		Quiet:   "under a condition; once an epoch; except blocks; between models",
		Source:  "transformers#31372, PR peft#2894; PyTorch docs/source/notes/cuda.md", Remedy: "R13",
		Check: emptyCacheInLoop,
	},
	{
		ID: "GM509", Name: "empty-cache-in-forward", Group: "allocator", Severity: Warning,
		Says:    "empty_cache() in forward, as a cure for activations that do not fit.",
		Cost:    "activations are in use: it frees only what the allocator would free itself, and waits for the GPU at every layer. It breaks CUDA graphs and torch.compile",
		Instead: "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
		Quiet:   "under a condition",
		Source:  "PyTorch docs/source/notes/cuda.md; data/effects: 12 % more reserved, 33 % slower on a U-Net", Remedy: "R23m",
		Check: emptyCacheInForward,
	},
	{
		ID: "GM510", Name: "history-without-bound", Group: "allocator", Severity: Warning,
		Says:    "The memory history is recorded without a bound.",
		Cost:    "host memory grows with every allocation and its stack for as long as it runs",
		Instead: "_record_memory_history(max_entries=100_000), and enabled=None at the end",
		Quiet:   "the recording is switched off in the file",
		Source:  "PyTorch torch/cuda/memory.py:752, 2.4 (max_entries=sys.maxsize)", Remedy: "R17m",
		Check: historyWithoutBound,
	},
	{
		ID: "GM511", Name: "fraction-too-late", Group: "allocator", Severity: Warning,
		Says:    "The memory fraction is set after the model is on the card, or for one device of several.",
		Cost:    "what is allocated stays; the other devices have no limit. A limit never makes a model fit",
		Instead: "torch.cuda.set_per_process_memory_fraction(0.5, device=local_rank), first",
		Quiet:   "single-GPU programs that set it first",
		Source:  "PyTorch docs/source/notes/cuda.md", Remedy: "R34",
		Check: fractionTooLate,
	},
}

func isEmptyCache(callee string) bool { return callee == "torch.cuda.empty_cache" }

func emptyCacheInLoop(p *Pass) {
	for _, c := range p.M.To("torch.cuda.empty_cache", "gc.collect") {
		l := p.M.Loop(c.Node)
		if l == nil || l.Bounded || p.guarded(c.Node) || !p.stepLoop(l) || p.IsTest {
			continue
		}
		what := "empty_cache()"
		if c.Callee == "gc.collect" {
			what = "gc.collect()"
		}
		p.Report(c.Node, "%s in every step: it cannot raise what PyTorch may use, and costs a synchronisation and new cudaMallocs each time. Leave it out, or call it once between phases.", what)
	}
}

func emptyCacheInForward(p *Pass) {
	for _, c := range p.M.To("torch.cuda.empty_cache") {
		f := p.M.Func(c.Node)
		if f == nil || f.Def.Name != "forward" || !f.Class.Is("torch.nn.Module") || p.guarded(c.Node) {
			continue
		}
		p.Report(c.Node, "empty_cache() in forward: activations are in use, so it frees only unused cache, and it waits for the GPU here in every pass. Checkpoint the block instead.")
	}
}

func historyWithoutBound(p *Pass) {
	for _, c := range p.M.To("torch.cuda.memory._record_memory_history") {
		if c.HasStar() || keyword(c.Node, "max_entries") != nil || keyword(c.Node, "trace_alloc_max_entries") != nil || len(c.Node.Args) >= 4 || p.IsTest {
			continue
		}
		if e := c.Arg(0, "enabled"); e != nil && (p.M.Value(e).Kind == model.None || p.constant(e) == "False") {
			continue
		}
		stopped := false
		for _, o := range p.M.To("torch.cuda.memory._record_memory_history") {
			if e := o.Arg(0, "enabled"); e != nil && (p.M.Value(e).Kind == model.None || p.constant(e) == "False") {
				stopped = true
			}
		}
		if !stopped {
			p.Report(c.Node, "the history is recorded without max_entries and never switched off: host memory grows with every allocation. Give max_entries=100_000.")
		}
	}
}

func fractionTooLate(p *Pass) {
	for _, c := range p.M.To("torch.cuda.set_per_process_memory_fraction", "torch.cuda.memory.set_per_process_memory_fraction") {
		if p.IsTest {
			return
		}
		if c.Arg(1, "device") == nil && !c.HasStar() && p.mentions("init_process_group", "LOCAL_RANK", "local_rank") && !p.mentions("set_device") {
			p.Report(c.Node, "without device= the limit holds for the current device only: with one process per card, all of them limit card 0. Pass device=local_rank.")
			continue
		}
		for _, o := range p.scopeCalls(c.Node) {
			if o.Node.Pos() >= c.Node.Pos() || o.In != c.In || p.guarded(o.Node) {
				continue
			}
			if v := p.M.Value(o.Node); v.Kind == model.Net && v.Dev == "cuda" && (o.Method() == "cuda" || o.Method() == "to") {
				line, _ := p.File.Position(o.Node.Pos())
				p.Report(c.Node, "the limit is set after the model went to the card in line %d: what is allocated stays. Set it first.", line)
				break
			}
		}
	}
}
