package remedy

import (
	"testing"

	"vramscope/bytesize"
)

func TestAtMost(t *testing.T) {
	const gib = bytesize.GiB
	// A float32 AdamW job of one billion parameters, 8 GiB of activations.
	job := Amounts{
		Bytes: map[Category]bytesize.Size{Parameters: 4 * gib, Gradients: 4 * gib, OptimizerState: 8 * gib, Activations: 8 * gib, Fragmentation: gib},
		Ranks: 4, Batch: 8,
	}
	for _, test := range []struct {
		remedy string
		want   bytesize.Size
		known  bool
	}{
		{"micro_batch", 7 * gib, true}, // down to one sample
		{"autocast_bf16", 4 * gib, true},
		{"pure_bf16", 12 * gib, true},
		{"set_to_none", 4 * gib, true},
		{"pad_to_multiple", gib, true},
		{"del_outputs", 0, false},   // the logits are not known
		{"detach_losses", 0, false}, // cannot be put in numbers
	} {
		r, ok := ByID(test.remedy)
		if !ok {
			t.Fatalf("no remedy %s", test.remedy)
		}
		if got, known := r.AtMost(job); got != test.want || known != test.known {
			t.Errorf("%s: %v, %v; want %v, %v", test.remedy, got, known, test.want, test.known)
		}
	}
	r, _ := ByID("micro_batch")
	if _, known := r.AtMost(Amounts{Bytes: job.Bytes}); known {
		t.Error("micro_batch: a saving although the batch is unknown")
	}
}
