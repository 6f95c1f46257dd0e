package rules

import (
	"strings"

	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

var optimizerRules = []Rule{
	{
		ID: "GM301", Name: "no-zero-grad", Group: "optimizer", Severity: Warning,
		Says:    "The optimizer steps, and nothing ever clears the gradients.",
		Cost:    "gradients of all steps add up (training is wrong), and 4 bytes per parameter stay allocated through each forward pass",
		Instead: "optimizer.zero_grad(set_to_none=True) after step()",
		Quiet:   "some form of clearing is in the file; closures; frameworks that clear; optimizers that step in backward",
		Source:  "torch.optim documentation; PR pytorch/examples#1424", Remedy: "R24",
		Check: noZeroGrad,
	},
	{
		ID: "GM303", Name: "late-zero-grad", Group: "optimizer", Severity: Info,
		Says:    "zero_grad() stands between the forward pass and backward().",
		Cost:    "the gradients of the last step (4 bytes per parameter, 2 in bf16) lie under the forward pass",
		Instead: "call it right after step()",
		Quiet:   "not known to matter where the peak is in the backward pass",
		Source:  "pytorch/examples@77f55b9 minGPT-ddp/mingpt/trainer.py", Remedy: "R24",
		Check: lateZeroGrad,
	},
	{
		ID: "GM304", Name: "zero-grad-keeps-memory", Group: "optimizer", Severity: Warning,
		Says:    "zero_grad(set_to_none=False) keeps the gradients allocated.",
		Cost:    "4 bytes per parameter (2 in bf16) for ever, and a memset of all of it a step",
		Instead: "zero_grad(set_to_none=True), the default since PyTorch 2.0",
		Quiet:   "files that capture CUDA graphs, which need the addresses",
		Source:  "PyTorch torch/optim/optimizer.py:912, 2.4; TorchFix TOR402", Remedy: "R24", Fixes: true,
		Check: zeroGradKeeps,
	},
	{
		ID: "GM307", Name: "optimizer-too-early", Group: "optimizer", Severity: Error,
		Says:    "The optimizer is made before the parameters reach their final form.",
		Cost:    "it trains, and keeps alive, the old full-size parameters: the new ones do not learn",
		Instead: "shard, quantise or wrap first, then make the optimizer",
		Quiet:   "plain .to(), .cuda() and .half(), which change parameters in place",
		Source:  "PyTorch docs/source/distributed.fsdp.fully_shard.md; Lightning-AI/pytorch-lightning#8490", Remedy: "R41",
		Check: optimizerTooEarly,
	},
	{
		ID: "GM308", Name: "optimizer-in-loop", Group: "optimizer", Severity: Warning,
		Says:    "The optimizer is made anew in the epoch or step loop.",
		Cost:    "its moments are lost, and old and new state (8 bytes per parameter for Adam) overlap at the first step",
		Instead: "make it once; change the learning rate by a scheduler",
		Quiet:   "loops that also make or reset the model (folds, trials)",
		Source:  "pytorch/pytorch#85602, #85462; fairseq@f410890", Remedy: "R25",
		Check: optimizerInLoop,
	},
	{
		ID: "GM310", Name: "frozen-part-has-grad", Group: "optimizer", Severity: Warning,
		Says:    "A part that no optimizer trains is run with gradients.",
		Cost:    "all its activations are saved, and 4 bytes per parameter of gradients are made that zero_grad() never clears",
		Instead: "part.requires_grad_(False), and run it under torch.no_grad()",
		Quiet:   "the part is frozen, is under no_grad, or is in some optimizer; adapters within",
		Source:  "PyTorch notes on autograd (locally disabling gradient computation)", Remedy: "R06",
		Check: frozenPart,
	},
	{
		ID: "GM311", Name: "optimizer-in-backward-mixed", Group: "optimizer", Severity: Error,
		Says:    "An optimizer that steps during backward is mixed with clipping, accumulation or a scaler.",
		Cost:    "the gradients are gone when they are clipped; accumulation makes k small steps; the scaler checks nothing",
		Instead: "clip each parameter in the hook",
		Quiet:   "hooks that do not step",
		Source:  "PyTorch tutorial optimizer_step_in_backward; torchtune memory_optimizations.rst", Remedy: "R38",
		Check: optimizerInBackward,
	},
}

func noZeroGrad(p *Pass) {
	if p.mentions("zero_grad", "set_to_none", ".grad = None", ".grad=None", ".grad.zero_", "grad.data.zero_", "clear_grad", "post_accumulate_grad_hook") {
		return
	}
	for _, c := range p.calls() {
		if c.Effect&model.Step == 0 || c.Func != nil || c.Remote != nil || c.Recv == nil || !c.Recv.Is(model.Optimizer) && c.Recv.Kind != model.Unknown || !p.tensorBackward(c) || len(c.Node.Args) > 0 || len(c.Node.Keywords) > 0 || p.owned(c.Node) {
			continue
		}
		l := p.M.Loop(c.Node)
		if l == nil || l.Bounded || l.Effect&model.Backward == 0 || l.Effect&model.ZeroGrad != 0 || p.remoteCalls(l.Node) {
			continue
		}
		if o := c.Recv.Origin; o != nil && o.Pos() >= l.Node.Pos() && o.End() <= l.Node.End() {
			continue // made anew in each round
		}
		p.Report(c.Node, "step() in this loop, and nothing in the file clears the gradients: they add up over all steps (a correctness fault), and stay allocated through each forward pass. Call zero_grad(set_to_none=True) after it.")
	}
}

// tensorBackward reports whether backward runs on a tensor, before the call and
// in its loop: not on an engine, which clears the gradients itself.
func (p *Pass) tensorBackward(step *model.Call) bool {
	l := p.M.Loop(step.Node)
	if l == nil {
		return false
	}
	if step.Recv.Is(model.Optimizer) {
		return true
	}
	for _, c := range p.callsIn(l.Node) {
		if c.Callee == "Tensor.backward" && p.M.Loop(c.Node) == l && c.Node.Pos() < step.Node.Pos() {
			return true
		}
	}
	return false
}

// remoteCalls reports whether the loop hands over to code that is not seen.
func (p *Pass) remoteCalls(n pysource.Node) bool {
	for _, c := range p.callsIn(n) {
		for _, a := range c.Node.Args {
			if p.M.Value(a).Is(model.Optimizer) && c.Func == nil {
				return true
			}
		}
	}
	return false
}

func lateZeroGrad(p *Pass) {
	for _, z := range p.calls() {
		if z.Effect&model.ZeroGrad == 0 || z.Func != nil {
			continue
		}
		l := p.M.Loop(z.Node)
		block := p.siblings(p.M.Stmt(z.Node))
		if block == nil || l != nil && l.Bounded {
			continue
		}
		before, after := false, false
		for _, s := range block {
			e := p.M.EffectOf(s)
			if s.Pos() < z.Node.Pos() && e&model.Forward != 0 && e&model.Backward == 0 {
				before = true
			}
			if s.Pos() < z.Node.Pos() && e&model.Backward != 0 {
				before = false
			}
			if s.Pos() > z.Node.Pos() && e&model.Backward != 0 {
				after = true
			}
		}
		if before && after {
			p.Report(z.Node, "zero_grad() after the forward pass: the gradients of the last step lie under it. Call it right after step(). (No gain where the peak is in the backward pass.)")
		}
	}
}

// siblings returns the statements of the block that holds s.
func (p *Pass) siblings(s pysource.Stmt) []pysource.Stmt {
	if s == nil {
		return nil
	}
	in := func(bodies ...[]pysource.Stmt) []pysource.Stmt {
		for _, b := range bodies {
			for _, x := range b {
				if x == s {
					return b
				}
			}
		}
		return nil
	}
	switch q := p.File.Parent(s).(type) {
	case nil:
		return p.File.Body
	case *pysource.For:
		return in(q.Body, q.Else)
	case *pysource.While:
		return in(q.Body, q.Else)
	case *pysource.If:
		return in(q.Body, q.Else)
	case *pysource.With:
		return in(q.Body)
	case *pysource.Function:
		return in(q.Body)
	case *pysource.Try:
		return in(q.Body, q.Else, q.Finally)
	case *pysource.Handler:
		return in(q.Body)
	}
	return nil
}

func zeroGradKeeps(p *Pass) {
	if p.mentions("CUDAGraph", "cuda.graph", "make_graphed_callables") {
		return
	}
	for _, c := range p.calls() {
		if c.Method() != "zero_grad" || c.Recv == nil {
			continue
		}
		k := keyword(c.Node, "set_to_none")
		if k == nil || p.constant(k.Value) != "False" {
			continue
		}
		p.Report(c.Node, "set_to_none=False keeps every gradient allocated for ever (4 bytes per parameter, 2 in bf16), and writes zeros over all of it each step.").
			WithFix("set set_to_none=True", Edit{k.Value.Pos(), k.Value.End(), "True"})
	}
}

// optimizers returns the calls that make an optimizer.
func (p *Pass) optimizers() []*model.Call {
	var out []*model.Call
	for _, c := range p.calls() {
		v := p.M.Value(c.Node)
		if v.Kind == model.Optimizer && (c.Class != nil || strings.Contains(c.Callee, ".") && v.Name == c.Callee) {
			out = append(out, c)
		}
	}
	return out
}

// trained returns the module whose parameters() an optimizer is given, and its
// name in the source, or nil.
func (p *Pass) trained(c *model.Call) (*model.Value, string) {
	x := c.Arg(0, "params")
	if x == nil {
		return nil, ""
	}
	recv, name := method(p.resolve(x))
	if name != "parameters" || recv == nil {
		return nil, ""
	}
	return p.M.Value(recv), p.key(recv)
}

func optimizerTooEarly(p *Pass) {
	for _, opt := range p.optimizers() {
		net, key := p.trained(opt)
		if net == nil || p.guarded(opt.Node) {
			continue
		}
		for _, c := range p.scopeCalls(opt.Node) {
			if c.Node.Pos() < opt.Node.End() || c.In != opt.In || len(c.Node.Args) == 0 {
				continue
			}
			what := ""
			switch c.Callee {
			case "torch.distributed.fsdp.fully_shard", "torch.distributed.fsdp.FullyShardedDataParallel", "torchao.quantize_", "torchao.quantization.quantize_",
				"peft.get_peft_model", "torch.distributed.tensor.parallel.parallelize_module":
				what = c.Callee[strings.LastIndexByte(c.Callee, '.')+1:]
			}
			if what == "" || p.key(c.Node.Args[0]) != key || p.guarded(c.Node) || p.keepsParams(c) {
				continue
			}
			// Made again afterwards?
			again := false
			for _, o := range p.optimizers() {
				if o.In == opt.In && o.Node.Pos() > c.Node.Pos() {
					again = true
				}
			}
			if !again {
				p.Report(opt.Node, "this optimizer is made before %s(%s) replaces the parameters: it keeps the old ones alive and trains them. Make it afterwards.", what, key)
			}
			break
		}
	}
}

// keepsParams: FSDP with use_orig_params=True leaves the parameters as they are.
func (p *Pass) keepsParams(c *model.Call) bool { return p.isTrue(c, "use_orig_params") }

func optimizerInLoop(p *Pass) {
	for _, c := range p.optimizers() {
		l := p.M.Loop(c.Node)
		if l == nil || p.guarded(c.Node) || l.Effect&model.Backward == 0 && l.Effect&model.Step == 0 && !p.remoteCalls(l.Node) {
			continue
		}
		net, key := p.trained(c)
		if net == nil || !net.Is(model.Net) || strings.HasPrefix(key, "self.") && p.M.Class(c.Node) == nil {
			continue
		}
		inside := func(n pysource.Node) bool { return n != nil && n.Pos() >= l.Node.Pos() && n.End() <= l.Node.End() }
		if inside(net.Origin) || p.assigns(l.Node, base(&pysource.Name{Ident: key}), nil) || p.assigns(l.Node, key, nil) {
			continue
		}
		reset := false
		for _, o := range p.callsIn(l.Node) {
			switch o.Method() {
			case "load_state_dict", "reset_parameters", "apply", "reset", "add_module", "init_weights", "requires_grad_", "append", "unfreeze", "grow":
				reset = true
			}
		}
		if reset || !p.newLoopState(l, key) {
			continue
		}
		p.Report(c.Node, "an optimizer for %s is made in every round of this loop: its moments are lost, and old and new state overlap (8 bytes per parameter for Adam). Make it once before the loop.", key)
	}
}

// newLoopState: the loop variable of a bounded loop over configurations says
// that each round is another experiment on purpose.
func (p *Pass) newLoopState(l *model.Loop, key string) bool {
	f, ok := l.Node.(*pysource.For)
	if !ok {
		return true
	}
	for _, t := range flatten(f.Target) {
		if n := base(t); n != "" && (key == n || strings.HasPrefix(key, n+".")) {
			return false
		}
	}
	return true
}

func frozenPart(p *Pass) {
	for _, f := range append([]*model.FuncInfo{nil}, p.M.Funcs...) {
		type part struct {
			call *model.Call
			key  string
		}
		trained := map[string]bool{}
		opts := 0
		backward := false
		var inner []part
		for _, c := range p.calls() {
			if c.In != f {
				continue
			}
			if c.Effect&model.Backward != 0 {
				backward = true
			}
			if c.Method() == "add_param_group" {
				trained["*"] = true
			}
			if p.M.Value(c.Node).Kind == model.Optimizer && c.Recv == nil || c.Recv != nil && c.Recv.Kind == model.Namespace && p.M.Value(c.Node).Kind == model.Optimizer {
				opts++
				if _, key := p.trained(c); key != "" {
					trained[key] = true
				} else {
					trained["*"] = true
				}
				continue
			}
			if c.Effect&model.Forward == 0 || c.Func != nil {
				continue
			}
			// head(backbone(x)): the argument, or the name it was given.
			for _, a := range c.Node.Args {
				in := p.M.Call(p.resolve(a))
				if in == nil || in.Effect&model.Forward == 0 || in.Grad != model.Yes || in.In != f {
					continue
				}
				if _, ok := in.Node.Fun.(*pysource.Name); ok && trainedBy(p, c) != "" {
					inner = append(inner, part{in, p.key(in.Node.Fun)})
				}
			}
		}
		if opts == 0 || trained["*"] || !backward {
			continue
		}
		for _, q := range inner {
			net := p.M.Value(q.call.Node.Fun)
			if trained[q.key] || net.Frozen || !hasParameters(net) || p.M.GradMode(q.call.Node) != model.Yes {
				continue
			}
			if p.mentions(q.key+".requires_grad_", q.key+".parameters()", q.key+".named_parameters()", q.key+".eval()") && p.touchesGrad(q.key) {
				continue
			}
			// The outer module must be one that is trained, and be given just this.
			p.Report(q.call.Node, "no optimizer trains %s, yet it runs with gradients: all its activations are saved and gradients for its parameters pile up. Call %s.requires_grad_(False) and run it under torch.no_grad().", q.key, q.key)
		}
	}
}

// trainedBy returns the key of an optimizer's module that the call runs, or "".
func trainedBy(p *Pass, c *model.Call) string {
	key := p.key(c.Node.Fun)
	for _, o := range p.optimizers() {
		if _, k := p.trained(o); k == key {
			return k
		}
	}
	return ""
}

// hasParameters reports whether a module is known, and has weights.
func hasParameters(v *model.Value) bool {
	if v.Kind != model.Net || v.Name == "" {
		return false
	}
	switch v.Name {
	case "torch.nn.ReLU", "torch.nn.Flatten", "torch.nn.Softmax", "torch.nn.Dropout", "torch.nn.Identity", "torch.nn.Upsample":
		return false
	}
	return !strings.HasSuffix(v.Name, "Loss")
}

func (p *Pass) touchesGrad(key string) bool {
	return p.mentions(key+".requires_grad_", "requires_grad = False", "requires_grad=False", key+".parameters()")
}

func optimizerInBackward(p *Pass) {
	for _, h := range p.calls() {
		if h.Method() != "register_post_accumulate_grad_hook" || len(h.Node.Args) == 0 {
			continue
		}
		hook := p.M.Value(h.Node.Args[0])
		if hook.Func == nil || !strings.Contains(p.File.Text(hook.Func.Def), ".step(") {
			continue
		}
		for _, c := range p.scopeCalls(h.Node) {
			if hook.Func == c.In {
				continue
			}
			switch {
			case c.Effect&model.Clip != 0 && c.Func == nil:
				p.Report(c.Node, "the hook %s steps during backward(): the gradients are gone when this clips them. Clip each parameter in the hook.", hook.Func.Def.Name)
			case c.Recv.Is(model.Scaler) && c.Method() == "scale":
				p.Report(c.Node, "the hook %s steps during backward() on scaled gradients, and the scaler never checks them. Use bf16 without a scaler.", hook.Func.Def.Name)
			}
		}
	}
}
