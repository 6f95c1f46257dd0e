package oomlog

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
)

// repeatLines is how far apart two copies of one message may be.
const repeatLines = 2000

// keep adds a message to the report, unless it is a copy of one just before.
func (s *scanner) keep(f Failure, st *stream) {
	fs := s.report.Failures
	for i := len(fs) - 1; i >= 0 && i >= len(fs)-16; i-- {
		old := &fs[i]
		if f.Line-old.Line > repeatLines {
			break
		}
		if !sameMessage(old, &f) {
			continue
		}
		old.Repeats++
		st.last = i
		if old.Traceback == nil && f.Traceback != nil {
			old.Traceback = f.Traceback
			old.Facts = f.Facts
		}
		if old.Exception == "" {
			old.Exception = f.Exception
		}
		if f.Kind == Fatal && old.Kind == Caught && old.Why != nil && old.Why.Name == "says so" {
			old.Kind, old.Why = Fatal, nil // retried, and failed in the same way
		}
		return
	}
	if len(fs) >= s.opts.MaxFailures {
		s.report.Dropped++
		return
	}
	s.report.Failures = append(fs, f)
	st.last = len(fs)
	if f.Kind == Fatal {
		st.open = append(st.open, len(fs))
		if len(st.open) > 8 {
			st.open = st.open[1:]
		}
	}
}

// repeated counts a message that has already come twice, without another look at
// what stands around it: programs that retry print thousands.
func (s *scanner) repeated(f *Failure, st *stream) bool {
	fs := s.report.Failures
	for i := len(fs) - 1; i >= 0 && i >= len(fs)-16; i-- {
		old := &fs[i]
		if old.Repeats == 0 || f.Line-old.Line > repeatLines {
			continue
		}
		f.Kind = old.Kind
		if sameMessage(old, f) {
			old.Repeats++
			st.last = i
			return true
		}
	}
	return false
}

// sameMessage tells a copy, by a logger or a parent process, from a second
// failure. Sizes that vary from one failure to the next decide; a form without
// any needs the same stream and nearness.
func sameMessage(a, b *Failure) bool {
	if a.Grammar != b.Grammar || a.Kind == Mention != (b.Kind == Mention) {
		return false
	}
	near := b.Line - a.Line
	if a.Stream != b.Stream {
		// A parent process repeats what a worker printed; two ranks are two failures.
		if a.Stream != "" && b.Stream != "" || a.Free == nil && a.Allocated == nil {
			return false
		}
	}
	if isLadder(a) && isLadder(b) && near < 200 {
		return true
	}
	if !equalSize(a.Tried, b.Tried) || !equalSize(a.Free, b.Free) || !equalSize(a.Allocated, b.Allocated) ||
		!equalSize(a.Reserved, b.Reserved) || !equalSize(a.Unallocated, b.Unallocated) || !equalInt(a.Device, b.Device) {
		return false
	}
	if a.Free == nil && a.Allocated == nil {
		return near < 200 && a.Where == b.Where
	}
	return true
}

// isLadder recognises TensorFlow's start-up attempts with nine tenths of the size
// before (StreamExecutor's cuda_driver.cc), which are one event.
func isLadder(f *Failure) bool { return f.Grammar == "tensorflow/driver-alloc" }

func equalSize[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func equalInt(a, b *int) bool { return equalSize(a, b) }

// usageSyntax finds memory use in a progress line: what trainers print.
var usageSyntax = regexp.MustCompile(`(?i)\b(gpu[_ ]?mem(?:ory)?|mem(?:ory)?(?:[_ ]?(?:allocated|reserved|used|usage))?|max[_ ]?mem(?:ory)?(?:[_ ]allocated)?|allocated|reserved|cuda[_ ]mem(?:ory)?|max_ma|ma|vram)\b['"]?\s*[:=]?\s*(\d+(?:\.\d+)?)\s*(GiB|GB|MiB|MB|G|M)\b`)

var usageWords = []string{"mem", "Mem", "MEM", "alloc", "Alloc", "reserved", "MA ", "VRAM"}

// sample reads counters and memory use from the input outside of failures: every
// line of the first megabyte, then the end of each block. It stays behind the
// messages, so that a counter after a failure finds it.
func (s *scanner) sample(end bool) {
	to := len(s.buf)
	if !end {
		to -= lookAhead
		if i := bytes.LastIndexByte(s.buf[:max(to, 0)], '\n'); i >= 0 {
			to = i + 1
		}
	}
	if to <= s.sampled {
		return
	}
	from := s.sampled
	if s.base+int64(from) > 1<<20 && to-from > 4<<10 {
		from = to - 4<<10
		if i := bytes.IndexByte(s.buf[from:to], '\n'); i >= 0 {
			from += i + 1
		}
	}
	s.sampled = to
	s.sampleLines(s.buf[from:to], s.baseLine+bytes.Count(s.buf[:from], []byte("\n")))
}

func (s *scanner) sampleLines(data []byte, number int) {
	for len(data) > 0 {
		raw, rest, found := bytes.Cut(data, []byte("\n"))
		data = rest
		if i := bytes.LastIndexByte(bytes.TrimRight(raw, "\r"), '\r'); i >= 0 {
			raw = raw[i+1:]
		}
		if len(raw) < 2000 && (containsAny(raw, usageWords) || containsCounter(raw)) {
			for _, l := range appendLine(nil, raw, 0, number) {
				s.observe(&l)
			}
		}
		if found {
			number++
		}
	}
}

func containsCounter(raw []byte) bool {
	for _, c := range counters {
		if containsAny(raw, c.needles) {
			return true
		}
	}
	return false
}

// usageMost bounds Report.Usage; beyond it every second sample is dropped.
const usageMost = 512

// observe notes a line's counter and memory use.
func (s *scanner) observe(l *line) {
	name := l.source.String()
	_, step, ok := progressOf(l.text)
	if ok {
		s.progress(name, step, l)
	} else {
		step = -1
	}
	m := usageSyntax.FindSubmatch(l.text)
	if m == nil {
		return
	}
	size := parseSize(string(bytes.ReplaceAll(bytes.Join([][]byte{m[2], m[3]}, nil), []byte(" "), nil)), "size", false)
	if size == nil {
		return
	}
	if s.usageSeen++; s.usageEvery > 1 && s.usageSeen%s.usageEvery != 0 {
		return
	}
	s.report.Usage = append(s.report.Usage, Sample{Line: l.number, Stream: name, Step: step, Name: string(m[1]), Used: *size})
	if len(s.report.Usage) >= usageMost {
		half := s.report.Usage[:0]
		for i := 0; i < len(s.report.Usage); i += 2 {
			half = append(half, s.report.Usage[i])
		}
		s.report.Usage = half
		s.usageEvery = max(1, s.usageEvery) * 2
	}
}

// progress notes that a stream counts on. A failure before which it had counted
// less was caught, unless a process ended in between.
func (s *scanner) progress(name string, step int, l *line) {
	st := s.streams[name]
	if st == nil {
		return
	}
	for _, i := range st.open {
		f := &s.report.Failures[i]
		if f.Kind != Fatal || l.number <= f.Line || s.lastDeath > f.Line {
			continue
		}
		at := f.step()
		if at < 0 || step <= at {
			continue
		}
		v := float64(step)
		f.Kind = Caught
		f.Why = &Fact{Kind: CaughtFact, Name: "went on", Value: &v, Unit: "count", Line: l.number, Text: quote(l.text)}
	}
	if n := len(st.open); n > 0 && step < st.step && s.report.Failures[st.open[n-1]].Line < l.number {
		st.open = nil // it starts again: a new run
	}
	st.step, st.stepLine = step, l.number
}

// step is the counter before the failure, -1 when it had none.
func (f *Failure) step() int {
	for _, fact := range f.Facts {
		if fact.Kind == StepFact && fact.Value != nil {
			return int(*fact.Value)
		}
	}
	return -1
}

// finish completes the report.
func (s *scanner) finish() {
	slices.SortStableFunc(s.report.Failures, func(a, b Failure) int { return a.Line - b.Line })
	for _, name := range s.streamNames {
		if name != "" {
			s.report.Streams = append(s.report.Streams, name)
		}
	}
	slices.SortStableFunc(s.report.Facts, func(a, b Fact) int { return a.Line - b.Line })
}

// factValue reads a fact's field: sizes in bytes, others as they are.
func factValue(name, text string) (float64, string, bool) {
	typ := name[max(0, len(name)-1):]
	if i := bytes.LastIndex([]byte(name), []byte("__")); i >= 0 {
		typ = name[i+2:]
	}
	switch typ {
	case "size", "n", "g", "m":
		if v := parseSize(text, typ, false); v != nil {
			return float64(*v), "bytes", true
		}
	case "c", "i":
		if v, ok := number(text); ok {
			return v, "count", true
		}
	case "w", "t":
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			return v, "", true
		}
	}
	return 0, "", false
}
