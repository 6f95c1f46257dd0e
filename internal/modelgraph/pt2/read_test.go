package pt2

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vramscope/internal/modelgraph"
)

// exports are the files under testdata and, where VRAMSCOPE_DATA names the
// folder of measured data, all of its exports.
func exports(t testing.TB) []string {
	t.Helper()
	files, _ := filepath.Glob("testdata/*.pt2")
	if dir := os.Getenv("VRAMSCOPE_DATA"); dir != "" {
		files, _ = filepath.Glob(filepath.Join(dir, "models/export/*.pt2"))
	}
	if len(files) == 0 {
		t.Fatal("no exports to read")
	}
	return files
}

func model(file string) string { return strings.TrimSuffix(filepath.Base(file), ".pt2") }

// param is a line of *.params.json: what named_parameters and named_buffers of
// the model gave.
type param struct {
	Name  string
	Shape string
	DType string
	Kind  string
}

func readParams(t *testing.T, file string) []param {
	t.Helper()
	names := []string{"testdata/" + model(file) + ".params.json"}
	if dir := os.Getenv("VRAMSCOPE_DATA"); dir != "" {
		names = []string{filepath.Join(dir, "models", model(file)+".params.json"), filepath.Join(dir, "models/hf", model(file), "params.json")}
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		var lines [][4]any
		if err := json.Unmarshal(data, &lines); err != nil {
			t.Fatal(err)
		}
		out := []param{}
		for _, l := range lines {
			shape, _ := json.Marshal(l[1])
			kind := fmt.Sprint(l[3])
			if kind == "true" {
				kind = "parameter"
			}
			out = append(out, param{l[0].(string), string(shape), l[2].(string), kind})
		}
		return out
	}
	t.Fatalf("no parameters for %s", file)
	return nil
}

// TestParameters compares every parameter and buffer with what the model
// itself listed. An export has constants beside them, which the list has not.
func TestParameters(t *testing.T) {
	for _, file := range exports(t) {
		t.Run(model(file), func(t *testing.T) {
			g, err := Read(file)
			if err != nil {
				t.Fatal(err)
			}
			got := []param{}
			sum := int64(0)
			for _, id := range g.Params {
				v := &g.Values[id]
				if strings.Contains(v.Name, "lifted_tensor") {
					continue
				}
				shape := []int64{}
				for _, d := range v.Shape {
					n, ok := d.Const()
					if !ok {
						t.Errorf("%s has the shape %v", v.Name, v.Shape)
					}
					shape = append(shape, n)
				}
				text, _ := json.Marshal(shape)
				kind := "buffer"
				if v.Kind == modelgraph.Param {
					kind = "parameter"
					sum += v.Elements()
				}
				got = append(got, param{v.Name, string(text), v.DType.String(), kind})
			}
			if diff := cmp.Diff(readParams(t, file), got); diff != "" {
				t.Errorf("parameters (-model +export):\n%s", diff)
			}
			// The counts of peaks.jsonl.
			want := map[string]int64{"resnet18": 11_689_512, "vgg16": 138_357_544, "gpt2": 124_439_808, "vit_b_16": 86_567_656, "unet": 31_043_586}
			if n, ok := want[model(file)]; ok && (sum != n || g.NumParams() != n) {
				t.Errorf("%d parameters, NumParams says %d; want %d", sum, g.NumParams(), n)
			}
		})
	}
}
