package rules

import (
	"strings"

	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

var lightningRules = []Rule{
	{
		ID: "GM1101", Name: "step-outputs-never-cleared", Group: "lightning", Severity: Warning,
		Says:    "Outputs of validation steps are collected in an attribute that nothing clears.",
		Cost:    "all outputs of all epochs stay on the GPU",
		Instead: "append .cpu(), and clear the list in on_validation_epoch_end",
		Quiet:   "the list is cleared or made anew in the class; numbers",
		Source:  "Lightning-AI/pytorch-lightning#16520, #8453", Remedy: "R25",
		Check: stepOutputsKept,
	},
	{
		ID: "GM1102", Name: "training-step-returns-tensors", Group: "lightning", Severity: Warning,
		Says:    "training_step returns more than the loss, with graphs.",
		Cost:    "the outputs and their graphs live until the hooks have run: twice the peak for a big head",
		Instead: "return the loss; log what is wanted",
		Quiet:   "a hook or epoch end uses the outputs",
		Source:  "Lightning-AI/pytorch-lightning#9336", Remedy: "R25",
		Check: trainingStepReturns,
	},
	{
		ID: "GM1104", Name: "old-trainer-arguments", Group: "lightning", Severity: Warning,
		Says:    "The Trainer gets arguments of Lightning 1.",
		Cost:    "TypeError, or another precision than meant",
		Instead: "precision=\"16-mixed\", devices=…, strategy=\"ddp\"",
		Quiet:   "Trainers of other libraries",
		Source:  "Lightning fabric/plugins/precision/precision.py", Remedy: "R03",
		Check: oldTrainerArguments,
	},
}

func stepOutputsKept(p *Pass) {
	for _, class := range p.M.Classes {
		if !class.Is("lightning.LightningModule") {
			continue
		}
		for _, name := range []string{"validation_step", "test_step", "training_step", "predict_step"} {
			f := class.Methods[name]
			if f == nil || f.Class != class {
				continue
			}
			for _, c := range p.callsIn(f.Def) {
				a, ok := c.Node.Fun.(*pysource.Attribute)
				if !ok || a.Name != "append" && a.Name != "extend" || len(c.Node.Args) != 1 {
					continue
				}
				attr, ok := a.X.(*pysource.Attribute)
				if !ok || p.key(attr.X) != "self" {
					continue
				}
				v := p.M.Value(c.Node.Args[0])
				tensor := v.May(model.Tensor) || v.Kind == model.Dict || v.Kind == model.Tuple
				if !tensor || p.clearedInClass(class, p.key(attr), "__init__") || p.mentions("."+attr.Name+".clear()") {
					continue
				}
				p.Report(c.Node, "%s grows in every %s and nothing clears it: the outputs of all epochs stay. Append .cpu() and clear it at the end of the epoch.", p.key(attr), name)
			}
		}
	}
}

func trainingStepReturns(p *Pass) {
	for _, class := range p.M.Classes {
		if !class.Is("lightning.LightningModule") {
			continue
		}
		f := class.Methods["training_step"]
		if f == nil || f.Class != class {
			continue
		}
		for _, hook := range []string{"on_train_batch_end", "training_epoch_end", "training_step_end", "on_train_epoch_end"} {
			if class.Methods[hook] != nil {
				f = nil
				break
			}
		}
		if f == nil || p.mentions("on_train_batch_end") {
			continue
		}
		p.inspectAll(f.Def.Body, func(n pysource.Node) bool {
			r, ok := n.(*pysource.Return)
			if !ok || r.X == nil {
				return true
			}
			d, ok := p.resolve(r.X).(*pysource.Dict)
			if !ok {
				return true
			}
			for i, k := range d.Keys {
				v := p.M.Value(d.Values[i])
				if k == nil || p.constant(k) == "loss" || !v.HasGraph() || v.Reduced() {
					continue
				}
				p.Report(d.Values[i], "training_step returns %s beside the loss: it and its graph live until the hooks of the step have run. Return the loss, or a detached value.", p.short(d.Values[i]))
			}
			return true
		})
	}
}

func oldTrainerArguments(p *Pass) {
	for _, c := range p.M.To("lightning.Trainer", "lightning.trainer.Trainer") {
		for _, k := range c.Node.Keywords {
			v := p.constant(k.Value)
			switch k.Name {
			case "amp_backend", "amp_level", "gpus", "tpu_cores", "auto_select_gpus", "checkpoint_callback", "progress_bar_refresh_rate", "weights_summary":
				p.Report(k, "%s is gone from Lightning 2 (TypeError).%s", k.Name, trainerHint(k.Name))
			case "precision":
				if v == "16" || v == "bf16" {
					name := v + "-mixed"
					p.Report(k, "precision=%s is the spelling of Lightning 1: it means \"%s\" with a warning. Say \"%s\", or \"%s-true\" for weights in 16 bits.", p.key(k.Value), name, name, v)
				}
			case "strategy", "accelerator":
				if strings.HasPrefix(v, "dp") || v == "ddp2" {
					p.Report(k, "strategy=%q is gone from Lightning 2. Use \"ddp\".", v)
				}
			}
		}
	}
}

func trainerHint(name string) string {
	switch name {
	case "gpus":
		return " Use accelerator=\"gpu\", devices=…."
	case "amp_backend", "amp_level":
		return " Use precision=\"16-mixed\"."
	}
	return ""
}
