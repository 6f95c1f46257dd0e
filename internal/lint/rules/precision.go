package rules

import (
	"strings"

	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

var precisionRules = []Rule{
	{
		ID: "GM401", Name: "clip-scaled", Group: "precision", Severity: Error,
		Says:    "Gradients are clipped while they are still scaled.",
		Cost:    "the threshold is compared with gradients × 65,536: everything is clipped (a correctness fault)",
		Instead: "scaler.unscale_(optimizer) before the clip",
		Quiet:   "a threshold multiplied by get_scale(); a scaler that is switched off",
		Source:  "PyTorch docs/source/notes/amp_examples.md; pytorch/examples#1196", Remedy: "R05",
		Check: clipScaled,
	},
	{
		ID: "GM402", Name: "scaler-order", Group: "precision", Severity: Error,
		Says:    "The gradient scaler's calls are incomplete or out of order.",
		Cost:    "scaled gradients are applied, or “No inf checks were recorded prior to update” (a correctness fault)",
		Instead: "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()",
		Quiet:   "branches without a scaler; wrappers",
		Source:  "PyTorch torch/amp/grad_scaler.py:260,328,452,511, 2.4; accelerate#641", Remedy: "R05",
		Check: scalerOrder,
	},
	{
		ID: "GM403", Name: "old-amp-spelling", Group: "precision", Severity: Info,
		Says:    "torch.cuda.amp is the old spelling of torch.amp.",
		Cost:    "a FutureWarning since 2.4; no memory",
		Instead: "torch.amp.autocast(\"cuda\"), torch.amp.GradScaler(\"cuda\")",
		Quiet:   "imports in try, of projects that support older versions",
		Source:  "PyTorch docs/source/amp.md; TorchFix TOR101", Remedy: "R03", Fixes: true,
		Check: oldAmp,
	},
	{
		ID: "GM404", Name: "backward-in-autocast", Group: "precision", Severity: Warning,
		Says:    "backward() runs within autocast.",
		Cost:    "the copies of the weights in 16 bits (2 bytes per weight) stay until the region ends: through the backward pass",
		Instead: "end the region after the loss",
		Quiet:   "backward within backward (gradient penalties)",
		Source:  "PyTorch docs/source/amp.md (“Backward ops … not recommended under autocast”)", Remedy: "R03",
		Check: backwardInAutocast,
	},
	{
		ID: "GM405", Name: "half-weights-trained", Group: "precision", Severity: Error,
		Says:    "Weights in float16 are trained directly.",
		Cost:    "Adam's eps is 0 in float16: NaN; with a scaler “Attempting to unscale FP16 gradients.”",
		Instead: "weights in float32 with autocast, or in bfloat16",
		Quiet:   "inference; DeepSpeed, Apex and fairseq, which keep float32 copies; adapters on a frozen base",
		Source:  "PyTorch torch/amp/grad_scaler.py:260, 2.4; pytorch/pytorch#74739", Remedy: "R04",
		Check: halfTrained,
	},
	{
		ID: "GM406", Name: "scaler-with-bf16", Group: "precision", Severity: Info,
		Says:    "A gradient scaler is used with bfloat16.",
		Cost:    "a synchronisation each step, and no gain in memory",
		Instead: "loss.backward() without a scaler",
		Quiet:   "a scaler that is enabled for float16 only",
		Source:  "PyTorch docs/source/amp.md", Remedy: "R05",
		Check: scalerBF16,
	},
	{
		ID: "GM407", Name: "logits-upcast", Group: "precision", Severity: Warning,
		Says:    "Language-model logits are copied to float32 before the loss.",
		Cost:    "4 bytes × batch × sequence × vocabulary for the copy (4 GiB for 8,192 × 128k), and a softmax and a gradient of the same size",
		Instead: "torch.nn.functional.linear_cross_entropy (2.13), a chunked or fused loss; autocast computes the loss in float32 anyway",
		Quiet:   "logits that are not flattened by a vocabulary; single rows",
		Source:  "PR pytorch/torchtitan#996, PR huggingface/trl#2799", Remedy: "R37",
		Check: logitsUpcast,
	},
	{
		ID: "GM408", Name: "autocast-without-effect", Group: "precision", Severity: Error,
		Says:    "autocast is given a type or device with which it does nothing.",
		Cost:    "nothing is saved: all activations stay in float32",
		Instead: "torch.autocast(\"cuda\", dtype=torch.bfloat16)",
		Quiet:   "enabled=False; regions in float32 within another region",
		Source:  "PyTorch torch/amp/autocast_mode.py:258-335, 2.4", Remedy: "R03",
		Check: autocastWithoutEffect,
	},
}

func isAutocast(callee string) bool {
	switch callee {
	case "torch.amp.autocast", "torch.cuda.amp.autocast", "torch.cpu.amp.autocast":
		return true
	}
	return false
}

// scalerCalls returns the calls on scalers in the function around n.
func (p *Pass) scalerCalls(n pysource.Node, name string) []*model.Call {
	var out []*model.Call
	for _, c := range p.scopeCalls(n) {
		if c.Recv.Is(model.Scaler) && c.Method() == name {
			out = append(out, c)
		}
	}
	return out
}

// disabled reports whether a scaler is made with enabled=False.
func (p *Pass) scalerOff(recv *model.Value) bool {
	if recv == nil {
		return false
	}
	c, ok := recv.Origin.(*pysource.Call)
	if !ok {
		return false
	}
	k := keyword(c, "enabled")
	return k != nil && p.constant(k.Value) == "False"
}

func clipScaled(p *Pass) {
	for _, clip := range p.calls() {
		if clip.Effect&model.Clip == 0 || clip.Func != nil || p.owned(clip.Node) || strings.Contains(p.key(clip.Node), "scale") {
			continue
		}
		steps := p.scalerCalls(clip.Node, "step")
		scales := p.scalerCalls(clip.Node, "scale")
		if len(steps) == 0 || len(scales) == 0 || len(p.scalerCalls(clip.Node, "unscale_")) > 0 || p.mentions("unscale_") {
			continue
		}
		stmt := p.M.Stmt(clip.Node)
		block := p.siblings(stmt)
		before, after := false, false
		for _, s := range scales {
			before = before || s.Node.Pos() < clip.Node.Pos() && within(block, s.Node) && !p.scalerOff(s.Recv)
		}
		for _, s := range steps {
			after = after || s.Node.Pos() > clip.Node.Pos() && within(block, s.Node)
		}
		if before && after {
			p.Report(clip.Node, "the gradients are still multiplied by the scale (65,536 at the start): this clips everything (a correctness fault). Call unscale_(optimizer) on the scaler first.")
		}
	}
}

func within(block []pysource.Stmt, n pysource.Node) bool {
	for _, s := range block {
		if n.Pos() >= s.Pos() && n.End() <= s.End() {
			return true
		}
	}
	return false
}

func scalerOrder(p *Pass) {
	seen := map[*model.FuncInfo]bool{}
	for _, scale := range p.calls() {
		if !scale.Recv.Is(model.Scaler) || scale.Method() != "scale" || seen[scale.In] || p.scalerOff(scale.Recv) {
			continue
		}
		if p.methodOn(scale.Node) != "backward" {
			continue
		}
		seen[scale.In] = true
		steps := p.scalerCalls(scale.Node, "step")
		updates := p.scalerCalls(scale.Node, "update")
		block := p.siblings(p.M.Stmt(scale.Node))
		if len(steps) == 0 {
			if p.hasScalerMethod("step") || p.passesScaler(scale) {
				continue // in another function
			}
			for _, s := range p.scopeCalls(scale.Node) {
				if s.Effect&model.Step != 0 && s.Remote == nil && s.Recv != nil && (s.Recv.Is(model.Optimizer) || s.Recv.Kind == model.Unknown) && s.Func == nil && s.Node.Pos() > scale.Node.Pos() && within(block, s.Node) && !p.guarded(scale.Node) && len(s.Node.Args) == 0 {
					p.Report(s.Node, "the loss was scaled, and this step applies the scaled gradients (× 65,536) without a check for infinities. Call step(optimizer) on the scaler.")
				}
			}
			continue
		}
		if len(updates) == 0 && !p.hasScalerMethod("update") && !p.passesScaler(scale) {
			p.Report(steps[0].Node, "update() of the scaler is never called: the scale never adapts, and unscale_() fails in the next step. Call it after step().")
			continue
		}
		for _, u := range updates {
			ub := p.siblings(p.M.Stmt(u.Node))
			for _, s := range steps {
				if within(ub, s.Node) && u.Node.Pos() < s.Node.Pos() && len(steps) == 1 && len(updates) == 1 && p.M.Loop(u.Node) == p.M.Loop(s.Node) && scale.Node.Pos() < u.Node.Pos() {
					p.Report(u.Node, "update() before step(): “No inf checks were recorded prior to update.” Step first.")
				}
			}
		}
	}
}

func (p *Pass) hasScalerMethod(name string) bool {
	for _, c := range p.calls() {
		if c.Method() == name && (c.Recv.Is(model.Scaler) || c.Recv != nil && c.Recv.Kind == model.Unknown && name == "update") {
			return true
		}
	}
	return false
}

// passesScaler reports whether the scaler is given to something else.
func (p *Pass) passesScaler(scale *model.Call) bool {
	for _, c := range p.calls() {
		for _, a := range c.Node.Args {
			if p.M.Value(a).Is(model.Scaler) {
				return true
			}
		}
	}
	return false
}

func oldAmp(p *Pass) {
	p.inspectAll(p.File.Body, func(n pysource.Node) bool {
		switch n := n.(type) {
		case *pysource.Try:
			return false // a fallback for older versions
		case *pysource.Import:
			if !n.IsFrom || n.Module != "torch.cuda.amp" && n.Module != "torch.cpu.amp" || n.Level > 0 {
				return true
			}
			f := p.Report(n, "%s is the old spelling (FutureWarning since 2.4): import from torch.amp and give the device as the first argument. It changes no memory.", n.Module)
			if edits, ok := p.ampEdits(n); ok {
				f.WithFix("import from torch.amp and pass \"cuda\"", edits...)
			}
		case *pysource.Call:
			c := p.M.Call(n)
			a, ok := n.Fun.(*pysource.Attribute)
			if c == nil || !ok || c.Callee != "torch.cuda.amp.autocast" && c.Callee != "torch.cuda.amp.GradScaler" {
				return true
			}
			f := p.Report(n, "%s is the old spelling (FutureWarning since 2.4) of torch.amp.%s(\"cuda\", …). It changes no memory.", p.key(a), a.Name)
			if p.key(a.X) == "torch.cuda.amp" && (a.Name == "GradScaler" || len(n.Args) == 0) {
				f.WithFix("use torch.amp with \"cuda\"", Edit{a.X.Pos(), a.X.End(), "torch.amp"}, p.insertArg(n, `"cuda"`))
			}
		}
		return true
	})
}

// insertArg inserts a first argument into a call.
func (p *Pass) insertArg(c *pysource.Call, arg string) Edit {
	open := c.Fun.End() + strings.IndexByte(p.File.Src[c.Fun.End():c.End()], '(') + 1
	if len(c.Args) > 0 || len(c.Keywords) > 0 {
		arg += ", "
	}
	return Edit{open, open, arg}
}

// appendArg inserts a last argument into a call.
func (p *Pass) appendArg(c *pysource.Call, arg string) Edit {
	at := c.End() - 1
	last := -1
	for _, a := range c.Args {
		last = max(last, a.End())
	}
	for _, k := range c.Keywords {
		last = max(last, k.End())
	}
	if last < 0 {
		return Edit{at, at, arg}
	}
	return Edit{last, last, ", " + arg}
}

// ampEdits rewrites `from torch.cuda.amp import …` and all uses, where each is
// a call that can take the device.
func (p *Pass) ampEdits(imp *pysource.Import) ([]Edit, bool) {
	if imp.Module != "torch.cuda.amp" {
		return nil, false
	}
	at := strings.Index(p.File.Src[imp.Pos():imp.End()], "torch.cuda.amp")
	edits := []Edit{{imp.Pos() + at, imp.Pos() + at + len("torch.cuda.amp"), "torch.amp"}}
	names := map[string]string{}
	for _, a := range imp.Names {
		if a.Name != "autocast" && a.Name != "GradScaler" {
			return nil, false
		}
		bound := a.Name
		if a.As != "" {
			bound = a.As
		}
		names[bound] = a.Name
	}
	ok := true
	p.inspectAll(p.File.Body, func(n pysource.Node) bool {
		x, isName := n.(*pysource.Name)
		if !isName || names[x.Ident] == "" {
			return true
		}
		call, isCall := p.File.Parent(x).(*pysource.Call)
		if !isCall || call.Fun != pysource.Expr(x) || names[x.Ident] == "autocast" && len(call.Args) > 0 {
			ok = false
			return false
		}
		edits = append(edits, p.insertArg(call, `"cuda"`))
		return true
	})
	return edits, ok
}

func backwardInAutocast(p *Pass) {
	for _, c := range p.calls() {
		if c.Effect&model.Backward == 0 || c.Func != nil || c.Remote != nil || p.isTrue(c, "create_graph") || p.isTrue(c, "retain_graph") {
			continue
		}
		region := p.M.Context(c.Node, isAutocast)
		if region == nil {
			continue
		}
		if k := keyword(region.Node, "enabled"); k != nil && p.constant(k.Value) == "False" {
			continue
		}
		if p.M.Context(c.Node, func(s string) bool { return strings.HasSuffix(s, "autocast") }) != region {
			continue
		}
		p.Report(c.Node, "backward() within autocast: the 16-bit copies of the weights stay alive through the backward pass (up to 2 bytes per weight), and the documentation advises against it. End the region after the loss.")
	}
}

func halfTrained(p *Pass) {
	if p.imports("deepspeed", "apex", "fairscale", "colossalai") || p.mentions("FP16_Optimizer", "FP16Optimizer", "master_params", "master_weights") {
		return
	}
	for _, opt := range p.optimizers() {
		net, key := p.trained(opt)
		if net == nil || !net.Is(model.Net) || net.Frozen || strings.Contains(net.Name, "peft") {
			continue
		}
		if net.DType != "float16" || p.guarded(opt.Node) {
			continue
		}
		p.Report(opt.Node, "the weights of %s are float16 and trained directly: Adam's eps is 0 there (NaN), and a scaler refuses them (“Attempting to unscale FP16 gradients.”). Keep them in float32 with autocast, or use bfloat16.", key)
	}
}

func scalerBF16(p *Pass) {
	for _, s := range p.calls() {
		if !s.Recv.Is(model.Scaler) || s.Method() != "scale" {
			continue
		}
		if origin, ok := s.Recv.Origin.(*pysource.Call); ok && keyword(origin, "enabled") != nil {
			continue
		}
		for _, c := range p.scopeCalls(s.Node) {
			if !isAutocast(c.Callee) {
				continue
			}
			if k := keyword(c.Node, "dtype"); k != nil && p.M.Value(k.Value).Is(model.DType) && p.constant(k.Value) == "bfloat16" {
				p.Report(s.Node, "a gradient scaler with bfloat16: it synchronises each step and saves nothing. Call backward() on the loss.")
				break
			}
		}
	}
}

func logitsUpcast(p *Pass) {
	for _, c := range p.calls() {
		if c.Callee != "torch.nn.functional.cross_entropy" && !(c.Effect&model.Forward != 0 && p.M.Value(c.Node.Fun).Name == "torch.nn.CrossEntropyLoss") {
			continue
		}
		x := c.Arg(0, "input")
		if x == nil || p.M.GradMode(c.Node) != model.Yes {
			continue
		}
		flat, up := false, false
		for range 5 {
			x = p.resolve(x)
			recv, name := method(x)
			if recv == nil {
				break
			}
			call := x.(*pysource.Call)
			switch name {
			case "view", "reshape":
				flat = flat || len(call.Args) == 2 && p.key(call.Args[0]) == "-1" && len(p.key(call.Args[1])) > 0 && p.key(call.Args[1]) != "1"
			case "flatten":
				flat = flat || len(call.Args) == 2 && p.key(call.Args[0]) == "0" && p.key(call.Args[1]) == "1"
			case "float":
				up = up || len(call.Args) == 0
			case "to":
				for _, a := range call.Args {
					up = up || p.constant(a) == "float32" && p.M.Value(a).Is(model.DType)
				}
			}
			x = recv
		}
		if flat && up {
			p.Report(c.Node, "the logits are copied to float32 first: 4 bytes × batch × sequence × vocabulary, and again for the softmax and its gradient. Use a fused or chunked loss (linear_cross_entropy); under autocast the copy is needless.")
		}
	}
}

func autocastWithoutEffect(p *Pass) {
	for _, c := range p.M.To("torch.amp.autocast", "torch.cuda.amp.autocast") {
		if k := keyword(c.Node, "enabled"); k != nil && p.constant(k.Value) == "False" {
			continue
		}
		if p.M.Context(c.Node, isAutocast) != nil {
			continue
		}
		pos := 1
		if c.Callee == "torch.cuda.amp.autocast" {
			pos = -1
		}
		if d := c.Arg(pos, "dtype"); d != nil && p.M.Value(d).Is(model.DType) && p.constant(d) == "float32" {
			p.Report(d, "autocast to float32 casts nothing: no activation gets smaller. Use torch.bfloat16 or torch.float16.")
			continue
		}
		if c.Callee != "torch.amp.autocast" || p.constant(c.Arg(0, "device_type")) != "cpu" {
			continue
		}
		w, ok := p.grand(c.Node).(*pysource.With)
		if !ok {
			continue
		}
		for _, s := range w.Body {
			for _, k := range p.callsIn(s) {
				if k.Effect&model.Forward != 0 && p.M.Value(k.Node.Fun).Dev == "cuda" {
					p.Report(c.Node, "autocast(\"cpu\") around a module on the GPU covers none of its operations. Use \"cuda\".")
					return
				}
			}
		}
	}
}
