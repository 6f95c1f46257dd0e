package model

import (
	"strings"

	"vramscope/internal/pysource"
)

// eval returns the value of an expression and remembers it.
func (m *Model) eval(x pysource.Expr) *Value {
	if x == nil {
		return unknown
	}
	switch x := x.(type) {
	case *pysource.Name:
		return m.note(x, m.name(x))
	case *pysource.Number:
		return m.note(x, &Value{Kind: Number, Const: x.Text, Origin: x})
	case *pysource.Str:
		for _, p := range x.Parts {
			m.eval(p)
		}
		if x.Formatted {
			return m.note(x, &Value{Kind: String, Origin: x})
		}
		return m.note(x, &Value{Kind: String, Const: x.Value, Origin: x})
	case *pysource.Constant:
		switch x.Text {
		case "None":
			return m.note(x, &Value{Kind: None, Origin: x})
		case "True", "False":
			return m.note(x, &Value{Kind: Number, Const: x.Text, Origin: x})
		}
		return m.note(x, unknown)
	case *pysource.Attribute:
		return m.note(x, m.attribute(x, m.eval(x.X)))
	case *pysource.Call:
		return m.note(x, m.call(x))
	case *pysource.Subscript:
		return m.note(x, m.subscript(x))
	case *pysource.Slice:
		m.eval(x.Lo)
		m.eval(x.Hi)
		m.eval(x.Step)
		return unknown
	case *pysource.Sequence:
		return m.note(x, m.sequence(x))
	case *pysource.Dict:
		var elem *Value
		var elems []*Value
		for i, v := range x.Values {
			m.eval(x.Keys[i])
			e := m.eval(v)
			elem = join(elem, e)
			elems = append(elems, e)
		}
		return m.note(x, m.object(x, Value{Kind: Dict, Elem: elem, Elems: elems}))
	case *pysource.Unary:
		v := m.eval(x.X)
		if x.Op == "not" {
			return m.note(x, &Value{Kind: Number, Origin: x})
		}
		return m.note(x, m.arith(x, v, nil))
	case *pysource.Binary:
		return m.note(x, m.binary(x))
	case *pysource.Bool:
		var v *Value
		for _, e := range x.Xs {
			v = join(v, m.eval(e))
		}
		return m.note(x, v)
	case *pysource.Compare:
		tensor := false
		for _, e := range x.Xs {
			tensor = m.eval(e).Is(Tensor) || tensor
		}
		if tensor && x.Ops[0] != "is" && x.Ops[0] != "is not" && x.Ops[0] != "in" && x.Ops[0] != "not in" {
			return m.note(x, &Value{Kind: Tensor, Graph: No, Origin: x})
		}
		return m.note(x, &Value{Kind: Number, Origin: x})
	case *pysource.Cond:
		m.eval(x.Test)
		return m.note(x, join(m.eval(x.Then), m.eval(x.Else)))
	case *pysource.Lambda:
		return m.note(x, m.lambda(x))
	case *pysource.Comp:
		return m.note(x, m.comprehension(x))
	case *pysource.Await:
		return m.note(x, m.eval(x.X))
	case *pysource.Yield:
		m.eval(x.X)
		return m.note(x, unknown)
	case *pysource.Walrus:
		v := m.eval(x.Value)
		m.assign(x.Target, v)
		return m.note(x, v)
	case *pysource.Starred:
		return m.note(x, m.eval(x.X))
	}
	return unknown
}

func (m *Model) name(x *pysource.Name) *Value {
	if v := m.env.lookup(x.Ident); v != nil {
		if v.Kind == Func && v.Func != nil {
			v.Func.Escapes = v.Func.Escapes || !m.isCalled(x)
		}
		return v
	}
	return m.unboundName(x.Ident)
}

// isCalled reports whether x is what a call calls.
func (m *Model) isCalled(x pysource.Expr) bool {
	c, ok := m.File.Parent(x).(*pysource.Call)
	return ok && c.Fun == x
}

func (m *Model) attribute(x *pysource.Attribute, v *Value) *Value {
	if len(v.Alts) > 0 {
		var out *Value
		for _, a := range v.Alts {
			if a.Kind != None && a.Kind != Number {
				out = join(out, m.attributeOf(x, a))
			}
		}
		if out != nil {
			return out
		}
	}
	return m.attributeOf(x, v)
}

func (m *Model) attributeOf(x *pysource.Attribute, v *Value) *Value {
	switch v.Kind {
	case Namespace:
		return m.namespace(x, v.Name+"."+x.Name)
	case Tensor:
		if v.attrs[x.Name] != nil && x.Name != "data" && x.Name != "grad" {
			return v.attrs[x.Name]
		}
		switch x.Name {
		case "data":
			c := *v
			c.Graph, c.Origin, c.attrs, c.Of = No, x, nil, v
			return &c
		case "grad":
			return m.object(x, Value{Kind: Tensor, Graph: No, Dev: v.Dev, Name: "gradient", Of: v})
		case "shape":
			return m.object(x, Value{Kind: Shape, Of: v})
		case "device":
			return m.object(x, Value{Kind: Device, Const: v.Dev})
		case "dtype":
			return m.object(x, Value{Kind: DType, Const: v.DType})
		case "requires_grad", "is_cuda", "ndim", "itemsize", "nbytes":
			return &Value{Kind: Number, Origin: x}
		case "grad_fn":
			return m.object(x, Value{})
		case "T", "mT", "H", "real", "imag":
			c := *v
			c.Origin, c.attrs, c.Of = x, nil, v
			return &c
		}
		if v.Loose && !isTensorMethod(x.Name) {
			return m.object(x, Value{Kind: Tensor, Graph: v.Graph, Loose: true, Dev: v.Dev, Of: v})
		}
		return m.object(x, Value{Of: v})
	case Instance, Net:
		if v.Class != nil {
			if a := v.Class.Attrs[x.Name]; a != nil {
				return a
			}
			if f := v.Class.Methods[x.Name]; f != nil {
				if isProperty(f) {
					return m.result(x, f, nil)
				}
				f.Escapes = f.Escapes || !m.isCalled(x)
				return m.object(x, Value{Kind: Func, Func: f, Self: v.Class, Of: v})
			}
			if v.Self != nil {
				// An attribute that is set elsewhere, or by a base: one value
				// for the whole class, which learns from its use.
				a := &Value{Origin: x, Of: v}
				v.Class.Attrs[x.Name] = a
				return a
			}
		}
		if v.Kind == Net {
			if a := v.attrs[x.Name]; a != nil {
				return a
			}
			return m.object(x, Value{Of: v})
		}
	case Shape:
		return m.object(x, Value{Kind: Number})
	case Class:
		if f := v.Class.Methods[x.Name]; f != nil {
			f.Escapes = f.Escapes || !m.isCalled(x)
			return m.object(x, Value{Kind: Func, Func: f, Of: v})
		}
		if a := v.Class.Attrs[x.Name]; a != nil {
			return a
		}
	case Unknown, Object, Dict, Optimizer, Loader:
		if v == unknown {
			return m.object(x, Value{})
		}
		if x.Name == "param_groups" {
			v.use(usedStep | usedZeroGrad)
		}
		if m.isCalled(x) {
			return m.object(x, Value{Of: v})
		}
		if v.attrs == nil {
			v.attrs = map[string]*Value{}
		}
		a := v.attrs[x.Name]
		if a == nil {
			a = &Value{Origin: x, Of: v}
			v.attrs[x.Name] = a
		}
		return a
	}
	return m.object(x, Value{Of: v})
}

func isProperty(f *FuncInfo) bool {
	for _, d := range f.Def.Decorators {
		if n, ok := d.(*pysource.Name); ok && (n.Ident == "property" || n.Ident == "cached_property") {
			return true
		}
	}
	return false
}

// namespace returns what a dotted name stands for.
func (m *Model) namespace(x pysource.Node, name string) *Value {
	name = m.canonical(name)
	if d := dtypeOf(name); d != "" {
		return &Value{Kind: DType, Const: d, Origin: x}
	}
	return &Value{Kind: Namespace, Name: name, Origin: x}
}

func (m *Model) setAttr(obj *Value, name string, v *Value) {
	for _, a := range obj.Alts {
		m.setAttr(a, name, v)
	}
	if len(obj.Alts) > 0 || obj == unknown {
		return
	}
	if obj.Class != nil && (obj.Kind == Instance || obj.Kind == Net) {
		old := obj.Class.Attrs[name]
		if old != nil && old.Kind == None {
			old = nil // self.x = None in __init__ says nothing
		}
		if old != nil && v.Kind == None {
			return
		}
		obj.Class.Attrs[name] = join(old, v)
		return
	}
	if obj.Kind == Namespace {
		return
	}
	if obj.attrs == nil {
		obj.attrs = map[string]*Value{}
	}
	obj.attrs[name] = v
}

func (m *Model) subscript(x *pysource.Subscript) *Value {
	v := m.eval(x.X)
	m.eval(x.Index)
	if v.Is(Tensor) {
		e := Value{Kind: Tensor, Graph: v.Graph, Dev: v.Dev, DType: v.DType, Loose: v.Loose, Of: v, Name: "view"}
		if len(v.Alts) > 0 {
			e.Graph = Maybe
			if v.HasGraph() {
				e.Graph = Yes
			}
		}
		return m.object(x, e)
	}
	if n, ok := x.Index.(*pysource.Number); ok && len(v.Elems) > 0 && v.Kind != Dict {
		if i := int(n.Text[0] - '0'); len(n.Text) == 1 && i < len(v.Elems) {
			return v.Elems[i]
		}
	}
	if s, ok := x.Index.(*pysource.Str); ok && v.Kind == Dict {
		if d, ok := v.Origin.(*pysource.Dict); ok {
			for i, k := range d.Keys {
				if ks, ok := k.(*pysource.Str); ok && ks.Value == s.Value && i < len(v.Elems) {
					return v.Elems[i]
				}
			}
		}
	}
	if _, ok := x.Index.(*pysource.Slice); ok {
		switch v.Kind {
		case List, Tuple, String, Shape:
			c := *v
			c.Elems, c.Origin, c.attrs, c.Const = nil, x, nil, ""
			if c.Elem == nil {
				for _, e := range v.Elems {
					c.Elem = join(c.Elem, e)
				}
			}
			return &c
		}
	}
	switch {
	case v.Kind == Shape:
		return &Value{Kind: Number, Origin: x}
	case v.Elem != nil:
		return v.Elem
	case len(v.Elems) > 0 && v.Kind != Dict:
		var e *Value
		for _, a := range v.Elems {
			e = join(e, a)
		}
		return e
	case v.Kind == Namespace: // list[int], Optional[x]
		return v
	case v.Kind == Net:
		return m.object(x, Value{Kind: Net, Of: v, Dev: v.Dev})
	case v.Kind == StateDict:
		return m.object(x, Value{Kind: Tensor, Graph: No, Of: v})
	}
	return m.object(x, Value{Of: v})
}

func (m *Model) sequence(x *pysource.Sequence) *Value {
	v := Value{Kind: Tuple}
	switch x.Kind {
	case '[':
		v.Kind = List
	case '{':
		v.Kind = Set
	}
	star := false
	for _, e := range x.Elts {
		ev := m.eval(e)
		if _, ok := e.(*pysource.Starred); ok {
			star = true
			if ev.Elem != nil {
				ev = ev.Elem
			}
		}
		v.Elems = append(v.Elems, ev)
	}
	if star {
		for _, e := range v.Elems {
			v.Elem = join(v.Elem, e)
		}
		v.Elems = nil
	}
	if len(v.Elems) > 64 { // a table of data
		v.Elem, v.Elems = v.Elems[0], nil
	}
	return m.object(x, v)
}

func (m *Model) binary(x *pysource.Binary) *Value {
	l, r := m.eval(x.L), m.eval(x.R)
	if x.Op == "%" && l.Is(String) {
		return &Value{Kind: String, Origin: x}
	}
	if x.Op == "+" || x.Op == "*" {
		for _, k := range []Kind{String, List, Tuple} {
			if l.Is(k) || x.Op == "*" && r.Is(k) {
				c := Value{Kind: k, Elem: join(l.Elem, r.Elem)}
				for _, e := range append(append([]*Value{}, l.Elems...), r.Elems...) {
					c.Elem = join(c.Elem, e)
				}
				return m.object(x, c)
			}
		}
	}
	return m.arith(x, l, r)
}

// arith is the result of an arithmetic operation; r is nil for one operand.
func (m *Model) arith(x pysource.Node, l, r *Value) *Value {
	if r == nil {
		r = &Value{Kind: Number}
	}
	switch {
	case l.May(Tensor) || r.May(Tensor):
		v := Value{Kind: Tensor, Graph: No}
		for _, o := range []*Value{l, r} {
			switch {
			case o.needsGrad():
				v.Graph = Yes
			case v.Graph == Yes:
			case o.Kind == Tensor && o.Graph == Maybe, o.Kind == Unknown:
				v.Graph = Maybe
			}
			if o.May(Tensor) {
				if v.Dev == "" {
					v.Dev = o.Dev
				}
				if o.DType != "" {
					v.DType = o.DType
				}
				if o.Reduced() && v.Name == "" {
					v.Name = "reduced"
				} else if !o.Reduced() {
					v.Name = "full"
				}
			}
		}
		if m.grad == No {
			v.Graph = No
		}
		return m.object(x, v)
	case l.Is(Array) || r.Is(Array):
		return m.object(x, Value{Kind: Array})
	case l.Is(Number) && r.Is(Number):
		return m.object(x, Value{Kind: Number})
	}
	return m.object(x, Value{})
}

func (m *Model) lambda(x *pysource.Lambda) *Value {
	saved := m.env
	m.env = newEnv(saved, true)
	for _, p := range x.Params {
		if p.Default != nil {
			m.eval(p.Default)
		}
		m.env.vars[p.Name] = m.object(p, Value{Param: p})
	}
	ret := m.eval(x.Body)
	m.env = saved
	return m.object(x, Value{Kind: Object, Name: "lambda", Elem: ret})
}

func (m *Model) comprehension(x *pysource.Comp) *Value {
	saved := m.env
	m.env = newEnv(saved, true)
	for _, f := range x.Fors {
		iter := m.eval(f.Iter)
		m.assign(f.Target, m.element(f.Target, iter))
		for _, c := range f.Ifs {
			m.eval(c)
		}
	}
	elem := m.eval(x.Elt)
	kind := List
	switch x.Kind {
	case '{':
		kind = Set
	case ':':
		kind = Dict
		elem = m.eval(x.Value)
	}
	m.env = saved
	return m.object(x, Value{Kind: kind, Elem: elem})
}

// constText returns the literal text of a value, or "".
func constText(v *Value) string {
	if v == nil {
		return ""
	}
	return strings.TrimSpace(v.Const)
}
