// Package model gives Python source a meaning, as far as GPU memory is
// concerned: it follows values through assignments, calls, loops and branches
// of a file, and through the functions and classes of other files of the same
// scan, and knows which of them are tensors that hang on an autograd graph,
// modules, optimizers, loaders and so on. It goes by what a value is made from
// and what is done with it, never by its name. What it does not know stays
// Unknown, and rules stay silent about it.
package model

import (
	"strings"

	"vramscope/internal/pysource"
)

// Model is what is known about one file.
type Model struct {
	File    *pysource.File
	Funcs   []*FuncInfo
	Classes []*ClassInfo
	Calls   []*Call         // in the order of the source
	Imports map[string]bool // canonical top-level modules imported, and dotted modules

	project       *Project
	values        []*Value // by node ID: the value at the last pass
	memo          []*Value // by node ID: objects keep their identity between passes
	calls         []*Call  // by node ID
	funcs         map[pysource.Node]*FuncInfo
	classes       map[pysource.Node]*ClassInfo
	globals       *env
	env           *env
	fn            *FuncInfo // nil at the top level
	class         *ClassInfo
	grad          Tri // grad mode where execution is
	depth         int // of calls followed
	loops         int // nesting of loops executed
	pass          int
	byCallee      map[string][]*Call
	unbound       map[string]*Value // names that nothing binds
	binds         map[string]bool   // names that something in the file binds
	loopInfo      map[pysource.Node]*Loop
	moduleGradOff int // position of a bare set_grad_enabled(False) at the top level
}

// FuncInfo is a function or method of the file.
type FuncInfo struct {
	Def     *pysource.Function
	Class   *ClassInfo // of a method
	Outer   *FuncInfo
	Params  map[string]*Value
	Return  *Value
	Effects Effect
	Callers []*Call
	// GradOff says that the function runs with grad off: by its decorator, by
	// what the framework does around it, or because all its callers do.
	GradOff   bool
	Yields    bool
	Escapes   bool // used as a value: callers are not all known
	decorated bool
	analysed  int
	running   bool
	closure   *env
	gradOffAt int // position of a bare set_grad_enabled(False) in the body
}

// Name returns the function's name, with that of its class.
func (f *FuncInfo) Name() string {
	if f.Class != nil {
		return f.Class.Def.Name + "." + f.Def.Name
	}
	return f.Def.Name
}

// ClassInfo is a class of the file.
type ClassInfo struct {
	Def     *pysource.Class
	Bases   []string // canonical names, through the classes of the project
	Methods map[string]*FuncInfo
	Attrs   map[string]*Value
	self    *Value
}

// Call is a call expression with what it calls.
type Call struct {
	Node   *pysource.Call
	Callee string // "torch.load", "Tensor.backward", "?.step", "def:train", "class:Net", "range"
	Recv   *Value // of a method call
	Func   *FuncInfo
	Class  *ClassInfo
	Remote *Summary // a function or class of another file
	Grad   Tri      // grad mode at the call
	In     *FuncInfo
	Effect Effect

	callerOf *FuncInfo // in whose Callers this call is
}

// Method returns the last part of the callee.
func (c *Call) Method() string {
	return c.Callee[strings.LastIndexByte(c.Callee, '.')+1:]
}

// Effect is what a call does in a training step.
type Effect uint16

// The effects.
const (
	Forward Effect = 1 << iota
	Backward
	Step
	ZeroGrad
	Clip
	ScalerUpdate
	Allocates // makes something on the GPU
	EvalMode
	TrainMode
	EmptyCache
)

// env is a scope or an overlay of one during a branch.
type env struct {
	vars map[string]*Value
	up   *env // what the overlay lies on, or the enclosing function's scope
	over bool // an overlay: assignments below belong to the same scope
}

func newEnv(up *env, over bool) *env { return &env{map[string]*Value{}, up, over} }

func (e *env) lookup(name string) *Value {
	for ; e != nil; e = e.up {
		if v, ok := e.vars[name]; ok {
			return v
		}
	}
	return nil
}

// New reads a file's meaning. The project may be nil.
func New(f *pysource.File, project *Project) *Model {
	m := &Model{
		File: f, project: project,
		Imports:  map[string]bool{},
		values:   make([]*Value, f.NumNodes),
		memo:     make([]*Value, f.NumNodes),
		calls:    make([]*Call, f.NumNodes),
		funcs:    map[pysource.Node]*FuncInfo{},
		classes:  map[pysource.Node]*ClassInfo{},
		byCallee: map[string][]*Call{},
		unbound:  map[string]*Value{},
		binds:    boundNames(f),
		loopInfo: map[pysource.Node]*Loop{},
	}
	// Two passes: what is learnt from the use of a value late in the file, or
	// from a caller, holds in the second for the whole file.
	for m.pass = 1; m.pass <= 2; m.pass++ {
		m.globals = newEnv(nil, false)
		m.env, m.fn, m.class, m.grad = m.globals, nil, nil, Yes
		m.block(f.Body)
		for i := 0; i < len(m.Funcs); i++ { // grows while nested functions are met
			m.analyse(m.Funcs[i])
		}
		m.settle()
	}
	m.index()
	return m
}

// index orders the calls.
func (m *Model) index() {
	for _, c := range m.calls {
		if c != nil {
			m.Calls = append(m.Calls, c)
			m.byCallee[c.Callee] = append(m.byCallee[c.Callee], c)
		}
	}
}

// To returns the calls of any of the named things, in the order of the source
// for each name.
func (m *Model) To(callees ...string) []*Call {
	if len(callees) == 1 {
		return m.byCallee[callees[0]]
	}
	var out []*Call
	for _, c := range callees {
		out = append(out, m.byCallee[c]...)
	}
	return out
}

// Value returns what is known of an expression, never nil.
func (m *Model) Value(x pysource.Expr) *Value {
	if x == nil || m.values[x.ID()] == nil {
		return unknown
	}
	return m.values[x.ID()]
}

// Call returns what is known of a call expression, or nil where x is none.
func (m *Model) Call(x pysource.Node) *Call {
	c, ok := x.(*pysource.Call)
	if !ok {
		return nil
	}
	return m.calls[c.ID()]
}

// FuncOf returns the function of a def statement.
func (m *Model) FuncOf(n *pysource.Function) *FuncInfo { return m.funcs[n] }

// ClassOf returns the class of a class statement.
func (m *Model) ClassOf(n *pysource.Class) *ClassInfo { return m.classes[n] }

// Global returns the value of a name at the top level, or nil.
func (m *Model) Global(name string) *Value { return m.globals.vars[name] }

// settle decides, between passes, which functions run with grad off because
// every caller does.
func (m *Model) settle() {
	for range 3 {
		for _, f := range m.Funcs {
			if f.GradOff || f.Escapes || len(f.Callers) == 0 {
				continue
			}
			off := true
			for _, c := range f.Callers {
				if c.Grad != No && !(c.In != nil && c.In.GradOff) {
					off = false
				}
			}
			if off && m.project.calledWithGrad(m.File.Name, f.Name()) {
				off = false
			}
			f.GradOff = off
		}
	}
	for _, f := range m.Funcs {
		if len(f.Callers) == 0 && m.project.calledGradOffOnly(m.File.Name, f.Name()) {
			f.GradOff = true
		}
	}
	for range 3 { // effects through calls of calls
		for _, c := range m.calls {
			if c != nil && c.In != nil {
				if c.Func != nil {
					c.Effect |= c.Func.Effects
				}
				c.In.Effects |= c.Effect
			}
		}
	}
}

// analyse executes a function once a pass.
func (m *Model) analyse(f *FuncInfo) {
	if f.analysed >= m.pass || f.running {
		return
	}
	f.analysed, f.running = m.pass, true
	defer func() { f.running = false }()
	saved := struct {
		env   *env
		fn    *FuncInfo
		class *ClassInfo
		grad  Tri
		loops int
	}{m.env, m.fn, m.class, m.grad, m.loops}
	m.env, m.fn, m.class, m.grad, m.loops = newEnv(f.closure, false), f, f.Class, Yes, 0
	if f.GradOff {
		m.grad = No
	}
	for i, p := range f.Def.Params {
		m.env.vars[p.Name] = m.param(f, i, p)
	}
	m.block(f.Def.Body)
	m.env, m.fn, m.class, m.grad, m.loops = saved.env, saved.fn, saved.class, saved.grad, saved.loops
}

// param returns the value of a parameter: what callers gave, or an unknown one
// that learns from its use.
func (m *Model) param(f *FuncInfo, i int, p *pysource.Param) *Value {
	if i == 0 && f.Class != nil && !f.isStatic() {
		return f.Class.self
	}
	v := f.Params[p.Name]
	if v == nil {
		v = &Value{Param: p, Origin: p}
		switch p.Star {
		case "*":
			v.Kind, v.Elem = Tuple, &Value{Origin: p}
		case "**":
			v.Kind, v.Elem = Dict, &Value{Origin: p}
		default:
			if t := m.annotated(p.Ann); t != nil {
				c := *t
				c.Param, c.Origin = p, p
				v = &c
			}
		}
		f.Params[p.Name] = v
	}
	return v
}

func (f *FuncInfo) isStatic() bool {
	for _, d := range f.Def.Decorators {
		if n, ok := d.(*pysource.Name); ok && n.Ident == "staticmethod" {
			return true
		}
	}
	return false
}

// annotated returns an instance of the type that an annotation names, or nil.
func (m *Model) annotated(ann pysource.Expr) *Value {
	switch ann.(type) {
	case *pysource.Name, *pysource.Attribute:
	default:
		return nil
	}
	t := m.eval(ann)
	switch t.Kind {
	case Class:
		if t.Class.Is("torch.nn.Module") {
			return &Value{Kind: Net, Class: t.Class, Name: t.Class.Def.Name}
		}
	case Namespace:
		switch t.Name {
		case "int", "float", "bool":
			return &Value{Kind: Number}
		case "str":
			return &Value{Kind: String}
		case "torch.Tensor":
			return &Value{Kind: Tensor}
		case "torch.optim.Optimizer", "torch.optim.optimizer.Optimizer":
			return &Value{Kind: Optimizer, Name: t.Name}
		case "torch.utils.data.DataLoader":
			return &Value{Kind: Loader}
		case "torch.nn.Module":
			return &Value{Kind: Net}
		}
	}
	return nil
}

// Is reports whether the class is or derives from the one named, as far as the
// project shows.
func (c *ClassInfo) Is(names ...string) bool {
	if c == nil {
		return false
	}
	for _, b := range c.Bases {
		for _, n := range names {
			if b == n {
				return true
			}
		}
	}
	return false
}

// note keeps the value of an expression.
func (m *Model) note(x pysource.Expr, v *Value) *Value {
	if v == nil {
		v = unknown
	}
	m.values[x.ID()] = v
	return v
}

// object gives the expression x its own value, which keeps its identity and
// what was learnt about it from pass to pass.
func (m *Model) object(x pysource.Node, fresh Value) *Value {
	old := m.memo[x.ID()]
	if old == nil {
		old = &Value{}
		m.memo[x.ID()] = old
	} else if old.refined && (fresh.Kind == Unknown || fresh.Kind == Tensor && fresh.Graph == Maybe) {
		if old.Kind == Tensor && m.grad == No {
			old.Graph = No
		}
		return old
	}
	fresh.attrs, fresh.used = old.attrs, old.used
	if fresh.Origin == nil {
		fresh.Origin = x
	}
	if fresh.Elem == nil {
		fresh.Elem = old.Elem
	}
	*old = fresh
	return old
}
