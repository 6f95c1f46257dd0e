package lint

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vramscope/internal/lint/rules"
	"vramscope/internal/pysource"
)

// tree writes files into a new folder and returns it.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// found runs over a tree and lists "file:line rule".
func found(t testing.TB, dir string, o Options) []string {
	t.Helper()
	o.Paths = []string{dir}
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, f := range r.Findings {
		rel, _ := filepath.Rel(dir, f.File)
		out = append(out, fmt.Sprintf("%s:%d %s", filepath.ToSlash(rel), f.Line, f.Rule.ID))
	}
	return out
}

// TestAcrossFiles: what one file says about another.
func TestAcrossFiles(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"a module class of another file", map[string]string{
			"model.py": "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n",
			"main.py": "from model import Net\ndef collect(loader):\n    net = Net()\n    net.eval()\n    out = []\n    for x in loader:\n        out.append(net(x))\n" +
				"    return out\n",
		}, []string{"main.py:7 GM103", "main.py:7 GM201"}},
		{"a function of another file returns a number", map[string]string{
			"pkg/__init__.py": "",
			"pkg/step.py":     "def step(model, x):\n    loss = model(x)\n    loss.backward()\n    return loss.item()\n",
			"pkg/main.py":     "from .step import step\ndef train(model, loader):\n    total = 0\n    for x in loader:\n        total += step(model, x)\n",
		}, []string{}},
		{"a function of another file returns a loss", map[string]string{
			"pkg/__init__.py": "",
			"pkg/step.py":     "def step(model, x):\n    loss = model(x)\n    loss.backward()\n    return loss\n",
			"pkg/main.py":     "from .step import step\ndef train(model, loader):\n    total = 0\n    for x in loader:\n        total += step(model, x)  # torch\n",
		}, []string{"pkg/main.py:5 GM101"}},
		{"the caller in another file switches gradients off", map[string]string{
			"ev.py":   "def evaluate(model, loader):\n    model.eval()\n    return [model(x).sum().item() for x in loader]\n",
			"main.py": "import torch\nfrom ev import evaluate\ndef main(model, loader):\n    with torch.no_grad():\n        evaluate(model, loader)\n",
		}, []string{}},
		{"the fraction is set in another file", map[string]string{
			"a.py": "import torch\ntorch.cuda.set_per_process_memory_fraction(0.9)\n",
			"b.py": "import os\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'garbage_collection_threshold:0.8'\n",
		}, []string{}},
		{"a pinned version is older than the key", map[string]string{
			"requirements.txt": "torch==2.0.1\n",
			"job.sh":           "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n",
		}, []string{"job.sh:1 GM503"}},
		{"a pinned version does not read the new name", map[string]string{
			"requirements.txt": "torch==2.8.0\n",
			"job.sh":           "export PYTORCH_ALLOC_CONF=expandable_segments:True\n",
		}, []string{"job.sh:1 GM505"}},
		{"the launcher limits JAX", map[string]string{
			"run.sh": "export XLA_PYTHON_CLIENT_MEM_FRACTION=.4\n",
			"a.py":   "import jax.numpy as jnp\nimport torch\nx = jnp.zeros(3)\ny = torch.zeros(3, device='cuda')\n",
		}, []string{}},
		{"nothing limits JAX", map[string]string{
			"run.sh": "python a.py\n",
			"a.py":   "import jax.numpy as jnp\nimport torch\nx = jnp.zeros(3)\ny = torch.zeros(3, device='cuda')\n",
		}, []string{"a.py:1 GM1301"}},
		{"a debugging script says so by its place", map[string]string{
			"debug/run.sh": "export CUDA_LAUNCH_BLOCKING=1\n",
			"run.sh":       "export CUDA_LAUNCH_BLOCKING=1\n",
		}, []string{"run.sh:1 GM508"}},
		{"a pinned transformers still has the argument", map[string]string{
			"requirements.txt": "transformers==4.40.0\n",
			"a.py":             "from transformers import TrainingArguments\nTrainingArguments('o', no_cuda=True)\n",
		}, []string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := found(t, tree(t, tt.files), Options{})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSkipped: what cannot be read is skipped with a word, and nothing else is
// lost.
func TestSkipped(t *testing.T) {
	bad := "import torch\nwith torch.no_grad:\n    pass\n"
	dir := tree(t, map[string]string{
		"good.py": bad, "binary.py": "\x7fELF\x00\x00", "latin.py": "x = '\xe9'\n", "utf16.py": "\xff\xfei\x00",
		"venv/lib.py": bad, ".hidden/a.py": bad, "data.ipynb": "{]", "readme.txt": "torch",
		"brackets.py": "import torch\n" + strings.Repeat("[", 10_000) + "\n",
		"tabs.py":     "import torch\nif x:\n        a\n\tb\n  c\nwith torch.no_grad:\n    pass\n",
		"declared.py": "# -*- coding: latin-1 -*-\nimport torch  # \xe9\nwith torch.no_grad: pass\n",
	})
	large, err := os.Create(filepath.Join(dir, "large.py"))
	if err != nil {
		t.Fatal(err)
	}
	if err := large.Truncate(200 << 20); err != nil { // sparse: no bytes on the disk
		t.Fatal(err)
	}
	large.Close()
	if err := os.Symlink("loop.py", filepath.Join(dir, "loop.py")); err != nil {
		t.Skip("no symbolic links here")
	}
	os.Symlink("..", filepath.Join(dir, "venv", "up"))
	os.Symlink(".", filepath.Join(dir, "circle"))
	os.Symlink("nowhere.py", filepath.Join(dir, "dangling.py"))

	r, err := Run(context.Background(), Options{Paths: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range r.Skipped {
		got[filepath.Base(s.File)] = s.Why
	}
	want := map[string]string{
		"binary.py":   "is binary, not text",
		"latin.py":    "is not UTF-8 at byte 5",
		"utf16.py":    "is UTF-16; save it as UTF-8",
		"large.py":    "is larger than 8 MiB",
		"loop.py":     "is a symbolic link that leads in a circle",
		"dangling.py": "does not exist, or is a symbolic link that leads nowhere",
		"data.ipynb":  "is not a notebook: byte 1: invalid character ']'",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"declared.py:3 GM202", "good.py:2 GM202", "tabs.py:6 GM202"}, found(t, dir, Options{})); diff != "" {
		t.Error(diff)
	}
}

func TestPaths(t *testing.T) {
	dir := tree(t, map[string]string{"a.py": "import torch\n", "notes.txt": "x"})
	for path, want := range map[string]string{
		filepath.Join(dir, "none"):      "does not exist",
		filepath.Join(dir, "notes.txt"): "not a Python file",
	} {
		if _, err := Run(context.Background(), Options{Paths: []string{path}}); err == nil || !strings.HasPrefix(err.Error(), path+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want an error that says %q", path, err, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, Options{Paths: []string{dir}}); err == nil {
		t.Error("a cancelled run has no error")
	}
}

func TestSelection(t *testing.T) {
	src := []byte("import torch\ndef f(opt):\n    opt.zero_grad(set_to_none=False)\n    with torch.no_grad:\n        pass\n")
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{}, "GM304 GM202"},
		{Options{Select: []string{"GM3"}}, "GM304"},
		{Options{Select: []string{"evaluation"}}, "GM202"},
		{Options{Select: []string{"error"}}, "GM202"},
		{Options{Select: []string{"zero-grad-keeps-memory"}}, "GM304"},
		{Options{Ignore: []string{"gm304"}}, "GM202"},
		{Options{Select: []string{"all"}, Ignore: []string{"GM2"}}, "GM304"},
		{Options{Select: []string{"GM20"}}, "error"},
		{Options{Ignore: []string{"x"}}, "error"},
	} {
		findings, err := CheckText("a.py", src, tt.o)
		got := ""
		for _, f := range findings {
			got += " " + f.Rule.ID
		}
		if err != nil {
			got = " error"
		}
		if got != " "+tt.want {
			t.Errorf("%+v: got%s, want %s (%v)", tt.o, got, tt.want, err)
		}
	}
}

func TestConfig(t *testing.T) {
	for _, tt := range []struct{ name, text, err string }{
		{"all", "[tool.vramscope.lint]\nselect = [\"GM1\", 'GM2',] # why\nignore = []\nexclude = [\n  # these\n  \"gen\",\n]\nbaseline = \"b.json\"\npedantic = true\n[tool.other]\nx = 1\n", ""},
		{"unknown key", "[tool.vramscope.lint]\nselct = []\n", `line 2: unknown key "selct": the table has select, ignore, exclude, baseline and pedantic`},
		{"no list", "[tool.vramscope.lint]\nselect = \"GM1\"\n", "line 2: select: expected a list of strings"},
		{"open list", "[tool.vramscope.lint]\nselect = [\"GM1\"\n", "line 2: select: expected a comma or the end of the list"},
		{"no value", "[tool.vramscope.lint]\nselect\n", `line 2: expected key = value, found "select"`},
		{"no boolean", "[tool.vramscope.lint]\npedantic = yes\n", "line 2: pedantic: expected true or false, found yes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := tree(t, map[string]string{"pyproject.toml": tt.text, "sub/a.py": ""})
			c, err := FindConfig(filepath.Join(dir, "sub", "a.py"))
			msg := ""
			if err != nil {
				msg = strings.TrimPrefix(err.Error(), filepath.Join(dir, "pyproject.toml")+": ")
			}
			if msg != tt.err {
				t.Errorf("got %q, want %q", msg, tt.err)
			}
			if tt.err != "" {
				return
			}
			want := Config{File: filepath.Join(dir, "pyproject.toml"), Select: []string{"GM1", "GM2"}, Ignore: []string{}, Exclude: []string{"gen"}, Baseline: filepath.Join(dir, "b.json"), Pedantic: true}
			if diff := cmp.Diff(want, c); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBaseline(t *testing.T) {
	one := "import torch\ndef f(opt):\n    opt.zero_grad(set_to_none=False)\n"
	r := func(text string) *Result {
		findings, err := CheckText("a.py", []byte(text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return &Result{Findings: findings}
	}
	b := NewBaseline(r(one))
	moved := r("# moved\n\n" + one)
	if n := b.Apply(moved); n != 1 || len(moved.Findings) != 0 {
		t.Errorf("a moved line: %d left out, %d left", n, len(moved.Findings))
	}
	twice := r(one + "    opt.zero_grad(set_to_none=False)\n")
	if n := b.Apply(twice); n != 1 || len(twice.Findings) != 1 {
		t.Errorf("a second one: %d left out, %d left", n, len(twice.Findings))
	}
}

// TestFixes: every fix makes its finding go away, makes no other, and keeps
// the file readable.
func TestFixes(t *testing.T) {
	fixed := map[string]bool{}
	for _, r := range rules.All() {
		for _, e := range rules.Examples(r.ID) {
			o := Options{Select: []string{r.ID}, Pedantic: true}
			findings, err := CheckText(e.File, []byte(e.Text), o)
			if err != nil {
				t.Fatal(err)
			}
			after, n := applyFixes([]byte(e.Text), findings)
			if n == 0 {
				continue
			}
			fixed[r.ID] = true
			if !r.Fixes {
				t.Errorf("%s fixes and does not say so", r.ID)
			}
			left, err := CheckText(e.File, after, o)
			if err != nil || len(left) != len(findings)-n {
				t.Errorf("%s %s: %d of %d fixed, %d left, %v\n%s", r.ID, e.Kind, n, len(findings), len(left), err, after)
			}
			if strings.HasSuffix(e.File, ".py") {
				if f, err := pysource.Parse(e.File, after); err != nil || len(f.Errors) > 0 {
					t.Errorf("%s: the fixed file does not read: %v\n%s", r.ID, f.Errors, after)
				}
			}
		}
	}
	for _, r := range rules.All() {
		if r.Fixes && !fixed[r.ID] {
			if r.ID != "GM607" { // needs BitsAndBytesConfig in scope: below
				t.Errorf("%s says that it fixes, and no example shows it", r.ID)
			}
		}
	}
	src := "from transformers import AutoModel, BitsAndBytesConfig\nm = AutoModel.from_pretrained('x', load_in_4bit=True)\n"
	findings, _ := CheckText("a.py", []byte(src), Options{})
	after, _ := applyFixes([]byte(src), findings)
	if want := strings.Replace(src, "load_in_4bit=True", "quantization_config=BitsAndBytesConfig(load_in_4bit=True)", 1); string(after) != want {
		t.Errorf("GM607: got\n%s", after)
	}
}

func TestFixKeepsMarkAndModes(t *testing.T) {
	dir := tree(t, map[string]string{"a.py": "\xef\xbb\xbfimport torch\r\nwith torch.no_grad:\r\n    pass\r\n"})
	name := filepath.Join(dir, "a.py")
	if err := os.Chmod(name, 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := Run(context.Background(), Options{Paths: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	changes, err := Fixes(r)
	if err != nil || len(changes) != 1 {
		t.Fatal(changes, err)
	}
	if err := changes[0].Write(); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(name)
	if want := "\xef\xbb\xbfimport torch\r\nwith torch.no_grad():\r\n    pass\r\n"; string(data) != want {
		t.Errorf("got %q", data)
	}
	if info, _ := os.Stat(name); runtime.GOOS != "windows" && info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v", info.Mode())
	}
}

// TestSARIF checks the log against what sarif-schema-2.1.0.json requires of
// the objects that are written.
func TestSARIF(t *testing.T) {
	findings, err := CheckText("dir/a b.py", []byte("import torch\ndef f(opt):\n    opt.zero_grad(set_to_none=False)\n"), Options{})
	if err != nil || len(findings) != 1 {
		t.Fatal(findings, err)
	}
	r := &Result{Findings: findings, Skipped: []Skip{{"x.py", "is binary, not text"}}}
	var buf bytes.Buffer
	if err := r.SARIF(&buf); err != nil {
		t.Fatal(err)
	}
	var log map[string]any
	if err := json.Unmarshal(buf.Bytes(), &log); err != nil {
		t.Fatal(err)
	}
	checkSchema(t, "log", log)
	res := log["runs"].([]any)[0].(map[string]any)["results"].([]any)[0].(map[string]any)
	loc := res["locations"].([]any)[0].(map[string]any)["physicalLocation"].(map[string]any)
	want := map[string]any{
		"artifactLocation": map[string]any{"uri": "dir/a%20b.py"},
		"region": map[string]any{"startLine": 3.0, "startColumn": 5.0, "endLine": 3.0, "endColumn": 37.0,
			"snippet": map[string]any{"text": "    opt.zero_grad(set_to_none=False)"}},
	}
	if diff := cmp.Diff(want, loc); diff != "" {
		t.Error(diff)
	}
}

// sarifObjects is, for the objects that we write, what the schema requires,
// what else it allows (additionalProperties is false throughout) and the
// object that each property holds.
var sarifObjects = map[string]struct{ required, allowed, child string }{
	"log":          {"version runs", "$schema inlineExternalProperties properties", "runs:run"},
	"run":          {"tool", "invocations columnKind results artifacts", "tool:tool results:result invocations:invocation"},
	"tool":         {"driver", "extensions properties", "driver:driver"},
	"driver":       {"name", "rules version semanticVersion informationUri", "rules:rule"},
	"rule":         {"id", "name shortDescription fullDescription help helpUri defaultConfiguration properties", "shortDescription:text fullDescription:text help:text"},
	"text":         {"text", "markdown id arguments", ""},
	"invocation":   {"executionSuccessful", "toolExecutionNotifications exitCode", "toolExecutionNotifications:notification"},
	"notification": {"message", "level locations", "message:text locations:location"},
	"result":       {"message", "ruleId ruleIndex level locations partialFingerprints fixes kind", "message:text locations:location fixes:fix"},
	"location":     {"", "physicalLocation logicalLocations", "physicalLocation:physical"},
	"physical":     {"", "artifactLocation region contextRegion", "artifactLocation:artifact region:region"},
	"artifact":     {"", "uri uriBaseId index", ""},
	"region":       {"", "startLine startColumn endLine endColumn byteOffset byteLength snippet", "snippet:text"},
	"fix":          {"artifactChanges", "description", "description:text artifactChanges:change"},
	"change":       {"artifactLocation replacements", "", "artifactLocation:artifact replacements:replacement"},
	"replacement":  {"deletedRegion", "insertedContent", "deletedRegion:region insertedContent:text"},
}

func checkSchema(t *testing.T, kind string, v any) {
	t.Helper()
	if list, ok := v.([]any); ok {
		for _, e := range list {
			checkSchema(t, kind, e)
		}
		return
	}
	o, ok := v.(map[string]any)
	if !ok {
		t.Errorf("%s is %T", kind, v)
		return
	}
	s := sarifObjects[kind]
	for _, name := range strings.Fields(s.required) {
		if _, ok := o[name]; !ok {
			t.Errorf("%s has no %s", kind, name)
		}
	}
	for name := range o {
		if !strings.Contains(" "+s.required+" "+s.allowed+" ", " "+name+" ") {
			t.Errorf("%s has %s, which the schema does not know", kind, name)
		}
	}
	for _, c := range strings.Fields(s.child) {
		name, child, _ := strings.Cut(c, ":")
		if x, ok := o[name]; ok {
			checkSchema(t, child, x)
		}
	}
}

func TestGitHubEscapes(t *testing.T) {
	r := &Result{Findings: []Finding{{Rule: rules.All()[0], Severity: rules.Error, File: "a,b:c.py", Line: 1, EndLine: 1, Column: 2, Message: "50 %\nx"}}}
	var buf bytes.Buffer
	r.GitHub(plainPrinter(&buf))
	if got, want := buf.String(), "::error file=a%2Cb%3Ac.py,line=1,endLine=1,col=2,title=vramscope GM101::50 %25%0Ax\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzCheck(f *testing.F) {
	for _, r := range rules.All() {
		for _, e := range rules.Examples(r.ID) {
			if e.Kind == "bad" {
				f.Add(e.File, []byte(e.Text))
			}
		}
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		findings, err := CheckText(name, data, Options{Pedantic: true})
		if err != nil {
			return
		}
		for _, x := range findings {
			if x.Line < 1 || x.Column < 1 || x.EndLine < x.Line {
				t.Fatalf("%s at %d:%d to %d", x.Rule.ID, x.Line, x.Column, x.EndLine)
			}
		}
		if !strings.HasSuffix(name, ".ipynb") {
			applyFixes(data, findings)
		}
		r := &Result{Findings: findings}
		var buf bytes.Buffer
		r.Text(plainPrinter(&buf))
	})
}

// BenchmarkCheck looks at code that is all about training: every example, all
// rules.
func BenchmarkCheck(b *testing.B) {
	var text strings.Builder
	for _, r := range rules.All() {
		for _, e := range rules.Examples(r.ID) {
			if e.File == "example.py" {
				text.WriteString(e.Text)
			}
		}
	}
	data := []byte(text.String())
	lines := strings.Count(text.String(), "\n")
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := CheckText("a.py", data, Options{Pedantic: true}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(lines*b.N)/b.Elapsed().Minutes(), "lines/min")
}

// TestIntricate: a generated file, whose calls would be compared each with
// each, comes to an end and is named.
func TestIntricate(t *testing.T) {
	var b strings.Builder
	b.WriteString("import torch\nnet = torch.nn.Linear(1, 1)\nxs = []\nfor x in data:\n")
	for i := range 5000 {
		fmt.Fprintf(&b, "    loss = net(x)\n    loss.backward()\n    xs.append(loss)\n    s%d = torch.load('a')\n    net.load_state_dict(s%d)\n", i, i)
	}
	dir := tree(t, map[string]string{"generated.py": b.String(), "a.py": "import torch\nwith torch.no_grad:\n    pass\n"})
	r, err := Run(context.Background(), Options{Paths: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Skipped) != 1 || !strings.HasPrefix(r.Skipped[0].Why, "is too intricate") || len(r.Findings) != 1 {
		t.Errorf("skipped %v, %d findings", r.Skipped, len(r.Findings))
	}
}
