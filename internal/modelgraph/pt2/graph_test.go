package pt2

import (
	"archive/zip"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vramscope/internal/modelgraph"
)

var update = flag.Bool("update", false, "write the golden files")

func TestGolden(t *testing.T) {
	for _, name := range []string{"resnet18", "unet", "gpt2"} {
		t.Run(name, func(t *testing.T) {
			g, err := Read("testdata/" + name + ".pt2")
			if err != nil {
				t.Fatal(err)
			}
			got := g.Text()
			golden := "testdata/" + name + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("graph (-golden +got):\n%s", diff)
			}
		})
	}
}

// text returns the program of an export.
func text(t testing.TB, file string) string {
	t.Helper()
	z, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	f, err := findProgram(&z.Reader)
	if err != nil {
		t.Fatal(err)
	}
	data, err := readEntry(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// static turns a program with dynamic shapes into one exported with static
// shapes: symbols and the nodes that compute sizes become their numbers.
func static(program string) string {
	expr := regexp.MustCompile(`\{"as_expr": \{"expr_str": "[^"]*", "hint": \{"as_int": (\d+)\}\}\}`)
	program = expr.ReplaceAllString(program, `{"as_int": $1}`)
	sizes := regexp.MustCompile(`"(sym_size_int_\d+)": \{"as_int": (\d+)\}`)
	for _, m := range sizes.FindAllStringSubmatch(program, -1) {
		program = strings.ReplaceAll(program, `{"as_name": "`+m[1]+`"}`, `{"as_int": `+m[2]+`}`)
	}
	return program
}

// TestStatic checks which sizes of a static export are open all the same.
func TestStatic(t *testing.T) {
	tests := []struct{ file, want string }{
		{"resnet18", "batch 4; image_height 224; image_width 224"},
		{"vgg16", "batch 4; image_height 224; image_width 224"},
		{"unet", "batch 4; image_height 224; image_width 224"},
		{"vit_b_16", "batch 4: node reshape (reshape) makes the sizes [4, 768, 196]; " +
			"image_height 224: node reshape (reshape) makes the sizes [4, 768, 196]; " +
			"image_width 224: node reshape (reshape) makes the sizes [4, 768, 196]"},
		{"gpt2", "batch 2: node view_2 (view) makes the sizes [2, 128, 2304]; seq 128: node view (view) makes the sizes [-1, 128]"},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			g, err := parse([]byte(static(text(t, "testdata/"+tt.file+".pt2"))), tt.file)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range g.Symbols {
				one := fmt.Sprintf("%s %d", s.Name, s.Value)
				if s.Fixed != "" {
					one += ": " + s.Fixed
				}
				got = append(got, one)
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, "; ")); diff != "" {
				t.Errorf("symbols (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBind(t *testing.T) {
	tests := []struct {
		file  string
		given modelgraph.Binding
		want  string
	}{
		{"resnet18", modelgraph.Binding{"batch": 32, "image_height": 320}, "map[batch:32 image_height:320 image_width:224]"},
		{"vgg16", modelgraph.Binding{"image_height": 16}, "image_height cannot be 16: the file allows 32 and more"},
		{"vit_b_16", modelgraph.Binding{"batch": 5000}, "batch cannot be 5000: the file allows 1 to 4096"},
		{"vit_b_16", modelgraph.Binding{"image_height": 256, "image_width": 224}, "image_height cannot be 256, the file has 224: node reshape (reshape) makes the sizes [sym_size_int_14, 768, 196]; export the model with this dimension dynamic"},
		{"vit_b_16", modelgraph.Binding{"image_height": 224}, "map[batch:4 image_height:224 image_width:224]"},
	}
	for _, tt := range tests {
		g, err := Read("testdata/" + tt.file + ".pt2")
		if err != nil {
			t.Fatal(err)
		}
		b, err := g.Bind(tt.given)
		got := fmt.Sprint(b)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s with %v: %s\nwant %s", tt.file, tt.given, got, tt.want)
		}
	}
}

func TestExpr(t *testing.T) {
	tests := []struct {
		text string
		want string // with s0 = 7, s1 = 3, or the error
	}{
		{"s0", "7"},
		{"2*s0 + 1", "15"},
		{"(s0 - 1)//2 + 1", "4"},
		{"s0**2*s1", "147"},
		{"-s1 + s0", "4"},
		{"Mod(s0, 4)", "3"},
		{"Max(1, s0//2, s1)", "3"},
		{"Symbol('s0', positive=True, integer=True)", "7"},
		{"Add(FloorDiv(Add(Symbol('s0', positive=True, integer=True), Integer(-1)), Integer(2)), Integer(1))", "4"},
		{"Mul(Integer(2), Symbol('s0'), Pow(Symbol('s1'), Integer(2)))", "126"},
		{"s0 +", `the size "s0 +" cannot be read at ""`},
		{"(s0", `the size "(s0" cannot be read at "", a bracket is missing`},
		{"sqrt(s0)", `the size "sqrt(s0)" cannot be read at sqrt of 1 arguments`},
		{"s0**s1", `the size "s0**s1" cannot be read at the exponent s1`},
		{strings.Repeat("(", 200), `the size "` + strings.Repeat("(", 200) + `" cannot be read at a nesting of more than 100`},
	}
	for _, tt := range tests {
		d, err := parseExpr(tt.text, modelgraph.Sym)
		got := ""
		if err != nil {
			got = err.Error()
		} else if v, err := d.Eval(modelgraph.Binding{"s0": 7, "s1": 3}); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprint(v)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.text, got, tt.want)
		}
	}
}

// archive makes a zip file with one entry.
func archive(t testing.TB, name, body string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, body); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestBadFiles(t *testing.T) {
	good, err := os.ReadFile("testdata/vgg16.pt2")
	if err != nil {
		t.Fatal(err)
	}
	program := text(t, "testdata/vgg16.pt2")
	swap := func(old, new string) []byte {
		if !strings.Contains(program, old) {
			t.Fatalf("the program has no %s", old)
		}
		return archive(t, "a/models/model.json", strings.Replace(program, old, new, 1))
	}
	graph := func(nodes, more string) []byte {
		return archive(t, "a/models/model.json", `{"graph_module": {"graph": {"inputs": [], "outputs": [], "nodes": [`+nodes+`], "tensor_values": {}, "sym_int_values": {}}`+more+`}}`)
	}
	bomb := archive(t, "a/models/model.json", strings.Repeat(" ", 1<<20))
	i := bytes.LastIndex(bomb, []byte("PK\x01\x02"))
	copy(bomb[i+24:], []byte{0xff, 0xff, 0xff, 0x7f}) // the unpacked size
	tests := []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "not a whole zip file (zip: not a valid zip file); torch.export.save writes one"},
		{"truncated", good[:len(good)/2], "not a whole zip file (zip: not a valid zip file); torch.export.save writes one"},
		{"a state dict", archive(t, "archive/data.pkl", "x"), "no models/model.json in the archive; this is a pickled state or TorchScript file: export the model with torch.export.export and torch.export.save"},
		{"bomb", bomb, `"a/models/model.json" in the archive: 2147483647 bytes when unpacked, more than the 268435456 that a program may have`},
		{"not JSON", archive(t, "a/models/model.json", "hello"), `"a/models/model.json" in the archive: byte 0: found 'h' instead of '{'`},
		{"ends early", archive(t, "a/models/model.json", program[:5000]), `"a/models/model.json" in the archive: byte 4940: this string does not end`},
		{"deep", archive(t, "a/models/model.json", `{"x": `+strings.Repeat("[", 300)), `"a/models/model.json" in the archive: byte 205: nested deeper than 200 levels`},
		{"no graph", archive(t, "a/models/model.json", "{}"), `"a/models/model.json" in the archive: byte 0: no graph_module.graph in it: this is not what torch.export.save writes`},
		{"unknown argument", swap(`"as_tensor": {"name": "conv2d"}`, `"as_tensor": {"name": "elsewhere"}`), `"a/models/model.json" in the archive: byte 2792: node relu_ (relu_): its argument "conv2d" is made by no node before it`},
		{"unknown type", swap(`"dtype": 7`, `"dtype": 77`), `"a/models/model.json" in the archive: p_features_0_weight has the element type number 77, which is not known`},
		{"twice", swap("features.0.bias", "features.0.weight"), `"a/models/model.json" in the archive: features.0.weight is declared twice`},
		{"cycle", graph(`{"target": "torch.ops.aten.relu.default", "name": "a", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "b"}}}], "outputs": [{"as_tensor": {"name": "a"}}]}, `+
			`{"target": "torch.ops.aten.relu.default", "name": "b", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "a"}}}], "outputs": [{"as_tensor": {"name": "b"}}]}`, ""),
			`"a/models/model.json" in the archive: byte 67: node a (relu): its argument "b" is made by no node before it`},
		{"graph without inputs", graph(`{"target": "torch.ops.higher_order.wrap", "name": "w", "inputs": [{"name": "", "arg": {"as_graph": {"graph": {"inputs": [{"as_tensor": {"name": "q"}}], "nodes": [], "outputs": []}}}}], "outputs": []}`, ""),
			`"a/models/model.json" in the archive: byte 67: node w (higher_order.wrap): its graph takes 1 inputs and gets 0`},
		{"huge number", swap(`"as_int": 64`, `"as_int": 99999999999999999999`), `is not an integer of 64 bits`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, err := ReadFrom(bytes.NewReader(tt.data), int64(len(tt.data)), "m")
			if err == nil {
				t.Fatalf("read as a graph of %d nodes", len(g.Nodes))
			}
			if got := err.Error(); got != tt.want && !strings.HasSuffix(got, tt.want) {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
	d := &decoder{scanner: scanner{data: []byte(program)}, texts: map[string]string{}, items: maxItems - 50}
	if _, err := d.program(); err == nil || !strings.HasSuffix(err.Error(), "more than 1500000 nodes, arguments and sizes") {
		t.Errorf("many nodes: %v", err)
	}
	if _, err := Read("testdata/none.pt2"); err == nil || err.Error() != "testdata/none.pt2: no such file or directory" {
		t.Errorf("missing file: %v", err)
	}
}

// small is a program with one of everything: a view, a graph in a graph, a
// list of tensors, a symbol.
const small = `{"graph_module": {"graph": {"inputs": [{"as_tensor": {"name": "x"}}], "outputs": [{"as_tensor": {"name": "c"}}], "nodes": [
{"target": "torch.ops.aten.view.default", "name": "v", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}}, {"name": "size", "arg": {"as_sym_ints": [{"as_name": "n"}, {"as_int": -1}]}}], "outputs": [{"as_tensor": {"name": "v"}}], "metadata": {"nn_module_stack": "m,,M;m.a.0,a.0,A;m.a.0.b,a.0.b,B"}},
{"target": "torch.ops.higher_order.wrap_with_set_grad_enabled", "name": "w", "inputs": [{"name": "", "arg": {"as_bool": false}}, {"name": "", "arg": {"as_graph": {"name": "s", "graph": {"inputs": [{"as_tensor": {"name": "q"}}], "outputs": [{"as_tensor": {"name": "r"}}], "nodes": [{"target": "torch.ops.aten.relu.default", "name": "r", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "q"}}}], "outputs": [{"as_tensor": {"name": "r"}}]}], "tensor_values": {}}}}}, {"name": "", "arg": {"as_tensor": {"name": "v"}}}], "outputs": [{"as_tensor": {"name": "w"}}]},
{"target": "torch.ops.aten.cat.default", "name": "c", "inputs": [{"name": "tensors", "arg": {"as_tensors": [{"name": "v"}, {"name": "w"}]}}, {"name": "dim", "arg": {"as_int": 0}}], "outputs": [{"as_tensor": {"name": "c"}}]}],
"tensor_values": {"x": {"dtype": 7, "sizes": [{"as_expr": {"expr_str": "2*s0", "hint": {"as_int": 4}}}, {"as_int": 3}], "requires_grad": false}, "v": {"dtype": 7, "sizes": [{"as_int": 4}, {"as_int": 3}]}},
"sym_int_values": {"n": {"as_expr": {"expr_str": "Mul(Integer(2), Symbol('s0'))", "hint": {"as_int": 4}}}}},
"signature": {"input_specs": [{"user_input": {"arg": {"as_tensor": {"name": "x"}}}}], "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "c"}}}}]}},
"range_constraints": {"s0": {"min_val": 1, "max_val": 9}}, "schema_version": {"major": 8, "minor": 1}, "verifiers": ["TRAINING"]}`

func TestSmall(t *testing.T) {
	g, err := parse([]byte(small), "small")
	if err != nil {
		t.Fatal(err)
	}
	const want = `symbol s0 = 0, from 1 to 9
input x float32 [(2 * s0) 3]
call "" [0, 3)
  call "a.0" [0, 3)
    call "a.0.b" [0, 3)
      0 %1 = view(x) size=[(2 * s0) -1]
      1 %2 = relu(%1) no_grad=[1]
      2 %3 = cat(%1, %2) dim=[0] drop %1, %2
output %3
`
	if diff := cmp.Diff(want, g.Text()); diff != "" {
		t.Errorf("graph (-want +got):\n%s", diff)
	}
}

// TestOldLayouts reads what PyTorch 2.1 to 2.7 wrote: another place in the
// archive, a version that is a number, sizes as formulas.
func TestOldLayouts(t *testing.T) {
	old := strings.NewReplacer(`"schema_version": {"major": 8, "minor": 1}, "verifiers": ["TRAINING"]`, `"schema_version": 5, "dialect": "ATEN"`,
		`Mul(Integer(2), Symbol('s0'))`, `2*s0`).Replace(small)
	for _, name := range []string{"serialized_exported_program.json", "m/serialized_exported_program.json", "m/models/other.json"} {
		data := archive(t, name, old)
		g, err := ReadFrom(bytes.NewReader(data), int64(len(data)), "m")
		if err != nil {
			t.Fatal(err)
		}
		text := g.Text()
		if !strings.Contains(text, "view(x) size=[(2 * s0) -1]") || !strings.Contains(text, "assumed: the export is functional (ATEN)") {
			t.Errorf("%s is read as\n%s", name, text)
		}
	}
}

// TestPowers has a size of 8^40 parts.
func TestPowers(t *testing.T) {
	d, err := parseExpr(strings.Repeat("(", 40)+"s0"+strings.Repeat("**8)", 40), modelgraph.Sym)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Eval(modelgraph.Binding{"s0": 1}); err == nil || !strings.Contains(err.Error(), "more than 4096 operators") {
		t.Errorf("evaluated: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(static(small)))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := parse(data, "fuzz")
		if err == nil {
			g.Text()
		}
	})
}

func FuzzExpr(f *testing.F) {
	f.Add("Add(FloorDiv(Symbol('s0', positive=True), Integer(16)), Integer(1))")
	f.Add("2*s0//3 - 1")
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := parseExpr(text, modelgraph.Sym); err == nil {
			_, _ = d.Eval(modelgraph.Binding{"s0": 5})
		}
	})
}

func BenchmarkRead(b *testing.B) {
	for _, file := range exports(b) {
		b.Run(model(file), func(b *testing.B) {
			for b.Loop() {
				if _, err := Read(file); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
