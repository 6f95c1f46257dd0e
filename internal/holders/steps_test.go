package holders

import (
	"fmt"
	"strings"
	"testing"

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
		{"dies in forward", training{steps: 2, dieIn: "forward"}, "-1: setup\n0: forward backward optimizer step\n1: forward"},
		{"dies in backward", training{steps: 2, dieIn: "backward"}, "-1: setup\n0: forward backward optimizer step\n1: forward backward"},
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
				if want := tc.training.dieIn == "" || i < len(a.Steps)-1; s.Complete != want {
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
