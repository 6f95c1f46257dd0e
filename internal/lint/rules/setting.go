package rules

import (
	"regexp"
	"strings"

	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

// Setting is an environment variable that is given a value: in Python, a shell
// script, a Dockerfile, YAML or a .env file.
type Setting struct {
	Name, Value      string
	NamePos, NameEnd int
	Pos, End         int  // of the value
	Known            bool // the value is literal
	Node             pysource.Node
	Scope            pysource.Node // the function it is set in, nil for the top level
}

// relevant reports whether a variable can matter to a rule, so that others are
// not kept.
func relevant(name string) bool {
	for _, prefix := range []string{"PYTORCH", "PYTROCH", "PYTOCH", "PYORCH", "TORCH", "XLA_", "TF_", "CUDA_", "JAX_", "CUDAVISIBLE"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// PythonSettings finds the settings of a Python file: os.environ["X"] = "v",
// os.environ.setdefault, update and putenv, and in a notebook its shell lines.
func PythonSettings(m *model.Model) []Setting {
	var out []Setting
	add := func(name, value pysource.Expr, at pysource.Node) {
		s, ok := name.(*pysource.Str)
		if !ok || !relevant(s.Value) {
			return
		}
		set := Setting{Name: s.Value, NamePos: name.Pos(), NameEnd: name.End(), Pos: value.Pos(), End: value.End(), Node: at}
		if v, ok := value.(*pysource.Str); ok && !v.Formatted {
			set.Value, set.Known = v.Value, true
		} else if v := m.Value(value); v.Kind == model.String && v.Const != "" {
			set.Value, set.Known = v.Const, true
		}
		if f := m.Func(at); f != nil {
			set.Scope = f.Def
		}
		out = append(out, set)
	}
	if strings.Contains(m.File.Src, "environ") || strings.Contains(m.File.Src, "env") {
		pysource.InspectAll(m.File.Body, func(n pysource.Node) bool {
			switch n := n.(type) {
			case *pysource.Assign:
				for _, t := range n.Targets {
					if s, ok := t.(*pysource.Subscript); ok && isEnviron(m, s.X) {
						add(s.Index, n.Value, n)
					}
				}
			case *pysource.Call:
				c := m.Call(n)
				if c == nil {
					return true
				}
				switch {
				case (c.Callee == "os.environ.setdefault" || c.Callee == "os.putenv") && len(n.Args) == 2:
					add(n.Args[0], n.Args[1], n)
				case c.Callee == "os.environ.update" && len(n.Args) == 1:
					if d, ok := n.Args[0].(*pysource.Dict); ok {
						for i, k := range d.Keys {
							add(k, d.Values[i], n)
						}
					}
				}
			}
			return true
		})
	}
	for _, line := range m.File.ShellLines() {
		out = append(out, shellLine(line.Text, m.File.Offset(line.Line, 1))...)
	}
	return out
}

func isEnviron(m *model.Model, x pysource.Expr) bool {
	v := m.Value(x)
	return v.Kind == model.Namespace && v.Name == "os.environ"
}

var (
	shellAssign = regexp.MustCompile(`(?:^|[\s;&|("'])(?:export\s+|setenv\s+|set\s+-gx\s+)?([A-Z][A-Z0-9_]{3,})(=|:|\s+)("[^"]*"|'[^']*'|[^\s;&|)"']*)`)
	glued       = regexp.MustCompile(`(?:export|ENV|env|set)\s+(PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF)([a-z][a-z0-9_]*:[^\s"']*)`)
	dockerEnv   = regexp.MustCompile(`(?i)^\s*(?:ENV|ARG)\s+(.*)$`)
	yamlPair    = regexp.MustCompile(`^\s*(?:-\s+)?["']?([A-Z][A-Z0-9_]{3,})["']?\s*:\s+(.*?)\s*$`)
	yamlName    = regexp.MustCompile(`^\s*(?:-\s+)?name:\s*["']?([A-Z][A-Z0-9_]{3,})["']?\s*$`)
	yamlValue   = regexp.MustCompile(`^\s*value:\s*(.*?)\s*$`)
	yamlItem    = regexp.MustCompile(`^\s*-\s+["']?([A-Z][A-Z0-9_]{3,})=(.*?)["']?\s*$`)
)

// TextKind says which syntax a file of settings has.
type TextKind uint8

// The kinds of files that settings are read from.
const (
	Shell TextKind = iota
	Docker
	YAML
	DotEnv
)

// TextSettings finds the settings in a file that is not Python.
func TextSettings(kind TextKind, src string) []Setting {
	var out []Setting
	name, namePos, nameEnd := "", 0, 0
	for pos := 0; pos < len(src); {
		end := strings.IndexByte(src[pos:], '\n')
		if end < 0 {
			end = len(src)
		} else {
			end += pos
		}
		line := strings.TrimRight(src[pos:end], "\r")
		if trimmed := strings.TrimSpace(line); !strings.HasPrefix(trimmed, "#") {
			switch kind {
			case YAML:
				if m := yamlName.FindStringSubmatchIndex(line); m != nil {
					name, namePos, nameEnd = line[m[2]:m[3]], pos+m[2], pos+m[3]
				} else if m := yamlValue.FindStringSubmatchIndex(line); m != nil && name != "" {
					out = appendSetting(out, line, pos, name, namePos, nameEnd, m[2], m[3])
					name = ""
				} else if m := yamlPair.FindStringSubmatchIndex(line); m != nil {
					out = appendSetting(out, line, pos, line[m[2]:m[3]], pos+m[2], pos+m[3], m[4], m[5])
				} else if m := yamlItem.FindStringSubmatchIndex(line); m != nil {
					out = appendSetting(out, line, pos, line[m[2]:m[3]], pos+m[2], pos+m[3], m[4], m[5])
				} else if strings.Contains(line, "export ") {
					out = append(out, shellLine(line, pos)...)
				}
			case Docker:
				if dockerEnv.MatchString(line) {
					out = append(out, dockerLine(line, pos)...)
				} else if strings.Contains(line, "=") {
					out = append(out, shellLine(line, pos)...)
				}
			default:
				out = append(out, shellLine(line, pos)...)
			}
		}
		pos = end + 1
	}
	return out
}

// unquote removes quotes and a YAML or shell comment from a value.
func unquote(line string, from, to int) (int, int) {
	if to > from && (line[from] == '"' || line[from] == '\'') {
		if end := strings.IndexByte(line[from+1:to], line[from]); end >= 0 {
			return from + 1, from + 1 + end
		}
	}
	if i := strings.Index(line[from:to], " #"); i >= 0 {
		to = from + i
	}
	return from, to
}

func appendSetting(out []Setting, line string, base int, name string, namePos, nameEnd, from, to int) []Setting {
	if !relevant(name) {
		return out
	}
	from, to = unquote(line, from, to)
	value := line[from:to]
	return append(out, Setting{Name: name, Value: value, NamePos: namePos, NameEnd: nameEnd, Pos: base + from, End: base + to, Known: !strings.ContainsAny(value, "$`{")})
}

func shellLine(line string, base int) []Setting {
	var out []Setting
	if m := glued.FindStringSubmatchIndex(line); m != nil {
		return []Setting{{Name: line[m[2]:m[5]], NamePos: base + m[2], NameEnd: base + m[5], Pos: base + m[4], End: base + m[5], Value: ""}}
	}
	for at := 0; at < len(line); {
		m := shellAssign.FindStringSubmatchIndex(line[at:])
		if m == nil {
			break
		}
		sep := line[at+m[4] : at+m[5]]
		head := strings.TrimSpace(line[at+m[0] : at+m[2]])
		ok := sep == "=" || strings.HasSuffix(head, "setenv") || strings.HasSuffix(head, "-gx")
		if ok {
			out = appendSetting(out, line, base, line[at+m[2]:at+m[3]], base+at+m[2], base+at+m[3], at+m[6], at+m[7])
		}
		at += max(m[3], 1)
		if ok {
			at += m[7] - m[3]
		}
	}
	return out
}

func dockerLine(line string, base int) []Setting {
	if m := glued.FindStringSubmatchIndex(line); m != nil {
		return shellLine(line, base)
	}
	m := dockerEnv.FindStringSubmatchIndex(line)
	rest := line[m[2]:m[3]]
	if name, value, ok := strings.Cut(rest, " "); ok && !strings.Contains(name, "=") {
		value = strings.TrimSpace(value)
		from := m[3] - len(strings.TrimLeft(rest[len(name):], " "))
		return appendSetting(nil, line, base, name, base+m[2], base+m[2]+len(name), from, from+len(value))
	}
	return shellLine(line, base)
}
