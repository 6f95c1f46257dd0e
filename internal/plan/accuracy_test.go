package plan

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

type measured struct {
	Family, Model, AMP, Pure, Opt, Attn, Mode string
	Batch, Seq, Size                          int64
	Ckpt                                      bool
	Accum                                     int
	SetToNone                                 *bool `json:"set_to_none"`
	ChannelsLast                              bool  `json:"channels_last"`
	PeakAllocated                             int64 `json:"peak_allocated"`
	PeakReserved                              int64 `json:"peak_reserved"`
}

func (r *measured) setup() Setup {
	s := Setup{Mode: "train", Batch: r.Batch, Seq: r.Seq, Precision: "fp32", Optimizer: r.Opt, Checkpoint: "none", Attention: cmp.Or(r.Attn, "sdpa"),
		Accumulate: max(r.Accum, 1), ZeroGrad: "set-to-none", MemoryFormat: "contiguous"}
	if r.SetToNone != nil && !*r.SetToNone {
		s.ZeroGrad = "zero"
	}
	if r.ChannelsLast {
		s.MemoryFormat = "channels_last"
	}
	if r.Ckpt {
		s.Checkpoint = "full"
	}
	switch {
	case r.AMP != "":
		s.Precision = "amp-" + r.AMP
	case r.Pure != "":
		s.Precision = r.Pure
	}
	if r.Mode == "infer" {
		s.Mode, s.Optimizer = "infer", "none"
	}
	if r.Family == "vision" {
		s.Seq, s.Image = 0, cmp.Or(r.Size, 224)
	}
	return s
}

// writeConfigs unpacks the configurations of package hf's tests.
func writeConfigs(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open("../modelgraph/hf/testdata/models.jsonl.gz")
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
	for sc.Scan() {
		var m struct {
			Name   string
			Config json.RawMessage
		}
		if err := json.Unmarshal(sc.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, m.Name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, m.Name, "config.json"), m.Config, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestMeasuredPeaks holds the estimates to what an H200 measured: all language
// models, and the image models whose exports are small enough to be here.
func TestMeasuredPeaks(t *testing.T) {
	dir := writeConfigs(t)
	f, err := os.Open("testdata/peaks.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var reserved, allocated []float64
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		var r measured
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, r.Model)
		if r.Family == "vision" {
			path = filepath.Join("testdata", r.Model+".pt2")
			if _, err := os.Stat(path); err != nil {
				continue
			}
		}
		name := fmt.Sprintf("%s_b%d_%s%s_%s", r.Model, r.Batch, r.AMP, r.Pure, cmp.Or(r.Opt, r.Mode))
		res, err := Estimate(path, r.setup(), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		dr := float64(res.PeakReserved)/float64(r.PeakReserved) - 1
		da := float64(res.PeakAllocated)/float64(r.PeakAllocated) - 1
		reserved, allocated = append(reserved, math.Abs(dr)), append(allocated, math.Abs(da))
		if math.Abs(dr) > .16 || math.Abs(da) > .16 {
			t.Errorf("%s: reserved off by %.1f %%, allocated by %.1f %%", name, dr*100, da*100)
		}
	}
	slices.Sort(reserved)
	slices.Sort(allocated)
	at := func(v []float64, q float64) float64 { return v[min(len(v)-1, int(q*float64(len(v))))] }
	if len(reserved) < 90 || at(reserved, .5) > .005 || at(reserved, .95) > .05 || at(allocated, .5) > .001 || at(allocated, .95) > .01 {
		t.Errorf("%d rows: reserved median %.2f %% p95 %.2f %%, allocated median %.2f %% p95 %.2f %%", len(reserved),
			at(reserved, .5)*100, at(reserved, .95)*100, at(allocated, .5)*100, at(allocated, .95)*100)
	}
}
