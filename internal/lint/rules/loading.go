package rules

import (
	"strings"

	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

var loadingRules = []Rule{
	{
		ID: "GM601", Name: "load-without-map-location", Group: "loading", Severity: Warning,
		Says:    "A checkpoint is loaded without map_location.",
		Cost:    "tensors go back to the device they were saved from: each process makes a second copy, and a CUDA context (about 700 MB), on GPU 0",
		Instead: "torch.load(path, map_location=\"cpu\", mmap=True, weights_only=True)",
		Quiet:   "the result is not used as a checkpoint (data, vocabularies); a default device is set; a condition on the GPU",
		Source:  "torch.load documentation (“avoid GPU RAM surge”); pytorch/pytorch#23138; pytorch/examples#1079", Remedy: "R55",
		Check: loadWithoutMap,
	},
	{
		ID: "GM602", Name: "checkpoint-kept", Group: "loading", Severity: Warning,
		Says:    "A checkpoint on the GPU stays alive during the training that follows.",
		Cost:    "the weights and the optimizer state once more, for the whole run",
		Instead: "map_location=\"cpu\", and del checkpoint after load_state_dict",
		Quiet:   "the name is deleted or given another value; the function returns",
		Source:  "Lightning-AI/pytorch-lightning#242, timm#72", Remedy: "R55",
		Check: checkpointKept,
	},
	{
		ID: "GM603", Name: "state-cloned-on-gpu", Group: "loading", Severity: Warning,
		Says:    "All weights are cloned on the GPU, or gathered whole on each rank.",
		Cost:    "the weights once more (4 bytes per parameter, 2 in bf16); under FSDP the full model on every rank: out of memory at the save",
		Instead: "v.detach().to(\"cpu\", copy=True); get_model_state_dict(…, StateDictOptions(full_state_dict=True, cpu_offload=True))",
		Quiet:   "models on the CPU, or whose device is not known",
		Source:  "PR pytorch/torchtune#1315, DeepSpeed#5643", Remedy: "R55",
		Check: stateCloned,
	},
	{
		ID: "GM604", Name: "deepcopy-on-gpu", Group: "loading", Severity: Warning,
		Says:    "A model on the GPU is copied by deepcopy.",
		Cost:    "the weights once more, with gradients, buffers and hooks",
		Instead: "copy it before it goes to the GPU; for LoRA use the base with adapters disabled",
		Quiet:   "models whose device is not known; copies that go to the CPU; averages, which need theirs on the card",
		Source:  "lucidrains/ema-pytorch#35, composer#1941", Remedy: "R55",
		Check: deepcopyOnGPU,
	},
	{
		ID: "GM605", Name: "load-then-convert", Group: "loading", Severity: Warning,
		Says:    "A model is loaded in float32 and then converted to 16 bits.",
		Cost:    "4 bytes per parameter of host memory at load (and on the card, where it goes there first), twice what is kept",
		Instead: "from_pretrained(name, dtype=torch.bfloat16, device_map={\"\": 0})",
		Quiet:   "a dtype is given",
		Source:  "transformers MIGRATION_GUIDE_V5.md", Remedy: "R55",
		Check: loadThenConvert,
	},
	{
		ID: "GM606", Name: "models-collected", Group: "loading", Severity: Warning,
		Says:    "A list keeps every model that a loop trains.",
		Cost:    "number of rounds × weights, on the card",
		Instead: "save the state_dict to a file, keep the score",
		Quiet:   "models of an ensemble in a ModuleList; loops that do not train",
		Source:  "accelerate#739, accelerate#3391", Remedy: "R25",
		Check: modelsCollected,
	},
	{
		ID: "GM607", Name: "load-in-4bit-argument", Group: "loading", Severity: Error,
		Says:    "load_in_4bit or load_in_8bit is passed to from_pretrained.",
		Cost:    "removed in transformers 5 (TypeError); before, the compute type is float32: slow, and larger activations",
		Instead: "quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)",
		Quiet:   "the value False",
		Source:  "transformers MIGRATION_GUIDE_V5.md; PEFT developer_guides/quantization.md", Remedy: "R40", Fixes: true,
		Check: loadInBits,
	},
}

// loads returns the torch.load calls.
func (p *Pass) loads() []*model.Call {
	return p.M.To("torch.load", "torch.serialization.load")
}

// isCheckpoint reports whether what a call returns is used as a state dict or
// a module: given to load_state_dict, or called, moved or switched as one.
func (p *Pass) isCheckpoint(c *model.Call) bool {
	name := ""
	switch parent := p.File.Parent(c.Node).(type) {
	case *pysource.Call:
		return strings.HasSuffix(p.key(parent.Fun), "load_state_dict")
	case *pysource.Subscript:
		if call, ok := p.File.Parent(parent).(*pysource.Call); ok {
			return strings.HasSuffix(p.key(call.Fun), "load_state_dict")
		}
		return false
	case *pysource.Attribute:
		switch parent.Name {
		case "eval", "cuda", "to", "half", "load_state_dict":
			return true
		}
		return false
	case *pysource.Assign:
		if len(parent.Targets) == 1 {
			name = p.key(parent.Targets[0])
		}
	}
	if name == "" {
		return false
	}
	found := false
	p.inspectScope(c.Node, func(n pysource.Node) bool {
		call, ok := n.(*pysource.Call)
		if !ok || call.Pos() < c.Node.End() {
			return true
		}
		fun := p.key(call.Fun)
		switch {
		case strings.HasSuffix(fun, "load_state_dict"):
			for _, a := range call.Args {
				if base(a) == name || p.key(a) == name {
					found = true
				}
			}
		case fun == name+".eval", fun == name+".cuda", fun == name+".parameters", fun == name+".half":
			found = true
		}
		return !found
	})
	return found
}

func loadWithoutMap(p *Pass) {
	if p.has("set_default_device", "set_default_tensor_type") {
		return
	}
	for _, c := range p.loads() {
		if c.Arg(1, "map_location") != nil || c.HasStar() || !p.isCheckpoint(c) || p.IsTest || p.underGPUCheck(c.Node) {
			continue
		}
		if p.M.Context(c.Node, func(s string) bool { return s == "torch.device" }) != nil {
			continue
		}
		p.Report(c.Node, "without map_location the tensors go back to the device they were saved from: a second copy of the weights, and in each process a CUDA context (about 700 MB), on GPU 0. Pass map_location=\"cpu\".")
	}
}

// underGPUCheck reports whether n is in a branch that asks for the GPU: the
// other branch then maps the location.
func (p *Pass) underGPUCheck(n pysource.Node) bool {
	found := false
	p.M.Within(n, func(a pysource.Node) bool {
		if i, ok := a.(*pysource.If); ok && n.Pos() > i.Test.End() {
			test := p.key(i.Test)
			for _, word := range []string{"cuda", "gpu", "GPU", "device", "cpu"} {
				found = found || strings.Contains(test, word)
			}
		}
		return !found
	})
	return found
}

func checkpointKept(p *Pass) {
	for _, c := range p.loads() {
		loc := c.Arg(1, "map_location")
		if loc == nil || c.In != nil && c.In.Yields {
			continue
		}
		v := p.M.Value(loc)
		onGPU := strings.HasPrefix(v.Const, "cuda") && (v.Is(model.Device) || v.Is(model.String))
		a, ok := p.File.Parent(c.Node).(*pysource.Assign)
		if !onGPU || !ok || len(a.Targets) != 1 {
			continue
		}
		name, ok := a.Targets[0].(*pysource.Name)
		if !ok || !p.isCheckpoint(c) {
			continue
		}
		freed := false
		var training *model.Call
		for _, o := range p.scopeCalls(c.Node) {
			if o.Node.Pos() > c.Node.End() && o.In == c.In && training == nil && (o.Effect&model.Backward != 0 || p.handsOver(o, name.Ident)) {
				training = o
			}
		}
		if training == nil {
			continue
		}
		p.inspectScope(c.Node, func(n pysource.Node) bool {
			if n.Pos() > c.Node.End() && n.Pos() < training.Node.Pos() {
				switch n.(type) {
				case *pysource.Delete, *pysource.Assign:
					freed = freed || p.assigns(n, name.Ident, a)
				}
			}
			return true
		})
		if !freed {
			p.Report(a, "%s stays on the GPU during the training that follows: weights and optimizer state once more. Load it with map_location=\"cpu\", and del %s after load_state_dict.", name.Ident, name.Ident)
		}
	}
}

// handsOver reports whether a call, of something that this file does not show,
// is given both a module and an optimizer that were loaded from the checkpoint.
func (p *Pass) handsOver(c *model.Call, checkpoint string) bool {
	if c.Func != nil || len(c.Node.Args) < 2 || c.Method() == "load_state_dict" {
		return false
	}
	loaded := map[string]bool{}
	for _, o := range p.scopeCalls(c.Node) {
		if o.Method() == "load_state_dict" && len(o.Node.Args) > 0 && base(o.Node.Args[0]) == checkpoint && !p.isTrue(o, "assign") {
			loaded[p.key2(receiver(o))] = true
		}
	}
	n := 0
	for _, a := range c.Node.Args {
		if loaded[p.key(a)] {
			n++
		}
	}
	return n >= 2
}

func stateCloned(p *Pass) {
	p.inspectAll(p.File.Body, func(n pysource.Node) bool {
		switch n := n.(type) {
		case *pysource.Comp:
			if n.Kind != ':' || len(n.Fors) != 1 {
				return true
			}
			recv, items := method(n.Fors[0].Iter)
			if items != "items" {
				return true
			}
			net := p.stateOf(recv)
			value := p.key(n.Value)
			if net == nil || net.Dev != "cuda" || strings.Contains(value, "cpu") {
				return true
			}
			if _, m := method(n.Value); m == "clone" || strings.Contains(value, "deepcopy") {
				p.Report(n, "all weights are cloned on the GPU: they take their memory twice. Keep v.detach().to(\"cpu\", copy=True).")
			}
		case *pysource.Call:
			c := p.M.Call(n)
			if c == nil {
				return true
			}
			if c.Callee == "copy.deepcopy" && len(n.Args) == 1 {
				if net := p.stateOf(n.Args[0]); net != nil && net.Dev == "cuda" {
					p.Report(n, "all weights are cloned on the GPU: they take their memory twice. Copy them to the host.")
				}
			}
			if c.Method() == "state_dict" && c.Recv != nil && c.Recv.Name == "torch.distributed.fsdp.FullyShardedDataParallel" && !p.mentions("state_dict_type", "StateDictOptions", "set_state_dict_type") {
				p.Report(n, "state_dict() of an FSDP module gathers the whole model on every rank's GPU. Use get_model_state_dict with cpu_offload, or a sharded checkpoint.")
			}
		}
		return true
	})
}

// stateOf returns the module whose state_dict() an expression is, or nil.
func (p *Pass) stateOf(x pysource.Expr) *model.Value {
	if x == nil {
		return nil
	}
	recv, name := method(p.resolve(x))
	if name != "state_dict" || recv == nil {
		return nil
	}
	if v := p.M.Value(recv); v.Is(model.Net) {
		return v
	}
	return nil
}

func deepcopyOnGPU(p *Pass) {
	if p.IsTest {
		return
	}
	for _, c := range p.M.To("copy.deepcopy") {
		if len(c.Node.Args) != 1 {
			continue
		}
		v := p.M.Value(c.Node) // as the model was when it was copied
		if !v.Is(model.Net) || v.Dev != "cuda" || p.methodOn(c.Node) == "cpu" || p.methodOn(c.Node) == "to" {
			continue
		}
		if stmt := p.key(p.M.Stmt(c.Node)); strings.Contains(stmt, ".cpu()") || strings.Contains(stmt, ".to(") {
			continue
		}
		if a, ok := p.File.Parent(c.Node).(*pysource.Assign); ok && len(a.Targets) == 1 && p.averaged(p.key(a.Targets[0])) {
			continue
		}
		p.Report(c.Node, "deepcopy of a model on the GPU takes all its weights there once more (with gradients, where it has them). Copy before it goes to the GPU.")
	}
}

// averaged reports whether the copy is updated from the model: an average or a
// target network, which has to be on the card.
func (p *Pass) averaged(key string) bool {
	return p.mentions(key+".parameters()", key+".load_state_dict", key+".state_dict()")
}

func loadThenConvert(p *Pass) {
	for _, c := range p.calls() {
		if c.Recv == nil || c.Method() != "half" && c.Method() != "bfloat16" && c.Method() != "to" {
			continue
		}
		recv := receiver(c)
		if c.Method() == "to" {
			narrow := false
			for _, a := range c.Node.Args {
				v := p.M.Value(a)
				narrow = narrow || v.Is(model.DType) && (v.Const == "float16" || v.Const == "bfloat16")
			}
			if k := keyword(c.Node, "dtype"); k != nil {
				v := p.M.Value(k.Value)
				narrow = narrow || v.Is(model.DType) && (v.Const == "float16" || v.Const == "bfloat16")
			}
			if !narrow {
				continue
			}
		}
		load := p.fromPretrained(recv)
		if load == nil || load.HasStar() || keyword(load.Node, "torch_dtype") != nil || keyword(load.Node, "dtype") != nil || keyword(load.Node, "quantization_config") != nil {
			continue
		}
		p.Report(c.Node, "the model is loaded in float32 and then converted: 4 bytes per parameter at load, twice what is kept. Pass dtype= to from_pretrained.")
	}
}

// fromPretrained follows .cuda(), .eval() and names back to the call that
// loaded a transformers model, or nil.
func (p *Pass) fromPretrained(x pysource.Expr) *model.Call {
	for range 6 {
		x = p.resolve(x)
		c := p.M.Call(x)
		if c == nil {
			return nil
		}
		if strings.HasSuffix(c.Callee, ".from_pretrained") {
			if v := p.M.Value(x); v.Is(model.Net) {
				return c
			}
			return nil
		}
		recv, name := method(x)
		switch name {
		case "cuda", "eval", "to", "train", "requires_grad_", "cpu":
			x = recv
		default:
			return nil
		}
	}
	return nil
}

func modelsCollected(p *Pass) {
	for _, c := range p.calls() {
		if c.Method() != "append" || c.Recv == nil || c.Recv.Kind != model.List || len(c.Node.Args) != 1 {
			continue
		}
		l := p.M.Loop(c.Node)
		if l == nil || l.Effect&(model.Backward|model.Step) == 0 && !p.remoteCalls(l.Node) || p.guarded(c.Node) {
			continue
		}
		for _, x := range flatten(c.Node.Args[0]) {
			v := p.M.Value(x)
			if !v.Is(model.Net) || v.Origin == nil || v.Origin.Pos() < l.Node.Pos() || v.Origin.End() > l.Node.End() || v.Dev != "cuda" {
				continue
			}
			p.Report(c.Node, "%s keeps every model that this loop trains on the GPU: rounds × weights. Keep the score, and save the weights to a file.", p.key(receiver(c)))
		}
	}
}

func loadInBits(p *Pass) {
	for _, c := range p.calls() {
		if !strings.HasSuffix(c.Callee, ".from_pretrained") || !strings.HasPrefix(c.Callee, "transformers.") {
			continue
		}
		for _, name := range []string{"load_in_4bit", "load_in_8bit"} {
			k := keyword(c.Node, name)
			if k == nil || p.constant(k.Value) == "False" || keyword(c.Node, "quantization_config") != nil {
				continue
			}
			f := p.Report(k, "%s was removed from from_pretrained in transformers 5 (TypeError); before, it computes in float32. Pass quantization_config=BitsAndBytesConfig(%s=True, …).", name, name)
			if v := p.Around.TransformersVersion; v != "" && v[0] < '5' {
				f.As(Warning)
			}
			if g := p.M.Global("BitsAndBytesConfig"); g != nil && g.Name == "transformers.BitsAndBytesConfig" && p.constant(k.Value) == "True" {
				f.WithFix("pass it in a BitsAndBytesConfig", Edit{k.Pos(), k.End(), "quantization_config=BitsAndBytesConfig(" + name + "=True)"})
			}
		}
	}
}
