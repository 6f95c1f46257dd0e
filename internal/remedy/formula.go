package remedy

import "vramscope/bytesize"

// FormulaID names the arithmetic behind a saving.
type FormulaID string

// Amounts is what is known of a job: bytes by category at the moment of the
// failure (or the peak), before the remedy. A missing category is unknown, not
// zero. All figures are for one card.
type Amounts struct {
	Bytes map[Category]bytesize.Size
	Ranks int // cards that the state would be divided among; 0: unknown
	Batch int // samples per forward pass; 0: unknown
}

// Formula says how much a remedy can save at most.
type Formula struct {
	ID    FormulaID
	Text  string // for people: A activations, W weights, G gradients, S optimizer state, g cards
	terms []term
}

// term is a share of one category. Where it is divided, 1/n of it stays.
type term struct {
	category Category
	share    float64
	divided  divisor
}

type divisor int

const (
	whole   divisor = iota
	byRanks         // n is Amounts.Ranks
	byBatch         // n is Amounts.Batch: down to one sample
)

func (a Amounts) parts(d divisor) int {
	if d == byBatch {
		return a.Batch
	}
	return a.Ranks
}

// AtMost returns the upper bound of what the remedy saves. It is false where a
// category that the formula needs is unknown, or where the remedy's saving
// cannot be put in numbers. A remedy that saves nothing returns 0, true.
func (r *Remedy) AtMost(a Amounts) (bytesize.Size, bool) {
	f, ok := LookupFormula(r.Saves.Formula)
	if !ok || f.terms == nil && f.ID != "nothing" {
		return 0, false
	}
	var sum float64
	for _, t := range f.terms {
		have, ok := a.Bytes[t.category]
		if !ok {
			return 0, false
		}
		share := t.share
		if t.divided != whole {
			n := a.parts(t.divided)
			if n < 1 {
				return 0, false
			}
			share *= 1 - 1/float64(n)
		}
		sum += share * float64(have)
	}
	return bytesize.Size(sum), true
}

// LookupFormula returns the formula with this id.
func LookupFormula(id FormulaID) (Formula, bool) {
	for _, f := range formulas {
		if f.ID == id {
			return f, true
		}
	}
	return Formula{}, false
}

// formulas are upper bounds: a checkpointed model still keeps the inputs of its
// blocks and recomputes one of them, an autocast one still has operators in
// float32. The shares of bytes per parameter follow from the widths: float32
// AdamW has 4 + 4 + 8 bytes of weight, gradient and state.
var formulas = [...]Formula{
	{"nothing", "0", nil},
	{"unquantified", "depends on the job", nil},
	{"activations", "A − inputs of the blocks − one block", []term{{Activations, 1, whole}}},
	{"growth", "what has accumulated since the first step", nil},
	{"smaller_batch", "A (1 − new ÷ old), down to one sample", []term{{Activations, 1, byBatch}}},
	{"half_activations_less_casts", "½ A − 2 bytes × weights that are cast", []term{{Activations, 0.5, whole}}},
	{"half_of_everything", "½ (W + G + S + A)", []term{{Parameters, 0.5, whole}, {Gradients, 0.5, whole}, {OptimizerState, 0.5, whole}, {Activations, 0.5, whole}}},
	{"weights_8bit", "½ W of 16-bit weights (0.7 W in 4 bits)", []term{{Parameters, 0.7, whole}}},
	{"logits", "the copies of the logits that are not needed", []term{{Logits, 1, whole}}},
	{"kv_cache", "the key/value cache", []term{{KVCache, 1, whole}}},
	{"half_kv_cache", "½ of the key/value cache", []term{{KVCache, 0.5, whole}}},
	{"gradients", "G", []term{{Gradients, 1, whole}}},
	{"temporary", "the intermediates of the step, about W", []term{{Temporary, 1, whole}}},
	{"optimizer_8bit", "¾ S of float32 Adam", []term{{OptimizerState, 0.75, whole}}},
	{"optimizer_half", "½ S of Adam", []term{{OptimizerState, 0.5, whole}}},
	{"optimizer_state", "S", []term{{OptimizerState, 1, whole}}},
	{"adapters_only", "G + S of the frozen weights", []term{{Gradients, 1, whole}, {OptimizerState, 1, whole}}},
	{"adapters_4bit", "G + S of the frozen weights + 0.74 W of 16-bit weights", []term{{Gradients, 1, whole}, {OptimizerState, 1, whole}, {Parameters, 0.74, whole}}},
	{"shard_optimizer", "S (1 − 1 ÷ g)", []term{{OptimizerState, 1, byRanks}}},
	{"shard_optimizer_gradients", "(S + G)(1 − 1 ÷ g)", []term{{OptimizerState, 1, byRanks}, {Gradients, 1, byRanks}}},
	{"shard_all", "(S + G + W)(1 − 1 ÷ g) − the largest gathered unit", []term{{OptimizerState, 1, byRanks}, {Gradients, 1, byRanks}, {Parameters, 1, byRanks}}},
	{"split_model", "W, G and S ÷ g, and part of A", []term{{OptimizerState, 1, byRanks}, {Gradients, 1, byRanks}, {Parameters, 1, byRanks}, {Activations, 1, byRanks}}},
	{"state", "W + G + S, less what is on the card for the moment", []term{{Parameters, 1, whole}, {Gradients, 1, whole}, {OptimizerState, 1, whole}}},
	{"weights_and_optimizer", "W + S", []term{{Parameters, 1, whole}, {OptimizerState, 1, whole}}},
	{"data_parallel", "A (1 − 1 ÷ g) at the same global batch", []term{{Activations, 1, byRanks}}},
	{"weights", "one copy of W", []term{{Parameters, 1, whole}}},
	{"fragmentation", "at most reserved − allocated", []term{{Fragmentation, 1, whole}}},
	{"workspace", "the workspaces", []term{{Workspace, 1, whole}}},
	{"collective_buffers", "the buffers", []term{{Collective, 1, whole}}},
	{"other_processes", "what the others hold", []term{{OtherProcess, 1, whole}}},
	{"other_framework", "what the second framework holds", []term{{OtherFramework, 1, whole}}},
}
