package torchsnap

import (
	"vramscope/torchsnap/internal/pickle"
	"vramscope/trace"
)

// builder makes a trace from what the decoder meets. Dicts become rows as they
// end; lists of rows are read by the dict that owns them.
type builder struct {
	d     *pickle.Decoder
	trace *trace.Trace

	events   trace.Events // of all devices, in the order of the file
	total    int64        // size of the file, 0 if unknown: a hint
	started  int64        // where the first event was
	blocks   []trace.Block
	segments []segment
	pools    map[trace.Pool]uint16
	labels   map[pickle.Value]trace.LabelID
	rings    map[int]ring // by ordinal

	// The last label of each kind: they hardly change.
	compile, metadata struct {
		text  pickle.Value
		label trace.LabelID
	}
	frames []trace.FrameID // scratch
}

// segment is a segment and the device that it is on.
type segment struct {
	trace.Segment
	device int
}

// Dict implements pickle.Sink.
func (b *builder) Dict(pairs []pickle.Value) (pickle.Value, error) {
	for i := 0; i+1 < len(pairs); i += 2 {
		// The key by which each kind of dict is told; their order is free.
		switch pairs[i] {
		case wAction:
			return b.event(pairs)
		case wFilename:
			return b.frame(pairs)
		case wState:
			return b.block(pairs)
		case wBlocks:
			return b.segment(pairs)
		case wStage:
			return b.annotation(pairs)
		case wRealSize:
			return b.allocation(pairs)
		}
	}
	return 0, nil
}

// List implements pickle.Sink: lists of frames are stacks.
func (b *builder) List(items []pickle.Value) (pickle.Value, error) {
	b.frames = b.frames[:0]
	for _, v := range items {
		f := b.d.Known(v)
		if !f.Is(tagFrame) {
			return 0, nil
		}
		b.frames = append(b.frames, trace.FrameID(f.Index()))
	}
	before := b.trace.Stacks.Len()
	id := b.trace.Stacks.Intern(b.frames)
	if b.trace.Stacks.Len() != before {
		if err := b.d.Charge(8*len(items) + 64); err != nil {
			return 0, err
		}
	}
	return pickle.Known(tagStack, int(id)), nil
}

// known is what v is known as; it settles dicts that came key by key.
func (b *builder) known(v pickle.Value) (pickle.Value, error) {
	k := b.d.Known(v)
	if k == 0 && v.Kind() == pickle.Dict {
		var err error
		if k, err = b.Dict(b.d.Items(v)); err != nil {
			return 0, err
		}
		if k != 0 {
			b.d.SetKnown(v, k)
		}
	}
	return k, nil
}

// stack reads a list of frames. The traceback is the list's own number for
// now; number makes it canonical.
func (b *builder) stack(v pickle.Value) (trace.StackID, trace.TracebackID, error) {
	if v.Kind() != pickle.List {
		if v.Kind() == pickle.None {
			return 0, 0, nil
		}
		return 0, 0, b.d.Errorf("frames is %v, want a list", v)
	}
	k := b.d.Known(v)
	if !k.Is(tagStack) {
		items := b.d.Items(v)
		for _, f := range items {
			if k, err := b.known(f); err != nil {
				return 0, 0, err
			} else if !k.Is(tagFrame) {
				return 0, 0, b.d.Errorf("frames has %v in it, want dicts with a name, filename and line", f)
			}
		}
		var err error
		if k, err = b.List(items); err != nil {
			return 0, 0, err
		}
		b.d.SetKnown(v, k)
	}
	return trace.StackID(k.Index()), trace.TracebackID(v.Index() + 1), nil
}

func (b *builder) event(pairs []pickle.Value) (pickle.Value, error) {
	var (
		e                trace.Event
		hasAddr, hasSize bool
		err              error
	)
	f := &b.trace.Features
	for i := 0; i+1 < len(pairs); i += 2 {
		v := pairs[i+1]
		if pairs[i].Kind() != pickle.String {
			continue
		}
		switch pairs[i] >> 8 { // dense, for a jump table
		case wAction >> 8:
			var ok bool
			if e.Action, ok = action(v); !ok {
				if v.Kind() != pickle.String {
					return 0, b.wrong("action", v, "a string")
				}
				e.Name, err = b.label(v)
			}
		case wAddr >> 8, wDeviceFree >> 8:
			hasAddr = true
			if v.Kind() == pickle.Int {
				e.Addr = uint64(v.Payload())
				continue
			}
			e.Addr, err = b.address("addr", v)
		case wSize >> 8:
			hasSize = true
			if n := v.Payload(); v.Kind() == pickle.Int && n >= 0 {
				e.Size = n
				continue
			}
			e.Size, err = b.size("size", v)
		case wStream >> 8:
			if v.Kind() == pickle.Int {
				e.Stream = uint64(v.Payload())
				continue
			}
			e.Stream, err = b.address("stream", v)
		case wTime >> 8:
			f.Times = true
			if v.Kind() == pickle.Int {
				e.Time = v.Payload()
				continue
			}
			e.Time, err = b.integer("time_us", v)
		case wFrames >> 8:
			e.Stack, e.Traceback, err = b.stack(v)
		case wCompile >> 8:
			f.CompileContext = true
			if v == wNotAvailable {
				continue
			}
			if v != b.compile.text {
				b.compile.text = v
				b.compile.label, err = b.label(v)
			}
			e.Compile = b.compile.label
		case wMetadata >> 8:
			f.UserMetadata = true
			if v == wEmpty {
				continue
			}
			if v != b.metadata.text {
				b.metadata.text = v
				b.metadata.label, err = b.label(v)
			}
			e.Metadata = b.metadata.label
		case wPool >> 8:
			f.EventPools = true
			e.Pool, err = b.poolID(v)
		case wForwardFrames >> 8:
			f.ForwardFrames = true
		}
		if err != nil {
			return 0, err
		}
	}
	if e.Action <= trace.OOM && (!hasSize || !hasAddr) {
		return 0, b.d.Errorf("event %d (%v) has no size or no address", b.events.Len(), e.Action)
	}
	if n := b.events.Len(); n == cap(b.events.Action) {
		if err := b.room(n); err != nil {
			return 0, err
		}
	}
	b.events.Append(e)
	return pickle.Known(tagEvent, b.events.Len()-1), nil
}

// eventBytes is about what a row takes in memory, and minEventBytes what an
// event with the keys that it must have takes in a file.
const (
	eventBytes    = 56
	minEventBytes = 20
)

// room makes room for events after n. Most of a file is events of much the
// same length, so that after a first few thousand the number of the rest can
// be told from the file's size. Memory that is not filled is never touched.
func (b *builder) room(n int) error {
	more := max(1024, n/2)
	at := b.d.Offset()
	switch {
	case n == 0:
		b.started = at
	case n >= 4096 && b.total > at:
		each := max(minEventBytes, (at-b.started)/int64(n))
		more = max(more/8, int((b.total-at)/each*17/16))
	}
	if err := b.d.Charge(more * eventBytes); err != nil {
		return err
	}
	b.events.Grow(more)
	return nil
}

func (b *builder) frame(pairs []pickle.Value) (pickle.Value, error) {
	var f trace.Frame
	for i := 0; i+1 < len(pairs); i += 2 {
		v := pairs[i+1]
		switch pairs[i] {
		case wName:
			f.Function = b.text(v)
		case wFilename:
			f.File = b.text(v)
		case wLine:
			n, err := b.integer("line", v)
			if err != nil {
				return 0, err
			}
			f.Line = int(n)
		}
	}
	before := b.trace.Stacks.NumFrames()
	id := b.trace.Stacks.InternFrame(f)
	if b.trace.Stacks.NumFrames() != before {
		if err := b.d.Charge(160); err != nil {
			return 0, err
		}
	}
	return pickle.Known(tagFrame, int(id)), nil
}

func (b *builder) annotation(pairs []pickle.Value) (pickle.Value, error) {
	var a trace.Annotation
	var err error
	for i := 0; i+1 < len(pairs); i += 2 {
		v := pairs[i+1]
		switch pairs[i] {
		case wName:
			a.Name = b.text(v)
		case wStage:
			a.End = b.text(v) == "END"
		case wDevice:
			var n int64
			n, err = b.integer("device", v)
			a.Device = int(n)
		case wTime:
			a.Time, err = b.integer("time_us", v)
		}
		if err != nil {
			return 0, err
		}
	}
	if err := b.d.Charge(48); err != nil {
		return 0, err
	}
	b.trace.Annotations = append(b.trace.Annotations, a)
	return pickle.Known(tagAnnotation, len(b.trace.Annotations)-1), nil
}

// text returns a string's text, "" for anything else.
func (b *builder) text(v pickle.Value) string {
	if v.Kind() != pickle.String {
		return ""
	}
	return b.d.Text(v)
}

func (b *builder) label(v pickle.Value) (trace.LabelID, error) {
	if v.Kind() != pickle.String {
		return 0, nil
	}
	if id, ok := b.labels[v]; ok {
		return id, nil
	}
	if err := b.d.Charge(96); err != nil {
		return 0, err
	}
	id := b.trace.Labels.Intern(b.d.Text(v))
	b.labels[v] = id
	return id, nil
}

func (b *builder) integer(what string, v pickle.Value) (int64, error) {
	n, ok := b.d.Int(v)
	if !ok {
		return 0, b.wrong(what, v, "an integer")
	}
	return n, nil
}

// size reads a number of bytes.
func (b *builder) size(what string, v pickle.Value) (int64, error) {
	n, ok := b.d.Int(v)
	if !ok {
		return 0, b.wrong(what, v, "an integer")
	}
	if n < 0 {
		return 0, b.d.Errorf("%s is %d, want a number of bytes", what, n)
	}
	return n, nil
}

// address reads a pointer. Writers that see it as signed are taken as well.
func (b *builder) address(what string, v pickle.Value) (uint64, error) {
	n, ok := b.d.Int(v)
	if !ok {
		return 0, b.wrong(what, v, "an integer")
	}
	return uint64(n), nil
}

// pool reads a tuple of two numbers.
func (b *builder) pool(v pickle.Value) (trace.Pool, error) {
	graph, user, ok := b.d.PairOf(v)
	if !ok {
		return trace.Pool{}, b.wrong("pool id", v, "a tuple of two integers")
	}
	return trace.Pool{Graph: uint64(graph), User: uint64(user)}, nil
}

func (b *builder) poolID(v pickle.Value) (uint16, error) {
	p, err := b.pool(v)
	if err != nil || p == (trace.Pool{}) {
		return 0, err
	}
	id, ok := b.pools[p]
	if !ok {
		if len(b.trace.Pools) > 1<<16-1 {
			return 0, b.d.Errorf("more than %d memory pools", 1<<16)
		}
		id = uint16(len(b.trace.Pools))
		b.trace.Pools = append(b.trace.Pools, p)
		b.pools[p] = id
	}
	return id, nil
}

func (b *builder) wrong(what string, v pickle.Value, want string) error {
	return b.d.Errorf("%s is %v, want %s", what, v, want)
}
