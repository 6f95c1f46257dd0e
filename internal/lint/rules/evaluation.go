package rules

import (
	"strings"

	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

var evaluationRules = []Rule{
	{
		ID: "GM201", Name: "evaluation-records-graph", Group: "evaluation", Severity: Warning,
		Says:    "An evaluation loop runs the model with gradients on.",
		Cost:    "every forward pass saves all activations until its output is gone: the peak of training, at the batch size of the evaluation",
		Instead: "decorate the function with @torch.inference_mode(), or use with torch.no_grad():",
		Quiet:   "a caller switches gradients off; the function uses gradients (attacks, saliency); the module is frozen; steps of Lightning and Keras",
		Source:  "mteb PR#1378 (“Got OOMs for these due to grads being computed”), fairchem PR#199, skorch#218, hszhao/semseg#60", Remedy: "R06",
		Check: evaluationRecords,
	},
	{
		ID: "GM202", Name: "no-grad-without-effect", Group: "evaluation", Severity: Error,
		Says:    "Gradients are to be switched off, but nothing happens.",
		Cost:    "all activations of what follows are saved as if it were not there",
		Instead: "with torch.no_grad(): …",
		Quiet:   "torch.set_grad_enabled(False), which acts as a statement; @torch.no_grad without parentheses, which works",
		Source:  "PyTorch torch/autograd/grad_mode.py, torch/utils/_contextlib.py, 2.4", Remedy: "R06", Fixes: true,
		Check: noGradWithoutEffect,
	},
	{
		ID: "GM203", Name: "inference-tensor-in-training", Group: "evaluation", Severity: Error,
		Says:    "A tensor made under inference_mode goes into a computation that needs gradients.",
		Cost:    "“Inference tensors cannot be saved for backward”; who then removes the guard records the graph of the teacher too",
		Instead: "torch.no_grad(), or .clone() outside of inference mode",
		Quiet:   "the tensor is cloned, or only added",
		Source:  "PyTorch torch/csrc/autograd/saved_variable.cpp, 2.4; PR huggingface/trl#2987", Remedy: "R06",
		Check: inferenceTensor,
	},
}

func evaluationRecords(p *Pass) {
	for _, f := range append([]*model.FuncInfo{nil}, p.M.Funcs...) {
		if f != nil && (f.GradOff || p.owned(f.Def) || f.Class.Is("torch.nn.Module") && f.Def.Name == "forward" || f.Effects&model.EvalMode == 0 || p.usesGradients(f) || p.callersOff(f)) {
			continue
		}
		var eval *model.Call
		for _, c := range p.calls() {
			if c.In != f {
				continue
			}
			if c.Effect&model.EvalMode != 0 && c.Func == nil && c.Remote == nil {
				eval = c
			}
			if c.Effect&model.TrainMode != 0 || c.Method() == "train" {
				eval = nil
			}
			if eval != nil && p.evaluationForward(f, eval, c) {
				name, how := "this program", "Wrap the loop in torch.no_grad()"
				if f != nil {
					name, how = f.Def.Name, "Wrap the loop in torch.no_grad()"
					if f.Effects&model.Backward == 0 {
						how = "Decorate " + name + " with @torch.inference_mode()"
					}
				}
				p.Report(c.Node, "%s runs the model in this loop with gradients on: each pass saves all activations, and eval() does not change that. %s.", name, how)
				break
			}
		}
	}
}

// evaluationForward reports whether a call runs, in a loop over batches, the
// module that was switched to evaluation, with gradients on and for no
// backward pass.
func (p *Pass) evaluationForward(f *model.FuncInfo, eval, c *model.Call) bool {
	if c.Effect&model.Forward == 0 || c.Effect&model.Backward != 0 || c.Func != nil && (c.Func.GradOff || p.gradOffInside(c.Func)) || c.Remote != nil && c.Remote.GradOff {
		return false
	}
	if c.Grad != model.Yes || p.M.GradMode(c.Node) != model.Yes || !sameModule(p, eval, c) || p.M.Value(c.Node.Fun).Frozen {
		return false
	}
	// if train: net.train() else: net.eval() says nothing about this pass.
	if p.guarded(eval.Node) && !within(p.siblings(p.M.Stmt(eval.Node)), c.Node) {
		return false
	}
	l := p.M.Loop(c.Node)
	for l != nil && l.Bounded {
		l = l.Outer
	}
	if l == nil || l.Effect&model.Backward != 0 || l.Node.Pos() < eval.Node.Pos() && f == nil && p.M.Loop(eval.Node) == nil {
		return false
	}
	if f == nil && p.usesGradientsIn(l.Node) {
		return false
	}
	// A backward after the loop that makes no forward pass of its own is for
	// the outputs of this one.
	for _, b := range p.calls() {
		if b.In != f || b.Effect&model.Backward == 0 || b.Node.Pos() < l.Node.End() {
			continue
		}
		lb := p.M.Loop(b.Node)
		if lb == nil && b.Func == nil || lb != nil && lb.Node.Pos() <= l.Node.Pos() {
			return false
		}
	}
	return true
}

// sameModule reports whether what was switched to evaluation is what is run,
// or what is run is a function that is given it.
func sameModule(p *Pass, eval, run *model.Call) bool {
	a, ok := eval.Node.Fun.(*pysource.Attribute)
	if !ok {
		return false
	}
	key := p.key(a.X)
	fun := run.Node.Fun
	if p.key(fun) == key || strings.HasPrefix(p.key(fun), key+".") {
		return true
	}
	for _, arg := range run.Node.Args {
		if p.key(arg) == key {
			return true
		}
	}
	return run.Func != nil && strings.HasPrefix(key, "self")
}

// gradOffInside reports whether a function switches gradients off for its
// forward passes itself.
func (p *Pass) gradOffInside(f *model.FuncInfo) bool {
	for _, c := range p.calls() {
		if c.In == f && c.Effect&model.Forward != 0 && c.Func == nil && c.Grad == model.Yes {
			return false
		}
	}
	return true
}

// callersOff reports whether some caller has gradients off or may have.
func (p *Pass) callersOff(f *model.FuncInfo) bool {
	for _, c := range f.Callers {
		if c.Grad != model.Yes || c.In != nil && c.In.GradOff || p.M.GradMode(c.Node) != model.Yes {
			return true
		}
		if c.In != nil && c.In != f {
			for _, cc := range c.In.Callers {
				if cc.Grad != model.Yes || cc.In != nil && cc.In.GradOff {
					return true
				}
			}
		}
	}
	return false
}

// usesGradients reports whether a function works with gradients: attacks,
// saliency maps, adaptation at test time.
func (p *Pass) usesGradients(f *model.FuncInfo) bool {
	for _, s := range f.Def.Body {
		if p.usesGradientsIn(s) {
			return true
		}
	}
	return false
}

func (p *Pass) usesGradientsIn(n pysource.Node) bool {
	found := false
	p.inspect(n, func(n pysource.Node) bool {
		switch n := n.(type) {
		case *pysource.Attribute:
			switch n.Name {
			case "grad", "requires_grad_", "requires_grad", "enable_grad", "set_grad_enabled", "jacobian", "vjp", "jvp":
				found = true
			}
		case *pysource.Keyword:
			if n.Name == "requires_grad" || n.Name == "create_graph" {
				found = true
			}
		}
		return !found
	})
	return found
}

func noGradWithoutEffect(p *Pass) {
	is := func(name string) bool {
		switch name {
		case "torch.no_grad", "torch.inference_mode", "torch.enable_grad", "torch.autograd.no_grad":
			return true
		}
		return false
	}
	p.inspectAll(p.File.Body, func(n pysource.Node) bool {
		switch n := n.(type) {
		case *pysource.ExprStmt:
			if c := p.M.Call(n.X); c != nil && is(c.Callee) && c.Func == nil {
				p.Report(n, "%s() as a statement makes a context and drops it: gradients stay as they are and activations are saved. Write `with %s():`.", p.key(c.Node.Fun), p.key(c.Node.Fun))
			}
		case *pysource.With:
			for _, it := range n.Items {
				if v := p.M.Value(it.X); v.Kind == model.Namespace && is(v.Name) {
					p.Report(it.X, "`with %s:` without parentheses raises AttributeError (the class is no context).", p.key(it.X)).
						WithFix("add the parentheses", Edit{it.X.End(), it.X.End(), "()"})
				}
			}
		case *pysource.Call:
			if c := p.M.Call(n); c != nil && (c.Callee == "torch.autograd.Variable" || c.Callee == "torch.autograd.variable.Variable") && p.isTrue(c, "volatile") {
				p.Report(n, "volatile=True has been ignored since PyTorch 0.4: the graph is recorded. Use torch.no_grad().")
			}
		}
		return true
	})
}

func inferenceTensor(p *Pass) {
	p.inspectAll(p.File.Body, func(n pysource.Node) bool {
		w, ok := n.(*pysource.With)
		if !ok || len(w.Items) != 1 {
			return true
		}
		c := p.M.Call(w.Items[0].X)
		if c == nil || c.Callee != "torch.inference_mode" || len(c.Node.Args) > 0 {
			return true
		}
		made := map[string]bool{}
		for _, s := range w.Body {
			if a, ok := s.(*pysource.Assign); ok && p.M.Value(a.Value).May(model.Tensor) && !strings.Contains(p.key(a.Value), ".item()") {
				for _, t := range a.Targets {
					for _, x := range flatten(t) {
						if n, ok := x.(*pysource.Name); ok && p.M.Value(x).May(model.Tensor) {
							made[n.Ident] = true
						}
					}
				}
			}
		}
		if len(made) == 0 {
			return true
		}
		p.inspectScope(w, func(x pysource.Node) bool {
			if x.Pos() < w.End() {
				return true
			}
			if a, ok := x.(*pysource.Assign); ok {
				for _, t := range a.Targets {
					if n, ok := t.(*pysource.Name); ok && made[n.Ident] && !p.uses(a.Value, n.Ident) {
						delete(made, n.Ident)
					}
				}
				if _, m := method(a.Value); m == "clone" {
					for _, t := range a.Targets {
						delete(made, p.key(t))
					}
				}
			}
			b, ok := x.(*pysource.Binary)
			if !ok || b.Op != "*" && b.Op != "/" && b.Op != "@" && b.Op != "**" || p.M.GradMode(b) != model.Yes {
				return true
			}
			for _, pair := range [][2]pysource.Expr{{b.L, b.R}, {b.R, b.L}} {
				if n, ok := pair[0].(*pysource.Name); ok && made[n.Ident] && p.M.Value(pair[1]).HasGraph() {
					p.Report(n, "%s was made under inference_mode() and is saved for backward here: “Inference tensors cannot be saved for backward”. Make it under torch.no_grad().", n.Ident)
					delete(made, n.Ident)
				}
			}
			return true
		})
		return true
	})
}
