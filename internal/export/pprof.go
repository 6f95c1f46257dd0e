package export

import (
	"fmt"
	"io"
	"time"

	"github.com/google/pprof/profile"

	"vramscope/internal/holders"
	"vramscope/trace"
)

// PProf writes a gzipped pprof profile with four values a sample, named as those
// of Go's heap profiles: what was alive right after event (inuse_objects,
// inuse_space, the default) and what was allocated over the whole recording
// (alloc_objects, alloc_space). Labels say category, stream and device.
func PProf(w io.Writer, a *holders.Analysis, event int) error {
	b := &profileBuilder{
		p: &profile.Profile{
			SampleType: []*profile.ValueType{
				{Type: "alloc_objects", Unit: "count"}, {Type: "alloc_space", Unit: "bytes"},
				{Type: "inuse_objects", Unit: "count"}, {Type: "inuse_space", Unit: "bytes"},
			},
			DefaultSampleType: "inuse_space",
			PeriodType:        &profile.ValueType{Type: "space", Unit: "bytes"},
			Period:            1,
			Comments:          []string{fmt.Sprintf("vramscope: in use right after event %d", event)},
		},
		functions: map[[2]string]*profile.Function{},
		locations: map[trace.Frame]*profile.Location{},
		samples:   map[sampleKey]*profile.Sample{},
		stacks:    map[trace.StackID][]*profile.Location{},
	}
	e := &a.Program.Device.Events
	if n := len(e.Time); n > 0 {
		b.p.TimeNanos = e.Time[0] * int64(time.Microsecond)
		b.p.DurationNanos = (e.Time[n-1] - e.Time[0]) * int64(time.Microsecond)
	}
	names := a.Names(holders.ByLine)
	for i := range a.Program.Requests {
		if a.Allocated[i] == 0 {
			continue
		}
		r := &a.Program.Requests[i]
		s := b.sample(a, names, i)
		if r.Event >= 0 {
			s.Value[0]++
			s.Value[1] += a.Allocated[i]
		}
		if int(r.Event) <= event && (r.Free < 0 || int(r.Free) > event) {
			s.Value[2]++
			s.Value[3] += a.Allocated[i]
		}
	}
	if err := b.p.CheckValid(); err != nil {
		return err
	}
	return b.p.Write(w)
}

type sampleKey struct {
	stack    trace.StackID
	name     string // of a request without a stack
	category holders.Category
	stream   uint64
}

// profileBuilder interns what samples share.
type profileBuilder struct {
	p         *profile.Profile
	functions map[[2]string]*profile.Function
	locations map[trace.Frame]*profile.Location
	stacks    map[trace.StackID][]*profile.Location
	samples   map[sampleKey]*profile.Sample
}

func (b *profileBuilder) sample(a *holders.Analysis, names func(int) string, i int) *profile.Sample {
	key := sampleKey{a.Stack(i), "", a.Category(i), a.Program.Requests[i].Stream}
	if len(a.Program.Trace.Stacks.Calls(key.stack)) == 0 {
		key.name = names(i)
	}
	s, ok := b.samples[key]
	if !ok {
		s = &profile.Sample{
			Location: b.stack(a, names, i, key),
			Value:    make([]int64, 4),
			Label:    map[string][]string{"category": {key.category.String()}},
			NumLabel: map[string][]int64{"device": {int64(a.Program.Device.Ordinal)}, "stream": {int64(key.stream)}},
		}
		b.samples[key] = s
		b.p.Sample = append(b.p.Sample, s)
	}
	return s
}

// stack returns the locations of a request, innermost first as pprof wants it.
func (b *profileBuilder) stack(a *holders.Analysis, names func(int) string, i int, key sampleKey) []*profile.Location {
	if key.name == "" {
		if known, ok := b.stacks[key.stack]; ok {
			return known
		}
	}
	calls := frames(a, names, i)
	out := make([]*profile.Location, len(calls))
	for j, f := range calls {
		out[len(calls)-1-j] = b.location(f)
	}
	if key.name == "" {
		b.stacks[key.stack] = out
	}
	return out
}

func (b *profileBuilder) location(f trace.Frame) *profile.Location {
	l, ok := b.locations[f]
	if !ok {
		l = &profile.Location{ID: uint64(len(b.p.Location) + 1), Line: []profile.Line{{Function: b.function(f), Line: int64(f.Line)}}}
		b.locations[f] = l
		b.p.Location = append(b.p.Location, l)
	}
	return l
}

func (b *profileBuilder) function(f trace.Frame) *profile.Function {
	key := [2]string{f.Function, f.File}
	fn, ok := b.functions[key]
	if !ok {
		name := f.Function
		if f.File != "" {
			// Python has many a forward and __init__: the file tells them apart.
			name = holders.ShortPath(f.File) + ":" + f.Function
		}
		fn = &profile.Function{ID: uint64(len(b.p.Function) + 1), Name: name, SystemName: f.Function, Filename: f.File}
		b.functions[key] = fn
		b.p.Function = append(b.p.Function, fn)
	}
	return fn
}
