package rules

import (
	"strings"

	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

var jaxRules = []Rule{
	{
		ID: "GM1301", Name: "jax-takes-card", Group: "jax", Severity: Warning,
		Says:    "JAX and PyTorch share the card, and JAX is not told to leave some.",
		Cost:    "the first JAX operation reserves 75 % of the card",
		Instead: "os.environ[\"XLA_PYTHON_CLIENT_PREALLOCATE\"] = \"false\" before import jax",
		Quiet:   "any XLA memory setting in the scan; JAX on the CPU",
		Source:  "jax docs/gpu_memory_allocation.rst; jax2torch#2", Remedy: "R48",
		Check: jaxTakesCard,
	},
	{
		ID: "GM1303", Name: "step-without-donation", Group: "jax", Severity: Warning,
		Says:    "A jitted step takes the state and returns a new one, without donating the old.",
		Cost:    "old and new parameters and optimizer state exist together: 12 bytes per parameter for Adam in float32",
		Instead: "@functools.partial(jax.jit, donate_argnums=(0,))",
		Quiet:   "the old state is used afterwards; functions within another jit",
		Source:  "jax docs/buffer_donation.md; PR poets-ai/elegy#226", Remedy: "R52",
		Check: stepWithoutDonation,
	},
	{
		ID: "GM1304", Name: "donation-fault", Group: "jax", Severity: Error,
		Says:    "A donated argument is passed by keyword, or used again.",
		Cost:    "by keyword nothing is donated; used again: “Array has been deleted”",
		Instead: "state = step(state, batch)",
		Quiet:   "the name is given the new value",
		Source:  "jax docs/buffer_donation.md; PR google/flax#5482", Remedy: "R52",
		Check: donationFault,
	},
	{
		ID: "GM1305", Name: "jit-in-loop", Group: "jax", Severity: Warning,
		Says:    "jax.jit of a new function in every round of a loop.",
		Cost:    "a compilation and a cached executable a round, none of them shared",
		Instead: "jit once before the loop",
		Quiet:   "loops of a known small number of rounds",
		Source:  "jax#19429, #2072", Remedy: "R52",
		Check: jitInLoop,
	},
	{
		ID: "GM1309", Name: "constant-in-jit", Group: "jax", Severity: Info,
		Says:    "A jitted function uses an array from outside.",
		Cost:    "it is embedded as a constant: a copy on the host at compile time and one on the device per executable (newer versions may pass it as an argument)",
		Instead: "pass it as an argument",
		Quiet:   "small literals",
		Source:  "JAX documentation (inference)", Remedy: "R52",
		Check: constantInJit,
	},
}

func jaxTakesCard(p *Pass) {
	jax, torch := p.imported("jax", len(p.File.Src)), p.imported("torch", len(p.File.Src))
	if jax < 0 || torch < 0 || p.Around.LimitsJAX || p.IsTest || p.mentions("XLA_PYTHON_CLIENT", "XLA_CLIENT_MEM", "JAX_PLATFORM", "jax_platform") {
		return
	}
	usesJAX, usesTorch := false, false
	for _, c := range p.calls() {
		usesJAX = usesJAX || usesJAXDevice(c.Callee)
		v := p.M.Value(c.Node)
		usesTorch = usesTorch || v.Dev == "cuda" || strings.HasPrefix(c.Callee, "torch.cuda.")
	}
	if usesJAX && usesTorch {
		end := jax + strings.IndexByte(p.File.Src[jax:]+"\n", '\n')
		p.ReportAt(jax, end, "JAX reserves 75 %% of the card at its first operation, and PyTorch shares it here. Set XLA_PYTHON_CLIENT_PREALLOCATE=false before this import.")
	}
}

// jitted is a function under jax.jit.
type jitted struct {
	f       *model.FuncInfo
	at      pysource.Node
	nums    map[int]bool    // donate_argnums
	names   map[string]bool // donate_argnames
	unknown bool            // donates what the source does not say
}

func (j *jitted) donates() bool { return len(j.nums)+len(j.names) > 0 || j.unknown }

// jitCalls finds the functions of the file that are jitted, by decorator or by
// call, with the name under which the result is called.
func (p *Pass) jitted() map[string]*jitted {
	out := map[string]*jitted{}
	for _, f := range p.M.Funcs {
		for _, d := range f.Def.Decorators {
			j := &jitted{f: f, at: d}
			if v := p.M.Value(d); v.Kind == model.Namespace && v.Name == "jax.jit" {
				out[f.Def.Name] = j
				continue
			}
			c := p.M.Call(d)
			if c == nil {
				continue
			}
			isJit := c.Callee == "jax.jit"
			if c.Callee == "functools.partial" && len(c.Node.Args) > 0 && p.M.Value(c.Node.Args[0]).Name == "jax.jit" {
				isJit = true
			}
			if isJit {
				p.donation(j, c)
				out[f.Def.Name] = j
			}
		}
	}
	for _, c := range p.M.To("jax.jit") {
		a, ok := p.File.Parent(c.Node).(*pysource.Assign)
		if !ok || len(a.Targets) != 1 || len(c.Node.Args) == 0 {
			continue
		}
		j := &jitted{f: p.M.Value(c.Node.Args[0]).Func, at: c.Node}
		p.donation(j, c)
		out[p.key(a.Targets[0])] = j
	}
	return out
}

func (p *Pass) donation(j *jitted, c *model.Call) {
	if k := keyword(c.Node, "donate_argnums"); k != nil {
		j.nums = map[int]bool{}
		for _, e := range flatten(k.Value) {
			n := p.constant(e)
			if len(n) == 1 && n[0] >= '0' && n[0] <= '9' {
				j.nums[int(n[0]-'0')] = true
			} else {
				j.unknown = true
			}
		}
	}
	if k := keyword(c.Node, "donate_argnames"); k != nil {
		j.names = map[string]bool{}
		for _, e := range flatten(k.Value) {
			j.names[p.constant(e)] = true
		}
	}
	j.unknown = j.unknown || c.HasStar()
}

func stepWithoutDonation(p *Pass) {
	functions := p.jitted()
	if len(functions) == 0 {
		return
	}
	p.inspectAll(p.File.Body, func(n pysource.Node) bool {
		a, ok := n.(*pysource.Assign)
		if !ok || len(a.Targets) != 1 {
			return true
		}
		call, ok := a.Value.(*pysource.Call)
		if !ok || len(call.Args) == 0 {
			return true
		}
		j := functions[p.key(call.Fun)]
		if j == nil || j.donates() || p.M.Loop(call) == nil {
			return true
		}
		if f := p.M.Func(call); f != nil && functions[f.Def.Name] != nil {
			return true // within another jit, which decides
		}
		first := p.key(call.Args[0])
		again := false
		for _, t := range flatten(a.Targets[0]) {
			again = again || p.key(t) == first
		}
		if !again || p.aliased(a, first) {
			return true
		}
		p.Report(call, "%s takes %s and returns its successor without donating it: old and new exist together, 12 bytes per parameter for Adam in float32. Give jit donate_argnums=(0,).", p.key(call.Fun), first)
		return true
	})
}

// aliased reports whether the loop keeps the state under another name too, so
// that donating it would delete what is used later.
func (p *Pass) aliased(a *pysource.Assign, key string) bool {
	l := p.M.Loop(a)
	found := false
	p.inspect(l.Node, func(n pysource.Node) bool {
		switch n := n.(type) {
		case *pysource.Assign:
			if n != a && p.key(n.Value) == key {
				found = true
			}
		case *pysource.Call:
			if _, m := method(n); m == "append" && len(n.Args) == 1 && p.key(n.Args[0]) == key {
				found = true
			}
		}
		return !found
	})
	return found
}

func donationFault(p *Pass) {
	functions := p.jitted()
	for _, c := range p.calls() {
		j := functions[p.key(c.Node.Fun)]
		if j == nil || len(j.nums) == 0 || j.f == nil {
			continue
		}
		params := j.f.Def.Params
		for _, k := range c.Node.Keywords {
			for i, q := range params {
				if q.Name == k.Name && j.nums[i] {
					p.Report(k, "donate_argnums does not apply to keyword arguments: %s is copied, not donated. Pass it by position, or use donate_argnames.", k.Name)
				}
			}
		}
		for i, x := range c.Node.Args {
			name, ok := x.(*pysource.Name)
			if !ok || !j.nums[i] {
				continue
			}
			stmt := p.M.Stmt(c.Node)
			if p.assigns(stmt, name.Ident, nil) {
				continue
			}
			if use := p.nextUse(stmt, name.Ident); use != nil {
				p.Report(use, "%s was donated to %s and its buffers are gone: “Array has been deleted”. Use the result.", name.Ident, p.key(c.Node.Fun))
			}
		}
	}
}

// nextUse returns the first use of a name after a statement in its block, if
// no new value comes before it.
func (p *Pass) nextUse(stmt pysource.Stmt, name string) pysource.Node {
	after := false
	for _, s := range p.siblings(stmt) {
		if !after {
			after = s == stmt
			continue
		}
		var use pysource.Node
		p.inspect(s, func(n pysource.Node) bool {
			if id, ok := n.(*pysource.Name); ok && id.Ident == name && !p.isTarget(id) && use == nil {
				use = id
			}
			return use == nil
		})
		if use != nil {
			return use
		}
		if p.assigns(s, name, nil) {
			return nil
		}
	}
	return nil
}

func jitInLoop(p *Pass) {
	for _, c := range p.M.To("jax.jit") {
		l := p.M.Loop(c.Node)
		if l == nil || l.Bounded || p.guarded(c.Node) || len(c.Node.Args) == 0 || p.IsTest {
			continue
		}
		if _, comp := l.Node.(*pysource.Comp); comp {
			continue
		}
		_, lambda := c.Node.Args[0].(*pysource.Lambda)
		inner := p.M.Call(c.Node.Args[0]) != nil
		if f := p.M.Value(c.Node.Args[0]).Func; f != nil && p.M.Loop(f.Def) != nil {
			lambda = true
		}
		if lambda || inner {
			p.Report(c.Node, "a new function is jitted in every round: each is compiled and cached on its own. Jit it once before the loop.")
		}
	}
}

func constantInJit(p *Pass) {
	arrays := map[string]bool{}
	for _, s := range p.File.Body {
		a, ok := s.(*pysource.Assign)
		if !ok || len(a.Targets) != 1 {
			continue
		}
		c := p.M.Call(a.Value)
		if c == nil || c.Callee != "jax.numpy.asarray" && c.Callee != "jax.numpy.array" && c.Callee != "jax.numpy.load" || len(c.Node.Args) == 0 {
			continue
		}
		if _, name := c.Node.Args[0].(*pysource.Name); name || c.Callee == "jax.numpy.load" {
			arrays[p.key(a.Targets[0])] = true
		}
	}
	if len(arrays) == 0 {
		return
	}
	report := func(params []*pysource.Param, body pysource.Node) {
		for _, q := range params {
			if arrays[q.Name] {
				return
			}
		}
		done := false
		p.inspect(body, func(n pysource.Node) bool {
			if id, ok := n.(*pysource.Name); ok && arrays[id.Ident] && !done {
				done = true
				p.Report(id, "%s is embedded in the compiled function as a constant: one more copy on the device for each executable. Pass it as an argument.", id.Ident)
			}
			return !done
		})
	}
	for _, j := range p.jitted() {
		if j.f != nil {
			report(j.f.Def.Params, j.f.Def)
		}
	}
	for _, c := range p.M.To("jax.jit") {
		if len(c.Node.Args) > 0 {
			if l, ok := c.Node.Args[0].(*pysource.Lambda); ok {
				report(l.Params, l)
			}
		}
	}
}
