package hf

import "vramscope/internal/modelgraph"

// The words of package modelgraph that every family uses, without its name in
// front: the families read as lists of operators.
type (
	ValueID = modelgraph.ValueID
	Value   = modelgraph.Value
	Dim     = modelgraph.Dim
	Attr    = modelgraph.Attr
)

const (
	None    = modelgraph.None
	Float32 = modelgraph.Float32
	Int64   = modelgraph.Int64
	Param   = modelgraph.Param
	Buffer  = modelgraph.Buffer
)

// Batch and Seq are the symbols of the inputs.
var (
	Batch = modelgraph.Batch
	Seq   = modelgraph.Seq
)

// Attributes and extents, as in package modelgraph.

func Const(n int64) Dim                { return modelgraph.Const(n) }
func Consts(n ...int64) []Dim          { return modelgraph.Consts(n...) }
func Ints(key string, v ...int64) Attr { return modelgraph.Ints(key, v...) }
func Dims(key string, v ...Dim) Attr   { return modelgraph.Dims(key, v...) }
func Float(key string, v float64) Attr { return modelgraph.Float(key, v) }
func Str(key, v string) Attr           { return modelgraph.Str(key, v) }
func Flag(key string) Attr             { return modelgraph.Flag(key) }
