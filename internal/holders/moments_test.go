package holders

import (
	"testing"

	"vramscope/trace"

	"github.com/google/go-cmp/cmp"
)

// TestHoldersAddUp holds that every grouping attributes all allocated bytes,
// and that those are the bytes that the replay counted.
func TestHoldersAddUp(t *testing.T) {
	for _, name := range []string{"unet_10gib_b8_ok", "unet_10gib_b32_oom", "leak_resnet18", "graph", "caught_oom", "cpp_stacks", "mempool", "late_start", "ring_overflow"} {
		a := recorded(t, name)
		for _, by := range []By{ByLine, ByStack, ByModule, ByCategory} {
			sum := int64(0)
			for _, h := range a.At(a.PeakAllocated, by) {
				sum += h.Bytes
				if h.Name == "" || h.Blocks == 0 {
					t.Errorf("%s by %v: odd holder %+v", name, by, h)
				}
			}
			if sum != a.Outcome.PeakAllocated {
				t.Errorf("%s by %v: holders sum to %d, the peak is %d", name, by, sum, a.Outcome.PeakAllocated)
			}
		}
	}
}

func TestHoldersOfTheUNet(t *testing.T) {
	a := recorded(t, "unet_10gib_b32_oom")
	type row struct {
		Name     string
		Category Category
		Blocks   int
	}
	var got []row
	for _, h := range a.At(a.Failure, ByLine)[:3] {
		got = append(got, row{h.Name, h.Category, h.Blocks})
	}
	want := []row{
		{"train/workloads.py:25 forward → torch/nn/functional.py batch_norm", Activation, 24},
		{"train/workloads.py:25 forward → torch/nn/modules/conv.py _conv_forward", Activation, 8},
		{"train/workloads.py:28 forward", Activation, 4},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if p, ok := a.PhaseOf(a.Failure); !ok || p.Kind != Forward {
		t.Errorf("died in %v", p.Kind)
	}
}

func TestSites(t *testing.T) {
	var s trace.Stacks
	stack := func(frames ...trace.Frame) trace.StackID {
		var calls []trace.FrameID
		for _, f := range frames {
			calls = append(calls, s.InternFrame(f))
		}
		return s.Intern(calls)
	}
	const torch = "/opt/env/lib/python3.12/site-packages/torch/"
	f := func(file, function string) trace.Frame { return trace.Frame{Function: function, File: file, Line: 7} }
	for _, tc := range []struct {
		name string
		id   trace.StackID
		line string // function of the user's line
		role role
	}{
		{"nothing", stack(), "", roleNone},
		{"C++ alone", stack(f("??", "at::empty"), f("train/x.cpp", "main")), "", roleNone},
		{"a script", stack(f("train.py", "main")), "main", roleUser},
		{"a notebook", stack(f("/tmp/ipykernel_7/12.py", "<module>")), "<module>", roleUser},
		{"a library of another name", stack(f(torch+"functional.py", "einsum"), f("/opt/env/lib/python3.12/site-packages/einops/einops.py", "einsum"), f("train.py", "main")), "main", roleUser},
		{"a module", stack(f(torch+"nn/modules/linear.py", "forward"), f("m.py", "block"), f("train.py", "main")), "block", roleForward},
		{"an optimizer", stack(f(torch+"optim/adam.py", "_init_group"), f("train.py", "main")), "main", roleOptimizer},
		{"a scheduler", stack(f(torch+"optim/lr_scheduler.py", "step"), f("train.py", "main")), "main", roleUser},
		{"8-bit optimizer", stack(f("/x/site-packages/bitsandbytes/optim/optimizer.py", "step"), f("train.py", "main")), "main", roleOptimizer},
		{"a closure of an optimizer", stack(f(torch+"nn/modules/linear.py", "forward"), f("train.py", "closure"), f(torch+"optim/lbfgs.py", "step"), f("train.py", "main")), "closure", roleForward},
		{"zero_grad", stack(f(torch+"optim/optimizer.py", "zero_grad"), f("train.py", "main")), "main", roleZeroGrad},
		{"backward begins", stack(f(torch+"autograd/__init__.py", "_make_grads"), f(torch+"_tensor.py", "backward"), f("train.py", "main")), "main", roleBackward},
		{"recomputed", stack(f(torch+"nn/modules/linear.py", "forward"), f(torch+"utils/checkpoint.py", "unpack_hook")), "", roleBackward},
		{"a custom function's backward", stack(f("ops.py", "backward"), f(torch+"autograd/function.py", "apply")), "backward", roleBackward},
		{"moved to the card", stack(f(torch+"nn/modules/module.py", "convert"), f(torch+"nn/modules/module.py", "_apply"), f("train.py", "main")), "main", roleLoad},
		{"built on the card", stack(f(torch+"nn/modules/linear.py", "__init__"), f("m.py", "__init__"), f("train.py", "main")), "__init__", roleLoad},
		{"generation", stack(f(torch+"nn/modules/linear.py", "forward"), f("/x/site-packages/transformers/generation/utils.py", "generate"), f("train.py", "main")), "main", roleGenerate},
		{"a checkpoint", stack(f(torch+"serialization.py", "_save"), f("train.py", "main")), "main", roleSave},
		{"a replica's thread", stack(f(torch+"nn/modules/linear.py", "forward"), f("m.py", "net"), f("/usr/lib/python3.12/threading.py", "_bootstrap")), "net", roleForward},
	} {
		site := sitesOf(&s)[tc.id]
		line := ""
		if site.Line >= 0 {
			line = s.Frame(trace.FrameID(site.Line)).Function
		}
		if line != tc.line || site.role != tc.role {
			t.Errorf("%s: line in %q, role %d; want %q, %d", tc.name, line, site.role, tc.line, tc.role)
		}
	}
}

func TestShortPath(t *testing.T) {
	for path, want := range map[string]string{
		"/opt/env/lib/python3.12/site-packages/torch/nn/functional.py": "torch/nn/functional.py",
		"/usr/lib/python3.12/threading.py":                             "threading.py",
		"/home/me/work/project/train.py":                               "project/train.py",
		`C:\work\project\train.py`:                                     "project/train.py",
		"train.py":                                                     "train.py",
		"<string>":                                                     "<string>",
	} {
		if got := ShortPath(path); got != want {
			t.Errorf("ShortPath(%q) = %q, want %q", path, got, want)
		}
	}
}

func TestFragmentation(t *testing.T) {
	// The figures of the card's own message for this failure: 9.36 GiB
	// allocated, 358.60 MiB reserved but unallocated.
	a := recorded(t, "unet_10gib_b32_oom")
	f, err := a.Fragmentation(t.Context(), a.Failure)
	if err != nil {
		t.Fatal(err)
	}
	if f.Reserved != a.Outcome.Stats.ReservedBytes.All.Current || f.Reserved-f.Allocated != f.Free+f.Pending {
		t.Errorf("reserved %d, allocated %d, free %d, pending %d do not agree", f.Reserved, f.Allocated, f.Free, f.Pending)
	}
	if got := float64(f.Free) / (1 << 20); got < 358.595 || got > 358.605 {
		t.Errorf("%.2f MiB free, the card said 358.60 MiB", got)
	}
	if f.FreeInEmpty != 0 {
		t.Errorf("%d bytes in empty segments after a refusal, which releases them", f.FreeInEmpty)
	}
	free := f.FreeInEmpty
	for _, s := range f.Segments {
		free += s.Free
		if s.Live == 0 || s.Holds.Request < 0 || s.Holds.Line == "" {
			t.Errorf("segment %+v is not said to be held by anything", s)
		}
	}
	if free != f.Free {
		t.Errorf("segments hold %d free bytes, want %d", free, f.Free)
	}
	largest := int64(0)
	for _, r := range f.Pools {
		largest = max(largest, r.Largest)
	}
	if largest != f.LargestFree || largest != 130<<20 {
		t.Errorf("largest free block %d, of pools %d; want 130 MiB", f.LargestFree, largest)
	}
}

func TestSpikes(t *testing.T) {
	for _, tc := range []struct {
		recording string
		peak      PhaseKind
		logits    bool
		variable  bool
	}{
		{"unet_10gib_b8_ok", Backward, false, false},
		{"unet_10gib_b32_oom", Forward, false, false},
		{"gpt2_b8_s512_amp", Backward, true, false},
		{"llama160_ckpt", Backward, true, false},
		{"resnet50_b32_fp32", Backward, false, false},
		{"varlen_limit_default_oom", Forward, true, true},
		{"empty_cache_each", Backward, false, true},
		{"caught_oom", Attempt, false, false},
		{"graph", Evaluation, false, false},
	} {
		a := recorded(t, tc.recording)
		peaks := a.PhasePeaks()
		if peaks[0].Kind != tc.peak || peaks[0].Allocated != a.Outcome.PeakAllocated {
			t.Errorf("%s: peak in %v of %d bytes, want %v of %d", tc.recording, peaks[0].Kind, peaks[0].Allocated, tc.peak, a.Outcome.PeakAllocated)
		}
		if _, ok := a.Logits(a.PeakAllocated); ok != tc.logits {
			t.Errorf("%s: logits are %v", tc.recording, ok)
		}
		if got := a.Variation().Variable(); got != tc.variable {
			t.Errorf("%s: variable is %v", tc.recording, got)
		}
	}
}
