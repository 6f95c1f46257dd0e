package holders

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vramscope/bytesize"
	"vramscope/replay"
	"vramscope/trace"
)

var (
	update     = flag.Bool("update", false, "rewrite docs/accuracy-holders.md")
	recordings = flag.String("recordings", "", "folder with all recordings, for -update: ../../../shared/data/snapshots")
)

// model is what is known of a model without a card (shared/data/models).
type model struct {
	Parameters     int   `json:"parameters"`
	ParameterBytes int64 `json:"parameter_bytes"`
	Buffers        int   `json:"buffers"`
	BufferBytes    int64 `json:"buffer_bytes"`
}

// known says what each recording trained (shared/data/how-measured).
var known = []struct {
	recording, model string
	states           int64 // of the optimizer, per parameter
	steps            int   // complete ones
	small            bool  // lies in testdata
}{
	{"resnet50_b32_fp32", "resnet50", 1, 3, true},
	{"leak_resnet18", "resnet18", 1, 8, true},
	{"gpt2_b8_s512_amp", "gpt2", 2, 3, true},
	{"llama160_ckpt", "llama160", 2, 3, true},
	{"compile_gpt2", "gpt2", 2, 3, true},
	{"unet_10gib_b8_ok", "unet", 2, 2, true},
	{"unet_10gib_b16_ok", "unet", 2, 3, true},
	{"unet_10gib_b32_oom", "unet", 0, 0, true},
	{"cpp_stacks", "resnet18", 2, 4, true},
	{"mempool", "resnet18", 2, 3, true},
	{"empty_cache_each", "resnet18", 2, 5, true},
	{"caught_oom", "resnet18", 2, 2, true},
	{"varimg_other_processes_oom", "resnet50", 0, 0, true},
	{"varlen_limit_default_oom", "gpt2", 2, 2, true},
	{"graph", "resnet18", 0, 0, true},
	{"varlen_default", "gpt2", 2, 30, false},
	{"varlen_split128", "gpt2", 2, 30, false},
	{"varlen_expandable", "gpt2", 2, 30, false},
	{"varlen_gc", "gpt2", 2, 30, false},
	{"varlen_pow2", "gpt2", 2, 30, false},
	{"varimg_default", "resnet50", 1, 25, false},
	{"varimg_split128", "resnet50", 1, 25, false},
	{"varimg_expandable", "resnet50", 1, 25, false},
}

func models(t *testing.T) map[string]model {
	data, err := os.ReadFile("testdata/models.json")
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]model{}
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestKnownSums compares categories with what the models are known to have.
func TestKnownSums(t *testing.T) {
	m := models(t)
	for _, k := range known {
		if !k.small {
			continue
		}
		t.Run(k.recording, func(t *testing.T) { checkSums(t, recorded(t, k.recording), m[k.model], k.states, k.steps) })
	}
}

// TestKnownSumsWithoutHints takes the hints away that an older PyTorch, or
// context="alloc", does not record: named regions, and the stacks of frees.
func TestKnownSumsWithoutHints(t *testing.T) {
	m := models(t)
	for _, k := range known {
		if !k.small {
			continue
		}
		t.Run(k.recording, func(t *testing.T) {
			p := recorded(t, k.recording).Program
			e := &p.Device.Events
			p.Trace.Annotations = nil
			born := map[uint64]int{}
			for i, act := range e.Action {
				switch act {
				case trace.Alloc:
					born[e.Addr[i]] = i
				case trace.FreeRequested, trace.FreeCompleted:
					e.Stack[i] = 0
					if b, ok := born[e.Addr[i]]; ok {
						e.Stack[i] = e.Stack[b]
					}
				}
			}
			checkSums(t, analyze(t, replay.Compile(p.Trace, p.Device)), m[k.model], k.states, k.steps)
		})
	}
}

func checkSums(t *testing.T, a *Analysis, mod model, states int64, steps int) {
	t.Helper()
	complete := 0
	for _, s := range a.Steps {
		if s.Complete {
			complete++
		}
	}
	if complete != steps {
		t.Errorf("%d complete steps, want %d", complete, steps)
	}
	if b, n := a.sum(Parameter, -1); b != mod.ParameterBytes+mod.BufferBytes || n != mod.Parameters+mod.Buffers {
		t.Errorf("parameters and buffers: %d bytes in %d blocks, want %d in %d", b, n, mod.ParameterBytes+mod.BufferBytes, mod.Parameters+mod.Buffers)
	}
	for s := range a.Steps {
		if !a.Steps[s].Complete {
			continue
		}
		if b, n := a.sum(Gradient, s); b != mod.ParameterBytes || n != mod.Parameters {
			t.Errorf("step %d: gradients of %d bytes in %d blocks, want %d in %d", s, b, n, mod.ParameterBytes, mod.Parameters)
		}
	}
	if b, _ := a.sum(OptimizerState, -1); b != states*mod.ParameterBytes {
		t.Errorf("optimizer state: %d bytes, want %d times %d", b, states, mod.ParameterBytes)
	}
}

const accuracyDoc = "../../docs/accuracy-holders.md"

// TestAccuracy holds docs/accuracy-holders.md: the rows of the recordings at
// hand must stand in it. With -update -recordings DIR it is written anew.
func TestAccuracy(t *testing.T) {
	m := models(t)
	var rows []string
	for _, k := range known {
		if !k.small && *recordings == "" {
			continue
		}
		var a *Analysis
		if k.small {
			a = recorded(t, k.recording)
		} else {
			a = analyzeFile(t, filepath.Join(*recordings, k.recording+".pickle.zst"))
		}
		rows = append(rows, accuracyRow(a, k.recording, m[k.model], k.states))
	}
	batches, scales := batchRows(t), scaleRows(t)
	if *update {
		if *recordings == "" {
			t.Fatal("-update needs -recordings DIR")
		}
		leaks := leakRows(t, *recordings)
		text := accuracyText(rows, leaks, batches, scales)
		if err := os.WriteFile(accuracyDoc, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	doc, err := os.ReadFile(accuracyDoc)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range slices.Concat(rows, batches, scales) {
		if !strings.Contains(string(doc), row) {
			t.Errorf("%s lacks the row\n%s\nrun go test ./internal/holders -run TestAccuracy -update -recordings DIR", accuracyDoc, row)
		}
	}
}

// accuracyRow compares the sums of one recording with what is true.
func accuracyRow(a *Analysis, name string, m model, states int64) string {
	parameters, _ := a.sum(Parameter, -1)
	state, _ := a.sum(OptimizerState, -1)
	worst, steps := int64(0), 0
	gradient := int64(-1)
	for s := range a.Steps {
		if a.Steps[s].Complete {
			b, _ := a.sum(Gradient, s)
			if d := abs64(b - m.ParameterBytes); gradient < 0 || d > worst {
				gradient, worst = b, d
			}
			steps++
		}
	}
	unknown := int64(0)
	total := int64(0)
	for i := range a.Live(a.PeakAllocated) {
		total += a.Allocated[i]
		if a.Category(i) == Unknown {
			unknown += a.Allocated[i]
		}
	}
	share := 100 * float64(unknown) / math.Max(float64(total), 1)
	g := "none"
	if gradient >= 0 {
		g = fmt.Sprintf("%d / %d", gradient, m.ParameterBytes)
	}
	return fmt.Sprintf("| %s | %d | %d / %d | %s | %d / %d | %.2f %% |", name, steps,
		parameters, m.ParameterBytes+m.BufferBytes, g, state, states*m.ParameterBytes, share)
}

func abs64(x int64) int64 { return max(x, -x) }

// leakRows lists what Leaks finds in every recording.
func leakRows(t *testing.T, dir string) []string {
	files, err := filepath.Glob(filepath.Join(dir, "*.pickle.zst"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, f := range files {
		a := analyzeFile(t, f)
		for _, l := range a.Leaks() {
			rows = append(rows, fmt.Sprintf("| %s | %s | %.0f | %.2f |", strings.TrimSuffix(filepath.Base(f), ".pickle.zst"), l.Line, l.BytesPerStep, l.BlocksPerStep))
		}
	}
	rows = append(rows, fmt.Sprintf("\n%d recordings were looked at.", len(files)))
	return rows
}

// batchRows predicts one batch size from others.
func batchRows(t *testing.T) []string {
	b8, b16, b32 := recorded(t, "unet_10gib_b8_ok"), recorded(t, "unet_10gib_b16_ok"), recorded(t, "unet_10gib_b32_oom")
	const limit = 10 << 30
	row := func(what, how string, p *replay.Program, limit int64, truth *Analysis) string {
		o, err := p.Run(t.Context(), replay.Scenario{Settings: &p.Recorded, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		fits := "fits"
		if o.FatalOOM != nil {
			fits = fmt.Sprintf("dies of %v", bytesize.Size(o.FatalOOM.SegmentBytes))
		}
		real := "not measured"
		if truth != nil {
			real = fmt.Sprintf("%d, fits", truth.Outcome.PeakReserved)
			if x := truth.Outcome.FatalOOM; x != nil {
				real = fmt.Sprintf("%d, dies of %v", truth.Outcome.PeakReserved, bytesize.Size(x.SegmentBytes))
			}
			if o.FatalOOM == nil {
				real += fmt.Sprintf(" (%+.2f %%)", 100*(float64(o.PeakReserved)/float64(truth.Outcome.PeakReserved)-1))
			}
		}
		return fmt.Sprintf("| %s | %s | %d, %s | %s |", what, how, o.PeakReserved, fits, real)
	}
	fit := FitBatches(b8, 8, b16, 16)
	return []string{
		row("16", "8 alone", b8.ScaleBatch(8, 16), limit, b16),
		row("8", "16 alone", b16.ScaleBatch(16, 8), limit, b8),
		row("16", "8 and 16", fit.Program(16), limit, b16),
		row("8", "16 and 8", FitBatches(b16, 16, b8, 8).Program(8), limit, b8),
		row("12", "8 and 16", fit.Program(12), limit, nil),
		row("32, 10 GiB", "8 alone", b8.ScaleBatch(8, 32), limit, b32),
		row("32, 10 GiB", "8 and 16", fit.Program(32), limit, b32),
		sizesAt32(t),
	}
}

// scaleRows say how much of a step is as estimated from another one.
func scaleRows(t *testing.T) []string {
	var rows []string
	for _, k := range batchSteps {
		a := recorded(t, k.recording)
		f := stepFit(a, k.step, k.other)
		lasting := scaledRight(a, f, k.samples, k.becomes, func(c Category) bool { return c != Workspace && c != Temporary })
		passing := scaledRight(a, f, k.samples, k.becomes, func(c Category) bool { return c == Workspace || c == Temporary })
		rows = append(rows, fmt.Sprintf("| %s | %d → %d | %.2f %% | %.2f %% |", k.recording, k.samples, k.becomes, 100*lasting, 100*passing))
	}
	return rows
}

// sizesAt32 compares the requests of the failed forward pass at batch 32 with
// the lines through batches 8 and 16.
func sizesAt32(t *testing.T) string {
	b8, b16, b32 := recorded(t, "unet_10gib_b8_ok"), recorded(t, "unet_10gib_b16_ok"), recorded(t, "unet_10gib_b32_oom")
	predicted := FitBatches(b8, 8, b16, 16).Program(32).Requests
	real := FitBatches(b8, 8, b32, 32)
	equal, scratch, other := 0, 0, 0
	for i, size := range real.partner {
		switch {
		case size < 0 || b8.phase[i] < 0 || b8.Phases[b8.phase[i]].Kind != Forward || b8.Phases[b8.phase[i]].Step > 0:
		case size == predicted[i].Size:
			equal++
		case b8.Rules[i] == ruleForwardScratch:
			scratch++
		default:
			other++
		}
	}
	return fmt.Sprintf("%d of the %d requests that the forward pass at batch 32 made before it died have exactly the size that 8 and 16 predict; %d more are workspaces of convolutions, %d is neither.",
		equal, equal+scratch+other, scratch, other)
}

func accuracyText(rows, leaks, batches, scales []string) string {
	return `# Who holds the memory: found and true

Generated by ` + "`go test ./internal/holders -run TestAccuracy -update -recordings DIR`" + ` from the recordings of a card
(shared/data/snapshots). Do not edit.

## Categories

Requested bytes, found / true. True are the sizes of the model's parameters and buffers, of its parameters alone for the
gradients of a step (the step farthest from the truth is shown), and once or twice that for the state of SGD with momentum
or Adam. Categories come from the order of births and deaths; sizes of parameters are not looked up. "Unknown" is the share of the bytes
at the allocated peak whose category is unknown.

| recording | complete steps | parameters and buffers | gradients | optimizer state | unknown at the peak |
|---|---|---|---|---|---|
` + strings.Join(rows, "\n") + `

## Leaks

What is reported of all recordings. ` + "`leak_resnet18`" + ` keeps its losses in a list, 4 bytes each in blocks of 512; the others
keep nothing.

| recording | line | bytes per step | blocks per step |
|---|---|---|---|
` + strings.Join(leaks, "\n") + `

## Another batch

The U-Net of the recordings under 10 GiB: peak reserved bytes at one batch, predicted from recordings at others. From one
recording everything is an estimate; from two each request lies on its own line.

| batch | from | predicted | measured |
|---|---|---|---|
` + strings.Join(batches[:len(batches)-1], "\n") + `

The sizes at a batch that was recorded come from its own recording and only their order from the other, so the exact rows
show that the two programs are aligned; 32 is the prediction. ` + batches[len(batches)-1] + `
From 8 alone the program dies at a request of cuDNN that a real one survives by asking for less.

Two recordings have steps of different batches (images; tokens). The share of a step's requested bytes that have exactly
the size that is estimated from another step alone:

| recording | images or tokens | parameters to activations | temporaries and workspaces |
|---|---|---|---|
` + strings.Join(scales, "\n") + `

What differs is workspaces of cuDNN: most hold a copy of the weights besides what grows with the batch, which makes them a
few per cent off; some follow the algorithm that it picks.
`
}
