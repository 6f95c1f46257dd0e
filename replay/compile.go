package replay

import (
	"sort"

	"vramscope/cachealloc"
	"vramscope/trace"
)

// Program is the recording of one device as a list of operations on the
// allocator.
type Program struct {
	Trace  *trace.Trace
	Device *trace.Device

	// Requests that the program made, in order; refused ones too.
	Requests []Request

	// Versions of PyTorch that can have written the recording, oldest and
	// newest, as far as its keys tell.
	From, To cachealloc.Version

	// Recorded settings, as far as the recording tells.
	Recorded cachealloc.Settings
	// RecordedConf is the settings string, as recorded.
	RecordedConf string

	// EmptyCaches are the calls of empty_cache that released something, by
	// the event where they begin.
	EmptyCaches []int

	// Changes of the settings while the program ran, as far as the recording
	// shows them.
	Changes []Change

	edited  bool // by Resize: not what was recorded
	history trace.History
	ops     []op
	segment []int32 // events that are segment events, in order
}

// Request is one request of the program.
type Request struct {
	Event  int32 // of its alloc or oom
	Free   int32 // event that gave it back, -1 if none did
	Size   int64 // bytes asked for; rounded for a refused one
	Stream uint64
	Pool   trace.Pool
}

type opKind uint8

const (
	opAlloc       opKind = iota
	opRefused            // the recording holds an oom event here
	opFree               // free_requested and free_completed at once
	opRequestFree        // free_requested alone
	opComplete           // free_completed alone
	opEmptyCache
)

// op is one operation. Its recorded segment events are segment[from:to].
type op struct {
	kind     opKind
	unsure   bool // of an alloc: an empty_cache may have come before it
	request  int32
	event    int32
	from, to int32
}

// Change is a change of the settings at run time.
type Change struct {
	Event    int // the first event that shows it
	Settings cachealloc.Settings
	op       int
}

// Complete reports whether the recording holds all that happened on the device
// since the process started, so that a replay starts from nothing.
func (p *Program) Complete() bool { return p.history.Complete }

// History says what the recording misses.
func (p *Program) History() trace.History { return p.history }

// Compile prepares a device's recording for replay.
func Compile(t *trace.Trace, d *trace.Device) *Program {
	p := &Program{Trace: t, Device: d, history: d.History()}
	p.From, p.To = InferVersion(t)
	p.Recorded, p.RecordedConf = recordedSettings(t, p.To)
	p.build()
	p.settle()
	return p
}

func isSegment(a trace.Action) bool {
	return a == trace.SegmentAlloc || a == trace.SegmentFree || a == trace.SegmentMap || a == trace.SegmentUnmap
}

// owner is the call of malloc that a segment event belongs to.
type owner struct {
	event  int32 // its alloc or oom event, -1: the event is of an empty_cache
	unsure bool
}

// owners finds the call of malloc that each segment event belongs to: PyTorch
// writes what a malloc did to segments before its alloc or oom event. A
// free_completed event has an owner where the malloc waited for the streams in
// order to release memory.
//
// Events of one call share one traceback object, if stacks were recorded;
// segment_free has one since 2.4. Where there is none, memory that is released
// right before more is got may have been released for it.
func (p *Program) owners() []owner {
	e := &p.Device.Events
	own := make([]owner, e.Len())
	next := int32(-1) // the alloc or oom that follows without a break
	grows := false    // … after a segment was got for it, or in vain
	releases := false // … and memory released
	freesHaveStack := p.From.AtLeast(cachealloc.Version{Major: 2, Minor: 3})
	for i := e.Len() - 1; i >= 0; i-- {
		own[i].event = -1
		switch a := e.Action[i]; {
		case a == trace.Alloc || a == trace.OOM:
			next, grows, releases = int32(i), a == trace.OOM, false
		case isSegment(a):
			gets := a == trace.SegmentAlloc || a == trace.SegmentMap
			grows = grows || gets
			if next < 0 || !grows {
				continue
			}
			switch x, y := e.Traceback[i], e.Traceback[next]; {
			case gets, x != 0 && x == y:
				own[i].event = next
			case y != 0 && (x != 0 || freesHaveStack):
				// Released by someone else.
			default:
				own[i] = owner{next, true}
			}
			releases = releases || !gets && own[i].event >= 0
		case a == trace.FreeCompleted:
			if next >= 0 && releases && p.Recorded.GCThreshold == 0 {
				own[i].event = next
			}
		default:
			next, grows, releases = -1, false, false
		}
	}
	return own
}

func (p *Program) build() {
	e := &p.Device.Events
	own := p.owners()
	pools := newPoolFinder(p.Trace, p.Device)
	live := make(map[uint64]int32, 1024)
	pending := map[uint64]int32{}
	unsure := false // of who released the memory before the malloc to come

	for i, b := range p.history.Preexisting {
		size := b.Requested
		if size <= 0 {
			size = max(b.Size, 1)
		}
		p.Requests = append(p.Requests, Request{Event: -1, Free: -1, Size: size, Stream: b.Stream, Pool: b.Pool})
		if b.State == trace.PendingFree {
			pending[b.Address] = int32(i)
		} else {
			live[b.Address] = int32(i)
		}
	}

	first := int32(0) // first segment event of the operation to come
	emit := func(k opKind, request, event int) {
		p.ops = append(p.ops, op{k, unsure, int32(request), int32(event), first, int32(len(p.segment))})
		unsure = false
		first = int32(len(p.segment))
	}
	for i := range e.Len() {
		switch a := e.Action[i]; a {
		case trace.Alloc, trace.OOM:
			r := Request{Event: int32(i), Free: -1, Size: e.Size[i], Stream: e.Stream[i], Pool: pools.find(i)}
			id := len(p.Requests)
			p.Requests = append(p.Requests, r)
			if a == trace.OOM {
				emit(opRefused, id, i)
			} else {
				live[e.Addr[i]] = int32(id)
				emit(opAlloc, id, i)
			}
		case trace.SegmentAlloc, trace.SegmentFree, trace.SegmentMap, trace.SegmentUnmap:
			p.segment = append(p.segment, int32(i))
			if own[i].event >= 0 {
				unsure = unsure || own[i].unsure
				continue
			}
			// The run of unowned events is one call of empty_cache.
			if i+1 < e.Len() && isSegment(e.Action[i+1]) && own[i+1].event < 0 {
				continue
			}
			p.EmptyCaches = append(p.EmptyCaches, int(p.segment[first]))
			emit(opEmptyCache, -1, int(p.segment[first]))
		case trace.FreeRequested:
			id, ok := live[e.Addr[i]]
			if !ok {
				continue // its alloc was lost
			}
			delete(live, e.Addr[i])
			p.Requests[id].Free = int32(i)
			if i+1 < e.Len() && e.Action[i+1] == trace.FreeCompleted && e.Addr[i+1] == e.Addr[i] && own[i+1].event < 0 {
				emit(opFree, int(id), i)
			} else {
				pending[e.Addr[i]] = id
				emit(opRequestFree, int(id), i)
			}
		case trace.FreeCompleted:
			id, ok := pending[e.Addr[i]]
			if !ok {
				continue
			}
			delete(pending, e.Addr[i])
			if own[i].event >= 0 {
				continue // the malloc that releases memory waits for it by itself
			}
			emit(opComplete, int(id), i)
		}
	}
}

// poolFinder tells the pool of a request. Before 2.12 events do not say, so it
// is that of the segment around it, if that lived to the end.
type poolFinder struct {
	trace    *trace.Trace
	events   *trace.Events
	segments []trace.Segment // those of private pools
	since    []int           // the event that made each
}

func newPoolFinder(t *trace.Trace, d *trace.Device) *poolFinder {
	f := &poolFinder{trace: t, events: &d.Events}
	if f.events.Pool != nil {
		return f
	}
	for _, s := range d.Segments {
		if s.Pool != (trace.Pool{}) {
			f.segments = append(f.segments, s)
		}
	}
	if len(f.segments) == 0 {
		return f
	}
	sort.Slice(f.segments, func(i, j int) bool { return f.segments[i].Address < f.segments[j].Address })
	f.since = make([]int, len(f.segments))
	for i := range f.events.Len() {
		if a := f.events.Action[i]; a == trace.SegmentAlloc || a == trace.SegmentMap {
			if s := f.around(f.events.Addr[i]); s >= 0 && f.segments[s].Address == f.events.Addr[i] {
				f.since[s] = i
			}
		}
	}
	return f
}

func (f *poolFinder) around(addr uint64) int {
	i := sort.Search(len(f.segments), func(i int) bool { return f.segments[i].Address > addr }) - 1
	if i >= 0 && addr < f.segments[i].Address+uint64(f.segments[i].Size) {
		return i
	}
	return -1
}

func (f *poolFinder) find(event int) trace.Pool {
	if f.events.Pool != nil {
		if i := int(f.events.Pool[event]); i < len(f.trace.Pools) {
			return f.trace.Pools[i]
		}
		return trace.Pool{}
	}
	if len(f.segments) == 0 || f.events.Action[event] != trace.Alloc {
		return trace.Pool{}
	}
	if s := f.around(f.events.Addr[event]); s >= 0 && event >= f.since[s] {
		return f.segments[s].Pool
	}
	return trace.Pool{}
}
