// Package timeline holds memory over time in a form that any stretch of it can
// be drawn from at any width: what was allocated, active and reserved after
// each event of a recording (Series), summaries that find the extremes of a
// stretch without reading it (Pyramid), and what the allocated bytes were made
// of at a moment (Stack).
//
// It serves the exports, reports and pages; it draws nothing itself.
package timeline

import (
	"context"

	"vramscope/cachealloc"
	"vramscope/replay"
)

// Series is memory after each event of a recording, in bytes, indexed by event.
// A replay that died has values up to the event at which it did.
type Series struct {
	Allocated, Active, Reserved []int64
}

// Len returns the number of events that have values.
func (s *Series) Len() int { return len(s.Reserved) }

// Of replays the program under a scenario and returns its series. Events
// between two operations have the values after the earlier one. The error is
// the context's.
func Of(ctx context.Context, p *replay.Program, sc replay.Scenario) (*Series, *replay.Outcome, error) {
	n := p.Device.Events.Len()
	s := &Series{Allocated: make([]int64, 0, n), Active: make([]int64, 0, n), Reserved: make([]int64, 0, n)}
	now := before(p)
	extend := func(to int) {
		for s.Len() < to {
			s.Allocated = append(s.Allocated, now.allocated)
			s.Active = append(s.Active, now.active)
			s.Reserved = append(s.Reserved, now.reserved)
		}
	}
	sc.OnEvent = func(event int, st *cachealloc.Stats) {
		extend(event)
		now = totals{st.AllocatedBytes.All.Current, st.ActiveBytes.All.Current, st.ReservedBytes.All.Current}
		if s.Len() == event+1 { // a second operation that ends with this event
			s.Allocated[event], s.Active[event], s.Reserved[event] = now.allocated, now.active, now.reserved
		}
		extend(event + 1)
	}
	out, err := p.Run(ctx, sc)
	if err != nil {
		return nil, nil, err
	}
	end := n
	if x := out.FatalOOM; x != nil && x.Request != len(p.Requests)-1 {
		end = max(s.Len(), x.Event)
	}
	extend(min(end, n))
	return s, out, nil
}

type totals struct{ allocated, active, reserved int64 }

// before sums what the recording shows in use before its first event.
func before(p *replay.Program) (t totals) {
	h := p.History()
	for _, b := range h.Preexisting {
		if b.Size > 0 {
			t.active += b.Size
			t.allocated += b.Size
		}
	}
	for _, s := range h.PreexistingSegments {
		t.reserved += s.Size
	}
	return t
}
