package holders

import (
	"testing"

	"vramscope/replay"
	"vramscope/trace"
)

// script writes recordings of programs that no card ran, a call a line.
type script struct {
	tr   *trace.Trace
	e    *trace.Events
	next uint64
	size map[uint64]int64
	time int64
}

func newScript() *script {
	tr := &trace.Trace{Pools: []trace.Pool{{}}, Devices: make([]trace.Device, 1)}
	tr.Features = trace.Features{Traces: true, Settings: true, Times: true, BlockStacks: true, Annotations: true}
	return &script{tr: tr, e: &tr.Devices[0].Events, next: 1 << 30, size: map[uint64]int64{}, time: 1}
}

// The stacks of the script's program, innermost call first.
var (
	inModule = []trace.Frame{
		{Function: "_conv_forward", File: "/usr/lib/python3/dist-packages/torch/nn/modules/conv.py", Line: 5},
		{Function: "forward", File: "/usr/lib/python3/dist-packages/torch/nn/modules/conv.py", Line: 10},
		{Function: "forward", File: "/home/u/model.py", Line: 20},
		{Function: "main", File: "/home/u/train.py", Line: 30},
	}
	inEvaluation = []trace.Frame{
		{Function: "_conv_forward", File: "/usr/lib/python3/dist-packages/torch/nn/modules/conv.py", Line: 5},
		{Function: "forward", File: "/usr/lib/python3/dist-packages/torch/nn/modules/conv.py", Line: 10},
		{Function: "forward", File: "/home/u/model.py", Line: 20},
		{Function: "evaluate", File: "/home/u/train.py", Line: 70},
		{Function: "main", File: "/home/u/train.py", Line: 36},
	}
	inMain      = []trace.Frame{{Function: "main", File: "/home/u/train.py", Line: 29}}
	inLoss      = []trace.Frame{{Function: "cross_entropy", File: "site-packages/torch/nn/functional.py", Line: 5}, {Function: "main", File: "/home/u/train.py", Line: 31}}
	inLoad      = []trace.Frame{{Function: "convert", File: "site-packages/torch/nn/modules/module.py", Line: 1}, {Function: "to", File: "site-packages/torch/nn/modules/module.py", Line: 2}, {Function: "main", File: "/home/u/train.py", Line: 9}}
	inOptimizer = []trace.Frame{{Function: "step", File: "site-packages/torch/optim/adam.py", Line: 3}, {Function: "main", File: "/home/u/train.py", Line: 33}}
	inZeroGrad  = []trace.Frame{{Function: "zero_grad", File: "site-packages/torch/optim/optimizer.py", Line: 3}, {Function: "main", File: "/home/u/train.py", Line: 34}}
	inEngine    []trace.Frame
)

func (s *script) event(a trace.Action, addr uint64, size int64, stack []trace.Frame) {
	var calls []trace.FrameID
	for _, f := range stack {
		calls = append(calls, s.tr.Stacks.InternFrame(f))
	}
	s.time++
	s.e.Append(trace.Event{Action: a, Addr: addr, Size: size, Stack: s.tr.Stacks.Intern(calls), Time: s.time})
}

func (s *script) alloc(size int64, stack []trace.Frame) uint64 {
	addr := s.next
	s.next += uint64(size+511) / 512 * 512
	s.size[addr] = size
	s.event(trace.Alloc, addr, size, stack)
	return addr
}

func (s *script) refuse(size int64, stack []trace.Frame) { s.event(trace.OOM, 0, size, stack) }

func (s *script) free(stack []trace.Frame, addrs ...uint64) {
	for _, a := range addrs {
		s.event(trace.FreeRequested, a, s.size[a], stack)
		s.event(trace.FreeCompleted, a, s.size[a], stack)
	}
}

func (s *script) analyze(t testing.TB) *Analysis {
	t.Helper()
	return analyze(t, replay.Compile(s.tr, &s.tr.Devices[0]))
}

// training is a loop over a model of two layers.
type training struct {
	steps, accumulate int
	keepGradients     bool // zero_grad(set_to_none=False)
	stateOnly         bool // the optimizer asks for memory in its first step alone, and its frees have no stack
	noOptimizer       bool // a step that asks for nothing, without annotation
	zeroFirst         bool // zero_grad before backward rather than after step
	clip              bool // the program's own code looks at the gradients before the optimizer
	evaluate          int  // a forward without backward after so many steps
	keepLoss          func(step int) bool
	bounded           int // kept losses at most
	dieIn             string
	batch             int64 // bytes of an activation; 1 MiB if 0
}

const (
	layer0, layer1 = 300 << 10, 700 << 10
	mib            = 1 << 20
)

func (tr training) record(t testing.TB) *Analysis {
	t.Helper()
	s := newScript()
	act := tr.batch
	if act == 0 {
		act = mib
	}
	s.alloc(layer0, inLoad)
	s.alloc(layer1, inLoad)
	var gradients, losses []uint64
	var oldX uint64
	for step := range tr.steps {
		died := false
		for micro := range max(tr.accumulate, 1) {
			x := s.alloc(act, inMain)
			if oldX != 0 {
				s.free(inMain, oldX)
			}
			oldX = x
			h0 := s.alloc(2*act, inModule)
			scratch := s.alloc(3*act, inModule)
			s.free(inModule, scratch)
			if tr.dieIn == "forward" && step == tr.steps-1 && micro == max(tr.accumulate, 1)-1 {
				s.refuse(9*act, inModule)
				died = true
				break
			}
			h1 := s.alloc(2*act, inModule)
			loss := s.alloc(4, inLoss)
			if tr.zeroFirst && gradients != nil {
				s.free(inZeroGrad, gradients...)
				gradients = nil
			}
			g := s.alloc(2*act, inEngine)
			w1 := s.alloc(layer1, inEngine)
			if gradients != nil { // added to what is there
				s.free(inEngine, w1)
			}
			s.free(inEngine, h1)
			if tr.dieIn == "backward" && step == tr.steps-1 {
				s.refuse(9*act, inEngine)
				died = true
				break
			}
			w0 := s.alloc(layer0, inEngine)
			if gradients != nil {
				s.free(inEngine, w0)
			} else {
				gradients = []uint64{w0, w1}
			}
			s.free(inEngine, h0, g)
			if tr.keepLoss != nil && tr.keepLoss(step) {
				losses = append(losses, loss)
				if tr.bounded > 0 && len(losses) > tr.bounded {
					s.free(inMain, losses[0])
					losses = losses[1:]
				}
			} else {
				s.free(inMain, loss)
			}
		}
		if died {
			break
		}
		if tr.clip {
			norm := s.alloc(512, inMain)
			s.free(inMain, norm)
		}
		if !tr.noOptimizer {
			if step == 0 {
				for range 2 {
					s.alloc(layer0, inOptimizer)
					s.alloc(layer1, inOptimizer)
				}
			}
			if !tr.stateOnly {
				tmp := s.alloc(layer1, inOptimizer)
				s.free(inOptimizer, tmp)
			}
		}
		if !tr.keepGradients && !tr.zeroFirst {
			if tr.stateOnly {
				s.free(inEngine, gradients...)
			} else {
				s.free(inZeroGrad, gradients...)
			}
			gradients = nil
		}
		if tr.evaluate > 0 && (step+1)%tr.evaluate == 0 {
			x := s.alloc(act, inMain)
			h := s.alloc(4*act, inEvaluation)
			if tr.dieIn == "evaluation" && step == tr.steps-1 {
				s.refuse(9*act, inEvaluation)
				break
			}
			s.free(inMain, x)
			s.free(inMain, h)
			if tr.dieIn == "forward after evaluation" && step == tr.steps-1 {
				s.alloc(act, inMain)
				s.alloc(2*act, inModule)
				s.refuse(2*act, inModule)
			}
		}
	}
	return s.analyze(t)
}
