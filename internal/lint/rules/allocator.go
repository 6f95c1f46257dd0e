package rules

import (
	"errors"
	"strconv"
	"strings"

	"vramscope/cachealloc"
	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

var allocatorRules = []Rule{
	{
		ID: "GM502", Name: "variable-misspelt", Group: "environment", Severity: Error, Text: true,
		Says:    "An allocator variable is misspelt, or name and value run together.",
		Cost:    "nothing is set, and nothing says so: the job runs under the defaults",
		Instead: "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
		Quiet:   "names further than two letters from a known one",
		Source:  "PyTorch docs/source/notes/cuda.md; c10/core/AllocatorConfig.h", Remedy: "R30", Fixes: true,
		Check: variableMisspelt,
	},
	{
		ID: "GM503", Name: "setting-refused", Group: "environment", Severity: Error, Text: true,
		Says:    "The allocator settings hold a key or value that PyTorch refuses.",
		Cost:    "the job stops at its first use of CUDA",
		Instead: "see `vramscope remedies R30` for what each key takes",
		Quiet:   "values that are built at run time",
		Source:  "PyTorch c10/core/AllocatorConfig.cpp, c10/cuda/CUDAAllocatorConfig.cpp", Remedy: "R30",
		Check: settingRefused,
	},
	{
		ID: "GM504", Name: "setting-too-late", Group: "environment", Severity: Error, Text: true,
		Says:    "A variable is set after the program has read it.",
		Cost:    "nothing is set: the job runs under the defaults",
		Instead: "set it before the import, or in the environment",
		Quiet:   "between import torch and the first use of CUDA, where all keys but backend still work; other cells of a notebook",
		Source:  "pytorch/pytorch#104801; PyTorch c10/cuda/CUDAAllocatorConfig.cpp", Remedy: "R30",
		Check: settingTooLate,
	},
	{
		ID: "GM505", Name: "two-names-differ", Group: "environment", Severity: Warning, Text: true,
		Says:    "The old and the new name of the allocator variable disagree, or the new one is not read by the pinned version.",
		Cost:    "the settings are not those that were meant: PYTORCH_ALLOC_CONF wins over PYTORCH_CUDA_ALLOC_CONF, and before 2.9 it is not read at all",
		Instead: "set PYTORCH_CUDA_ALLOC_CONF, and the new name to the same value from 2.11 on",
		Quiet:   "both set to the same value; unknown versions",
		Source:  "pytorch/pytorch#183387; c10/core/AllocatorConfig.cpp", Remedy: "R30",
		Check: twoNames,
	},
	{
		ID: "GM506", Name: "gc-without-fraction", Group: "environment", Severity: Warning, Text: true,
		Says:    "garbage_collection_threshold is set without a memory fraction.",
		Cost:    "nothing happens: the collection only runs where a fraction of the card is set",
		Instead: "torch.cuda.set_per_process_memory_fraction(0.95), or per_process_memory_fraction in the settings",
		Quiet:   "some file of the scan sets a fraction",
		Source:  "PyTorch c10/cuda/CUDACachingAllocator.cpp, 2.4 (set_fraction && garbage_collection_threshold > 0)", Remedy: "R31",
		Check: gcWithoutFraction,
	},
	{
		ID: "GM507", Name: "settings-cancel", Group: "environment", Severity: Warning, Text: true,
		Says:    "Allocator settings cancel each other.",
		Cost:    "one of them has no effect",
		Instead: "expandable_segments:True alone",
		Source:  "PyTorch c10/cuda/CUDACachingAllocator.cpp, 2.4 (should_split); pytorch/pytorch#147851", Remedy: "R30",
		Check: settingsCancel,
	},
	{
		ID: "GM508", Name: "debug-switch", Group: "environment", Severity: Warning, Text: true,
		Says:    "A switch for debugging is left on.",
		Cost:    "no cache: one cudaMalloc for each tensor; blocking launches: the GPU waits for the host; anomaly detection: a traceback per node",
		Instead: "leave it out, or put it under a flag",
		Quiet:   "tests and debugging scripts; under a condition",
		Source:  "PyTorch docs/source/notes/cuda.md", Remedy: "R13",
		Check: debugSwitch,
	},
	{
		ID: "GM1302", Name: "xla-setting", Group: "jax", Severity: Error, Text: true,
		Says:    "An XLA memory variable is invalid, contradictory or set too late.",
		Cost:    "JAX reserves 75 % of the card as if it were not there, or stops with ValueError",
		Instead: "XLA_PYTHON_CLIENT_PREALLOCATE=false and XLA_CLIENT_MEM_FRACTION=.60, before import jax",
		Quiet:   "between import and the first operation, where it still works",
		Source:  "jaxlib/xla_client.py:170-217; adityab/CrossQ#7", Remedy: "R48",
		Check: xlaSetting,
	},
	{
		ID: "GM1306", Name: "platform-allocator", Group: "jax", Severity: Warning, Text: true,
		Says:    "XLA_PYTHON_CLIENT_ALLOCATOR=platform allocates each buffer on its own.",
		Cost:    "cudaMalloc and cudaFree for every buffer: very slow, for debugging",
		Instead: "XLA_PYTHON_CLIENT_PREALLOCATE=false",
		Quiet:   "tests and measurements of the footprint",
		Source:  "jax docs/gpu_memory_allocation.rst", Remedy: "R49",
		Check: platformAllocator,
	},
}

const (
	confOld = "PYTORCH_CUDA_ALLOC_CONF"
	confNew = "PYTORCH_ALLOC_CONF"
	confHIP = "PYTORCH_HIP_ALLOC_CONF"
)

func isConf(name string) bool { return name == confOld || name == confNew || name == confHIP }

// knownVariables are the names that a misspelling is compared with.
var knownVariables = []string{
	confOld, confNew, confHIP, "PYTORCH_NO_CUDA_MEMORY_CACHING",
	"XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_ALLOCATOR", "XLA_CLIENT_MEM_FRACTION",
	"TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR", "CUDA_VISIBLE_DEVICES",
}

// misspelt are names seen in the wild that are further than two letters off.
var misspelt = map[string]string{
	"PYTORCH_CUDA_ALLOC_CONFIG":         confOld,
	"PYTORCH_CUDA_ALLOCATOR":            confOld,
	"PYTORCH_CUDA_MEMORY_CONF":          confOld,
	"PYTORCH_CUDA_ALLOC_CONFS":          confOld,
	"TORCH_CUDA_ALLOC_CONF":             confOld,
	"CUDA_ALLOC_CONF":                   confOld,
	"PYTORCH_GPU_ALLOC_CONF":            confOld,
	"CUDA_VISIBLE_DEVICE":               "CUDA_VISIBLE_DEVICES",
	"TF_GPU_ALLOW_GROWTH":               "TF_FORCE_GPU_ALLOW_GROWTH",
	"XLA_PYTHON_MEM_FRACTION":           "XLA_PYTHON_CLIENT_MEM_FRACTION",
	"XLA_PYTHON_CLIENT_MEMORY_FRACTION": "XLA_PYTHON_CLIENT_MEM_FRACTION",
}

func variableMisspelt(p *Pass) {
	for _, s := range p.Settings {
		for _, conf := range []string{confOld, confNew, confHIP} {
			if rest, ok := strings.CutPrefix(s.Name, conf); ok && strings.Contains(rest, ":") {
				f := p.ReportAt(s.NamePos, s.NameEnd, "name and value run together: this sets nothing. Write %s=%s.", conf, rest)
				if s.Node == nil {
					f.WithFix("put = between name and value", Edit{s.NamePos + len(conf), s.NamePos + len(conf), "="})
				}
			}
		}
		if known := nearest(s.Name); known != "" {
			f := p.ReportAt(s.NamePos, s.NameEnd, "%s is not read by anything: did you mean %s? An unknown variable is ignored without a word.", s.Name, known)
			text := p.File.Src[s.NamePos:s.NameEnd]
			if i := strings.Index(text, s.Name); i >= 0 {
				f.WithFix("rename to "+known, Edit{s.NamePos + i, s.NamePos + i + len(s.Name), known})
			}
		}
	}
}

// nearest returns the known variable that a name misspells, or "".
func nearest(name string) string {
	if known := misspelt[name]; known != "" {
		return known
	}
	best, bestDistance := "", 3
	for _, k := range knownVariables {
		if k == name {
			return ""
		}
		if d := distance(name, k, bestDistance); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance is the edit distance of two short strings, or limit where it is at
// least that.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur := make([]int, len(b)+1)
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
		}
		prev = cur
	}
	return min(prev[len(b)], limit)
}

// torchVersion is the version that the project pins, or the newest.
func (p *Pass) torchVersion() cachealloc.Version {
	v, err := parseVersion(p.Around.TorchVersion)
	if err != nil {
		return cachealloc.Version{}
	}
	return v
}

func parseVersion(s string) (cachealloc.Version, error) {
	parts := strings.SplitN(s, ".", 3)
	if len(parts) < 2 {
		return cachealloc.Version{}, errors.New("no version")
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return cachealloc.Version{}, err
	}
	minor, err := strconv.Atoi(parts[1])
	if err != nil {
		return cachealloc.Version{}, err
	}
	return cachealloc.Version{Major: major, Minor: minor}, nil
}

func settingRefused(p *Pass) {
	for _, s := range p.Settings {
		if !isConf(s.Name) || !s.Known || s.Value == "" {
			continue
		}
		_, err := cachealloc.ParseSettings(s.Value, p.torchVersion())
		var se *cachealloc.SettingsError
		if !errors.As(err, &se) {
			continue
		}
		hint := ""
		switch {
		case se.Nearest != "":
			hint = " (did you mean " + se.Nearest + "?)"
		case se.Since != "":
			hint = " (it exists from PyTorch " + se.Since + " on)"
		}
		p.ReportAt(s.Pos, s.End, "PyTorch refuses this value at the first use of CUDA: %s%s.", strings.TrimSuffix(strings.TrimSpace(se.Message), "."), hint)
	}
}

// usesCUDA returns the first call before pos, in the same scope or at the top
// level, that initialises CUDA.
func (p *Pass) usesCUDA(s Setting) *model.Call {
	for _, c := range p.calls() {
		if c.Node.Pos() >= s.NamePos {
			break
		}
		if !p.sameFlow(s, c) || p.guarded(c.Node) {
			continue
		}
		switch c.Callee {
		case "torch.cuda.init", "torch.cuda.set_device", "torch.cuda.mem_get_info", "torch.cuda.get_device_properties", "torch.cuda.synchronize",
			"torch.cuda.memory_allocated", "torch.cuda.current_device", "torch.cuda.get_device_name":
			return c
		case "Net.cuda", "Tensor.cuda":
			return c
		}
		if v := p.M.Value(c.Node); v.Dev == "cuda" && (v.Kind == model.Tensor && len(v.Alts) == 0 && v.Name == "factory" || c.Method() == "to" && v.Kind == model.Net) {
			return c
		}
	}
	return nil
}

// sameFlow reports whether a call surely ran before a setting that stands
// after it: in the same function, or both at the top level (of a notebook, in
// the same cell).
func (p *Pass) sameFlow(s Setting, c *model.Call) bool {
	fn := p.M.Func(c.Node)
	if s.Scope == nil != (fn == nil) {
		return false
	}
	if fn != nil && pysource.Node(fn.Def) != s.Scope {
		return false
	}
	if p.File.Notebook {
		a, _ := p.File.Cell(s.NamePos)
		b, _ := p.File.Cell(c.Node.Pos())
		return a == b
	}
	return true
}

// imported returns the position of the first top-level import of a module
// before pos, or -1.
func (p *Pass) imported(module string, before int) int {
	for _, st := range p.File.Body {
		imp, ok := st.(*pysource.Import)
		if !ok || imp.Pos() > before || imp.Level > 0 {
			continue
		}
		if imp.IsFrom && (imp.Module == module || strings.HasPrefix(imp.Module, module+".")) {
			return imp.Pos()
		}
		for _, a := range imp.Names {
			if !imp.IsFrom && (a.Name == module || strings.HasPrefix(a.Name, module+".")) {
				return imp.Pos()
			}
		}
	}
	return -1
}

// startsProcess reports whether a process is started after a setting in its
// scope: it inherits it.
func (p *Pass) startsProcess(s Setting) bool {
	for _, c := range p.calls() {
		if c.Node.Pos() < s.NamePos {
			continue
		}
		top, _, _ := strings.Cut(c.Callee, ".")
		if top == "subprocess" || top == "multiprocessing" || strings.HasPrefix(c.Callee, "torch.multiprocessing.") || c.Callee == "os.system" || strings.HasPrefix(c.Callee, "os.exec") || strings.HasPrefix(c.Callee, "os.spawn") {
			return true
		}
	}
	return false
}

func settingTooLate(p *Pass) {
	if p.M == nil {
		return
	}
	for _, s := range p.Settings {
		if s.Node == nil {
			continue
		}
		switch {
		case isConf(s.Name) || s.Name == "CUDA_VISIBLE_DEVICES":
			if c := p.usesCUDA(s); c != nil && !p.startsProcess(s) {
				line, _ := p.File.Position(c.Node.Pos())
				p.ReportAt(s.NamePos, s.NameEnd, "CUDA is in use since line %d: %s is read no more, and this sets nothing. Set it before the first use.", line, s.Name)
			} else if isConf(s.Name) && strings.Contains(s.Value, "backend:") && p.imported("torch", s.NamePos) >= 0 && !p.File.Notebook && s.Scope == nil {
				p.ReportAt(s.NamePos, s.NameEnd, "backend is read when torch is imported: this is too late. Set it before `import torch`.")
			}
		}
	}
}

func twoNames(p *Pass) {
	var old, new *Setting
	for i, s := range p.Settings {
		switch s.Name {
		case confOld:
			old = &p.Settings[i]
		case confNew:
			new = &p.Settings[i]
		}
	}
	switch {
	case new == nil:
	case old != nil && old.Known && new.Known && old.Value != new.Value && old.Scope == new.Scope:
		p.ReportAt(new.NamePos, new.NameEnd, "%s and %s have different values, and the first wins where it is known (PyTorch 2.9 and later). Give both the same.", confNew, confOld)
	case old == nil && p.Around.TorchVersion != "":
		v := p.torchVersion()
		newName := cachealloc.Version{Major: 2, Minor: 9}
		works := cachealloc.Version{Major: 2, Minor: 11}
		if v != (cachealloc.Version{}) && !v.AtLeast(newName) {
			p.ReportAt(new.NamePos, new.NameEnd, "PyTorch %s, which this project pins, does not read %s: nothing is set. Set %s.", p.Around.TorchVersion, confNew, confOld)
		} else if v != (cachealloc.Version{}) && !v.AtLeast(works) && strings.Contains(new.Value, "expandable_segments") {
			p.ReportAt(new.NamePos, new.NameEnd, "PyTorch %s, which this project pins, ignores expandable_segments under the new name (pytorch#183387). Set %s too.", p.Around.TorchVersion, confOld)
		}
	}
}

func gcWithoutFraction(p *Pass) {
	if p.Around.SetsFraction {
		return
	}
	for _, s := range p.Settings {
		if isConf(s.Name) && s.Known && strings.Contains(s.Value, "garbage_collection_threshold") && !strings.Contains(s.Value, "per_process_memory_fraction") && !strings.Contains(s.Value, "cudaMallocAsync") {
			p.ReportAt(s.Pos, s.End, "garbage_collection_threshold does nothing without a memory fraction, and nothing here sets one. Call torch.cuda.set_per_process_memory_fraction().")
		}
	}
}

func settingsCancel(p *Pass) {
	for _, s := range p.Settings {
		if !isConf(s.Name) || !s.Known {
			continue
		}
		conf, err := cachealloc.ParseSettings(s.Value, p.torchVersion())
		if err != nil {
			continue // GM503
		}
		switch {
		case conf.Backend == cachealloc.CUDAMallocAsync && nativeKey(s.Value) != "":
			p.ReportAt(s.Pos, s.End, "%s is for the native allocator and has no effect with backend:cudaMallocAsync.", nativeKey(s.Value))
		case conf.ExpandableSegments && strings.Contains(s.Value, "max_split_size_mb"):
			p.ReportAt(s.Pos, s.End, "max_split_size_mb has no effect with expandable_segments:True: such segments are always split.")
		}
	}
}

func nativeKey(conf string) string {
	for _, k := range []string{"max_split_size_mb", "garbage_collection_threshold", "roundup_power2_divisions", "expandable_segments:True", "max_non_split_rounding_mb"} {
		if strings.Contains(conf, k) {
			return strings.TrimSuffix(k, ":True")
		}
	}
	return ""
}

func debugSwitch(p *Pass) {
	if p.IsTest {
		return
	}
	for _, s := range p.Settings {
		if s.Node != nil && (p.guarded(s.Node) || s.Scope != nil) {
			continue
		}
		on := s.Value == "1" || strings.EqualFold(s.Value, "true")
		switch {
		case s.Name == "PYTORCH_NO_CUDA_MEMORY_CACHING" && on:
			p.ReportAt(s.NamePos, s.NameEnd, "the caching allocator is off: every tensor costs a cudaMalloc and a cudaFree, which wait for the GPU.")
		case s.Name == "CUDA_LAUNCH_BLOCKING" && on:
			p.ReportAt(s.NamePos, s.NameEnd, "blocking launches are on: host and GPU wait for each other at every kernel. It saves no memory.")
		case s.Name == "JAX_DISABLE_JIT" && on:
			p.ReportAt(s.NamePos, s.NameEnd, "jit is off: every operation keeps its own result, nothing is fused.")
		}
	}
	if p.M == nil {
		return
	}
	for _, c := range p.M.To("torch.autograd.set_detect_anomaly", "torch.autograd.anomaly_mode.set_detect_anomaly", "tensorflow.config.run_functions_eagerly", "tensorflow.config.experimental_run_functions_eagerly") {
		if p.constant(c.Arg(0, "mode")) != "True" || p.guarded(c.Node) || !p.discarded(c) {
			continue
		}
		p.Report(c.Node, "%s(True) is for debugging: a traceback or a Python call for each operation, in every step. Put it under a flag.", p.key(c.Node.Fun))
	}
}

// truthy and allocators are what jaxlib/xla_client.py accepts.
func preallocateKnown(v string) bool {
	switch v {
	case "false", "False", "0", "true", "True", "1":
		return true
	}
	return false
}

func xlaAllocatorKnown(v string) bool {
	switch v {
	case "default", "platform", "bfc", "cuda_async", "vmm", "address":
		return true
	}
	return false
}

func xlaSetting(p *Pass) {
	var fraction *Setting
	for i, s := range p.Settings {
		if !strings.HasPrefix(s.Name, "XLA_") {
			continue
		}
		switch {
		case s.Name == "XLA_PYTHON_CLIENT_PREALLOCATE" && s.Known && !preallocateKnown(s.Value):
			p.ReportAt(s.Pos, s.End, "only false, False and 0 switch preallocation off: with %q JAX still reserves most of the card.", s.Value)
		case s.Name == "XLA_PYTHON_CLIENT_ALLOCATOR" && s.Known && !xlaAllocatorKnown(s.Value):
			p.ReportAt(s.Pos, s.End, "JAX knows no allocator %q: ValueError. It takes default, platform, bfc, cuda_async, vmm, address.", s.Value)
		case s.Name == "XLA_PYTHON_CLIENT_MEM_FRACTION" || s.Name == "XLA_CLIENT_MEM_FRACTION":
			if fraction != nil && fraction.Name != s.Name && fraction.Scope == s.Scope {
				p.ReportAt(s.NamePos, s.NameEnd, "%s and %s are both set: JAX stops with ValueError. Set one.", s.Name, fraction.Name)
			}
			fraction = &p.Settings[i]
		}
		if p.M == nil || s.Node == nil || s.Name != "XLA_PYTHON_CLIENT_PREALLOCATE" && s.Name != "XLA_PYTHON_CLIENT_ALLOCATOR" && s.Name != "XLA_PYTHON_CLIENT_MEM_FRACTION" && s.Name != "XLA_CLIENT_MEM_FRACTION" {
			continue
		}
		for _, c := range p.calls() {
			if c.Node.Pos() >= s.NamePos {
				break
			}
			if p.sameFlow(s, c) && !p.guarded(c.Node) && usesJAXDevice(c.Callee) {
				line, _ := p.File.Position(c.Node.Pos())
				p.ReportAt(s.NamePos, s.NameEnd, "JAX has taken its device in line %d: %s is read no more. Set it before `import jax`.", line, s.Name)
				break
			}
		}
	}
}

// usesJAXDevice reports whether a call makes JAX create its GPU client.
func usesJAXDevice(callee string) bool {
	if strings.HasPrefix(callee, "jax.numpy.") || strings.HasPrefix(callee, "jax.random.") {
		return true
	}
	switch callee {
	case "jax.devices", "jax.local_devices", "jax.device_count", "jax.local_device_count", "jax.device_put", "jax.default_backend":
		return true
	}
	return false
}

func platformAllocator(p *Pass) {
	if p.IsTest {
		return
	}
	for _, s := range p.Settings {
		if s.Name == "XLA_PYTHON_CLIENT_ALLOCATOR" && s.Value == "platform" && (s.Node == nil || !p.guarded(s.Node)) {
			p.ReportAt(s.Pos, s.End, "platform allocates and frees each buffer on its own: very slow, for debugging. XLA_PYTHON_CLIENT_PREALLOCATE=false takes memory as needed.")
		}
	}
}
