package hf_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vramscope/internal/modelgraph"
	"vramscope/internal/modelgraph/hf"
)

type model struct {
	Name   string
	Config json.RawMessage
	Params [][4]any // name, shape, type, trainable or "buffer"
}

// models are configurations and parameters as transformers 5.17 wrote them.
func models(t testing.TB) []model {
	t.Helper()
	f, err := os.Open("testdata/models.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	sc := bufio.NewScanner(z)
	sc.Buffer(nil, 1<<22)
	var out []model
	for sc.Scan() {
		var m model
		if err := json.Unmarshal(sc.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

func TestParametersAreTheModels(t *testing.T) {
	for _, m := range models(t) {
		t.Run(m.Name, func(t *testing.T) {
			g, err := hf.Build(m.Name, m.Config, hf.Options{Train: true})
			if err != nil {
				t.Fatal(err)
			}
			var got, want []string
			for _, id := range g.Params {
				v := &g.Values[id]
				got = append(got, describe(v))
			}
			for _, p := range m.Params {
				b, _ := json.Marshal(p)
				want = append(want, string(b))
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("parameters (-transformers +graph):\n%s", d)
			}
		})
	}
}

func describe(v *modelgraph.Value) string {
	shape := []int64{}
	for _, d := range v.Shape {
		n, _ := d.Const()
		shape = append(shape, n)
	}
	kind := any(!v.Frozen)
	if v.Kind == modelgraph.Buffer {
		kind = "buffer"
	}
	b, _ := json.Marshal([]any{v.Name, shape, v.DType.String(), kind})
	return string(b)
}

func TestBuildRefuses(t *testing.T) {
	const llama = `{"model_type":"llama","hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":100}`
	tests := []struct{ name, config, want string }{
		{"not JSON", "{", "not a JSON object"},
		{"no type", "{}", `key "model_type" is missing`},
		{"unknown type", `{"model_type":"perceiver"}`, `key "model_type" is "perceiver", which is not known`},
		{"missing key", `{"model_type":"gpt2"}`, `key "n_embd" is missing`},
		{"heads do not divide", strings.Replace(llama, `"num_attention_heads":4`, `"num_attention_heads":5`, 1), `"hidden_size" is 64, which "num_attention_heads" = 5 does not divide`},
		{"zero layers", strings.Replace(llama, `"num_hidden_layers":2`, `"num_hidden_layers":0`, 1), `key "num_hidden_layers" is 0`},
		{"a word for a number", strings.Replace(llama, `"vocab_size":100`, `"vocab_size":"many"`, 1), `key "vocab_size" is many`},
		{"a fraction", strings.Replace(llama, `"vocab_size":100`, `"vocab_size":1.5`, 1), `key "vocab_size" is 1.5`},
		{"too many layers", strings.Replace(llama, `"num_hidden_layers":2`, `"num_hidden_layers":1000000`, 1), "at most 100000 layers"},
		{"unknown activation", strings.Replace(llama, `"vocab_size":100`, `"vocab_size":100,"hidden_act":"snake"`, 1), `activation "snake" is not known`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := hf.Build("x", []byte(tt.config), hf.Options{Train: true})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func FuzzBuild(f *testing.F) {
	for _, m := range models(f) {
		f.Add([]byte(m.Config))
	}
	f.Fuzz(func(t *testing.T, config []byte) {
		var m struct {
			A float64 `json:"num_hidden_layers"`
			B float64 `json:"n_layer"`
		}
		if json.Unmarshal(config, &m) != nil || m.A > 200 || m.B > 200 || bytes.Count(config, []byte("layers")) > 8 {
			t.Skip("large models only take time")
		}
		g, err := hf.Build("fuzz", config, hf.Options{Train: true})
		if err == nil && len(g.Nodes) == 0 {
			t.Error("an empty graph and no error")
		}
	})
}
