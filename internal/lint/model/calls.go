package model

import (
	"strings"

	"vramscope/internal/pysource"
)

// maxDepth bounds how far calls are followed.
const maxDepth = 12

// call evaluates a call and records it.
func (m *Model) call(x *pysource.Call) *Value {
	c := m.calls[x.ID()]
	if c == nil {
		c = &Call{Node: x}
		m.calls[x.ID()] = c
	}
	c.Effect = 0
	var fun *Value
	if a, ok := x.Fun.(*pysource.Attribute); ok {
		recv := m.eval(a.X)
		fun = m.note(a, m.attribute(a, recv))
		c.Recv = recv
		c.Callee = m.methodName(recv, fun, a.Name)
	} else {
		fun = m.eval(x.Fun)
		c.Recv = nil
		c.Callee = calleeName(fun)
	}
	args := make([]*Value, len(x.Args))
	for i, a := range x.Args {
		args[i] = m.eval(a)
	}
	for _, k := range x.Keywords {
		m.eval(k.Value)
	}
	c.In, c.Grad = m.fn, m.grad
	c.Func, c.Class, c.Remote = nil, nil, nil
	v := m.apply(c, fun, args)
	c.Effect |= effectOf(c, m)
	if c.Func != nil {
		c.Effect |= c.Func.Effects
	}
	if m.fn != nil {
		m.fn.Effects |= c.Effect
	}
	return v
}

func calleeName(fun *Value) string {
	switch {
	case len(fun.Alts) > 0 && fun.Kind != Namespace:
		if fun.Is(Net) {
			return "Net()"
		}
		return "?"
	case fun.Kind == Namespace:
		return fun.Name
	case fun.Kind == Func && fun.Func != nil:
		return "def:" + fun.Func.Name()
	case fun.Kind == Class && fun.Class != nil:
		return "class:" + fun.Class.Def.Name
	case fun.Kind == Net:
		return "Net()"
	case fun.Kind == Object:
		return fun.Name + "()"
	}
	return "?"
}

// methodName names what recv.attr() calls: by the kind of the receiver, "?."
// where that is not known.
func (m *Model) methodName(recv, fun *Value, attr string) string {
	if fun.Kind == Namespace || fun.Kind == Func && fun.Func != nil || fun.Kind == Class && fun.Class != nil {
		return calleeName(fun)
	}
	for _, k := range []Kind{Tensor, Net, Optimizer, Scheduler, Scaler, Loader, List, Dict, Set, Tuple, String, Params, Array, StateDict} {
		if recv.Is(k) {
			if fun.Kind == Net { // a submodule
				return "Net()"
			}
			return k.String() + "." + attr
		}
	}
	if recv.Kind == Object && recv.Name != "" {
		return recv.Name + "." + attr
	}
	if fun.Kind == Net {
		return "Net()"
	}
	return "?." + attr
}

// apply returns the result of a call, and learns about the receiver.
func (m *Model) apply(c *Call, fun *Value, args []*Value) *Value {
	x := c.Node
	switch {
	case fun.Kind == Func && fun.Func != nil:
		c.Func = fun.Func
		addCaller(fun.Func, c)
		m.bindArgs(fun.Func, x, args, fun.Func.Class != nil && !fun.Func.isStatic() && (fun.Self != nil || c.Recv != nil && c.Recv.Kind != Class))
		return m.result(x, fun.Func, args)
	case fun.Kind == Class && fun.Class != nil:
		return m.construct(c, fun.Class, args)
	case fun.Is(Net):
		return m.forward(c, fun, args)
	case fun.Kind == Namespace:
		if r := m.project.lookup(m.File.Name, fun.Name); r != nil {
			c.Remote = r
			return m.remote(c, r)
		}
		return m.known(c, fun.Name, args)
	case fun.Kind == Object && fun.Name == "lambda":
		return m.object(x, Value{Of: fun})
	case fun.Kind == Object && fun.Name != "":
		return m.known(c, fun.Name+"()", args)
	}
	if c.Recv != nil {
		return m.method(c, args)
	}
	fun.use(usedCall)
	if fun.Is(Net) {
		return m.forward(c, fun, args)
	}
	return m.object(x, Value{Of: fun})
}

func addCaller(f *FuncInfo, c *Call) {
	if c.callerOf != f {
		c.callerOf = f
		f.Callers = append(f.Callers, c)
	}
}

// bindArgs gives the parameters of a function what a call passes.
func (m *Model) bindArgs(f *FuncInfo, x *pysource.Call, args []*Value, bound bool) {
	params := f.Def.Params
	if bound && len(params) > 0 {
		params = params[1:]
	}
	give := func(p *pysource.Param, v *Value) {
		if p.Star != "" || v == unknown || v == nil {
			return
		}
		old := f.Params[p.Name]
		if v.Kind == Unknown && len(v.Alts) == 0 {
			// What the callee learns about its parameter does not depend on
			// a caller who knows nothing.
			if old == nil {
				return
			}
			return
		}
		if old != nil && old.Kind == Unknown && len(old.Alts) == 0 {
			old = nil
		}
		j := join(old, v)
		if len(j.Alts) >= maxAlts {
			return
		}
		f.Params[p.Name] = j
	}
	for i, v := range args {
		if _, star := x.Args[i].(*pysource.Starred); star || i >= len(params) || params[i].Star != "" {
			break
		}
		give(params[i], v)
	}
	for _, k := range x.Keywords {
		for _, p := range params {
			if p.Name == k.Name {
				give(p, m.Value(k.Value))
			}
		}
	}
}

// result is the value of a call of a function of this file.
func (m *Model) result(x pysource.Node, f *FuncInfo, args []*Value) *Value {
	if m.depth < maxDepth {
		m.depth++
		m.analyse(f)
		m.depth--
	}
	if f.Yields {
		return m.object(x, Value{Kind: Object, Name: "generator", Func: f})
	}
	r := f.Return
	if r == nil || r.Kind == Unknown && len(r.Alts) == 0 {
		return m.object(x, Value{})
	}
	// The result is its own object: what this caller does with it says nothing
	// about what others get.
	return m.object(x, m.copied(*r, 0))
}

// copied returns a value without identity, with the graph that the grad mode
// here allows.
func (m *Model) copied(v Value, depth int) Value {
	v.attrs, v.used, v.refined, v.Param, v.Origin = nil, 0, false, nil, nil
	if v.Kind == Tensor && m.grad == No && v.Graph == Yes {
		v.Graph = No
	}
	if depth < 3 {
		v.Elems = m.copies(v.Elems, depth)
		v.Alts = m.copies(v.Alts, depth)
	}
	return v
}

func (m *Model) copies(vs []*Value, depth int) []*Value {
	var out []*Value
	for _, v := range vs {
		c := m.copied(*v, depth+1)
		c.Origin = v.Origin
		out = append(out, &c)
	}
	return out
}

// construct is the value of Class(…).
func (m *Model) construct(c *Call, class *ClassInfo, args []*Value) *Value {
	c.Class = class
	if init := class.Methods["__init__"]; init != nil {
		addCaller(init, c)
		m.bindArgs(init, c.Node, args, true)
	}
	kind := Instance
	switch {
	case class.Is("torch.nn.Module"):
		kind = Net
	case class.Is("torch.optim.Optimizer"):
		kind = Optimizer
	case class.Is("torch.utils.data.DataLoader"):
		kind = Loader
	}
	return m.object(c.Node, Value{Kind: kind, Class: class, Name: class.Def.Name, Dev: ""})
}

// remote is the value of a call of something in another file of the scan.
func (m *Model) remote(c *Call, r *Summary) *Value {
	c.Effect |= r.Effects
	v := r.Result
	if v.Kind == Tensor && m.grad == No {
		v.Graph = No
	}
	return m.object(c.Node, v)
}

// forward is the value of module(…).
func (m *Model) forward(c *Call, fun *Value, args []*Value) *Value {
	c.Effect |= Forward
	fun.use(usedCall)
	v := Value{Kind: Tensor, Graph: Yes, Loose: true, Dev: fun.Dev, Of: fun}
	inputs := No
	for _, a := range args {
		if a.HasGraph() {
			inputs = Yes
		} else if inputs == No && (a.Kind == Unknown || a.Kind == Tensor && a.Graph == Maybe) {
			inputs = Maybe
		}
		if v.Dev == "" && a.May(Tensor) {
			v.Dev = a.Dev
		}
	}
	switch {
	case m.grad == No:
		v.Graph = No
	case m.grad == Maybe:
		v.Graph = Maybe
	case fun.Frozen, isLossFunction(fun.Name), isParameterless(fun.Name):
		// Only as much graph as the inputs have. (A loss class has no parameters.)
		v.Graph = inputs
	}
	if isLossFunction(fun.Name) {
		v.Name = "reduced"
	}
	if isLossFunction(fun.Name) || strings.HasPrefix(fun.Name, "torch.nn.") && fun.Name != "torch.nn.MultiheadAttention" && !isRecurrent(fun.Name) {
		v.Loose = false
	}
	if fun.Class != nil {
		if f := fun.Class.Methods["forward"]; f != nil {
			addCaller(f, c)
			m.bindArgs(f, c.Node, args, true)
			if m.depth < maxDepth {
				m.depth++
				m.analyse(f)
				m.depth--
			}
			if r := f.Return; r != nil && f.Class == fun.Class {
				switch {
				case r.Is(Tensor) && r.Graph != Maybe && !r.Loose:
					v.Loose = false
				case r.Kind == Tuple && len(r.Elems) > 0, r.Kind == Dict:
					v.Loose = true
				}
			}
		}
	}
	return m.object(c.Node, v)
}

func isRecurrent(name string) bool {
	switch name {
	case "torch.nn.RNN", "torch.nn.LSTM", "torch.nn.GRU", "torch.nn.LSTMCell":
		return true
	}
	return false
}

func isParameterless(name string) bool {
	switch name {
	case "torch.nn.ReLU", "torch.nn.Softmax", "torch.nn.LogSoftmax", "torch.nn.Sigmoid", "torch.nn.Tanh", "torch.nn.Dropout",
		"torch.nn.GELU", "torch.nn.Flatten", "torch.nn.Identity", "torch.nn.MaxPool2d", "torch.nn.AvgPool2d", "torch.nn.Upsample", "torch.nn.CosineSimilarity":
		return true
	}
	return false
}

func isLossFunction(name string) bool {
	return strings.HasPrefix(name, "torch.nn.") && strings.HasSuffix(name, "Loss")
}

// arg returns the keyword or positional argument of a call, or nil.
func arg(x *pysource.Call, pos int, name string) pysource.Expr {
	for _, k := range x.Keywords {
		if k.Name == name && name != "" {
			return k.Value
		}
	}
	if pos >= 0 && pos < len(x.Args) {
		for _, a := range x.Args[:pos+1] {
			if _, star := a.(*pysource.Starred); star {
				return nil
			}
		}
		return x.Args[pos]
	}
	return nil
}

// Arg returns the argument of a call by position (-1: only by keyword) or
// keyword, or nil.
func (c *Call) Arg(pos int, name string) pysource.Expr { return arg(c.Node, pos, name) }

// HasStar reports whether the call passes *args or **kwargs, so that any
// argument may be given.
func (c *Call) HasStar() bool {
	for _, a := range c.Node.Args {
		if _, ok := a.(*pysource.Starred); ok {
			return true
		}
	}
	for _, k := range c.Node.Keywords {
		if k.Name == "" {
			return true
		}
	}
	return false
}
