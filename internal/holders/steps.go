package holders

import "slices"

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
