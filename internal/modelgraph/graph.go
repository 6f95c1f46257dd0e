package modelgraph

import "slices"

// DType is the type of a tensor's elements.
type DType uint8

// The types of elements, with PyTorch's names.
const (
	Float32 DType = iota
	Float64
	Float16
	BFloat16
	Float8
	Int64
	Int32
	Int16
	Int8
	UInt8
	Bool
	Complex64
	numDTypes
)

var dtypeNames = [numDTypes]string{"float32", "float64", "float16", "bfloat16", "float8", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64"}
var dtypeSizes = [numDTypes]int64{4, 8, 2, 2, 1, 8, 4, 2, 1, 1, 1, 8}

func (t DType) String() string { return dtypeNames[t] }

// Size returns the bytes of one element.
func (t DType) Size() int64 { return dtypeSizes[t] }

// IsFloat reports whether tensors of this type can have gradients.
func (t DType) IsFloat() bool { return t <= Float8 }

// DTypeByName returns the type that PyTorch calls name.
func DTypeByName(name string) (DType, bool) {
	i := slices.Index(dtypeNames[:], name)
	return DType(max(i, 0)), i >= 0
}

// ValueID is an index into Graph.Values. None stands for an absent tensor.
type ValueID int32

// None is the argument that an operator does without: a bias, a mask.
const None ValueID = -1

// Kind says where a value comes from.
type Kind uint8

// The kinds of values.
const (
	Result Kind = iota // an operator makes it
	Param              // a parameter; Name is its full name
	Buffer             // a buffer; Name is its full name
	Input              // each step brings it
)

// Value is a tensor.
type Value struct {
	Name string
	Kind Kind
	// Shape and DType are set for all kinds but Result, whose shapes follow
	// from the operators.
	Shape []Dim
	DType DType
	// Frozen parameters get no gradient.
	Frozen bool
	// FixedType says that converting the model to another precision leaves
	// this buffer or parameter as it is.
	FixedType bool
}

// Attr is an argument of an operator that is not a tensor. One of the fields
// is meant; which one, the operator knows. A Boolean is an Ints of 0 or 1.
type Attr struct {
	Key   string
	Ints  []Dim
	Float float64
	Str   string
}

// Node is a call of an operator.
type Node struct {
	Op    string    // ATen's name: "linear"
	In    []ValueID // tensors in ATen's order; lists of tensors are flattened
	Out   []ValueID
	Attrs []Attr
	Call  int // index into Graph.Calls: the module whose forward runs it
	// Drop are the values that Python lets go of after this node.
	Drop []ValueID
}

// Attr returns the attribute of that name, or nil.
func (n *Node) Attr(key string) *Attr {
	for i := range n.Attrs {
		if n.Attrs[i].Key == key {
			return &n.Attrs[i]
		}
	}
	return nil
}

// Float returns a number, or def where it is absent.
func (n *Node) Float(key string, def float64) float64 {
	if a := n.Attr(key); a != nil {
		return a.Float
	}
	return def
}

// Str returns a string, or def where it is absent.
func (n *Node) Str(key, def string) string {
	if a := n.Attr(key); a != nil {
		return a.Str
	}
	return def
}

// Bool returns a Boolean, false where it is absent.
func (n *Node) Bool(key string) bool {
	a := n.Attr(key)
	if a == nil || len(a.Ints) != 1 {
		return false
	}
	v, ok := a.Ints[0].Const()
	return ok && v != 0
}

// Call is a call of a module's forward: the nodes [First, Last).
type Call struct {
	Path        string // "model.layers.3.mlp"; "" is the model
	Parent      int    // index into Graph.Calls, -1 for the model
	First, Last int
	// Block says that activation checkpointing of every block treats this call
	// as one unit.
	Block bool
}

// Graph is a model.
type Graph struct {
	Name   string
	Source string // "hf:gpt2", "torch.export", "onnx", "weights"
	Values []Value
	// Params are the parameters and buffers in the order of
	// Module.named_parameters, then named_buffers.
	Params  []ValueID
	Inputs  []ValueID
	Outputs []ValueID
	Nodes   []Node
	Calls   []Call
	// Symbols are the extents that the file leaves open, with their ranges.
	Symbols []Symbol
	// Assumptions are what the reader did not know and took for granted, one
	// sentence each.
	Assumptions []string
}

// NumParams returns the number of elements of all parameters, frozen ones
// included.
func (g *Graph) NumParams() int64 {
	n := int64(0)
	for _, id := range g.Params {
		if v := &g.Values[id]; v.Kind == Param {
			n += v.Elements()
		}
	}
	return n
}

// Elements returns the number of elements of a value whose shape is constant,
// else 0.
func (v *Value) Elements() int64 {
	n := int64(1)
	for _, d := range v.Shape {
		k, ok := d.Const()
		if !ok {
			return 0
		}
		n *= k
	}
	return n
}
