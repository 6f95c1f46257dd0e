package pt2

import (
	"fmt"
	"slices"
	"strings"

	"vramscope/internal/modelgraph"
)

// An export with static shapes has numbers where a dynamic one has symbols,
// but often only in its inputs: what follows a convolution need not mention
// the size of the image. This file finds out whether the nodes would follow
// another size. It marks the axes that depend on one axis of the inputs, node
// by node, and stops where a marked axis meets a literal: a view that spells
// the size out, a parameter of that length. Operators that it has no rule for
// count as literals, so that a wrong answer is "export it again".

// fixSizes decides for each static axis that has a meaning whether it is open.
// Open ones get a symbol in r.symbols.static.
func (r *builder) fixSizes(top *scope) {
	type axisOf struct {
		input string
		axis  int
	}
	axes := map[string][]axisOf{}
	values := map[string]int64{}
	var order []string
	for _, in := range r.symbols.inputs {
		for axis, v := range in.meta.sizes {
			name := axisSymbol(in, axis, r.symbols.inputs)
			if name == "" || v.expr != "" || v.name != "" || r.symbols.known[name] != nil {
				continue
			}
			if _, ok := values[name]; !ok {
				order = append(order, name)
				values[name] = v.value
			}
			if values[name] == v.value {
				axes[name] = append(axes[name], axisOf{in.name, axis})
			}
		}
	}
	for _, name := range order {
		marks := map[*scope]map[string]uint64{top: {}}
		for _, a := range axes[name] {
			marks[top][a.input] |= 1 << a.axis
		}
		why := r.follow(marks)
		r.symbols.addFixed(name, values[name], why)
		if why != "" {
			continue
		}
		for _, a := range axes[name] {
			r.symbols.static[a.input] |= 1 << a.axis
		}
	}
}

// follow carries marks from node to node. It returns why a size is fixed, or
// "" where it is not.
func (r *builder) follow(marks map[*scope]map[string]uint64) string {
	for i := range r.steps {
		s := &r.steps[i]
		m := marks[s.sc]
		switch {
		case s.enter != nil:
			in := map[string]uint64{}
			for i, a := range s.enter.g.inputs {
				in[a.text] = m[s.args[i].text]
			}
			marks[s.enter] = in
		case s.leave != nil:
			names := outputNames(s.n)
			for i, name := range outputNames(&node{outputs: s.leave.g.outputs}) {
				if i < len(names) {
					m[names[i]] = marks[s.leave][name]
				}
			}
		default:
			marked := false
			for _, name := range tensorNames(s.n.inputs) {
				marked = marked || m[name] != 0
			}
			if !marked {
				continue
			}
			f := follower{s: s, m: m, op: strings.TrimSuffix(opName(s.n.target), "_")}
			out, why := f.node()
			if why != "" {
				return fmt.Sprintf("node %s (%s) %s", s.n.name, opName(s.n.target), why)
			}
			for _, name := range outputNames(s.n) {
				m[name] = out
			}
		}
	}
	return ""
}

func tensorNames(args []arg) []string { return outputNames(&node{outputs: args}) }

// follower applies the rule of one node: the marks of its results from those
// of its arguments, or why the node does not follow.
type follower struct {
	s  *step
	m  map[string]uint64
	op string
}

func (f *follower) arg(name string) *arg {
	for i := range f.s.n.inputs {
		if f.s.n.inputs[i].name == name {
			return &f.s.n.inputs[i]
		}
	}
	return nil
}

// axis is an argument that names an axis of a tensor of that rank.
func (f *follower) axis(name string, def int64, rank int) int {
	v := def
	if a := f.arg(name); a != nil && len(a.ints) == 1 {
		v = a.ints[0].value
	}
	if v < 0 {
		v += int64(rank)
	}
	return int(min(max(v, 0), 63))
}

func (f *follower) sizes(tensor string) []symInt { return f.s.sc.g.tensors[tensor].sizes }

// without removes an axis from marks; with inserts one.
func without(m uint64, axis int) uint64 { return m&(1<<axis-1) | m>>(axis+1)<<axis }
func with(m uint64, axis int) uint64    { return m&(1<<axis-1) | m>>axis<<(axis+1) }
func has(m uint64, axis int) bool       { return axis >= 0 && axis < 64 && m>>axis&1 == 1 }

func (f *follower) node() (uint64, string) {
	in := tensorNames(f.s.n.inputs)
	outs := outputNames(f.s.n)
	x := in[0]
	m, shape := f.m[x], f.sizes(x)
	rank := len(shape)
	if rank > 60 {
		return 0, "has a tensor of more than 60 axes"
	}
	switch f.op {
	case "view", "reshape", "_unsafe_view", "unflatten":
		return f.view(m, shape, outs[0])
	case "flatten":
		start, end := f.axis("start_dim", 0, rank), f.axis("end_dim", -1, rank)
		out := m & (1<<start - 1)
		if m>>start&(1<<(end-start+1)-1) != 0 {
			out |= 1 << start
		}
		return out | m>>(end+1)<<(start+1), ""
	case "expand":
		return f.expand(m, shape, outs[0])
	case "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution":
		if has(m, 1) {
			return 0, "has weights for that many channels"
		}
		return m, ""
	case "max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d", "roll", "pad", "constant_pad_nd", "batch_norm", "upsample_nearest2d", "upsample_bilinear2d":
		return m, ""
	case "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool2d":
		return m & 3, ""
	case "linear":
		if has(m, rank-1) {
			return 0, "has weights for that many features"
		}
		return m, ""
	case "embedding":
		return f.m[in[1]], ""
	case "layer_norm", "native_layer_norm", "rms_norm":
		if a := f.arg("normalized_shape"); a != nil && m>>max(rank-len(a.ints), 0) != 0 {
			return 0, "normalises that many elements"
		}
		return m, ""
	case "permute":
		return f.permute(m, rank)
	case "transpose":
		a, b := f.axis("dim0", 0, rank), f.axis("dim1", 1, rank)
		out := m &^ (1<<a | 1<<b)
		if has(m, a) {
			out |= 1 << b
		}
		if has(m, b) {
			out |= 1 << a
		}
		return out, ""
	case "unsqueeze":
		return with(m, f.axis("dim", 0, rank+1)), ""
	case "squeeze", "select":
		return without(m, f.axis("dim", 0, rank)), ""
	case "slice":
		axis := f.axis("dim", 0, rank)
		if end := f.arg("end"); has(m, axis) && end != nil && len(end.ints) == 1 && end.ints[0].value >= 0 && end.ints[0].value < 1<<62 {
			return 0, fmt.Sprintf("cuts at %d", end.ints[0].value)
		}
		return m, ""
	case "mean", "sum", "amax", "amin", "var", "std":
		return f.reduce(m, rank), ""
	case "cat":
		return f.cat(in)
	case "chunk", "split", "unbind", "split_with_sizes":
		axis := f.axis("dim", 0, rank)
		if has(m, axis) {
			return 0, "splits it"
		}
		if f.op == "unbind" {
			return without(m, axis), ""
		}
		return m, ""
	case "matmul", "bmm", "mm":
		return f.matmul(in[0], in[1])
	case "addmm", "baddbmm":
		if len(in) == 3 {
			return f.matmul(in[1], in[2])
		}
	case "scaled_dot_product_attention":
		return m &^ (1 << (rank - 1)), f.attention(in)
	case "cross_entropy_loss", "nll_loss", "mse_loss":
		return 0, ""
	}
	return f.elementwise(in, outs)
}

// elementwise is for operators whose result has the shape of their arguments,
// made alike.
func (f *follower) elementwise(in, outs []string) (uint64, string) {
	if len(outs) == 0 {
		return 0, ""
	}
	shape := f.sizes(outs[0])
	out := uint64(0)
	for _, name := range in {
		s := f.sizes(name)
		shift := len(shape) - len(s)
		if shift < 0 {
			return 0, "has no rule for other sizes"
		}
		out |= f.m[name] << shift
	}
	for _, name := range in {
		s := f.sizes(name)
		shift := len(shape) - len(s)
		for i, v := range s {
			o := shape[i+shift]
			if v.value == 1 && o.value != 1 {
				continue
			}
			if v.value != o.value {
				return 0, "has no rule for other sizes"
			}
			if has(out, i+shift) && !has(f.m[name], i) && v.value != 1 {
				return 0, fmt.Sprintf("meets %s, which has %d there", name, v.value)
			}
		}
	}
	return out, ""
}

// view matches groups of axes of equal products: [n, 768, 14, 14] seen as
// [n, 768, 196] has the groups {n}, {768} and {14, 14} → {196}. A group with a
// marked axis needs an axis that is -1 or a symbol on the other side.
func (f *follower) view(m uint64, from []symInt, result string) (uint64, string) {
	to := f.sizes(result)
	args := []symInt(nil)
	for _, key := range []string{"size", "shape"} {
		if a := f.arg(key); a != nil {
			args = a.ints
		}
	}
	if a := f.arg("sizes"); a != nil { // unflatten
		axis := f.axis("dim", 0, len(from))
		args = slices.Concat(from[:axis], a.ints)
		if axis < len(from) {
			args = append(args, from[axis+1:]...)
		}
		for i := range args {
			if i < axis || i >= axis+len(a.ints) {
				args[i].value = -1 // the axes beside it stay
			}
		}
	}
	if len(args) != len(to) || len(to) > 60 {
		return 0, "has no rule for other sizes"
	}
	out := uint64(0)
	for i, j := 0, 0; i < len(from) || j < len(to); {
		p, q := int64(1), int64(1)
		i0, j0 := i, j
		for first := true; first || p != q; first = false {
			switch {
			case i < len(from) && (p <= q || j == len(to)):
				p = mulSat(p, from[i].value)
				i++
			case j < len(to):
				q = mulSat(q, to[j].value)
				j++
			default:
				return 0, "has no rule for other sizes"
			}
		}
		for i < len(from) && from[i].value == 1 && !has(m, i) {
			i++
		}
		for j < len(to) && to[j].value == 1 && (i < len(from) || args[j].value == 1) {
			j++
		}
		marked := false
		for k := i0; k < i; k++ {
			marked = marked || has(m, k)
		}
		if !marked {
			continue
		}
		at := -1
		for k := j0; k < j; k++ {
			if v := args[k]; v.name != "" || v.expr != "" || v.value == -1 {
				at = k
			}
		}
		if at < 0 {
			return 0, "makes the sizes " + f.sizesText(args)
		}
		out |= 1 << at
	}
	return out, ""
}

func mulSat(a, b int64) int64 {
	if v, err := modelgraph.MulSizes(a, b); err == nil {
		return v
	}
	return 1 << 62
}

func (f *follower) sizesText(args []symInt) string {
	parts := make([]string, len(args))
	for i, v := range args {
		parts[i] = fmt.Sprint(v.value)
		if v.name != "" {
			parts[i] = v.name
		}
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func (f *follower) expand(m uint64, from []symInt, result string) (uint64, string) {
	a := f.arg("size")
	if a == nil || len(a.ints) < len(from) || len(a.ints) > 60 {
		return 0, "has no rule for other sizes"
	}
	shift := len(a.ints) - len(from)
	for i := range from {
		if v := a.ints[i+shift]; has(m, i) && v.name == "" && v.expr == "" && v.value != -1 {
			return 0, "makes the sizes " + f.sizesText(a.ints)
		}
	}
	return m << shift, ""
}

func (f *follower) permute(m uint64, rank int) (uint64, string) {
	a := f.arg("dims")
	if a == nil || len(a.ints) != rank {
		return 0, "has no rule for other sizes"
	}
	out := uint64(0)
	for i, d := range a.ints {
		v := d.value
		if v < 0 {
			v += int64(rank)
		}
		if has(m, int(min(max(v, 0), 63))) {
			out |= 1 << i
		}
	}
	return out, ""
}

func (f *follower) reduce(m uint64, rank int) uint64 {
	a := f.arg("dim")
	if a == nil || len(a.ints) == 0 {
		return 0
	}
	keep := f.arg("keepdim")
	kept := keep != nil && len(keep.ints) == 1 && keep.ints[0].value != 0
	var axes []int
	for _, d := range a.ints {
		v := d.value
		if v < 0 {
			v += int64(rank)
		}
		axes = append(axes, int(min(max(v, 0), 63)))
	}
	slices.Sort(axes)
	for _, axis := range slices.Backward(axes) {
		if kept {
			m &^= 1 << axis
		} else {
			m = without(m, axis)
		}
	}
	return m
}

func (f *follower) cat(in []string) (uint64, string) {
	rank := len(f.sizes(in[0]))
	axis := f.axis("dim", 0, rank)
	out := uint64(0)
	for _, name := range in {
		out |= f.m[name]
	}
	for _, name := range in {
		if (out^f.m[name])&^(1<<axis) != 0 {
			return 0, fmt.Sprintf("joins %s, whose sizes are literals", name)
		}
	}
	return out, ""
}

func (f *follower) matmul(a, b string) (uint64, string) {
	ra, rb := len(f.sizes(a)), len(f.sizes(b))
	if ra < 2 || rb < 2 {
		return 0, "has no rule for other sizes"
	}
	ma, mb := f.m[a], f.m[b]
	if has(ma, ra-1) != has(mb, rb-2) {
		return 0, "multiplies it with a literal size"
	}
	rank := max(ra, rb)
	lead := ma&(1<<(ra-2)-1)<<(rank-ra) | mb&(1<<(rb-2)-1)<<(rank-rb)
	return lead | ma>>(ra-2)&1<<(rank-2) | mb>>(rb-1)&1<<(rank-1), ""
}

// attention checks that a mask follows the sequences.
func (f *follower) attention(in []string) string {
	if len(in) < 4 {
		return ""
	}
	mask := f.sizes(in[3])
	for i, seq := range []string{in[1], in[0]} {
		at, rank := len(mask)-1-i, len(f.sizes(seq))
		if at >= 0 && has(f.m[seq], rank-2) && !has(f.m[in[3]], at) && mask[at].value != 1 {
			return fmt.Sprintf("has a mask with %d there", mask[at].value)
		}
	}
	return ""
}
