package rules

import (
	"strings"

	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

var trainerRules = []Rule{
	{
		ID: "GM1001", Name: "predictions-on-gpu", Group: "transformers", Severity: Warning,
		Says:    "compute_metrics makes the Trainer collect all predictions on the GPU.",
		Cost:    "number of samples × sequence × vocabulary until the evaluation ends",
		Instead: "preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1), and eval_accumulation_steps",
		Quiet:   "classification heads; prediction_loss_only; arguments that this file does not show",
		Source:  "transformers training_args.py (“the whole predictions are accumulated on the device”); transformers#7232, #25313", Remedy: "R06",
		Check: predictionsOnGPU,
	},
	{
		ID: "GM1002", Name: "seq2seq-logits", Group: "transformers", Severity: Warning,
		Says:    "A seq2seq evaluation decodes text, but the trainer collects logits.",
		Cost:    "number of samples × sequence × vocabulary, instead of token ids",
		Instead: "predict_with_generate=True",
		Quiet:   "metrics that do not decode",
		Source:  "transformers training_args_seq2seq.py", Remedy: "R06",
		Check: seq2seqLogits,
	},
	{
		ID: "GM1005", Name: "two-checkpointing-owners", Group: "transformers", Severity: Warning,
		Says:    "Both the model and FSDP checkpoint the activations.",
		Cost:    "a needless all-gather of the parameters in the backward pass",
		Instead: "fsdp_config={\"activation_checkpointing\": True} alone",
		Source:  "transformers training_args.py", Remedy: "R07",
		Check: twoCheckpointingOwners,
	},
	{
		ID: "GM1007", Name: "removed-argument", Group: "transformers", Severity: Error,
		Says:    "A training argument was removed or renamed.",
		Cost:    "TypeError at the start: a remedy from an old article never runs",
		Instead: "the new name",
		Quiet:   "a pinned version that still has it",
		Source:  "transformers MIGRATION_GUIDE_V5.md", Remedy: "", Fixes: true,
		Check: removedArgument,
	},
	{
		ID: "GM1008", Name: "trainer-empties-cache", Group: "transformers", Severity: Warning,
		Says:    "The Trainer empties the cache in every step.",
		Cost:    "about 10 % of the speed, for no memory that PyTorch could not use",
		Instead: "leave torch_empty_cache_steps unset",
		Quiet:   "values of 10 and more",
		Source:  "transformers training_args.py; transformers#31372", Remedy: "R13",
		Check: trainerEmptiesCache,
	},
}

func isTrainingArguments(callee string) bool {
	return callee == "transformers.TrainingArguments" || callee == "transformers.Seq2SeqTrainingArguments" ||
		callee == "transformers.training_args.TrainingArguments"
}

// arguments returns the TrainingArguments call that a Trainer is given, or nil.
func (p *Pass) arguments(trainer *model.Call) *model.Call {
	x := trainer.Arg(1, "args")
	if x == nil {
		return nil
	}
	c := p.M.Call(p.resolve(x))
	if c == nil || !isTrainingArguments(c.Callee) {
		return nil
	}
	return c
}

func predictionsOnGPU(p *Pass) {
	for _, c := range p.M.To("transformers.Trainer", "transformers.Seq2SeqTrainer") {
		metrics := keyword(c.Node, "compute_metrics")
		if metrics == nil || p.M.Value(metrics.Value).Kind == model.None || keyword(c.Node, "preprocess_logits_for_metrics") != nil || c.HasStar() {
			continue
		}
		args := p.arguments(c)
		if args == nil || args.HasStar() {
			continue
		}
		quiet, known := false, false
		for _, name := range []string{"eval_accumulation_steps", "prediction_loss_only", "batch_eval_metrics", "predict_with_generate"} {
			if k := keyword(args.Node, name); k != nil && p.constant(k.Value) != "False" && p.M.Value(k.Value).Kind != model.None {
				quiet = true
			}
		}
		if x := c.Arg(0, "model"); x != nil {
			name := p.M.Value(x).Name
			for _, head := range []string{"Classification", "Regression", "MultipleChoice", "NextSentence"} {
				quiet = quiet || strings.Contains(name, head)
			}
			known = strings.HasPrefix(name, "transformers.")
		}
		if !quiet {
			severity := Warning
			if !known {
				severity = Info // a head that is not known may be small
			}
			p.Report(metrics, "with compute_metrics all predictions of the evaluation are collected on the GPU: samples × sequence × vocabulary. Reduce them in preprocess_logits_for_metrics, and set eval_accumulation_steps.").As(severity)
		}
	}
}

func seq2seqLogits(p *Pass) {
	for _, c := range p.M.To("transformers.Seq2SeqTrainer") {
		args := p.arguments(c)
		metrics := keyword(c.Node, "compute_metrics")
		if args == nil || metrics == nil || args.HasStar() || p.isTrue(args, "predict_with_generate") {
			continue
		}
		if k := keyword(args.Node, "predict_with_generate"); k != nil && p.constant(k.Value) == "" {
			continue
		}
		f := p.M.Value(metrics.Value).Func
		if f == nil || !strings.Contains(p.File.Text(f.Def), ".batch_decode(") {
			continue
		}
		p.Report(args.Node, "%s decodes text, but without predict_with_generate=True the trainer collects logits: samples × sequence × vocabulary.", f.Def.Name)
	}
}

func twoCheckpointingOwners(p *Pass) {
	for _, c := range p.calls() {
		if !isTrainingArguments(c.Callee) || !p.isTrue(c, "gradient_checkpointing") || keyword(c.Node, "fsdp") == nil {
			continue
		}
		k := keyword(c.Node, "fsdp_config")
		if k == nil {
			continue
		}
		d, ok := p.resolve(k.Value).(*pysource.Dict)
		if !ok {
			continue
		}
		if p.dictConfig(d).get("activation_checkpointing").is("True") {
			p.Report(keyword(c.Node, "gradient_checkpointing"), "FSDP checkpoints the activations already: with both, the parameters are gathered once more in the backward pass. Leave gradient_checkpointing out.")
		}
	}
}

// renamedArguments are those whose value means the same under the new name.
var renamedArguments = map[string]string{
	"per_gpu_train_batch_size": "per_device_train_batch_size",
	"per_gpu_eval_batch_size":  "per_device_eval_batch_size",
	"no_cuda":                  "use_cpu",
	"evaluation_strategy":      "eval_strategy",
}

// removedArguments have no equal; the text says what to do.
var removedArguments = map[string]string{
	"fp16_backend":                       "leave it out",
	"half_precision_backend":             "leave it out",
	"jit_mode_eval":                      "use torch_compile",
	"fsdp_min_num_params":                "put min_num_params into fsdp_config",
	"fsdp_transformer_layer_cls_to_wrap": "put transformer_layer_cls_to_wrap into fsdp_config",
	"include_inputs_for_metrics":         "use include_for_metrics",
	"push_to_hub_token":                  "use hub_token",
}

func removedArgument(p *Pass) {
	if v := p.Around.TransformersVersion; v != "" && v[0] < '5' {
		return
	}
	severity := Warning
	if p.Around.TransformersVersion != "" {
		severity = Error
	}
	for _, c := range p.calls() {
		if !isTrainingArguments(c.Callee) {
			continue
		}
		for _, k := range c.Node.Keywords {
			if to := renamedArguments[k.Name]; to != "" {
				p.Report(k, "%s is gone from transformers 5 (TypeError at the start): it is %s now.", k.Name, to).As(severity).
					WithFix("rename to "+to, Edit{k.Pos(), k.Pos() + len(k.Name), to})
			} else if what := removedArguments[k.Name]; what != "" {
				p.Report(k, "%s is gone from transformers 5 (TypeError at the start): %s.", k.Name, what).As(severity)
			}
		}
	}
}

func trainerEmptiesCache(p *Pass) {
	for _, c := range p.calls() {
		if isTrainingArguments(c.Callee) {
			if k := keyword(c.Node, "torch_empty_cache_steps"); k != nil && p.constant(k.Value) == "1" {
				p.Report(k, "the cache is emptied after every step: about 10 %% slower, for no memory that PyTorch could not use. Leave it out.")
			}
		}
		if !isEmptyCache(c.Callee) || p.guarded(c.Node) {
			continue
		}
		f := p.M.Func(c.Node)
		if f == nil || !f.Class.Is("transformers.TrainerCallback", "lightning.Callback") {
			continue
		}
		switch f.Def.Name {
		case "on_step_end", "on_step_begin", "on_substep_end", "on_train_batch_end", "on_train_batch_start", "on_prediction_step":
			p.Report(c.Node, "%s empties the cache in every step: a synchronisation and new cudaMallocs each time, for no memory that PyTorch could not use.", f.Def.Name)
		}
	}
}
