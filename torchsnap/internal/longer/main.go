// Longer makes a large snapshot from a real one for benchmarks: it repeats a
// stretch of the recording that ends with the very memory in use with which it
// began, so that every event of the result still makes sense.
//
//	go run ./torchsnap/internal/longer IN OUT EVENTS
package main

import (
	"fmt"
	"os"
	"strconv"

	"vramscope/torchsnap"
	"vramscope/trace"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("usage: longer IN OUT EVENTS")
	}
	events, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	t, err := torchsnap.ReadFile(args[0], nil)
	if err != nil {
		return err
	}
	if len(t.Devices) == 0 {
		return fmt.Errorf("%s: has no device", args[0])
	}
	d := &t.Devices[0]
	from, to := stretch(&d.Events)
	if from == to {
		return fmt.Errorf("%s: no stretch of it ends as it begins", args[0])
	}
	lengthen(&d.Events, from, to, events)
	f, err := os.Create(args[1])
	if err != nil {
		return err
	}
	if err := torchsnap.Write(f, t); err != nil {
		return err
	}
	fmt.Printf("%s: %d events, of which %d to %d are repeated\n", args[1], d.Events.Len(), from, to)
	return f.Close()
}

// stretch finds the longest run of events without a segment event after which
// the same blocks are in use as before it.
func stretch(e *trace.Events) (from, to int) {
	// The blocks in use as the exclusive or of a hash of each.
	var live uint64
	first := map[uint64]int{0: 0}
	for i := range e.Len() {
		switch e.Action[i] {
		case trace.Alloc:
			live ^= hash(e.Addr[i], 1)
		case trace.FreeRequested: // in use by a stream
			live ^= hash(e.Addr[i], 1) ^ hash(e.Addr[i], 2)
		case trace.FreeCompleted:
			live ^= hash(e.Addr[i], 2)
		case trace.SegmentAlloc, trace.SegmentFree, trace.SegmentMap, trace.SegmentUnmap:
			clear(first)
		}
		if at, ok := first[live]; !ok {
			first[live] = i + 1
		} else if i+1-at > to-from {
			from, to = at, i+1
		}
	}
	return from, to
}

// hash is the finaliser of splitmix64.
func hash(addr, state uint64) uint64 {
	z := addr ^ state<<60
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// lengthen repeats rows from to to until there are n events. Each repetition
// has tracebacks of its own, as calls of a program have.
func lengthen(e *trace.Events, from, to, n int) {
	var out trace.Events
	out.AppendRows(e, 0, to)
	highest := trace.TracebackID(0)
	for _, tb := range e.Traceback {
		highest = max(highest, tb)
	}
	rest := e.Len() - to
	for round := trace.TracebackID(1); out.Len()+rest < n; round++ {
		at := out.Len()
		out.AppendRows(e, from, to)
		for i := at; i < out.Len(); i++ {
			if out.Traceback[i] != 0 {
				out.Traceback[i] += round * highest
			}
		}
	}
	out.AppendRows(e, to, e.Len())
	*e = out
}
