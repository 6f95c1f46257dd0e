package holders

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"vramscope/trace"
)

// By says how live bytes are grouped. Each grouping also splits by category.
type By uint8

// The groupings.
const (
	ByLine     By = iota // the innermost line of the user's code, with the call that asked
	ByStack              // the whole stack
	ByModule             // the innermost function of a file that defines a forward
	ByCategory           // the category alone
)

var byNames = [...]string{"line", "stack", "module", "category"}

func (b By) String() string { return byNames[b] }

// ParseBy reads the name of a grouping.
func ParseBy(name string) (By, bool) {
	i := slices.Index(byNames[:], name)
	return By(max(i, 0)), i >= 0
}

// ByNames lists the names of the groupings.
func ByNames() []string { return slices.Clone(byNames[:]) }

// Holder is code to which live bytes are attributed.
type Holder struct {
	Name      string
	Category  Category
	Bytes     int64 // allocated
	Requested int64
	Blocks    int
	Stack     trace.StackID // of its largest request
	Rule      Rule          // that decided the category of its largest request

	largest int64
}

// Category returns the category of request i.
func (a *Analysis) Category(i int) Category { return a.Rules[i].Category() }

// Stack returns the stack that request i was born with.
func (a *Analysis) Stack(i int) trace.StackID { return a.stacks[i] }

// Site returns what a stack says.
func (a *Analysis) Site(s trace.StackID) Site { return a.sites[s] }

// PhaseOf returns the phase at an event; ok is false before the first one.
func (a *Analysis) PhaseOf(event int) (Phase, bool) {
	i, found := slices.BinarySearchFunc(a.Phases, event, func(p Phase, e int) int { return cmp.Compare(p.First, e) })
	if !found {
		i--
	}
	if i < 0 {
		return Phase{}, false
	}
	return a.Phases[i], true
}

// Live yields the requests that were alive right after event.
func (a *Analysis) Live(event int) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for i := range a.Program.Requests {
			r := &a.Program.Requests[i]
			if int(r.Event) > event {
				return
			}
			if (r.Free < 0 || int(r.Free) > event) && a.Allocated[i] > 0 && !yield(i) {
				return
			}
		}
	}
}

// At returns who held memory right after event, most bytes first.
func (a *Analysis) At(event int, by By) []Holder {
	type key struct {
		group    int32
		category Category
	}
	groups := a.groups(by)
	index := map[key]int{}
	var out []Holder
	for i := range a.Live(event) {
		g := groups.of(a, i)
		c := a.Category(i)
		at, ok := index[key{g, c}]
		if !ok {
			at = len(out)
			index[key{g, c}] = at
			out = append(out, Holder{Name: groups.name(a, i, g), Category: c})
		}
		h := &out[at]
		h.Bytes += a.Allocated[i]
		h.Requested += a.Program.Requests[i].Size
		h.Blocks++
		if a.Allocated[i] > h.largest {
			h.largest, h.Stack, h.Rule = a.Allocated[i], a.stacks[i], a.Rules[i]
		}
	}
	slices.SortStableFunc(out, func(x, y Holder) int {
		return cmp.Or(-cmp.Compare(x.Bytes, y.Bytes), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Category, y.Category))
	})
	return out
}

// grouping maps stacks to groups.
type grouping struct {
	by    By
	group []int32 // by stack; -1: no frame to name it by
}

func (a *Analysis) groups(by By) *grouping {
	g := &grouping{by: by}
	if by == ByCategory {
		return g
	}
	g.group = make([]int32, len(a.sites))
	index := map[string]int32{}
	for id := range a.sites {
		name := a.siteName(trace.StackID(id), by)
		if name == "" {
			g.group[id] = -1
			continue
		}
		if by == ByStack {
			g.group[id] = int32(id)
			continue
		}
		n, ok := index[name]
		if !ok {
			n = int32(len(index))
			index[name] = n
		}
		g.group[id] = n
	}
	return g
}

// of returns the group of request i. Requests without a telling stack group
// by the kind of phase, as numbers below zero.
func (g *grouping) of(a *Analysis, i int) int32 {
	if g.by == ByCategory {
		return 0
	}
	if n := g.group[a.stacks[i]]; n >= 0 {
		return n
	}
	return -2 - int32(a.kindOf(i))
}

func (g *grouping) name(a *Analysis, i int, group int32) string {
	switch {
	case g.by == ByCategory:
		return a.Category(i).String()
	case group >= 0:
		return a.siteName(a.stacks[i], g.by)
	}
	return a.kindOf(i).withoutStack()
}

// kindOf returns the kind of phase in which request i was born; Teardown
// stands for before the recording.
func (a *Analysis) kindOf(i int) PhaseKind {
	if a.phase[i] < 0 {
		return Teardown
	}
	return a.Phases[a.phase[i]].Kind
}

func (k PhaseKind) withoutStack() string {
	switch k {
	case Teardown:
		return "(before the recording)"
	case Backward:
		return "(autograd engine)"
	}
	return "(no stack, " + k.String() + ")"
}

// Line returns the text of a stack's user line and of the call that asked
// there; "" where the stack has no Python frame.
func (a *Analysis) Line(s trace.StackID) string { return a.siteName(s, ByLine) }

func (a *Analysis) siteName(id trace.StackID, by By) string {
	s := &a.Program.Trace.Stacks
	site := &a.sites[id]
	switch by {
	case ByModule:
		if site.Module >= 0 {
			f := s.Frame(trace.FrameID(site.Module))
			return ShortPath(f.File) + " " + f.Function
		}
		return a.siteName(id, ByLine)
	case ByStack, ByLine:
		if site.Line < 0 {
			if site.Call < 0 {
				return ""
			}
			f := s.Frame(trace.FrameID(site.Call))
			return ShortPath(f.File) + " " + f.Function + place(site)
		}
		f := s.Frame(trace.FrameID(site.Line))
		name := ShortPath(f.File) + ":" + strconv.Itoa(f.Line) + " " + f.Function
		if site.Call != site.Line {
			c := s.Frame(trace.FrameID(site.Call))
			name += " → " + ShortPath(c.File) + " " + c.Function
		}
		return name
	}
	return ""
}

func place(s *Site) string {
	if s.role == roleBackward {
		return " (in backward)"
	}
	return ""
}

// ShortPath cuts what is before the package from a library's path, and all
// but the last two folders from others.
func ShortPath(file string) string {
	file = strings.ReplaceAll(file, `\`, "/")
	for _, root := range []string{"site-packages/", "dist-packages/"} {
		if i := strings.LastIndex(file, root); i >= 0 {
			return file[i+len(root):]
		}
	}
	if i := strings.Index(file, "lib/python3"); i >= 0 {
		if _, rest, ok := strings.Cut(file[i:], "/"); ok {
			if _, rest, ok = strings.Cut(rest, "/"); ok {
				return rest
			}
		}
	}
	parts := strings.Split(file, "/")
	if len(parts) > 2 {
		parts = parts[len(parts)-2:]
	}
	return strings.Join(parts, "/")
}
