package estimate

import (
	"fmt"
	"slices"
	"strings"

	"vramscope/cachealloc"
	"vramscope/internal/modelgraph"
)

// Mode is what the job does.
type Mode uint8

// The modes.
const (
	Train Mode = iota
	Infer
)

// Request is a job whose memory is asked for.
type Request struct {
	Mode      Mode
	Bind      modelgraph.Binding // the graph's symbols
	Precision Precision
	Optimizer string
	// Checkpoint says that every block is recomputed in the backward pass.
	Checkpoint   bool
	Accumulate   int  // micro-batches per step, at least 1
	KeepGrads    bool // zero_grad(set_to_none=False)
	ChannelsLast bool
	Steps        int // 3 if 0
	// Compute is the card's compute capability; "" means Measured.
	Compute  string
	Settings *cachealloc.Settings
	Limit    int64
	Capacity int64
	// Log, if set, is told of each request and free in order.
	Log func(free bool, id int32, bytes int64, where string)
}

// Precision is the type that a model computes in.
type Precision string

// The precisions: autocast over float32 weights, or weights of the type.
const (
	FP32    Precision = "fp32"
	AMPBF16 Precision = "amp-bf16"
	AMPFP16 Precision = "amp-fp16"
	BF16    Precision = "bf16"
	FP16    Precision = "fp16"
)

// Precisions are the values that a request takes.
func Precisions() []Precision { return []Precision{FP32, AMPBF16, AMPFP16, BF16, FP16} }

// Result is what the job needs.
type Result struct {
	PeakAllocated int64
	PeakReserved  int64
	PeakAt        string
	Breakdown     map[string]int64 // by category, at the peak
	ParamBytes    int64
	OOM           error // set if the limit or the card stopped it
	Requests      int
	// Unknown are operators without a rule: their results were taken to be as
	// their first tensor.
	Unknown []string
	// Work is what one step computes.
	Work Work
	// InputsAndOutputs are the elements of the model's inputs and outputs.
	InputsAndOutputs int64
}

// Work is how much a job computes, for comparing step times.
type Work struct {
	FLOPs32, FLOPs16 float64 // of matrix products, by the type of their operands
	Bytes            float64 // moved by everything else: about three times what is written
	Operators        float64 // requests, as a measure of the kernels launched
}

// Times returns the work n times.
func (w Work) Times(n float64) Work {
	return Work{w.FLOPs32 * n, w.FLOPs16 * n, w.Bytes * n, w.Operators * n}
}

// Run estimates the peaks of a job.
func Run(g *modelgraph.Graph, r Request) (res *Result, err error) {
	if !slices.Contains(Precisions(), r.Precision) {
		return nil, fmt.Errorf("precision %q: want one of %v", r.Precision, Precisions())
	}
	r.Accumulate = max(r.Accumulate, 1)
	if r.Steps == 0 {
		r.Steps = 3
	}
	cfg := cachealloc.Config{Version: cachealloc.Version{Major: 2, Minor: 11}, Settings: r.Settings, Limit: r.Limit}
	if r.Capacity > 0 {
		cfg.Driver = &cachealloc.Card{Capacity: r.Capacity}
	}
	alloc := &simulated{a: cachealloc.New(cfg)}
	m := &machine{mem: alloc, card: rulesFor(r.Compute), casts: map[*param]*tensor{}, training: r.Mode == Train}
	if r.Log != nil {
		m.log = func(e logged) { r.Log(e.free, e.id, e.bytes, e.where) }
	}
	res = &Result{Breakdown: map[string]int64{}}
	defer func() {
		if x := recover(); x != nil {
			f, ok := x.(failure)
			if !ok {
				panic(x)
			}
			if _, oom := f.err.(*cachealloc.OOMError); !oom {
				res, err = nil, f.err
				return
			}
			res.OOM = f.err
		}
		st := alloc.a.Stats()
		res.PeakAllocated = st.AllocatedBytes.All.Peak
		res.PeakReserved = st.ReservedBytes.All.Peak
		res.PeakAt = strings.TrimSpace(m.peak.where)
		res.Requests = int(m.nextID)
		res.Work = m.work.Times(1 / float64(r.Steps))
		for c, n := range m.peak.cats {
			if n != 0 {
				res.Breakdown[Category(c).String()] = n
			}
		}
	}()
	j := &job{m: m, p: &program{g: g, bind: r.Bind, ops: operators(), env: make([]*tensor, len(g.Values)), ckpt: r.Checkpoint && r.Mode == Train}, r: r}
	j.load()
	res.ParamBytes = j.paramBytes
	defer func() { res.InputsAndOutputs, res.Unknown = j.inOut, j.p.unknown }()
	if r.Mode == Infer {
		j.infer()
		return res, nil
	}
	return res, j.train()
}

// simulated is the machine's memory as PyTorch's allocator would serve it.
type simulated struct{ a *cachealloc.Allocator }

func (s *simulated) malloc(n int64) (int32, error) {
	b, err := s.a.Malloc(n, 0)
	return int32(b) + 1, err
}

func (s *simulated) free(h int32) { s.a.Free(cachealloc.Block(h - 1)) }
