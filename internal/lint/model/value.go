package model

import "vramscope/internal/pysource"

// Kind says what sort of thing a value is.
type Kind uint8

// The kinds. Namespace is an imported module, class or function known by its
// dotted name; Object is an instance of an imported class.
const (
	Unknown Kind = iota
	None
	Number
	String
	Bytes
	List
	Tuple
	Dict
	Set
	Namespace
	Object
	Func
	Class
	Instance
	Tensor
	Array // NumPy
	Net   // torch.nn.Module or something used as one
	Optimizer
	Scheduler
	Scaler
	Loader
	Params // an iterator of parameters
	StateDict
	Device
	DType
	Shape
)

var kindNames = [...]string{
	"?", "None", "Number", "String", "Bytes", "List", "Tuple", "Dict", "Set", "", "", "def", "class",
	"Instance", "Tensor", "Array", "Net", "Optimizer", "Scheduler", "Scaler", "Loader", "Params",
	"StateDict", "Device", "DType", "Shape",
}

func (k Kind) String() string { return kindNames[k] }

// Tri is yes, no or not known.
type Tri uint8

// The three answers.
const (
	Maybe Tri = iota
	No
	Yes
)

// Value is what the model knows about the result of an expression. Values have
// identity: what is learnt about one from its later use (x.backward() makes x a
// tensor with a graph) holds for all names of it.
type Value struct {
	Kind   Kind
	Name   string // dotted name of a Namespace; of the class of an Object or Net
	Graph  Tri    // a tensor that hangs on an autograd graph
	Loose  bool   // a tensor, or a tuple or record of tensors: the result of a module
	Frozen bool   // a module after requires_grad_(False)
	Dev    string // "cpu", "cuda", "" not known
	DType  string // "float32", "float16", "bfloat16", "" not known
	Const  string // text of a constant number, string, dtype or device
	Origin pysource.Node
	Elems  []*Value // of a tuple or list display
	Elem   *Value   // join of what a container holds
	Func   *FuncInfo
	Class  *ClassInfo
	Args   []*Value        // of a lambda or partial
	Param  *pysource.Param // a parameter nobody has given a value
	Alts   []*Value        // of a join, what it may be
	Self   *ClassInfo      // the value is `self` of this class
	Of     *Value          // what this was taken from: the optimizer's model, the receiver of a method

	attrs   map[string]*Value
	used    usage
	refined bool
}

// usage is how an unknown value was used.
type usage uint16

const (
	usedStep usage = 1 << iota
	usedZeroGrad
	usedParameters
	usedTrain
	usedEval
	usedCall
	usedStateDict
	usedScale
	usedUpdate
)

var unknown = &Value{} // shared, never changed

// Is reports whether the value is of the kind, None apart.
func (v *Value) Is(k Kind) bool {
	if v == nil {
		return false
	}
	if len(v.Alts) == 0 {
		return v.Kind == k
	}
	some := false
	for _, a := range v.Alts {
		if a.Kind == None && k != None {
			continue
		}
		if !a.Is(k) {
			return false
		}
		some = true
	}
	return some
}

// May reports whether the value can be of the kind.
func (v *Value) May(k Kind) bool {
	if v == nil {
		return false
	}
	if v.Kind == k && len(v.Alts) == 0 {
		return true
	}
	for _, a := range v.Alts {
		if a.May(k) {
			return true
		}
	}
	return false
}

// HasGraph reports whether the value is surely a tensor with a graph on some
// way to here.
func (v *Value) HasGraph() bool {
	if v == nil {
		return false
	}
	if len(v.Alts) > 0 {
		for _, a := range v.Alts {
			if a.HasGraph() {
				return true
			}
		}
		return false
	}
	return v.Kind == Tensor && v.Graph == Yes && v.Name != "parameter" && v.Name != "leaf"
}

// needsGrad reports whether an operation on the value gives a tensor with a
// graph: HasGraph, and the leaves that require gradients.
func (v *Value) needsGrad() bool {
	if v.HasGraph() {
		return true
	}
	for _, a := range v.Alts {
		if a.needsGrad() {
			return true
		}
	}
	return len(v.Alts) == 0 && v.Kind == Tensor && v.Graph == Yes
}

// Reduced reports whether the tensor is a sum, mean, loss or index: small next
// to what it was made from.
func (v *Value) Reduced() bool {
	if v == nil {
		return false
	}
	for _, a := range v.Alts {
		if a.Reduced() {
			return true
		}
	}
	return v.Name == "reduced" || isLossFunction(v.Name)
}

// HoldsGraph is HasGraph for the value or what it contains.
func (v *Value) HoldsGraph() bool { return v.holdsGraph(0) }

func (v *Value) holdsGraph(depth int) bool {
	if v == nil || depth > 4 {
		return false
	}
	if v.HasGraph() {
		return true
	}
	for _, e := range v.Elems {
		if e.holdsGraph(depth + 1) {
			return true
		}
	}
	return (v.Kind == List || v.Kind == Dict || v.Kind == Tuple || v.Kind == Set) && v.Elem.holdsGraph(depth+1)
}

// OnGPU reports whether the value is known to be on a GPU.
func (v *Value) OnGPU() bool {
	if v == nil {
		return false
	}
	for _, a := range v.Alts {
		if a.OnGPU() {
			return true
		}
	}
	return v.Dev == "cuda"
}

// maxAlts bounds what a join remembers.
const maxAlts = 6

// join returns what can be said of a value that is a on one way and b on
// another.
func join(a, b *Value) *Value {
	switch {
	case a == b || b == nil:
		return a
	case a == nil:
		return b
	case a.sameAs(b):
		return a
	}
	j := &Value{}
	for _, x := range []*Value{a, b} {
		if len(x.Alts) == 0 {
			j.addAlt(x)
			continue
		}
		for _, y := range x.Alts {
			j.addAlt(y)
		}
	}
	if len(j.Alts) == 1 {
		return j.Alts[0]
	}
	if len(j.Alts) > maxAlts {
		j.Alts = j.Alts[:maxAlts]
	}
	k := j.Alts[0].Kind
	for _, x := range j.Alts[1:] {
		if x.Kind != k {
			k = Unknown
		}
	}
	j.Kind = k
	first := j.Alts[0]
	j.Name, j.Dev, j.DType, j.Graph, j.Class = first.Name, first.Dev, first.DType, first.Graph, first.Class
	for _, x := range j.Alts[1:] {
		if x.Name != j.Name {
			j.Name = ""
		}
		if x.Dev != j.Dev {
			j.Dev = ""
		}
		if x.DType != j.DType {
			j.DType = ""
		}
		if x.Class != j.Class {
			j.Class = nil
		}
		if x.Graph != j.Graph {
			j.Graph = Maybe
		}
		j.Loose = j.Loose || x.Loose
	}
	return j
}

func (v *Value) addAlt(x *Value) {
	for _, y := range v.Alts {
		if x == y || x.sameAs(y) {
			return
		}
	}
	v.Alts = append(v.Alts, x)
}

// sameAs reports whether nothing is lost by taking one for the other.
func (v *Value) sameAs(x *Value) bool {
	if len(v.Alts) > 0 || len(x.Alts) > 0 || v.Kind != x.Kind {
		return false
	}
	switch v.Kind {
	case None:
		return true
	case Number, String, DType, Device:
		return v.Const == x.Const
	case Namespace:
		return v.Name == x.Name
	case Tensor:
		return v.Graph == x.Graph && v.Dev == x.Dev && v.DType == x.DType && v.Loose == x.Loose && v.Origin == x.Origin
	case Unknown:
		return v.Origin == x.Origin && v.Param == x.Param && v.Of == x.Of && v.attrs == nil && x.attrs == nil
	}
	return false
}

// learn makes an unknown value, and what it is a join of, a thing of the kind.
func (v *Value) learn(k Kind) {
	if v == nil || v == unknown {
		return
	}
	for _, a := range v.Alts {
		if a.Kind == Unknown {
			a.learn(k)
		}
	}
	if v.Kind == Unknown && len(v.Alts) == 0 {
		v.Kind, v.refined = k, true
	}
}

// learnGraph says that backward ran on the value: it is a tensor with a graph.
func (v *Value) learnGraph() {
	if v == nil || v == unknown {
		return
	}
	for _, a := range v.Alts {
		if a.Kind == Unknown || a.Kind == Tensor {
			a.learnGraph()
		}
	}
	if len(v.Alts) > 0 {
		return
	}
	if v.Kind == Unknown || v.Kind == Tensor && v.Graph == Maybe {
		v.Kind, v.Graph, v.refined = Tensor, Yes, true
	}
}

// use notes a use of an unknown value and draws the conclusion.
func (v *Value) use(u usage) {
	if v == nil || v == unknown || v.Kind != Unknown {
		return
	}
	for _, a := range v.Alts {
		a.use(u)
	}
	v.used |= u
	switch {
	case v.used&usedStep != 0 && v.used&usedZeroGrad != 0:
		v.learn(Optimizer)
	case v.used&usedScale != 0 && v.used&usedUpdate != 0:
		v.learn(Scaler)
	case v.used&usedParameters != 0,
		v.used&usedCall != 0 && v.used&(usedTrain|usedEval|usedStateDict|usedZeroGrad) != 0:
		v.learn(Net)
	}
}
