package holders

import (
	"slices"
	"sort"
	"strings"

	"vramscope/trace"
)

// PhaseKind is what the program was doing.
type PhaseKind uint8

// The kinds of phases.
const (
	Setup      PhaseKind = iota // before the first step: building, loading, moving the model
	Forward                     // a forward pass that a backward pass follows, or may
	Backward                    // the backward pass
	Optimizer                   // the optimizer's step, and dropping the gradients
	Evaluation                  // a forward pass without backward
	Generation                  // text is generated
	Saving                      // a checkpoint is written
	Loading                     // a model is built or loaded after the first step
	Attempt                     // a forward pass that a refused request ended
	Other                       // requests of no known kind
	Teardown                    // after the last step
	numPhaseKinds
)

var phaseNames = [numPhaseKinds]string{
	"setup", "forward", "backward", "optimizer step", "evaluation", "generation", "checkpoint saving", "loading",
	"failed attempt", "other", "end",
}

func (k PhaseKind) String() string { return phaseNames[min(int(k), int(numPhaseKinds)-1)] }

// Phase is a range of events with one kind of work.
type Phase struct {
	Kind       PhaseKind
	First, End int // events [First, End)
	Step       int // index in Steps, -1 outside of steps
	Pass       int // micro-batch of the step
}

// Step is one step of training.
type Step struct {
	First, End int // events [First, End)
	Passes     []Pass
	Optimizer  Span // empty at its place where the optimizer asked for nothing
	// Complete says that the step has a forward and a backward pass and came
	// to its end.
	Complete bool
}

// Pass is a forward and a backward pass.
type Pass struct{ Forward, Backward Span }

// Span is a range of events [First, End).
type Span struct{ First, End int }

// Empty reports whether the span holds no event.
func (s Span) Empty() bool { return s.First >= s.End }

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

// findSteps fills Steps and Phases.
func (a *Analysis) findSteps() {
	runs := a.silentOptimizers(a.runs())
	a.trimEnd(runs)
	a.phase = make([]int32, len(a.Program.Requests))
	for i := range a.phase {
		a.phase[i] = -1
	}
	a.dying = int32(len(a.Program.Requests))
	for a.dying > 0 && a.refused(int(a.dying)-1) {
		a.dying--
	}
	a.pair(runs)
	a.fillPhases()
}

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

// pair makes steps of the runs: a forward and a backward run are a pass; the
// next optimizer run ends the step. Without any optimizer run each backward
// does. A backward without a forward before it (the second one of a GAN) is a
// pass too.
func (a *Analysis) pair(runs []run) {
	if len(runs) == 0 {
		return
	}
	haveOptimizer := slices.ContainsFunc(runs[1:], func(r run) bool { return r.class == optimizerRun })
	passes := passesPerStep(runs)
	var step *Step
	flush := func(end int, complete bool) {
		if step != nil {
			step.End, step.Complete = end, complete
			a.Steps = append(a.Steps, *step)
			step = nil
		}
	}
	for i, r := range runs {
		switch r.class {
		case backwardRun:
			if step != nil && (!haveOptimizer || len(step.Passes) == passes) {
				flush(step.last(), true)
			}
			forward := Span{int(r.first), int(r.first)}
			if i > 0 && runs[i-1].class == forwardRun {
				forward.First = int(a.forwardStart(runs[i-1], runs, i-1))
			}
			if step == nil {
				step = &Step{First: forward.First}
			}
			step.Passes = append(step.Passes, Pass{forward, Span{int(r.first), int(r.end)}})
			step.Optimizer = Span{int(r.end), int(r.end)}
		case optimizerRun:
			if step != nil {
				step.Optimizer = Span{int(r.first), int(r.end)}
				flush(int(r.end), true)
			}
		}
	}
	last := runs[len(runs)-1]
	end := int(last.end)
	if last.class == forwardRun && a.endsRefused() && (len(a.Steps) > 0 || step != nil || a.entersModule(last)) {
		// A forward pass that died, of the step under way or of a new one.
		if step != nil && !haveOptimizer {
			flush(step.last(), true)
		}
		if first := int(a.openForwardStart(last)); first >= 0 {
			if step == nil {
				step = &Step{First: first}
			}
			step.Passes = append(step.Passes, Pass{Span{first, end}, Span{end, end}})
			step.Optimizer = Span{end, end}
			flush(end, false)
		}
	}
	if step != nil {
		// The recording ends in or after a backward: complete unless a
		// refusal ended it, or an optimizer was to come.
		flush(step.last(), !a.endsRefused() && (!haveOptimizer || len(step.Passes) == passes))
	}
}

// passesPerStep returns after how many backward passes a step ends where the
// optimizer is seen only now and then: SGD with momentum asks for memory in
// its first step alone, and nothing else tells where gradients are kept. It
// returns -1 where optimizer runs tell by themselves.
func passesPerStep(runs []run) int {
	backward, optimizer, first := 0, 0, 0
	for i, r := range runs {
		switch {
		case r.class == backwardRun:
			backward++
		case r.class == optimizerRun && i > 0:
			if optimizer == 0 {
				first = backward
			}
			optimizer++
		}
	}
	if first > 0 && optimizer*first*2 < backward {
		return first
	}
	return -1
}

// last is the event where the step's last backward pass ends.
func (s *Step) last() int { return s.Passes[len(s.Passes)-1].Backward.End }

// endsRefused reports whether the program's last request was refused.
func (a *Analysis) endsRefused() bool {
	n := len(a.Program.Requests)
	return n > 0 && a.refused(n-1)
}

// forwardStart finds where in run i the forward pass of the backward that
// follows begins; what comes before is evaluation or setup. It is the first
// request that backward finds alive and that is freed before the next
// backward, with the requests of the user's own lines right before it.
func (a *Analysis) forwardStart(r run, runs []run, i int) int32 {
	req := a.Program.Requests
	next := int32(a.Program.Device.Events.Len()) // the next backward, or the end of the steps
	for j := i + 2; j < len(runs); j++ {
		if runs[j].class == backwardRun {
			next = runs[j].first
			break
		}
		if j == len(runs)-1 {
			next = runs[j].first + 1
		}
	}
	start := int32(-1)
	module := a.firstModule(r)
	open := i+2 == len(runs) // the recording ends in this backward
	for q := r.from; q < r.to; q++ {
		free := req[q].Free
		if a.sites[a.stacks[q]].role != roleLoad && free >= r.end && free < next || open && free < 0 && q >= module {
			start = q
			break
		}
	}
	if start < 0 {
		start = module
	}
	return req[a.backUp(r, start, r.end)].Event
}

// openForwardStart is forwardStart for a run in which the recording ends, -1 if
// that is no training: where steps are known, the model was entered on a way
// that no forward pass of theirs took.
func (a *Analysis) openForwardStart(r run) int32 {
	req := a.Program.Requests
	known := a.trainingEntries()
	from := r.to // what is entered as in training
	for q := r.to - 1; q >= r.from; q-- {
		e := a.sites[a.stacks[q]].entry
		if e >= 0 && known != nil && !known[e] {
			break
		}
		// An earlier attempt ends with a refusal that the program survived,
		// and the next begins outside of the model.
		if q < a.dying && a.refused(int(q)) && a.sites[a.stacks[q+1]].role == roleUser {
			break
		}
		if e >= 0 {
			from = q
		}
	}
	if from == r.to && known != nil {
		return -1
	}
	if from < r.to {
		return req[a.backUp(r, from, int32(a.Program.Device.Events.Len()))].Event
	}
	return req[a.firstModule(r)].Event
}

// trainingEntries are the ways into the model of complete forward passes, nil
// where there is none.
func (a *Analysis) trainingEntries() map[int32]bool {
	var known map[int32]bool
	req := a.Program.Requests
	for i := range a.Steps {
		if !a.Steps[i].Complete {
			continue
		}
		for _, p := range a.Steps[i].Passes {
			first := sort.Search(len(req), func(i int) bool { return int(req[i].Event) >= p.Forward.First })
			for q := first; q < len(req) && int(req[q].Event) < p.Forward.End; q++ {
				if e := a.sites[a.stacks[q]].entry; e >= 0 {
					if known == nil {
						known = map[int32]bool{}
					}
					known[e] = true
				}
			}
		}
	}
	return known
}

// firstModule returns the first request of a run inside a module, or the
// first that is no part of building the model, or the first.
func (a *Analysis) firstModule(r run) int32 {
	first := int32(-1)
	for q := r.from; q < r.to; q++ {
		switch a.sites[a.stacks[q]].role {
		case roleForward:
			return q
		case roleLoad:
			first = -1
		default:
			if first < 0 {
				first = q
			}
		}
	}
	if first < 0 {
		first = r.from
	}
	return first
}

// entersModule reports whether some request of a run is made in a module.
func (a *Analysis) entersModule(r run) bool {
	for q := r.from; q < r.to; q++ {
		if a.sites[a.stacks[q]].role == roleForward {
			return true
		}
	}
	return false
}

// backUp moves a start back over requests of the user's own lines that are
// alive at event: the inputs.
func (a *Analysis) backUp(r run, start, event int32) int32 {
	req := a.Program.Requests
	for start > r.from {
		q := start - 1
		if a.sites[a.stacks[q]].role != roleUser || req[q].Free >= 0 && req[q].Free < event {
			break
		}
		start = q
	}
	return start
}

// fillPhases lays phases over the whole timeline: those of the steps, and
// what lies between them by the roles of its requests.
func (a *Analysis) fillPhases() {
	req := a.Program.Requests
	at := 0
	end := a.Program.Device.Events.Len()
	model := len(a.Steps) > 0
	for i := 0; i < len(req) && !model; i++ {
		r := a.sites[a.stacks[i]].role
		model = r == roleForward || r == roleLoad
	}
	request := int32(0)
	for request < int32(len(req)) && req[request].Event < 0 {
		request++
	}
	add := func(k PhaseKind, first, last, step, pass int) {
		if first >= last {
			return
		}
		id := int32(len(a.Phases))
		a.Phases = append(a.Phases, Phase{k, first, last, step, pass})
		for request < int32(len(req)) && int(req[request].Event) < last {
			a.phase[request] = id
			request++
		}
		at = last
	}
	for i := range a.Steps {
		s := &a.Steps[i]
		a.fillGap(at, s.First, i == 0, add)
		for j, p := range s.Passes {
			if j > 0 {
				a.fillGap(at, p.Forward.First, false, add)
			}
			add(Forward, p.Forward.First, p.Forward.End, i, j)
			add(Backward, p.Backward.First, p.Backward.End, i, j)
		}
		a.fillGap(at, s.Optimizer.First, false, add)
		add(Optimizer, s.Optimizer.First, s.Optimizer.End, i, len(s.Passes)-1)
	}
	a.teardown = int32(a.lastUse(at))
	if at < int(a.teardown) {
		a.fillGap(at, int(a.teardown), model && len(a.Steps) == 0, add)
	}
	add(Teardown, int(a.teardown), end, -1, 0)
}

// lastUse returns the event after the last request, not before from.
func (a *Analysis) lastUse(from int) int {
	if n := len(a.Program.Requests); n > 0 {
		return max(from, int(a.Program.Requests[n-1].Event)+1)
	}
	return from
}

// fillGap splits events [first, end) outside of steps by the roles of the
// requests there. Setup says that no step precedes them: they prepare the
// model, if there is one.
func (a *Analysis) fillGap(first, end int, setup bool, add func(PhaseKind, int, int, int, int)) {
	if first >= end {
		return
	}
	req := a.Program.Requests
	q := sort.Search(len(req), func(i int) bool { return int(req[i].Event) >= first })
	if q == len(req) || int(req[q].Event) >= end {
		k := Other
		if setup {
			k = Setup
		} else if q == len(req) {
			k = Teardown
		}
		add(k, first, end, -1, 0)
		return
	}
	kind, from := Other, first
	for ; q < len(req) && int(req[q].Event) < end; q++ {
		k := kind
		switch a.sites[a.stacks[q]].role {
		case roleForward:
			k = Evaluation
		case roleGenerate:
			k = Generation
		case roleSave:
			k = Saving
		case roleLoad:
			k = Loading
		}
		if a.refused(q) && q < int(a.dying) {
			k = Attempt
		}
		if k == Loading && setup {
			k = Setup
		}
		if k == kind {
			continue
		}
		// What came before a telling request belongs to it, but for loading.
		if kind != Other && !(kind == Evaluation && k == Attempt) {
			cut := int(req[q].Event)
			if kind == Setup && (k == Evaluation || k == Attempt) {
				for c := q - 1; c >= 0 && a.sites[a.stacks[c]].role == roleUser && int(req[c].Event) > from; c-- {
					cut = int(req[c].Event) // its inputs
				}
			}
			add(kind, from, cut, -1, 0)
			from = cut
		}
		kind = k
	}
	if kind == Other && setup {
		kind = Setup
	}
	add(kind, from, end, -1, 0)
}
