package rules

import (
	"strings"

	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

var accumulationRules = []Rule{
	{
		ID: "GM302", Name: "accumulation-cleared", Group: "optimizer", Severity: Error,
		Says:    "Gradients are cleared on every micro-step, while the optimizer steps every k.",
		Cost:    "nothing is accumulated: the last micro-batch alone is applied, at 1/k of its size (a correctness fault)",
		Instead: "call zero_grad() right after step(), under the same condition",
		Quiet:   "accelerator.accumulate(), which makes both calls do nothing on the other steps",
		Source:  "PyTorch docs/source/notes/amp_examples.md (gradient accumulation)", Remedy: "R02",
		Check: accumulationCleared,
	},
	{
		ID: "GM305", Name: "accumulation-not-scaled", Group: "optimizer", Severity: Warning,
		Says:    "Gradients are accumulated over k micro-batches and the loss is not divided by k (or is divided twice).",
		Cost:    "the step is k times as large (SGD), and clipping and eps act differently: a smaller micro-batch was to change memory only",
		Instead: "(loss / k).backward(); with accelerate, DeepSpeed and Lightning leave the division to them",
		Quiet:   "sums as reduction; gradients scaled by hand; any division of the loss in the loop",
		Source:  "PR huggingface/transformers#34191, litgpt PR#1947; accelerate accelerator.py:2840", Remedy: "R02",
		Check: accumulationScale,
	},
	{
		ID: "GM312", Name: "two-accumulation-owners", Group: "optimizer", Severity: Warning,
		Says:    "Two places set the number of accumulation steps, to different values.",
		Cost:    "the global batch is not the planned one; who then raises the micro-batch runs out of memory",
		Instead: "set it in one place, and \"auto\" in the other",
		Quiet:   "equal values, \"auto\"",
		Source:  "DeepSpeed docs/_pages/config-json.md; accelerate gradient_accumulation.md", Remedy: "R02",
		Check: twoOwners,
	},
}

// accumulates returns, for a step guarded by a modulus, the loop, the guard
// and the divisor.
func (p *Pass) accumulates(c *model.Call) (*model.Loop, *pysource.If, pysource.Expr) {
	if c.Effect&model.Step == 0 || c.Func != nil {
		return nil, nil, nil
	}
	guard := p.modulus(c.Node)
	if guard == nil {
		return nil, nil, nil
	}
	l := p.M.Loop(guard)
	if l == nil || l.Own&model.Backward == 0 {
		return nil, nil, nil
	}
	var k pysource.Expr
	p.inspect(guard.Test, func(n pysource.Node) bool {
		if b, ok := n.(*pysource.Binary); ok && b.Op == "%" {
			k = b.R
		}
		return true
	})
	// Backward must run outside of the guard: on every micro-step.
	for _, b := range p.callsIn(l.Node) {
		if b.Effect&model.Backward != 0 && b.Node.Pos() >= guard.Pos() && b.Node.End() <= guard.End() {
			return nil, nil, nil
		}
	}
	return l, guard, k
}

func isAccumulate(callee string) bool { return strings.HasSuffix(callee, ".accumulate") }

func accumulationCleared(p *Pass) {
	for _, s := range p.calls() {
		l, guard, _ := p.accumulates(s)
		if l == nil {
			continue
		}
		for _, z := range p.callsIn(l.Node) {
			if z.Effect&model.ZeroGrad == 0 || z.Func != nil || p.M.Loop(z.Node) != l || p.guarded(z.Node) || z.Node.Pos() > guard.Pos() && z.Node.End() <= guard.End() {
				continue
			}
			if p.M.Context(z.Node, isAccumulate) != nil || p.owned(z.Node) || !sameOptimizer(p, s, z) || p.clearsOtherParts(l, guard) {
				continue
			}
			p.Report(z.Node, "gradients are cleared on every micro-step, but the optimizer steps only under a condition: nothing accumulates, the last micro-batch alone counts. Clear right after step().")
		}
	}
}

// sameOptimizer reports whether what is cleared can be what steps.
func sameOptimizer(p *Pass, step, zero *model.Call) bool {
	a, b := receiver(step), receiver(zero)
	if a == nil || b == nil {
		return false
	}
	if p.key(a) == p.key(b) {
		return true
	}
	// scaler.step(opt) and opt.zero_grad(); net.zero_grad().
	for _, arg := range step.Node.Args {
		if p.key(arg) == p.key(b) {
			return true
		}
	}
	return zero.Recv.Is(model.Net) && !p.M.Value(a).Is(model.Net) && len(p.optimizers()) == 1
}

func receiver(c *model.Call) pysource.Expr {
	if a, ok := c.Node.Fun.(*pysource.Attribute); ok {
		return a.X
	}
	return nil
}

// clearsOtherParts: a loop with several unguarded steps (GAN) trains more than
// what the guard is about.
func (p *Pass) clearsOtherParts(l *model.Loop, guard *pysource.If) bool {
	for _, c := range p.callsIn(l.Node) {
		if c.Effect&model.Step != 0 && (c.Node.Pos() < guard.Pos() || c.Node.Pos() > guard.End()) {
			return true
		}
	}
	return false
}

func accumulationScale(p *Pass) {
	for _, s := range p.calls() {
		l, _, k := p.accumulates(s)
		if l == nil || k == nil || p.owned(s.Node) {
			continue
		}
		var back *model.Call
		divides, wrapped := false, false
		p.inspect(l.Node, func(n pysource.Node) bool {
			switch n := n.(type) {
			case *pysource.Binary:
				if n.Op == "/" && !p.M.Value(n.L).Is(model.Number) {
					divides = true
				}
				if n.Op == "*" && (p.M.Value(n.L).HasGraph() || p.M.Value(n.R).HasGraph()) {
					divides = true
				}
			case *pysource.AugAssign:
				if n.Op == "/" || n.Op == "*" {
					divides = true
				}
			case *pysource.Attribute:
				switch n.Name {
				case "div", "div_", "grad", "mul", "mul_":
					divides = true
				}
			case *pysource.Call:
				c := p.M.Call(n)
				if c == nil {
					return true
				}
				if c.Effect&model.Backward != 0 && p.M.Loop(n) == l {
					back = c
				}
				if isAccumulate(c.Callee) {
					wrapped = true
				}
				if c.Func != nil && c.Effect&(model.Forward|model.Backward) != 0 {
					divides = true // the callee may
				}
			}
			return true
		})
		if back == nil || back.Func != nil {
			continue
		}
		engine := back.Recv != nil && !back.Recv.Is(model.Tensor) && len(back.Node.Args) == 1
		switch {
		case !divides && !wrapped && !engine && back.Recv.Is(model.Tensor) && !p.mentions(`reduction="sum"`, "reduction='sum'", "loss_scale", "/ "+p.key(k), "/"+p.key(k)):
			p.Report(back.Node, "gradients of %s micro-batches are added up without dividing the loss: the step is that many times larger than with the full batch (a correctness fault, not memory). Use (loss / %s).backward().", p.key(k), p.key(k))
		case engine && wrapped:
			if b, ok := back.Node.Args[0].(*pysource.Binary); ok && b.Op == "/" {
				p.Report(back.Node, "the loss is divided here, and %s divides by the accumulation steps again. Pass the loss undivided.", p.key(back.Node.Fun))
			}
		}
	}
	// with accelerator.accumulate(model): accelerator.backward(loss / k)
	for _, c := range p.calls() {
		if c.Callee != "accelerate.Accelerator.backward" || len(c.Node.Args) != 1 {
			continue
		}
		b, ok := c.Node.Args[0].(*pysource.Binary)
		if ok && b.Op == "/" && p.M.Context(c.Node, isAccumulate) != nil && strings.Contains(p.key(b.R), "accum") {
			p.Report(c.Node, "the loss is divided here, and accelerator.backward() divides by gradient_accumulation_steps again. Pass the loss undivided.")
		}
	}
}

func twoOwners(p *Pass) {
	for _, c := range p.M.To("accelerate.Accelerator") {
		k := keyword(c.Node, "gradient_accumulation_steps")
		d := keyword(c.Node, "deepspeed_plugin")
		if k == nil || d == nil {
			continue
		}
		plugin, ok := p.resolve(d.Value).(*pysource.Call)
		if !ok {
			continue
		}
		o := keyword(plugin, "gradient_accumulation_steps")
		if o == nil {
			continue
		}
		a, b := p.constant(k.Value), p.constant(o.Value)
		if a != "" && b != "" && a != b && b != "auto" {
			p.Report(k, "Accelerator accumulates over %s micro-batches and DeepSpeedPlugin over %s: the global batch is not the planned one. Set one of them.", a, b)
		}
	}
}
