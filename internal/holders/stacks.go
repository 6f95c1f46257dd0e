package holders

import (
	"strings"

	"vramscope/trace"
)

// frameKind says whose code a frame is.
type frameKind uint8

const (
	nativeFrame  frameKind = iota // C++, or the interpreter itself
	libraryFrame                  // installed, generated or part of Python
	userFrame
)

// libraryPaths are the parts of a path that make a Python file a library's.
var libraryPaths = []string{"site-packages/", "dist-packages/", "lib/python3", "lib64/python3", "/torchinductor", "torchinductor_"}

func kindOf(f *trace.Frame) frameKind {
	switch {
	case strings.HasPrefix(f.File, "<ipython"):
		return userFrame
	case strings.HasPrefix(f.File, "<"): // <string>, <frozen runpy>, <eval_with_key>.3
		return libraryFrame
	case !strings.HasSuffix(f.File, ".py"):
		return nativeFrame
	}
	file := strings.ReplaceAll(f.File, `\`, "/")
	if torchPath(file) != "" {
		return libraryFrame
	}
	for _, p := range libraryPaths {
		if strings.Contains(file, p) {
			return libraryFrame
		}
	}
	return userFrame
}

// torchPath returns the part of a path inside the torch package, "" outside.
func torchPath(file string) string {
	if rest, ok := strings.CutPrefix(file, "torch/"); ok {
		return rest
	}
	for _, root := range []string{"-packages/torch/", "/torch/nn/", "/torch/optim/", "/torch/autograd/", "/torch/utils/"} {
		if i := strings.Index(file, root); i >= 0 {
			return file[strings.Index(file[i:], "torch/")+i+len("torch/"):]
		}
	}
	return ""
}

// role is what kind of code a stack shows at work.
type role uint8

const (
	roleNone      role = iota // no Python frame
	roleUser                  // a script's or a library's, of no known kind
	roleLoad                  // a model is built, loaded or moved
	roleForward               // inside a module
	roleBackward              // the autograd engine, or the call that starts it
	roleOptimizer             // an optimizer's step
	roleZeroGrad              // gradients are zeroed or dropped
	roleSave                  // a checkpoint is written
	roleGenerate              // text is generated
)

// Site is what a stack says, found once for each stack.
type Site struct {
	// Line is the innermost frame of the user's code, -1 if there is none.
	Line int32
	// Call is the innermost Python frame, -1 if there is none; equal to Line
	// where the user's line itself asked.
	Call int32
	// Module is the innermost frame of a file that defines a forward, those
	// of torch itself only if there is no other; -1 if there is none.
	Module int32

	// entry numbers the way into the outermost module: the calls outside of
	// it, -1 for a stack that is in none. Training and evaluation enter the
	// same model on different ways.
	entry     int32
	role      role
	recompute bool // a module's forward inside backward
	scratch   bool // a library call that asks for workspaces
}

// frameNote is what a frame says by itself.
type frameNote struct {
	kind    frameKind
	torch   bool // file inside torch
	forward bool // file defines a forward
	role    role // roleUser where it says nothing
	module  bool // a module's forward
	again   bool // runs a forward again (torch/utils/checkpoint.py and its like)
	scratch bool
}

// scratchCalls are the Python functions around cuDNN and cuBLAS calls.
var scratchCalls = map[string]bool{"_conv_forward": true, "conv2d": true, "conv3d": true, "conv1d": true, "linear": true, "matmul": true, "bmm": true, "addmm": true}

// noteOf reads a frame. The names are those of PyTorch 1.12 to 2.15
// (torch/optim/optimizer.py, torch/nn/modules/module.py, torch/_tensor.py,
// torch/autograd/{__init__,graph,function}.py) and of the usual libraries.
func noteOf(f *trace.Frame) frameNote {
	n := frameNote{kind: kindOf(f), role: roleUser}
	if n.kind == nativeFrame {
		return n
	}
	file, fn := strings.ReplaceAll(f.File, `\`, "/"), f.Function
	in := torchPath(file)
	n.torch = in != ""
	n.scratch = scratchCalls[fn] || in == "nn/modules/linear.py"
	n.module = fn == "forward" || fn == "_call_impl"
	n.again = n.kind == libraryFrame && (strings.HasSuffix(file, "/checkpoint.py") || strings.HasSuffix(file, "/checkpointing.py"))
	switch {
	case fn == "zero_grad":
		n.role = roleZeroGrad
	case n.kind == libraryFrame && isOptimizerFile(file):
		n.role = roleOptimizer
	case n.torch && (strings.HasSuffix(in, "clip_grad.py") || strings.HasSuffix(in, "grad_scaler.py") && strings.Contains(fn, "unscale")):
		n.role = roleOptimizer
	case in == "_tensor.py" && fn == "backward", in == "autograd/__init__.py", fn == "_engine_run_backward":
		n.role = roleBackward
	case fn == "forward" || fn == "_call_impl" || strings.HasPrefix(file, "torchinductor") || strings.Contains(file, "/torchinductor"):
		n.role = roleForward
	case fn == "generate" && n.kind == libraryFrame:
		n.role = roleGenerate
	case in == "serialization.py" && strings.Contains(fn, "save"), fn == "state_dict", fn == "save_pretrained", strings.HasPrefix(in, "distributed/checkpoint/"):
		n.role = roleSave
	case fn == "__init__", fn == "_apply", fn == "reset_parameters", fn == "from_pretrained", fn == "load_state_dict", fn == "_load_from_state_dict",
		in == "nn/modules/module.py" && (fn == "to" || fn == "cuda" || fn == "to_empty"):
		n.role = roleLoad
	}
	return n
}

// isOptimizerFile tells torch/optim, bitsandbytes/optim, apex/optimizers,
// transformers/optimization.py and their like, but not schedulers.
func isOptimizerFile(file string) bool {
	return (strings.Contains(file, "/optim/") || strings.Contains(file, "/optimizers/") || strings.HasPrefix(file, "torch/optim/") ||
		strings.HasSuffix(file, "/optimizer.py") || strings.HasSuffix(file, "transformers/optimization.py")) &&
		!strings.HasSuffix(file, "lr_scheduler.py")
}

// sitesOf reads all stacks of a trace: O(frames + calls).
func sitesOf(s *trace.Stacks) []Site {
	notes := make([]frameNote, s.NumFrames())
	defines := map[string]bool{} // files that define a forward
	for i := range notes {
		f := s.Frame(trace.FrameID(i))
		notes[i] = noteOf(&f)
		if f.Function == "forward" && notes[i].kind != nativeFrame {
			defines[f.File] = true
		}
	}
	for i := range notes {
		notes[i].forward = notes[i].kind != nativeFrame && defines[s.Frame(trace.FrameID(i)).File]
	}
	sites := make([]Site, s.Len())
	entries := map[string]int32{}
	var way []byte
	for id := range sites {
		calls := s.Calls(trace.StackID(id))
		sites[id] = siteOf(calls, notes)
		sites[id].entry = -1
		i := len(calls) - 1
		for way = way[:0]; i >= 0 && !notes[calls[i]].module; i-- {
			way = append(way, byte(calls[i]), byte(calls[i]>>8), byte(calls[i]>>16), byte(calls[i]>>24))
		}
		if i < 0 {
			continue
		}
		n, ok := entries[string(way)]
		if !ok {
			n = int32(len(entries))
			entries[string(way)] = n
		}
		sites[id].entry = n
	}
	return sites
}

func siteOf(calls []trace.FrameID, notes []frameNote) Site {
	site := Site{Line: -1, Call: -1, Module: -1}
	torchModule := int32(-1)
	outermostTorch, inModule, inAgain, inBackward := false, false, false, false
	for _, id := range calls {
		n := &notes[id]
		if n.kind == nativeFrame {
			continue
		}
		if site.Call < 0 {
			site.Call, site.role = int32(id), roleUser
			site.scratch = n.scratch
		}
		if site.Line < 0 && n.kind == userFrame {
			site.Line = int32(id)
		}
		if n.forward {
			if n.torch {
				if torchModule < 0 {
					torchModule = int32(id)
				}
			} else if site.Module < 0 {
				site.Module = int32(id)
			}
		}
		// The innermost telling frame decides, but a forward inside generate
		// is generation.
		if n.role != roleUser && (site.role == roleUser || site.role == roleForward && n.role == roleGenerate) {
			site.role = n.role
		}
		inModule = inModule || n.module
		inAgain = inAgain || n.again
		inBackward = inBackward || n.role == roleBackward
		outermostTorch = n.torch
	}
	if site.Module < 0 {
		site.Module = torchModule
	}
	// The engine works in its own thread: its stacks begin inside torch
	// (autograd/function.py, utils/checkpoint.py) or are empty.
	if site.role != roleOptimizer && (outermostTorch && site.Call >= 0 || inBackward) {
		site.role = roleBackward
		site.recompute = inModule && inAgain
	}
	return site
}
