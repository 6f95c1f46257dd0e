package onnx

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"vramscope/internal/modelgraph"
)

// The messages of onnx/onnx.proto (IR version 11), the fields that matter.

type modelProto struct {
	producer string
	opset    int64 // of the standard operators
	graph    *graphProto
}

type graphProto struct {
	nodes   []nodeProto
	inits   []tensorProto
	inputs  []valueInfo
	outputs []valueInfo
	infos   []valueInfo
}

type nodeProto struct {
	in, out []string
	name    string
	op      string
	domain  string
	attrs   []attrProto
	scopes  string // torch.onnx: "['', 'layer1', 'layer1.0', 'relu']"
	classes string
	at      int64
}

type attrProto struct {
	name   string
	f      float64
	i      int64
	s      string
	t      *tensorProto
	ints   []int64
	graphs bool
}

type tensorProto struct {
	name  string
	dims  []int64
	dtype int64
	ints  []int64   // the content of small tensors of integers
	flts  []float64 // and of small ones of numbers
}

type valueInfo struct {
	name  string
	dtype int64
	dims  []dimProto
	shape bool // there is a shape
}

type dimProto struct {
	value int64
	param string
}

// elementTypes are the numbers of TensorProto.DataType.
var elementTypes = map[int64]modelgraph.DType{
	1: modelgraph.Float32, 2: modelgraph.UInt8, 3: modelgraph.Int8, 4: modelgraph.Int16, 5: modelgraph.Int16,
	6: modelgraph.Int32, 7: modelgraph.Int64, 9: modelgraph.Bool, 10: modelgraph.Float16, 11: modelgraph.Float64,
	12: modelgraph.Int32, 13: modelgraph.Int64, 14: modelgraph.Complex64, 16: modelgraph.BFloat16,
	17: modelgraph.Float8, 18: modelgraph.Float8, 19: modelgraph.Float8, 20: modelgraph.Float8,
}

func readModel(s *source) *modelProto {
	p := &modelProto{}
	for m := (message{s: s, end: s.size}); m.next(); {
		switch m.num {
		case 2:
			p.producer = m.name()
		case 7:
			p.graph = readGraph(m.sub())
		case 8:
			domain, version := "", int64(0)
			for o := m.sub(); o.next(); {
				switch o.num {
				case 1:
					domain = o.name()
				case 2:
					version = o.int()
				default:
					o.skip()
				}
			}
			if domain == "" || domain == "ai.onnx" {
				p.opset = version
			}
		default:
			m.skip()
		}
	}
	return p
}

func readGraph(m message) *graphProto {
	g := &graphProto{}
	for m.next() {
		switch m.num {
		case 1:
			m.s.count(m.start, 1)
			g.nodes = append(g.nodes, readNode(m.sub(), m.start))
		case 5:
			m.s.count(m.start, 1)
			g.inits = append(g.inits, readTensor(m.sub()))
		case 11:
			g.inputs = append(g.inputs, readValueInfo(m.sub()))
		case 12:
			g.outputs = append(g.outputs, readValueInfo(m.sub()))
		case 13:
			g.infos = append(g.infos, readValueInfo(m.sub()))
		default:
			m.skip()
		}
	}
	return g
}

func readNode(m message, at int64) nodeProto {
	n := nodeProto{at: at}
	for m.next() {
		switch m.num {
		case 1:
			n.in = append(n.in, m.name())
		case 2:
			n.out = append(n.out, m.name())
		case 3:
			n.name = m.name()
		case 4:
			n.op = m.name()
		case 5:
			m.s.count(m.start, 1)
			n.attrs = append(n.attrs, readAttr(m.sub()))
		case 7:
			n.domain = m.name()
		case 9:
			readMeta(m.sub(), &n)
		default:
			m.skip()
		}
	}
	return n
}

// readMeta reads an entry of metadata_props: torch.onnx writes there which
// module a node comes from.
func readMeta(m message, n *nodeProto) {
	key := ""
	for m.next() {
		switch {
		case m.num == 1:
			key = m.name()
		case m.num == 2 && key == "pkg.torch.onnx.name_scopes":
			n.scopes = m.name()
		case m.num == 2 && key == "pkg.torch.onnx.class_hierarchy":
			n.classes = m.name()
		default:
			m.skip()
		}
	}
}

func readAttr(m message) attrProto {
	var a attrProto
	for m.next() {
		switch m.num {
		case 1:
			a.name = m.name()
		case 2:
			a.f = m.float()
		case 3:
			a.i = m.int()
		case 4:
			a.s = m.name()
		case 5:
			t := readTensor(m.sub())
			a.t = &t
		case 6, 11:
			a.graphs = true
			m.skip()
		case 8:
			a.ints = m.ints(a.ints)
		default:
			m.skip()
		}
	}
	return a
}

// smallTensor is how many elements a tensor may have whose content is read:
// shapes, axes, scalars.
const smallTensor = 256

func readTensor(m message) tensorProto {
	var t tensorProto
	var raw []byte
	for m.next() {
		switch m.num {
		case 1:
			t.dims = m.ints(t.dims)
		case 2:
			t.dtype = m.int()
		case 4: // float_data
			if n := m.float32s(); n != nil {
				t.flts = n
			}
		case 5, 7: // int32_data, int64_data
			if m.typ == protowire.BytesType {
				if n := m.peekLen(); n > 10*smallTensor {
					m.skip()
					continue
				}
			}
			t.ints = m.ints(t.ints)
		case 8:
			t.name = m.name()
		case 9:
			if b := m.sub(); b.end-b.pos <= 8*smallTensor {
				raw = append([]byte{}, b.s.peek(b.pos, b.end, 8*smallTensor)...)
			}
		default:
			m.skip()
		}
	}
	switch n := len(raw); {
	case t.dtype == 7 && n%8 == 0:
		for i := 0; i < n; i += 8 {
			t.ints = append(t.ints, int64(binary.LittleEndian.Uint64(raw[i:])))
		}
	case t.dtype == 6 && n%4 == 0:
		for i := 0; i < n; i += 4 {
			t.ints = append(t.ints, int64(int32(binary.LittleEndian.Uint32(raw[i:]))))
		}
	case t.dtype == 9:
		for _, b := range raw {
			t.ints = append(t.ints, int64(b))
		}
	case t.dtype == 1 && n%4 == 0:
		for i := 0; i < n; i += 4 {
			t.flts = append(t.flts, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[i:]))))
		}
	case t.dtype == 11 && n%8 == 0:
		for i := 0; i < n; i += 8 {
			t.flts = append(t.flts, math.Float64frombits(binary.LittleEndian.Uint64(raw[i:])))
		}
	}
	if n, ok := t.elements(); !ok || n != int64(len(t.ints)) {
		t.ints = nil
	}
	if n, ok := t.elements(); !ok || n != int64(len(t.flts)) {
		t.flts = nil
	}
	return t
}

// elements is the number of elements; ok is false where the shape is absurd.
func (t *tensorProto) elements() (int64, bool) {
	for _, d := range t.dims {
		if d < 0 {
			return 0, false
		}
	}
	n, err := modelgraph.MulSizes(append([]int64{1}, t.dims...)...)
	return n, err == nil
}

// peekLen is the length of a length-delimited field.
func (m *message) peekLen() int64 {
	n, k := protowire.ConsumeVarint(m.s.peek(m.pos, m.end, 10))
	if k < 0 {
		return 0
	}
	return int64(min(n, math.MaxInt64))
}

// float32s reads packed numbers where there are few.
func (m *message) float32s() []float64 {
	if m.typ == protowire.Fixed32Type {
		return []float64{m.float()}
	}
	b := m.sub()
	if b.end-b.pos > 4*smallTensor {
		return nil
	}
	var out []float64
	for _, raw := 0, b.s.peek(b.pos, b.end, 4*smallTensor); len(raw) >= 4; raw = raw[4:] {
		out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))))
	}
	return out
}

func readValueInfo(m message) valueInfo {
	var v valueInfo
	m.s.count(m.pos, 1)
	for m.next() {
		if m.num == 1 {
			v.name = m.name()
			continue
		}
		if m.num != 2 {
			m.skip()
			continue
		}
		for t := m.sub(); t.next(); {
			if t.num != 1 { // tensor_type; sequences, maps and optionals have no bytes of their own
				t.skip()
				continue
			}
			for tt := t.sub(); tt.next(); {
				switch tt.num {
				case 1:
					v.dtype = tt.int()
				case 2:
					v.shape = true
					v.dims = readShape(tt.sub())
				default:
					tt.skip()
				}
			}
		}
	}
	return v
}

func readShape(m message) []dimProto {
	dims := []dimProto{}
	for m.next() {
		if m.num != 1 {
			m.skip()
			continue
		}
		m.s.count(m.start, 1)
		var d dimProto
		for dm := m.sub(); dm.next(); {
			switch dm.num {
			case 1:
				d.value = dm.int()
			case 2:
				d.param = dm.name()
			default:
				dm.skip()
			}
		}
		dims = append(dims, d)
	}
	return dims
}
