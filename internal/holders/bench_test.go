package holders

import (
	"testing"

	"vramscope/replay"
	"vramscope/trace"
)

// long repeats the steps of a recording until it has so many events: its
// middle step over and over, between its first and its last one.
func long(b *testing.B, name string, events int) *replay.Program {
	a := recorded(b, name)
	old := a.Program.Device
	tr := *a.Program.Trace
	tr.Annotations = nil
	d := trace.Device{Ordinal: old.Ordinal}
	for i := range a.Steps[0].End {
		d.Events.Append(old.Events.At(i))
	}
	for d.Events.Len() < events {
		for i := a.Steps[1].First; i < a.Steps[1].End; i++ {
			if act := old.Events.Action[i]; act == trace.Alloc || act == trace.FreeRequested || act == trace.FreeCompleted {
				d.Events.Append(old.Events.At(i))
			}
		}
	}
	tr.Devices = []trace.Device{d}
	return replay.Compile(&tr, &tr.Devices[0])
}

// BenchmarkAnalyze: 1.2 million events with GPT-2's stacks.
func BenchmarkAnalyze(b *testing.B) {
	p := long(b, "gpt2_b8_s512_amp", 1_200_000)
	b.ReportAllocs()
	for b.Loop() {
		a, err := Analyze(b.Context(), p)
		if err != nil {
			b.Fatal(err)
		}
		if len(a.Steps) < 200 {
			b.Fatal(len(a.Steps))
		}
	}
	b.ReportMetric(float64(p.Device.Events.Len())*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}

// BenchmarkQuestions asks what explain asks of the same recording.
func BenchmarkQuestions(b *testing.B) {
	p := long(b, "gpt2_b8_s512_amp", 1_200_000)
	a := analyze(b, p)
	b.ReportAllocs()
	for b.Loop() {
		a.At(a.PeakAllocated, ByLine)
		a.At(a.PeakReserved, ByCategory)
		a.Leaks()
		a.Logits(a.PeakAllocated)
		a.Variation()
	}
}

// BenchmarkFit aligns 1.2 million events of GPT-2's steps, of 4096 tokens, with
// two steps of another recording, of 3520 and 528.
func BenchmarkFit(b *testing.B) {
	x, y := analyze(b, long(b, "gpt2_b8_s512_amp", 1_200_000)), recorded(b, "varlen_limit_default_oom")
	b.ReportAllocs()
	for b.Loop() {
		FitBatches(x, 4096, y, 3520)
	}
}
