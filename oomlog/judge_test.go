package oomlog

import (
	"strings"
	"testing"
)

const message = "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.79 GiB total capacity; 5.50 GiB already allocated; 18.00 MiB free; 5.75 GiB reserved in total by PyTorch)"

// TestKinds: the same message is a failure, was caught, or is only spoken of.
func TestKinds(t *testing.T) {
	const tb = "Traceback (most recent call last):\n  File \"/work/train.py\", line 12, in <module>\n    loss.backward()\n"
	for _, tc := range []struct {
		name, log string
		want      string // the kinds of the messages
	}{
		{"bare", message, "failure"},
		{"exception", "RuntimeError: " + message, "failure"},
		{"traceback", tb + "RuntimeError: " + message, "failure"},
		{"logger", "2026-01-02 03:04:05,678 - trainer - ERROR - Training failed: " + message, "failure"},
		{"structured", `{"time":"2026-01-02","level":"error","msg":"step failed: RuntimeError: ` + message + `"}`, "failure"},
		{"glued to a progress bar", " 41%|####      | 41/100 [00:10<00:14,  4.10it/s]RuntimeError: " + message, "failure"},
		{"C++", "terminate called after throwing an instance of 'c10::Error'\n  what():  " + message, "failure"},
		{"printed by a handler", "Error occurred when running the sampler: " + message, "failure"},

		{"dataset row", `{"id": 17, "question": "Training stops with RuntimeError: ` + message + ` after one epoch", "answer": "Use a smaller batch."}`, "mention"},
		{"python repr of a row", `{'text': 'RuntimeError: ` + message + `'}`, "mention"},
		{"prose", "I get the error RuntimeError: " + message + " and do not know why.", "mention"},
		{"document", "A typical failure of a training job is the well known message " + message, "mention"},
		{"user", "User: my script says " + message, "mention"},
		{"model output", "Assistant: The error \"" + message + "\" means that the card is full.", "mention"},
		{"comment", "# RuntimeError: " + message, "mention"},
		{"source", "    raise RuntimeError(\"" + message + "\")", "mention"},
		{"help", "  --retry-on-oom  try again after RuntimeError: " + message, "mention"},
		{"code block", "Answer follows\n```\nRuntimeError: " + message + "\n```\nstep 5 done", "mention"},
		{"retrieved", "Retrieved document 3: RuntimeError: " + message, "mention"},

		{"inline code", "- `RuntimeError: " + message + "`: the card is full", "mention"},
		{"table of a document", "| 1.4 | RuntimeError: " + message + " |", "mention"},
		{"loguru", "2026-01-02 03:04:05.678 | ERROR    | trainer:fit:10 - " + message, "failure"},

		{"ComfyUI", "!!! Exception during processing !!! " + message, "failure"},

		{"handler tries to recover", "2026-01-02 03:04:05 | WARNING | fairseq.trainer | OOM: Ran out of memory with exception: " + message + "\n2026-01-02 03:04:05 | WARNING | fairseq.trainer | attempting to recover from OOM in forward/backward pass", "caught"},
		{"handler says so", "WARNING: " + message + ", retrying with batch size 8", "caught"},
		{"handler on the next line", "RuntimeError: " + message + "\nOOM in forward, skipping batch 17", "caught"},
		{"went on", "step 10 loss 2.1\n" + tb + "RuntimeError: " + message + "\nstep 11 loss 2.0\nstep 12 loss 1.9", "caught"},
		{"started again", "step 10 loss 2.1\n" + tb + "RuntimeError: " + message + "\nstep 1 loss 2.0\nstep 2 loss 1.9", "failure"},
		{"advice is no handler", "RuntimeError: " + message + "\nPlease try reducing the batch size.", "failure"},
		{"raised again", tb + "RuntimeError: " + message + "\n\nDuring handling of the above exception, another exception occurred:\n\n" + tb + "ValueError: gave up", "failure"},
		{"far behind it went on", "step 10 loss 2.1\nRuntimeError: " + message + "\n" + strings.Repeat("debug: nothing to see\n", 30000) + "step 11 loss 2.0", "caught"},

		{"words only", "the job ran out of memory\nOutOfMemory errors are common", ""},
		{"two runs in one log", tb + "RuntimeError: " + message + "\n" + tb + "RuntimeError: " + strings.Replace(message, "18.00", "16.00", 1), "failure failure"},
		{"logger and exception", "ERROR: " + message + "\n" + tb + "RuntimeError: " + message, "failure"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			report := mustScan(t, tc.log+"\n")
			var kinds []string
			for _, f := range report.Failures {
				kinds = append(kinds, string(f.Kind))
			}
			if got := strings.Join(kinds, " "); got != tc.want {
				t.Errorf("got %q; want %q", got, tc.want)
				for _, f := range report.Failures {
					t.Logf("line %d: %s: %+v", f.Line, f.Grammar, f.Why)
				}
			}
		})
	}
}

func TestMentionsAreCounted(t *testing.T) {
	report := mustScan(t, "the job ran out of memory\nfine\nOutOfMemoryError handling: on\n")
	if report.Mentions != 2 || len(report.MentionFacts) != 2 || report.MentionFacts[1].Line != 3 {
		t.Errorf("%d mentions, %+v; want 2, on lines 1 and 3", report.Mentions, report.MentionFacts)
	}
	report = mustScan(t, "torch.OutOfMemoryError: "+message+"\n")
	if report.Mentions != 0 {
		t.Errorf("a failure counts as %d mentions", report.Mentions)
	}
}

func TestTracebackAndFacts(t *testing.T) {
	log := `[rank1]: ***** Running training *****
[rank1]:   Num examples = 1,024
[rank1]:   Instantaneous batch size per device = 16
[rank0]: {'loss': 2.31, 'epoch': 0.5}
[rank1]:  41%|####      | 41/100 [00:10<00:14,  4.10it/s]
[rank1]: Traceback (most recent call last):
[rank0]: something else
[rank1]:   File "/work/train.py", line 88, in train
[rank1]:     optimizer.step()
[rank1]:   File "/opt/torch/optim/adamw.py", line 190, in step
[rank1]:     exp_avg = torch.zeros_like(p)
[rank1]: torch.OutOfMemoryError: ` + message + "\n"
	f := one(t, log)
	if f.Rank == nil || *f.Rank != 1 || f.Stream != "rank1" || f.Exception != "torch.OutOfMemoryError" || f.Line != 12 {
		t.Errorf("rank %v, stream %q, exception %q, line %d", f.Rank, f.Stream, f.Exception, f.Line)
	}
	want := []Frame{
		{"/work/train.py", 88, "train", "optimizer.step()"},
		{"/opt/torch/optim/adamw.py", 190, "step", "exp_avg = torch.zeros_like(p)"},
	}
	if f.Traceback == nil || len(f.Traceback.Frames) != 2 || f.Traceback.Frames[0] != want[0] || f.Traceback.Frames[1] != want[1] || f.Traceback.Line != 6 {
		t.Errorf("traceback %+v; want %+v", f.Traceback, want)
	}
	var phase, step *Fact
	for i := range f.Facts {
		switch f.Facts[i].Kind {
		case PhaseFact:
			phase = &f.Facts[i]
		case StepFact:
			step = &f.Facts[i]
		}
	}
	if phase == nil || phase.Name != PhaseOptimizer {
		t.Errorf("phase %+v; want %s", phase, PhaseOptimizer)
	}
	if step == nil || step.Value == nil || *step.Value != 41 || step.Line != 5 {
		t.Errorf("step %+v; want 41 on line 5", step)
	}
}

// TestNotebookTraceback reads IPython's form.
func TestNotebookTraceback(t *testing.T) {
	f := one(t, `---------------------------------------------------------------------------
OutOfMemoryError                          Traceback (most recent call last)
Cell In[5], line 3
      1 for x in loader:
      2     out = model(x)
----> 3     out.sum().backward()

File /opt/lib/python3.11/site-packages/torch/_tensor.py:525, in Tensor.backward(self, gradient)
    523     return
--> 525 torch.autograd.backward(
    526     self, gradient)

OutOfMemoryError: `+message+"\n")
	if f.Traceback == nil || len(f.Traceback.Frames) != 2 {
		t.Fatalf("traceback %+v; want two frames", f.Traceback)
	}
	want := []Frame{{"Cell In[5]", 3, "", "out.sum().backward()"}, {"/opt/lib/python3.11/site-packages/torch/_tensor.py", 525, "Tensor.backward", "torch.autograd.backward("}}
	for i, w := range want {
		if f.Traceback.Frames[i] != w {
			t.Errorf("frame %d: %+v; want %+v", i, f.Traceback.Frames[i], w)
		}
	}
}

// TestPhases reads the phase from the frames and lines of the usual trainers.
func TestPhases(t *testing.T) {
	for _, tc := range []struct{ name, lines, want string }{
		{"optimizer", `  File "/opt/torch/optim/adam.py", line 90, in _init_group` + "\n    state['exp_avg_sq'] = torch.zeros_like(p)", PhaseOptimizer},
		{"backward", `  File "/opt/torch/autograd/__init__.py", line 266, in backward` + "\n    _engine_run_backward(", PhaseBackward},
		{"loss", `  File "/opt/torch/nn/functional.py", line 3479, in cross_entropy` + "\n    return torch._C._nn.cross_entropy_loss(", PhaseLoss},
		{"evaluation", `  File "/opt/transformers/trainer.py", line 4000, in evaluation_loop` + "\n    all_preds = nested_concat(all_preds, logits)", PhaseEvaluate},
		{"generation", `  File "/opt/transformers/generation/utils.py", line 2215, in generate` + "\n    result = self._sample(", PhaseGenerate},
		{"saving", `  File "/opt/transformers/trainer.py", line 3000, in _save_checkpoint` + "\n    self.save_model(output_dir)", PhaseSave},
		{"loading", `  File "/opt/torch/serialization.py", line 1097, in load` + "\n    return _load(", PhaseLoad},
		{"capture", `  File "/opt/torch/cuda/graphs.py", line 40, in capture_begin` + "\n    super().capture_begin()", PhaseCapture},
		{"to device", `  File "/opt/torch/nn/modules/module.py", line 1340, in to` + "\n    return self._apply(convert)", PhaseModel},
		{"context", `  File "/opt/torch/cuda/__init__.py", line 300, in _lazy_init` + "\n    torch._C._cuda_init()", PhaseContext},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := one(t, "Traceback (most recent call last):\n"+tc.lines+"\nRuntimeError: "+message+"\n")
			for _, fact := range f.Facts {
				if fact.Kind == PhaseFact && fact.Name == tc.want {
					return
				}
			}
			t.Errorf("facts %+v; want the phase %s", f.Facts, tc.want)
		})
	}
	f := one(t, "***** Running Evaluation *****\n  Num examples = 100\nRuntimeError: "+message+"\n")
	if len(f.Facts) == 0 || f.Facts[0].Name != PhaseEvaluate {
		t.Errorf("facts %+v; want evaluation", f.Facts)
	}
}

// TestConsequences: what peers say after a failure is not the failure.
func TestConsequences(t *testing.T) {
	log := "[rank2]: torch.OutOfMemoryError: " + message + `
[rank0]:[E1 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)
W0102 03:04:05.678901 12 torch/distributed/elastic/multiprocessing/api.py:851] Sending process 13 closing signal SIGTERM
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
`
	report := mustScan(t, log)
	first := report.First()
	if first == nil || first.Rank == nil || *first.Rank != 2 {
		t.Fatalf("first failure %+v; want rank 2's", first)
	}
	if got := len(report.OfKind(Consequence)); got != 3 {
		t.Errorf("%d consequences; want 3", got)
	}
}

// TestLadder: TensorFlow's attempts with nine tenths are one event.
func TestLadder(t *testing.T) {
	log := ""
	for _, s := range []string{"7.21G (7741244928 bytes)", "6.49G (6967120384 bytes)", "5.84G (6270408192 bytes)"} {
		log += "2020-01-02 03:04:05.678901: I tensorflow/stream_executor/cuda/cuda_driver.cc:763] failed to allocate " + s + " from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"
	}
	f := one(t, log)
	if f.Kind != Warning || f.Repeats != 2 || f.Tried == nil || f.Tried.String() != "7.21 GiB" {
		t.Errorf("%s, %d repeats, %v", f.Kind, f.Repeats, f.Tried)
	}
}

// TestReportFacts reads settings, start-up lines and memory use.
func TestReportFacts(t *testing.T) {
	log := `INFO 01-02 03:04:05 [gpu_worker.py:276] Available KV cache memory: 7.50 GiB
INFO 01-02 03:04:05 [kv_cache_utils.py:864] GPU KV cache size: 61,440 tokens
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128
torch.cuda.set_per_process_memory_fraction(0.5)
NVIDIA A100 80GB PCIe MIG 1g.10gb
[2026-01-02 03:04:05,678] [INFO] [utils.py:801:see_memory_usage] MA 12.5 GB Max_MA 14.0 GB CA 15.0 GB Max_CA 15 GB
step 10 loss 2.0 mem 10.50GiB
step 20 loss 1.9 mem 11.50GiB
`
	report := mustScan(t, log)
	want := map[string]float64{"available_kv_cache": 7.5 * (1 << 30), "kv_cache_tokens": 61440, "memory_fraction": 0.5, "slice": 10, "deepspeed": 12.5 * (1 << 30)}
	for _, fact := range report.Facts {
		if v, ok := want[fact.Name]; ok {
			if fact.Value == nil || *fact.Value != v {
				t.Errorf("%s = %v; want %v (%q)", fact.Name, fact.Value, v, fact.Text)
			}
			delete(want, fact.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("no fact of %v in %+v", want, report.Facts)
	}
	if n := len(report.Usage); n < 2 || report.Usage[n-1].Step != 20 || report.Usage[n-1].Used.String() != "11.50 GiB" {
		t.Errorf("usage %+v; want 10.5 GiB at 10, 11.5 GiB at 20", report.Usage)
	}
}

// TestOnOneLine: a consequence does not hide the cause that stands beside it, and
// one message does not swallow the next line.
func TestOnOneLine(t *testing.T) {
	for _, tc := range []struct{ log, want string }{
		{"Error: llama runner process has terminated: cudaMalloc failed: out of memory", "ollama/runner ggml/cuda-malloc"},
		{"slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step tasks have been OOM Killed.\nsrun: error: n1: task 0: Out Of Memory", "slurm/oom slurm/task"},
	} {
		var got []string
		for _, f := range mustScan(t, tc.log+"\n").Failures {
			got = append(got, f.Grammar)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%q gives %q; want %q", tc.log, got, tc.want)
		}
	}
}
