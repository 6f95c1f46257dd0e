package pt2

import (
	"regexp"
	"strings"

	"vramscope/internal/modelgraph"
)

// locals follows the variables of the model's Python code. An export has for
// each node the stack of frames with the text of their lines, so it shows which
// variable gets a result: "out = self.conv1(x)" holds the convolution's result
// in out until another line of that call of forward assigns to out, or the call
// returns. What is held that way lives longer than its last use. Lines that
// compute nothing are not in an export: a del, a second name for a tensor, and
// the names that a function returns stay unknown.
type locals struct {
	nodes  int
	stack  []modelgraph.Frame
	frames []*pyFrame
	traces map[string][]pyLine
	until  map[modelgraph.ValueID]int // the node through which a value is held
}

// pyLine is one entry of a stack trace.
type pyLine struct {
	file, fn, line string
	stmts          []statement
}

// statement is one of the statements of a line.
type statement struct {
	targets []string // the variables it assigns to
	// simple says that it makes one call, without calls in its arguments.
	simple bool
	// idle says that it computes nothing: skips.append(x).
	idle bool
}

// pyFrame is a call of a Python function that runs.
type pyFrame struct {
	at    pyLine
	stmt  int    // the statement of the line that runs
	begun bool   // it has computed something
	lost  bool   // which of the statements runs cannot be told
	first string // the list of modules whose member the line called first: "layers."
	value modelgraph.ValueID
	vars  map[string]modelgraph.ValueID
}

func newLocals() *locals {
	return &locals{traces: map[string][]pyLine{}, until: map[modelgraph.ValueID]int{}}
}

// ran says that a node was emitted, with its results.
func (l *locals) ran(s *step, ids []modelgraph.ValueID) {
	lines, ok := l.traces[s.n.trace]
	if !ok {
		lines = parseTrace(s.n.trace)
		l.traces[s.n.trace] = lines
	}
	same := l.same(lines, s.stack)
	for len(l.frames) > same {
		l.leave()
	}
	if same > 0 {
		// A new unit of the innermost frame that goes on: a call or a node.
		f := l.frames[same-1]
		if f.at.line != lines[same-1].line {
			l.assign(f)
			f.at, f.stmt, f.lost, f.first = lines[same-1], 0, false, ""
		}
		l.unit(f, called(lines[:same], s.stack))
	}
	for i, line := range lines[same:] {
		f := &pyFrame{at: line, value: modelgraph.None}
		l.frames = append(l.frames, f)
		l.unit(f, called(lines[:same+i+1], s.stack))
	}
	if len(ids) > 0 {
		for _, f := range l.frames {
			f.value = ids[0]
		}
	}
	l.stack = s.stack
	l.nodes++
}

// same is the number of frames that are the same calls as before: as long as
// they wait at the same lines, and belong to modules that are still open.
func (l *locals) same(lines []pyLine, stack []modelgraph.Frame) int {
	modules := 0
	for modules < len(stack) && modules < len(l.stack) && stack[modules] == l.stack[modules] {
		modules++
	}
	changed := modules < len(stack) || modules < len(l.stack)
	forwards := 0
	n := 0
	for ; n < len(lines) && n < len(l.frames); n++ {
		a, b := &l.frames[n].at, &lines[n]
		if a.file != b.file || a.fn != b.fn {
			return n
		}
		if b.fn == "forward" {
			// The model's own forward is the first.
			if forwards > modules && changed {
				return n
			}
			forwards++
		}
		if a.line != b.line {
			return n + 1
		}
	}
	return n
}

// called is the list of modules ("layers.") whose member the innermost of the
// frames calls, or "".
func called(lines []pyLine, stack []modelgraph.Frame) string {
	depth := -1
	for i := range lines {
		if lines[i].fn == "forward" {
			depth++
		}
	}
	if depth < 0 || depth >= len(stack) {
		return ""
	}
	list := strings.TrimRight(stack[depth].Path, "0123456789")
	if list == stack[depth].Path || !strings.HasSuffix(list, ".") {
		return ""
	}
	return list
}

// unit moves a frame on to the statement that the next call or node is part
// of. list is what called says of it.
func (l *locals) unit(f *pyFrame, list string) {
	stmts := f.at.stmts
	if len(stmts) == 0 {
		return
	}
	switch {
	case !f.begun && f.stmt == 0:
		f.first = list
	case list != "" && list == f.first && !stmts[f.stmt].simple:
		// A loop over the list has come round to the line again.
		l.assign(f)
		f.stmt = 0
	}
	for f.begun && stmts[f.stmt].simple || stmts[f.stmt].idle {
		if f.begun {
			l.assign(f)
		}
		f.stmt = (f.stmt + 1) % len(stmts)
		if stmts[f.stmt].idle && f.stmt == 0 {
			break
		}
	}
	if !stmts[f.stmt].simple && f.stmt < len(stmts)-1 {
		f.lost = true
	}
	f.begun = true
}

// assign ends the statement of a frame: its variables let go of what they held,
// and a single one takes the result.
func (l *locals) assign(f *pyFrame) {
	if f.begun && !f.lost && f.stmt < len(f.at.stmts) {
		targets := f.at.stmts[f.stmt].targets
		for _, name := range targets {
			l.release(f, name)
		}
		if len(targets) == 1 && f.value != modelgraph.None {
			if f.vars == nil {
				f.vars = map[string]modelgraph.ValueID{}
			}
			f.vars[targets[0]] = f.value
		}
	}
	f.begun = false
}

// release ends what a variable held: the last node has just run.
func (l *locals) release(f *pyFrame, name string) {
	if v, ok := f.vars[name]; ok {
		l.until[v] = max(l.until[v], l.nodes-1)
		delete(f.vars, name)
	}
}

// leave returns from the innermost frame.
func (l *locals) leave() {
	f := l.frames[len(l.frames)-1]
	l.frames = l.frames[:len(l.frames)-1]
	for name := range f.vars {
		l.release(f, name)
	}
}

// extend moves the ends of values in a finished graph to where the variables
// let go of them.
func (l *locals) extend(g *modelgraph.Graph) {
	for len(l.frames) > 0 {
		l.leave()
	}
	later := make([][]modelgraph.ValueID, len(g.Nodes))
	for i := range g.Nodes {
		n := &g.Nodes[i]
		kept := n.Drop[:0]
		for _, v := range n.Drop {
			if end, ok := l.until[v]; ok && end > i && end < len(g.Nodes) {
				later[end] = append(later[end], v)
			} else {
				kept = append(kept, v)
			}
		}
		n.Drop = kept
	}
	for i, vs := range later {
		g.Nodes[i].Drop = append(g.Nodes[i].Drop, vs...)
	}
}

// parseTrace reads a stack trace as Python prints it, two lines for a frame.
func parseTrace(text string) []pyLine {
	var out []pyLine
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(trimmed, `File "`); ok {
			file, rest, _ := strings.Cut(rest, `", line `)
			no, fn, _ := strings.Cut(rest, ", in ")
			out = append(out, pyLine{file: file, fn: fn, line: no})
		} else if len(out) > 0 && trimmed != "" && out[len(out)-1].stmts == nil {
			out[len(out)-1].stmts = parseStatements(trimmed)
		}
	}
	return out
}

var (
	assignment = regexp.MustCompile(`^([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)\s*(?::[^=(]*)?(?:[-+*/@&|]|//|\*\*)?=(?:[^=]|$)`)
	simpleCall = regexp.MustCompile(`^[\w.]+(?:\[[\w.-]+\])?\((?:[^()]*)\)$`)
	idleCall   = regexp.MustCompile(`^[\w.]+\.(?:append|pop|extend)\([^()]*\)$`)
)

// parseStatements reads the text of a line, which may be the first line of a
// statement only.
func parseStatements(text string) []statement {
	var out []statement
	for part := range strings.SplitSeq(text, ";") {
		part = strings.TrimSpace(part)
		var s statement
		value := part
		if m := assignment.FindStringSubmatch(part); m != nil {
			for name := range strings.SplitSeq(m[1], ",") {
				s.targets = append(s.targets, strings.TrimSpace(name))
			}
			_, value, _ = strings.Cut(part, "=")
			value = strings.TrimSpace(value)
		}
		s.idle = len(s.targets) == 0 && idleCall.MatchString(value)
		s.simple = !s.idle && simpleCall.MatchString(value)
		out = append(out, s)
	}
	return out
}
