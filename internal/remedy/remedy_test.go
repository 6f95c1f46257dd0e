package remedy

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"vramscope/internal/cause"
)

// TestCatalogue checks every entry for what commands and documents rely on.
func TestCatalogue(t *testing.T) {
	snake := regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)
	seen := map[string]bool{}
	for _, r := range All() {
		t.Run(r.ID, func(t *testing.T) {
			if seen[r.ID] || !snake.MatchString(r.ID) {
				t.Errorf("id used twice or not snake_case")
			}
			seen[r.ID] = true
			for name, text := range map[string]string{"title": r.Title, "summary": r.Summary, "saves": r.Saves.Text, "group": r.Group} {
				if strings.TrimSpace(text) == "" {
					t.Errorf("no %s", name)
				}
			}
			if len(r.Title) > 70 {
				t.Errorf("title of %d letters, lists have room for 70", len(r.Title))
			}
			if len(r.Sources) == 0 {
				t.Error("no source")
			}
			if len(r.UselessWhen) == 0 {
				t.Error("does not say when it is useless")
			}
			if len(r.Causes) == 0 && r.Saves.Formula != "nothing" {
				t.Error("answers no cause")
			}
			for _, c := range r.Causes {
				if _, ok := cause.Lookup(c); !ok {
					t.Errorf("unknown cause %q", c)
				}
			}
			for _, c := range r.Saves.ActsOn {
				if !slices.Contains(categories, c) {
					t.Errorf("unknown category %q", c)
				}
			}
			f, ok := LookupFormula(r.Saves.Formula)
			if !ok {
				t.Errorf("unknown formula %q", r.Saves.Formula)
			}
			for _, term := range f.terms {
				if !slices.Contains(r.Saves.ActsOn, term.category) {
					t.Errorf("formula %s counts %s, on which the remedy does not act", f.ID, term.category)
				}
			}
			checkCostAndRisk(t, r)
			checkChanges(t, r)
		})
	}
	if len(seen) < 60 {
		t.Errorf("%d remedies, want the whole catalogue", len(seen))
	}
}

func checkCostAndRisk(t *testing.T, r *Remedy) {
	t.Helper()
	if !slices.Contains([]string{"measured", "quoted", "estimated", "rule"}, r.Cost.Basis) {
		t.Errorf("cost has no basis: %q", r.Cost.Basis)
	}
	if r.Cost.RelativeStepTime == nil && r.Cost.Note == "" {
		t.Error("cost has neither a number nor a note")
	}
	if f := r.Cost.RelativeStepTime; f != nil && (*f < 0.1 || *f > 20) {
		t.Errorf("relative step time %v", *f)
	}
	if r.Cost.Basis == "measured" && len(r.Measured) == 0 {
		t.Error("cost is measured, but there is no measurement")
	}
	if !slices.Contains([]string{"none", "rounding", "changes_training", "quality"}, r.Risk.Level) {
		t.Errorf("risk level %q", r.Risk.Level)
	}
	if (r.Risk.Level == "changes_training" || r.Risk.Level == "quality") && r.Risk.Note == "" {
		t.Error("a risk without a note")
	}
}

func checkChanges(t *testing.T, r *Remedy) {
	t.Helper()
	if len(r.Changes) == 0 {
		t.Error("no change for any framework")
	}
	for id, c := range r.Changes {
		if f, ok := LookupFramework(id); !ok || f.ID != id {
			t.Errorf("unknown framework %q", id)
		}
		if strings.TrimSpace(c.Text) == "" {
			t.Errorf("%s: no text", id)
		}
	}
}

// TestMeasuredCosts holds the typical step times that claim to be measured
// against the measurements.
func TestMeasuredCosts(t *testing.T) {
	for _, r := range All() {
		if r.Cost.Basis != "measured" || r.Cost.RelativeStepTime == nil {
			continue
		}
		found := false
		for _, e := range Examples(r.ID) {
			if e.Before.StepSeconds == nil || e.After.StepSeconds == nil {
				continue
			}
			ratio := *e.After.StepSeconds / *e.Before.StepSeconds
			// Of a smaller batch, the time per sample.
			ratio *= float64(e.Before.Batch) / float64(e.After.Batch*e.After.Accumulate)
			if d := ratio - *r.Cost.RelativeStepTime; d < 0.006 && d > -0.006 {
				found = true
			}
		}
		if !found {
			t.Errorf("%s: no measurement has a relative step time of %v", r.ID, *r.Cost.RelativeStepTime)
		}
	}
}

func TestChange(t *testing.T) {
	for _, test := range []struct{ remedy, framework, want string }{
		{"autocast_bf16", "pytorch", "torch.autocast"},
		{"autocast_bf16", "transformers", "bf16=True"},
		{"del_outputs", "transformers", "del loss"}, // its parent's
		{"right_device", "vllm", "CUDA_VISIBLE_DEVICES"},
		{"del_outputs", "tensorflow", ""},
		{"del_outputs", "no_such_framework", ""},
		{"close_other_processes", "no_such_framework", "vramscope top"},
		{"max_model_len", "ggml", "-c 16384"},      // an alias
		{"expandable_segments", "pytorch-mps", ""}, // not there
		{"micro_batch", "pytorch-mps", "DataLoader"},
		{"autocast_bf16", "", ""},
	} {
		r, ok := ByID(test.remedy)
		if !ok {
			t.Fatalf("no remedy %s", test.remedy)
		}
		c, ok := r.Change(test.framework)
		if ok != (test.want != "") || !strings.Contains(c.Text, test.want) {
			t.Errorf("%s for %s: %q, %v; want %q", test.remedy, test.framework, c.Text, ok, test.want)
		}
	}
	if _, ok := ByID("no_such_remedy"); ok {
		t.Error("found a remedy that does not exist")
	}
}

func TestForCause(t *testing.T) {
	for _, c := range cause.All() {
		for _, r := range ForCause(c.ID) {
			if r.Saves.Formula == "nothing" && c.ID == cause.TooBig {
				t.Errorf("%s saves nothing and is offered for %s", r.ID, c.ID)
			}
		}
	}
	for _, c := range cause.All() {
		unanswered := c.ID == cause.NotMemory || c.ID == cause.WarningOnly
		if got := len(ForCause(c.ID)); (got == 0) != unanswered {
			t.Errorf("%s: %d answers", c.ID, got)
		}
	}
}

// TestLoadRefuses: a misspelt field is an error, not an empty one.
func TestLoadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"unknown field": "title: T\nremedies:\n- id: a\n  savings: much\n",
		"not yaml":      "title: [\n",
	} {
		_, err := load(fstest.MapFS{"catalog/x.yaml": {Data: []byte(text)}})
		if err == nil || !strings.HasPrefix(err.Error(), "remedy: catalog/x.yaml: ") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
