package remedy

import (
	"testing"

	"pgregory.net/rapid"

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
		{"fused_optimizer", 0, false}, // the step's intermediates are not known
		{"adam8bit", 6 * gib, true},
		{"sgd_momentum", 4 * gib, true},
		{"adafactor", 8 * gib, true},
		{"lora", 12 * gib, true},
		{"jax_donation", 12 * gib, true},
		{"cpu_offload", 16 * gib, true},
		{"ddp", 6 * gib, true}, // three quarters on four cards
		{"zero1", 6 * gib, true},
		{"zero2", 9 * gib, true},
		{"fsdp2", 12 * gib, true},
		{"tensor_parallel", 18 * gib, true},
		{"expandable_segments", gib, true},
		{"empty_cache", 0, true},
		{"data_parallel", 0, true},
		{"flash_attention", 0, false},
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
	if r, _ := ByID("zero1"); r != nil {
		if _, known := r.AtMost(Amounts{Bytes: job.Bytes}); known {
			t.Error("zero1: a saving although the number of cards is unknown")
		}
	}
	r, _ := ByID("micro_batch")
	if _, known := r.AtMost(Amounts{Bytes: job.Bytes}); known {
		t.Error("micro_batch: a saving although the batch is unknown")
	}
}

// TestAtMostIsABound: no remedy saves more than there is of what it acts on,
// less than nothing, or less where there is more.
func TestAtMostIsABound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.SampledFrom(All()).Draw(t, "remedy")
		a := Amounts{
			Bytes: map[Category]bytesize.Size{},
			Ranks: rapid.IntRange(1, 64).Draw(t, "ranks"),
			Batch: rapid.IntRange(1, 64).Draw(t, "batch"),
		}
		more := Amounts{Bytes: map[Category]bytesize.Size{}, Ranks: a.Ranks, Batch: a.Batch}
		var sum bytesize.Size
		for _, c := range categories {
			a.Bytes[c] = bytesize.Size(rapid.Int64Range(0, 1<<40).Draw(t, string(c)))
			more.Bytes[c] = a.Bytes[c] + bytesize.MiB
		}
		for _, c := range r.Saves.ActsOn {
			sum += a.Bytes[c]
		}
		got, known := r.AtMost(a)
		if got < 0 || got > sum {
			t.Fatalf("%s saves %s of %s", r.ID, got, sum)
		}
		if larger, again := r.AtMost(more); known != again || larger < got {
			t.Fatalf("%s saves %s, and %s where there is more", r.ID, got, larger)
		}
	})
}

// TestBoundsHoldForMeasurements: what a remedy saved on the card is no more
// than its formula allows. At the peak of a float32 AdamW job 4 + 4 + 8 bytes
// per parameter are weights, gradients and state, and the rest counts as
// activations. 5 % is for what the formulas leave out (rounding, intermediates).
func TestBoundsHoldForMeasurements(t *testing.T) {
	parameters := map[string]bytesize.Size{"resnet50": 25_557_032, "gpt2": 124_439_808}
	checked := 0
	for _, r := range All() {
		for _, e := range Examples(r.ID) {
			p, ok := parameters[e.Job]
			if !ok {
				continue
			}
			peak := e.Before.PeakAllocated
			bound, known := r.AtMost(Amounts{
				Bytes: map[Category]bytesize.Size{Parameters: 4 * p, Gradients: 4 * p, OptimizerState: 8 * p, Activations: peak - 16*p},
				Ranks: 1, Batch: e.Before.Batch,
			})
			if !known {
				continue
			}
			checked++
			if saved := peak - e.After.PeakAllocated; saved > bound+bound/20 {
				t.Errorf("%s on %s saved %s, the formula allows %s", r.ID, e.Job, saved, bound)
			}
		}
	}
	if checked < 15 {
		t.Errorf("only %d measurements were checked", checked)
	}
}
