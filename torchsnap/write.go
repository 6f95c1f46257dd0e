package torchsnap

import (
	"io"
	"maps"
	"slices"
	"strconv"

	"vramscope/torchsnap/internal/pickle"
	"vramscope/trace"
)

// Write writes t as PyTorch 2.11 would: a pickle of protocol 4 that the
// official viewer (pytorch.org/memory_viz), PyTorch's own scripts and Read
// take. Events and blocks with equal tracebacks share one list of frames;
// those with a stack and no traceback get a list each.
//
// Parts that t's features lack are left out, so that what Read read is written
// back: equal as Python sees it, but for unknown keys and, where t has no
// frames at all for a device's tail, empty traces of devices that did nothing.
func Write(w io.Writer, t *trace.Trace) error {
	p := &writer{
		Encoder:    pickle.NewEncoder(w),
		trace:      t,
		frames:     make([]pickle.Ref, t.Stacks.NumFrames()),
		tracebacks: map[trace.TracebackID]writtenList{},
	}
	p.dict(func() {
		p.key("segments", p.segments)
		p.key("device_traces", p.traces)
		if t.Settings != nil {
			p.key("allocator_settings", p.settings)
		}
		if t.Features.Annotations || len(t.Annotations) > 0 {
			p.key("external_annotations", p.annotations)
		}
	})
	return p.Flush()
}

type writer struct {
	*pickle.Encoder
	trace      *trace.Trace
	frames     []pickle.Ref // by FrameID
	tracebacks map[trace.TracebackID]writtenList
	empty      pickle.Ref // the list of all blocks without a stack
}

// writtenList is a list of frames in the file.
type writtenList struct {
	ref   pickle.Ref
	stack trace.StackID
}

func (p *writer) dict(items func()) {
	p.Dict()
	p.Mark()
	items()
	p.SetItems()
}

func (p *writer) key(name string, value func()) {
	p.Text(name)
	value()
}

// list writes n items in batches of 1000, as CPython does, so that readers
// need not hold more.
func (p *writer) list(n int, item func(int)) {
	p.List()
	for i := 0; i < n; {
		p.Mark()
		for end := min(n, i+1000); i < end; i++ {
			item(i)
		}
		p.Appends()
	}
}

func (p *writer) textItem(key, value string) {
	p.Text(key)
	p.Text(value)
}

func (p *writer) intItem(key string, value int64) {
	p.Text(key)
	p.Int(value)
}

func (p *writer) uintItem(key string, value uint64) {
	p.Text(key)
	p.Uint(value)
}

func (p *writer) boolItem(key string, value bool) {
	p.Text(key)
	p.Bool(value)
}

func (p *writer) poolItem(key string, pool trace.Pool) {
	p.Text(key)
	p.Uint(pool.Graph)
	p.Uint(pool.User)
	p.Pair()
}

// stack writes the list of frames of a traceback: once, and then by reference.
func (p *writer) stack(id trace.StackID, tb trace.TracebackID) {
	if tb == 0 && id == 0 {
		if p.empty == 0 {
			p.empty = p.List()
		} else {
			p.Get(p.empty)
		}
		return
	}
	if l, ok := p.tracebacks[tb]; ok && tb != 0 && l.stack == id {
		p.Get(l.ref)
		return
	}
	ref := p.List()
	if tb != 0 {
		p.tracebacks[tb] = writtenList{ref, id}
	}
	calls := p.trace.Stacks.Calls(id)
	for len(calls) > 0 {
		n := min(len(calls), 1000)
		p.Mark()
		for _, f := range calls[:n] {
			p.frame(f)
		}
		p.Appends()
		calls = calls[n:]
	}
}

func (p *writer) frame(id trace.FrameID) {
	if p.frames[id] != 0 {
		p.Get(p.frames[id])
		return
	}
	f := p.trace.Stacks.Frame(id)
	p.frames[id] = p.Dict()
	p.Mark()
	p.textItem("name", f.Function)
	p.textItem("filename", f.File)
	p.uintItem("line", uint64(f.Line)) // size_t in PyTorch: unknown is 2^64-1
	p.SetItems()
}

func (p *writer) segments() {
	var all []struct {
		device int
		*trace.Segment
	}
	for i := range p.trace.Devices {
		d := &p.trace.Devices[i]
		for j := range d.Segments {
			all = append(all, struct {
				device int
				*trace.Segment
			}{d.Ordinal, &d.Segments[j]})
		}
	}
	p.list(len(all), func(i int) { p.segment(all[i].device, all[i].Segment) })
}

func (p *writer) segment(device int, s *trace.Segment) {
	var allocated, active int64
	for _, b := range s.Blocks {
		switch b.State {
		case trace.Active:
			allocated += b.Size
			active += b.Size
		case trace.PendingFree:
			active += b.Size
		}
	}
	kind := "large"
	if s.Small {
		kind = "small"
	}
	p.dict(func() {
		p.intItem("device", int64(device))
		p.uintItem("address", s.Address)
		p.intItem("total_size", s.Size)
		p.intItem("allocated_size", allocated)
		p.intItem("active_size", active)
		if s.Requested >= 0 {
			p.intItem("requested_size", s.Requested)
		}
		p.uintItem("stream", s.Stream)
		p.textItem("segment_type", kind)
		p.poolItem("segment_pool_id", s.Pool)
		p.boolItem("is_expandable", s.Expandable)
		p.Text("frames")
		p.stack(s.Stack, 0)
		p.Text("blocks")
		p.list(len(s.Blocks), func(i int) { p.block(&s.Blocks[i]) })
	})
}

func (p *writer) block(b *trace.Block) {
	p.dict(func() {
		p.uintItem("address", b.Address)
		p.intItem("size", b.Size)
		if b.Requested >= 0 {
			p.intItem("requested_size", b.Requested)
		}
		p.textItem("state", b.State.String())
		p.Text("frames")
		p.stack(b.Stack, b.Traceback)
	})
}

// traces writes a list for each ordinal up to the last device's.
func (p *writer) traces() {
	n := 0
	byOrdinal := map[int]*trace.Events{}
	for i := range p.trace.Devices {
		d := &p.trace.Devices[i]
		byOrdinal[d.Ordinal] = &d.Events
		n = max(n, d.Ordinal+1)
	}
	p.list(n, func(i int) {
		e := byOrdinal[i]
		if e == nil {
			e = &trace.Events{}
		}
		p.list(e.Len(), func(i int) { p.event(e, i) })
	})
}

func (p *writer) event(events *trace.Events, i int) {
	e := events.At(i)
	f := &p.trace.Features
	p.Dict()
	p.Mark()
	switch e.Action {
	case trace.Other:
		p.textItem("action", p.trace.Labels.Text(e.Name))
	default:
		p.textItem("action", e.Action.String())
	}
	if e.Action == trace.OOM {
		p.uintItem("device_free", e.Addr)
	} else {
		p.uintItem("addr", e.Addr)
	}
	p.intItem("size", e.Size)
	p.uintItem("stream", e.Stream)
	if f.Times || events.Time != nil {
		p.intItem("time_us", e.Time)
	}
	if f.EventPools && int(e.Pool) < len(p.trace.Pools) {
		p.poolItem("pool_id", p.trace.Pools[e.Pool])
	}
	if f.CompileContext || events.Compile != nil {
		text := "N/A"
		if e.Compile != 0 {
			text = p.trace.Labels.Text(e.Compile)
		}
		p.textItem("compile_context", text)
	}
	if f.UserMetadata || events.Metadata != nil {
		p.textItem("user_metadata", p.trace.Labels.Text(e.Metadata))
	}
	if e.Stack != 0 || e.Traceback != 0 {
		p.Text("frames")
		p.stack(e.Stack, e.Traceback)
	}
	p.SetItems()
}

func (p *writer) settings() {
	s := p.trace.Settings
	p.dict(func() {
		p.textItem(keyConf, s.Conf)
		p.intItem(keyMaxSplit, s.MaxSplitBytes)
		p.Text(keyGCThreshold)
		p.Float(s.GCThreshold)
		p.boolItem(keyExpandable, s.Expandable)
		p.intItem(keyPinnedThreads, s.PinnedThreads)
		p.boolItem(keyReleaseLock, s.ReleaseLockOnMalloc)
		p.boolItem(keyPinnedRegister, s.PinnedHostRegister)
		if s.HasGraphStreamReuse {
			p.boolItem(keyGraphStreamReuse, s.GraphStreamReuse)
		}
		if s.RoundupDivisions != nil {
			p.key(keyRoundup, func() {
				p.dict(func() {
					for _, mib := range slices.Sorted(maps.Keys(s.RoundupDivisions)) {
						p.intItem(strconv.FormatInt(mib, 10), s.RoundupDivisions[mib])
					}
				})
			})
		}
		p.rings()
	})
}

// rings writes what the recorder kept, if the trace says it (≥ 2.12).
func (p *writer) rings() {
	var size int64
	var overflowed bool
	for _, d := range p.trace.Devices {
		size = max(size, d.RingSize)
		overflowed = overflowed || d.Overflowed
	}
	if size > 0 {
		p.intItem(keyRingSize, size)
		p.boolItem(keyOverflowed, overflowed)
	}
}

func (p *writer) annotations() {
	a := p.trace.Annotations
	p.list(len(a), func(i int) {
		stage := "START"
		if a[i].End {
			stage = "END"
		}
		p.dict(func() {
			p.textItem("stage", stage)
			p.textItem("name", a[i].Name)
			p.intItem("device", int64(a[i].Device))
			p.intItem("time_us", a[i].Time)
		})
	})
}
