package torchsnap

import (
	"fmt"
	"slices"
	"strings"

	"vramscope/torchsnap/internal/pickle"
	"vramscope/trace"
)

const (
	maxDevices  = 1024
	maxWarnings = 20
)

// span is the rows of one device: from, to.
type span struct{ from, to int }

// finish makes the trace of a pickle's root.
func (b *builder) finish(root pickle.Value) (*trace.Trace, error) {
	pairs, err := b.topLevel(root)
	if err != nil {
		return nil, err
	}
	var spans []span
	var devices []trace.Device
	index := map[int]int{}
	device := func(ordinal int) *trace.Device {
		i, ok := index[ordinal]
		if !ok {
			i = len(devices)
			index[ordinal] = i
			devices = append(devices, trace.Device{Ordinal: ordinal})
		}
		return &devices[i]
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		v := pairs[i+1]
		switch pairs[i] {
		case wSegments:
			err = b.gatherSegments(v, device)
		case wDeviceTraces:
			b.trace.Features.Traces = true
			spans, err = b.gatherTraces(v)
		case wSettings:
			b.trace.Features.Settings = true
			err = b.settings(v)
		case wAnnotations:
			b.trace.Features.Annotations = true
			err = b.gatherAnnotations(v)
		default:
			b.warn("unknown part %.40q left out", b.text(pairs[i]))
		}
		if err != nil {
			return nil, err
		}
	}

	objects := b.d.NumObjects()
	b.d = nil // its tables are not needed any more
	for i, s := range spans {
		if s.to > s.from {
			device(i).Events = b.events.Rows(s.from, s.to)
		}
	}
	slices.SortFunc(devices, func(x, y trace.Device) int { return x.Ordinal - y.Ordinal })
	for i := range devices {
		slices.SortStableFunc(devices[i].Segments, func(x, y trace.Segment) int {
			switch {
			case x.Address < y.Address:
				return -1
			case x.Address > y.Address:
				return 1
			}
			return 0
		})
	}
	for i := range devices {
		if r, ok := b.rings[devices[i].Ordinal]; ok {
			devices[i].RingSize, devices[i].Overflowed = r.size, r.overflowed
		} else if r, ok := b.rings[allDevices]; ok {
			devices[i].RingSize, devices[i].Overflowed = r.size, r.overflowed
		}
	}
	b.trace.Devices = devices
	numberTracebacks(devices, objects)
	return b.trace, nil
}

// topLevel returns the root's keys and values. Before 1.13 it is the list of
// segments itself.
func (b *builder) topLevel(root pickle.Value) ([]pickle.Value, error) {
	switch root.Kind() {
	case pickle.List:
		if items := b.d.Items(root); len(items) > 0 {
			if k, err := b.known(items[0]); err != nil {
				return nil, err
			} else if !k.Is(tagSegment) {
				return nil, b.d.Errorf("a pickle of something else, not a memory snapshot: a list whose first item is %v, want segments", items[0])
			}
		}
		return []pickle.Value{wSegments, root}, nil
	case pickle.Dict:
		pairs := b.d.Items(root)
		var keys []string
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == wSegments || pairs[i] == wDeviceTraces {
				return pairs, nil
			}
			keys = append(keys, b.text(pairs[i]))
		}
		return nil, b.d.Errorf("a pickle of something else, not a memory snapshot: a dict with the keys %.80q, want segments and device_traces", strings.Join(keys, ", "))
	}
	return nil, b.d.Errorf("a pickle of something else, not a memory snapshot: %v, want a dict with segments and device_traces", root)
}

func (b *builder) gatherSegments(list pickle.Value, device func(int) *trace.Device) error {
	if list.Kind() != pickle.List {
		return b.wrong("segments", list, "a list")
	}
	items := b.d.Items(list)
	if err := b.d.Charge(160 * len(items)); err != nil {
		return err
	}
	for _, v := range items {
		k, err := b.known(v)
		if err != nil {
			return err
		}
		if !k.Is(tagSegment) {
			return b.d.Errorf("segments has %v in it, want dicts with an address, total_size and blocks", v)
		}
		s := &b.segments[k.Index()]
		d := device(s.device)
		d.Segments = append(d.Segments, s.Segment)
	}
	return nil
}

// gatherTraces finds the rows of each device.
func (b *builder) gatherTraces(list pickle.Value) ([]span, error) {
	if list.Kind() != pickle.List {
		return nil, b.wrong("device_traces", list, "a list")
	}
	traces := b.d.Items(list)
	if len(traces) > maxDevices {
		return nil, b.d.Errorf("traces of %d devices, want at most %d", len(traces), maxDevices)
	}
	spans := make([]span, len(traces))
	for i, t := range traces {
		if t.Kind() != pickle.List {
			return nil, b.wrong("a device's trace", t, "a list")
		}
		if b.d.Known(t) != 0 {
			return nil, b.d.Errorf("two devices have the same list of events")
		}
		s, err := b.gatherRows(b.d.Items(t))
		if err != nil {
			return nil, err
		}
		spans[i] = s
		if s.to > s.from { // empty lists may be one
			b.d.SetKnown(t, pickle.Known(tagUsed, 0))
		}
	}
	return spans, nil
}

// gatherRows returns the rows of a list of events. They are in the order of
// the list, unless some were read before it, or twice.
func (b *builder) gatherRows(items []pickle.Value) (span, error) {
	var s span
	inOrder := true
	for i, v := range items {
		k, err := b.known(v)
		if err != nil {
			return s, err
		}
		if !k.Is(tagEvent) {
			return s, b.d.Errorf("event %d of a trace is %v, want a dict with an action", i, v)
		}
		if i == 0 {
			s.from = k.Index()
		}
		inOrder = inOrder && k.Index() == s.from+i
	}
	s.to = s.from + len(items)
	if inOrder {
		return s, nil
	}
	if err := b.d.Charge(eventBytes * len(items)); err != nil {
		return s, err
	}
	s.from = b.events.Len()
	for _, v := range items {
		b.events.Append(b.events.At(b.d.Known(v).Index()))
	}
	s.to = b.events.Len()
	return s, nil
}

func (b *builder) gatherAnnotations(list pickle.Value) error {
	if list.Kind() != pickle.List {
		return b.wrong("external_annotations", list, "a list")
	}
	for _, v := range b.d.Items(list) {
		if _, err := b.known(v); err != nil {
			return err
		}
	}
	return nil
}

// warn collects what is odd about the file and does not keep it from being
// read.
func (b *builder) warn(format string, args ...any) {
	w := b.trace.Warnings
	switch {
	case len(w) < maxWarnings:
		b.trace.Warnings = append(w, fmt.Sprintf(format, args...))
	case len(w) == maxWarnings:
		b.trace.Warnings = append(w, "more of the same")
	}
}

// numberTracebacks gives tracebacks numbers in order of their first use. The
// empty list that PyTorch writes for every block without a recorded stack is
// none.
func numberTracebacks(devices []trace.Device, objects int) {
	const none = ^trace.TracebackID(0)
	number := make([]trace.TracebackID, objects+1)
	seen := make(map[trace.TracebackID]bool)
	for i := range devices {
		for _, s := range devices[i].Segments {
			for _, k := range s.Blocks {
				if k.Traceback != 0 && k.Stack == 0 {
					if seen[k.Traceback] || k.State == trace.Inactive {
						number[k.Traceback] = none
					}
					seen[k.Traceback] = true
				}
			}
		}
	}
	next := trace.TracebackID(0)
	renumber := func(id *trace.TracebackID) {
		switch n := number[*id]; {
		case *id == 0:
		case n == none:
			*id = 0
		case n == 0:
			next++
			number[*id] = next
			*id = next
		default:
			*id = n
		}
	}
	for i := range devices {
		for j := range devices[i].Segments {
			blocks := devices[i].Segments[j].Blocks
			for k := range blocks {
				renumber(&blocks[k].Traceback)
			}
		}
	}
	for i := range devices {
		ids := devices[i].Events.Traceback
		for j := range ids {
			renumber(&ids[j])
		}
	}
}
