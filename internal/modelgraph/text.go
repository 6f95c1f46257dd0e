package modelgraph

import (
	"fmt"
	"strings"
)

// Text writes a graph for people: module calls as indentation, nodes as lines
// with what Python drops after them.
func (g *Graph) Text() string {
	var w strings.Builder
	name := func(id ValueID) string {
		switch {
		case id == None:
			return "none"
		case g.Values[id].Name != "":
			return g.Values[id].Name
		}
		return fmt.Sprintf("%%%d", id)
	}
	names := func(ids []ValueID) string {
		s := make([]string, len(ids))
		for i, id := range ids {
			s[i] = name(id)
		}
		return strings.Join(s, ", ")
	}
	for _, s := range g.Symbols {
		fmt.Fprintf(&w, "symbol %s = %d, from %d", s.Name, s.Value, s.Min)
		if s.Max != NoLimit {
			fmt.Fprintf(&w, " to %d", s.Max)
		}
		if s.Fixed != "" {
			fmt.Fprintf(&w, ", fixed: %s", s.Fixed)
		}
		w.WriteByte('\n')
	}
	for _, id := range g.Inputs {
		fmt.Fprintf(&w, "input %s %s %v\n", name(id), g.Values[id].DType, g.Values[id].Shape)
	}
	open := -1
	for i, n := range g.Nodes {
		for ; open+1 < len(g.Calls) && g.Calls[open+1].First <= i; open++ {
			c := g.Calls[open+1]
			mark := ""
			if c.Block {
				mark = " (block)"
			}
			fmt.Fprintf(&w, "%scall %q%s [%d, %d)\n", strings.Repeat("  ", g.depth(open+1)), c.Path, mark, c.First, c.Last)
		}
		fmt.Fprintf(&w, "%s%d %s = %s(%s)", strings.Repeat("  ", g.depth(n.Call)+1), i, names(n.Out), n.Op, names(n.In))
		for _, a := range n.Attrs {
			switch {
			case a.Str != "":
				fmt.Fprintf(&w, " %s=%s", a.Key, a.Str)
			case a.Ints != nil:
				fmt.Fprintf(&w, " %s=%v", a.Key, a.Ints)
			default:
				fmt.Fprintf(&w, " %s=%g", a.Key, a.Float)
			}
		}
		if len(n.Drop) > 0 {
			fmt.Fprintf(&w, " drop %s", names(n.Drop))
		}
		w.WriteByte('\n')
	}
	fmt.Fprintf(&w, "output %s\n", names(g.Outputs))
	for _, a := range g.Assumptions {
		fmt.Fprintf(&w, "assumed: %s\n", a)
	}
	return w.String()
}

// depth is the number of calls around a call.
func (g *Graph) depth(call int) int {
	n := 0
	for ; g.Calls[call].Parent >= 0; call = g.Calls[call].Parent {
		n++
	}
	return n
}
