// Package report renders results: as text for people, as JSON for programs.
// It computes nothing.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"vramscope/bytesize"
	"vramscope/cachealloc"
	"vramscope/internal/term"
	"vramscope/replay"
)

// Replay is the result of the replay command.
type Replay struct {
	File     string         `json:"file"`
	Device   int            `json:"device"`
	Torch    Torch          `json:"torch"`
	Recorded ReplayRecorded `json:"recorded"`
	Runs     []ReplayRun    `json:"runs"`

	// EmptyCaches are the calls of empty_cache that released something, by
	// event. One that released nothing leaves no event: it may hide in one of
	// the stretches of MayHide, [first, last] events.
	EmptyCaches []int    `json:"empty_cache_events"`
	MayHide     [][2]int `json:"empty_cache_may_hide"`
	HideEvents  int      `json:"empty_cache_may_hide_events"`
}

// Torch is the version of PyTorch that a replay follows.
type Torch struct {
	Version  string `json:"version"`
	Inferred bool   `json:"inferred"` // from the recording's keys
	From     string `json:"oldest"`
	To       string `json:"newest"`
}

// ReplayRecorded is what the recording itself shows.
type ReplayRecorded struct {
	Conf          string `json:"conf"`
	PeakAllocated int64  `json:"peak_allocated_bytes"`
	PeakReserved  int64  `json:"peak_reserved_bytes"`
	SegmentEvents int    `json:"segment_events"`
	Events        int    `json:"events"`
	Complete      bool   `json:"complete"`
	CompleteFrom  int    `json:"complete_from_event"`
	Why           string `json:"incomplete_because,omitempty"`
}

// ReplayRun is one replay.
type ReplayRun struct {
	Conf          string   `json:"conf"`
	Limit         *int64   `json:"limit_bytes"`
	PeakAllocated int64    `json:"peak_allocated_bytes"`
	PeakReserved  int64    `json:"peak_reserved_bytes"`
	SegmentEvents int      `json:"segment_events"`
	Retries       int64    `json:"num_alloc_retries"`
	OOMs          int64    `json:"num_ooms"`
	FirstOOM      *Refusal `json:"first_oom"`
	FatalOOM      *Refusal `json:"fatal_oom"`
	Matches       *bool    `json:"matches_recording"`
	// Parts is where the replay first differs from the recording.
	Parts     *Parting `json:"first_difference,omitempty"`
	MayDiffer bool     `json:"later_requests_may_differ"`
}

// Refusal is a request that was refused.
type Refusal struct {
	Event     int      `json:"event"`
	Requested int64    `json:"requested_bytes"`
	Segment   int64    `json:"segment_bytes"`
	Reserved  int64    `json:"reserved_bytes"`
	Stack     []string `json:"stack"`
}

// Parting is where a replay first differs from its recording.
type Parting struct {
	Event  int    `json:"event"`
	Reason string `json:"reason"`
}

// NewReplay starts a report on a program.
func NewReplay(file string, p *replay.Program, v cachealloc.Version, given bool) *Replay {
	peak, events := p.RecordedReserved()
	h := p.History()
	return &Replay{
		File:   file,
		Device: p.Device.Ordinal,
		Torch:  Torch{v.String(), !given, p.From.String(), p.To.String()},
		Recorded: ReplayRecorded{
			Conf: p.RecordedConf, PeakAllocated: p.PeakRounded(), PeakReserved: peak, SegmentEvents: events,
			Events: p.Device.Events.Len(), Complete: h.Complete, CompleteFrom: h.CompleteFrom, Why: h.Reason,
		},
		EmptyCaches: append([]int{}, p.EmptyCaches...),
		MayHide:     [][2]int{},
	}
}

// Add adds a replay under a settings string.
func (r *Replay) Add(p *replay.Program, conf string, limit int64, o *replay.Outcome) {
	run := ReplayRun{
		Conf: conf, PeakAllocated: o.PeakAllocated, PeakReserved: o.PeakReserved, SegmentEvents: o.SegmentEvents,
		Retries: o.Retries, OOMs: o.OOMs, FirstOOM: newRefusal(p, o.FirstOOM), FatalOOM: newRefusal(p, o.FatalOOM),
		Matches: o.Matches, MayDiffer: o.MayDiffer,
	}
	if limit > 0 {
		run.Limit = &limit
	}
	if o.Quiet > 0 {
		r.MayHide, r.HideEvents = o.QuietRanges, o.Quiet
	}
	if o.Divergence != nil {
		run.Parts = &Parting{o.Divergence.Event, o.Divergence.Reason}
	}
	if o.Matches != nil && *o.Matches {
		// Proven to be what the card did, to the byte.
		r.Recorded.PeakAllocated = o.PeakAllocated
	}
	r.Runs = append(r.Runs, run)
}

func newRefusal(p *replay.Program, x *replay.Refusal) *Refusal {
	if x == nil {
		return nil
	}
	out := &Refusal{Event: x.Event, Requested: x.Requested, Segment: x.SegmentBytes, Reserved: x.Reserved, Stack: []string{}}
	for f := range p.Trace.Stacks.All(p.Device.Events.Stack[x.Event]) {
		out.Stack = append(out.Stack, fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Function))
	}
	return out
}

// WriteJSON writes any report as JSON.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Text writes the report for people.
func (r *Replay) Text(p *term.Printer) error {
	p.Printf("%s\n  device %d, %d events, PyTorch %s%s\n", term.Safe(r.File), r.Device, r.Recorded.Events, r.Torch.Version, inferred(r.Torch))
	if !r.Recorded.Complete {
		p.Wrap("  ", 2, "The recording is not complete: "+r.Recorded.Why+". What was live before is placed as the first event found it.")
	}
	p.Print("\n")
	p.Printf("  %-36s %12s %12s %8s\n", "", "allocated", "reserved", "retries")
	p.Printf("  %-36s %12s %12s\n", "recorded", "", bytesize.Size(r.Recorded.PeakReserved))
	under := "replayed under"
	if len(r.Runs) > 0 && r.Runs[0].Limit != nil {
		under = fmt.Sprintf("replayed with at most %v, under", bytesize.Size(*r.Runs[0].Limit))
	}
	p.Printf("  %s\n", under)
	for _, run := range r.Runs {
		name := "  " + settingsName(run.Conf)
		if len(name) > 36 {
			p.Printf("  %s\n", name)
			name = ""
		}
		p.Printf("  %-36s %12s %12s %8d\n", name, bytesize.Size(run.PeakAllocated), bytesize.Size(run.PeakReserved), run.Retries)
		r.verdict(p, &run)
	}
	if len(r.EmptyCaches) > 0 && len(r.MayHide) > 0 {
		q := r.MayHide[0]
		for _, x := range r.MayHide {
			if x[1]-x[0] > q[1]-q[0] {
				q = x
			}
		}
		p.Print("\n")
		p.Wrap("  ", 2, fmt.Sprintf("The program calls empty_cache: %d calls released something. A call that releases nothing leaves no event, and under other settings it might release something: it may hide in %d places, such as events %d to %d.", len(r.EmptyCaches), r.HideEvents, q[0], q[1]))
	}
	return p.Err()
}

func (r *Replay) verdict(p *term.Printer, run *ReplayRun) {
	say := func(text string) { p.Wrap("      ", 6, text) }
	if run.Matches != nil && *run.Matches {
		say(p.Styled(term.Green, fmt.Sprintf("same as recorded: all %d segment events, every byte", run.SegmentEvents)))
	}
	if run.Parts != nil && run.Conf == r.Recorded.Conf {
		say(p.Styled(term.Gold, fmt.Sprintf("differs from the recording at event %d: %s", run.Parts.Event, run.Parts.Reason)))
	}
	survived := run.OOMs
	if run.FatalOOM != nil {
		survived--
	}
	if survived > 0 {
		say(fmt.Sprintf("%d %s that the program survived", survived, plural(int(survived), "refusal")))
	}
	if f := run.FatalOOM; f != nil {
		text := fmt.Sprintf("dies at event %d: %s asked for", f.Event, bytesize.Size(f.Requested))
		if f.Segment != f.Requested {
			text += fmt.Sprintf(", which needs a segment of %s,", bytesize.Size(f.Segment))
		}
		text += fmt.Sprintf(" with %s reserved", bytesize.Size(f.Reserved))
		if run.Limit != nil {
			text += fmt.Sprintf(" of %s", bytesize.Size(*run.Limit))
		}
		say(p.Styled(term.Red, text))
		calls := slices.DeleteFunc(slices.Clone(f.Stack), plumbing)
		for i, line := range calls {
			if i == 3 && len(calls) > 4 {
				p.Printf("          … %d calls more\n", len(calls)-i)
				break
			}
			p.Printf("          %s\n", term.Safe(line))
		}
	}
	if run.MayDiffer {
		say("Where a request was granted that the recording shows refused, or the other way, the real program may ask differently from there on.")
	}
}

func inferred(t Torch) string {
	if !t.Inferred {
		return ""
	}
	if t.From == t.To {
		return " (inferred from the file)"
	}
	return fmt.Sprintf(" (inferred: %s to %s)", t.From, t.To)
}

func settingsName(conf string) string {
	if conf == "" {
		return "default settings"
	}
	return term.Safe(conf)
}
