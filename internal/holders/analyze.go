package holders

import (
	"context"

	"vramscope/cachealloc"
	"vramscope/replay"
	"vramscope/trace"
)

// Analysis is what Analyze found. Its slices that are indexed by request have
// the length of Program.Requests.
type Analysis struct {
	Program *replay.Program
	// Outcome of the replay under the recorded settings.
	Outcome *replay.Outcome

	// Steps of training in order; empty where none was found. The last one
	// may be incomplete.
	Steps []Step
	// Phases cover the timeline from the first request on, in order.
	Phases []Phase

	// PeakAllocated and PeakReserved are the events of the first moments
	// with the most bytes. Failure is that of the last refusal, -1 if
	// nothing was refused.
	PeakAllocated, PeakReserved, Failure int

	// Allocated bytes of each request, as the replay gave them; 0 for one that
	// was refused, and for one that was given back before the recording began.
	Allocated []int64
	// Rules that decided each request's category.
	Rules []Rule

	sites     []Site          // by stack
	stacks    []trace.StackID // by request: that of its birth
	phase     []int32         // by request: index in Phases, -1 for preexisting ones
	phasePeak []phasePeak     // by phase
	dying     int32           // first of the refused requests that end the program
	teardown  int32           // first event after the last request or step
}

// phasePeak is the most memory of a phase.
type phasePeak struct{ allocated, reserved int64 }

// Analyze replays the program once and attributes its requests. The error is
// the context's. Time and memory are linear in the events.
func Analyze(ctx context.Context, p *replay.Program) (*Analysis, error) {
	a := &Analysis{Program: p, Failure: -1}
	a.sites = sitesOf(&p.Trace.Stacks)
	a.birthStacks()
	a.findSteps()
	if err := a.replay(ctx); err != nil {
		return nil, err
	}
	a.categorize()
	return a, nil
}

// birthStacks notes the stack of each request. The blocks that were alive
// before the recording began come first in Program.Requests, in their order.
func (a *Analysis) birthStacks() {
	p := a.Program
	e := &p.Device.Events
	a.stacks = make([]trace.StackID, len(p.Requests))
	for i, b := range p.History().Preexisting {
		if i < len(p.Requests) {
			a.stacks[i] = b.Stack
		}
	}
	for i := range p.Requests {
		if ev := p.Requests[i].Event; ev >= 0 {
			a.stacks[i] = e.Stack[ev]
		}
	}
}

// refused reports whether request i got nothing.
func (a *Analysis) refused(i int) bool {
	ev := a.Program.Requests[i].Event
	return ev >= 0 && a.Program.Device.Events.Action[ev] == trace.OOM
}

// replay measures the blocks of all requests and the peaks.
func (a *Analysis) replay(ctx context.Context) error {
	p := a.Program
	e := &p.Device.Events
	a.Allocated = make([]int64, len(p.Requests))
	a.phasePeak = make([]phasePeak, len(a.Phases))
	next := 0          // request
	before := int64(0) // allocated bytes at the last event
	for i, b := range p.History().Preexisting {
		next = i + 1
		if b.State == trace.PendingFree {
			continue // nobody holds it
		}
		a.Allocated[i] = b.Size
		if b.Size < 0 {
			a.Allocated[i] = roundUp(p.Requests[i].Size)
		}
		before += a.Allocated[i]
	}
	phase := 0
	peak := int64(-1)
	out, err := p.Run(ctx, replay.Scenario{OnEvent: func(event int, s *cachealloc.Stats) {
		now, reserved := s.AllocatedBytes.All.Current, s.ReservedBytes.All.Current
		if act := e.Action[event]; act == trace.Alloc || act == trace.OOM {
			for next < len(p.Requests) && int(p.Requests[next].Event) < event {
				next++
			}
			if next < len(p.Requests) && int(p.Requests[next].Event) == event {
				if act == trace.Alloc {
					a.Allocated[next] = now - before
				} else {
					a.Failure = event
				}
				next++
			}
			if now > peak {
				peak, a.PeakAllocated = now, event
			}
		}
		for phase < len(a.Phases)-1 && event >= a.Phases[phase].End {
			phase++
		}
		if len(a.Phases) > 0 && event >= a.Phases[phase].First {
			pp := &a.phasePeak[phase]
			pp.allocated, pp.reserved = max(pp.allocated, now), max(pp.reserved, reserved)
		}
		before = now
	}})
	if err != nil {
		return err
	}
	a.Outcome = out
	a.PeakReserved = out.PeakReservedEvent
	return nil
}

func roundUp(n int64) int64 { return max((n+511)/512*512, 512) }
