package rules

import (
	"strings"

	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

// maxWork is how much of a file's rules may be looked at again and again, in
// nodes: a few seconds. Generated files can hold a hundred thousand calls in
// one function, and rules that compare each with each would never end.
const maxWork = 40_000_000

// outOfWork unwinds to Check.
type outOfWork struct{}

// spend takes n from the file's budget, and ends the rule where nothing is
// left.
func (p *Pass) spend(n int) {
	if *p.work -= n; *p.work <= 0 {
		panic(outOfWork{})
	}
}

// inspect is pysource.Inspect within the budget.
func (p *Pass) inspect(n pysource.Node, f func(pysource.Node) bool) {
	pysource.Inspect(n, func(n pysource.Node) bool {
		p.spend(1)
		return f(n)
	})
}

func (p *Pass) inspectAll(body []pysource.Stmt, f func(pysource.Node) bool) {
	for _, s := range body {
		p.inspect(s, f)
	}
}

// calls returns all calls of the file, within the budget.
func (p *Pass) calls() []*model.Call {
	p.spend(len(p.M.Calls)/8 + 1)
	return p.M.Calls
}

// key names a variable, attribute or element by its source, so that two uses
// can be compared: "total", "self.total", `logs["loss"]`.
func (p *Pass) key(x pysource.Node) string { return p.File.Text(x) }

// base returns the name that an expression starts with: `a` of a.b[0].c().
func base(x pysource.Expr) string {
	for {
		switch y := x.(type) {
		case *pysource.Name:
			return y.Ident
		case *pysource.Attribute:
			x = y.X
		case *pysource.Subscript:
			x = y.X
		case *pysource.Call:
			x = y.Fun
		default:
			return ""
		}
	}
}

// assigns reports whether some statement below n, other than except, gives the
// variable a new value (or deletes it).
func (p *Pass) assigns(n pysource.Node, key string, except pysource.Node) bool {
	found := false
	is := func(x pysource.Expr) {
		for _, t := range flatten(x) {
			if p.key(t) == key {
				found = true
			}
		}
	}
	p.inspect(n, func(n pysource.Node) bool {
		if n == except || found {
			return false
		}
		switch n := n.(type) {
		case *pysource.Assign:
			for _, t := range n.Targets {
				is(t)
			}
		case *pysource.AnnAssign:
			if n.Value != nil {
				is(n.Target)
			}
		case *pysource.For:
			is(n.Target)
		case *pysource.Delete:
			for _, x := range n.Xs {
				is(x)
			}
		case *pysource.Walrus:
			is(n.Target)
		case *pysource.WithItem:
			if n.Target != nil {
				is(n.Target)
			}
		case *pysource.Function, *pysource.Class:
			return false
		}
		return true
	})
	return found
}

func flatten(x pysource.Expr) []pysource.Expr {
	switch x := x.(type) {
	case nil:
		return nil
	case *pysource.Sequence:
		var out []pysource.Expr
		for _, e := range x.Elts {
			out = append(out, flatten(e)...)
		}
		return out
	case *pysource.Starred:
		return flatten(x.X)
	}
	return []pysource.Expr{x}
}

// clears reports whether key.clear() is called, or the variable reset, below n.
func (p *Pass) clears(n pysource.Node, key string) bool {
	found := false
	p.inspect(n, func(n pysource.Node) bool {
		if c, ok := n.(*pysource.Call); ok {
			if a, ok := c.Fun.(*pysource.Attribute); ok && p.key(a.X) == key {
				switch a.Name {
				case "clear", "pop", "popleft", "popitem":
					found = true
				}
			}
		}
		if d, ok := n.(*pysource.Delete); ok {
			for _, x := range d.Xs {
				if s, ok := x.(*pysource.Subscript); ok && p.key(s.X) == key {
					found = true
				}
			}
		}
		if a, ok := n.(*pysource.Assign); ok {
			for _, t := range a.Targets {
				if s, ok := t.(*pysource.Subscript); ok && p.key(s.X) == key {
					if _, slice := s.Index.(*pysource.Slice); slice {
						found = true
					}
				}
			}
		}
		return !found
	})
	return found || p.assigns(n, key, nil)
}

// uses reports whether an expression with this source occurs below n.
func (p *Pass) uses(n pysource.Node, key string) bool {
	found := false
	p.inspect(n, func(n pysource.Node) bool {
		if x, ok := n.(pysource.Expr); ok && !found {
			switch x.(type) {
			case *pysource.Name, *pysource.Attribute, *pysource.Subscript:
				found = p.key(x) == key
			}
		}
		return !found
	})
	return found
}

// usesAfter reports whether the variable is read in the function (or file)
// around n after it.
func (p *Pass) usesAfter(n pysource.Node, key string) bool {
	found := false
	p.inspectScope(n, func(x pysource.Node) bool {
		if x.Pos() >= n.End() {
			switch e := x.(type) {
			case *pysource.Name, *pysource.Attribute, *pysource.Subscript:
				if p.key(e) == key && !p.isTarget(e) {
					found = true
				}
			}
		}
		return !found
	})
	return found
}

// isTarget reports whether the expression is what a statement assigns to.
func (p *Pass) isTarget(x pysource.Node) bool {
	switch s := p.File.Parent(x).(type) {
	case *pysource.Assign:
		for _, t := range s.Targets {
			if pysource.Node(t) == x {
				return true
			}
		}
	case *pysource.Sequence:
		return p.isTarget(s)
	case *pysource.For:
		return pysource.Node(s.Target) == x
	}
	return false
}

// inspectScope walks the function around n, nested functions too, or the file.
func (p *Pass) inspectScope(n pysource.Node, f func(pysource.Node) bool) {
	if fn := p.M.Func(n); fn != nil {
		p.inspectAll(fn.Def.Body, f)
		return
	}
	p.inspectAll(p.File.Body, f)
}

// scopeCalls returns the calls in the function around n (with those of nested
// functions), or of the top level of the file.
func (p *Pass) scopeCalls(n pysource.Node) []*model.Call {
	fn := p.M.Func(n)
	var out []*model.Call
	for _, c := range p.calls() {
		if fn == nil && c.In == nil || fn != nil && c.Node.Pos() >= fn.Def.Pos() && c.Node.End() <= fn.Def.End() {
			out = append(out, c)
		}
	}
	return out
}

// callsIn returns the calls below a node.
func (p *Pass) callsIn(n pysource.Node) []*model.Call {
	var out []*model.Call
	p.inspect(n, func(n pysource.Node) bool {
		if c := p.M.Call(n); c != nil {
			out = append(out, c)
		}
		return true
	})
	return out
}

// has reports whether the file calls something whose last name is one of names.
func (p *Pass) has(names ...string) bool {
	for _, c := range p.calls() {
		m := c.Method()
		for _, n := range names {
			if m == n {
				return true
			}
		}
	}
	return false
}

// mentions reports whether the source holds one of the texts. It is only used
// to stay silent.
func (p *Pass) mentions(texts ...string) bool {
	for _, t := range texts {
		p.spend(len(p.File.Src) / 16)
		if strings.Contains(p.File.Src, t) {
			return true
		}
	}
	return false
}

// imports reports whether the file imports one of the modules.
func (p *Pass) imports(modules ...string) bool {
	for _, m := range modules {
		if p.M.Imports[m] {
			return true
		}
	}
	return false
}

// owned reports whether a framework owns the training loop around n, so that
// zero_grad, unscaling and device moves are its business.
func (p *Pass) owned(n pysource.Node) bool {
	return p.M.Class(n).Is("lightning.LightningModule", "transformers.Trainer", "lightning.Callback")
}

// constant returns the text of a constant argument, "" where it is not one.
func (p *Pass) constant(x pysource.Expr) string {
	if x == nil {
		return ""
	}
	v := p.M.Value(x)
	if len(v.Alts) > 0 {
		return ""
	}
	switch v.Kind {
	case model.Number, model.String, model.DType:
		return v.Const
	}
	if v.Kind == model.None {
		return "None"
	}
	return ""
}

// keyword returns the keyword argument of a call as written, or nil.
func keyword(c *pysource.Call, name string) *pysource.Keyword {
	for _, k := range c.Keywords {
		if k.Name == name {
			return k
		}
	}
	return nil
}

// guarded reports whether a condition stands between n and the loop (or the
// function) around it.
func (p *Pass) guarded(n pysource.Node) bool {
	found := false
	p.M.Within(n, func(a pysource.Node) bool {
		switch a := a.(type) {
		case *pysource.If:
			if n.Pos() >= a.Test.End() {
				found = true
			}
		case *pysource.Cond, *pysource.Handler, *pysource.Case:
			found = true
		case *pysource.For, *pysource.While, *pysource.Comp:
			return false
		}
		return !found
	})
	return found
}

// modulus returns the If with a % in its condition around n within its loop.
func (p *Pass) modulus(n pysource.Node) *pysource.If {
	var found *pysource.If
	p.M.Within(n, func(a pysource.Node) bool {
		switch a := a.(type) {
		case *pysource.If:
			p.inspect(a.Test, func(x pysource.Node) bool {
				if b, ok := x.(*pysource.Binary); ok && b.Op == "%" {
					found = a
				}
				return true
			})
			// accumulate = (i + 1) % k == 0; if accumulate: …
			for _, name := range p.namesIn(a.Test) {
				if x := p.definition(a, name); x != nil && found == nil {
					p.inspect(x, func(x pysource.Node) bool {
						if b, ok := x.(*pysource.Binary); ok && b.Op == "%" && !p.M.Value(b.L).Is(model.String) {
							found = a
						}
						return true
					})
				}
			}
		case *pysource.For, *pysource.While:
			return false
		}
		return found == nil
	})
	return found
}

func (p *Pass) namesIn(x pysource.Node) []string {
	var out []string
	p.inspect(x, func(n pysource.Node) bool {
		if n, ok := n.(*pysource.Name); ok {
			out = append(out, n.Ident)
		}
		return true
	})
	return out
}

// definition returns the expression last assigned to a name before n in its
// scope, where that is a plain assignment.
func (p *Pass) definition(n pysource.Node, name string) pysource.Expr {
	var def pysource.Expr
	p.inspectScope(n, func(x pysource.Node) bool {
		if a, ok := x.(*pysource.Assign); ok && a.Pos() < n.Pos() && (a.End() <= n.Pos() || pysource.Node(a) == n) {
			for _, t := range a.Targets {
				if id, ok := t.(*pysource.Name); ok && id.Ident == name {
					def = a.Value
				}
			}
		}
		return true
	})
	return def
}

// resolve follows a name to the expression that it was last given.
func (p *Pass) resolve(x pysource.Expr) pysource.Expr {
	for range 4 {
		n, ok := x.(*pysource.Name)
		if !ok {
			return x
		}
		def := p.definition(n, n.Ident)
		if def == nil {
			return x
		}
		x = def
	}
	return x
}

// method returns the attribute name where x is a call of a method.
func method(x pysource.Expr) (recv pysource.Expr, name string) {
	if c, ok := x.(*pysource.Call); ok {
		if a, ok := c.Fun.(*pysource.Attribute); ok {
			return a.X, a.Name
		}
	}
	return nil, ""
}

// discarded reports whether nothing is done with the value of a call.
func (p *Pass) discarded(c *model.Call) bool {
	_, ok := p.File.Parent(c.Node).(*pysource.ExprStmt)
	return ok
}

// inNet reports whether n is in a method of a module: its forward pass, where
// lists of tensors and loops over layers are what a model is made of.
func (p *Pass) inNet(n pysource.Node) bool {
	c := p.M.Class(n)
	return c.Is("torch.nn.Module") && !c.Is("lightning.LightningModule")
}

// stepLoop reports whether a loop makes training steps itself: backward runs
// in it, not only in loops of functions that it calls.
func (p *Pass) stepLoop(l *model.Loop) bool {
	if l == nil {
		return false
	}
	if l.Data {
		return true
	}
	if l.Own&model.Backward == 0 {
		return false
	}
	found := false
	for _, c := range p.callsIn(l.Node) {
		if c.Effect&model.Backward == 0 || p.M.Loop(c.Node) != l {
			continue
		}
		if c.Func == nil && c.Remote == nil {
			found = true
		} else if c.Func != nil && !p.loopsBackward(c.Func) {
			found = true
		}
	}
	return found
}

// loopsBackward reports whether backward runs in a loop within the function.
func (p *Pass) loopsBackward(f *model.FuncInfo) bool {
	for _, c := range p.calls() {
		if c.Effect&model.Backward != 0 && c.In == f && p.M.Loop(c.Node) != nil {
			return true
		}
		if c.In == f && c.Func != nil && c.Func != f && c.Effect&model.Backward != 0 && c.Func.Effects&model.Backward != 0 && p.loopsDirectly(c.Func) {
			return true
		}
	}
	return false
}

func (p *Pass) loopsDirectly(f *model.FuncInfo) bool {
	for _, c := range p.calls() {
		if c.In == f && c.Effect&model.Backward != 0 && p.M.Loop(c.Node) != nil {
			return true
		}
	}
	return false
}

// growth returns the loop that lets the container or sum key grow from step to
// step at n: a loop that makes steps or evaluates batches, does not reset it,
// and has no known small number of rounds. It returns nil where the growth is
// bounded or the tensors are still wanted.
func (p *Pass) growth(n pysource.Node, key string) *model.Loop {
	if p.inNet(n) {
		return nil
	}
	for l := p.M.Loop(n); l != nil; l = l.Outer {
		if p.resets(l, key, n) {
			return nil
		}
		if l.Bounded {
			continue
		}
		if l.Effect&model.Backward != 0 {
			if p.backwardOn(l, key) {
				return nil
			}
			return l
		}
		if l.Data || p.evaluates(l) {
			if p.reachesBackward(n, key) {
				return nil
			}
			return l
		}
	}
	return nil
}

func (p *Pass) resets(l *model.Loop, key string, at pysource.Node) bool {
	stmt := p.M.Stmt(at)
	switch loop := l.Node.(type) {
	case *pysource.For:
		if p.assignsAny(loop.Body, key, stmt) {
			return true
		}
	case *pysource.While:
		if p.assignsAny(loop.Body, key, stmt) {
			return true
		}
	}
	// The base of an attribute or element is made anew: acc = {} … acc["x"] += y.
	if i := strings.IndexAny(key, ".["); i > 0 && key[:i] != "self" {
		return p.resets(l, key[:i], at)
	}
	return false
}

func (p *Pass) assignsAny(body []pysource.Stmt, key string, except pysource.Node) bool {
	for _, s := range body {
		if p.assigns(s, key, except) || p.clearsCall(s, key) {
			return true
		}
	}
	return false
}

func (p *Pass) clearsCall(n pysource.Node, key string) bool {
	found := false
	p.inspect(n, func(n pysource.Node) bool {
		if c, ok := n.(*pysource.Call); ok {
			if a, ok := c.Fun.(*pysource.Attribute); ok && p.key(a.X) == key {
				switch a.Name {
				case "clear", "pop", "popleft", "reset":
					found = true
				}
			}
		}
		return !found
	})
	return found
}

// evaluates reports whether a loop runs a module over batches in a function
// that has switched it to evaluation, without backward.
func (p *Pass) evaluates(l *model.Loop) bool {
	if l.Effect&model.Forward == 0 {
		return false
	}
	for _, c := range p.scopeCalls(l.Node) {
		if c.Effect&model.EvalMode != 0 && c.Node.Pos() < l.Node.Pos() {
			return true
		}
	}
	return false
}

// backwardOn reports whether backward runs on the variable itself within the
// loop: a sum of losses by design.
func (p *Pass) backwardOn(l *model.Loop, key string) bool {
	for _, c := range p.callsIn(l.Node) {
		if c.Effect&model.Backward == 0 {
			continue
		}
		if p.uses(c.Node, key) {
			return true
		}
	}
	return false
}

// reachesBackward reports whether backward runs in the function after n, or
// the variable is returned by a function that does not evaluate: its sum or
// list may be an objective.
func (p *Pass) reachesBackward(n pysource.Node, key string) bool {
	for _, c := range p.scopeCalls(n) {
		if c.Effect&model.Backward == 0 || c.Node.Pos() < n.Pos() {
			continue
		}
		if c.Func == nil && c.Remote == nil || p.uses(c.Node, key) {
			return true
		}
	}
	evaluates := false
	for _, c := range p.scopeCalls(n) {
		evaluates = evaluates || c.Effect&model.EvalMode != 0
	}
	if evaluates {
		return false
	}
	returned := false
	p.inspectScope(n, func(x pysource.Node) bool {
		if r, ok := x.(*pysource.Return); ok && r.X != nil && p.uses(r.X, key) {
			returned = true
		}
		return true
	})
	return returned
}

// grand returns the parent of the parent of n, or nil.
func (p *Pass) grand(n pysource.Node) pysource.Node {
	if n = p.File.Parent(n); n == nil {
		return nil
	}
	return p.File.Parent(n)
}

// methodOn returns the name of the method that is called on the value of n:
// "backward" for scaler.scale(loss) in scaler.scale(loss).backward().
func (p *Pass) methodOn(n pysource.Node) string {
	a, ok := p.File.Parent(n).(*pysource.Attribute)
	if !ok {
		return ""
	}
	if c, ok := p.File.Parent(a).(*pysource.Call); ok && c.Fun == pysource.Expr(a) {
		return a.Name
	}
	return ""
}
