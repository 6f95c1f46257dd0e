package model

import "vramscope/internal/pysource"

// Loop is a for, a while or the for of a comprehension.
type Loop struct {
	Node   pysource.Node // *For, *While or *Comp
	Body   []pysource.Stmt
	Effect Effect // of everything in the body, nested loops too
	Own    Effect // without nested loops
	Outer  *Loop
	// Bounded says that the number of rounds is small and in the source.
	Bounded bool
	// Data says that it runs over a DataLoader.
	Data bool
}

// Loop returns the innermost loop of the same function around a node, or nil.
// The header of a loop is outside of it.
func (m *Model) Loop(n pysource.Node) *Loop {
	child := n
	for p := m.File.Parent(n); p != nil; child, p = p, m.File.Parent(p) {
		switch p := p.(type) {
		case *pysource.Function, *pysource.Lambda, *pysource.Class:
			return nil
		case *pysource.For:
			if child != pysource.Node(p.Iter) && !inElse(p.Else, child) {
				return m.loopOf(p)
			}
		case *pysource.While:
			if !inElse(p.Else, child) {
				return m.loopOf(p)
			}
		case *pysource.Comp:
			if c, ok := child.(*pysource.CompFor); !ok || c != p.Fors[0] {
				return m.loopOf(p)
			}
		}
	}
	return nil
}

func inElse(els []pysource.Stmt, child pysource.Node) bool {
	for _, s := range els {
		if pysource.Node(s) == child {
			return true
		}
	}
	return false
}

func (m *Model) loopOf(n pysource.Node) *Loop {
	if l := m.loopInfo[n]; l != nil {
		return l
	}
	l := &Loop{Node: n}
	m.loopInfo[n] = l
	switch n := n.(type) {
	case *pysource.For:
		l.Body = n.Body
		l.Bounded = m.bounded(n.Iter)
		l.Data = m.IsLoader(n.Iter)
	case *pysource.While:
		l.Body = n.Body
	case *pysource.Comp:
		l.Bounded = m.bounded(n.Fors[0].Iter)
		l.Data = m.IsLoader(n.Fors[0].Iter)
	}
	l.Effect, l.Own = m.effects(n)
	l.Outer = m.Loop(n)
	return l
}

// effects sums up what the calls below a node do, and without nested loops.
func (m *Model) effects(n pysource.Node) (all, own Effect) {
	pysource.Children(n, func(c pysource.Node) {
		switch c := c.(type) {
		case *pysource.Function, *pysource.Lambda, *pysource.Class:
			return
		case *pysource.Call:
			if k := m.calls[c.ID()]; k != nil {
				all |= k.Effect
				own |= k.Effect
			}
		}
		a, o := m.effects(c)
		all |= a
		switch c.(type) {
		case *pysource.For, *pysource.While, *pysource.Comp:
		default:
			own |= o
		}
	})
	return all, own
}

// EffectOf returns what the calls within a node do.
func (m *Model) EffectOf(n pysource.Node) Effect {
	all, _ := m.effects(n)
	if c, ok := n.(*pysource.Call); ok {
		if k := m.calls[c.ID()]; k != nil {
			all |= k.Effect
		}
	}
	return all
}

// IsLoader reports whether an expression iterates over a DataLoader, also
// through enumerate, zip and progress bars.
func (m *Model) IsLoader(x pysource.Expr) bool { return isLoader(m.Value(x), 0) }

func isLoader(v *Value, depth int) bool {
	if v == nil || depth > 4 {
		return false
	}
	if v.May(Loader) {
		return true
	}
	if v.Kind == List && (v.Name == "enumerate" || v.Name == "zip") {
		if isLoader(v.Of, depth+1) {
			return true
		}
		for _, a := range v.Args {
			if isLoader(a, depth+1) {
				return true
			}
		}
	}
	return false
}

// maxBound is up to how many rounds a loop counts as bounded.
const maxBound = 16

// bounded reports whether iterating over x takes few rounds, known from the
// source.
func (m *Model) bounded(x pysource.Expr) bool {
	switch x := x.(type) {
	case *pysource.Sequence:
		return len(x.Elts) <= maxBound
	case *pysource.Dict:
		return len(x.Values) <= maxBound
	case *pysource.Call:
		if c := m.calls[x.ID()]; c != nil {
			switch c.Callee {
			case "range":
				for _, a := range x.Args {
					n := m.Value(a).Const
					if m.Value(a).Kind != Number || len(n) == 0 || len(n) > 2 || len(n) == 2 && n > "16" {
						return false
					}
				}
				return true
			case "enumerate", "reversed", "list", "sorted", "zip":
				return len(x.Args) > 0 && m.bounded(x.Args[0])
			case "Net.children", "Net.modules", "Net.named_parameters", "Net.parameters", "Net.named_modules", "Net.named_children":
				return true
			}
		}
	}
	v := m.Value(x)
	return (v.Kind == List || v.Kind == Tuple) && len(v.Elems) > 0 && len(v.Elems) <= maxBound && v.Elem == nil || v.Is(Params) || v.Is(Net)
}

// Func returns the function around a node, or nil.
func (m *Model) Func(n pysource.Node) *FuncInfo {
	for p := m.File.Parent(n); p != nil; p = m.File.Parent(p) {
		if f, ok := p.(*pysource.Function); ok {
			return m.funcs[f]
		}
	}
	return nil
}

// Class returns the class around a node, or nil.
func (m *Model) Class(n pysource.Node) *ClassInfo {
	for p := m.File.Parent(n); p != nil; p = m.File.Parent(p) {
		if c, ok := p.(*pysource.Class); ok {
			return m.classes[c]
		}
	}
	return nil
}

// Stmt returns the statement that holds an expression.
func (m *Model) Stmt(n pysource.Node) pysource.Stmt {
	for p := n; p != nil; p = m.File.Parent(p) {
		if s, ok := p.(pysource.Stmt); ok {
			return s
		}
	}
	return nil
}

// GradMode returns whether gradients are recorded at a node: No within
// no_grad, in a function that only runs there, and so on.
func (m *Model) GradMode(n pysource.Node) Tri {
	pos := n.Pos()
	for p := m.File.Parent(n); p != nil; p = m.File.Parent(p) {
		switch p := p.(type) {
		case *pysource.With:
			if pos < bodyStart(p) {
				continue
			}
			for i := len(p.Items) - 1; i >= 0; i-- {
				if g := m.contextGrad(p.Items[i].X); g != 0 {
					return g - 1
				}
			}
		case *pysource.Function:
			f := m.funcs[p]
			if f == nil {
				return Maybe
			}
			if f.GradOff {
				return No
			}
			if f.gradOffAt > 0 && f.gradOffAt <= pos {
				return Maybe
			}
			if m.moduleGradOff > 0 {
				return Maybe
			}
			if f.Outer != nil && f.Outer.GradOff {
				return No
			}
			return Yes
		}
	}
	if m.moduleGradOff > 0 && m.moduleGradOff <= pos {
		return No
	}
	return Yes
}

func bodyStart(w *pysource.With) int {
	if len(w.Body) == 0 {
		return w.End()
	}
	return w.Body[0].Pos()
}

// Within calls f for each ancestor of n up to the enclosing function.
func (m *Model) Within(n pysource.Node, f func(pysource.Node) bool) {
	for p := m.File.Parent(n); p != nil; p = m.File.Parent(p) {
		if !f(p) {
			return
		}
		if _, ok := p.(*pysource.Function); ok {
			return
		}
	}
}

// Context returns the callee of the innermost `with` around n whose callee
// satisfies the condition, or nil.
func (m *Model) Context(n pysource.Node, is func(callee string) bool) *Call {
	var found *Call
	m.Within(n, func(p pysource.Node) bool {
		w, ok := p.(*pysource.With)
		if !ok || n.Pos() < bodyStart(w) {
			return true
		}
		for _, it := range w.Items {
			if c := m.Call(it.X); c != nil && is(c.Callee) {
				found = c
				return false
			}
		}
		return true
	})
	return found
}
