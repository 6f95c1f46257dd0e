package estimate

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vramscope/internal/modelgraph"
	"vramscope/internal/modelgraph/hf"
)

// counter is memory without end that counts what is held.
type counter struct {
	live map[int32]int64
	n    int32
}

func (c *counter) malloc(n int64) (int32, error) {
	c.n++
	c.live[c.n] = n
	return c.n, nil
}

func (c *counter) free(h int32) { delete(c.live, h) }

func newMachine() (*machine, *counter) {
	c := &counter{live: map[int32]int64{}}
	return &machine{mem: c, card: rulesFor(""), casts: map[*param]*tensor{}, training: true}, c
}

// The buffers and semaphores of reductions in recordings of an H200.
func TestReduceScratch(t *testing.T) {
	tests := []struct {
		shape              []int64
		buffer, semaphores int64
	}{
		{[]int64{1024, 768}, 6291456, 24},
		{[]int64{1024, 3072}, 25165824, 96},
		{[]int64{1024, 2304}, 18874368, 72},
		{[]int64{1024, 896}, 7340032, 28},
		{[]int64{50257, 768}, 138412032, 24},
		{[]int64{1024, 30522}, 0, 0},
		{[]int64{25088, 96}, 4816896, 8},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.shape), func(t *testing.T) {
			m, _ := newMachine()
			x := m.empty(f32, tt.shape, nil)
			buffer, sem := m.reduceScratch(x, []bool{true, false}, 4, tt.shape[1])
			if buffer != tt.buffer || sem != tt.semaphores {
				t.Errorf("got %d, %d, want %d, %d", buffer, sem, tt.buffer, tt.semaphores)
			}
		})
	}
}

func TestViewStrides(t *testing.T) {
	tests := []struct {
		name              string
		shape, stride, to []int64
		want              []int64
	}{
		{"contiguous", []int64{2, 3, 4}, []int64{12, 4, 1}, []int64{6, 4}, []int64{4, 1}},
		{"split", []int64{6, 4}, []int64{4, 1}, []int64{2, 3, 2, 2}, []int64{12, 4, 2, 1}},
		{"heads of a transposed tensor do not merge", []int64{2, 4, 5, 8}, []int64{160, 8, 32, 1}, []int64{8, 5, 8}, nil},
		{"expanded heads do not merge", []int64{2, 2, 3, 4}, []int64{8, 4, 0, 1}, []int64{2, 6, 4}, nil},
		{"a row of one", []int64{1, 4}, []int64{100, 1}, []int64{4}, []int64{1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, viewStrides(tt.shape, tt.stride, tt.to)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestPointwiseStrides(t *testing.T) {
	of := func(shape, stride []int64) *tensor { return &tensor{shape: shape, stride: stride} }
	tests := []struct {
		name  string
		shape []int64
		in    []*tensor
		want  []int64
	}{
		{"contiguous", []int64{2, 3}, []*tensor{of([]int64{2, 3}, []int64{3, 1})}, []int64{3, 1}},
		{"the layout of the input", []int64{2, 4, 3, 8}, []*tensor{of([]int64{2, 4, 3, 8}, []int64{96, 8, 32, 1})}, []int64{96, 8, 32, 1}},
		{"a broadcast row does not decide", []int64{2, 4, 3, 8}, []*tensor{of([]int64{2, 4, 3, 8}, []int64{96, 8, 32, 1}), of([]int64{1, 1, 3, 8}, []int64{24, 24, 8, 1})}, []int64{96, 8, 32, 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, pointwiseStrides(tt.shape, tt.in)); d != "" {
				t.Error(d)
			}
		})
	}
}

const tiny = `{"model_type":"llama","hidden_size":64,"intermediate_size":128,"num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":500}`

// TestNothingLeaks runs whole jobs and looks at what is held when all tensors
// that Python names are gone: parameters, states, workspaces.
func TestNothingLeaks(t *testing.T) {
	for _, precision := range Precisions() {
		for _, checkpoint := range []bool{false, true} {
			for _, attention := range []string{"sdpa", "eager"} {
				t.Run(fmt.Sprintf("%s/%v/%s", precision, checkpoint, attention), func(t *testing.T) {
					g, err := hf.Build("tiny", []byte(tiny), hf.Options{Train: true, Attention: attention})
					if err != nil {
						t.Fatal(err)
					}
					m, c := newMachine()
					r := Request{Bind: modelgraph.Binding{"batch": 2, "seq": 32}, Precision: precision, Optimizer: "adamw", Checkpoint: checkpoint, Accumulate: 2, Steps: 2}
					j := &job{m: m, p: &program{g: g, bind: r.Bind, ops: operators(), env: make([]*tensor, len(g.Values)), ckpt: checkpoint}, r: r}
					j.load()
					if err := j.train(); err != nil {
						t.Fatal(err)
					}
					var held, want int64
					for _, n := range c.live {
						held += n
					}
					for _, p := range j.all {
						n := p.t.st.bytes
						want += n
						if p.trainable {
							want += 2 * n // Adam's states
						}
					}
					for _, h := range m.handles {
						for _, w := range []*tensor{h.blas, h.lt} {
							if w != nil {
								want += w.st.bytes
							}
						}
					}
					if held != want {
						t.Errorf("%d bytes held, want %d", held, want)
					}
				})
			}
		}
	}
}

// TestCheckpointingSaves compares activations with and without recomputation.
func TestCheckpointingSaves(t *testing.T) {
	g, err := hf.Build("tiny", []byte(tiny), hf.Options{Train: true})
	if err != nil {
		t.Fatal(err)
	}
	run := func(checkpoint bool) *Result {
		res, err := Run(g, Request{Bind: modelgraph.Binding{"batch": 64, "seq": 256}, Precision: FP32, Optimizer: "sgd", Checkpoint: checkpoint})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if a, b := run(false), run(true); b.PeakAllocated >= a.PeakAllocated {
		t.Errorf("%d with checkpointing, %d without", b.PeakAllocated, a.PeakAllocated)
	}
}

func TestRunRefuses(t *testing.T) {
	g, err := hf.Build("tiny", []byte(tiny), hf.Options{Train: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		r    Request
	}{
		{"no precision", Request{Bind: modelgraph.Binding{"batch": 1, "seq": 8}}},
		{"no batch", Request{Bind: modelgraph.Binding{"seq": 8}, Precision: FP32, Optimizer: "sgd"}},
		{"unknown optimizer", Request{Bind: modelgraph.Binding{"batch": 1, "seq": 8}, Precision: FP32, Optimizer: "magic"}},
		{"a size that overflows", Request{Bind: modelgraph.Binding{"batch": 1 << 40, "seq": 1 << 40}, Precision: FP32, Optimizer: "sgd"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Run(g, tt.r); err == nil {
				t.Error("no error")
			}
		})
	}
}
