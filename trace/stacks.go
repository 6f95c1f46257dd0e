package trace

import "iter"

// StackID names an interned stack of a Trace. 0 is the empty stack: the event
// was recorded without one, or none of it was Python.
type StackID uint32

// FrameID names an interned frame of a Trace.
type FrameID uint32

// Frame is one call of a stack.
type Frame struct {
	Function string
	File     string
	Line     int
}

// Stacks are interned: equal stacks have equal IDs, and frames are shared.
// The zero value is ready to use.
type Stacks struct {
	frames     []Frame
	frameIndex map[Frame]FrameID

	start []uint32  // start[i] is where stack i+1 begins in calls
	calls []FrameID // all stacks, innermost call first
	index map[string]StackID
	key   []byte
}

// Len returns the number of stacks, the empty one included.
func (s *Stacks) Len() int { return len(s.start) + 1 }

// NumFrames returns the number of different frames.
func (s *Stacks) NumFrames() int { return len(s.frames) }

// Frame returns a frame.
func (s *Stacks) Frame(id FrameID) Frame { return s.frames[id] }

// InternFrame returns the ID of f, a new one if it was not seen before.
func (s *Stacks) InternFrame(f Frame) FrameID {
	if id, ok := s.frameIndex[f]; ok {
		return id
	}
	if s.frameIndex == nil {
		s.frameIndex = map[Frame]FrameID{}
	}
	id := FrameID(len(s.frames))
	s.frames = append(s.frames, f)
	s.frameIndex[f] = id
	return id
}

// Intern returns the ID of the stack made of these frames, innermost first.
// It copies calls.
func (s *Stacks) Intern(calls []FrameID) StackID {
	if len(calls) == 0 {
		return 0
	}
	s.key = s.key[:0]
	for _, f := range calls {
		s.key = append(s.key, byte(f), byte(f>>8), byte(f>>16), byte(f>>24))
	}
	if id, ok := s.index[string(s.key)]; ok {
		return id
	}
	if s.index == nil {
		s.index = map[string]StackID{}
	}
	s.start = append(s.start, uint32(len(s.calls)))
	s.calls = append(s.calls, calls...)
	id := StackID(len(s.start))
	s.index[string(s.key)] = id
	return id
}

// Calls returns the frames of a stack, innermost first. The caller must not
// change them.
func (s *Stacks) Calls(id StackID) []FrameID {
	if id == 0 {
		return nil
	}
	from, to := s.start[id-1], uint32(len(s.calls))
	if int(id) < len(s.start) {
		to = s.start[id]
	}
	return s.calls[from:to:to]
}

// All yields the frames of a stack, innermost first.
func (s *Stacks) All(id StackID) iter.Seq[Frame] {
	return func(yield func(Frame) bool) {
		for _, f := range s.Calls(id) {
			if !yield(s.frames[f]) {
				return
			}
		}
	}
}

// Labels are interned strings; label 0 is "". The zero value is ready to use.
type Labels struct {
	text  []string // text[i] is label i+1
	index map[string]LabelID
}

// Text returns a label's text.
func (l *Labels) Text(id LabelID) string {
	if id == 0 {
		return ""
	}
	return l.text[id-1]
}

// Intern returns the ID of text.
func (l *Labels) Intern(text string) LabelID {
	if text == "" {
		return 0
	}
	if id, ok := l.index[text]; ok {
		return id
	}
	if l.index == nil {
		l.index = map[string]LabelID{}
	}
	l.text = append(l.text, text)
	id := LabelID(len(l.text))
	l.index[text] = id
	return id
}

// Len returns the number of labels, the empty one included.
func (l *Labels) Len() int { return len(l.text) + 1 }
