package estimate

import (
	"fmt"

	"vramscope/internal/modelgraph"
)

// memory serves the machine's requests: an allocator, simulated.
type memory interface {
	// malloc returns a handle that is not 0.
	malloc(bytes int64) (int32, error)
	free(handle int32)
}

// machine is PyTorch in eager mode as far as memory goes: it runs operators,
// keeps what autograd keeps, and asks for memory as the operators do. Errors
// are panics of type failure inside the package; run turns them into errors.
type machine struct {
	mem  memory
	card cardRules

	grad      bool // grad mode
	seq       int  // sequence_nr of the next autograd node
	autocast  modelgraph.DType
	amp       bool // autocast is on
	casts     map[*param]*tensor
	castOrder []*param
	training  bool

	backward bool // in the engine's thread, which has its own cuBLAS handle
	handles  [2]struct{ blas, lt, dnn *tensor }

	block *frame // the checkpointed block that runs, in forward or again

	cats   [numCategories]int64 // bytes held, rounded
	held   int64
	nextID int32
	where  string // what runs now, for reports
	log    func(ev logged)
	peak   peakState
	work   Work
}

// logged is one request or free, for tests and for the timeline.
type logged struct {
	free  bool
	id    int32
	bytes int64
	where string
}

type peakState struct {
	bytes int64
	where string
	cats  [numCategories]int64
}

// failure is an error on its way out of the machine.
type failure struct{ err error }

func (m *machine) fail(format string, args ...any) {
	panic(failure{fmt.Errorf(format, args...)})
}

func round512(n int64) int64 { return (n + 511) &^ 511 }

// request gets memory. A request of 0 bytes gets none.
func (m *machine) request(bytes int64, cat Category) *storage {
	s := &storage{refs: 0, bytes: bytes, cat: cat}
	if bytes == 0 {
		return s
	}
	if bytes < 0 {
		m.fail("%s: a size overflows", m.where)
	}
	h, err := m.mem.malloc(bytes)
	if err != nil {
		panic(failure{err})
	}
	s.mem = h
	m.nextID++
	m.work.Operators++
	m.work.Bytes += 3 * float64(bytes)
	s.id = m.nextID
	r := round512(bytes)
	m.cats[cat] += r
	m.held += r
	if m.held > m.peak.bytes {
		m.peak = peakState{bytes: m.held, where: m.where, cats: m.cats}
	}
	if m.log != nil {
		m.log(logged{id: s.id, bytes: bytes, where: m.where})
	}
	return s
}

// product counts a matrix product of 2·n operations.
func (m *machine) product(dt modelgraph.DType, n ...int64) {
	f := 2.0
	for _, v := range n {
		f *= float64(v)
	}
	if dt.Size() >= 4 {
		m.work.FLOPs32 += f
	} else {
		m.work.FLOPs16 += f
	}
}

func (m *machine) setCategory(t *tensor, cat Category) {
	s := t.st
	if s.mem != 0 {
		m.cats[s.cat] -= round512(s.bytes)
		m.cats[cat] += round512(s.bytes)
	}
	s.cat = cat
}

func (m *machine) unrefStorage(s *storage) {
	s.refs--
	if s.refs > 0 || s.mem == 0 {
		return
	}
	m.mem.free(s.mem)
	r := round512(s.bytes)
	m.cats[s.cat] -= r
	m.held -= r
	if m.log != nil {
		m.log(logged{free: true, id: s.id, bytes: s.bytes, where: m.where})
	}
	s.mem = 0
}

// empty makes a tensor with its own memory and one reference.
func (m *machine) empty(dt modelgraph.DType, shape []int64, stride []int64) *tensor {
	if stride == nil {
		stride = contiguousStrides(shape)
	}
	n, err := modelgraph.MulSizes(shape...)
	if err == nil {
		n, err = modelgraph.MulSizes(n, dt.Size())
	}
	if err != nil {
		m.fail("%s: %w", m.where, err)
	}
	cat := Activation
	if m.backward && m.block == nil {
		cat = Temporary
	}
	st := m.request(n, cat)
	st.refs = 1
	return &tensor{refs: 1, st: st, shape: shape, stride: stride, dtype: dt}
}

// scratch gets memory that its operator gives back: a workspace.
func (m *machine) scratch(bytes int64) *tensor {
	st := m.request(bytes, Workspace)
	st.refs = 1
	return &tensor{refs: 1, st: st, shape: []int64{bytes}, stride: []int64{1}, dtype: modelgraph.UInt8}
}

// alias is a view of t: the same memory, another shape. It is outside autograd.
func (m *machine) alias(t *tensor, shape, stride []int64) *tensor {
	t.st.refs++
	return &tensor{refs: 1, st: t.st, shape: shape, stride: stride, dtype: t.dtype, view: true}
}

func (m *machine) ref(t *tensor) *tensor {
	if t != nil {
		t.refs++
	}
	return t
}

// unref drops references.
func (m *machine) unref(ts ...*tensor) {
	for _, t := range ts {
		if t == nil {
			continue
		}
		t.refs--
		if t.refs < 0 {
			panic("estimate: a tensor is dropped twice in " + m.where)
		}
		if t.refs > 0 {
			continue
		}
		m.unrefStorage(t.st)
		if t.fn != nil {
			m.unrefFn(t.fn)
		}
	}
}
