package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"vramscope/internal/estimate"
	"vramscope/internal/gpu/cards"
	"vramscope/internal/modelgraph"
)

// maxPlans is how many plans an answer holds, maxRequests how many requests a
// search may simulate: it bounds its time without a clock.
const (
	maxPlans    = 5
	maxRequests = 1_500_000
)

// measure is one change of a setup.
type measure struct {
	name    string
	applies func(s *Setup, g *modelgraph.Graph) bool
	apply   func(s *Setup)
	changes map[string]string // by framework
}

// measures are tried in every combination, with the micro-batch lowered as far
// as each needs.
func measures() []measure {
	training := func(s *Setup) bool { return s.Mode == "train" }
	return []measure{
		{"bf16 autocast",
			func(s *Setup, _ *modelgraph.Graph) bool { return s.Precision == "fp32" },
			func(s *Setup) { s.Precision = "amp-bf16" },
			map[string]string{"pytorch": "with torch.autocast(\"cuda\", dtype=torch.bfloat16):", "trainer": "bf16=True", "accelerate": "mixed_precision: bf16", "deepspeed": "\"bf16\": {\"enabled\": true}"}},
		{"activation checkpointing",
			func(s *Setup, g *modelgraph.Graph) bool {
				return training(s) && s.Checkpoint == "none" && slices.ContainsFunc(g.Calls, func(c modelgraph.Call) bool { return c.Block })
			},
			func(s *Setup) { s.Checkpoint = "full" },
			map[string]string{"pytorch": "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)", "trainer": "gradient_checkpointing=True", "accelerate": "model.gradient_checkpointing_enable()"}},
		{"Adafactor instead of Adam",
			func(s *Setup, _ *modelgraph.Graph) bool {
				return training(s) && slices.Contains([]string{"adam", "adamw", "adamw-fused", "adamw-loop"}, s.Optimizer)
			},
			func(s *Setup) { s.Optimizer = "adafactor" },
			map[string]string{"pytorch": "torch.optim.Adafactor(model.parameters())", "trainer": "optim=\"adafactor\""}},
		{"fused AdamW",
			func(s *Setup, _ *modelgraph.Graph) bool { return training(s) && s.Optimizer == "adamw" },
			func(s *Setup) {
				if s.Optimizer == "adamw" {
					s.Optimizer = "adamw-fused"
				}
			},
			map[string]string{"pytorch": "torch.optim.AdamW(model.parameters(), fused=True)", "trainer": "optim=\"adamw_torch_fused\""}},
		{"SDPA attention",
			func(s *Setup, _ *modelgraph.Graph) bool { return s.Attention == "eager" },
			func(s *Setup) { s.Attention = "sdpa" },
			map[string]string{"pytorch": "AutoModel.from_pretrained(…, attn_implementation=\"sdpa\")"}},
	}
}

// candidate is a plan with what it was made of.
type candidate struct {
	plan Plan
	cost float64
	n    int // measures
}

// Search finds combinations of measures that fit, the least costly first. The
// global batch stays as it is: a smaller micro-batch is accumulated.
func Search(path string, g *modelgraph.Graph, s Setup, room Room, base *Answer) ([]Plan, error) {
	budget := room.budget(g)
	if budget < 0 {
		return []Plan{}, nil
	}
	card, _ := cards.Find(room.GPU)
	all := measures()
	var applicable []measure
	for _, m := range all {
		if m.applies(&s, g) {
			applicable = append(applicable, m)
		}
	}
	spent := 0
	before, err := evaluate(path, s, room, &spent)
	if err != nil {
		return nil, err
	}
	var found []candidate
	// Combinations by the number of measures, so that the budget goes to the
	// simple ones first.
	sets := make([]int, 1<<len(applicable))
	for i := range sets {
		sets[i] = i
	}
	slices.SortStableFunc(sets, func(a, b int) int { return cmp.Compare(ones(a), ones(b)) })
	for _, set := range sets {
		if spent > maxRequests {
			break
		}
		t := s
		var names []string
		changes := map[string]string{}
		skip := false
		for i, m := range applicable {
			if set&(1<<i) == 0 {
				continue
			}
			if m.name == "fused AdamW" && t.Optimizer != "adamw" {
				skip = true
			}
			m.apply(&t)
			names = append(names, m.name)
			for f, text := range m.changes {
				if changes[f] != "" {
					text = changes[f] + "; " + text
				}
				changes[f] = text
			}
		}
		if skip {
			continue
		}
		c, err := largest(path, t, s, room, budget, &spent)
		if err != nil {
			return nil, err
		}
		if c == nil || len(names) == 0 && c.setup.Batch == s.Batch && base.Fits != nil && !*base.Fits {
			continue
		}
		if c.setup.Batch != s.Batch {
			names = append(names, fmt.Sprintf("micro-batch %d × %d", c.setup.Batch, c.setup.Accumulate))
			for f, text := range map[string]string{"pytorch": "batch_size=%d, optimizer.step() every %d", "trainer": "per_device_train_batch_size=%d, gradient_accumulation_steps=%d"} {
				text = fmt.Sprintf(text, c.setup.Batch, c.setup.Accumulate)
				if changes[f] != "" {
					text = changes[f] + "; " + text
				}
				changes[f] = text
			}
		}
		p := Plan{Measures: names, MicroBatch: c.setup.Batch, Accumulation: c.setup.Accumulate, PeakReserved: c.res.PeakReserved,
			Device: c.res.PeakReserved + beyondReserved(g), Fits: true, Changes: changes}
		if p.Measures == nil {
			p.Measures = []string{}
		}
		cost := 1.0
		if rel := relative(card, before, c.res); rel > 0 {
			p.RelativeStepTime = &rel
			cost = rel
		}
		found = append(found, candidate{p, cost, len(names)})
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.n, b.n), cmp.Compare(a.plan.PeakReserved, b.plan.PeakReserved))
	})
	plans := []Plan{}
	for _, c := range found {
		if len(plans) < maxPlans {
			plans = append(plans, c.plan)
		}
	}
	return plans, nil
}

type fitting struct {
	setup Setup
	res   *estimate.Result
}

// largest returns t with the largest micro-batch, a half, a quarter and so on
// of the original, that fits, or nil.
func largest(path string, t, orig Setup, room Room, budget int64, spent *int) (*fitting, error) {
	for b := orig.Batch; b >= 1; b /= 2 {
		if orig.Mode != "train" && b != orig.Batch || *spent > maxRequests {
			return nil, nil
		}
		t.Batch = b
		t.Accumulate = int((orig.Batch*int64(orig.Accumulate) + b - 1) / b)
		// The memory does not depend on how many passes are accumulated beyond two.
		u := t
		u.Accumulate = min(u.Accumulate, 2)
		res, err := evaluate(path, u, room, spent)
		if ue := (*unusableError)(nil); errors.As(err, &ue) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if scale(res.PeakReserved, 1+margin) <= budget {
			r := *res
			r.Work = r.Work.Times(float64(t.Accumulate) / float64(u.Accumulate))
			return &fitting{t, &r}, nil
		}
	}
	return nil, nil
}

// unusableError says that the model cannot be run this way: an export that
// allows two samples and more, asked for one.
type unusableError struct{ err error }

func (e *unusableError) Error() string { return e.err.Error() }

func evaluate(path string, s Setup, room Room, spent *int) (*estimate.Result, error) {
	g, err := Open(path, &s)
	if err != nil {
		return nil, err
	}
	r, err := s.request(g)
	if err != nil {
		return nil, &unusableError{err}
	}
	r.Compute = room.compute
	r.Steps = 2 // the second has the optimizer's state
	res, err := estimate.Run(g, r)
	if err != nil {
		return nil, err
	}
	*spent += res.Requests
	return res, nil
}

// relative is the step time of a plan relative to the original's, by a model of
// operations and bytes (0 where the card's speed is not known).
func relative(card *cards.Card, before, after *estimate.Result) float64 {
	if card == nil || card.Bandwidth == nil || card.Peak.FP32 == nil {
		return 0
	}
	a, b := stepTime(card, before.Work), stepTime(card, after.Work)
	if a <= 0 {
		return 0
	}
	return b / a
}

// stepTime is seconds for the work: matrix products at 70 % of the peak of
// their type, everything else at 80 % of the bandwidth, and 6 µs for each
// operator, about what its launch costs in eager mode (docs/accuracy-fit.md has
// the measured ratios beside those of this model).
func stepTime(card *cards.Card, w estimate.Work) float64 {
	half := *card.Peak.FP32
	if p := card.Peak.BF16; p != nil {
		half = *p
	} else if p := card.Peak.FP16; p != nil {
		half = *p
	}
	t := w.FLOPs32/(0.7e12**card.Peak.FP32) + w.FLOPs16/(0.7e12*half) + w.Bytes/(0.8e9**card.Bandwidth)
	return t + w.Operators*6e-6
}

func ones(n int) int {
	c := 0
	for ; n > 0; n &= n - 1 {
		c++
	}
	return c
}

func factor(f float64) string { return "×" + strconv.FormatFloat(f, 'f', 2, 64) }
