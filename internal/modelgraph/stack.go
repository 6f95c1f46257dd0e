package modelgraph

import (
	"slices"
	"strings"
)

// Frame is a call of a module in the stack with which a file marks a node.
type Frame struct {
	Key   string // tells two calls of one module apart
	Path  string // "layer1.0.conv1"
	Class string // "torchvision.models.resnet.BasicBlock", "" where unknown
}

// Nest emits n nodes inside the module calls of their stacks, outermost first
// and without the model itself. Neighbours with equal keys share a call. What
// FindBlocks finds in the stacks become blocks.
func (b *Builder) Nest(n int, stack func(i int) []Frame, emit func(i int)) {
	nest := nesting{b: b, n: n, stack: stack, emit: emit, blocks: FindBlocks(n, stack)}
	nest.run(0)
}

type nesting struct {
	b       *Builder
	next, n int
	stack   func(i int) []Frame
	emit    func(i int)
	open    []Frame
	blocks  map[string]bool
}

func (s *nesting) run(depth int) {
	for s.next < s.n && s.b.err == nil {
		stack := s.stack(s.next)
		if len(stack) < depth || !slices.EqualFunc(stack[:depth], s.open, func(a, b Frame) bool { return a.Key == b.Key && a.Path == b.Path }) {
			return
		}
		if len(stack) == depth {
			s.emit(s.next)
			s.next++
			continue
		}
		f := stack[depth]
		s.open = append(s.open, f)
		call := len(s.b.g.Calls)
		s.b.enter(f.Path, s.blocks[f.Path], func() {
			// A shared module's path is not below its caller's.
			s.b.g.Calls[call].Path = f.Path
			s.run(depth + 1)
		})
		s.open = s.open[:depth]
	}
}

// FindBlocks finds the units that "checkpoint every block" means: modules of
// a class that is not torch.nn's, made of other modules, with a number at the
// end of their names ("h.0", "encoder_layer_0"), of which there are two or more
// and which do not occur inside modules of another such class. Where classes
// are not known, the name without the number stands for the class.
func FindBlocks(n int, stack func(i int) []Frame) map[string]bool {
	members := map[string]map[string]bool{} // class, paths
	visited := map[string]bool{}
	for i := range n {
		fs := stack(i)
		for j, f := range fs {
			if visited[f.Key] || j == len(fs)-1 {
				continue
			}
			visited[f.Key] = true
			if class := f.numbered(); class != "" {
				if members[class] == nil {
					members[class] = map[string]bool{}
				}
				members[class][f.Path] = true
			}
		}
	}
	inner := map[string]bool{} // classes that occur inside others
	for i := range n {
		outer := ""
		for _, f := range stack(i) {
			class := f.numbered()
			if len(members[class]) < 2 {
				continue
			}
			if outer != "" && class != outer {
				inner[class] = true
			} else {
				outer = class
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

// numbered is the class of a module whose name ends in a number, else "".
func (f Frame) numbered() string {
	prefix := strings.TrimRight(f.Path, "0123456789")
	if prefix == f.Path || strings.HasPrefix(f.Class, "torch.nn.modules.") {
		return ""
	}
	if f.Class == "" {
		return prefix
	}
	return f.Class
}
