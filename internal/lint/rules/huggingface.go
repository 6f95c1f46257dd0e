package rules

import (
	"strings"

	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

var huggingFaceRules = []Rule{
	{
		ID: "GM1003", Name: "cache-with-checkpointing", Group: "transformers", Severity: Warning,
		Says:    "The key-value cache is on while gradient checkpointing is.",
		Cost:    "the cached keys and values keep the activations that checkpointing was to drop",
		Instead: "model.config.use_cache = False",
		Quiet:   "the cache is switched on for generation",
		Source:  "transformers MIGRATION_GUIDE_V5.md; transformers PR#30320", Remedy: "R07",
		Check: cacheWithCheckpointing,
	},
	{
		ID: "GM1004", Name: "all-hidden-states", Group: "transformers", Severity: Warning,
		Says:    "All hidden states or attentions are asked for, and not used.",
		Cost:    "layers × batch × sequence × hidden kept to the end; attentions force the slow path and make batch × heads × sequence² a layer",
		Instead: "leave it out; a hook where one layer is wanted",
		Quiet:   ".hidden_states or .attentions is read, or the output is passed on",
		Source:  "transformers model outputs documentation", Remedy: "R36",
		Check: allHiddenStates,
	},
	{
		ID: "GM1006", Name: "model-outside-batch-finder", Group: "transformers", Severity: Warning,
		Says:    "The model is made outside of the function that find_executable_batch_size retries.",
		Cost:    "after an out-of-memory error the model, its gradients and optimizer state stay: the retry starts with less memory",
		Instead: "make model and optimizer within, after accelerator.free_memory()",
		Quiet:   "functions that make their own model",
		Source:  "accelerate#739, accelerate utils/memory.py", Remedy: "R01",
		Check: modelOutsideFinder,
	},
	{
		ID: "GM1009", Name: "lora-base-in-float32", Group: "transformers", Severity: Warning,
		Says:    "LoRA on a base in float32, or with whole layers trained beside it.",
		Cost:    "4 bytes per frozen parameter instead of 2 (0.5 in 4 bits); 16 bytes × vocabulary × hidden for each layer in modules_to_save",
		Instead: "from_pretrained(name, dtype=torch.bfloat16)",
		Quiet:   "a dtype that is not given",
		Source:  "PEFT documentation; PR peft#3293", Remedy: "R40",
		Check: loraBase,
	},
	{
		ID: "GM1010", Name: "second-reference-model", Group: "transformers", Severity: Warning,
		Says:    "The reference model is a second copy of the base, although adapters are trained.",
		Cost:    "the weights once more, on the same card",
		Instead: "ref_model=None with peft_config: the base with adapters off is the reference; or precompute_ref_log_probs=True",
		Quiet:   "references loaded from elsewhere; no peft_config",
		Source:  "TRL docs/source/reducing_memory_usage.md", Remedy: "R40",
		Check: secondReference,
	},
}

func cacheWithCheckpointing(p *Pass) {
	enabled := p.has("gradient_checkpointing_enable")
	if !enabled {
		for _, c := range p.calls() {
			if isTrainingArguments(c.Callee) && p.isTrue(c, "gradient_checkpointing") {
				enabled = true
			}
		}
	}
	if !enabled {
		return
	}
	p.inspectAll(p.File.Body, func(n pysource.Node) bool {
		switch n := n.(type) {
		case *pysource.Call:
			c := p.M.Call(n)
			if c != nil && c.Effect&model.Forward != 0 && p.isTrue(c, "use_cache") && c.Grad == model.Yes && p.M.GradMode(n) == model.Yes {
				p.Report(keyword(n, "use_cache"), "use_cache=True with gradient checkpointing: the cached keys and values keep the activations that it was to drop. Set config.use_cache = False.")
			}
		case *pysource.Assign:
			for _, t := range n.Targets {
				a, ok := t.(*pysource.Attribute)
				if ok && a.Name == "use_cache" && p.constant(n.Value) == "True" && p.beforeTraining(n) {
					p.Report(n, "the cache is switched on while gradient checkpointing is: cached keys and values keep the activations that it was to drop.")
				}
			}
		}
		return true
	})
}

// beforeTraining reports whether a training step or trainer.train() follows n
// in its scope.
func (p *Pass) beforeTraining(n pysource.Node) bool {
	for _, c := range p.scopeCalls(n) {
		if c.Node.Pos() > n.Pos() && (c.Effect&model.Backward != 0 || strings.HasSuffix(c.Callee, "Trainer.train")) {
			return true
		}
	}
	return false
}

func allHiddenStates(p *Pass) {
	for _, c := range p.calls() {
		if c.Effect&model.Forward == 0 && c.Callee != "?" || c.Func != nil || c.Class != nil {
			continue
		}
		for _, name := range []string{"output_hidden_states", "output_attentions"} {
			if !p.isTrue(c, name) {
				continue
			}
			attr := strings.TrimPrefix(name, "output_")
			a, ok := p.File.Parent(c.Node).(*pysource.Assign)
			if !ok || len(a.Targets) != 1 {
				continue
			}
			out, ok := a.Targets[0].(*pysource.Name)
			if !ok || p.usesOutput(a, out.Ident, attr) {
				continue
			}
			p.Report(keyword(c.Node, name), "%s=True, and %s.%s is never read: every layer's tensor is kept to the end of the pass. Leave it out.", name, out.Ident, attr)
		}
	}
}

// usesOutput reports whether an output's attribute is read, or the output is
// used as a whole, so that somebody else may read it.
func (p *Pass) usesOutput(after pysource.Node, name, attr string) bool {
	used := false
	p.inspectScope(after, func(n pysource.Node) bool {
		id, ok := n.(*pysource.Name)
		if !ok || id.Ident != name || id.Pos() < after.End() {
			return !used
		}
		switch parent := p.File.Parent(id).(type) {
		case *pysource.Attribute:
			if parent.Name == attr || !(parent.Name == "loss" || parent.Name == "logits" || parent.Name == "last_hidden_state" || parent.Name == "pooler_output") {
				used = true
			}
		case *pysource.Assign:
			if p.isTarget(id) {
				return true
			}
			used = true
		default:
			used = true
		}
		return !used
	})
	return used
}

func modelOutsideFinder(p *Pass) {
	for _, f := range p.M.Funcs {
		finder := false
		for _, d := range f.Def.Decorators {
			if c := p.M.Call(d); c != nil && c.Callee == "accelerate.utils.find_executable_batch_size" {
				finder = true
			}
			if v := p.M.Value(d); v.Kind == model.Namespace && v.Name == "accelerate.utils.find_executable_batch_size" {
				finder = true
			}
		}
		if !finder {
			continue
		}
		reported := false
		p.inspectAll(f.Def.Body, func(n pysource.Node) bool {
			name, ok := n.(*pysource.Name)
			if !ok || reported {
				return !reported
			}
			v := p.M.Value(name)
			if !v.Is(model.Net) || v.Origin == nil || v.Origin.Pos() >= f.Def.Pos() && v.Origin.End() <= f.Def.End() || v.Dev == "cpu" || v.Class != nil && v.Self != nil || isLoss(v.Name) {
				return true
			}
			// Made anew within?
			for _, s := range f.Def.Body {
				if p.assigns(s, name.Ident, nil) {
					return true
				}
			}
			reported = true
			p.Report(name, "%s is made outside of %s, which is retried after an out-of-memory error: the model, its gradients and the optimizer's state stay, and the retry has less memory. Make it within.", name.Ident, f.Def.Name)
			return false
		})
	}
}

func isLoss(name string) bool { return strings.HasSuffix(name, "Loss") }

func loraBase(p *Pass) {
	for _, c := range p.M.To("peft.get_peft_model") {
		if len(c.Node.Args) == 0 {
			continue
		}
		load := p.fromPretrained(c.Node.Args[0])
		if load == nil {
			continue
		}
		for _, key := range []string{"dtype", "torch_dtype"} {
			if k := keyword(load.Node, key); k != nil && p.M.Value(k.Value).Is(model.DType) && p.constant(k.Value) == "float32" {
				p.Report(k, "the frozen base is loaded in float32: 4 bytes per parameter where 2 do (bfloat16).")
			}
		}
	}
	for _, c := range p.M.To("peft.LoraConfig") {
		k := keyword(c.Node, "modules_to_save")
		if k == nil {
			continue
		}
		list, ok := k.Value.(*pysource.Sequence)
		if !ok {
			continue
		}
		heavy := 0
		for _, e := range list.Elts {
			switch p.constant(e) {
			case "lm_head", "embed_tokens", "wte":
				heavy++
			}
		}
		if heavy == 2 {
			p.Report(k, "modules_to_save trains the whole embedding and head: 16 bytes × vocabulary × hidden for each, often more than all adapters. Leave them out unless tokens were added.")
		}
	}
}

func secondReference(p *Pass) {
	for _, c := range p.calls() {
		if !strings.HasPrefix(c.Callee, "trl.") || !strings.HasSuffix(c.Callee, "Trainer") {
			continue
		}
		ref, peft, base := keyword(c.Node, "ref_model"), keyword(c.Node, "peft_config"), c.Arg(0, "model")
		if ref == nil || base == nil || p.M.Value(ref.Value).Kind == model.None {
			continue
		}
		if peft == nil || p.M.Value(peft.Value).Kind == model.None {
			continue
		}
		a, b := p.fromPretrained(base), p.fromPretrained(ref.Value)
		if a == nil || b == nil || len(a.Node.Args) == 0 || len(b.Node.Args) == 0 || p.key(a.Node.Args[0]) != p.key(b.Node.Args[0]) {
			continue
		}
		p.Report(ref, "the reference is a second copy of the base on the same card. With peft_config, ref_model=None uses the base with its adapters off.")
	}
}
