package holders

import (
	"fmt"
	"strings"
	"testing"

	"vramscope/trace"

	"github.com/google/go-cmp/cmp"
)

// outline writes the phases and the categories of a recording in short.
func outline(a *Analysis) string {
	var b strings.Builder
	last := Phase{Step: -2}
	for _, p := range a.Phases {
		if p.Step != last.Step {
			fmt.Fprintf(&b, "\n%d:", p.Step)
		}
		fmt.Fprintf(&b, " %v", p.Kind)
		last = p
	}
	return strings.TrimSpace(b.String())
}

func TestSteps(t *testing.T) {
	for _, tc := range []struct {
		name     string
		training training
		want     string
	}{
		{"plain", training{steps: 2}, "-1: setup\n0: forward backward optimizer step\n1: forward backward optimizer step"},
		{"accumulation", training{steps: 2, accumulate: 2},
			"-1: setup\n0: forward backward forward backward optimizer step\n1: forward backward forward backward optimizer step"},
		{"evaluation", training{steps: 3, evaluate: 2},
			"-1: setup\n0: forward backward optimizer step\n1: forward backward optimizer step\n-1: evaluation\n2: forward backward optimizer step"},
		{"zero_grad first", training{steps: 2, zeroFirst: true}, "-1: setup\n0: forward backward optimizer step\n1: forward backward optimizer step"},
		{"silent optimizer", training{steps: 2, noOptimizer: true, zeroFirst: true}, "-1: setup\n0: forward backward\n1: forward backward"},
		{"silent optimizer, gradients dropped", training{steps: 2, noOptimizer: true},
			"-1: setup\n0: forward backward optimizer step\n1: forward backward optimizer step"},
		{"optimizer with state alone", training{steps: 4, stateOnly: true},
			"-1: setup\n0: forward backward optimizer step\n1: forward backward optimizer step\n2: forward backward optimizer step\n3: forward backward optimizer step"},
		{"optimizer with state alone, kept gradients", training{steps: 4, stateOnly: true, keepGradients: true},
			"-1: setup\n0: forward backward optimizer step\n1: forward backward\n2: forward backward\n3: forward backward"},
		{"optimizer with state alone, kept gradients, accumulation", training{steps: 4, accumulate: 2, stateOnly: true, keepGradients: true},
			"-1: setup\n0: forward backward forward backward optimizer step\n1: forward backward forward backward\n2: forward backward forward backward\n3: forward backward forward backward"},
		{"own code before the optimizer", training{steps: 2, clip: true},
			"-1: setup\n0: forward backward\n-1: other\n0: optimizer step\n1: forward backward\n-1: other\n1: optimizer step"},
		{"dies in the second micro-batch", training{steps: 2, accumulate: 2, dieIn: "forward"},
			"-1: setup\n0: forward backward forward backward optimizer step\n1: forward backward forward"},
		{"dies in forward", training{steps: 2, dieIn: "forward"}, "-1: setup\n0: forward backward optimizer step\n1: forward"},
		{"dies in backward", training{steps: 2, dieIn: "backward"}, "-1: setup\n0: forward backward optimizer step\n1: forward backward"},
		{"dies in evaluation", training{steps: 2, evaluate: 1, dieIn: "evaluation"},
			"-1: setup\n0: forward backward optimizer step\n-1: evaluation\n1: forward backward optimizer step\n-1: evaluation"},
		{"dies after evaluation", training{steps: 2, evaluate: 2, dieIn: "forward after evaluation"},
			"-1: setup\n0: forward backward optimizer step\n1: forward backward optimizer step\n-1: evaluation\n2: forward"},
		{"dies in the first forward", training{steps: 1, dieIn: "forward"}, "-1: setup\n0: forward"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := tc.training.record(t)
			if diff := cmp.Diff(tc.want, outline(a)); diff != "" {
				t.Error(diff)
			}
			// Phases tile the timeline.
			for i := 1; i < len(a.Phases); i++ {
				if a.Phases[i].First != a.Phases[i-1].End {
					t.Errorf("phase %d begins at %d, the one before ends at %d", i, a.Phases[i].First, a.Phases[i-1].End)
				}
			}
			for i, s := range a.Steps {
				if want := tc.training.dieIn == "" || tc.training.dieIn == "evaluation" || i < len(a.Steps)-1; s.Complete != want {
					t.Errorf("step %d: complete is %v", i, s.Complete)
				}
			}
		})
	}
}

// TestCategoriesOfScripts checks each category's requested bytes.
func TestCategoriesOfScripts(t *testing.T) {
	const parameters = layer0 + layer1
	for _, tc := range []struct {
		name     string
		training training
		want     map[Category]int64
	}{
		{"plain", training{steps: 3}, map[Category]int64{
			Parameter: parameters, Gradient: 3 * parameters, OptimizerState: 2 * parameters,
			Activation: 3 * (4*mib + 4), Input: 3 * mib, Workspace: 9 * mib, Temporary: 3 * (2*mib + layer1)}},
		{"accumulation", training{steps: 2, accumulate: 3}, map[Category]int64{
			Parameter: parameters, Gradient: 2 * parameters, OptimizerState: 2 * parameters,
			Activation: 6 * (4*mib + 4), Input: 6 * mib, Workspace: 18 * mib, Temporary: 6*2*mib + 4*parameters + 2*layer1}},
		{"gradients are kept", training{steps: 3, keepGradients: true}, map[Category]int64{
			Parameter: parameters, Gradient: parameters, OptimizerState: 2 * parameters,
			Activation: 3 * (4*mib + 4), Input: 3 * mib, Workspace: 9 * mib, Temporary: 3*(2*mib+layer1) + 2*parameters}},
		{"zero_grad first", training{steps: 2, zeroFirst: true}, map[Category]int64{
			Parameter: parameters, Gradient: 2 * parameters, OptimizerState: 2 * parameters,
			Activation: 2 * (4*mib + 4), Input: 2 * mib, Workspace: 6 * mib, Temporary: 2 * (2*mib + layer1)}},
		{"silent optimizer", training{steps: 3, noOptimizer: true, zeroFirst: true}, map[Category]int64{
			Parameter: parameters, Gradient: 3 * parameters,
			Activation: 3 * (4*mib + 4), Input: 3 * mib, Workspace: 9 * mib, Temporary: 3 * 2 * mib}},
		{"dies in forward", training{steps: 1, dieIn: "forward"}, map[Category]int64{
			Parameter: parameters, Activation: 2 * mib, Input: mib, Workspace: 3 * mib, Unknown: 9 * mib}},
		{"dies in evaluation", training{steps: 1, evaluate: 1, dieIn: "evaluation"}, map[Category]int64{
			Parameter: parameters, Gradient: parameters, OptimizerState: 2 * parameters,
			Activation: 4*mib + 4 + 5*mib, Input: mib, Workspace: 3 * mib, Temporary: 2*mib + layer1, Unknown: 9 * mib}},
		{"dies in backward", training{steps: 1, dieIn: "backward"}, map[Category]int64{
			Parameter: parameters, Gradient: layer1, Activation: 4*mib + 4, Input: mib, Workspace: 3 * mib, Temporary: 2 * mib, Unknown: 9 * mib}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := tc.training.record(t)
			got := map[Category]int64{}
			for _, c := range Categories() {
				if b, n := a.sum(c, -1); n > 0 {
					got[c] = b
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRulesAreComplete(t *testing.T) {
	for r := range numRules {
		if r.String() == "" {
			t.Errorf("rule %d has no text", r)
		}
	}
}

// TestSecondBackward is the way of a GAN: two backward passes, each with an
// optimizer, after one forward pass.
func TestSecondBackward(t *testing.T) {
	s := newScript()
	s.alloc(layer0, inLoad)
	for range 2 {
		h0, h1 := s.alloc(mib, inModule), s.alloc(mib, inModule)
		for _, h := range []uint64{h0, h1} {
			g := s.alloc(layer0, inEngine)
			s.free(inEngine, h)
			tmp := s.alloc(512, inOptimizer)
			s.free(inOptimizer, tmp)
			s.free(inZeroGrad, g)
		}
	}
	a := s.analyze(t)
	want := "-1: setup\n0: forward backward optimizer step\n1: backward optimizer step\n2: forward backward optimizer step\n3: backward optimizer step"
	if diff := cmp.Diff(want, outline(a)); diff != "" {
		t.Error(diff)
	}
	if b, n := a.sum(Gradient, -1); b != 4*layer0 || n != 4 {
		t.Errorf("gradients of %d bytes in %d blocks, want %d in 4", b, n, 4*layer0)
	}
}

// TestPhasesBetweenSteps holds that what happens between steps is told apart.
func TestPhasesBetweenSteps(t *testing.T) {
	file := func(name, function string) []trace.Frame {
		return []trace.Frame{{Function: function, File: "site-packages/" + name, Line: 1}, {Function: "main", File: "train.py", Line: 50}}
	}
	for _, tc := range []struct {
		stack []trace.Frame
		want  PhaseKind
	}{
		{inModule, Evaluation},
		{append(inModule[:2:2], file("transformers/generation/utils.py", "generate")...), Generation},
		{file("torch/serialization.py", "_save"), Saving},
		{file("torch/nn/modules/module.py", "load_state_dict"), Loading},
		{inMain, Other},
	} {
		s := newScript()
		s.alloc(layer0, inLoad)
		step := func() {
			x := s.alloc(mib, inMain)
			h := s.alloc(mib, inModule)
			g := s.alloc(layer0, inEngine)
			s.free(inEngine, h)
			tmp := s.alloc(512, inOptimizer)
			s.free(inOptimizer, tmp)
			s.free(inZeroGrad, g)
			s.free(inMain, x)
		}
		step()
		big := s.alloc(64*mib, tc.stack)
		s.free(inMain, big)
		step()
		a := s.analyze(t)
		if got := a.PhasePeaks()[0].Kind; got != tc.want || len(a.Steps) != 2 {
			t.Errorf("%s: peak in %v with %d steps, want %v and 2", tc.stack[0].Function, got, len(a.Steps), tc.want)
		}
	}
}

// FuzzAnalyze takes any order of events: phases tile the timeline, holders add
// up to what the replay counts, and nothing panics.
func FuzzAnalyze(f *testing.F) {
	f.Add([]byte{2, 2, 0, 1, 3, 100, 5, 101, 4, 100, 6, 100})
	f.Add([]byte("\x01\x02\x03\x04\x05\x06\xf0\x81\x00"))
	f.Add([]byte{5, 1, 255, 5, 1, 255, 1, 5, 4, 1, 5, 4, 129, 130, 131})
	stacks := [][]trace.Frame{inLoad, inMain, inModule, inLoss, inOptimizer, inEngine, inZeroGrad}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 2000 {
			t.Skip()
		}
		s := newScript()
		var live []uint64
		for i, b := range data {
			stack := stacks[int(b)%len(stacks)]
			switch n := int(b) / len(stacks); {
			case n < 18:
				live = append(live, s.alloc(int64(n+1)*(100<<10)+1, stack))
			case n < 20 && i%3 == 0:
				s.refuse(1<<30, stack)
			case n < 22:
				s.tr.Annotations = append(s.tr.Annotations, trace.Annotation{Name: "Optimizer.step#X.step", End: n%2 == 0, Time: s.time})
			case len(live) > 0:
				k := (n * 7) % len(live)
				s.free(stack, live[k])
				live = append(live[:k], live[k+1:]...)
			}
		}
		a := s.analyze(t)
		for i, p := range a.Phases {
			if p.First >= p.End || i > 0 && p.First != a.Phases[i-1].End {
				t.Fatalf("phase %d is %+v after %+v", i, p, a.Phases[max(i-1, 0)])
			}
		}
		for i := range a.Steps {
			if s := &a.Steps[i]; s.First >= s.End || i > 0 && s.First < a.Steps[i-1].End {
				t.Fatalf("step %d is %+v", i, s)
			}
		}
		for by := range ByCategory + 1 {
			sum := int64(0)
			for _, h := range a.At(a.PeakAllocated, by) {
				sum += h.Bytes
			}
			if len(a.Rules) > 0 && !a.Outcome.MayDiffer && sum != a.Outcome.PeakAllocated {
				t.Fatalf("by %v: holders sum to %d, the peak is %d", by, sum, a.Outcome.PeakAllocated)
			}
		}
		a.Leaks()
		a.Logits(a.PeakAllocated)
		a.Variation()
		if _, err := a.Fragmentation(t.Context(), a.PeakReserved); err != nil {
			t.Fatal(err)
		}
		if d := Diff(a, a.PeakAllocated, a, a.PeakAllocated, ByLine); len(d.Holders) > 0 {
			t.Fatalf("differs from itself: %+v", d)
		}
		fit := FitBatches(a, 1, a, 2)
		for i, r := range fit.Program(5).Requests {
			if fit.partner[i] >= 0 && r.Size != a.Program.Requests[i].Size {
				t.Fatalf("request %d of %d bytes becomes %d, though both recordings agree", i, a.Program.Requests[i].Size, r.Size)
			}
		}
	})
}
