package holders

import (
	"sort"
	"strings"

	"vramscope/trace"
)

// run is a stretch of requests with the same class of roles.
type run struct {
	class      runClass
	first, end int32 // events
	from, to   int32 // requests
}

type runClass uint8

const (
	forwardRun   runClass = iota // anything but the two below
	backwardRun                  // the autograd engine
	optimizerRun                 // optimizer and zero_grad
)

// runs splits the timeline. Requests tell what is at work by their stacks;
// recorded Optimizer.step regions and calls of zero_grad tell where an
// optimizer ran that asked for nothing.
func (a *Analysis) runs() []run {
	p := a.Program
	e := &p.Device.Events
	spans := a.optimizerSpans()
	var runs []run
	push := func(c runClass, event, request int32) *run {
		if n := len(runs); n > 0 && runs[n-1].class == c {
			return &runs[n-1]
		}
		if n := len(runs); n > 0 {
			runs[n-1].end, runs[n-1].to = event, request
		}
		runs = append(runs, run{class: c, first: event, from: request})
		return &runs[len(runs)-1]
	}
	started := false // a forward pass was seen
	request, span := int32(0), 0
	for request < int32(len(p.Requests)) && p.Requests[request].Event < 0 {
		request++
	}
	for i := int32(0); i < int32(e.Len()); i++ {
		for span < len(spans) && int(i) >= spans[span].First {
			if len(runs) > 0 {
				push(optimizerRun, i, request)
			}
			if int(i) < spans[span].End {
				break
			}
			span++
		}
		inSpan := span < len(spans) && int(i) >= spans[span].First
		switch e.Action[i] {
		case trace.Alloc, trace.OOM:
			s := &a.sites[e.Stack[i]]
			c := forwardRun
			switch {
			case inSpan || s.role == roleOptimizer || s.role == roleZeroGrad:
				c = optimizerRun
			case s.role == roleBackward || s.role == roleNone:
				// Before any forward pass an empty stack is only that.
				if started {
					c = backwardRun
				}
			default:
				started = true
			}
			push(c, i, request)
			request++
		case trace.FreeRequested:
			// Dropping gradients right after backward or the optimizer.
			if s := &a.sites[e.Stack[i]]; s.role == roleZeroGrad && len(runs) > 0 && runs[len(runs)-1].class != forwardRun {
				push(optimizerRun, i, request)
			}
		}
	}
	if n := len(runs); n > 0 {
		runs[n-1].end, runs[n-1].to = int32(e.Len()), request
	}
	return runs
}

// silentOptimizers adds the optimizer runs that left neither a request nor a
// region nor a stack: after a backward pass, most of what it made in the sizes
// of parameters is given back before the next request. That is zero_grad after
// a step in place.
func (a *Analysis) silentOptimizers(runs []run) []run {
	if len(runs) == 0 {
		return nil
	}
	req := a.Program.Requests
	sizes := map[int64]bool{} // of what is there before the first forward pass
	for q := int32(0); q < a.firstModule(runs[0]); q++ {
		if f := req[q].Free; f < 0 || f >= runs[0].end {
			sizes[req[q].Size] = true
		}
	}
	var out []run
	for i, r := range runs {
		out = append(out, r)
		last := i+1 == len(runs)
		if r.class != backwardRun || r.from == r.to || !last && runs[i+1].class != forwardRun || last && a.endsRefused() {
			continue
		}
		done := req[r.to-1].Event
		made, dropped, first := 0, 0, r.end
		for q := r.from; q < r.to; q++ {
			if !sizes[req[q].Size] {
				continue
			}
			made++
			// The last request of backward may be given back right away.
			if f := req[q].Free; f > done+2 && f < r.end {
				dropped++
				first = min(first, f)
			}
		}
		if dropped*2 > made {
			out[len(out)-1].end = first
			out = append(out, run{class: optimizerRun, first: first, end: r.end, from: r.to, to: r.to})
		}
	}
	return out
}

// trimEnd ends the last run where the work of its step ends: with the last
// request, the last call of the optimizer or of zero_grad, and what is freed
// right after of the step's own. The rest is the program going down.
func (a *Analysis) trimEnd(runs []run) {
	n := len(runs)
	if n == 0 || runs[n-1].class == forwardRun {
		return
	}
	e := &a.Program.Device.Events
	req := a.Program.Requests
	last := &runs[n-1]
	end := max(last.first, req[len(req)-1].Event+1)
	if spans := a.optimizerSpans(); len(spans) > 0 {
		end = max(end, min(int32(spans[len(spans)-1].End), int32(e.Len())))
	}
	for i := end; i < int32(e.Len()); i++ {
		if r := a.sites[e.Stack[i]].role; r == roleOptimizer || r == roleZeroGrad {
			end = i + 1
		}
	}
	// The step's first request, roughly: what follows the run before it.
	from, to := last.from, last.from
	for i := n - 1; i >= 0; i-- {
		if runs[i].class == optimizerRun && i < n-1 {
			break
		}
		from = runs[i].from
		if runs[i].class == optimizerRun {
			to = runs[i].from
		} else if i == n-1 {
			to = runs[i].to
		}
	}
	own := map[int32]bool{} // events that free what forward and backward made
	for q := from; q < to; q++ {
		if req[q].Free >= end {
			own[req[q].Free] = true
		}
	}
	for ; end < int32(e.Len()); end++ {
		if act := e.Action[end]; act == trace.FreeRequested && !own[end] || act != trace.FreeRequested && act != trace.FreeCompleted {
			break
		}
	}
	last.end = end
}

// optimizerSpans are the events inside recorded Optimizer.step regions
// (torch/optim/optimizer.py records "Optimizer.step#NAME.step").
func (a *Analysis) optimizerSpans() []Span {
	e := &a.Program.Device.Events
	if e.Time == nil {
		return nil
	}
	at := func(t int64) int { return sort.Search(e.Len(), func(i int) bool { return e.Time[i] >= t }) }
	var spans []Span
	open := -1
	for _, an := range a.Program.Trace.Annotations {
		if !strings.HasPrefix(an.Name, "Optimizer.step#") || an.Time < e.Time[0] {
			continue
		}
		if !an.End {
			open = at(an.Time)
		} else if open >= 0 {
			if n := len(spans); n > 0 && spans[n-1].End > open {
				open = spans[n-1].End // nested optimizers
			}
			spans = append(spans, Span{open, max(at(an.Time), open)})
			open = -1
		}
	}
	return spans
}
