package pysource

// Children calls f for each direct part of n, in the order of the source as far
// as the grammar has one.
func Children(n Node, f func(Node)) {
	e := func(x Expr) {
		if x != nil {
			f(x)
		}
	}
	es := func(xs []Expr) {
		for _, x := range xs {
			e(x)
		}
	}
	ss := func(xs []Stmt) {
		for _, x := range xs {
			f(x)
		}
	}
	params := func(ps []*Param) {
		for _, p := range ps {
			f(p)
		}
	}
	keywords := func(ks []*Keyword) {
		for _, k := range ks {
			f(k)
		}
	}
	switch n := n.(type) {
	case *Str:
		es(n.Parts)
	case *Attribute:
		e(n.X)
	case *Call:
		e(n.Fun)
		es(n.Args)
		keywords(n.Keywords)
	case *Keyword:
		e(n.Value)
	case *Subscript:
		e(n.X)
		e(n.Index)
	case *Slice:
		e(n.Lo)
		e(n.Hi)
		e(n.Step)
	case *Sequence:
		es(n.Elts)
	case *Dict:
		for i := range n.Values {
			e(n.Keys[i])
			e(n.Values[i])
		}
	case *Unary:
		e(n.X)
	case *Binary:
		e(n.L)
		e(n.R)
	case *Bool:
		es(n.Xs)
	case *Compare:
		es(n.Xs)
	case *Cond:
		e(n.Then)
		e(n.Test)
		e(n.Else)
	case *Lambda:
		params(n.Params)
		e(n.Body)
	case *Comp:
		e(n.Elt)
		e(n.Value)
		for _, c := range n.Fors {
			f(c)
		}
	case *CompFor:
		e(n.Target)
		e(n.Iter)
		es(n.Ifs)
	case *Await:
		e(n.X)
	case *Yield:
		e(n.X)
	case *Walrus:
		e(n.Target)
		e(n.Value)
	case *Starred:
		e(n.X)
	case *Param:
		e(n.Ann)
		e(n.Default)
	case *ExprStmt:
		e(n.X)
	case *Assign:
		es(n.Targets)
		e(n.Value)
	case *AugAssign:
		e(n.Target)
		e(n.Value)
	case *AnnAssign:
		e(n.Target)
		e(n.Ann)
		e(n.Value)
	case *Return:
		e(n.X)
	case *Raise:
		e(n.X)
		e(n.From)
	case *Delete:
		es(n.Xs)
	case *Assert:
		e(n.Test)
		e(n.Msg)
	case *If:
		e(n.Test)
		ss(n.Body)
		ss(n.Else)
	case *For:
		e(n.Target)
		e(n.Iter)
		ss(n.Body)
		ss(n.Else)
	case *While:
		e(n.Test)
		ss(n.Body)
		ss(n.Else)
	case *Try:
		ss(n.Body)
		for _, h := range n.Handlers {
			f(h)
		}
		ss(n.Else)
		ss(n.Finally)
	case *Handler:
		e(n.Type)
		ss(n.Body)
	case *With:
		for _, it := range n.Items {
			f(it)
		}
		ss(n.Body)
	case *WithItem:
		e(n.X)
		e(n.Target)
	case *Function:
		es(n.Decorators)
		params(n.Params)
		e(n.Returns)
		ss(n.Body)
	case *Class:
		es(n.Decorators)
		es(n.Bases)
		keywords(n.Keywords)
		ss(n.Body)
	case *Match:
		e(n.Subject)
		for _, c := range n.Cases {
			f(c)
		}
	case *Case:
		e(n.Pattern)
		e(n.Guard)
		ss(n.Body)
	case *TypeAlias:
		e(n.Value)
	}
}

// Inspect calls f for n and, where f returns true, for all that is in it.
func Inspect(n Node, f func(Node) bool) {
	if !f(n) {
		return
	}
	Children(n, func(c Node) { Inspect(c, f) })
}

// InspectAll is Inspect for a list of statements.
func InspectAll(body []Stmt, f func(Node) bool) {
	for _, s := range body {
		Inspect(s, f)
	}
}
