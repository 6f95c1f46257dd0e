package model

import (
	"strings"

	"vramscope/internal/pysource"
)

// method is the value of recv.name(…) where the method is not the file's own.
func (m *Model) method(c *Call, args []*Value) *Value {
	x, recv, name := c.Node, c.Recv, c.Method()
	switch {
	case recv.Is(Tensor):
		return m.tensorMethod(c, name, args)
	case recv.Is(Net):
		return m.netMethod(c, name, args)
	case recv.Is(Array):
		return m.object(x, Value{Kind: Array})
	case recv.Is(Shape):
		return m.object(x, Value{Kind: Number})
	case recv.Is(List), recv.Is(Set):
		return m.listMethod(c, name, args)
	case recv.Is(Dict):
		switch name {
		case "get", "pop", "setdefault":
			if name == "setdefault" && len(args) == 2 {
				m.put(recv, args[1])
			}
			if recv.Elem != nil {
				return recv.Elem
			}
		case "values":
			return m.object(x, Value{Kind: List, Elem: recv.Elem})
		case "update":
			for _, a := range args {
				m.put(recv, a.Elem)
			}
			for _, k := range x.Keywords {
				m.put(recv, m.Value(k.Value))
			}
		case "items":
			return m.object(x, Value{Kind: List, Elem: &Value{Kind: Tuple, Origin: x, Elems: []*Value{{Origin: x}, orUnknown(recv.Elem)}}})
		case "copy":
			return m.object(x, Value{Kind: Dict, Elem: recv.Elem, Elems: recv.Elems})
		}
		return m.object(x, Value{})
	case recv.Is(String):
		return m.object(x, stringMethod(name))
	case recv.Is(Scaler):
		switch name {
		case "scale":
			if len(args) == 1 {
				if args[0].Kind == Unknown {
					args[0].learnGraph()
				}
				return m.object(x, Value{Kind: Tensor, Graph: Yes, Name: "scaled", Of: args[0]})
			}
		case "get_scale":
			return m.object(x, Value{Kind: Number})
		}
	case recv.Is(StateDict):
		if name == "items" {
			return m.object(x, Value{Kind: List, Elem: &Value{Kind: Tuple, Origin: x, Elems: []*Value{{Kind: String, Origin: x}, {Kind: Tensor, Graph: No, Of: recv, Origin: x}}}})
		}
		if name == "values" {
			return m.object(x, Value{Kind: List, Elem: &Value{Kind: Tensor, Graph: No, Of: recv, Origin: x}})
		}
	case recv.Kind == Object:
		return m.known(c, recv.Name+"."+name, args)
	case recv.Kind == Unknown:
		return m.unknownMethod(c, recv, name, args)
	}
	return m.object(x, Value{Of: recv})
}

func orUnknown(v *Value) *Value {
	if v == nil {
		return unknown
	}
	return v
}

func stringMethod(name string) Value {
	switch name {
	case "split", "rsplit", "splitlines", "partition", "rpartition":
		return Value{Kind: List, Elem: &Value{Kind: String}}
	case "encode":
		return Value{Kind: Bytes}
	case "find", "index", "count", "startswith", "endswith", "isdigit":
		return Value{Kind: Number}
	}
	return Value{Kind: String}
}

func (m *Model) listMethod(c *Call, name string, args []*Value) *Value {
	recv, x := c.Recv, c.Node
	switch name {
	case "append", "add", "appendleft":
		if len(args) == 1 {
			m.put(recv, args[0])
		}
	case "insert":
		if len(args) == 2 {
			m.put(recv, args[1])
		}
	case "extend", "update":
		if len(args) == 1 {
			for _, e := range args[0].Elems {
				m.put(recv, e)
			}
			m.put(recv, args[0].Elem)
		}
	case "pop", "popleft":
		if recv.Elem != nil {
			return recv.Elem
		}
	case "copy":
		return m.object(x, Value{Kind: List, Elem: recv.Elem, Elems: recv.Elems})
	case "index", "count":
		return m.object(x, Value{Kind: Number})
	}
	return m.object(x, Value{})
}

// isTensorMethod lists the methods and attributes that a record of tensors
// (ModelOutput, named tuple) would not have.
func isTensorMethod(name string) bool {
	switch name {
	case "backward", "item", "detach", "detach_", "cpu", "cuda", "to", "view", "reshape", "mean", "sum", "argmax", "max", "min",
		"size", "dim", "numel", "float", "half", "squeeze", "unsqueeze", "permute", "transpose", "contiguous", "clone",
		"requires_grad_", "numpy", "tolist", "softmax", "log_softmax", "flatten", "topk", "eq", "retain_grad", "register_hook",
		"data_ptr", "element_size", "split", "chunk", "gather", "expand", "repeat", "type", "pow", "sqrt", "exp", "log", "abs":
		return true
	}
	return false
}

func (m *Model) tensorMethod(c *Call, name string, args []*Value) *Value {
	x, recv := c.Node, c.Recv
	v := Value{Kind: Tensor, Graph: recv.Graph, Dev: recv.Dev, DType: recv.DType, Of: recv}
	if recv.Reduced() {
		v.Name = "reduced"
	}
	if len(recv.Alts) > 0 {
		v.Graph = Maybe
		if recv.HasGraph() {
			v.Graph = Yes
		}
	}
	switch name {
	case "item", "__float__", "size", "dim", "numel", "nelement", "element_size", "data_ptr", "stride", "is_floating_point", "get_device":
		if name == "size" && len(args) == 0 {
			return m.object(x, Value{Kind: Shape, Of: recv})
		}
		return m.object(x, Value{Kind: Number})
	case "tolist":
		return m.object(x, Value{Kind: List, Elem: &Value{Kind: Number}})
	case "numpy":
		return m.object(x, Value{Kind: Array})
	case "backward":
		recv.learnGraph()
		return m.object(x, Value{Kind: None})
	case "detach", "argmax", "argmin", "argsort", "eq", "ne", "gt", "lt", "ge", "le", "isnan", "isinf", "isfinite", "bool",
		"int", "long", "byte", "nonzero", "sign", "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor", "any", "all", "bincount", "unique":
		v.Graph = No
		if name == "argmax" || name == "argmin" || name == "any" || name == "all" {
			v.Name = "reduced"
		}
	case "detach_":
		recv.Graph = No
		for _, a := range recv.Alts {
			a.Graph = No
		}
		return recv
	case "requires_grad_":
		return recv
	case "mean", "sum", "norm", "std", "var", "prod", "logsumexp", "nanmean":
		if len(args) == 0 && len(x.Keywords) == 0 {
			v.Name = "reduced"
		}
	case "cpu":
		v.Dev = "cpu"
	case "cuda":
		v.Dev = "cuda"
	case "pin_memory":
		v.Dev = "cpu"
		v.Name = "pinned"
	case "half":
		v.DType = "float16"
	case "float":
		v.DType = "float32"
	case "bfloat16":
		v.DType = "bfloat16"
	case "double":
		v.DType = "float64"
	case "to":
		m.to(&v, x)
	case "max", "min", "sort", "topk", "median", "mode", "kthvalue":
		if len(args) > 0 || len(x.Keywords) > 0 {
			first, second := v, v
			first.Origin, second.Origin, second.Graph = x, x, No
			first.Name, second.Name = "reduced", "reduced"
			return m.object(x, Value{Kind: Tuple, Elems: []*Value{&first, &second}, Of: recv})
		}
	case "split", "chunk", "unbind", "split_with_sizes", "tensor_split":
		e := v
		e.Origin, e.Name = x, "view"
		return m.object(x, Value{Kind: Tuple, Elem: &e, Of: recv})
	case "view", "reshape", "transpose", "permute", "squeeze", "unsqueeze", "flatten", "narrow", "select", "expand":
		v.Name = "view"
	case "register_hook", "retain_grad", "storage", "untyped_storage", "share_memory_", "record_stream":
		return m.object(x, Value{Of: recv})
	case "copy_", "mul_", "add_", "sub_", "div_", "lerp_", "zero_", "fill_", "clamp_", "addcmul_", "index_add_", "scatter_":
		if m.grad != No {
			for _, a := range args {
				if a.HasGraph() && len(recv.Alts) == 0 && recv.Kind == Tensor {
					recv.Graph = Yes
				}
			}
		}
		return recv
	default:
		// More graph comes with the arguments.
		if m.grad != No && v.Graph == No {
			for _, a := range args {
				if a.HasGraph() {
					v.Graph = Yes
				}
			}
		}
	}
	if recv.Graph == Yes && recv.Name == "parameter" && v.Graph == Yes && (name == "to" || name == "cpu" || name == "cuda") {
		v.Name = "parameter"
	}
	if recv.Loose && !isTensorMethod(name) {
		v.Loose = true // out.items(), out.to_tuple() …
	}
	if m.grad == No {
		v.Graph = minGraph(v.Graph)
	}
	return m.object(x, v)
}

// minGraph: an operation under no_grad gives no graph, whatever its inputs.
func minGraph(Tri) Tri { return No }

// to applies x.to(device, dtype).
func (m *Model) to(v *Value, x *pysource.Call) {
	apply := func(a pysource.Expr) {
		av := m.Value(a)
		switch {
		case av.Is(DType):
			v.DType = av.Const
		case av.Is(Device) || av.Is(String) || av.Is(Number):
			if d := deviceOf(av); d != "" {
				v.Dev = d
			} else {
				v.Dev = ""
			}
		case av.Is(Tensor):
			v.Dev, v.DType = av.Dev, av.DType
		default:
			v.Dev = ""
		}
	}
	for i, a := range x.Args {
		if i < 2 {
			apply(a)
		}
	}
	for _, k := range x.Keywords {
		if k.Name == "device" || k.Name == "dtype" {
			apply(k.Value)
		}
	}
}

// deviceOf returns "cuda" or "cpu" for a device, a device string or an index.
func deviceOf(v *Value) string {
	switch {
	case len(v.Alts) > 0:
		return "" // "cuda" if available else "cpu"
	case v.Kind == Number && v.Const != "" && v.Const != "True" && v.Const != "False":
		return "cuda"
	case strings.HasPrefix(v.Const, "cuda"):
		return "cuda"
	case strings.HasPrefix(v.Const, "cpu"):
		return "cpu"
	}
	return ""
}

func (m *Model) netMethod(c *Call, name string, args []*Value) *Value {
	x, recv := c.Node, c.Recv
	c.Recv.use(usedCall)
	switch name {
	case "train", "eval":
		return recv
	case "cuda", "cpu", "to", "half", "bfloat16", "float", "double", "to_empty":
		v := *recv
		v.Alts, v.Of, v.attrs, v.Origin = nil, recv, recv.attrs, recv.Origin
		switch name {
		case "cuda", "cpu":
			v.Dev = name
		case "half":
			v.DType = "float16"
		case "float":
			v.DType = "float32"
		case "bfloat16":
			v.DType = "bfloat16"
		default:
			m.to(&v, x)
		}
		if len(recv.Alts) == 0 && recv != unknown { // modules move and convert in place
			recv.Dev, recv.DType = v.Dev, v.DType
			return recv
		}
		v.Origin = recv.Origin
		return m.object(x, v)
	case "requires_grad_":
		if a := arg(x, 0, "requires_grad"); a != nil && constText(m.Value(a)) == "False" && len(recv.Alts) == 0 {
			recv.Frozen = true
		}
		return recv
	case "parameters", "named_parameters", "buffers":
		if name == "named_parameters" {
			return m.object(x, Value{Kind: List, Elem: &Value{Kind: Tuple, Origin: x, Elems: []*Value{{Kind: String, Origin: x}, {Kind: Tensor, Graph: Yes, Name: "parameter", Of: recv, Origin: x}}}, Of: recv})
		}
		return m.object(x, Value{Kind: Params, Of: recv})
	case "state_dict":
		return m.object(x, Value{Kind: StateDict, Of: recv, Dev: recv.Dev})
	case "modules", "children":
		return m.object(x, Value{Kind: List, Elem: &Value{Kind: Net, Of: recv, Origin: x}})
	case "zero_grad", "load_state_dict", "register_buffer", "register_module", "add_module", "apply", "compile":
		if name == "apply" {
			return recv
		}
		return m.object(x, Value{})
	case "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook", "register_backward_hook":
		return m.object(x, Value{Kind: Object, Name: "handle"})
	case "generate":
		return m.object(x, Value{Kind: Tensor, Graph: No, Loose: true, Dev: recv.Dev, Of: recv})
	case "forward", "__call__":
		return m.forward(c, recv, args)
	case "no_sync":
		return m.object(x, Value{Kind: Object, Name: "no_sync"})
	}
	// A method of a class that the model cannot see: may return anything.
	return m.object(x, Value{Of: recv})
}

// unknownMethod learns from the use of a value that nothing is known of.
func (m *Model) unknownMethod(c *Call, recv *Value, name string, args []*Value) *Value {
	x := c.Node
	switch name {
	case "backward":
		if len(args) == 0 || args[0].Kind == Tensor && args[0].Graph == No {
			recv.learnGraph()
			c.Callee = "Tensor.backward"
		} else if args[0].Kind == Unknown {
			args[0].learnGraph() // accelerator.backward(loss), engine.backward(loss)
		}
		return m.object(x, Value{Kind: None})
	case "manual_backward":
		if len(args) > 0 {
			args[0].learnGraph()
		}
	case "step":
		recv.use(usedStep)
	case "zero_grad":
		recv.use(usedZeroGrad)
	case "parameters", "named_parameters", "named_modules", "gradient_checkpointing_enable":
		recv.use(usedParameters)
		if recv.Is(Net) {
			c.Callee = "Net." + name
			return m.netMethod(c, name, args)
		}
	case "train":
		recv.use(usedTrain)
	case "eval":
		recv.use(usedEval)
		if len(args) == 0 && len(x.Keywords) == 0 && recv.Is(Net) {
			return recv
		}
	case "state_dict", "load_state_dict":
		recv.use(usedStateDict)
	case "unscale_":
		recv.learn(Scaler)
	case "scale":
		if len(args) == 1 && len(x.Keywords) == 0 && m.File.Parent(x) != nil {
			recv.use(usedScale)
		}
	case "update":
		if len(args) == 0 && len(x.Keywords) == 0 {
			recv.use(usedUpdate)
		}
	case "append", "extend":
		if len(args) == 1 {
			m.put(recv, args[0])
		}
	case "item":
		if len(args) == 0 {
			return m.object(x, Value{Kind: Number})
		}
	case "tolist":
		return m.object(x, Value{Kind: List, Elem: &Value{Kind: Number}})
	case "numpy":
		return m.object(x, Value{Kind: Array})
	case "detach":
		if len(args) == 0 {
			return m.object(x, Value{Kind: Tensor, Graph: No, Of: recv})
		}
	case "requires_grad_":
		return recv
	case "cuda":
		if len(args) == 0 {
			return m.object(x, Value{Of: recv, Dev: "cuda", Param: recv.Param})
		}
	case "get", "format", "join":
		return m.object(x, Value{Of: recv})
	}
	return m.object(x, Value{Of: recv})
}

// effectOf is what a call does to the step, by its callee.
func effectOf(c *Call, m *Model) Effect {
	if c.Remote != nil || c.Func != nil {
		return 0
	}
	switch name := c.Method(); name {
	case "backward", "manual_backward":
		if c.Recv != nil || c.Callee == "torch.autograd.backward" {
			return Backward
		}
	case "step":
		if c.Recv != nil && !c.Recv.Is(Scheduler) && c.Recv.Kind != Namespace {
			if c.Recv.Is(Optimizer) || c.Recv.Is(Scaler) || c.Recv.Kind == Unknown || c.Recv.Kind == Object {
				return Step
			}
		}
	case "zero_grad":
		if c.Recv != nil {
			return ZeroGrad
		}
	case "clip_grad_norm_", "clip_grad_value_", "clip_grad_norm":
		return Clip
	case "update":
		if c.Recv.Is(Scaler) {
			return ScalerUpdate
		}
	case "eval":
		if c.Recv != nil && len(c.Node.Args) == 0 && c.Recv.Kind != Namespace {
			return EvalMode
		}
	case "train":
		if c.Recv.Is(Net) && len(c.Node.Args) == 0 {
			return TrainMode
		}
	case "empty_cache":
		return EmptyCache
	}
	return 0
}
