// Package estimate says how much memory a model takes, by doing what PyTorch
// does in eager mode without the numbers: it runs the operators of a
// modelgraph.Graph one by one, keeps for each what autograd keeps, runs the
// backward pass in the order of PyTorch's engine, then the optimizer, three
// times, and sends every request and free to the simulated caching allocator.
//
// The layers, from below: tensor.go (storages, strides, layouts), machine.go
// (requests, references), autograd.go (the graph, the engine, accumulation of
// gradients), ops*.go (one rule per operator: results, temporaries, what is
// saved, what its gradient allocates), optimizer.go, exec.go (graphs and
// checkpointed blocks), job.go (the training loop).
//
// The rules follow PyTorch's sources (release 2.11) and were compared event by
// event with recordings on an H200; what depends on the card is in card.go.
package estimate
