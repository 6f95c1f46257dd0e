package rules

import (
	"strings"

	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

// The two costs of keeping a loss with its graph, which differ a
// thousandfold: after backward() the saved activations are gone and only nodes
// remain (torch-preflight design/rfcs/0003 measured 0 KiB and 186 MiB of
// activations a step, and about 15 KiB of host memory in both cases).
const (
	costNodes       = "after backward() that is graph nodes only, about 15 KiB of host memory a step: a slow leak, not activations"
	costActivations = "without backward() every activation of every step stays alive"
)

var graphRules = []Rule{
	{
		ID: "GM101", Name: "loss-sum-keeps-graph", Group: "graph", Severity: Warning,
		Says:    "A loss is added up with its graph, so each step hangs on all earlier ones.",
		Cost:    "per step: graph nodes (about 15 KiB of host memory) where backward() ran on the loss, all activations of the step where it did not",
		Instead: "total += loss.detach() (no synchronisation), or loss.item()",
		Quiet:   "gradients are off; the sum is reset in the loop (running losses of an accumulation); backward runs on the sum; loops of a known small number of rounds",
		Source:  "PyTorch docs/source/notes/faq.md; fairseq#1195, ray#40940, google/brax#152", Remedy: "R25",
		Check: lossSum,
	},
	{
		ID: "GM102", Name: "log-keeps-graph", Group: "graph", Severity: Warning,
		Says:    "A list or dictionary that outlives the step keeps a tensor with its graph.",
		Cost:    "per step: graph nodes where backward() ran on it, all activations of the step where it did not; .cpu() copies the value and keeps the graph",
		Instead: "losses.append(loss.item()), or loss.detach()",
		Quiet:   "the container is made anew or cleared in the loop; gradients are off",
		Source:  "PR huggingface/trl#1531, NVIDIA/Megatron-LM#5067, Lightning-AI/pytorch-lightning#8453", Remedy: "R25",
		Check: logKeepsGraph,
	},
	{
		ID: "GM103", Name: "outputs-collected", Group: "graph", Severity: Warning,
		Says:    "The outputs of all batches are collected on the GPU, or with their graphs.",
		Cost:    "number of batches × bytes of one output for the whole evaluation; with gradients on, also every activation of every batch",
		Instead: "under torch.inference_mode(): preds.append(model(x).argmax(-1).cpu())",
		Quiet:   "what is kept was reduced or moved to the host; short loops within a model; the list is cleared",
		Source:  "sktime/pytorch-forecasting#2224, pytorch/pytorch#16417, LLaMA-Factory@1dfb28b", Remedy: "R06",
		Check: outputsCollected,
	},
	{
		ID: "GM104", Name: "cat-in-loop", Group: "graph", Severity: Warning,
		Says:    "A tensor grows by torch.cat in a loop.",
		Cost:    "every step copies all that came before and needs old and new at once; ever larger blocks leave holes that fit nothing",
		Instead: "collect pieces in a list on the host and call torch.cat once",
		Quiet:   "tensors on the CPU; loops of a known small number of rounds; key-value caches within a model",
		Source:  "pytorch/ignite#967", Remedy: "R25",
		Check: catInLoop,
	},
	{
		ID: "GM105", Name: "state-not-detached", Group: "graph", Severity: Error,
		Says:    "A recurrent state goes from step to step with its graph.",
		Cost:    "the second backward() raises “Trying to backward through the graph a second time”; with retain_graph=True memory grows with the number of steps",
		Instead: "h = h.detach() after the step",
		Quiet:   "the state is assigned otherwise in the loop; backward runs once after the loop",
		Source:  "PyTorch docs/source/notes/faq.md; pytorch/pytorch#2198", Remedy: "R25",
		Check: stateNotDetached,
	},
	{
		ID: "GM106", Name: "retain-graph", Group: "graph", Severity: Warning,
		Says:    "backward(retain_graph=True) without a second backward over the graph.",
		Cost:    "the activations of a step live until the last name of the graph is gone: through the next forward pass",
		Instead: "loss.backward(), or one backward over the sum of the losses",
		Quiet:   "another backward or autograd.grad follows in the function",
		Source:  "PyTorch torch/csrc/autograd/engine.cpp (release_variables), 2.4; pytorch/pytorch#2198", Remedy: "R25",
		Check: retainGraph,
	},
	{
		ID: "GM107", Name: "backward-create-graph", Group: "graph", Severity: Warning,
		Says:    "backward(create_graph=True) makes each parameter and its gradient refer to each other.",
		Cost:    "one whole graph with its activations a call, freed by nobody: a leak",
		Instead: "torch.autograd.grad(loss, parameters, create_graph=True)",
		Quiet:   "the gradients are set to None in the function",
		Source:  "PyTorch torch/csrc/autograd/engine.cpp:1204, 2.4 (“will create a reference cycle”); pytorch/pytorch#1346", Remedy: "R25",
		Check: createGraph,
	},
	{
		ID: "GM109", Name: "average-keeps-graph", Group: "graph", Severity: Warning,
		Says:    "A running average is updated with gradients on.",
		Cost:    "the new value hangs on all old ones: every step adds its graph, with all activations where no backward frees them",
		Instead: "under torch.no_grad(), or average.lerp_(value.detach(), weight)",
		Quiet:   "the value is detached; the average is reset in the loop; backward runs on it",
		Source:  "fairseq#3384, yolov5#9056, NVIDIA/Megatron-LM@72171c0", Remedy: "R25",
		Check: averageKeepsGraph,
	},
	{
		ID: "GM110", Name: "tensor-on-ctx", Group: "graph", Severity: Warning,
		Says:    "forward of an autograd.Function keeps an input or output as an attribute of ctx.",
		Cost:    "node, tensor and graph refer to each other: the tensor of every call stays until the cyclic collector finds it, and backward() does not free it",
		Instead: "ctx.save_for_backward(x)",
		Quiet:   "numbers, shapes, devices; tensors that are neither input nor output",
		Source:  "pytorch/pytorch#5569, #25340", Remedy: "R25",
		Check: tensorOnCtx,
	},
}

// lossSum: total += loss, total = total + loss.
func lossSum(p *Pass) {
	p.inspectAll(p.File.Body, func(n pysource.Node) bool {
		var target, added pysource.Expr
		switch s := n.(type) {
		case *pysource.AugAssign:
			if s.Op == "+" {
				target, added = s.Target, s.Value
			}
		case *pysource.Assign:
			if b, ok := s.Value.(*pysource.Binary); ok && b.Op == "+" && len(s.Targets) == 1 {
				switch p.key(s.Targets[0]) {
				case p.key(b.L):
					target, added = s.Targets[0], b.R
				case p.key(b.R):
					target, added = s.Targets[0], b.L
				}
			}
		}
		if target == nil || !p.M.Value(added).HasGraph() || p.M.GradMode(n) != model.Yes {
			return true
		}
		key := p.key(target)
		if l := p.growth(n, key); l != nil {
			p.Report(n, "%s adds up %s with its graph over the steps of this loop: %s. %s",
				key, p.short(added), p.keptCost(l, added), p.detached("Add", added))
		} else if caller := p.meter(n, target); caller != nil {
			line, _ := p.File.Position(caller.Node.Pos())
			p.Report(n, "%s adds up %s, which line %d gives with its graph in every step: %s. Pass a detached value (or .item()) there.",
				key, p.short(added), line, p.keptCost(p.M.Loop(caller.Node), added))
		}
		return true
	})
}

// meter returns the call, in a step loop, that lets a sum in an attribute grow:
// meter.update(loss), where update adds to self.sum.
func (p *Pass) meter(n pysource.Node, target pysource.Expr) *model.Call {
	a, ok := target.(*pysource.Attribute)
	f := p.M.Func(n)
	if !ok || f == nil || f.Class == nil || p.inNet(n) || p.key(a.X) != "self" || p.M.Loop(n) != nil {
		return nil
	}
	for _, c := range f.Callers {
		l := p.M.Loop(c.Node)
		if l == nil || l.Bounded || !p.stepLoop(l) || p.M.GradMode(c.Node) != model.Yes {
			continue
		}
		made := ""
		if recv := receiver(c); recv != nil {
			made = p.key(recv)
		}
		if made == "" || p.resets(l, made, c.Node) {
			continue
		}
		for _, x := range c.Node.Args {
			if p.M.Value(x).HasGraph() {
				return c
			}
		}
	}
	return nil
}

// detached says to detach an expression, by its source where that is short.
func (p *Pass) detached(verb string, x pysource.Expr) string {
	if s := p.short(x); len(s) <= 30 && !strings.Contains(s, "…") {
		return verb + " " + s + ".detach() or .item()."
	}
	return verb + " it detached, or .item()."
}

// short is the source of an expression for a message.
func (p *Pass) short(x pysource.Node) string {
	s := strings.Join(strings.Fields(p.File.Text(x)), " ")
	if r := []rune(s); len(r) > 40 {
		return string(r[:37]) + "…"
	}
	return s
}

// keptCost says what keeping x in the loop costs: much less once backward has
// run on it or on something that it is part of.
func (p *Pass) keptCost(l *model.Loop, x pysource.Expr) string {
	for _, c := range p.callsIn(l.Node) {
		if c.Effect&model.Backward != 0 {
			return costNodes
		}
	}
	return costActivations
}

// logKeepsGraph: losses.append(loss), logs["x"] = loss within a step loop.
func logKeepsGraph(p *Pass) {
	p.kept(func(at pysource.Node, container, value pysource.Expr) {
		l := p.growth(at, p.key(container))
		if l == nil || p.M.GradMode(at) != model.Yes || !p.M.Value(value).HoldsGraph() {
			return
		}
		if l.Effect&model.Backward == 0 && !p.M.Value(value).Reduced() {
			return // GM103
		}
		p.Report(at, "%s keeps %s with its graph beyond the step: %s. %s",
			p.key(container), p.short(value), p.keptCost(l, value), p.detached("Keep", value))
	})
}

// outputsCollected: outputs.append(model(x)) in an evaluation loop.
func outputsCollected(p *Pass) {
	p.kept(func(at pysource.Node, container, value pysource.Expr) {
		v := p.M.Value(value)
		if !v.May(model.Tensor) || v.Reduced() {
			return
		}
		l := p.growth(at, p.key(container))
		if l == nil || l.Effect&model.Backward != 0 || !l.Data && p.carried(l, value) {
			return
		}
		switch {
		case v.HasGraph() && p.M.GradMode(at) == model.Yes:
			p.Report(at, "%s collects %s of every batch with its graph: all activations of all batches stay alive. Evaluate under torch.inference_mode() and keep .cpu().",
				p.key(container), p.short(value))
		case v.OnGPU():
			p.Report(at, "%s collects %s of every batch on the GPU: number of batches × one output, until the end. Reduce it first (argmax, loss) or keep .cpu().",
				p.key(container), p.short(value))
		}
	})
}

// carried reports whether the value comes from a call that passes its own
// results on from round to round: the time steps of one sequence, not batches.
func (p *Pass) carried(l *model.Loop, value pysource.Expr) bool {
	found := false
	p.inspect(l.Node, func(n pysource.Node) bool {
		a, ok := n.(*pysource.Assign)
		if !ok || len(a.Targets) != 1 {
			return !found
		}
		if c := p.M.Call(a.Value); c == nil || c.Effect&model.Forward == 0 {
			return !found
		}
		for _, t := range flatten(a.Targets[0]) {
			if p.uses(a.Value, p.key(t)) {
				found = true
			}
		}
		return !found
	})
	return found
}

// kept calls f for each place where a container takes in a value: append,
// extend, add, +=, and list comprehensions are not among them.
func (p *Pass) kept(f func(at pysource.Node, container, value pysource.Expr)) {
	for _, c := range p.calls() {
		a, ok := c.Node.Fun.(*pysource.Attribute)
		if !ok || len(c.Node.Args) != 1 {
			continue
		}
		switch a.Name {
		case "append", "appendleft", "add", "extend":
		default:
			continue
		}
		if c.Recv == nil || c.Recv.Name == "bounded" {
			continue
		}
		if k := c.Recv.Kind; k == model.List || k == model.Set || a.Name == "append" && (k == model.Unknown || k == model.Dict) {
			f(c.Node, a.X, c.Node.Args[0])
		}
	}
	p.inspectAll(p.File.Body, func(n pysource.Node) bool {
		if s, ok := n.(*pysource.AugAssign); ok && s.Op == "+" && p.M.Value(s.Target).Is(model.List) {
			if q, ok := s.Value.(*pysource.Sequence); ok && len(q.Elts) == 1 {
				f(s, s.Target, q.Elts[0])
			}
		}
		return true
	})
}

func catInLoop(p *Pass) {
	p.inspectAll(p.File.Body, func(n pysource.Node) bool {
		s, ok := n.(*pysource.Assign)
		if !ok || len(s.Targets) != 1 {
			return true
		}
		c := p.M.Call(s.Value)
		if c == nil || c.Callee != "torch.cat" && c.Callee != "torch.concat" && c.Callee != "torch.vstack" && c.Callee != "torch.hstack" {
			return true
		}
		list, ok := c.Arg(0, "tensors").(*pysource.Sequence)
		if !ok || len(list.Elts) < 2 {
			return true
		}
		key := p.key(s.Targets[0])
		self := p.key(list.Elts[0]) == key || p.key(list.Elts[len(list.Elts)-1]) == key
		if !self {
			return true
		}
		v := p.M.Value(s.Value)
		added := list.Elts[1]
		if p.key(added) == key {
			added = list.Elts[0]
		}
		av := p.M.Value(added)
		_, called := added.(*pysource.Call)
		onGPU := v.Dev == "cuda" && called && av.Kind == model.Unknown
		if av.Dev == "cpu" || v.Dev == "cpu" || av.Reduced() || !av.May(model.Tensor) && !onGPU || p.inNet(n) {
			return true
		}
		for l := p.M.Loop(n); l != nil; l = l.Outer {
			if p.resets(l, key, n) || l.Bounded {
				return true
			}
			f, isFor := l.Node.(*pysource.For)
			if l.Data || p.evaluates(l) || l.Effect&model.Backward != 0 || onGPU && isFor && p.M.Value(f.Iter).Name != "range" {
				p.Report(s, "%s grows by torch.cat in every round: all of it is copied each time and old and new are alive together. Collect the pieces in a list (on the host) and cat once.", key)
				return true
			}
		}
		return true
	})
}

func stateNotDetached(p *Pass) {
	for _, c := range p.calls() {
		if c.Effect&model.Forward == 0 || c.Func != nil {
			continue
		}
		l := p.M.Loop(c.Node)
		if l == nil || l.Bounded || l.Own&model.Backward == 0 || p.M.GradMode(c.Node) != model.Yes {
			continue
		}
		a, ok := p.File.Parent(c.Node).(*pysource.Assign)
		if !ok || len(a.Targets) != 1 {
			continue
		}
		if !p.carriesState(c) {
			continue
		}
		for _, t := range flatten(a.Targets[0]) {
			name, ok := t.(*pysource.Name)
			if !ok || !p.passed(c, name.Ident) || p.assigns(l.Node, name.Ident, a) || p.detachedInPlace(l.Node, name.Ident) {
				continue
			}
			p.Report(name, "%s goes into the next step with the graph of this one: the next backward() fails, or with retain_graph=True memory grows with each step. Detach it after the step.", name.Ident)
		}
	}
}

// carriesState reports whether the module returns its state with the graph: a
// recurrent layer, or a class of this file that detaches nothing.
func (p *Pass) carriesState(c *model.Call) bool {
	var net *model.Value
	if a, ok := c.Node.Fun.(*pysource.Attribute); ok {
		net = p.M.Value(a)
	} else {
		net = p.M.Value(c.Node.Fun)
	}
	switch net.Name {
	case "torch.nn.RNN", "torch.nn.LSTM", "torch.nn.GRU", "torch.nn.LSTMCell", "torch.nn.RNNCell", "torch.nn.GRUCell":
		return true
	}
	if net.Class == nil {
		return false
	}
	f := net.Class.Methods["forward"]
	return f != nil && !strings.Contains(p.File.Text(net.Class.Def), "detach") && !strings.Contains(p.File.Text(net.Class.Def), "no_grad")
}

func (p *Pass) passed(c *model.Call, name string) bool {
	for _, a := range c.Node.Args {
		if n, ok := a.(*pysource.Name); ok && n.Ident == name {
			return true
		}
	}
	return false
}

func (p *Pass) detachedInPlace(n pysource.Node, key string) bool {
	found := false
	for _, c := range p.callsIn(n) {
		if c.Method() == "detach_" {
			found = found || p.uses(c.Node, key)
		}
	}
	return found
}

// isTrue reports whether the keyword of a call is the constant True.
func (p *Pass) isTrue(c *model.Call, name string) bool {
	k := keyword(c.Node, name)
	return k != nil && p.constant(k.Value) == "True"
}

func retainGraph(p *Pass) {
	for _, c := range p.calls() {
		if c.Effect&model.Backward == 0 || c.Func != nil || !p.isTrue(c, "retain_graph") || p.isTrue(c, "create_graph") {
			continue
		}
		others := 0
		for _, o := range p.scopeCalls(c.Node) {
			if o != c && (o.Effect&model.Backward != 0 || o.Callee == "torch.autograd.grad" || o.Method() == "grad") {
				others++
			}
		}
		l := p.M.Loop(c.Node)
		// In a loop without a step, the next round's backward may need the graph.
		if others > 0 || l != nil && l.Own&model.Step == 0 || l == nil && !p.steps(c) {
			continue
		}
		if c.In != nil && strings.Contains(p.File.Text(c.In.Def), ".grad") && strings.Contains(p.File.Text(c.In.Def), "autograd") {
			continue
		}
		p.Report(c.Node, "retain_graph=True with no second backward over this graph: the activations of this step stay alive through the next forward pass. Leave it out, or call backward once on the sum of the losses.")
	}
}

// steps reports whether an optimizer steps after a call in its scope.
func (p *Pass) steps(c *model.Call) bool {
	for _, o := range p.scopeCalls(c.Node) {
		if o.In == c.In && o.Effect&model.Step != 0 && o.Node.Pos() > c.Node.Pos() {
			return true
		}
	}
	return false
}

func createGraph(p *Pass) {
	for _, c := range p.calls() {
		if c.Effect&model.Backward == 0 || c.Func != nil || !p.isTrue(c, "create_graph") {
			continue
		}
		cured := false
		for _, o := range p.scopeCalls(c.Node) {
			if o.Effect&model.ZeroGrad != 0 && o.Node.Pos() > c.Node.Pos() {
				cured = true
			}
			// In a loop, the zero_grad of the next round sets them to None.
			if l := p.M.Loop(c.Node); o.Effect&model.ZeroGrad != 0 && l != nil && p.M.Loop(o.Node) == l {
				cured = true
			}
		}
		p.inspectScope(c.Node, func(n pysource.Node) bool {
			if a, ok := n.(*pysource.Assign); ok && p.M.Value(a.Value).Kind == model.None {
				for _, t := range a.Targets {
					if at, ok := t.(*pysource.Attribute); ok && at.Name == "grad" {
						cured = true
					}
				}
			}
			return true
		})
		if !cured {
			p.Report(c.Node, "backward(create_graph=True) leaves parameter and gradient referring to each other: the whole graph of each call leaks. Use torch.autograd.grad(…, create_graph=True), or set the gradients to None afterwards.")
		}
	}
}

// averageKeepsGraph: running = running * 0.9 + 0.1 * out.mean().
func averageKeepsGraph(p *Pass) {
	p.inspectAll(p.File.Body, func(n pysource.Node) bool {
		s, ok := n.(*pysource.Assign)
		if !ok || len(s.Targets) != 1 || p.M.GradMode(n) != model.Yes {
			return true
		}
		b, ok := s.Value.(*pysource.Binary)
		if !ok || b.Op != "+" && b.Op != "-" {
			return true
		}
		key := p.key(s.Targets[0])
		if p.key(b.L) == key || p.key(b.R) == key || !p.uses(b, key) || !p.decays(b, key) {
			return true
		}
		other := b.R
		if p.uses(b.R, key) {
			other = b.L
		}
		if !p.M.Value(other).HasGraph() {
			return true
		}
		l := p.growth(n, key)
		if l == nil {
			return true
		}
		p.Report(s, "%s is a running value that keeps the graph of every step: %s. Update it under torch.no_grad() or with a detached value.", key, p.keptCost(l, other))
		return true
	})
}

// decays reports whether the sum multiplies the variable by a factor.
func (p *Pass) decays(b *pysource.Binary, key string) bool {
	for _, side := range []pysource.Expr{b.L, b.R} {
		if m, ok := side.(*pysource.Binary); ok && m.Op == "*" && (p.key(m.L) == key || p.key(m.R) == key) {
			return true
		}
	}
	return false
}

func tensorOnCtx(p *Pass) {
	for _, class := range p.M.Classes {
		if !class.Is("torch.autograd.Function") {
			continue
		}
		f := class.Methods["forward"]
		if f == nil || f.Class != class || len(f.Def.Params) < 2 {
			continue
		}
		ctx := f.Def.Params[0].Name
		returned := map[string]bool{}
		p.inspectAll(f.Def.Body, func(n pysource.Node) bool {
			if r, ok := n.(*pysource.Return); ok && r.X != nil {
				for _, x := range flatten(r.X) {
					if n, ok := x.(*pysource.Name); ok {
						returned[n.Ident] = true
					}
				}
			}
			return true
		})
		p.inspectAll(f.Def.Body, func(n pysource.Node) bool {
			a, ok := n.(*pysource.Assign)
			if !ok || len(a.Targets) != 1 {
				return true
			}
			t, ok := a.Targets[0].(*pysource.Attribute)
			name, isName := a.Value.(*pysource.Name)
			if !ok || !isName || base(t.X) != ctx || p.key(t.X) != ctx {
				return true
			}
			switch {
			case returned[name.Ident] && !isParam(f.Def, name.Ident) && (p.M.Value(name).Kind == model.Unknown || p.M.Value(name).May(model.Tensor)):
				p.Report(a, "the output %s is kept on %s: node and tensor refer to each other, so the result of every call lives until the cyclic collector runs. Use %s.save_for_backward(%s).", name.Ident, ctx, ctx, name.Ident)
			case isParam(f.Def, name.Ident) && p.usedAsTensor(f.Def, name.Ident):
				p.Report(a, "the input %s is kept on %s: backward() does not free it. Use %s.save_for_backward(%s).", name.Ident, ctx, ctx, name.Ident)
			}
			return true
		})
	}
}

func isParam(f *pysource.Function, name string) bool {
	for _, q := range f.Params[1:] {
		if q.Name == name && q.Default == nil {
			return true
		}
	}
	return false
}

// usedAsTensor reports whether a parameter is used as only a tensor is.
func (p *Pass) usedAsTensor(f *pysource.Function, name string) bool {
	found := false
	p.inspectAll(f.Body, func(n pysource.Node) bool {
		a, ok := n.(*pysource.Attribute)
		if !ok {
			return true
		}
		if x, ok := a.X.(*pysource.Name); ok && x.Ident == name {
			switch a.Name {
			case "shape", "size", "new", "clone", "view", "detach", "contiguous", "new_zeros", "new_empty", "exp", "clamp", "sum", "mean",
				"pow", "sqrt", "device", "dtype", "unsqueeze", "permute", "transpose", "type", "is_cuda", "t", "mm", "matmul", "sigmoid", "tanh", "abs", "numel", "sign":
				found = true
			}
		}
		return !found
	})
	return found
}
