package onnx

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"vramscope/internal/modelgraph"
)

var update = flag.Bool("update", false, "write the golden files")

// The functions below write the protocol buffer, as far as the tests need it.

func field(num protowire.Number, parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), uint64(p))
		case string:
			b = protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), p)
		case []byte:
			b = protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), p)
		case float32:
			b = protowire.AppendFixed32(protowire.AppendTag(b, num, protowire.Fixed32Type), math.Float32bits(p))
		}
	}
	return b
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// nodeOf writes a node: "Add x y -> z", and attributes by name.
func nodeOf(text string, attrs ...any) []byte {
	left, right, _ := strings.Cut(text, " -> ")
	words := strings.Fields(left)
	b := field(4, words[0])
	for _, in := range words[1:] {
		b = append(b, field(1, strings.ReplaceAll(in, "_", ""))...)
	}
	for _, out := range strings.Fields(right) {
		b = append(b, field(2, out)...)
	}
	for i := 0; i+1 < len(attrs); i += 2 {
		a := field(1, attrs[i].(string))
		switch v := attrs[i+1].(type) {
		case int:
			a = append(a, field(3, v)...)
		case float64:
			a = append(a, field(2, float32(v))...)
		case string:
			a = append(a, field(4, v)...)
		case []int:
			for _, n := range v {
				a = append(a, field(8, n)...)
			}
		case []byte:
			a = append(a, field(5, v)...)
		}
		b = append(b, field(5, a)...)
	}
	return field(1, b)
}

func tensorOf(name string, dtype int, content []byte, dims ...int) []byte {
	b := field(2, dtype)
	for _, d := range dims {
		b = append(b, field(1, d)...)
	}
	if content != nil {
		b = append(b, field(9, content)...)
	}
	return append(b, field(8, name)...)
}

func initOf(name string, dims ...int) []byte { return field(5, tensorOf(name, 1, nil, dims...)) }

func numberOf(name string, v float32) []byte {
	return field(5, tensorOf(name, 1, binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))))
}

// intsOf is a list of integers, or one without axes where scalar.
func intsOf(name string, scalar bool, v ...int) []byte {
	var raw []byte
	for _, n := range v {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(n))
	}
	if scalar {
		return field(5, tensorOf(name, 7, raw))
	}
	return field(5, tensorOf(name, 7, raw, len(v)))
}

func inputOf(num protowire.Number, name string, dtype int, dims ...any) []byte {
	var shape []byte
	for _, d := range dims {
		if n, ok := d.(int); ok {
			shape = append(shape, field(1, field(1, n))...)
		} else {
			shape = append(shape, field(1, field(2, d))...)
		}
	}
	return field(num, join(field(1, name), field(2, field(1, join(field(1, dtype), field(2, shape))))))
}

func modelOf(parts ...[]byte) []byte {
	return join(field(1, 10), field(2, "test"), field(7, join(parts...)), field(8, field(2, 20)))
}

func read(data []byte) (*modelgraph.Graph, error) {
	return ReadFrom(bytes.NewReader(data), int64(len(data)), "m")
}

func image(dims ...any) []byte { return inputOf(11, "x", 1, dims...) }

func result(name string) []byte { return inputOf(12, name, 1) }

// TestNodes shows what nodes become, apart from the assumptions.
func TestNodes(t *testing.T) {
	tests := []struct {
		name  string
		model []byte
		want  string
	}{
		{"convolutions", modelOf(image("N", 3, "H", "W"), initOf("w", 8, 3, 3, 3), initOf("b", 8), initOf("u", 8, 4, 2, 2),
			nodeOf("Conv x w b -> c", "pads", []int{1, 1, 1, 1}, "strides", []int{2, 2}),
			nodeOf("ConvTranspose c u -> t", "strides", []int{2, 2}),
			nodeOf("Conv x w -> odd", "pads", []int{0, 0, 1, 1}),
			result("t"), result("odd")), `
0 %4 = conv2d(x, w, b) stride=[2 2] padding=[1 1] dilation=[1 1] groups=[1]
1 %5 = conv_transpose2d(%4, u, none) stride=[2 2] padding=[0 0] output_padding=[0 0] groups=[1] dilation=[1 1] drop %4
2 %6 = constant_pad_nd(x) pad=[0 1 0 1]
3 %7 = conv2d(%6, w, none) stride=[1 1] padding=[0 0] dilation=[1 1] groups=[1] drop %6
output %5, %7`},
		{"a linear layer in two nodes", modelOf(image("N", "S", 16), initOf("w", 16, 32), initOf("b", 32),
			nodeOf("MatMul x w -> m"), nodeOf("Add b m -> y"), result("y")), `
0 %3 = linear(x, w, b)
output %3`},
		{"a product that something else reads", modelOf(image("N", "S", 16), initOf("w", 16, 32), initOf("b", 32),
			nodeOf("MatMul x w -> m"), nodeOf("Add m b -> y"), result("y"), result("m")), `
0 %3 = linear(x, w, none)
1 %4 = add(%3, b)
output %4, %3`},
		{"tied embedding", modelOf(inputOf(11, "ids", 7, "N", "S"), initOf("wte", 100, 16),
			nodeOf("Gather wte ids -> e"), nodeOf("Transpose wte -> t", "perm", []int{1, 0}), nodeOf("MatMul e t -> y"), result("y")), `
0 %2 = embedding(wte, ids)
1 %3 = linear(%2, wte, none) drop %2
output %3`},
		{"a shape worked out by nodes", modelOf(image("N", "S", 32), intsOf("zero", true, 0), intsOf("one", true, 1), intsOf("tail", false, 4, -1), intsOf("a", false, 0),
			nodeOf("Shape x -> s"), nodeOf("Gather s zero -> n"), nodeOf("Gather s one -> m"),
			nodeOf("Unsqueeze n a -> n1"), nodeOf("Unsqueeze m a -> m1"), nodeOf("Concat n1 m1 tail -> to", "axis", 0),
			nodeOf("Reshape x to -> r"), nodeOf("Transpose r -> p", "perm", []int{0, 2, 1, 3}), nodeOf("Shape p -> ps"), nodeOf("Expand zero ps -> e"), result("e")), `
0 %1 = reshape(x) shape=[batch seq 4 -1]
1 %2 = permute(%1) dims=[0 2 1 3] drop %1, %2
2 %4 = expand(zero) size=[batch 4 seq 8]
output %4`},
		{"GELU spelled out", modelOf(image("N", 16), numberOf("r", math.Sqrt2), numberOf("i", 1), numberOf("h", 0.5),
			nodeOf("Div x r -> d"), nodeOf("Erf d -> e"), nodeOf("Add e i -> f"), nodeOf("Mul x f -> g"), nodeOf("Mul g h -> y"), nodeOf("Relu y -> z"), result("z")), `
0 %1 = gelu(x)
1 %2 = relu(%1) drop %1
output %2`},
		{"layer normalisation spelled out", modelOf(image("N", "S", 16), initOf("w", 16), initOf("b", 16),
			nodeOf("ReduceMean x -> m", "axes", []int{-1}), nodeOf("Sub x m -> d"), nodeOf("Constant -> two", "value", tensorOf("", 1, []byte{0, 0, 0, 0x40})),
			nodeOf("Pow d two -> p"), nodeOf("ReduceMean p -> v", "axes", []int{-1}), nodeOf("Constant -> e", "value_float", 0.125),
			nodeOf("Add v e -> a"), nodeOf("Sqrt a -> q"), nodeOf("Div d q -> n"), nodeOf("Mul n w -> k"), nodeOf("Add k b -> y"), nodeOf("Relu y -> z"), result("z")), `
0 %3 = layer_norm(x, w, b) normalized_shape=[16] eps=0.125
1 %4 = relu(%3) drop %3
output %4`},
		{"half of a layer normalisation", modelOf(image("N", "S", 16),
			nodeOf("ReduceMean x -> m", "axes", []int{-1}), nodeOf("Sub x m -> d"), nodeOf("Relu d -> y"), nodeOf("Tanh d -> z"), result("y"), result("z")), `
0 %1 = mean(x) dim=[-1] keepdim=[1]
1 %2 = sub(x, %1) drop %1
2 %3 = relu(%2)
3 %4 = tanh(%2) drop %2
output %3, %4`},
		{"scalars", modelOf(image("N", 16), numberOf("two", 2), numberOf("six", 6), numberOf("o", 0),
			nodeOf("Sub two x -> a"), nodeOf("Div two a -> b"), nodeOf("Pow b two -> c"), nodeOf("Clip c o six -> d"), nodeOf("Clip d o -> e"), result("e")), `
0 %1 = rsub(x) other=2
1 %2 = reciprocal(%1) drop %1
2 %3 = mul(%2) other=2 drop %2
3 %4 = pow(%3) exponent=2 drop %3
4 %5 = hardtanh(%4) min_val=0 max_val=6 drop %4
5 %6 = clamp(%5) min=0 drop %5
output %6`},
		{"normalisation in training", modelOf(image("N", 8, 4, 4), initOf("s", 8), initOf("b", 8), initOf("m", 8), initOf("v", 8),
			nodeOf("BatchNormalization x s b m v -> y", "training_mode", 1, "epsilon", 0.25, "momentum", 0.75), result("y")), `
0 %5 = batch_norm(x, s, b, m, v) training=[1] momentum=0.25 eps=0.25
output %5`},
		{"pooling and joins", modelOf(image("N", 8, "H", "W"), intsOf("from", false, 1), intsOf("to", false, 9223372036854775807), intsOf("axes", false, 1),
			nodeOf("MaxPool x -> p", "kernel_shape", []int{3, 3}, "strides", []int{2, 2}, "pads", []int{1, 1, 1, 1}),
			nodeOf("Split p -> a b", "axis", 1), nodeOf("Concat b a -> c", "axis", 1), nodeOf("Slice c from to axes -> d"), nodeOf("GlobalAveragePool d -> e"), nodeOf("Flatten e -> f"), result("f")), `
0 %1 = max_pool2d(x) kernel_size=[3 3] stride=[2 2] padding=[1 1] dilation=[1 1]
1 %2, %3 = split_with_sizes(%1) split_sizes=[4 4] dim=[1] drop %1
2 %4 = cat(%3, %2) dim=[1] drop %2, %3
3 %5 = slice(%4) dim=[1] start=[1] end=[9223372036854775807] step=[1] drop %4
4 %6 = adaptive_avg_pool2d(%5) output_size=[1 1] drop %5
5 %7 = flatten(%6) start_dim=[1] drop %6
output %7`},
		{"unknown operators", modelOf(image("N", 8), nodeOf("Det x -> y", "mode", "fast"), result("y")), `
0 %1 = onnx.Det(x) mode=fast
output %1`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, err := read(tt.model)
			if err != nil {
				t.Fatal(err)
			}
			g.Assumptions = nil
			var got []string
			for line := range strings.Lines(g.Text()) {
				if !strings.HasPrefix(line, "symbol") && !strings.HasPrefix(line, "input") && !strings.HasPrefix(line, "call") {
					got = append(got, strings.TrimSpace(line))
				}
			}
			if diff := cmp.Diff(strings.TrimSpace(tt.want), strings.Join(got, "\n")); diff != "" {
				t.Errorf("graph (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSizes checks which static sizes are open, and why others are not.
func TestSizes(t *testing.T) {
	conv := initOf("w", 8, 3, 1, 1)
	tests := []struct {
		name  string
		model []byte
		want  string
	}{
		{"open", modelOf(image(4, 3, 32, 32), conv, nodeOf("Conv x w -> c"), nodeOf("GlobalAveragePool c -> y"), result("y")),
			"batch = 4, from 1\nimage_height = 32, from 1\nimage_width = 32, from 1\n"},
		{"a literal", modelOf(image("N", 3, 32, 32), conv, intsOf("to", false, -1, 8, 1024), nodeOf("Conv x w -> c"), nodeOf("Reshape c to -> y"), result("y")),
			"batch = 0, from 1\nimage_height = 32, from 1, fixed: node y (Reshape) makes the sizes [-1, 8, 1024]\nimage_width = 32, from 1, fixed: node y (Reshape) makes the sizes [-1, 8, 1024]\n"},
		{"the rest", modelOf(image("N", 3, 32, 32), conv, intsOf("to", false, 0, 8, -1), nodeOf("Conv x w -> c"), nodeOf("Reshape c to -> y"), result("y")),
			"batch = 0, from 1\nimage_height = 32, from 1\nimage_width = 32, from 1\n"},
		{"a parameter of that length", modelOf(inputOf(11, "x", 1, "N", 64, 16), initOf("pos", 1, 64, 16), nodeOf("Add x pos -> y"), result("y")),
			"batch = 0, from 1\nseq = 64, from 1, fixed: node y (Add) has seq where it needs 64\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, err := read(tt.model)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for line := range strings.Lines(g.Text()) {
				if s, ok := strings.CutPrefix(line, "symbol "); ok {
					got += s
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("symbols (-want +got):\n%s", diff)
			}
		})
	}
}

// files are the models under testdata, whose metadata are cut to what is read,
// and all measured ones where VRAMSCOPE_DATA names their folder.
func files(t testing.TB) []string {
	t.Helper()
	names, _ := filepath.Glob("testdata/*.onnx")
	if dir := os.Getenv("VRAMSCOPE_DATA"); dir != "" {
		names, _ = filepath.Glob(filepath.Join(dir, "models/onnx/*.onnx"))
	}
	if len(names) == 0 {
		t.Fatal("no models to read")
	}
	return names
}

func TestFiles(t *testing.T) {
	// The sum of the elements of all initializers of type float that have
	// axes, counted by a script that is not this reader. (The exporter folded
	// batch normalisation and left out biases of zeros.)
	want := map[string]int64{"resnet50": 25_503_912, "mobilenet_v3_large": 5_451_272, "vit_b_16": 86_519_808}
	for _, name := range files(t) {
		g, err := Read(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.NumParams(); got != want[g.Name] {
			t.Errorf("%s has %d parameters, want %d", g.Name, got, want[g.Name])
		}
		for _, n := range g.Nodes {
			if strings.HasPrefix(n.Op, "onnx.") {
				t.Errorf("%s: no rule for %s", g.Name, n.Op)
			}
		}
	}
}

func TestGolden(t *testing.T) {
	g, err := Read("testdata/resnet50.onnx")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("testdata/resnet50.golden", []byte(g.Text()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/resnet50.golden")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), g.Text()); diff != "" {
		t.Errorf("graph (-golden +got):\n%s", diff)
	}
}

func TestBadFiles(t *testing.T) {
	good, err := os.ReadFile("testdata/resnet50.onnx")
	if err != nil {
		t.Fatal(err)
	}
	deep := []byte{}
	for range 60 {
		deep = field(6, deep)
	}
	tests := []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "no graph in it: this is not an ONNX file"},
		{"text", []byte("hello, world, this is text"), "byte 2: field 13 has the wire type 4, which ONNX does not use"},
		{"truncated", good[:len(good)/2], "byte 25: field 7 claims 58213 bytes, and 29095 are left"},
		{"a length beyond the file", append(field(1, 10), 7<<3|2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f), "byte 2: field 7 claims 9223372036854775807 bytes, and 0 are left"},
		{"a cycle", modelOf(nodeOf("Relu b -> a"), nodeOf("Relu a -> b"), result("a")), `byte 10: node a (Relu): its input "b" is made by no node before it`},
		{"made twice", modelOf(image("N", 2), nodeOf("Relu x -> a"), nodeOf("Tanh x -> a"), result("a")), `node a (Tanh): its result "a" is made twice`},
		{"a result that is not made", modelOf(image("N", 2), result("q")), `the result "q" is made by no node`},
		{"negative weights", modelOf(image("N", 3, 8, 8), initOf("w", 8, -3, 3, 3), nodeOf("Conv x w -> y"), result("y")), `the initializer "w" has the shape [8 -3 3 3]`},
		{"huge weights", modelOf(initOf("w", 1<<40, 1<<40)), `the initializer "w" has the shape [1099511627776 1099511627776]`},
		{"a kernel of other rank", modelOf(image("N", 3, 8, 8), initOf("w", 8, 3, 3, 3), nodeOf("Conv x w -> y", "strides", []int{1}), result("y")), "node y (Conv): its kernel, strides, dilations and pads are not of 2 axes"},
		{"stride 0", modelOf(image("N", 3, 8, 8), initOf("w", 8, 3, 3, 3), nodeOf("Conv x w -> y", "strides", []int{0, 1}), result("y")), "node y (Conv): its kernel [3 3], strides [0 1] or dilations [1 1] are not positive"},
		{"axis", modelOf(image("N", 3), nodeOf("ReduceMean x -> y", "axes", []int{7}), result("y")), "node y (ReduceMean): its axis 7 is outside a tensor of 2 axes"},
		{"old", join(field(7, image("N", 2)), field(8, field(2, 3))), "operator set 3; 7 and later are read: convert it with onnx.version_converter"},
		{"deep", modelOf(field(1, join(field(4, "If"), field(5, field(5, deep))))), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, err := read(tt.data)
			if tt.want == "" {
				return // passed over, whatever is in it
			}
			if err == nil {
				t.Fatalf("read as a graph of %d nodes", len(g.Nodes))
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s\nwant %s", err, tt.want)
			}
		})
	}
	if _, err := Read("testdata/none.onnx"); err == nil || err.Error() != "testdata/none.onnx: no such file or directory" {
		t.Errorf("missing file: %v", err)
	}
	// A small file that repeats an empty node.
	s := &source{r: bytes.NewReader(good), size: int64(len(good)), items: maxItems - 100}
	if readModel(s); s.err == nil || !strings.Contains(s.err.Error(), "more than 1500000") {
		t.Errorf("many nodes: %v", s.err)
	}
}

func TestManySymbols(t *testing.T) {
	var dims []any
	for i := range maxSymbols + 5 {
		dims = append(dims, fmt.Sprintf("d%d", i))
	}
	if _, err := read(modelOf(image(dims...))); err == nil || err.Error() != "more than 200 named sizes in its inputs" {
		t.Errorf("many sizes: %v", err)
	}
}

// TestDoublings reads a chain of sums of a size with itself, whose expression
// has 2^60 parts.
func TestDoublings(t *testing.T) {
	parts := [][]byte{image("N", 3), nodeOf("Shape x -> s0")}
	for i := range 60 {
		parts = append(parts, nodeOf(fmt.Sprintf("Add s%d s%d -> s%d", i, i, i+1)))
	}
	parts = append(parts, nodeOf("ConstantOfShape s60 -> y"), result("y"))
	g, err := read(modelOf(parts...))
	if err != nil {
		t.Fatal(err)
	}
	if text := g.Text(); !strings.Contains(text, "an expression of many operators") {
		t.Errorf("the graph is %.500s", text)
	}
}

// TestNames reads the modules that torch.onnx's older exporter puts into the
// names of nodes.
func TestNames(t *testing.T) {
	tests := []struct{ name, want string }{
		{"/layer1/layer1.0/conv1/Conv", "layer1 layer1.0 layer1.0.conv1"},
		{"/model/layers.3/self_attn/q_proj/MatMul", "model model.layers.3 model.layers.3.self_attn model.layers.3.self_attn.q_proj"},
		{"/Add_1", ""},
		{"Conv_12", ""},
	}
	for _, tt := range tests {
		var got []string
		for _, f := range stackOf(&nodeProto{name: tt.name}, "pytorch") {
			got = append(got, f.Path)
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s is in %q, want %q", tt.name, s, tt.want)
		}
	}
}

// TestWeightsAreNotRead reads a file whose weights are larger than what the
// reader may touch.
func TestWeightsAreNotRead(t *testing.T) {
	weights := make([]byte, 8<<20)
	data := modelOf(image("N", 2048), field(5, tensorOf("w", 1, weights, 2048, 1024)), nodeOf("MatMul x w -> y"), result("y"))
	c := &counter{r: bytes.NewReader(data)}
	g, err := ReadFrom(c, int64(len(data)), "m")
	if err != nil {
		t.Fatal(err)
	}
	if g.NumParams() != 2048*1024 {
		t.Errorf("%d parameters", g.NumParams())
	}
	if c.n > 4*windowSize {
		t.Errorf("%d bytes were read of %d", c.n, len(data))
	}
}

type counter struct {
	r *bytes.Reader
	n int
}

func (c *counter) ReadAt(b []byte, at int64) (int, error) {
	n, err := c.r.ReadAt(b, at)
	c.n += n
	return n, err
}

func FuzzRead(f *testing.F) {
	f.Add(modelOf(image("N", 3, 8, "W"), initOf("w", 8, 3, 3, 3), nodeOf("Conv x w -> c", "pads", []int{1, 1, 1, 0}), nodeOf("Relu c -> y"), result("y")))
	f.Add(modelOf(image("N", "S", 32), intsOf("to", false, 0, -1, 4, 8), nodeOf("Reshape x to -> r"), nodeOf("Shape r -> s"), nodeOf("Gather s to -> n"), nodeOf("Expand r s -> e"), result("e")))
	f.Add(modelOf(image("N", "S", 32), initOf("w", 32, 8), nodeOf("MatMul x w -> m"), nodeOf("Split m -> a b", "axis", -1), nodeOf("Concat b a -> c", "axis", 1), nodeOf("TopK c -> d e", "k", 2), result("d")))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := read(data)
		if err == nil {
			g.Text()
		}
	})
}

func BenchmarkRead(b *testing.B) {
	for _, name := range files(b) {
		b.Run(filepath.Base(name), func(b *testing.B) {
			for b.Loop() {
				if _, err := Read(name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
