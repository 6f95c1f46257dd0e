// Package export writes what is known of a recording in the formats of tools
// that people have: pprof (go tool pprof, Pyroscope), Perfetto (ui.perfetto.dev),
// folded stacks (flamegraph.pl, speedscope, inferno) and CSV (notebooks).
//
// Sizes are bytes of the allocator's blocks, as a replay of the recording under
// its own settings gave them.
package export

import (
	"slices"

	"vramscope/internal/holders"
	"vramscope/trace"
)

// frames returns the calls of request i's stack, outermost first. A request
// without one gets a frame that says in which phase it was made.
func frames(a *holders.Analysis, names func(int) string, i int) []trace.Frame {
	s := &a.Program.Trace.Stacks
	calls := s.Calls(a.Stack(i))
	if len(calls) == 0 {
		return []trace.Frame{{Function: names(i)}}
	}
	out := make([]trace.Frame, 0, len(calls))
	for _, id := range slices.Backward(calls) {
		out = append(out, s.Frame(id))
	}
	return out
}
