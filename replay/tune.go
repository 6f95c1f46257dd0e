package replay

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"vramscope/cachealloc"
)

// TuneOptions say what to search for.
type TuneOptions struct {
	Limit    int64              // bytes that the process may reserve; must be positive
	Capacity int64              // see Scenario
	Version  cachealloc.Version // see Scenario
	Workers  int                // replays at a time; 0 means one for each CPU
	// Progress, if set, is called after each replay, from one goroutine at a
	// time. total grows while the search finds more to try.
	Progress func(done, total int)
}

// Candidate is one settings string with what it does.
type Candidate struct {
	Conf     string
	Recorded bool // the settings of the recording
	Outcome  *Outcome
	// MinLimit is the smallest limit under which the job was replayed to its
	// end, found to within LimitStep; 0 where it was not searched for.
	MinLimit int64
}

// TuneResult is what Tune found.
type TuneResult struct {
	// Candidates, best first: those that fit, then the fewest retries (each
	// stops the program), then the most room, which is the smallest limit that
	// they survive, then the fewest words.
	Candidates []Candidate
	// Floor is Program.Floor: no settings make the job fit below it.
	Floor int64
	Tried int // settings replayed
}

// Best returns the settings to take, nil where none makes the job fit.
func (r *TuneResult) Best() *Candidate {
	if len(r.Candidates) > 0 && r.Candidates[0].Outcome.Fits() {
		return &r.Candidates[0]
	}
	return nil
}

// LimitStep is how finely MinLimit is searched, as a part of the limit.
const LimitStep = 256

// finalists is for how many of the best candidates MinLimit is found.
const finalists = 8

// Tune searches the settings that this version of PyTorch accepts for those
// under which the job runs to its end within the limit: each option alone over
// a coarse scale, then finer around the best values, then the best of
// different options together. Everything it reports was replayed.
func (p *Program) Tune(ctx context.Context, o TuneOptions) (*TuneResult, error) {
	t := &tuner{p: p, o: o, seen: map[string]bool{}}
	if t.o.Version == (cachealloc.Version{}) {
		t.o.Version = p.To
	}
	if t.o.Workers <= 0 {
		t.o.Workers = runtime.GOMAXPROCS(0)
	}
	if err := t.try(ctx, append([]string{p.RecordedConf, ""}, t.coarse()...)); err != nil {
		return nil, err
	}
	if err := t.try(ctx, t.finer()); err != nil {
		return nil, err
	}
	if err := t.try(ctx, t.together()); err != nil {
		return nil, err
	}
	t.sort()
	var jobs []func() error
	for i := range min(finalists, len(t.found)) {
		if c := &t.found[i]; c.Outcome.Fits() {
			jobs = append(jobs, func() (err error) { c.MinLimit, err = t.minLimit(ctx, c); return err })
		}
	}
	if err := t.parallel(jobs); err != nil {
		return nil, err
	}
	t.sortFinal()
	return &TuneResult{Candidates: t.found, Floor: p.Floor(), Tried: len(t.found)}, nil
}

type tuner struct {
	p     *Program
	o     TuneOptions
	seen  map[string]bool
	found []Candidate

	mu          sync.Mutex
	done, total int
}

// scale is the values of an option that are worth trying, from coarse to fine.
type scale struct {
	key   string
	since cachealloc.Version
	// values, in order; the finer search goes to the midpoints.
	values []float64
	format string
	lists  []string // values that are no numbers
}

// scales are the options that change what is reserved.
var scales = []scale{
	{key: "expandable_segments", since: cachealloc.Version{Major: 2, Minor: 1}, lists: []string{"True"}},
	{key: "garbage_collection_threshold", since: cachealloc.Version{Major: 1, Minor: 12}, values: []float64{0.5, 0.7, 0.8, 0.9}, format: "%.2g"},
	{key: "max_split_size_mb", since: cachealloc.Version{Major: 1, Minor: 10}, values: []float64{32, 64, 128, 256, 512, 1024, 2048}, format: "%.0f"},
	{key: "roundup_power2_divisions", since: cachealloc.Version{Major: 1, Minor: 12}, values: nil, lists: []string{"2", "4", "8", "16", "32", "[64:1,>:16]", "[256:1,512:2,1024:4,>:8]"}},
	{key: "large_segment_size_mb", since: cachealloc.Version{Major: 2, Minor: 11}, values: []float64{12, 32, 64, 128, 256}, format: "%.0f"},
}

func (s *scale) confs() []string {
	var out []string
	for _, v := range s.values {
		out = append(out, s.conf(v))
	}
	for _, v := range s.lists {
		out = append(out, s.key+":"+v)
	}
	return out
}

func (s *scale) conf(v float64) string { return s.key + ":" + fmt.Sprintf(s.format, v) }

// coarse is each option alone.
func (t *tuner) coarse() []string {
	var out []string
	for _, s := range scales {
		if t.o.Version.AtLeast(s.since) {
			out = append(out, s.confs()...)
		}
	}
	return out
}

// finer is the midpoints around the best value of each numeric option.
func (t *tuner) finer() []string {
	t.sort()
	var out []string
	for _, s := range scales {
		best := slices.IndexFunc(t.found, func(c Candidate) bool { return strings.HasPrefix(c.Conf, s.key+":") })
		if best < 0 || len(s.values) == 0 {
			continue
		}
		at := slices.IndexFunc(s.values, func(v float64) bool { return s.conf(v) == t.found[best].Conf })
		if at > 0 {
			out = append(out, s.conf((s.values[at-1]+s.values[at])/2))
		}
		if at >= 0 && at+1 < len(s.values) {
			out = append(out, s.conf((s.values[at]+s.values[at+1])/2))
		}
	}
	return out
}

// together is the best value of each option with the best of each other.
func (t *tuner) together() []string {
	t.sort()
	var best []string
	for _, s := range scales {
		if i := slices.IndexFunc(t.found, func(c Candidate) bool { return strings.HasPrefix(c.Conf, s.key+":") }); i >= 0 {
			best = append(best, t.found[i].Conf)
		}
	}
	var out []string
	for i, a := range best {
		for _, b := range best[i+1:] {
			out = append(out, a+","+b)
		}
	}
	return out
}

// try replays the settings that were not replayed before.
func (t *tuner) try(ctx context.Context, confs []string) error {
	var jobs []func() error
	for _, conf := range confs {
		if t.seen[conf] {
			continue
		}
		t.seen[conf] = true
		s, err := cachealloc.ParseSettings(conf, t.o.Version)
		if err != nil {
			if conf != t.p.RecordedConf {
				continue // this version refuses it
			}
			s = t.p.Recorded
		}
		recorded := conf == t.p.RecordedConf
		if recorded {
			s = t.p.Recorded
		}
		jobs = append(jobs, func() error {
			out, err := t.run(ctx, &s, t.o.Limit)
			if err == nil {
				t.mu.Lock()
				t.found = append(t.found, Candidate{Conf: conf, Recorded: recorded, Outcome: out})
				t.mu.Unlock()
			}
			return err
		})
	}
	return t.parallel(jobs)
}

func (t *tuner) run(ctx context.Context, s *cachealloc.Settings, limit int64) (*Outcome, error) {
	return t.p.Run(ctx, Scenario{Settings: s, Version: t.o.Version, Limit: limit, Capacity: t.o.Capacity})
}

// parallel runs the jobs with t.o.Workers goroutines and returns the first
// error.
func (t *tuner) parallel(jobs []func() error) error {
	t.mu.Lock()
	t.total += len(jobs)
	t.mu.Unlock()
	queue := make(chan func() error)
	errs := make(chan error, len(jobs))
	var wg sync.WaitGroup
	for range min(t.o.Workers, len(jobs)) {
		wg.Go(func() {
			for job := range queue {
				if err := job(); err != nil {
					errs <- err
				}
				t.mu.Lock()
				t.done++
				if t.o.Progress != nil {
					t.o.Progress(t.done, t.total)
				}
				t.mu.Unlock()
			}
		})
	}
	for _, job := range jobs {
		queue <- job
	}
	close(queue)
	wg.Wait()
	close(errs)
	return <-errs
}

// minLimit finds the smallest limit under which the job runs to its end, by
// bisection. Fits need not be monotonous in the limit (garbage collection
// depends on it), so what is returned was replayed.
func (t *tuner) minLimit(ctx context.Context, c *Candidate) (int64, error) {
	s, err := cachealloc.ParseSettings(c.Conf, t.o.Version)
	if err != nil || c.Recorded {
		s = t.p.Recorded
	}
	fits, fails := t.o.Limit, c.Outcome.PeakRequested
	if c.Outcome.PeakReserved < fits && c.Outcome.Retries == 0 && s.GCThreshold == 0 {
		fits = c.Outcome.PeakReserved
	}
	step := max(t.o.Limit/LimitStep, 2<<20)
	for fits-fails > step {
		mid := fails + (fits-fails)/2
		mid -= mid % (2 << 20)
		if mid <= fails {
			break
		}
		out, err := t.run(ctx, &s, mid)
		if err != nil {
			return 0, err
		}
		if out.Fits() {
			fits = mid
		} else {
			fails = mid
		}
	}
	return fits, nil
}

// sort orders the candidates by what one replay tells, best first. Reserved
// peaks within half a percent of the limit count as equal.
func (t *tuner) sort() {
	step := max(t.o.Limit/200, 1)
	slices.SortFunc(t.found, func(a, b Candidate) int {
		x, y := a.Outcome, b.Outcome
		if x.Fits() != y.Fits() {
			if x.Fits() {
				return -1
			}
			return 1
		}
		if !x.Fits() { // the longer it lives, the better
			return cmp.Or(cmp.Compare(y.FatalOOM.Event, x.FatalOOM.Event), words(a.Conf, b.Conf))
		}
		return cmp.Or(
			cmp.Compare(x.Retries, y.Retries),
			cmp.Compare(x.PeakReserved/step, y.PeakReserved/step),
			words(a.Conf, b.Conf),
		)
	})
}

// sortFinal orders the finalists by the room they leave. Rooms within one
// percent of the limit count as equal: fewer words win.
func (t *tuner) sortFinal() {
	n := 0
	for n < len(t.found) && t.found[n].MinLimit > 0 {
		n++
	}
	step := max(t.o.Limit/100, 1)
	slices.SortStableFunc(t.found[:n], func(a, b Candidate) int {
		return cmp.Or(
			cmp.Compare(a.Outcome.Retries, b.Outcome.Retries),
			cmp.Compare(a.MinLimit/step, b.MinLimit/step),
			words(a.Conf, b.Conf),
		)
	})
}

// words compares settings by how much there is to write.
func words(a, b string) int {
	options := func(s string) int {
		if s == "" {
			return 0
		}
		return strings.Count(s, ",") + 1
	}
	return cmp.Or(cmp.Compare(options(a), options(b)), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}
