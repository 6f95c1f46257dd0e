// Package modelgraph describes a model as what it computes: the ATen operators
// of one forward pass, in the order in which PyTorch runs them in eager mode,
// with the tensors they read and the moments at which Python lets go of them.
//
// A Graph comes from a configuration (package hf), from a torch.export file or
// from ONNX. All make the same thing:
//
//   - Values are tensors. Parameters, buffers and inputs have a shape and a
//     type; results have neither, since the executor (package estimate) infers
//     them from the operators. So one graph serves all batch sizes, sequence
//     lengths and image sizes: those are symbols in a Dim, bound when it runs.
//   - Nodes are operators, named as ATen names them, without "aten." and
//     without overload ("linear", "scaled_dot_product_attention"), with tensors
//     in the order of ATen's schema and everything else as named attributes.
//   - Calls are the calls of modules, as intervals of nodes. They give the
//     places in reports, say how long a value lives, and mark the blocks that
//     activation checkpointing recomputes.
//
// The life of a value matters as much as its size. What autograd saves is the
// executor's knowledge; what Python's variables hold is here: a value is dropped
// after its last use, but not before every module call that was given it has
// returned (the caller's frame holds the arguments), nor before the end of the
// call whose local variable it is (Builder.Hold). Finish turns these rules into
// Node.Drop.
//
// A reader makes a Graph with a Builder:
//
//	b := modelgraph.NewBuilder("mlp")
//	x := b.Input("x", modelgraph.Float32, modelgraph.Batch, modelgraph.Const(784))
//	w := b.Param("fc.weight", 10, 784)
//	b.Call("fc", func() { x = b.Op("linear", x, w, modelgraph.None) })
//	g, err := b.Finish(x)
package modelgraph
