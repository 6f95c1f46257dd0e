// Package diagnose says why a job ran out of memory and what to change. It
// takes what others found, in a recording (internal/holders, replay) or in a
// log (oomlog), applies rules, and ranks the catalogue of remedies by what each
// saves for this job.
//
// Every number says how it was obtained: measured (the input states it),
// replayed (the recorded requests went through the simulated allocator),
// estimated (a model of the job) or rule (documented, no number).
package diagnose

import "vramscope/internal/cause"

// Result is what explain prints.
type Result struct {
	Inputs []Input `json:"inputs"`
}

// Input is the diagnosis of one file.
type Input struct {
	File     string    `json:"file"`
	Kind     string    `json:"kind"`
	Summary  string    `json:"summary"` // a sentence or two
	Failures []Failure `json:"failures"`
	Causes   []Cause   `json:"causes"`   // most likely first
	Remedies []Remedy  `json:"remedies"` // best first
	Settings []Setting `json:"settings"` // allocator settings, tried by replay
	Holders  []Holder  `json:"holders"`  // largest first, at Moment
	Moment   *Moment   `json:"moment"`   // null where the input has no timeline
	Leaks    []Leak    `json:"leaks"`
	Batch    *Batch    `json:"batch"`  // null without --batch
	Advice   []string  `json:"advice"` // what to collect where the input does not suffice
}

// Basis is how a number was obtained.
type Basis string

// The bases.
const (
	Measured  Basis = "measured"
	Replayed  Basis = "replayed"
	Estimated Basis = "estimated"
	Rule      Basis = "rule"
)

// Failure is one out-of-memory failure. What the input does not say is null.
type Failure struct {
	Framework           *string  `json:"framework"`
	FrameworkVersion    *string  `json:"framework_version"`
	Device              *int     `json:"device"`
	Rank                *int     `json:"rank"`
	Tried               *int64   `json:"tried_bytes"` // asked of the driver
	Requested           *int64   `json:"requested_bytes"`
	Capacity            *int64   `json:"capacity_bytes"`
	Limit               *int64   `json:"limit_bytes"`
	Free                *int64   `json:"free_bytes"`
	Allocated           *int64   `json:"allocated_bytes"`
	ReservedUnallocated *int64   `json:"reserved_unallocated_bytes"`
	OtherProcess        *int64   `json:"other_process_bytes"`
	ThisProcess         *int64   `json:"this_process_bytes"`
	Unexplained         *int64   `json:"unexplained_bytes"`
	Lacks               *int64   `json:"lacks_bytes"` // what a change must save at least
	Line                *int64   `json:"line"`        // of a log, from 1
	Event               *int     `json:"event"`       // of a recording, from 0
	Basis               Basis    `json:"basis"`       // measured, or replayed: it would have failed under the limit given
	Survived            bool     `json:"survived"`
	Stack               []string `json:"stack"`
	Text                string   `json:"text,omitempty"`
}

// Cause is a reason that the evidence supports.
type Cause struct {
	ID         cause.ID   `json:"id"`
	Confidence float64    `json:"confidence"` // 0 to 1
	Evidence   []Evidence `json:"evidence"`
}

// Evidence is a fact that supports a cause.
type Evidence struct {
	Text  string `json:"text"`
	Line  *int64 `json:"line,omitempty"`
	Event *int   `json:"event,omitempty"`
	Bytes *int64 `json:"bytes,omitempty"`
}

// Remedy is a measure, with what it does for this job.
type Remedy struct {
	ID        string            `json:"id"`
	Title     string            `json:"title"`
	Saves     *int64            `json:"saves_bytes"` // null: not known for this job; negative: it takes more
	AtLeast   bool              `json:"saves_at_least"`
	AtMost    bool              `json:"saves_at_most"`
	Basis     Basis             `json:"basis"`
	Fits      *bool             `json:"makes_it_fit"` // null: not known
	Cost      Cost              `json:"cost"`
	Why       string            `json:"why"` // how the number was found, or why there is none
	Change    map[string]string `json:"change"`
	Framework string            `json:"-"` // whose change to show

	risk int // to what is computed, by its level
	// elsewhere is the place of the most likely cause among those that the
	// remedy answers: 0 for what was made against it.
	elsewhere int
	place     int // in the catalogue
}

// Cost is what a remedy costs.
type Cost struct {
	RelativeStepTime *float64 `json:"relative_step_time"` // 1: unchanged; null: no single number is honest
	Note             string   `json:"note"`
}

// Setting is a settings string with what it does, replayed.
type Setting struct {
	Conf         string `json:"conf"`
	Recorded     bool   `json:"recorded"`
	PeakReserved int64  `json:"peak_reserved_bytes"`
	Saves        *int64 `json:"saves_bytes"` // null where one of the two dies
	Retries      int64  `json:"num_alloc_retries"`
	Survives     *bool  `json:"survives"` // under the limit, to the end of the recording; null where the limit is not known well enough
	DiesAt       *int   `json:"dies_at_event"`
	Basis        Basis  `json:"basis"`
}

// Holder is code that holds memory.
type Holder struct {
	Holder   string `json:"holder"`
	Category string `json:"category"`
	Bytes    int64  `json:"bytes"`
	Blocks   int    `json:"blocks"`
	Why      string `json:"why,omitempty"` // the rule that decided the category
}

// Moment is when the holders are listed.
type Moment struct {
	Name         string           `json:"name"` // failure, peak_allocated, peak_reserved or end
	Event        int              `json:"event"`
	Allocated    int64            `json:"allocated_bytes"`
	Reserved     int64            `json:"reserved_bytes"`
	Phase        string           `json:"phase"`
	ByCategory   map[string]int64 `json:"by_category"`
	LargestServe int64            `json:"largest_free_bytes"` // the largest request that needs no new memory
}

// Leak is memory that grows from step to step.
type Leak struct {
	Holder      string `json:"holder"`
	PerStep     int64  `json:"bytes_per_step"`
	Bytes       int64  `json:"bytes"` // held at the end
	StepsToFull *int64 `json:"steps_to_limit"`
}

// Batch is what fits of the micro-batch.
type Batch struct {
	Recorded int   `json:"recorded"`
	Largest  int   `json:"largest_that_fits"` // 0: not even one sample
	Peak     int64 `json:"peak_reserved_bytes"`
	// NextPeak is what one sample more would reserve without a limit.
	NextPeak   int64 `json:"next_peak_reserved_bytes"`
	UpperBound bool  `json:"upper_bound"` // the recording holds no complete step: what came later is not counted
	Basis      Basis `json:"basis"`
	// PerSample and Fixed split the allocated peak.
	PerSample int64  `json:"bytes_per_sample"`
	Fixed     int64  `json:"fixed_bytes"`
	How       string `json:"how"`
}

func ptr[T any](v T) *T { return &v }
