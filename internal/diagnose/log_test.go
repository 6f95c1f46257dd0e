package diagnose

import (
	"slices"
	"strings"
	"testing"

	"vramscope/internal/cause"
	"vramscope/oomlog"
)

// torch26 is PyTorch 2.6's message with these numbers.
func torch26(tried, capacity, free, processes, allowed, allocated, idle string) string {
	if allowed != "" {
		allowed += " allowed; "
	}
	return "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate " + tried + ". GPU 0 has a total capacity of " + capacity + " of which " + free + " is free. " +
		processes + allowed + "Of the allocated memory " + allocated + " is allocated by PyTorch, and " + idle + " is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)\n"
}

// under puts a message under a traceback with these frames, outermost first.
func under(message string, frames ...string) string {
	var b strings.Builder
	b.WriteString("Traceback (most recent call last):\n")
	for _, f := range frames {
		file, code, _ := strings.Cut(f, "|")
		function, source, _ := strings.Cut(code, "|")
		b.WriteString("  File \"" + file + "\", line 10, in " + function + "\n    " + source + "\n")
	}
	return b.String() + message
}

const self = "Including non-PyTorch memory, this process has "

// TestCausesOfLogs: messages written by the grammars, with the cause that their
// numbers and surroundings tell.
func TestCausesOfLogs(t *testing.T) {
	full := torch26("512.00 MiB", "23.65 GiB", "180.00 MiB", self+"23.40 GiB memory in use. ", "", "22.60 GiB", "210.00 MiB")
	for _, tc := range []struct {
		name, log string
		first     cause.ID
		not       []cause.ID // not from a confidence of a half
	}{
		{"a full card", full, cause.TooBig, []cause.ID{cause.Fragmentation, cause.OtherProcess, cause.Limit}},
		{"one tensor that never fits", torch26("96.00 GiB", "23.65 GiB", "20.00 GiB", self+"3.20 GiB memory in use. ", "", "2.10 GiB", "200.00 MiB"), cause.TooBig, []cause.ID{cause.Fragmentation, cause.OtherProcess}},
		{"a tenth of the card is idle, in pieces", torch26("1.50 GiB", "23.65 GiB", "90.00 MiB", self+"23.50 GiB memory in use. ", "", "17.10 GiB", "5.60 GiB"), cause.Fragmentation, []cause.ID{cause.OtherProcess}},
		{"a tiny request on a full card is no fragmentation", torch26("20.00 MiB", "79.15 GiB", "12.00 MiB", self+"79.10 GiB memory in use. ", "", "77.90 GiB", "340.00 MiB"), cause.TooBig, []cause.ID{cause.Fragmentation}},
		{"somebody else has most of it", torch26("1.00 GiB", "23.65 GiB", "300.00 MiB", "Process 99 has 18.00 GiB memory in use. "+self+"5.20 GiB memory in use. ", "", "4.60 GiB", "90.00 MiB"), cause.OtherProcess, []cause.ID{cause.TooBig, cause.Fragmentation}},
		{"nobody listed, and most of it gone", torch26("1.00 GiB", "23.65 GiB", "300.00 MiB", "", "", "4.60 GiB", "90.00 MiB"), cause.OtherProcess, []cause.ID{cause.Fragmentation}},
		{"a fraction that somebody set", torch26("512.00 MiB", "79.15 GiB", "60.00 GiB", self+"10.40 GiB memory in use. ", "10.00 GiB", "9.70 GiB", "40.00 MiB"), cause.Limit, []cause.ID{cause.OtherProcess, cause.Fragmentation}},
		{"five GiB beside the allocator", torch26("1.00 GiB", "23.65 GiB", "200.00 MiB", self+"23.30 GiB memory in use. ", "", "17.00 GiB", "100.00 MiB"), cause.OutsideFramework, []cause.ID{cause.Fragmentation, cause.OtherProcess}},
		{"the first optimizer step", "step 1\n" + under(full, "train.py|main|optimizer.step()", "site-packages/torch/optim/adamw.py|_init_group|state[\"exp_avg_sq\"] = torch.zeros_like(p)"), cause.OptimizerState, []cause.ID{cause.Fragmentation}},
		{"evaluation keeps its logits", "***** Running Evaluation *****\n" + under(full, "site-packages/transformers/trainer.py|evaluation_loop|all_preds = nested_concat(all_preds, logits)", "site-packages/transformers/trainer_pt_utils.py|nested_concat|return torch.cat((a, b))"), cause.Evaluation, nil},
		{"generation", under(full, "chat.py|main|model.generate(**inputs)", "site-packages/transformers/generation/utils.py|_sample|outputs = self(**model_inputs)"), cause.Generation, nil},
		{"saving", under(full, "train.py|save_checkpoint|torch.save(model.state_dict(), path)"), cause.Checkpoint, nil},
		{"loading a checkpoint onto the card", under(full, "train.py|main|state = torch.load(path)", "site-packages/torch/serialization.py|default_restore_location|result = fn(storage, location)"), cause.Checkpoint, nil},
		{"the loss over the vocabulary", under(torch26("7.83 GiB", "79.15 GiB", "7.50 GiB", self+"70.60 GiB memory in use. ", "", "68.00 GiB", "900.00 MiB"), "train.py|main|loss = model(**batch).loss", "site-packages/transformers/loss/loss_utils.py|ForCausalLMLoss|logits = logits.float()"), cause.Logits, []cause.ID{cause.Fragmentation}},
		{"a garbage size", "RuntimeError: CUDA out of memory. Tried to allocate more than 1EB memory.\n", cause.CorruptSize, nil},
		{"cuBLAS cannot start", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n", cause.WorkspaceOrContext, nil},
		{"no algorithm fits", "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution\n", cause.WorkspaceOrContext, nil},
		{"NCCL's buffers", "node1:88:99 [2] include/alloc.h:48 NCCL WARN Cuda failure 'out of memory'\n", cause.CollectiveBuffers, nil},
		{"a server finds the card taken", "ValueError: Free memory on device (10.20/23.65 GiB) on startup is less than desired GPU memory utilization (0.9, 21.28 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.\n", cause.OtherProcess, nil},
		{"a server without room for its cache", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n", cause.KVCache, nil},
		{"a sequence longer than the cache", "ValueError: To serve at least one request with the model's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (5.20 GiB). Based on the available memory, the estimated maximum model length is 42592. Try increasing `gpu_memory_utilization`\n", cause.KVCache, nil},
		{"a server warming up", "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.\n", cause.ServerStartup, nil},
		{"the host's memory", "[88.1] Out of memory: Killed process 77 (python3) total-vm:91234567kB, anon-rss:63123456kB, file-rss:0kB\n", cause.HostRAM, nil},
		{"a container's memory", "[88.1] Memory cgroup out of memory: Killed process 77 (python3) total-vm:91234567kB, anon-rss:63123456kB, file-rss:0kB\n", cause.HostRAM, nil},
		{"shared memory of the data loader", "RuntimeError: DataLoader worker (pid 812) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.\n", cause.SharedMemory, nil},
		{"Windows' paging file", "OSError: [WinError 1455] The paging file is too small for this operation to complete. Error loading \"cublas64_12.dll\" or one of its dependencies.\n", cause.PlatformLimit, nil},
		{"a kernel's shared memory", "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.\n", cause.KernelResources, nil},
		{"a warning of TensorFlow", "2024-05-01 10:00:00.000000: W tensorflow/core/common_runtime/bfc_allocator.cc:296] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.15GiB with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there could be performance gains if more memory were available.\n", cause.WarningOnly, nil},
		{"the card was not full", torch26("2.00 GiB", "23.65 GiB", "15.00 GiB", self+"8.20 GiB memory in use. ", "", "7.40 GiB", "60.00 MiB"), cause.PlatformLimit, []cause.ID{cause.TooBig, cause.Fragmentation}},
		{"words about it", "Q: what does CUDA out of memory mean?\nA: that the card is full\n", cause.NotMemory, nil},
		{"nothing about it", "epoch 1\nepoch 2\nKeyError: 'labels'\n", cause.NotMemory, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := oomlog.Scan(strings.NewReader(tc.log), oomlog.Options{})
			if err != nil {
				t.Fatal(err)
			}
			in := Log("train.log", &r)
			if in.Causes[0].ID != tc.first {
				t.Errorf("causes %v; want %s first\n%+v", causesOf(in), tc.first, in.Causes)
			}
			for _, id := range tc.not {
				if slices.ContainsFunc(in.Causes, func(c Cause) bool { return c.ID == id && c.Confidence > 0.5 }) {
					t.Errorf("causes %v; %s is not one", causesOf(in), id)
				}
			}
			none := tc.first == cause.NotMemory || tc.first == cause.WarningOnly
			if none != (len(in.Failures) == 0) {
				t.Errorf("%d failures", len(in.Failures))
			}
			if !none && len(in.Remedies) == 0 {
				t.Error("nothing to change")
			}
			for _, x := range in.Remedies {
				if x.ID == "max_split_size_mb" && x.Saves != nil {
					t.Errorf("max_split_size_mb is said to save %d without a replay", *x.Saves)
				}
			}
		})
	}
}

// TestLogAdvice: what helps is told by what the numbers say.
func TestLogAdvice(t *testing.T) {
	diagnose := func(text string) *Input {
		r, err := oomlog.Scan(strings.NewReader(text), oomlog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return Log("train.log", &r)
	}
	// 34 MiB lie idle, and 1.8 GiB are lacking: no setting can help.
	in := diagnose(torch26("2.00 GiB", "23.65 GiB", "200.00 MiB", self+"23.40 GiB memory in use. ", "", "22.80 GiB", "34.00 MiB"))
	for _, x := range in.Remedies {
		if x.ID == "expandable_segments" && (x.Fits == nil || *x.Fits || *x.Saves > 34<<20) {
			t.Errorf("expandable_segments: %+v", x)
		}
	}
	if in.Remedies[0].ID != "micro_batch" || len(in.Advice) == 0 {
		t.Errorf("first %s, advice %q", in.Remedies[0].ID, in.Advice)
	}
	// Somebody else's memory: a smaller batch is not the answer.
	in = diagnose(torch26("1.00 GiB", "23.65 GiB", "300.00 MiB", "Process 99 has 18.00 GiB memory in use. "+self+"5.20 GiB memory in use. ", "", "4.60 GiB", "90.00 MiB"))
	if x := in.Remedies[0]; x.ID != "close_other_processes" || x.Saves == nil || *x.Saves < 18<<30 {
		t.Errorf("first %+v", x)
	}
	// The change is the trainer's own.
	in = diagnose(under(torch26("512.00 MiB", "23.65 GiB", "180.00 MiB", self+"23.40 GiB memory in use. ", "", "22.60 GiB", "210.00 MiB"),
		"train.py|main|trainer.train()", "site-packages/transformers/trainer.py|training_step|loss = self.compute_loss(model, inputs)"))
	if x := in.Remedies[0]; x.Framework != "transformers" || !strings.Contains(x.Change["transformers"], "per_device_train_batch_size") {
		t.Errorf("first %+v", x)
	}
}
