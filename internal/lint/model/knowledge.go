package model

import "strings"

// canonical maps the names under which a thing is imported to one.
func (m *Model) canonical(name string) string {
	for _, r := range renamed {
		if rest, ok := strings.CutPrefix(name, r.from); ok && (rest == "" || rest[0] == '.') {
			return r.to + rest
		}
	}
	return name
}

// renamed lists prefixes with the canonical one.
var renamed = []struct{ from, to string }{
	{"pytorch_lightning.core.lightning", "lightning"},
	{"pytorch_lightning", "lightning"},
	{"lightning.pytorch", "lightning"},
	{"lightning.LightningModule", "lightning.LightningModule"},
	{"tensorflow.python.keras", "keras"},
	{"tensorflow.keras", "keras"},
	{"tf_keras", "keras"},
	{"torch.nn.modules.module.Module", "torch.nn.Module"},
	{"torch.nn.modules.Module", "torch.nn.Module"},
	{"torch.optim.optimizer.Optimizer", "torch.optim.Optimizer"},
	{"torch.nn.parallel.data_parallel.DataParallel", "torch.nn.DataParallel"},
	{"torch.nn.parallel.DataParallel", "torch.nn.DataParallel"},
	{"torch.nn.parallel.distributed.DistributedDataParallel", "torch.nn.parallel.DistributedDataParallel"},
	{"torch.utils.data.dataloader.DataLoader", "torch.utils.data.DataLoader"},
	{"torch.utils.data.dataset.Dataset", "torch.utils.data.Dataset"},
	{"torch.cuda.amp.autocast_mode.autocast", "torch.cuda.amp.autocast"},
	{"torch.cuda.amp.grad_scaler.GradScaler", "torch.cuda.amp.GradScaler"},
	{"torch.amp.grad_scaler.GradScaler", "torch.amp.GradScaler"},
	{"torch.amp.autocast_mode.autocast", "torch.amp.autocast"},
	{"torch.autocast", "torch.amp.autocast"},
	{"torch.cuda.memory.empty_cache", "torch.cuda.empty_cache"},
	{"torch.cuda.OutOfMemoryError", "torch.OutOfMemoryError"},
	{"torch.autograd.function.Function", "torch.autograd.Function"},
	{"torch.autograd.grad_mode", "torch"},
	{"torch.distributed._composable.fsdp.fully_shard", "torch.distributed.fsdp.fully_shard"},
	{"torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel", "torch.distributed.fsdp.FullyShardedDataParallel"},
	{"jax.remat", "jax.checkpoint"},
	{"jax.ad_checkpoint.checkpoint", "jax.checkpoint"},
	{"accelerate.utils.memory.find_executable_batch_size", "accelerate.utils.find_executable_batch_size"},
	{"accelerate.find_executable_batch_size", "accelerate.utils.find_executable_batch_size"},
}

// knownBases gives the ancestors of well-known classes.
func knownBases(name string) []string {
	switch name {
	case "lightning.LightningModule":
		return []string{"torch.nn.Module"}
	case "transformers.PreTrainedModel", "transformers.modeling_utils.PreTrainedModel":
		return []string{"torch.nn.Module", "transformers.PreTrainedModel"}
	case "torch.utils.data.IterableDataset":
		return []string{"torch.utils.data.Dataset"}
	}
	if strings.HasPrefix(name, "torch.nn.") && isClassName(name) && name != "torch.nn.Parameter" {
		return []string{"torch.nn.Module"}
	}
	if strings.HasPrefix(name, "torch.optim.") && !strings.Contains(name, "lr_scheduler") && isClassName(name) {
		return []string{"torch.optim.Optimizer"}
	}
	if strings.HasPrefix(name, "torchvision.models.") && isClassName(name) {
		return []string{"torch.nn.Module"}
	}
	return nil
}

func isClassName(dotted string) bool {
	last := dotted[strings.LastIndexByte(dotted, '.')+1:]
	return last != "" && last[0] >= 'A' && last[0] <= 'Z'
}

func dtypeOf(name string) string {
	switch name {
	case "torch.float16", "torch.half":
		return "float16"
	case "torch.bfloat16":
		return "bfloat16"
	case "torch.float32", "torch.float":
		return "float32"
	case "torch.float64", "torch.double":
		return "float64"
	case "torch.int64", "torch.long", "torch.int32", "torch.int", "torch.bool", "torch.uint8", "torch.int8", "torch.int16":
		return name[len("torch."):]
	}
	return ""
}

// known is the value of a call of a library function, class or builtin.
func (m *Model) known(c *Call, name string, args []*Value) *Value {
	x := c.Node
	obj := func(v Value) *Value { return m.object(x, v) }
	switch {
	case strings.HasPrefix(name, "torch."):
		if v, ok := m.torchCall(c, name, args); ok {
			return v
		}
	case strings.HasPrefix(name, "numpy."):
		return obj(Value{Kind: Array})
	case strings.HasPrefix(name, "torchvision.models."):
		return obj(Value{Kind: Net, Name: name})
	case strings.HasPrefix(name, "transformers."):
		if v, ok := m.transformersCall(c, name); ok {
			return obj(v)
		}
	case !strings.Contains(name, "."):
		if v, ok := m.builtin(c, name, args); ok {
			return v
		}
	}
	switch name {
	case "timm.create_model", "timm.models.create_model", "segmentation_models_pytorch.Unet", "peft.get_peft_model":
		v := Value{Kind: Net, Name: name}
		if len(args) > 0 {
			v.Of = args[0]
		}
		return obj(v)
	case "bitsandbytes.optim.AdamW8bit", "bitsandbytes.optim.Adam8bit", "bitsandbytes.optim.PagedAdamW8bit", "bitsandbytes.optim.PagedAdamW32bit",
		"bitsandbytes.optim.AdamW", "apex.optimizers.FusedAdam", "apex.optimizers.FusedLAMB", "deepspeed.ops.adam.DeepSpeedCPUAdam", "deepspeed.ops.adam.FusedAdam":
		return obj(Value{Kind: Optimizer, Name: name, Of: argValue(args, 0)})
	case "copy.deepcopy", "copy.copy":
		if len(args) == 1 {
			v := m.copied(*args[0], 0)
			v.Of = args[0]
			return obj(v)
		}
	case "tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.notebook.tqdm", "tqdm.trange", "rich.progress.track":
		if len(args) > 0 {
			return args[0]
		}
	case "itertools.chain", "itertools.cycle", "itertools.islice":
		if len(args) > 0 {
			return args[0]
		}
	case "functools.partial":
		return obj(Value{Kind: Object, Name: "partial", Args: args})
	case "collections.defaultdict", "collections.OrderedDict", "collections.Counter":
		return obj(Value{Kind: Dict})
	case "collections.deque":
		v := Value{Kind: List}
		if len(args) > 1 || arg(x, 1, "maxlen") != nil {
			v.Name = "bounded"
		}
		return obj(v)
	case "time.time", "time.perf_counter", "math.sqrt", "math.log", "math.exp", "math.ceil", "math.floor", "os.getpid":
		return obj(Value{Kind: Number})
	case "os.path.join", "os.environ.get", "os.getenv", "os.path.dirname", "os.path.basename":
		return obj(Value{Kind: String})
	case "keras.models.load_model", "keras.saving.load_model":
		return obj(Value{Kind: Object, Name: "keras.Model"})
	case "contextlib.nullcontext":
		return obj(Value{Kind: Object, Name: name})
	}
	if isClassName(name) {
		return obj(Value{Kind: Object, Name: name, Args: args})
	}
	return obj(Value{Name: ""})
}

func argValue(args []*Value, i int) *Value {
	if i < len(args) {
		return args[i]
	}
	return nil
}

func (m *Model) builtin(c *Call, name string, args []*Value) (*Value, bool) {
	x := c.Node
	first := argValue(args, 0)
	switch name {
	case "float", "int", "len", "abs", "round", "bool", "ord", "hash", "id":
		if (name == "abs" || name == "round") && first.May(Tensor) {
			return m.arith(x, first, nil), true
		}
		return m.object(x, Value{Kind: Number}), true
	case "str", "repr", "format", "input", "chr":
		return m.object(x, Value{Kind: String}), true
	case "list", "sorted", "set", "tuple", "reversed", "iter", "filter":
		v := Value{Kind: List}
		if name == "tuple" {
			v.Kind = Tuple
		}
		if name == "filter" {
			first = argValue(args, 1)
		}
		if first != nil {
			if first.Is(Loader) && (name == "iter" || name == "reversed") {
				return first, true
			}
			if first.Is(Params) {
				if name == "filter" {
					return m.object(x, Value{Kind: Params, Name: "filtered", Of: first.Of}), true
				}
				return m.object(x, Value{Kind: Params, Of: first.Of, Name: first.Name}), true
			}
			v.Elem = first.Elem
			if first.Kind == Tuple || first.Kind == List {
				v.Elems = first.Elems
			}
			if first.Is(Tensor) || first.Is(Loader) {
				v.Elem = m.element(nil, first)
			}
		}
		return m.object(x, v), true
	case "next":
		if first != nil {
			if first.Elem != nil {
				return first.Elem, true
			}
			if first.Is(Params) {
				return m.object(x, Value{Kind: Tensor, Graph: No, Name: "parameter", Of: first.Of}), true
			}
		}
	case "dict":
		v := Value{Kind: Dict}
		for _, k := range x.Keywords {
			v.Elem = join(v.Elem, m.Value(k.Value))
		}
		return m.object(x, v), true
	case "range":
		return m.object(x, Value{Kind: List, Name: "range", Elem: &Value{Kind: Number, Origin: x}}), true
	case "enumerate":
		if first != nil {
			item := m.element(x, first)
			e := &Value{Kind: Tuple, Origin: x, Elems: []*Value{{Kind: Number, Origin: x}, item}}
			return &Value{Kind: List, Name: "enumerate", Elem: e, Of: first, Origin: x}, true
		}
	case "zip":
		e := &Value{Kind: Tuple, Origin: x}
		for _, a := range args {
			e.Elems = append(e.Elems, m.element(nil, a))
		}
		return &Value{Kind: List, Name: "zip", Elem: e, Of: first, Origin: x, Args: args}, true
	case "sum", "max", "min":
		if first != nil {
			if name != "sum" && len(args) > 1 {
				v := args[0]
				for _, a := range args[1:] {
					v = join(v, a)
				}
				if v.Is(Number) {
					return m.object(x, Value{Kind: Number}), true
				}
				return v, true
			}
			if e := m.sumElement(first); e != nil {
				return m.arith(x, e, nil), true
			}
		}
	case "isinstance", "hasattr", "callable", "any", "all", "issubclass":
		return m.object(x, Value{Kind: Number}), true
	case "print", "setattr", "delattr":
		return m.object(x, Value{Kind: None}), true
	case "super":
		if m.fn != nil && m.fn.Class != nil {
			return m.object(x, Value{Kind: Object, Name: "super", Class: m.fn.Class}), true
		}
	case "tqdm":
		if first != nil {
			return first, true
		}
	}
	return nil, false
}

func (m *Model) sumElement(v *Value) *Value {
	if v.Elem != nil {
		return v.Elem
	}
	var e *Value
	for _, x := range v.Elems {
		e = join(e, x)
	}
	return e
}

// torchCall is the value of a call under torch.
func (m *Model) torchCall(c *Call, name string, args []*Value) (*Value, bool) {
	x := c.Node
	first := argValue(args, 0)
	obj := func(v Value) (*Value, bool) { return m.object(x, v), true }
	last := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case strings.HasPrefix(name, "torch.nn.utils.") || strings.HasPrefix(name, "torch.nn.init."):
		switch last {
		case "clip_grad_norm_", "clip_grad_norm", "clip_grad_value_":
			return obj(Value{Kind: Number})
		case "parameters_to_vector":
			return obj(Value{Kind: Tensor, Graph: Yes})
		}
		if first != nil && first.Is(Net) {
			return first, true
		}
		if first != nil && first.Is(Tensor) {
			return first, true
		}
		return obj(Value{})
	case strings.HasPrefix(name, "torch.nn.functional."):
		return obj(m.tensorOf(c, last, args))
	case name == "torch.nn.Parameter", name == "torch.nn.parameter.Parameter":
		return obj(Value{Kind: Tensor, Graph: Yes, Name: "parameter"})
	case name == "torch.nn.DataParallel", name == "torch.nn.parallel.DistributedDataParallel",
		name == "torch.distributed.fsdp.FullyShardedDataParallel", name == "torch.compile", name == "torch.jit.script", name == "torch.jit.trace",
		name == "torch.nn.SyncBatchNorm.convert_sync_batchnorm":
		v := Value{Kind: Net, Name: name, Of: first}
		if first != nil && first.Is(Net) {
			v.Class, v.Dev, v.DType, v.Frozen = first.Class, first.Dev, first.DType, first.Frozen
		} else if name == "torch.compile" || strings.HasPrefix(name, "torch.jit") {
			return first, first != nil
		}
		return obj(v)
	case strings.HasPrefix(name, "torch.nn.") && isClassName(name) && strings.Count(name, ".") == 2:
		return obj(Value{Kind: Net, Name: name})
	case strings.HasPrefix(name, "torch.optim.lr_scheduler."), name == "torch.optim.swa_utils.SWALR":
		return obj(Value{Kind: Scheduler, Name: name, Of: first})
	case name == "torch.optim.swa_utils.AveragedModel":
		return obj(Value{Kind: Net, Name: name, Of: first})
	case strings.HasPrefix(name, "torch.optim.") && isClassName(name):
		return obj(Value{Kind: Optimizer, Name: name, Of: first, Args: args})
	case name == "torch.utils.data.DataLoader":
		return obj(Value{Kind: Loader, Name: name, Of: first})
	case name == "torch.cuda.amp.GradScaler", name == "torch.amp.GradScaler":
		return obj(Value{Kind: Scaler, Name: name})
	case name == "torch.device":
		return obj(Value{Kind: Device, Const: constOf(first)})
	case name == "torch.load":
		v := Value{Kind: Unknown, Name: "checkpoint", Of: first}
		return obj(v)
	case name == "torch.no_grad", name == "torch.inference_mode", name == "torch.enable_grad", name == "torch.set_grad_enabled":
		return obj(Value{Kind: Object, Name: name})
	case name == "torch.autograd.grad":
		v := Value{Kind: Tensor, Graph: No}
		if a := arg(x, -1, "create_graph"); a != nil && constText(m.Value(a)) != "False" {
			v.Graph = Yes
		}
		return obj(Value{Kind: Tuple, Elem: &v})
	case name == "torch.utils.checkpoint.checkpoint", name == "torch.utils.checkpoint.checkpoint_sequential":
		v := Value{Kind: Tensor, Graph: Yes, Loose: true, Of: first}
		if m.grad == No {
			v.Graph = No
		}
		c.Effect |= Forward
		return obj(v)
	case strings.HasPrefix(name, "torch.cuda."), strings.HasPrefix(name, "torch.backends."), strings.HasPrefix(name, "torch.utils."),
		strings.HasPrefix(name, "torch.random."), strings.HasPrefix(name, "torch.multiprocessing."), strings.HasPrefix(name, "torch.profiler."):
		switch last {
		case "is_available", "device_count", "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "current_device":
			return obj(Value{Kind: Number})
		}
		if isClassName(name) {
			return obj(Value{Kind: Object, Name: name, Args: args})
		}
		return obj(Value{})
	case strings.HasPrefix(name, "torch.distributed."):
		return obj(Value{Name: ""})
	case strings.Count(name, ".") == 1 && isFactory(last):
		v := Value{Kind: Tensor, Graph: No, Name: "factory"}
		m.factory(&v, c)
		return obj(v)
	case strings.Count(name, ".") == 1 && isScalarFunction(last):
		return obj(Value{Kind: Number})
	case strings.Count(name, ".") == 1 && !isClassName(name), strings.HasPrefix(name, "torch.linalg."), strings.HasPrefix(name, "torch.special."), strings.HasPrefix(name, "torch.fft."):
		return obj(m.tensorOf(c, last, args))
	}
	return nil, false
}

func constOf(v *Value) string {
	switch {
	case v == nil:
		return ""
	case len(v.Alts) > 0:
		return ""
	case v.Kind == Number && v.Const != "":
		return "cuda:" + v.Const
	}
	return v.Const
}

func isFactory(last string) bool {
	switch last {
	case "zeros", "ones", "empty", "full", "rand", "randn", "randint", "randperm", "arange", "linspace", "logspace", "eye", "tensor",
		"zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "from_numpy", "as_tensor", "frombuffer", "LongTensor":
		return true
	}
	return false
}

func isScalarFunction(last string) bool {
	switch last {
	case "is_tensor", "numel", "is_grad_enabled", "is_floating_point", "get_num_threads", "initial_seed", "allclose", "equal",
		"manual_seed", "set_num_threads", "set_default_dtype", "set_default_device", "save", "seed":
		return true
	}
	return false
}

// factory fills in device, dtype and requires_grad of a tensor made by torch.zeros and the like.
func (m *Model) factory(v *Value, c *Call) {
	v.Dev = "cpu"
	if c.Method() == "as_tensor" || strings.HasSuffix(c.Method(), "_like") {
		v.Dev = ""
		if len(c.Node.Args) > 0 {
			v.Dev = m.Value(c.Node.Args[0]).Dev
		}
	}
	for _, k := range c.Node.Keywords {
		kv := m.Value(k.Value)
		switch k.Name {
		case "device":
			v.Dev = deviceOf(kv)
		case "dtype":
			if kv.Is(DType) {
				v.DType = kv.Const
			}
		case "requires_grad":
			if kv.Const == "True" {
				v.Graph, v.Name = Yes, "leaf"
			}
		case "":
			v.Dev = ""
		}
	}
}

// tensorOf is the result of a tensor function: it has a graph where an
// argument has one.
func (m *Model) tensorOf(c *Call, last string, args []*Value) Value {
	v := Value{Kind: Tensor, Graph: No}
	consider := func(a *Value) {
		switch {
		case a.needsGrad():
			v.Graph = Yes
		case v.Graph == Yes:
		case a.Kind == Unknown, a.Kind == Tensor && a.Graph == Maybe:
			v.Graph = Maybe
		}
		if a.May(Tensor) {
			if v.Dev == "" {
				v.Dev = a.Dev
			}
			if v.DType == "" {
				v.DType = a.DType
			}
		}
	}
	all := args
	for _, k := range c.Node.Keywords {
		all = append(all, m.Value(k.Value))
	}
	for _, a := range all {
		if a.Kind == List || a.Kind == Tuple {
			for _, e := range a.Elems {
				consider(e)
			}
			if a.Elem != nil {
				consider(a.Elem)
			}
			continue
		}
		if a.Kind != Number && a.Kind != String && a.Kind != None {
			consider(a)
		}
	}
	switch last {
	case "mean", "sum", "norm", "logsumexp", "cross_entropy", "mse_loss", "nll_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy",
		"binary_cross_entropy_with_logits", "kl_div", "ctc_loss", "huber_loss", "cosine_embedding_loss", "triplet_margin_loss":
		v.Name = "reduced"
	}
	switch last {
	case "argmax", "argmin", "argsort", "eq", "ne", "gt", "lt", "ge", "le", "isnan", "isinf", "isfinite", "nonzero", "one_hot", "bincount", "unique", "any", "all", "sign":
		v.Graph = No
	case "max", "min", "sort", "topk", "median", "mode", "kthvalue":
		if len(args) > 1 && args[1].Kind == Number || arg(c.Node, -1, "dim") != nil || last == "sort" || last == "topk" {
			a, b := v, v
			a.Origin, b.Origin, b.Graph = c.Node, c.Node, No
			if m.grad == No {
				a.Graph = No
			}
			return Value{Kind: Tuple, Elems: []*Value{&a, &b}}
		}
	case "split", "chunk", "unbind", "tensor_split":
		e := v
		e.Origin = c.Node
		return Value{Kind: Tuple, Elem: &e}
	case "multi_head_attention_forward":
		v.Loose = true
	}
	if m.grad == No {
		v.Graph = No
	}
	return v
}

// transformersCall knows models, tokenizers and the optimizers of transformers.
func (m *Model) transformersCall(c *Call, name string) (Value, bool) {
	parts := strings.Split(name, ".")
	last := parts[len(parts)-1]
	class := last
	if len(parts) >= 2 && (last == "from_pretrained" || last == "from_config") {
		class = parts[len(parts)-2]
		if strings.Contains(class, "Model") || strings.Contains(class, "For") {
			v := Value{Kind: Net, Name: "transformers." + class}
			for _, key := range []string{"dtype", "torch_dtype"} {
				if a := arg(c.Node, -1, key); a != nil && m.Value(a).Is(DType) {
					v.DType = m.Value(a).Const
				}
			}
			return v, true
		}
		return Value{Kind: Object, Name: "transformers." + class}, true
	}
	switch class {
	case "AdamW", "Adafactor":
		return Value{Kind: Optimizer, Name: name}, true
	}
	if strings.HasPrefix(class, "get_") && strings.Contains(class, "schedule") {
		return Value{Kind: Scheduler, Name: name}, true
	}
	if isClassName(name) && strings.HasSuffix(class, "Model") {
		return Value{Kind: Net, Name: name}, true
	}
	return Value{}, false
}
