package model

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vramscope/internal/pysource"
)

// describe says what the model knows of a value.
func describe(v *Value) string {
	var parts []string
	if len(v.Alts) > 0 {
		for _, a := range v.Alts {
			parts = append(parts, describe(a))
		}
		return strings.Join(parts, " | ")
	}
	name := v.Kind.String()
	if v.Kind == Namespace || v.Kind == Object {
		name = v.Name
	}
	parts = append(parts, name)
	switch {
	case v.HasGraph():
		parts = append(parts, "graph")
	case v.Kind == Tensor && v.Graph == No:
		parts = append(parts, "plain")
	}
	for _, s := range []string{v.Dev, v.DType} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if v.HoldsGraph() && !v.HasGraph() {
		parts = append(parts, "holding graph")
	}
	return strings.Join(parts, " ")
}

// TestValues checks what is known of the argument of each reveal(x), in the
// order of the source.
func TestValues(t *testing.T) {
	for _, tt := range []struct{ name, src, want string }{
		{"aliases", "import torch as th\nfrom torch import nn as n\nreveal(th.zeros(1))\nreveal(n.Linear(1, 1))\nfrom torch.nn import functional as F\nreveal(F.relu)",
			"Tensor plain cpu; Net; torch.nn.functional.relu"},
		{"module output", "import torch\nnet = torch.nn.Linear(1, 1).cuda()\nout = net(torch.zeros(1))\nreveal(out)\nreveal(out.detach())\nreveal(out.cpu().mean())\nreveal(out.item())\nreveal(out.argmax(-1))",
			"Tensor graph cuda; Tensor plain cuda; Tensor graph cpu; Number; Tensor plain cuda"},
		{"no_grad", "import torch\nnet = torch.nn.Linear(1, 1)\nwith torch.no_grad():\n    reveal(net(1))\nreveal(net(1))\n@torch.inference_mode()\ndef f():\n    reveal(net(1))\n",
			"Tensor plain; Tensor graph; Tensor plain"},
		{"set_grad_enabled", "import torch\nnet = torch.nn.Linear(1, 1)\nwith torch.set_grad_enabled(flag):\n    reveal(net(1))\ntorch.set_grad_enabled(False)\nreveal(net(1))",
			"Tensor; Tensor plain"},
		{"backward makes a loss", "def f(model, x, crit):\n    loss = crit(model(x))\n    reveal(loss)\n    loss.backward()\n", "Tensor graph"},
		{"accelerator.backward makes a loss", "def f(acc, model, x):\n    loss = model(x)\n    acc.backward(loss)\n    reveal(loss)\n", "Tensor graph"},
		{"use makes an optimizer and a module", "def f(o, m, x):\n    o.zero_grad()\n    o.step()\n    m.train()\n    y = m(x)\n    reveal(o)\n    reveal(m)\n    reveal(y)\n", "Optimizer; Net; Tensor graph"},
		{"loop joins", "import torch\nnet = torch.nn.Linear(1, 1)\ntotal = 0\nfor x in data:\n    total += net(x)\nreveal(total)", "Tensor graph | Number"},
		{"branch joins", "import torch\nif c:\n    x = torch.zeros(1)\nelse:\n    x = None\nreveal(x)\nif x is not None:\n    reveal(x)", "Tensor plain cpu | None; Tensor plain cpu"},
		{"parameters from callers", "import torch\ndef f(net, n):\n    reveal(net)\n    reveal(n)\nf(torch.nn.Linear(1, 1), 3)", "Net; Number"},
		{"results of functions", "import torch\nnet = torch.nn.Linear(1, 1)\ndef step(x):\n    return net(x), 1\na, b = step(1)\nreveal(a)\nreveal(b)", "Tensor graph; Number"},
		{"attributes of self", "import torch\nclass T:\n    def __init__(self):\n        self.net = torch.nn.Linear(1, 1)\n        self.opt = torch.optim.Adam(self.net.parameters())\n    def f(self, x):\n        reveal(self.net(x))\n        reveal(self.opt)\n",
			"Tensor graph; Optimizer"},
		{"attributes that learn", "class T:\n    def f(self):\n        self.o.zero_grad()\n        self.o.step()\n        reveal(self.o)\n", "Optimizer"},
		{"own modules", "import torch\nclass A(torch.nn.Module):\n    pass\nclass B(A):\n    def forward(self, x):\n        return x\nreveal(B())\nreveal(B()(1))", "Net; Tensor graph"},
		{"containers", "import torch\nnet = torch.nn.Linear(1, 1)\nxs = []\nfor x in data:\n    xs.append(net(x))\nreveal(xs)\nreveal([net(x).item() for x in data])\nd = {'a': net(1), 'b': 2}\nreveal(d['b'])", "List holding graph; List; Number"},
		{"unpacking", "import torch\nrnn = torch.nn.LSTM(1, 1)\nout, (h, c) = rnn(x)\nreveal(h)\nvalue, index = out.max(1)\nreveal(index)", "Tensor graph; Tensor plain"},
		{"devices and types", "import torch\nx = torch.zeros(1).to('cuda', torch.float16)\nreveal(x)\ndev = torch.device('cuda:0')\nreveal(torch.ones(1, device=dev))\nd = 'cuda' if torch.cuda.is_available() else 'cpu'\nreveal(torch.ones(1).to(d))", "Tensor plain cuda float16; Tensor plain cuda; Tensor plain"},
		{"moves are in place", "import torch\nnet = torch.nn.Linear(1, 1)\nnet.cuda().half()\nreveal(net)", "Net cuda float16"},
		{"frozen modules", "import torch\nnet = torch.nn.Linear(1, 1)\nnet.requires_grad_(False)\nreveal(net(torch.zeros(1)))", "Tensor plain cpu"},
		{"loaders", "from torch.utils.data import DataLoader\nfrom tqdm import tqdm\nl = DataLoader(d)\nreveal(tqdm(l))\nfor i, b in enumerate(l):\n    reveal(i)", "Loader; Number"},
		{"comparisons have no graph", "import torch\nnet = torch.nn.Linear(1, 1)\nreveal((net(1) > 0).sum())", "Tensor plain"},
		{"globals", "import torch\nnet = None\ndef init():\n    global net\n    net = torch.nn.Linear(1, 1)\ninit()\nreveal(net)", "None | Net"},
		{"conditional imports", "try:\n    import torch\nexcept ImportError:\n    torch = None\nreveal(torch.zeros(1))", "Tensor plain cpu"},
		{"fragments", "opt.zero_grad()\nloss = crit(net(x), y)\nloss.backward()\nopt.step()\nreveal(opt)\nreveal(loss)\nreveal(nn.Linear(1, 1))\nreveal(other)", "Optimizer; Tensor graph; Net; ?"},
		{"a bound name is not what it is called", "def nn():\n    pass\nreveal(F.relu)\nreveal(nn)\ndef f(DataLoader):\n    reveal(DataLoader(1))\n", "torch.nn.functional.relu; def; ?"},
		{"walrus and match", "import torch\nif (x := torch.zeros(1)) is not None:\n    reveal(x)\nmatch x:\n    case [a, *b]:\n        reveal(a)\n", "Tensor plain cpu; ?"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := pysource.Parse("x.py", []byte(tt.src))
			if err != nil || len(f.Errors) > 0 {
				t.Fatal(err, f.Errors)
			}
			m := New(f, nil)
			var got []string
			for _, c := range m.To("reveal") {
				got = append(got, describe(m.Value(c.Node.Args[0])))
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, "; ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestEffects checks what functions and loops are known to do.
func TestEffects(t *testing.T) {
	src := `
import torch
def step(net, opt, x):
    net(x).mean().backward()
    opt.step()
    opt.zero_grad()
def train(net: torch.nn.Module, loader):
    opt = torch.optim.SGD(net.parameters())
    for epoch in range(3):
        for x in loader:
            step(net, opt, x)
        net.eval()
        with torch.no_grad():
            check(net)
def check(net):
    net.eval()
    return net(1)
`
	f, err := pysource.Parse("x.py", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	m := New(f, nil)
	want := map[string]Effect{
		"step":  Forward | Backward | Step | ZeroGrad,
		"train": Forward | Backward | Step | ZeroGrad | EvalMode,
		"check": Forward | EvalMode,
	}
	for _, fn := range m.Funcs {
		if fn.Effects != want[fn.Name()] {
			t.Errorf("%s: %b, want %b", fn.Name(), fn.Effects, want[fn.Name()])
		}
		if fn.GradOff != (fn.Name() == "check") {
			t.Errorf("%s: gradients off is %v", fn.Name(), fn.GradOff)
		}
	}
	call := m.To("def:step")[0]
	inner := m.Loop(call.Node)
	if inner == nil || inner.Bounded || inner.Own&Backward == 0 {
		t.Errorf("the inner loop: %+v", inner)
	}
	if outer := inner.Outer; outer == nil || !outer.Bounded || outer.Own&Backward != 0 || outer.Effect&Backward == 0 {
		t.Errorf("the outer loop: %+v", outer)
	}
}

// TestManyNested: the work does not double with each level.
func TestManyNested(t *testing.T) {
	var b strings.Builder
	b.WriteString("import torch\n")
	for i := range 40 {
		b.WriteString(strings.Repeat(" ", i) + "for x in y:\n")
	}
	b.WriteString(strings.Repeat(" ", 40) + "z = torch.zeros(1)\n")
	for i := range 60 { // functions that call each other
		b.WriteString("def f" + strings.Repeat("a", i) + "():\n    f" + strings.Repeat("a", i+1) + "()\n    f" + strings.Repeat("a", i+1) + "()\n")
	}
	f, err := pysource.Parse("x.py", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	New(f, nil)
}
