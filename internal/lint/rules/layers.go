package rules

import (
	"strings"

	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

var layerRules = []Rule{
	{
		ID: "GM901", Name: "attention-by-hand", Group: "layers", Severity: Warning,
		Says:    "Attention is written with the whole matrix of scores.",
		Cost:    "batch × heads × sequence² elements, two or three times, saved for backward",
		Instead: "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)",
		Quiet:   "a bias is added to the scores; the weights are used or returned",
		Source:  "torch.nn.functional.scaled_dot_product_attention documentation", Remedy: "R36",
		Check: attentionByHand,
	},
	{
		ID: "GM902", Name: "attention-weights-unused", Group: "layers", Severity: Warning,
		Says:    "MultiheadAttention computes weights that nobody uses.",
		Cost:    "the default need_weights=True takes the slow path and makes batch × sequence² weights",
		Instead: "need_weights=False",
		Quiet:   "the second result is used",
		Source:  "PyTorch torch/nn/modules/activation.py:1078-1106, 2.4", Remedy: "R36", Fixes: true,
		Check: weightsUnused,
	},
	{
		ID: "GM903", Name: "full-logits", Group: "layers", Severity: Info,
		Says:    "Training makes the logits of the full vocabulary for the loss.",
		Cost:    "batch × sequence × vocabulary × 2 to 4 bytes, several times",
		Instead: "torch.nn.functional.linear_cross_entropy with options (2.13), or a chunked loss",
		Quiet:   "known small vocabularies",
		Source:  "PyTorch linear_cross_entropy documentation", Remedy: "R37",
		Check: fullLogits,
	},
	{
		ID: "GM904", Name: "log-softmax-gather", Group: "layers", Severity: Warning,
		Says:    "log_softmax over the vocabulary, to pick one value of each row.",
		Cost:    "a second tensor of batch × sequence × vocabulary",
		Instead: "logits.gather(-1, i).squeeze(-1) - logits.logsumexp(-1)",
		Quiet:   "row by row in a loop; two-dimensional logits",
		Source:  "PR huggingface/trl#2799", Remedy: "R37",
		Check: logSoftmaxGather,
	},
	{
		ID: "GM905", Name: "checkpoint-variant", Group: "layers", Severity: Info,
		Says:    "checkpoint() without use_reentrant.",
		Cost:    "the old variant, with a warning: no keyword arguments, no autograd.grad, inputs must require gradients",
		Instead: "use_reentrant=False",
		Quiet:   "wrappers that pass **kwargs",
		Source:  "PyTorch torch/utils/checkpoint.py; TorchFix TOR003", Remedy: "R07", Fixes: true,
		Check: checkpointVariant,
	},
	{
		ID: "GM906", Name: "checkpoint-saves-nothing", Group: "layers", Severity: Warning,
		Says:    "Checkpointing where it saves nothing.",
		Cost:    "over the whole model, backward makes all activations again at once: the same peak, a third more time; under no_grad nothing is saved anyway",
		Instead: "checkpoint each block",
		Quiet:   "other regions in the file",
		Source:  "torch.utils.checkpoint documentation", Remedy: "R07",
		Check: checkpointSavesNothing,
	},
	{
		ID: "GM907", Name: "reentrant-without-input-grad", Group: "layers", Severity: Error,
		Says:    "Reentrant checkpointing on a model whose inputs need no gradients.",
		Cost:    "“None of the inputs have requires_grad=True. Gradients will be None”: the adapters do not learn",
		Instead: "gradient_checkpointing_enable(gradient_checkpointing_kwargs={\"use_reentrant\": False})",
		Quiet:   "enable_input_require_grads() is called; the trainer of transformers, which sets it",
		Source:  "PyTorch torch/utils/checkpoint.py:93, 2.4; InternLM/xtuner#637", Remedy: "R07",
		Check: reentrantInput,
	},
	{
		ID: "GM908", Name: "needless-copy", Group: "layers", Severity: Info,
		Says:    "A copy is made where a view would do.",
		Cost:    "repeat() copies, expand() does not; a difference by broadcasting makes n × m × d",
		Instead: "expand(); torch.cdist",
		Quiet:   "results that are written to",
		Source:  "PR huggingface/trl#5926, keras-team/keras#22832", Remedy: "R25",
		Check: needlessCopy,
	},
	{
		ID: "GM912", Name: "module-state-grows", Group: "layers", Severity: Warning,
		Says:    "forward appends tensors to an attribute of the module.",
		Cost:    "one more tensor with its graph for each forward pass, for the life of the model",
		Instead: "return it, or keep one detached value",
		Quiet:   "the attribute is cleared or made anew in the class; key-value caches",
		Source:  "PyTorch docs/source/notes/faq.md; pytorch/ignite#3447, pytorch/torchtitan#2296", Remedy: "R25",
		Check: moduleStateGrows,
	},
}

// product returns the operands of a matrix product: a @ b, torch.matmul(a, b).
func (p *Pass) product(x pysource.Expr) (l, r pysource.Expr) {
	switch x := x.(type) {
	case *pysource.Binary:
		if x.Op == "@" {
			return x.L, x.R
		}
	case *pysource.Call:
		c := p.M.Call(x)
		if c == nil {
			return nil, nil
		}
		switch c.Callee {
		case "torch.matmul", "torch.bmm":
			if len(x.Args) == 2 {
				return x.Args[0], x.Args[1]
			}
		}
		if recv, name := method(x); (name == "matmul" || name == "bmm") && len(x.Args) == 1 && recv != nil && p.M.Value(recv).Kind != model.Namespace {
			return recv, x.Args[0]
		}
	}
	return nil, nil
}

// transposed reports whether an expression swaps the last two dimensions.
func (p *Pass) transposed(x pysource.Expr) bool {
	x = p.resolve(x)
	if a, ok := x.(*pysource.Attribute); ok {
		return a.Name == "mT"
	}
	_, name := method(x)
	if name != "transpose" && name != "swapaxes" {
		return false
	}
	args := x.(*pysource.Call).Args
	if len(args) != 2 {
		return false
	}
	a, b := p.key(args[0]), p.key(args[1])
	return a+b == "-2-1" || a+b == "-1-2" || a+b == "23" || a+b == "32"
}

// scores follows softmax's input back to a product with a transposed operand:
// through scaling and masks, but not through an added bias.
func (p *Pass) scores(x pysource.Expr, depth int) bool {
	if depth > 6 {
		return false
	}
	x = p.resolve(x)
	if l, r := p.product(x); l != nil {
		return p.transposed(r)
	}
	switch x := x.(type) {
	case *pysource.Binary:
		if x.Op == "*" || x.Op == "/" {
			return p.scores(x.L, depth+1) || x.Op == "*" && p.scores(x.R, depth+1)
		}
	case *pysource.Call:
		recv, name := method(x)
		switch name {
		case "masked_fill", "masked_fill_", "div", "mul", "float", "to", "div_", "mul_":
			return p.scores(recv, depth+1)
		}
	}
	return false
}

// softmax returns what an expression takes the softmax of, or nil.
func (p *Pass) softmax(x pysource.Expr) pysource.Expr {
	c := p.M.Call(x)
	if c == nil {
		return nil
	}
	switch c.Callee {
	case "torch.softmax", "torch.nn.functional.softmax":
		if len(c.Node.Args) > 0 {
			return c.Node.Args[0]
		}
	}
	if recv, name := method(x); name == "softmax" && c.Callee != "torch.softmax" {
		return recv
	}
	return nil
}

func attentionByHand(p *Pass) {
	p.inspectAll(p.File.Body, func(n pysource.Node) bool {
		x, ok := n.(pysource.Expr)
		if !ok {
			return true
		}
		l, _ := p.product(x)
		if l == nil {
			return true
		}
		weights := l
		if name, ok := l.(*pysource.Name); ok {
			if p.weightsUsed(name, x) {
				return true
			}
		}
		weights = p.resolve(weights)
		// Dropout on the weights is part of the fused kernel too.
		for range 3 {
			if c := p.M.Call(weights); c != nil && len(c.Node.Args) > 0 && (c.Callee == "torch.nn.functional.dropout" || p.M.Value(c.Node.Fun).Name == "torch.nn.Dropout") {
				if name, ok := c.Node.Args[0].(*pysource.Name); ok && name.Ident != base(l) && p.weightsUsed(name, c.Node) {
					return true
				}
				weights = p.definitionBefore(c.Node.Args[0], c.Node)
				continue
			}
			if recv, name := method(weights); recv != nil && (name == "to" || name == "type_as" || name == "type") {
				weights = p.resolve(recv)
			}
		}
		in := p.softmax(weights)
		if in != nil && p.scores(in, 0) {
			p.Report(x, "attention written out keeps the matrix of scores two or three times for backward: batch × heads × sequence² elements each. Use scaled_dot_product_attention.")
		}
		return true
	})
}

// definitionBefore is resolve for a name that is redefined in terms of itself
// (w = dropout(w)): the value before that statement.
func (p *Pass) definitionBefore(x pysource.Expr, at pysource.Node) pysource.Expr {
	n, ok := x.(*pysource.Name)
	if !ok {
		return x
	}
	stmt := p.M.Stmt(at)
	if def := p.definition(stmt, n.Ident); def != nil {
		return def
	}
	return x
}

// weightsUsed reports whether a name is used in the function for more than the
// product and its own making.
func (p *Pass) weightsUsed(name *pysource.Name, at pysource.Node) bool {
	used := false
	p.inspectScope(name, func(n pysource.Node) bool {
		o, ok := n.(*pysource.Name)
		if !ok || o.Ident != name.Ident || o.Pos() >= at.Pos() && o.End() <= at.End() || p.isTarget(o) || used {
			return !used
		}
		// w = f(w): still the same weights.
		if a, ok := p.M.Stmt(o).(*pysource.Assign); ok && len(a.Targets) == 1 && p.key(a.Targets[0]) == name.Ident {
			return true
		}
		used = true
		return false
	})
	return used
}

func weightsUnused(p *Pass) {
	for _, c := range p.calls() {
		if c.Effect&model.Forward == 0 || p.M.Value(c.Node.Fun).Name != "torch.nn.MultiheadAttention" || c.HasStar() {
			continue
		}
		if keyword(c.Node, "need_weights") != nil || len(c.Node.Args) > 4 {
			continue
		}
		unused := false
		switch parent := p.File.Parent(c.Node).(type) {
		case *pysource.Subscript:
			unused = p.key(parent.Index) == "0"
		case *pysource.Assign:
			if len(parent.Targets) == 1 {
				if t, ok := parent.Targets[0].(*pysource.Sequence); ok && len(t.Elts) == 2 {
					w := p.key(t.Elts[1])
					_, isName := t.Elts[1].(*pysource.Name)
					unused = isName && (w == "_" || p.M.Func(c.Node) != nil && !p.usesAfter(parent, w))
				}
			}
		}
		if unused {
			p.Report(c.Node, "the attention weights are computed and not used: need_weights=True, the default, takes the slow path and makes batch × sequence² weights.").
				WithFix("pass need_weights=False", p.appendArg(c.Node, "need_weights=False"))
		}
	}
}

func fullLogits(p *Pass) {
	for _, c := range p.M.To("torch.nn.functional.cross_entropy") {
		x := c.Arg(0, "input")
		recv, name := method(x)
		if name != "view" && name != "reshape" && name != "flatten" || recv == nil || p.M.GradMode(c.Node) != model.Yes {
			continue
		}
		call := x.(*pysource.Call)
		if name != "flatten" && (len(call.Args) != 2 || p.key(call.Args[0]) != "-1") {
			continue
		}
		logits := p.M.Call(p.resolve(recv))
		if logits == nil || logits.Effect&model.Forward == 0 || p.M.Value(logits.Node.Fun).Name != "torch.nn.Linear" {
			continue
		}
		p.Report(c.Node, "logits of the whole vocabulary are made for the loss: batch × sequence × vocabulary × 2 to 4 bytes, several times. A fused or chunked loss avoids them.")
	}
}

func logSoftmaxGather(p *Pass) {
	for _, c := range p.calls() {
		if c.Method() != "gather" {
			continue
		}
		var source pysource.Expr
		dim := 0
		if c.Callee == "torch.gather" {
			source, dim = c.Arg(0, "input"), 1
		} else {
			source = receiver(c)
		}
		d := p.key2(c.Arg(dim, "dim"))
		if source == nil || d != "-1" && d != "2" && d != "dim=-1" {
			continue
		}
		if recv := p.M.Call(p.resolve(source)); recv == nil || recv.Method() != "log_softmax" {
			continue
		}
		// Row by row in a loop, as TRL does for bf16.
		if l := p.M.Loop(c.Node); l != nil && l.Effect&model.Forward == 0 {
			continue
		}
		p.Report(c.Node, "log_softmax makes a second tensor of batch × sequence × vocabulary, of which one value per row is used. Use logits.gather(…) - logits.logsumexp(-1).")
	}
}

// key2 is key for an expression that may be nil.
func (p *Pass) key2(x pysource.Expr) string {
	if x == nil {
		return ""
	}
	return p.key(x)
}

func checkpointVariant(p *Pass) {
	for _, c := range p.M.To("torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential") {
		if c.HasStar() && p.hasDoubleStar(c) || keyword(c.Node, "use_reentrant") != nil {
			continue
		}
		p.Report(c.Node, "without use_reentrant the old variant runs: no keyword arguments, no autograd.grad, and an input must require gradients.").
			WithFix("pass use_reentrant=False", p.appendArg(c.Node, "use_reentrant=False"))
	}
}

func (p *Pass) hasDoubleStar(c *model.Call) bool {
	for _, k := range c.Node.Keywords {
		if k.Name == "" {
			return true
		}
	}
	return false
}

func checkpointSavesNothing(p *Pass) {
	calls := p.M.To("torch.utils.checkpoint.checkpoint")
	for _, c := range calls {
		if len(c.Node.Args) == 0 {
			continue
		}
		if c.Grad == model.No && p.M.GradMode(c.Node) == model.No && p.M.Context(c.Node, func(s string) bool { return s == "torch.no_grad" || s == "torch.inference_mode" }) != nil {
			p.Report(c.Node, "checkpoint under no_grad: nothing is saved there anyway. Call the block.")
			continue
		}
		whole, ok := c.Node.Args[0].(*pysource.Name)
		if !ok || len(calls) > 1 || c.In == nil || c.In.Effects&model.Backward == 0 || strings.Contains(p.File.Src, "checkpoint_sequential") || p.mentions("gradient_checkpointing") {
			continue
		}
		v := p.M.Value(whole)
		l := p.M.Loop(c.Node)
		if !v.Is(model.Net) || !p.optimized(whole.Ident) || l != nil && p.assigns(l.Node, whole.Ident, nil) {
			continue
		}
		p.Report(c.Node, "one region over the whole model: backward makes all its activations again at once, so the peak stays and a step takes a third longer. Checkpoint each block.")
	}
}

// optimized reports whether an optimizer of the file trains all of the module:
// it is the model, not a block.
func (p *Pass) optimized(key string) bool {
	for _, o := range p.optimizers() {
		if _, k := p.trained(o); k == key {
			return true
		}
	}
	return false
}

func reentrantInput(p *Pass) {
	if p.has("enable_input_require_grads", "prepare_model_for_kbit_training", "make_inputs_require_grad") || len(p.M.To("transformers.Trainer")) > 0 || p.imports("trl") {
		return
	}
	for _, c := range p.calls() {
		if c.Method() != "gradient_checkpointing_enable" || c.Recv == nil || len(c.Node.Args) > 0 || len(c.Node.Keywords) > 0 {
			continue
		}
		key := p.key(receiver(c))
		for _, o := range p.M.To("peft.get_peft_model") {
			if o.In == c.In && len(o.Node.Args) > 0 && p.key(o.Node.Args[0]) == key {
				p.Report(c.Node, "the frozen base gives the checkpoints no input that requires gradients: “Gradients will be None”. Pass gradient_checkpointing_kwargs={\"use_reentrant\": False}.")
				break
			}
		}
	}
}

func needlessCopy(p *Pass) {
	p.inspectAll(p.File.Body, func(n pysource.Node) bool {
		switch n := n.(type) {
		case *pysource.Call:
			c := p.M.Call(n)
			recv, name := method(n)
			if c == nil || name != "repeat" || !c.Recv.Is(model.Tensor) || len(n.Args) < 2 {
				return true
			}
			r, m := method(p.resolve(recv))
			if m != "unsqueeze" || r == nil || p.writtenTo(n) {
				return true
			}
			dim, ok := p.resolve(recv).(*pysource.Call)
			if !ok || len(dim.Args) != 1 || p.key(dim.Args[0]) != "0" {
				return true
			}
			for _, a := range n.Args[1:] {
				if p.key(a) != "1" {
					return true
				}
			}
			p.Report(n, "repeat() copies where expand() is a view: %s times the tensor.", p.key(n.Args[0]))
		case *pysource.Binary:
			if n.Op != "-" {
				return true
			}
			if broadcasts(p, n.L) && broadcasts(p, n.R) && p.M.Value(n).May(model.Tensor) && p.squaredAndSummed(n) {
				p.Report(n, "the differences of all pairs are made as one tensor of n × m × d. torch.cdist makes n × m.")
			}
		}
		return true
	})
}

// writtenTo reports whether the name a call is given to is changed in place.
func (p *Pass) writtenTo(n pysource.Node) bool {
	a, ok := p.File.Parent(n).(*pysource.Assign)
	if !ok || len(a.Targets) != 1 {
		return false
	}
	key := p.key(a.Targets[0])
	written := false
	p.inspectScope(n, func(x pysource.Node) bool {
		switch x := x.(type) {
		case *pysource.Assign:
			for _, t := range x.Targets {
				if s, ok := t.(*pysource.Subscript); ok && p.key(s.X) == key {
					written = true
				}
			}
		case *pysource.AugAssign:
			written = written || base(x.Target) == key
		case *pysource.Call:
			if recv, m := method(x); recv != nil && strings.HasSuffix(m, "_") && p.key(recv) == key {
				written = true
			}
		}
		return !written
	})
	return written
}

// broadcasts reports whether an expression adds a dimension: a[:, None, :].
func broadcasts(p *Pass, x pysource.Expr) bool {
	if s, ok := x.(*pysource.Subscript); ok {
		if q, ok := s.Index.(*pysource.Sequence); ok {
			for _, e := range q.Elts {
				if p.M.Value(e).Kind == model.None {
					return true
				}
			}
		}
	}
	_, name := method(x)
	return name == "unsqueeze"
}

func (p *Pass) squaredAndSummed(b *pysource.Binary) bool {
	n := p.File.Parent(b)
	if q, ok := n.(*pysource.Binary); ok && q.Op == "**" {
		n = q
	} else if a, ok := n.(*pysource.Attribute); ok && (a.Name == "pow" || a.Name == "square") {
		n = p.File.Parent(a)
	} else {
		return false
	}
	x, ok := n.(pysource.Expr)
	return ok && p.methodOn(x) == "sum"
}

func moduleStateGrows(p *Pass) {
	for _, c := range p.calls() {
		a, ok := c.Node.Fun.(*pysource.Attribute)
		if !ok || a.Name != "append" && a.Name != "extend" || len(c.Node.Args) != 1 {
			continue
		}
		f := p.M.Func(c.Node)
		if f == nil || f.Def.Name != "forward" || !f.Class.Is("torch.nn.Module") || p.M.GradMode(c.Node) != model.Yes {
			continue
		}
		attr, ok := a.X.(*pysource.Attribute)
		if !ok || p.key(attr.X) != "self" || p.guarded(c.Node) || c.Recv.Name == "bounded" {
			continue
		}
		v := p.M.Value(c.Node.Args[0])
		param := v.Param != nil && p.usedAsTensor(f.Def, v.Param.Name)
		if !v.HoldsGraph() && !param {
			continue
		}
		key := p.key(attr)
		if p.clearedInClass(f.Class, key, "__init__") || p.mentions("."+attr.Name+".clear()", "."+attr.Name+" = []", "."+attr.Name+"=[]") && p.countText("."+attr.Name+" = []") > 1 {
			continue
		}
		p.Report(c.Node, "%s grows by %s in every forward pass and is never cleared: the tensors, with their graphs, live as long as the module.", key, p.short(c.Node.Args[0]))
	}
}

func (p *Pass) countText(s string) int { return strings.Count(p.File.Src, s) }

// clearedInClass reports whether a method other than except clears or resets
// an attribute.
func (p *Pass) clearedInClass(class *model.ClassInfo, key, except string) bool {
	for name, f := range class.Methods {
		if name == except {
			continue
		}
		for _, s := range f.Def.Body {
			if p.clears(s, key) {
				return true
			}
		}
	}
	return false
}
