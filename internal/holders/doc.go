// Package holders says who holds the memory of a recording: which code, for
// which purpose, in which phase of training, and what of it keeps growing.
//
// Analyze replays a program once under its recorded settings and returns an
// Analysis, from which the other questions are answered without a replay (but
// for Fragmentation, which asks for the segments at one moment):
//
//	a, err := holders.Analyze(ctx, program)
//	a.At(a.PeakAllocated, holders.ByLine) // who held the peak
//	a.Steps                               // training steps and their phases
//	a.Leaks()                             // what grows from step to step
//	a.Fragmentation(ctx, a.PeakReserved)  // what is reserved but free, and why
//
// Everything follows from the order of the events and from lifetimes. Stacks
// tell the phases apart (an allocation of the autograd engine has no Python
// stack, or one that begins inside torch; an optimizer's has a frame of
// torch/optim) and name the holders; names only confirm a category. Each
// request keeps the rule that decided its category.
//
// Events are indices into trace.Device.Events. A moment at event e is the
// state right after e. Sizes are bytes; "allocated" is what the replayed
// allocator gave (its blocks), "requested" what the program asked for.
//
// The package does no I/O and has no opinion on causes or remedies
// (internal/diagnose).
package holders
