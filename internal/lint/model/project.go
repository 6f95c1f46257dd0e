package model

import (
	"path/filepath"
	"strings"
)

// Project knows what the other files of a scan define, by summaries that are
// small next to the files. A nil Project knows nothing.
type Project struct {
	files map[string]*FileSummary // by slash-separated path
	calls map[string]Tri          // by path + " " + name: whether calls from other files run with grad on (Yes wins)
}

// FileSummary is what others may know about a file.
type FileSummary struct {
	Path  string
	Names map[string]*Summary
	Calls []RemoteCall
	Base  map[string][]string // aliases of imports at the top level: name → dotted
}

// RemoteCall is a call of a name of another module.
type RemoteCall struct {
	Dotted string
	Grad   Tri
}

// Summary is a function or a class as others see it.
type Summary struct {
	Class   bool
	Bases   []string
	Result  Value // of a call
	Effects Effect
	GradOff bool
}

// Summarize returns what others may know about the file.
func (m *Model) Summarize() *FileSummary {
	s := &FileSummary{Path: filepath.ToSlash(m.File.Name), Names: map[string]*Summary{}}
	for name, v := range m.globals.vars {
		switch {
		case v.Kind == Func && v.Func != nil:
			f := v.Func
			r := &Summary{Effects: f.Effects, GradOff: f.GradOff}
			if f.Return != nil && !f.Yields && !f.decorated {
				r.Result = plain(f.Return)
			}
			s.Names[name] = r
		case v.Kind == Class && v.Class != nil:
			r := &Summary{Class: true, Bases: v.Class.Bases}
			r.Result = Value{Kind: Instance, Name: name}
			switch {
			case v.Class.Is("torch.nn.Module"):
				r.Result.Kind = Net
			case v.Class.Is("torch.optim.Optimizer"):
				r.Result.Kind = Optimizer
			}
			s.Names[name] = r
		}
	}
	for _, c := range m.Calls {
		if c.Func == nil && c.Class == nil && c.Recv != nil && c.Recv.Kind == Namespace || c.Recv == nil && strings.Contains(c.Callee, ".") {
			if !wellKnown(topOf(c.Callee)) {
				g := c.Grad
				if c.In != nil && c.In.GradOff {
					g = No
				}
				s.Calls = append(s.Calls, RemoteCall{c.Callee, g})
			}
		}
	}
	return s
}

func wellKnown(top string) bool {
	switch top {
	case "torch", "numpy", "os", "sys", "re", "json", "time", "math", "logging", "argparse", "collections", "functools", "itertools", "random", "transformers", "tensorflow", "jax", "keras", "?":
		return true
	}
	return false
}

// plain strips a value to what does not hold on to its file.
func plain(v *Value) Value {
	p := Value{Kind: v.Kind, Graph: v.Graph, Loose: v.Loose, Dev: v.Dev, DType: v.DType, Name: v.Name}
	if v.HasGraph() {
		p.Graph = Yes
	}
	switch v.Kind {
	case Func, Class, Instance, Object:
		return Value{}
	case Tuple:
		for _, e := range v.Elems {
			c := plain(e)
			p.Elems = append(p.Elems, &c)
		}
	}
	return p
}

// NewProject puts summaries together.
func NewProject(files []*FileSummary) *Project {
	p := &Project{files: map[string]*FileSummary{}, calls: map[string]Tri{}}
	for _, f := range files {
		p.files[f.Path] = f
	}
	for _, f := range files {
		for _, c := range f.Calls {
			target, name := p.find(f.Path, c.Dotted)
			if target == nil {
				continue
			}
			key := target.Path + " " + name
			if c.Grad == No {
				if p.calls[key] == Maybe {
					p.calls[key] = No
				}
			} else {
				p.calls[key] = Yes
			}
		}
	}
	return p
}

// find returns the file and the name in it that a dotted name in the file from
// stands for.
func (p *Project) find(from, dotted string) (*FileSummary, string) {
	i := strings.LastIndexByte(dotted, '.')
	if i < 0 {
		return nil, ""
	}
	module, name := dotted[:i], dotted[i+1:]
	rel := strings.ReplaceAll(module, ".", "/")
	for dir := filepath.ToSlash(filepath.Dir(filepath.FromSlash(from))); ; {
		for _, candidate := range []string{rel + ".py", rel + "/__init__.py"} {
			path := candidate
			if dir != "." {
				path = strings.TrimSuffix(dir, "/") + "/" + candidate
			}
			if f := p.files[path]; f != nil && f.Names[name] != nil {
				return f, name
			}
		}
		up := filepath.ToSlash(filepath.Dir(filepath.FromSlash(dir)))
		if up == dir || dir == "." {
			return nil, ""
		}
		dir = up
	}
}

func (p *Project) lookup(from, dotted string) *Summary {
	if p == nil || !strings.Contains(dotted, ".") || wellKnown(topOf(dotted)) {
		return nil
	}
	f, name := p.find(filepath.ToSlash(from), dotted)
	if f == nil {
		return nil
	}
	return f.Names[name]
}

// relative returns a dotted name that find resolves, for `from ..module import`.
func (p *Project) relative(from string, level int, module string) string {
	dir := filepath.Dir(from)
	for range level - 1 {
		dir = filepath.Dir(dir)
	}
	base := filepath.Base(dir)
	if base == "." || base == string(filepath.Separator) || base == ".." {
		return module
	}
	if module == "" {
		return base
	}
	return base + "." + module
}

func (p *Project) calledWithGrad(path, name string) bool {
	return p != nil && p.calls[filepath.ToSlash(path)+" "+name] == Yes
}

func (p *Project) calledGradOffOnly(path, name string) bool {
	return p != nil && p.calls[filepath.ToSlash(path)+" "+name] == No
}
