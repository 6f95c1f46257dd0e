package remedy

import (
	"bytes"
	_ "embed" // the measured data
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"vramscope/bytesize"
)

// MeasuredOn is where all examples were measured.
const MeasuredOn = "NVIDIA H200, PyTorch 2.11.0 (CUDA 13.0)"

// Example is a remedy applied alone to a job, beside the same job without it.
type Example struct {
	Job     string // model and what is special about it
	Variant string // name in the data file
	Before  Effect
	After   Effect
}

// Effect is one measured run. Peaks are those of the caching allocator.
type Effect struct {
	Batch         int // samples per forward pass
	Accumulate    int // passes per optimizer step
	PeakAllocated bytesize.Size
	PeakReserved  bytesize.Size
	EndReserved   *int64   // bytes after the last step; nil: not recorded
	StepSeconds   *float64 // shortest step after two of warm-up; nil: not recorded
}

// Examples returns the measured examples of a remedy.
func Examples(id string) []Example {
	r, ok := ByID(id)
	if !ok {
		return nil
	}
	var out []Example
	for _, e := range examples() {
		if slices.Contains(r.Measured, e.Variant) {
			out = append(out, e)
		}
	}
	return out
}

// effects.jsonl: six training steps of U-Net, ResNet-50 and GPT-2 with one
// measure each, on data/how-measured/solutions.py's terms (AdamW, float32).
//
//go:embed effects.jsonl
var effectLines []byte

// settings.jsonl: recordings of jobs with varying sizes, the same requests
// each time, under different allocator settings (data/snapshots/index.json).
//
//go:embed settings.jsonl
var settingLines []byte

var examples = sync.OnceValue(func() []Example {
	var all []Example
	for _, data := range [][]byte{effectLines, settingLines} {
		e, err := readExamples(bytes.NewReader(data))
		if err != nil {
			panic(err) // embedded, checked by the tests
		}
		all = append(all, e...)
	}
	return all
})

// readExamples pairs each line with the job's baseline, the line whose variant
// is "baseline" and which comes first. Lines with "skip" could not be run.
func readExamples(r io.Reader) ([]Example, error) {
	type line struct {
		Job           string   `json:"job"`
		Variant       string   `json:"variant"`
		Skip          string   `json:"skip"`
		Batch         int      `json:"batch"`
		Accum         int      `json:"accum"`
		PeakAllocated int64    `json:"peak_allocated"`
		PeakReserved  int64    `json:"peak_reserved"`
		EndReserved   *int64   `json:"end_reserved"`
		StepSeconds   *float64 `json:"step_s"`
	}
	var out []Example
	baseline := map[string]Effect{}
	for dec := json.NewDecoder(r); ; {
		var l line
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("remedy: example %d: %w", len(out)+1, err)
		}
		if l.Skip != "" {
			continue
		}
		e := Effect{l.Batch, l.Accum, bytesize.Size(l.PeakAllocated), bytesize.Size(l.PeakReserved), l.EndReserved, l.StepSeconds}
		if l.Variant == "baseline" {
			baseline[l.Job] = e
			continue
		}
		before, ok := baseline[l.Job]
		if !ok {
			return nil, fmt.Errorf("remedy: %s of %s comes before its baseline", l.Variant, l.Job)
		}
		out = append(out, Example{l.Job, l.Variant, before, e})
	}
}

// Effects is the example in words, without the job: "batch 16 → 8: reserved
// 7.88 GiB → 4.01 GiB, step 0.051 → 0.027 s".
func (e Example) Effects() string {
	var b strings.Builder
	fmt.Fprintf(&b, "batch %d", e.Before.Batch)
	if e.After.Batch != e.Before.Batch {
		fmt.Fprintf(&b, " → %d", e.After.Batch)
		if e.After.Accumulate > 1 {
			fmt.Fprintf(&b, " × %d", e.After.Accumulate)
		}
	}
	fmt.Fprintf(&b, ": reserved %s → %s", e.Before.PeakReserved, e.After.PeakReserved)
	fmt.Fprintf(&b, ", allocated %s → %s", e.Before.PeakAllocated, e.After.PeakAllocated)
	if e.Before.StepSeconds != nil && e.After.StepSeconds != nil {
		fmt.Fprintf(&b, ", step %.3f → %.3f s", *e.Before.StepSeconds, *e.After.StepSeconds)
	}
	return b.String()
}
