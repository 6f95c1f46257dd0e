package pt2

import (
	"slices"
	"strings"
)

// tied finds parameters that are one tensor under several names, as
// named_parameters counts them: it returns, for each input, the index of the
// first that is the same. A file without weights does not say it. But an
// export lets all uses go through one of the names, so that a parameter that
// no node reads is another's alias where only one parameter has its shape, or
// where its own module computes with that other.
func (r *builder) tied() []int {
	same := make([]int, len(r.p.inputs))
	used := map[string]bool{}
	within := map[string][]string{} // by tensor, the paths of modules that read it
	var walk func(g *graph, level int)
	walk = func(g *graph, level int) {
		if g == nil || level > 8 {
			return
		}
		for i := range g.nodes {
			n := &g.nodes[i]
			path := ""
			if fs, ok := parseStack(n.stack); ok && len(fs) > 0 {
				path = fs[len(fs)-1].Path
			}
			for _, a := range n.inputs {
				switch a.kind {
				case argTensor:
					used[a.text] = true
					if strings.HasPrefix(a.text, "p_") {
						within[a.text] = append(within[a.text], path)
					}
				case argTensors:
					for _, name := range a.names {
						used[name] = true
					}
				case argGraph:
					walk(a.graph, level+1)
				}
			}
		}
	}
	walk(r.p.graph, 0)
	shape := func(i int) []symInt { return r.p.graph.tensors[r.p.inputs[i].arg.text].sizes }
	for i := range same {
		same[i] = i
	}
	var unused []int
	byUse := map[int][]int{} // the parameter that is read, and its aliases
	for i, in := range r.p.inputs {
		if in.kind != "parameter" {
			continue
		}
		if !used[in.arg.text] {
			unused = append(unused, i)
		}
	}
	if len(unused) > 2000 {
		r.assume("no operator reads %d parameters; none was taken for another's alias", len(unused))
		unused = nil
	}
	for _, i := range unused {
		var candidates []int
		for j, in := range r.p.inputs {
			if in.kind == "parameter" && used[in.arg.text] && slices.Equal(shape(i), shape(j)) {
				candidates = append(candidates, j)
			}
		}
		if len(candidates) > 1 {
			module, _, _ := cutLast(r.p.inputs[i].name)
			candidates = slices.DeleteFunc(candidates, func(j int) bool {
				return !slices.Contains(within[r.p.inputs[j].arg.text], module)
			})
		}
		if len(candidates) != 1 {
			r.assume("no operator reads the parameter %s", r.p.inputs[i].name)
			continue
		}
		byUse[candidates[0]] = append(byUse[candidates[0]], i)
	}
	for j, aliases := range byUse {
		first := min(j, aliases[0])
		for _, i := range append(aliases, j) {
			same[i] = first
		}
	}
	for i, first := range same {
		if first != i {
			r.assume("%s is %s: the same tensor under two names", r.p.inputs[i].name, r.p.inputs[first].name)
		}
	}
	return same
}

// cutLast cuts a path at its last dot.
func cutLast(path string) (before, after string, ok bool) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}
