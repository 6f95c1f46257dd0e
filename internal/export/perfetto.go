package export

import (
	"bufio"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	"vramscope/bytesize"
	"vramscope/internal/holders"
	"vramscope/internal/timeline"
	"vramscope/trace"
)

// Field numbers of protos/perfetto/trace (google/perfetto): trace.proto,
// trace_packet.proto, track_event/{track_descriptor,counter_descriptor,
// track_event,debug_annotation}.proto.
const (
	tracePacket = 1

	packetTimestamp  = 8 // nanoseconds
	packetSequence   = 10
	packetEvent      = 11
	packetDescriptor = 60

	trackUUID    = 1
	trackName    = 2
	trackParent  = 5
	trackCounter = 8

	counterUnit = 3

	eventAnnotation = 4
	eventType       = 9
	eventTrack      = 11
	eventCategory   = 22
	eventName       = 23
	eventCounter    = 30
	eventCallstack  = 55

	callstackFrame = 1
	frameFunction  = 1
	frameFile      = 2
	frameLine      = 3

	annotationInt    = 4
	annotationString = 6
	annotationName   = 10
)

const (
	sliceBegin   = 1
	sliceEnd     = 2
	instant      = 3
	counterValue = 4

	unitBytes = 3
)

// Tracks, by their UUID.
const (
	deviceTrack = 1 + iota
	allocatedTrack
	activeTrack
	reservedTrack
	limitTrack
	phaseTrack
	eventTrackID
)

// largeRequest is the size from which on a request is an event of its own:
// smaller ones come from the allocator's small pool.
const largeRequest = bytesize.MiB

// Perfetto writes a trace for ui.perfetto.dev: counters of the allocated,
// active and reserved bytes (and the limit, unless it is 0), slices for the steps
// and phases of training, and instants with their call stacks for requests above
// 1 MiB, refused requests and segments. Where the recording has no times, events
// are a microsecond apart.
func Perfetto(w io.Writer, a *holders.Analysis, s *timeline.Series, limit int64) error {
	p := &perfetto{w: bufio.NewWriterSize(w, 1<<16), a: a, s: s, e: &a.Program.Device.Events, limit: limit}
	p.tracks()
	p.walk()
	if p.err != nil {
		return p.err
	}
	return p.w.Flush()
}

type perfetto struct {
	w     *bufio.Writer
	a     *holders.Analysis
	s     *timeline.Series
	e     *trace.Events
	limit int64
	err   error

	packet, body, part []byte // reused
}

func (p *perfetto) tracks() {
	p.track(deviceTrack, 0, fmt.Sprintf("GPU %d memory", p.a.Program.Device.Ordinal), false)
	p.track(allocatedTrack, deviceTrack, "allocated", true)
	p.track(activeTrack, deviceTrack, "active", true)
	p.track(reservedTrack, deviceTrack, "reserved", true)
	if p.limit > 0 {
		p.track(limitTrack, deviceTrack, "limit", true)
	}
	p.track(phaseTrack, deviceTrack, "steps and phases", false)
	p.track(eventTrackID, deviceTrack, "requests", false)
}

func (p *perfetto) track(id, parent uint64, name string, counter bool) {
	b := number(nil, trackUUID, id)
	b = text(b, trackName, name)
	if parent != 0 {
		b = number(b, trackParent, parent)
	}
	if counter {
		b = message(b, trackCounter, number(nil, counterUnit, unitBytes))
	}
	p.write(message(nil, packetDescriptor, b))
}

// at returns the time of an event in nanoseconds since the first.
func (p *perfetto) at(event int) uint64 {
	if len(p.e.Time) == 0 {
		return uint64(event) * 1000
	}
	event = min(event, len(p.e.Time)-1)
	return uint64(max(p.e.Time[event]-p.e.Time[0], 0)) * 1000
}

func (p *perfetto) write(packet []byte) {
	if p.err != nil {
		return
	}
	p.part = message(p.part[:0], tracePacket, packet)
	_, p.err = p.w.Write(p.part)
}

// event writes a TrackEvent, its other fields already in rest.
func (p *perfetto) event(at uint64, kind, track uint64, rest []byte) {
	p.body = number(p.body[:0], eventType, kind)
	p.body = number(p.body, eventTrack, track)
	p.body = append(p.body, rest...)
	p.packet = number(p.packet[:0], packetTimestamp, at)
	p.packet = number(p.packet, packetSequence, 1)
	p.packet = message(p.packet, packetEvent, p.body)
	p.write(p.packet)
}

func (p *perfetto) counter(at, track uint64, v int64) {
	p.event(at, counterValue, track, number(nil, eventCounter, uint64(v)))
}

// walk writes the events in their order.
func (p *perfetto) walk() {
	if p.s.Len() == 0 {
		return
	}
	if p.limit > 0 {
		p.counter(p.at(0), limitTrack, p.limit)
		p.counter(p.at(p.s.Len()-1), limitTrack, p.limit)
	}
	var last [3]int64
	request, phase, step := 0, 0, 0
	var open []int // ends of the slices that are open
	closeTo := func(event int) {
		for len(open) > 0 && open[len(open)-1] <= event {
			p.event(p.at(open[len(open)-1]), sliceEnd, phaseTrack, nil)
			open = open[:len(open)-1]
		}
	}
	begin := func(event, end int, name string) {
		p.event(p.at(event), sliceBegin, phaseTrack, text(nil, eventName, name))
		open = append(open, end)
	}
	for i := range p.s.Len() {
		closeTo(i)
		for ; step < len(p.a.Steps) && p.a.Steps[step].First <= i; step++ {
			begin(i, p.a.Steps[step].End, fmt.Sprintf("step %d", step))
		}
		for ; phase < len(p.a.Phases) && p.a.Phases[phase].First <= i; phase++ {
			begin(i, p.a.Phases[phase].End, p.a.Phases[phase].Kind.String())
		}
		at := p.at(i)
		for j, v := range [3]int64{p.s.Allocated[i], p.s.Active[i], p.s.Reserved[i]} {
			if v != last[j] || i == 0 {
				p.counter(at, allocatedTrack+uint64(j), v)
				last[j] = v
			}
		}
		for request < len(p.a.Program.Requests) && int(p.a.Program.Requests[request].Event) < i {
			request++
		}
		p.instant(i, at, request)
	}
	closeTo(int(^uint(0) >> 1))
}

// instant writes an event of the allocator that is worth one.
func (p *perfetto) instant(i int, at uint64, request int) {
	ev := p.e.At(i)
	var name string
	switch ev.Action {
	case trace.Alloc:
		if ev.Size <= int64(largeRequest) {
			return
		}
		name = "alloc " + bytesize.Size(ev.Size).String()
	case trace.OOM:
		name = "out of memory: " + bytesize.Size(ev.Size).String()
	case trace.SegmentAlloc, trace.SegmentFree, trace.SegmentMap, trace.SegmentUnmap:
		name = ev.Action.String() + " " + bytesize.Size(ev.Size).String()
	case trace.UserDefined, trace.Snapshot:
		name = ev.Action.String()
	default:
		return
	}
	b := text(nil, eventName, name)
	b = text(b, eventCategory, ev.Action.String())
	b = message(b, eventAnnotation, number(text(nil, annotationName, "bytes"), annotationInt, uint64(ev.Size)))
	b = message(b, eventAnnotation, number(text(nil, annotationName, "event"), annotationInt, uint64(i)))
	if r := p.a.Program.Requests; request < len(r) && int(r[request].Event) == i {
		b = message(b, eventAnnotation, text(text(nil, annotationName, "category"), annotationString, p.a.Category(request).String()))
	}
	b = p.callstack(b, ev.Stack)
	p.event(at, instant, eventTrackID, b)
}

// callstack appends a stack, outermost call first.
func (p *perfetto) callstack(b []byte, id trace.StackID) []byte {
	s := &p.a.Program.Trace.Stacks
	calls := s.Calls(id)
	if len(calls) == 0 {
		return b
	}
	var stack []byte
	for j := len(calls) - 1; j >= 0; j-- {
		f := s.Frame(calls[j])
		one := text(nil, frameFunction, f.Function)
		one = text(one, frameFile, f.File)
		if f.Line > 0 {
			one = number(one, frameLine, uint64(f.Line))
		}
		stack = message(stack, callstackFrame, one)
	}
	return message(b, eventCallstack, stack)
}

func number(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func text(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func message(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}
