package rules

import (
	"strings"

	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

var tensorflowRules = []Rule{
	{
		ID: "GM1201", Name: "session-config-in-tf2", Group: "tensorflow", Severity: Error,
		Says:    "Memory growth is set by a session of TensorFlow 1, in a program of TensorFlow 2.",
		Cost:    "the eager runtime ignores it: nearly all of the card is taken",
		Instead: "tf.config.experimental.set_memory_growth(gpu, True) for each GPU",
		Quiet:   "disable_v2_behavior, disable_eager_execution, graphs and sessions",
		Source:  "TensorFlow guide/gpu; DeepLabCut PR#1658", Remedy: "R43",
		Check: sessionConfig,
	},
	{
		ID: "GM1202", Name: "growth-too-late", Group: "tensorflow", Severity: Error,
		Says:    "Memory growth is set after the GPU is in use, or on one GPU only.",
		Cost:    "RuntimeError “must be set before GPUs have been initialized”, or growth that must match on all GPUs; list[0] fails without a GPU",
		Instead: "for gpu in tf.config.list_physical_devices(\"GPU\"): set_memory_growth(gpu, True), first",
		Quiet:   "within try; one GPU made visible before",
		Source:  "TensorFlow guide/gpu; tensorflow#25138", Remedy: "R43",
		Check: growthTooLate,
	},
	{
		ID: "GM1203", Name: "growth-and-limit", Group: "tensorflow", Severity: Error,
		Says:    "Memory growth and a memory limit are set on one GPU.",
		Cost:    "ValueError; a limit in bytes is a limit 1,048,576 times too large (the unit is MiB)",
		Instead: "set_logical_device_configuration alone",
		Quiet:   "exclusive branches; different GPUs",
		Source:  "tensorflow#38367; TensorFlow guide/gpu", Remedy: "R44",
		Check: growthAndLimit,
	},
	{
		ID: "GM1204", Name: "predict-in-loop", Group: "tensorflow", Severity: Warning,
		Says:    "model.predict is called for single samples in a loop.",
		Cost:    "each call builds iterators and callbacks: host memory grows, and most of the time goes there",
		Instead: "model.predict(dataset), or model(x, training=False)",
		Quiet:   "whole batches; loops of a known small number of rounds",
		Source:  "tensorflow#33030, #44711, keras#13118", Remedy: "R47",
		Check: predictInLoop,
	},
	{
		ID: "GM1205", Name: "models-without-clear", Group: "tensorflow", Severity: Warning,
		Says:    "Keras models are built in a loop without clear_session().",
		Cost:    "the global state keeps each model's graph: host and GPU memory grow by a model a round",
		Instead: "keras.utils.clear_session() at the start of the round",
		Quiet:   "clear_session or a subprocess in the loop",
		Source:  "keras global_state.py; tensorflow#38598", Remedy: "R47",
		Check: modelsWithoutClear,
	},
	{
		ID: "GM1206", Name: "persistent-tape", Group: "tensorflow", Severity: Warning,
		Says:    "A persistent GradientTape is used once.",
		Cost:    "all recorded activations stay until the tape itself dies, instead of until gradient()",
		Instead: "tf.GradientTape()",
		Quiet:   "two or more gradient calls; a tape that is passed on",
		Source:  "tf.GradientTape documentation", Remedy: "R25",
		Check: persistentTape,
	},
	{
		ID: "GM1207", Name: "tensorflow-takes-card", Group: "tensorflow", Severity: Warning,
		Says:    "TensorFlow runs beside PyTorch or JAX without a limit.",
		Cost:    "its first operation takes nearly the whole card",
		Instead: "tf.config.set_visible_devices([], \"GPU\") where it only feeds data",
		Quiet:   "growth or visible devices are set; imports in try or in functions; conversion without the GPU",
		Source:  "JAX documentation (hide GPUs from TensorFlow); silnlp#102", Remedy: "R43",
		Check: tensorflowTakesCard,
	},
	{
		ID: "GM1208", Name: "function-in-loop", Group: "tensorflow", Severity: Warning,
		Says:    "tf.function is made anew in every round of a loop.",
		Cost:    "a new trace and graph each time, none of them shared or freed",
		Instead: "make it once before the loop",
		Quiet:   "loops of a known small number of rounds",
		Source:  "tf.function guide; keras#23111", Remedy: "R47",
		Check: functionInLoop,
	},
}

func sessionConfig(p *Pass) {
	if p.mentions("disable_v2_behavior", "disable_eager_execution", "disable_v2_tensorshape", "placeholder", "set_session", "Graph()", "session.run", "sess.run", "as_default", "tensorflow.compat.v1 as tf") {
		return
	}
	for _, c := range p.M.To("tensorflow.compat.v1.ConfigProto", "tensorflow.ConfigProto", "tensorflow.compat.v1.GPUOptions") {
		modern := false
		for _, o := range p.calls() {
			switch {
			case o.Method() == "fit", o.Callee == "tensorflow.function", o.Callee == "tensorflow.GradientTape", strings.HasPrefix(o.Callee, "keras."):
				modern = true
			}
		}
		if modern {
			p.Report(c.Node, "TensorFlow 2 runs eagerly and ignores the options of a session: it takes nearly all of the card. Call tf.config.experimental.set_memory_growth for each GPU.")
		}
	}
}

func isGrowth(callee string) bool {
	return callee == "tensorflow.config.experimental.set_memory_growth" || callee == "tensorflow.config.set_memory_growth"
}

func inTry(p *Pass, n pysource.Node) bool {
	found := false
	p.M.Within(n, func(a pysource.Node) bool {
		if t, ok := a.(*pysource.Try); ok && len(t.Handlers) > 0 {
			found = true
		}
		return !found
	})
	return found
}

// initialisesTF reports whether a call makes TensorFlow take its GPUs.
func initialisesTF(callee string) bool {
	switch callee {
	case "tensorflow.zeros", "tensorflow.ones", "tensorflow.constant", "tensorflow.Variable", "tensorflow.random.normal", "tensorflow.random.uniform",
		"tensorflow.convert_to_tensor", "tensorflow.matmul", "keras.Sequential", "keras.Model", "keras.models.Sequential", "keras.models.load_model":
		return true
	}
	return false
}

func growthTooLate(p *Pass) {
	for _, c := range p.calls() {
		if !isGrowth(c.Callee) || inTry(p, c.Node) || p.mentions("set_visible_devices", "CUDA_VISIBLE_DEVICES") {
			continue
		}
		late := false
		for _, o := range p.scopeCalls(c.Node) {
			if o.Node.Pos() < c.Node.Pos() && o.In == c.In && initialisesTF(o.Callee) && !p.guarded(o.Node) && p.sameCell(o.Node, c.Node) {
				line, _ := p.File.Position(o.Node.Pos())
				p.Report(c.Node, "the GPUs are in use since line %d: “Physical devices cannot be modified after being initialized”. Set the growth first.", line)
				late = true
				break
			}
		}
		if late || len(c.Node.Args) == 0 || p.guarded(c.Node) {
			continue
		}
		if s, ok := p.resolve(c.Node.Args[0]).(*pysource.Subscript); ok && p.key(s.Index) == "0" {
			p.Report(c.Node, "growth is set for the first GPU only: it must be the same on all visible ones, and [0] fails without a GPU. Loop over the list.").As(Warning)
		}
	}
}

func (p *Pass) sameCell(a, b pysource.Node) bool {
	x, _ := p.File.Cell(a.Pos())
	y, _ := p.File.Cell(b.Pos())
	return x == y
}

func growthAndLimit(p *Pass) {
	for _, c := range p.M.To("tensorflow.config.set_logical_device_configuration", "tensorflow.config.experimental.set_virtual_device_configuration") {
		if len(c.Node.Args) == 0 {
			continue
		}
		p.inspect(c.Node, func(n pysource.Node) bool {
			k, ok := n.(*pysource.Keyword)
			if ok && k.Name == "memory_limit" {
				if v := strings.ReplaceAll(p.constant(k.Value), "_", ""); len(v) >= 8 && strings.Trim(v, "0123456789") == "" {
					p.Report(k, "memory_limit is in MiB: %s MiB is more than any card has. Divide by 1,048,576.", v)
				}
			}
			return true
		})
		for _, g := range p.scopeCalls(c.Node) {
			if !isGrowth(g.Callee) || g.In != c.In || len(g.Node.Args) == 0 || p.exclusive(g.Node, c.Node) {
				continue
			}
			if p.key(g.Node.Args[0]) == p.key(c.Node.Args[0]) {
				p.Report(c.Node, "memory growth and a memory limit on one GPU: ValueError. Keep the limit.")
			}
		}
	}
}

// exclusive reports whether two nodes stand in different branches of an if or
// try.
func (p *Pass) exclusive(a, b pysource.Node) bool {
	found := false
	p.M.Within(a, func(n pysource.Node) bool {
		switch s := n.(type) {
		case *pysource.If:
			found = found || within(s.Body, a) != within(s.Body, b)
		case *pysource.Try:
			found = found || within(s.Body, a) != within(s.Body, b)
		}
		return true
	})
	p.M.Within(b, func(n pysource.Node) bool {
		if s, ok := n.(*pysource.If); ok {
			found = found || within(s.Body, a) != within(s.Body, b)
		}
		return true
	})
	return found
}

// isKeras reports whether a value is a Keras model made or loaded here.
func isKeras(v *model.Value) bool {
	return v != nil && v.Kind == model.Object && strings.HasPrefix(v.Name, "keras.") || v != nil && v.Class.Is("keras.Model", "keras.models.Model")
}

func predictInLoop(p *Pass) {
	for _, c := range p.calls() {
		if c.Method() != "predict" || !isKeras(c.Recv) || len(c.Node.Args) == 0 {
			continue
		}
		l := p.M.Loop(c.Node)
		if l == nil || l.Bounded || !p.single(c.Node.Args[0]) {
			continue
		}
		p.Report(c.Node, "predict() for one sample in each round: every call builds iterators and callbacks, and host memory grows. Predict the whole set at once, or call the model: model(x, training=False).")
	}
}

// single reports whether an expression adds the dimension of a batch of one.
func (p *Pass) single(x pysource.Expr) bool {
	x = p.resolve(x)
	if s, ok := x.(*pysource.Subscript); ok {
		for _, e := range flatten(s.Index) {
			if p.M.Value(e).Kind == model.None {
				return true
			}
		}
	}
	if c := p.M.Call(x); c != nil {
		switch c.Callee {
		case "numpy.expand_dims", "tensorflow.expand_dims":
			return p.constant(c.Arg(1, "axis")) == "0"
		}
	}
	return false
}

func modelsWithoutClear(p *Pass) {
	if p.imports("multiprocessing", "subprocess", "concurrent.futures") {
		return
	}
	builders := []string{"keras.Sequential", "keras.Model", "keras.models.Sequential", "keras.models.Model"}
	for _, c := range p.M.To(builders...) {
		site := c
		l := p.M.Loop(c.Node)
		if l == nil && c.In != nil { // one level up: build(p) in the loop
			for _, caller := range c.In.Callers {
				if cl := p.M.Loop(caller.Node); cl != nil {
					l, site = cl, caller
				}
			}
		}
		if l == nil || p.guarded(site.Node) {
			continue
		}
		fit, cleared := false, false
		for _, o := range p.callsIn(l.Node) {
			fit = fit || o.Method() == "fit"
			cleared = cleared || o.Method() == "clear_session"
			if o.Func != nil && strings.Contains(p.File.Text(o.Func.Def), "clear_session") {
				cleared = true
			}
			if o.Func != nil && strings.Contains(p.File.Text(o.Func.Def), ".fit(") {
				fit = true
			}
		}
		if fit && !cleared {
			p.Report(site.Node, "a Keras model is built in each round and the global state keeps them all: memory grows by a model a round. Call keras.utils.clear_session() first.")
		}
	}
}

func persistentTape(p *Pass) {
	p.inspectAll(p.File.Body, func(n pysource.Node) bool {
		w, ok := n.(*pysource.With)
		if !ok {
			return true
		}
		for _, it := range w.Items {
			c := p.M.Call(it.X)
			if c == nil || c.Callee != "tensorflow.GradientTape" || !p.isTrue(c, "persistent") || it.Target == nil {
				continue
			}
			tape := p.key(it.Target)
			gradients, passed, looped := 0, false, false
			p.inspectScope(w, func(x pysource.Node) bool {
				id, ok := x.(*pysource.Name)
				if !ok || id.Ident != tape || id.Pos() < w.Pos() || pysource.Node(it.Target) == x {
					return true
				}
				a, ok := p.File.Parent(id).(*pysource.Attribute)
				switch {
				case ok && (a.Name == "gradient" || a.Name == "jacobian" || a.Name == "batch_jacobian"):
					gradients++
					if inner := p.M.Loop(id); inner != nil && inner.Node.Pos() > w.Pos() {
						looped = true
					}
				case ok && (a.Name == "watch" || a.Name == "stop_recording" || a.Name == "reset"):
				default:
					if _, del := p.File.Parent(id).(*pysource.Delete); !del {
						passed = true
					}
				}
				return true
			})
			if gradients == 1 && !passed && !looped {
				p.Report(c.Node, "the tape is persistent and asked for gradients once: what it recorded stays until the tape dies, instead of until gradient(). Leave persistent out.")
			}
		}
		return true
	})
}

func tensorflowTakesCard(p *Pass) {
	tf := p.imported("tensorflow", len(p.File.Src))
	torch := p.imported("torch", len(p.File.Src))
	jax := p.imported("jax", len(p.File.Src))
	if tf < 0 || torch < 0 && jax < 0 || p.mentions("set_visible_devices", "set_memory_growth", "CUDA_VISIBLE_DEVICES", "allow_growth", "TF_FORCE_GPU_ALLOW_GROWTH", "/cpu:0", "/CPU:0", "set_logical_device_configuration") || p.IsTest {
		return
	}
	runs, gpu := false, false
	for _, c := range p.calls() {
		if strings.HasPrefix(c.Callee, "tensorflow.") && !strings.HasPrefix(c.Callee, "tensorflow.io.") && !strings.HasPrefix(c.Callee, "tensorflow.train.") && !strings.HasPrefix(c.Callee, "tensorflow.compat.v1.") && !strings.HasPrefix(c.Callee, "tensorflow.summary") {
			runs = true
		}
		if v := p.M.Value(c.Node); v.Dev == "cuda" || strings.HasPrefix(c.Callee, "jax.") {
			gpu = true
		}
	}
	if runs && gpu {
		other := "PyTorch"
		if torch < 0 {
			other = "JAX"
		}
		end := tf + strings.IndexByte(p.File.Src[tf:]+"\n", '\n')
		p.ReportAt(tf, end, "TensorFlow beside %s without a limit: its first operation takes nearly the whole card. Call tf.config.set_visible_devices([], \"GPU\") where it only feeds data.", other)
	}
}

func functionInLoop(p *Pass) {
	for _, c := range p.M.To("tensorflow.function") {
		l := p.M.Loop(c.Node)
		if l == nil || l.Bounded || p.guarded(c.Node) {
			continue
		}
		if _, comp := l.Node.(*pysource.Comp); comp {
			continue
		}
		p.Report(c.Node, "a tf.function is made in every round: a new trace and graph each time, shared with nothing. Make it once before the loop.")
	}
	for _, f := range p.M.Funcs {
		for _, d := range f.Def.Decorators {
			if v := p.M.Value(d); v.Kind == model.Namespace && v.Name == "tensorflow.function" {
				if l := p.M.Loop(f.Def); l != nil && !l.Bounded {
					p.Report(d, "this function is traced anew in every round of the loop. Define it once before the loop.")
				}
			}
		}
	}
}
