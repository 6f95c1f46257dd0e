package model

import (
	"strings"

	"vramscope/internal/pysource"
)

// maxLoopPasses: loops nested deeper than this run once, so that the work does
// not double with each level.
const maxLoopPasses = 2

// block executes statements and reports whether control reaches their end.
func (m *Model) block(body []pysource.Stmt) bool {
	for i, s := range body {
		if !m.stmt(s) {
			// Code after a jump still gets values, for rules that look at it.
			for _, rest := range body[i+1:] {
				m.stmt(rest)
			}
			return false
		}
	}
	return true
}

func (m *Model) stmt(s pysource.Stmt) bool {
	switch s := s.(type) {
	case *pysource.ExprStmt:
		m.eval(s.X)
		m.bareGradSwitch(s)
	case *pysource.Assign:
		v := m.eval(s.Value)
		for _, t := range s.Targets {
			m.assign(t, v)
		}
	case *pysource.AnnAssign:
		if s.Value != nil {
			m.assign(s.Target, m.eval(s.Value))
		} else if v := m.annotated(s.Ann); v != nil {
			if _, ok := s.Target.(*pysource.Name); ok && m.env.lookup(m.File.Text(s.Target)) == nil {
				m.assign(s.Target, v)
			}
		}
	case *pysource.AugAssign:
		m.augAssign(s)
	case *pysource.Return:
		v := &Value{Kind: None}
		if s.X != nil {
			v = m.eval(s.X)
		}
		if m.fn != nil {
			m.fn.Return = join(m.fn.Return, v)
		}
		return false
	case *pysource.Raise:
		if s.X != nil {
			m.eval(s.X)
		}
		return false
	case *pysource.Jump:
		return s.Word == "pass"
	case *pysource.Delete:
		for _, x := range s.Xs {
			m.eval(x)
			if n, ok := x.(*pysource.Name); ok {
				m.env.vars[n.Ident] = &Value{Origin: s}
			}
		}
	case *pysource.Assert:
		m.eval(s.Test)
	case *pysource.Scope:
		if s.Word == "global" {
			for _, name := range s.Names {
				m.env.vars[globalMark(name)] = unknown
			}
		}
	case *pysource.Import:
		m.importStmt(s)
	case *pysource.If:
		return m.ifStmt(s)
	case *pysource.For:
		m.forStmt(s)
	case *pysource.While:
		m.eval(s.Test)
		m.loop(s.Body, func() { m.eval(s.Test) })
		m.block(s.Else)
		if c, ok := s.Test.(*pysource.Constant); ok && c.Text == "True" {
			return hasBreak(s.Body)
		}
	case *pysource.Try:
		return m.try(s)
	case *pysource.With:
		return m.with(s)
	case *pysource.Function:
		m.function(s)
	case *pysource.Class:
		m.classStmt(s)
	case *pysource.Match:
		m.eval(s.Subject)
		var branches []func() bool
		for _, c := range s.Cases {
			branches = append(branches, func() bool {
				m.bindPattern(c.Pattern)
				if c.Guard != nil {
					m.eval(c.Guard)
				}
				return m.block(c.Body)
			})
		}
		m.branches(append(branches, func() bool { return true })...)
	}
	return true
}

func hasBreak(body []pysource.Stmt) bool {
	found := false
	pysource.InspectAll(body, func(n pysource.Node) bool {
		switch n := n.(type) {
		case *pysource.Jump:
			found = found || n.Word == "break"
		case *pysource.For, *pysource.While, *pysource.Function, *pysource.Class:
			return false
		}
		return true
	})
	return found
}

// bareGradSwitch honours torch.set_grad_enabled(False) as a statement.
func (m *Model) bareGradSwitch(s *pysource.ExprStmt) {
	c := m.Call(s.X)
	if c == nil || c.Callee != "torch.set_grad_enabled" && c.Callee != "torch.autograd.set_grad_enabled" {
		return
	}
	m.grad = gradSwitch(m, c.Node)
	if m.grad == Yes {
		return
	}
	if m.fn == nil {
		m.moduleGradOff = s.Pos() + 1
	} else if m.fn.gradOffAt == 0 {
		m.fn.gradOffAt = s.Pos() + 1
	}
}

// branches runs alternatives and joins what they leave behind. It reports
// whether control leaves any of them at its end.
func (m *Model) branches(alternatives ...func() bool) bool {
	base, grad := m.env, m.grad
	var ends []*env
	through := false
	for _, run := range alternatives {
		over := newEnv(base, true)
		m.env, m.grad = over, grad
		if run() {
			ends = append(ends, over)
			through = true
		}
	}
	m.env, m.grad = base, grad
	if len(ends) == 0 {
		return false
	}
	for _, e := range ends {
		for name := range e.vars {
			if name == "" {
				continue
			}
			var v *Value
			for _, other := range ends {
				v = join(v, other.lookup(name))
			}
			base.vars[name] = v
		}
	}
	return through
}

func (m *Model) ifStmt(s *pysource.If) bool {
	m.eval(s.Test)
	if isTypeChecking(m, s.Test) {
		m.block(s.Body)
		return true
	}
	return m.branches(
		func() bool { m.narrow(s.Test, true); return m.block(s.Body) },
		func() bool { m.narrow(s.Test, false); return m.block(s.Else) },
	)
}

func isTypeChecking(m *Model, test pysource.Expr) bool {
	v := m.Value(test)
	return v.Kind == Namespace && strings.HasSuffix(v.Name, "TYPE_CHECKING")
}

// narrow uses `isinstance(x, T)`, `x is None` and `x is not None`.
func (m *Model) narrow(test pysource.Expr, holds bool) {
	cmp, ok := test.(*pysource.Compare)
	if !ok || len(cmp.Ops) != 1 {
		return
	}
	name, ok := cmp.Xs[0].(*pysource.Name)
	if !ok || m.Value(cmp.Xs[1]).Kind != None {
		return
	}
	isNone := cmp.Ops[0] == "is" || cmp.Ops[0] == "=="
	v := m.env.lookup(name.Ident)
	if v == nil || len(v.Alts) == 0 {
		return
	}
	var out *Value
	for _, a := range v.Alts {
		if (a.Kind == None) == (isNone == holds) {
			out = join(out, a)
		}
	}
	if out != nil {
		m.env.vars[name.Ident] = out
	}
}

func (m *Model) forStmt(s *pysource.For) {
	iter := m.eval(s.Iter)
	item := func() { m.assign(s.Target, m.element(s.Target, iter)) }
	item()
	m.loop(s.Body, item)
	m.block(s.Else)
}

// element returns what iterating over v gives. An item that is not known
// otherwise is an object of the target, or of nothing where that is nil.
func (m *Model) element(target pysource.Node, v *Value) *Value {
	item := func(fresh Value) *Value {
		if target == nil {
			return &fresh
		}
		return m.object(target, fresh)
	}
	switch {
	case v.Is(Tensor):
		e := *v
		e.Alts, e.Origin, e.attrs, e.Of = nil, target, nil, v
		return item(e)
	case len(v.Elems) > 0 && v.Kind != Dict:
		var e *Value
		for _, x := range v.Elems {
			e = join(e, x)
		}
		return e
	case v.Elem != nil && v.Kind != Dict:
		return v.Elem
	case v.Is(Params):
		return item(Value{Kind: Tensor, Graph: Yes, Name: "parameter", Of: v})
	case v.Kind == Dict:
		return item(Value{Kind: Unknown, Of: v})
	}
	return item(Value{Of: v})
}

// loop runs a body as often as it takes to see what one pass leaves for the
// next. The loop may run not at all.
func (m *Model) loop(body []pysource.Stmt, next func()) {
	m.loops++
	passes := 2
	if m.loops > maxLoopPasses {
		passes = 1
	}
	for range passes {
		m.branches(
			func() bool { next(); m.block(body); return true },
			func() bool { return true },
		)
	}
	m.loops--
}

func (m *Model) try(s *pysource.Try) bool {
	alternatives := []func() bool{func() bool {
		return m.block(s.Body) && m.block(s.Else)
	}}
	for _, h := range s.Handlers {
		alternatives = append(alternatives, func() bool {
			if h.Type != nil {
				m.eval(h.Type)
			}
			if h.Name != "" {
				m.env.vars[h.Name] = m.object(h, Value{Kind: Object, Name: "exception"})
			}
			return m.block(h.Body)
		})
	}
	if len(s.Handlers) == 0 { // try … finally: no alternative
		through := m.block(s.Body)
		return m.block(s.Finally) && through
	}
	through := m.branches(alternatives...)
	return m.block(s.Finally) && through
}

func (m *Model) with(s *pysource.With) bool {
	grad := m.grad
	for _, it := range s.Items {
		v := m.eval(it.X)
		if g := m.contextGrad(it.X); g != 0 {
			m.grad = g - 1
		}
		if it.Target != nil {
			bound := v
			if v.Kind == Unknown || v.Kind == Object && v.Name != "tensorflow.GradientTape" {
				bound = m.object(it, Value{Of: v})
			}
			m.assign(it.Target, bound)
		}
	}
	through := m.block(s.Body)
	m.grad = grad
	return through
}

// contextGrad returns 1 plus the grad mode within `with x`, or 0 where it does
// not change it.
func (m *Model) contextGrad(x pysource.Expr) Tri {
	if c, ok := x.(*pysource.Cond); ok { // no_grad() if evaluating else nullcontext()
		if m.contextGrad(c.Then) != 0 || m.contextGrad(c.Else) != 0 {
			return 1 + Maybe
		}
		return 0
	}
	name := ""
	var call *pysource.Call
	if c := m.Call(x); c != nil {
		name, call = c.Callee, c.Node
	} else if v := m.Value(x); v.Kind == Object {
		name = v.Name
	}
	switch name {
	case "torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.autograd.grad_mode.no_grad",
		"torch.autograd.inference_mode", "torch.autograd.grad_mode.inference_mode":
		if call != nil && len(call.Args) > 0 {
			if c, ok := call.Args[0].(*pysource.Constant); ok && c.Text == "False" {
				return 1 + Yes
			} else if !ok {
				return 1 + Maybe
			}
		}
		return 1 + No
	case "torch.enable_grad", "torch.autograd.enable_grad":
		return 1 + Yes
	case "torch.set_grad_enabled", "torch.autograd.set_grad_enabled":
		if call == nil {
			return 1 + Maybe
		}
		return 1 + gradSwitch(m, call)
	}
	if c := m.Call(x); c != nil && c.Func == nil && c.Remote == nil && c.Callee != "" {
		// A context manager that the model does not know, by a value it does
		// not know, may switch gradients.
		if v := m.Value(x); v.Kind == Unknown && strings.HasPrefix(c.Callee, "?") {
			return 1 + Maybe
		}
	}
	if m.Value(x).Kind == Unknown && m.Call(x) == nil {
		return 1 + Maybe
	}
	return 0
}

func gradSwitch(m *Model, call *pysource.Call) Tri {
	if len(call.Args) == 1 {
		if c, ok := call.Args[0].(*pysource.Constant); ok {
			if c.Text == "False" {
				return No
			}
			return Yes
		}
	}
	return Maybe
}

func (m *Model) augAssign(s *pysource.AugAssign) {
	old, v := m.eval(s.Target), m.eval(s.Value)
	switch {
	case old.Is(List) && s.Op == "+":
		if len(v.Elems) > 0 {
			for _, e := range v.Elems {
				m.put(old, e)
			}
		} else {
			m.put(old, v.Elem)
		}
		return
	case old.Is(String) || old.Is(Dict) || old.Is(Set):
		return
	}
	m.assign(s.Target, m.arith(s, old, v))
}

// put adds an element to a container.
func (m *Model) put(container, e *Value) {
	if container == nil || container == unknown || e == nil {
		return
	}
	for _, a := range container.Alts {
		m.put(a, e)
	}
	if len(container.Alts) == 0 {
		container.Elem = join(container.Elem, e)
	}
}

func (m *Model) assign(target pysource.Expr, v *Value) {
	switch t := target.(type) {
	case *pysource.Name:
		m.note(t, v)
		m.bind(t.Ident, v)
	case *pysource.Attribute:
		obj := m.eval(t.X)
		m.note(t, v)
		m.setAttr(obj, t.Name, v)
	case *pysource.Subscript:
		obj := m.eval(t.X)
		m.eval(t.Index)
		m.note(t, v)
		if obj.Kind == List || obj.Kind == Dict {
			m.put(obj, v)
		} else if obj.Kind == Unknown && obj != unknown {
			m.put(obj, v)
		}
	case *pysource.Starred:
		m.assign(t.X, m.object(t, Value{Kind: List, Elem: v.Elem}))
	case *pysource.Sequence:
		m.unpack(t, v)
	default:
		m.eval(target)
	}
}

// bind gives a name a value, in the scope that a global statement says.
func (m *Model) bind(name string, v *Value) {
	if m.fn != nil {
		for e := m.env; e != nil; e = e.up {
			if e.vars[globalMark(name)] != nil {
				m.globals.vars[name] = join(m.globals.vars[name], v)
				return
			}
			if !e.over {
				break
			}
		}
	}
	m.env.vars[name] = v
}

func globalMark(name string) string { return " global " + name }

func (m *Model) unpack(t *pysource.Sequence, v *Value) {
	for i, x := range t.Elts {
		switch {
		case len(v.Elems) == len(t.Elts) && !hasStar(t):
			m.assign(x, v.Elems[i])
		case v.Is(Tensor):
			e := Value{Kind: Tensor, Graph: v.Graph, Dev: v.Dev, DType: v.DType, Loose: v.Loose, Of: v}
			if len(v.Alts) > 0 {
				e.Graph = Maybe
				if v.HasGraph() {
					e.Graph = Yes
				}
			}
			m.assign(x, m.object(x, e))
		case v.Elem != nil && v.Kind != Dict:
			m.assign(x, v.Elem)
		case v.Is(Shape) || v.Is(Number):
			m.assign(x, &Value{Kind: Number, Origin: x})
		default:
			if _, nested := x.(*pysource.Sequence); nested {
				m.assign(x, &Value{Origin: x, Of: v})
				continue
			}
			if _, starred := x.(*pysource.Starred); starred {
				m.assign(x, &Value{Origin: x, Of: v})
				continue
			}
			m.assign(x, m.object(x, Value{Of: v}))
		}
	}
}

func hasStar(t *pysource.Sequence) bool {
	for _, x := range t.Elts {
		if _, ok := x.(*pysource.Starred); ok {
			return true
		}
	}
	return false
}

func (m *Model) bindPattern(p pysource.Expr) {
	pysource.Inspect(p, func(n pysource.Node) bool {
		switch n := n.(type) {
		case *pysource.Name:
			m.env.vars[n.Ident] = m.object(n, Value{})
		case *pysource.Attribute:
			return false
		}
		return true
	})
}

func (m *Model) importStmt(s *pysource.Import) {
	if !s.IsFrom {
		for _, a := range s.Names {
			full := m.canonical(a.Name)
			m.Imports[full] = true
			m.Imports[topOf(full)] = true
			if a.As != "" {
				m.bind(a.As, &Value{Kind: Namespace, Name: full, Origin: s})
			} else {
				m.bind(topOf(a.Name), &Value{Kind: Namespace, Name: m.canonical(topOf(a.Name)), Origin: s})
			}
		}
		return
	}
	module := s.Module
	if s.Level > 0 {
		module = m.project.relative(m.File.Name, s.Level, s.Module)
	}
	full := m.canonical(module)
	if s.Level == 0 {
		m.Imports[full] = true
		m.Imports[topOf(full)] = true
	}
	for _, a := range s.Names {
		name := a.Name
		if a.As != "" {
			name = a.As
		}
		m.bind(name, &Value{Kind: Namespace, Name: m.canonical(full + "." + a.Name), Origin: s})
	}
}

func topOf(dotted string) string {
	top, _, _ := strings.Cut(dotted, ".")
	return top
}

func (m *Model) function(s *pysource.Function) {
	f := m.funcs[s]
	if f == nil {
		f = &FuncInfo{Def: s, Outer: m.fn, Params: map[string]*Value{}}
		if m.class != nil && m.fnIsClassBody() {
			f.Class = m.class
			m.class.Methods[s.Name] = f
		}
		m.funcs[s] = f
		m.Funcs = append(m.Funcs, f)
		f.Yields = yields(s)
	}
	f.closure = m.env
	for _, p := range s.Params {
		if p.Default != nil {
			m.eval(p.Default)
		}
	}
	v := &Value{Kind: Func, Func: f, Origin: s, Name: s.Name}
	for _, d := range s.Decorators {
		dv := m.eval(d)
		if off := m.contextGrad(d); off == 1+No || gradOffDecorator(dv) {
			f.GradOff = true
		}
		f.decorated = true
	}
	if f.Class != nil && f.Class.frameworkGradOff(s.Name) {
		f.GradOff = true
	}
	m.env.vars[s.Name] = v
}

// fnIsClassBody reports whether execution is directly in the body of m.class.
func (m *Model) fnIsClassBody() bool { return m.fn == nil || m.fn.Class != m.class }

func gradOffDecorator(v *Value) bool {
	if v.Kind != Namespace && v.Kind != Object {
		return false
	}
	switch v.Name {
	case "torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.autograd.grad_mode.no_grad":
		return true
	}
	return false
}

func yields(f *pysource.Function) bool {
	found := false
	pysource.InspectAll(f.Body, func(n pysource.Node) bool {
		switch n.(type) {
		case *pysource.Yield:
			found = true
		case *pysource.Function, *pysource.Lambda, *pysource.Class:
			return false
		}
		return !found
	})
	return found
}

func (m *Model) classStmt(s *pysource.Class) {
	c := m.classes[s]
	if c == nil {
		c = &ClassInfo{Def: s, Methods: map[string]*FuncInfo{}, Attrs: map[string]*Value{}}
		m.classes[s] = c
		m.Classes = append(m.Classes, c)
	}
	c.Bases = nil
	for _, b := range s.Bases {
		v := m.eval(b)
		switch v.Kind {
		case Namespace:
			c.Bases = append(c.Bases, v.Name)
			if r := m.project.lookup(m.File.Name, v.Name); r != nil {
				c.Bases = append(c.Bases, r.Bases...)
			}
			c.Bases = append(c.Bases, knownBases(v.Name)...)
		case Class:
			c.Bases = append(c.Bases, v.Class.Bases...)
			for name, f := range v.Class.Methods {
				if c.Methods[name] == nil && name != "__init__" {
					defer func() {
						if c.Methods[name] == nil {
							c.Methods[name] = f
						}
					}()
				}
			}
		}
	}
	for _, d := range s.Decorators {
		m.eval(d)
	}
	kind := Instance
	if c.Is("torch.nn.Module") {
		kind = Net
	}
	if c.self == nil {
		c.self = &Value{Kind: kind, Class: c, Name: s.Name, Origin: s}
	}
	c.self.Kind, c.self.Self = kind, c
	savedClass, savedEnv := m.class, m.env
	m.class, m.env = c, newEnv(m.env, false)
	m.block(s.Body)
	for name, v := range m.env.vars {
		if v.Kind != Func {
			c.Attrs[name] = join(c.Attrs[name], v)
		}
	}
	m.class, m.env = savedClass, savedEnv
	m.bind(s.Name, &Value{Kind: Class, Class: c, Name: s.Name, Origin: s})
	if init := c.Methods["__init__"]; init != nil && init.Class == c {
		m.analyse(init)
	}
}

// frameworkGradOff knows the methods that a framework calls with grad off.
func (c *ClassInfo) frameworkGradOff(method string) bool {
	switch method {
	case "validation_step", "test_step", "predict_step", "on_validation_epoch_end", "on_test_epoch_end":
		return c.Is("lightning.LightningModule")
	}
	return false
}
