// Package torchsnap reads and writes PyTorch's memory snapshots: the pickles
// of torch.cuda.memory._dump_snapshot, torch.cuda.memory_snapshot and the C++
// profiler, of PyTorch 1.12 to 2.15, as they are or compressed by gzip or
// zstd.
//
//	t, err := torchsnap.ReadFile("snap.pickle.zst", nil) // or Read(stdin, nil)
//	for _, d := range t.Devices { … d.Events, d.Segments, d.History() … }
//	err = torchsnap.Write(w, t)
//
// A pickle can name code to run. Nothing here ever runs any: what a snapshot
// does not need is refused. Errors are of type *Error where a place in the
// file is to blame, and say what was found there.
//
// Reading streams: the file is never whole in memory, and time is spent on its
// bytes rather than on objects (see internal/pickle).
//
// Frames and stacks are numbered as the file first has them, tracebacks by
// their first use: blocks of segments, then events. What is odd and yet
// readable, such as blocks that leave gaps in their segment, is in the trace's
// Warnings.
package torchsnap
