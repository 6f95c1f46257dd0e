package pt2

// program is what an export says, as far as memory goes. The field names are
// those of torch/_export/serde/schema.py (PyTorch 2.11, schema 8.17), which
// has kept them since 2.2.
type program struct {
	torch    string
	schema   int64
	verifier string // "TRAINING", "ATEN", "EDGE"; "" in old files
	ranges   map[string]bounds
	graph    *graph
	inputs   []inputSpec
	outputs  []outputSpec
}

type bounds struct {
	min, max       int64
	hasMin, hasMax bool
}

type graph struct {
	inputs, outputs []arg
	nodes           []node
	tensors         map[string]tensorMeta
	ints            map[string]symInt
}

type tensorMeta struct {
	dtype int64
	sizes []symInt
	grad  bool
}

// symInt is an extent: a number, an expression of symbols, or the name of a
// node that computes it.
type symInt struct {
	value int64 // or the hint of an expression, 0 where there is none
	expr  string
	name  string
}

type argKind uint8

const (
	argNone argKind = iota
	argTensor
	argTensors
	argInts // also a Boolean, and lists of them
	argFloat
	argFloats
	argString
	argDType
	argFormat
	argGraph
	argOther
)

// arg is the value of an argument or result.
type arg struct {
	name  string // of the argument
	kind  argKind
	text  string   // the tensor's name, the string
	names []string // of tensors; "" is an absent one
	ints  []symInt
	float float64
	graph *graph
}

type node struct {
	target  string
	name    string
	at      int // offset in the text
	inputs  []arg
	outputs []arg
	stack   string // nn_module_stack: "key,path,class;…"
	trace   string // the Python stack, outermost first
}

type inputSpec struct {
	kind  string // "parameter", "buffer", "tensor_constant", "user_input", …
	arg   arg
	name  string // of the parameter, buffer or constant
	fixed bool   // persistent
}

type outputSpec struct {
	kind string // "user_output", "loss_output", "buffer_mutation", …
	arg  arg
}

// maxItems limits nodes, arguments and extents together, so that a small file
// cannot ask for much memory: a thousand layers have 700,000.
const maxItems = 1_500_000

type decoder struct {
	scanner
	items int
	texts map[string]string
}

func decode(data []byte) (*program, error) {
	d := &decoder{scanner: scanner{data: data}, texts: map[string]string{}}
	return d.program()
}

func (d *decoder) program() (*program, error) {
	p := &program{ranges: map[string]bounds{}}
	d.object(func(key []byte) {
		switch string(key) {
		case "graph_module":
			d.object(func(key []byte) {
				switch string(key) {
				case "graph":
					p.graph = d.graph()
				case "signature":
					d.signature(p)
				default:
					d.skip()
				}
			})
		case "range_constraints":
			d.object(func(key []byte) {
				name := string(key)
				p.ranges[name] = d.bounds()
			})
		case "schema_version":
			if c := d.peek(); c != '{' { // a bare number in 2.1 and 2.2
				p.schema = d.int()
				return
			}
			d.object(func(key []byte) {
				if string(key) == "major" {
					p.schema = d.int()
				} else {
					d.skip()
				}
			})
		case "torch_version":
			p.torch = d.string()
		case "verifiers":
			d.array(func() { p.verifier = d.string() })
		case "dialect":
			p.verifier = d.string()
		default:
			d.skip()
		}
	})
	if d.peek() != 0 {
		d.unexpected("the end")
	}
	if d.err == nil && p.graph == nil {
		d.failAt(0, "no graph_module.graph in it: this is not what torch.export.save writes")
	}
	return p, d.err
}

// count charges n items against the limit.
func (d *decoder) count(n int) {
	if d.items += n; d.items > maxItems {
		d.fail("more than %d nodes, arguments and sizes", maxItems)
	}
}

// intern reads a string of which the file has many copies.
func (d *decoder) intern() string {
	if d.null() {
		return ""
	}
	b := d.bytes()
	if t, ok := d.texts[string(b)]; ok {
		return t
	}
	t := string(b)
	d.texts[t] = t
	return t
}

func (d *decoder) graph() *graph {
	g := &graph{tensors: map[string]tensorMeta{}, ints: map[string]symInt{}}
	d.object(func(key []byte) {
		switch string(key) {
		case "inputs":
			g.inputs = d.args()
		case "outputs":
			g.outputs = d.args()
		case "nodes":
			d.array(func() { g.nodes = append(g.nodes, d.node()) })
		case "tensor_values":
			d.object(func(key []byte) {
				name := d.texts[string(key)]
				if name == "" {
					name = string(key)
				}
				g.tensors[name] = d.tensorMeta()
			})
		case "sym_int_values":
			d.object(func(key []byte) {
				name := string(key)
				g.ints[name] = d.symInt()
			})
		default:
			d.skip()
		}
	})
	return g
}

func (d *decoder) node() (n node) {
	d.peek()
	n.at = d.pos
	d.count(1)
	d.object(func(key []byte) {
		switch string(key) {
		case "target":
			n.target = d.intern()
		case "name":
			n.name = d.intern()
		case "inputs":
			d.array(func() { n.inputs = append(n.inputs, d.namedArg()) })
		case "outputs":
			n.outputs = d.args()
		case "metadata":
			d.object(func(key []byte) {
				switch string(key) {
				case "nn_module_stack":
					n.stack = d.intern()
				case "stack_trace":
					n.trace = d.intern()
				default:
					d.skip()
				}
			})
		default:
			d.skip()
		}
	})
	return n
}

func (d *decoder) namedArg() (a arg) {
	name := ""
	d.object(func(key []byte) {
		switch string(key) {
		case "name":
			name = d.intern()
		case "arg":
			a = d.arg()
		default:
			d.skip()
		}
	})
	a.name = name
	return a
}

func (d *decoder) args() []arg {
	var args []arg
	d.array(func() { args = append(args, d.arg()) })
	return args
}

// arg reads {"as_tensor": …} and its like.
func (d *decoder) arg() (a arg) {
	d.count(1)
	d.object(func(key []byte) {
		switch string(key) {
		case "as_tensor":
			a.kind, a.text = argTensor, d.nameField()
		case "as_tensors", "as_optional_tensors":
			a.kind = argTensors
			d.array(func() { d.count(1); a.names = append(a.names, d.tensorName()) })
		case "as_nested_tensors":
			a.kind = argTensors
			d.array(func() {
				d.array(func() { d.count(1); a.names = append(a.names, d.tensorName()) })
			})
		case "as_optional_tensor":
			if a.text = d.tensorName(); a.text != "" {
				a.kind = argTensor
			}
		case "as_int", "as_sym_int", "as_bool", "as_sym_bool":
			a.kind, a.ints = argInts, []symInt{d.symInt()}
		case "as_ints", "as_sym_ints", "as_bools", "as_sym_bools":
			a.kind = argInts
			d.array(func() { d.count(1); a.ints = append(a.ints, d.symInt()) })
		case "as_float":
			a.kind, a.float = argFloat, d.float()
		case "as_sym_float":
			a.kind = argFloat
			d.object(func(key []byte) {
				if string(key) == "as_float" {
					a.float = d.float()
				} else {
					d.skip()
				}
			})
		case "as_floats":
			a.kind = argFloats
			d.array(func() { d.count(1); a.float = d.float() })
		case "as_string":
			a.kind, a.text = argString, d.intern()
		case "as_device":
			a.kind = argString
			d.object(func(key []byte) {
				if string(key) == "type" {
					a.text = d.intern()
				} else {
					d.skip()
				}
			})
		case "as_scalar_type":
			a.kind, a.ints = argDType, []symInt{{value: d.int()}}
		case "as_memory_format":
			a.kind, a.ints = argFormat, []symInt{{value: d.int()}}
		case "as_graph":
			a.kind = argGraph
			d.object(func(key []byte) {
				if string(key) == "graph" {
					a.graph = d.graph()
				} else {
					d.skip()
				}
			})
		case "as_none":
			d.skip()
		default:
			a.kind = argOther
			d.skip()
		}
	})
	return a
}

// nameField reads {"name": "x"}.
func (d *decoder) nameField() (name string) {
	d.object(func(key []byte) {
		if string(key) == "name" {
			name = d.intern()
		} else {
			d.skip()
		}
	})
	return name
}

// tensorName reads {"name": "x"}, {"as_tensor": {"name": "x"}} or
// {"as_none": …}, which is "".
func (d *decoder) tensorName() (name string) {
	d.object(func(key []byte) {
		switch string(key) {
		case "name":
			name = d.intern()
		case "as_tensor":
			name = d.nameField()
		default:
			d.skip()
		}
	})
	return name
}

// symInt reads 3, true, {"as_int": 3}, {"as_name": "sym_size_int"} or
// {"as_expr": {"expr_str": "2*s0", "hint": {"as_int": 8}}}.
func (d *decoder) symInt() (v symInt) {
	switch d.peek() {
	case 't', 'f':
		if d.bool() {
			v.value = 1
		}
		return v
	case '{':
	default:
		v.value = d.int()
		return v
	}
	d.object(func(key []byte) {
		switch string(key) {
		case "as_int":
			v.value = d.int()
		case "as_bool":
			if d.bool() {
				v.value = 1
			}
		case "as_name":
			v.name = d.intern()
		case "as_expr":
			d.object(func(key []byte) {
				switch string(key) {
				case "expr_str":
					v.expr = d.intern()
				case "hint":
					if c := d.peek(); c != '{' {
						d.skip()
						return
					}
					d.object(func(key []byte) {
						if string(key) == "as_int" {
							v.value = d.int()
						} else {
							d.skip()
						}
					})
				default:
					d.skip()
				}
			})
		default:
			d.skip()
		}
	})
	return v
}

func (d *decoder) tensorMeta() (t tensorMeta) {
	d.count(1)
	d.object(func(key []byte) {
		switch string(key) {
		case "dtype":
			t.dtype = d.int()
		case "sizes":
			t.sizes = []symInt{}
			d.array(func() { d.count(1); t.sizes = append(t.sizes, d.symInt()) })
		case "requires_grad":
			t.grad = d.bool()
		default:
			d.skip()
		}
	})
	return t
}

// bounds reads {"min_val": 2, "max_val": null}.
func (d *decoder) bounds() (b bounds) {
	d.object(func(key []byte) {
		v, ok := int64(0), false
		if c := d.peek(); c == '-' || '0' <= c && c <= '9' {
			v, ok = d.int(), true
		} else {
			d.skip()
		}
		switch string(key) {
		case "min_val":
			b.min, b.hasMin = v, ok
		case "max_val":
			b.max, b.hasMax = v, ok
		}
	})
	return b
}

func (d *decoder) signature(p *program) {
	d.object(func(key []byte) {
		switch string(key) {
		case "input_specs":
			d.array(func() {
				d.count(1)
				d.object(func(key []byte) {
					s := inputSpec{kind: string(key), fixed: true}
					d.inputSpec(&s)
					p.inputs = append(p.inputs, s)
				})
			})
		case "output_specs":
			d.array(func() {
				d.count(1)
				d.object(func(key []byte) {
					s := outputSpec{kind: string(key)}
					d.object(func(key []byte) {
						if string(key) == "arg" {
							s.arg = d.specArg()
						} else {
							d.skip()
						}
					})
					p.outputs = append(p.outputs, s)
				})
			})
		default:
			d.skip()
		}
	})
}

func (d *decoder) inputSpec(s *inputSpec) {
	d.object(func(key []byte) {
		switch string(key) {
		case "arg":
			s.arg = d.specArg()
		case "parameter_name", "buffer_name", "tensor_constant_name":
			s.name = d.string()
		case "persistent":
			if d.null() {
				return
			}
			s.fixed = d.bool()
		default:
			d.skip()
		}
	})
}

// specArg reads an argument, or the bare {"name": "p_w"} that a specification
// of a parameter has.
func (d *decoder) specArg() (a arg) {
	start, depth := d.pos, d.depth
	name := ""
	d.object(func(key []byte) {
		if string(key) == "name" && d.peek() == '"' {
			name = d.intern()
		} else {
			d.skip()
		}
	})
	if d.err != nil || name != "" {
		return arg{kind: argTensor, text: name}
	}
	d.pos, d.depth = start, depth
	return d.arg()
}
