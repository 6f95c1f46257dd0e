package pt2

import (
	"slices"
	"strings"
)

// frame is one module call of nn_module_stack.
type frame struct {
	key   string // tells two calls of one module apart: "L__self__drop@1"
	path  string // "layer1.0.conv1"
	class string
}

// maxStack limits nesting of modules.
const maxStack = 120

// parseStack reads "key,path,class;key,path,class;…", outermost first, without
// the model itself. ok is false where there is none.
func parseStack(text string) (fs []frame, ok bool) {
	if text == "" || strings.HasPrefix(text, "_empty_nn_module_stack") {
		return nil, false
	}
	for entry := range strings.SplitSeq(text, ";") {
		key, rest, _ := strings.Cut(entry, ",")
		path, class, _ := strings.Cut(rest, ",")
		if path == "" {
			continue
		}
		fs = append(fs, frame{key, path, class})
		if len(fs) == maxStack {
			break
		}
	}
	return fs, true
}

// run emits the steps inside the module calls that are open.
func (r *builder) run(depth int) {
	for r.next < len(r.steps) && r.err == nil {
		s := &r.steps[r.next]
		if len(s.stack) < depth || !slices.EqualFunc(s.stack[:depth], r.open, func(a, b frame) bool { return a.key == b.key && a.path == b.path }) {
			return
		}
		if len(s.stack) == depth {
			r.emit(s)
			r.next++
			continue
		}
		f := s.stack[depth]
		name := f.path
		if depth > 0 {
			name = strings.TrimPrefix(name, r.open[depth-1].path+".")
		}
		r.open = append(r.open, f)
		r.paths = append(r.paths, f.path)
		body := func() { r.run(depth + 1) }
		if r.blocks[f.path] {
			r.b.Block(name, body)
		} else {
			r.b.Call(name, body)
		}
		r.open = r.open[:depth]
	}
}

// findBlocks finds the units that "checkpoint every block" means: modules of
// a class that is not torch.nn's, made of other modules, with a number at the
// end of their names ("h.0", "encoder_layer_0"), of which there are two or more
// and which do not occur inside modules of another such class.
func findBlocks(steps []step) map[string]bool {
	numbered := func(f frame) bool {
		last := f.path[len(f.path)-1]
		return '0' <= last && last <= '9' && !strings.HasPrefix(f.class, "torch.nn.modules.")
	}
	members := map[string]map[string]bool{} // class, paths
	visited := map[string]bool{}
	for i := range steps {
		for j, f := range steps[i].stack {
			if visited[f.key] || !numbered(f) || j == len(steps[i].stack)-1 {
				continue
			}
			visited[f.key] = true
			if members[f.class] == nil {
				members[f.class] = map[string]bool{}
			}
			members[f.class][f.path] = true
		}
	}
	inner := map[string]bool{} // classes that occur inside others
	for i := range steps {
		outer := ""
		for _, f := range steps[i].stack {
			if !numbered(f) || len(members[f.class]) < 2 {
				continue
			}
			if outer != "" && f.class != outer {
				inner[f.class] = true
			} else {
				outer = f.class
			}
		}
	}
	blocks := map[string]bool{}
	for class, paths := range members {
		if len(paths) > 1 && !inner[class] {
			for path := range paths {
				blocks[path] = true
			}
		}
	}
	return blocks
}
