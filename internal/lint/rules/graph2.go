package rules

import (
	"strings"

	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

var graphRules2 = []Rule{
	{
		ID: "GM111", Name: "buffer-keeps-graph", Group: "graph", Severity: Warning,
		Says:    "A replay buffer or memory bank takes in tensors with their graph.",
		Cost:    "every entry keeps its graph, all activations in it and its GPU storage for as long as it stays in the buffer; a view keeps the whole tensor",
		Instead: "buffer.append(tuple(t.detach().cpu() for t in items)), with .clone() for a slice",
		Quiet:   "gradients are off; the buffer is cleared or made anew in the file (on-policy methods)",
		Source:  "LLaMA-Factory@1dfb28b; PyTorch docs/source/notes/faq.md", Remedy: "R25",
		Check: bufferKeepsGraph,
	},
	{
		ID: "GM112", Name: "hook-keeps-activations", Group: "graph", Severity: Warning,
		Says:    "A forward hook appends activations to a list.",
		Cost:    "every forward pass adds one activation with its whole graph",
		Instead: "activations[name] = out.detach().cpu()",
		Quiet:   "the activation is detached and the list is cleared, or made anew, in the file",
		Source:  "pytorch/pytorch#46386, jmschrei/tangermeme#84, chr5tphr/zennit#13", Remedy: "R25",
		Check: hookKeeps,
	},
	{
		ID: "GM113", Name: "hook-in-loop", Group: "graph", Severity: Warning,
		Says:    "A module hook is registered in every step and its handle dropped.",
		Cost:    "hooks add up: each step runs all earlier ones, and what their closures hold stays alive",
		Instead: "register once before the loop, keep the handle and call handle.remove()",
		Quiet:   "loops over layers; the handle is kept",
		Source:  "meta-pytorch/opacus#176, hpcaitech/ColossalAI#1183, pytorch/pytorch#82528", Remedy: "R25",
		Check: hookInLoop,
	},
	{
		ID: "GM114", Name: "cache-keeps-tensors", Group: "graph", Severity: Warning,
		Says:    "An unbounded lru_cache keeps tensors, and on a method the whole module, for the life of the process.",
		Cost:    "each new argument adds a tensor; self (all weights) is never freed",
		Instead: "register_buffer(…, persistent=False), or a bounded cache of what is small",
		Quiet:   "functions that return numbers or strings; a bounded maxsize",
		Source:  "flair#2018, flair#3490, kohya-ss/sd-scripts@9aa6f52", Remedy: "R25",
		Check: cacheKeepsTensors,
	},
	{
		ID: "GM115", Name: "retry-in-except", Group: "graph", Severity: Warning,
		Says:    "The retry after an out-of-memory error runs inside the except block.",
		Cost:    "while the block runs, the exception keeps the failed frames and all their tensors: the retry has the least memory of all",
		Instead: "set a flag in the block and retry after it",
		Quiet:   "blocks that only log, raise or set a flag",
		Source:  "PyTorch docs/source/notes/faq.md (“My out of memory exception handler can't allocate memory”), pytorch/pytorch#27600", Remedy: "R25",
		Check: retryInExcept,
	},
	{
		ID: "GM116", Name: "exception-kept", Group: "graph", Severity: Warning,
		Says:    "An exception of a training or inference step is stored.",
		Cost:    "its traceback keeps the frames of the step, and all tensors in them, as long as the exception lives",
		Instead: "keep f\"{type(e).__name__}: {e}\", or e.with_traceback(None)",
		Quiet:   "no forward or backward in the try block",
		Source:  "PR huggingface/trl#5681, keras-team/keras#20779", Remedy: "R25",
		Check: exceptionKept,
	},
	{
		ID: "GM118", Name: "graph-drawn-in-loop", Group: "graph", Severity: Warning,
		Says:    "The graph is drawn or traced in every step.",
		Cost:    "a forward pass and a copy of the graph a step; drawing saves no memory",
		Instead: "draw once, outside of the loop, with one sample",
		Quiet:   "called once, or under a condition",
		Source:  "ultralytics/yolov5#3590", Remedy: "R19m",
		Check: graphDrawn,
	},
}

func bufferKeepsGraph(p *Pass) {
	for _, c := range p.calls() {
		a, ok := c.Node.Fun.(*pysource.Attribute)
		if !ok || a.Name != "append" && a.Name != "push" && a.Name != "add" && a.Name != "store" || len(c.Node.Args) == 0 {
			continue
		}
		l := p.M.Loop(c.Node)
		if l == nil || l.Bounded || p.inNet(c.Node) || p.M.GradMode(c.Node) != model.Yes {
			continue
		}
		// GM102 and GM103 know lists in step and evaluation loops.
		tuple := len(c.Node.Args) > 1
		for _, x := range c.Node.Args {
			if s, ok := x.(*pysource.Sequence); ok && len(s.Elts) > 1 {
				tuple = true
			}
		}
		if !tuple || l.Effect&model.Forward == 0 {
			continue
		}
		key := p.key(a.X)
		cleared := false
		for _, s := range p.File.Body {
			cleared = cleared || p.clearsCall(s, key)
		}
		for o := l; o != nil; o = o.Outer {
			cleared = cleared || p.resets(o, key, c.Node)
		}
		if cleared || p.reachesBackward(c.Node, key) && c.Recv.Kind == model.List && c.Recv.Name != "bounded" {
			continue
		}
		for _, x := range c.Node.Args {
			if p.M.Value(x).HoldsGraph() {
				p.Report(c.Node, "%s takes in tensors with their graph: each entry keeps all activations of its step on the GPU. Store detached copies on the host.", key)
				break
			}
		}
	}
}

// hookFunction returns the parameters and body of what a hook registers.
func (p *Pass) hookFunction(x pysource.Expr) (params []*pysource.Param, body pysource.Node, method bool) {
	switch v := p.M.Value(x); {
	case v.Kind == model.Func && v.Func != nil:
		return v.Func.Def.Params, v.Func.Def, v.Func.Class != nil
	}
	if l, ok := x.(*pysource.Lambda); ok {
		return l.Params, l, false
	}
	return nil, nil, false
}

func hookKeeps(p *Pass) {
	for _, c := range p.calls() {
		if c.Method() != "register_forward_hook" && c.Method() != "register_forward_pre_hook" || len(c.Node.Args) == 0 {
			continue
		}
		params, body, isMethod := p.hookFunction(c.Node.Args[0])
		if isMethod && len(params) > 0 {
			params = params[1:]
		}
		if body == nil || len(params) < 2 {
			continue
		}
		tensors := map[string]bool{}
		for _, q := range params[1:] {
			tensors[q.Name] = true
		}
		p.inspect(body, func(n pysource.Node) bool {
			k, ok := n.(*pysource.Call)
			if !ok || len(k.Args) != 1 {
				return true
			}
			a, ok := k.Fun.(*pysource.Attribute)
			if !ok || a.Name != "append" && a.Name != "extend" {
				return true
			}
			name := ""
			switch x := k.Args[0].(type) {
			case *pysource.Name:
				name = x.Ident
			case *pysource.Subscript:
				name = base(x)
			}
			if !tensors[name] || p.clearedSomewhere(a.X) {
				return true
			}
			p.Report(k, "this forward hook appends %s on every forward pass and nothing clears %s: each pass adds an activation with its graph. Keep .detach().cpu(), and clear the list.", name, p.key(a.X))
			return true
		})
	}
}

// clearedSomewhere reports whether the file clears a container, or makes it
// anew other than once at the top level or in __init__.
func (p *Pass) clearedSomewhere(x pysource.Expr) bool {
	key := p.key(x)
	for _, s := range p.File.Body {
		if p.clearsCall(s, key) {
			return true
		}
	}
	for _, f := range p.M.Funcs {
		if f.Def.Name == "__init__" || !strings.HasPrefix(key, "self.") {
			continue
		}
		for _, s := range f.Def.Body {
			if p.assigns(s, key, nil) {
				return true
			}
		}
	}
	// A list that is local to a function dies with it, unless it is returned.
	if _, ok := x.(*pysource.Name); ok {
		for _, f := range p.M.Funcs {
			local := false
			for _, s := range f.Def.Body {
				local = local || p.assigns(s, key, nil)
			}
			if local {
				return true
			}
		}
		// Called with the name of the layer, or del handled elsewhere.
		return strings.Contains(p.File.Src, "del "+key)
	}
	return false
}

func hookInLoop(p *Pass) {
	for _, c := range p.calls() {
		switch c.Method() {
		case "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook", "register_backward_hook":
		default:
			continue
		}
		l := p.M.Loop(c.Node)
		if l == nil || l.Bounded || !p.discarded(c) || p.guarded(c.Node) {
			continue
		}
		if l.Data || l.Effect&(model.Forward|model.Backward) != 0 && l.Own&(model.Forward|model.Backward) != 0 {
			p.Report(c.Node, "a hook is registered in every round of this loop and never removed: hooks add up and keep what they hold. Register it once before the loop, and call remove() on its handle.")
		}
	}
}

func cacheKeepsTensors(p *Pass) {
	for _, f := range p.M.Funcs {
		for _, d := range f.Def.Decorators {
			unbounded := false
			switch v := p.M.Value(d); {
			case v.Kind == model.Namespace && v.Name == "functools.cache":
				unbounded = true
			case p.M.Call(d) != nil && p.M.Call(d).Callee == "functools.lru_cache":
				unbounded = p.constant(p.M.Call(d).Arg(0, "maxsize")) == "None"
			}
			r := f.Return
			if !unbounded || r == nil || !r.May(model.Tensor) {
				continue
			}
			switch {
			case f.Class.Is("torch.nn.Module"):
				p.Report(d, "this cache keeps self, that is the whole module, and every tensor that %s returned, for the life of the process. Use a buffer (register_buffer(…, persistent=False)).", f.Def.Name)
			case r.OnGPU() || hasParam(f, "device"):
				p.Report(d, "this cache keeps every tensor that %s returned, one for each argument, for the life of the process. Bound it with maxsize.", f.Def.Name)
			}
		}
	}
}

func hasParam(f *model.FuncInfo, name string) bool {
	for _, q := range f.Def.Params {
		if q.Name == name {
			return true
		}
	}
	return false
}

// catchesOOM reports whether a handler is for out-of-memory errors.
func (p *Pass) catchesOOM(h *pysource.Handler) bool {
	if h.Type == nil {
		return false
	}
	for _, t := range flatten(h.Type) {
		switch p.M.Value(t).Name {
		case "torch.OutOfMemoryError":
			return true
		case "RuntimeError":
			text := strings.ToLower(p.File.Text(h))
			if strings.Contains(text, "out of memory") || strings.Contains(text, "outofmemory") {
				return true
			}
		}
	}
	return false
}

func retryInExcept(p *Pass) {
	p.inspectAll(p.File.Body, func(n pysource.Node) bool {
		t, ok := n.(*pysource.Try)
		if !ok {
			return true
		}
		tried := map[string]bool{}
		for _, s := range t.Body {
			for _, c := range p.callsIn(s) {
				if c.Func != nil || c.Effect&(model.Forward|model.Backward) != 0 || c.Callee == "?" {
					tried[p.key(c.Node.Fun)] = true
				}
			}
		}
		fn := p.M.Func(t)
		for _, h := range t.Handlers {
			if !p.catchesOOM(h) || strings.Contains(p.File.Text(h), "clear_frames") || strings.Contains(p.File.Text(h), "__traceback__") {
				continue
			}
			for _, s := range h.Body {
				for _, c := range p.callsIn(s) {
					recursion := fn != nil && c.Func == fn
					if c.Effect&(model.Forward|model.Backward) == 0 && !recursion && !(tried[p.key(c.Node.Fun)] && (c.Func != nil || c.Callee == "?")) {
						continue
					}
					p.Report(c.Node, "this retry runs while the exception still holds the failed frames and all their tensors. Set a flag in the except block, and retry after it.")
					return true
				}
			}
		}
		return true
	})
}

// isOOM reports whether a handler names PyTorch's out-of-memory error.
func (p *Pass) isOOM(h *pysource.Handler) bool {
	for _, t := range flatten(h.Type) {
		if p.M.Value(t).Name == "torch.OutOfMemoryError" {
			return true
		}
	}
	return false
}

func exceptionKept(p *Pass) {
	p.inspectAll(p.File.Body, func(n pysource.Node) bool {
		t, ok := n.(*pysource.Try)
		if !ok {
			return true
		}
		heavy := false
		for _, s := range t.Body {
			heavy = heavy || p.M.EffectOf(s)&(model.Forward|model.Backward) != 0
		}
		for _, h := range t.Handlers {
			if h.Name == "" || !heavy && !(p.imports("torch") && p.isOOM(h)) {
				continue
			}
			isE := func(x pysource.Expr) bool {
				n, ok := x.(*pysource.Name)
				return ok && n.Ident == h.Name
			}
			p.inspectAll(h.Body, func(n pysource.Node) bool {
				kept := ""
				switch s := n.(type) {
				case *pysource.Assign:
					for _, target := range s.Targets {
						if _, ok := target.(*pysource.Attribute); ok && isE(s.Value) {
							kept = p.key(target)
						}
					}
				case *pysource.Call:
					if a, ok := s.Fun.(*pysource.Attribute); ok && a.Name == "append" && len(s.Args) == 1 && isE(s.Args[0]) {
						kept = p.key(a.X)
					}
				}
				if kept != "" {
					p.Report(n, "%s keeps the exception, whose traceback keeps the frames of the failed step and all tensors in them. Keep its text.", kept)
				}
				return true
			})
		}
		return true
	})
}

func graphDrawn(p *Pass) {
	for _, c := range p.calls() {
		switch {
		case c.Callee == "torchviz.make_dot", c.Method() == "add_graph" && (strings.HasSuffix(c.Callee, "SummaryWriter.add_graph") || c.Recv != nil && c.Recv.Kind == model.Unknown),
			c.Callee == "torch.jit.trace", c.Callee == "torchviz.make_dot_from_trace", c.Callee == "torchsummary.summary", c.Callee == "torchinfo.summary":
		default:
			continue
		}
		l := p.M.Loop(c.Node)
		if l == nil || l.Bounded || p.guarded(c.Node) || !(l.Data || l.Effect&(model.Backward|model.Forward) != 0 || strings.HasPrefix(c.Callee, "torchviz.")) {
			continue
		}
		// A module that is made, or taken, anew in each round is drawn once.
		if x := c.Arg(0, "model"); x != nil && p.M.Call(x) == nil || c.Callee == "torch.jit.trace" {
			net := p.M.Value(x)
			if !net.Is(model.Net) || net.Origin != nil && net.Origin.Pos() >= l.Node.Pos() && net.Origin.End() <= l.Node.End() || p.assigns(l.Node, p.key2(x), nil) {
				continue
			}
		}
		p.Report(c.Node, "%s in every round: a forward pass and a copy of the graph each time, and no memory saved. Call it once, outside of the loop, with one sample.", c.Method())
	}
}
