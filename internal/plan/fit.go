package plan

import (
	"fmt"
	"strings"

	"vramscope/bytesize"
	"vramscope/internal/estimate"
	"vramscope/internal/gpu/cards"
	"vramscope/internal/modelgraph"
)

// Answer is what `fit --format json` prints.
type Answer struct {
	Model         string           `json:"model"`
	GPU           *string          `json:"gpu"`
	Request       *Request         `json:"request"`
	PeakAllocated int64            `json:"peak_allocated_bytes"`
	PeakReserved  int64            `json:"peak_reserved_bytes"`
	Device        int64            `json:"device_bytes"`
	Interval      Interval         `json:"interval"`
	Fits          *bool            `json:"fits"` // null where no card and no limit are given
	Breakdown     map[string]int64 `json:"breakdown"`
	PeakAt        string           `json:"peak_at"`
	Plans         []Plan           `json:"plans"`
	LargestBatch  *int64           `json:"largest_batch"` // null unless it was asked for
	Cards         []CardFit        `json:"cards,omitempty"`
	Parameters    int64            `json:"parameters"`
	RuleOfThumb   int64            `json:"rule_of_thumb_bytes"`
	Basis         string           `json:"basis"`
	Assumptions   []string         `json:"assumptions"`
	Notes         []string         `json:"notes"`
}

// Request is the job as it was understood, with what it may take.
type Request struct {
	Setup
	Memory *int64 `json:"memory_bytes"`
	Limit  *int64 `json:"limit_bytes"`
}

// Interval is where the reserved peak may lie.
type Interval struct {
	Low  int64 `json:"low_bytes"`
	High int64 `json:"high_bytes"`
}

// Plan is one combination of measures.
type Plan struct {
	Measures         []string          `json:"measures"`
	MicroBatch       int64             `json:"micro_batch"`
	Accumulation     int               `json:"accumulation"`
	PeakReserved     int64             `json:"peak_reserved_bytes"`
	Device           int64             `json:"device_bytes"`
	Fits             bool              `json:"fits"`
	RelativeStepTime *float64          `json:"relative_step_time"`
	Changes          map[string]string `json:"changes"`
}

// margin is the part of the reserved peak by which an estimate may be off
// (docs/accuracy-fit.md: 95 of 100 measured settings lie within).
const margin = 0.02

// beyondReserved is what the driver counts beyond what PyTorch reserves: the
// context, and the libraries that the model's operators load
// (data/fresh-process.jsonl).
func beyondReserved(g *modelgraph.Graph) int64 {
	n := int64(cards.ContextBytes)
	for i := range g.Nodes {
		switch g.Nodes[i].Op {
		case "linear", "addmm", "matmul", "mm", "bmm":
			return n + 140<<20 // cuBLAS and its kernels
		}
	}
	return n + 20<<20
}

// Fit estimates the job and compares it with the room.
func Fit(path string, s Setup, room Room) (*Answer, *modelgraph.Graph, error) {
	if err := s.Check(); err != nil {
		return nil, nil, err
	}
	g, err := Open(path, &s)
	if err != nil {
		return nil, nil, err
	}
	a, err := answer(g, s, room)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, g, nil
}

// Estimate runs a job without comparing it with anything. log, if not nil, is
// told of each request and free.
func Estimate(path string, s Setup, log func(free bool, id int32, bytes int64, where string)) (*estimate.Result, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	g, err := Open(path, &s)
	if err != nil {
		return nil, err
	}
	r, err := s.request(g)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r.Log = log
	res, err := estimate.Run(g, r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return res, nil
}

func answer(g *modelgraph.Graph, s Setup, room Room) (*Answer, error) {
	r, err := s.request(g)
	if err != nil {
		return nil, err
	}
	r.Compute = room.compute
	res, err := estimate.Run(g, r)
	if err != nil {
		return nil, err
	}
	a := &Answer{
		Model: g.Name, Request: &Request{Setup: s}, PeakAllocated: res.PeakAllocated, PeakReserved: res.PeakReserved,
		Device:    res.PeakReserved + beyondReserved(g),
		Breakdown: res.Breakdown, PeakAt: res.PeakAt, Plans: []Plan{}, Parameters: g.NumParams(),
		Basis: "estimated", Assumptions: append([]string{}, g.Assumptions...), Notes: []string{},
	}
	a.RuleOfThumb = ruleOfThumb(g, s, res)
	off := margin
	if len(res.Unknown) > 0 {
		a.Assumptions = append(a.Assumptions, fmt.Sprintf("Operators without a rule, taken to give what they get: %s.", strings.Join(res.Unknown, ", ")))
		off = 0.2
	}
	if room.compute != "" && room.compute != estimate.Measured {
		a.Notes = append(a.Notes, "Workspaces of this card follow PyTorch's sources (rule); they were measured on Hopper only.")
		off += 0.02
	}
	a.Interval = Interval{Low: scale(res.PeakReserved, 1-off), High: scale(res.PeakReserved, 1+off)}
	if room.GPU != "" {
		a.GPU = &room.GPU
	}
	if room.Memory > 0 {
		n := int64(room.Memory)
		a.Request.Memory = &n
	}
	if room.Limit > 0 {
		n := int64(room.Limit)
		a.Request.Limit = &n
	}
	budget := room.budget(g)
	if budget < 0 {
		return a, nil
	}
	fits := a.Interval.High <= budget
	if !fits && scale(res.PeakAllocated, 1+off) <= budget {
		// It may still run, if the allocator gives back what it caches. What
		// the program needs has the margin; what the allocator then does with
		// that limit is simulated.
		if fits, err = tight(g, r, budget); err != nil {
			return nil, err
		}
		if fits {
			a.Notes = append(a.Notes, "It fits only because the allocator releases cached memory when it reaches the limit, which costs time.")
			a.Interval.Low = min(a.Interval.Low, res.PeakAllocated)
			a.Interval.High = budget
		}
	}
	a.Fits = &fits
	return a, nil
}

// budget is what the process may reserve, -1 where nothing is known.
func (r Room) budget(g *modelgraph.Graph) int64 {
	b := int64(-1)
	if r.Memory > 0 {
		b = max(int64(r.Memory)-beyondReserved(g), 0)
	}
	if r.Limit > 0 && (b < 0 || int64(r.Limit) < b) {
		b = int64(r.Limit)
	}
	return b
}

// tight runs the job under a limit, where the allocator retries after giving
// its cache back.
func tight(g *modelgraph.Graph, r estimate.Request, limit int64) (bool, error) {
	r.Limit = limit
	res, err := estimate.Run(g, r)
	if err != nil {
		return false, err
	}
	return res.OOM == nil, nil
}

func scale(n int64, by float64) int64 { return int64(float64(n) * by) }

// ruleOfThumb is "parameters × 4 + batch × (inputs + outputs + gradients) × 4",
// as often quoted: inputs and outputs of the model for one sample, and as
// many gradients as parameters.
func ruleOfThumb(g *modelgraph.Graph, s Setup, res *estimate.Result) int64 {
	n := g.NumParams()
	return 4*n + 4*(res.InputsAndOutputs+s.Batch*n)
}

// Human says a size.
func Human(n int64) string { return bytesize.Size(n).String() }
