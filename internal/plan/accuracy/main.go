// Command accuracy compares estimates with measured peaks.
//
//	go run ./internal/plan/accuracy -data ../shared/data [-peaks FILE] [-match RE] [-timeline OUT]
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"vramscope/internal/plan"
)

type row struct {
	Family, Model      string
	Batch, Seq, Size   int64
	AMP, Pure, Opt     string
	Ckpt               bool
	Attn, Mode         string
	Accum              int
	SetToNone          *bool `json:"set_to_none"`
	ChannelsLast       bool  `json:"channels_last"`
	OK                 bool
	Targets            *[]string
	Drop               *float64
	PeakAllocated      int64 `json:"peak_allocated"`
	PeakReserved       int64 `json:"peak_reserved"`
	Step1PeakAllocated int64 `json:"step1_peak_allocated"`
	res, alloc         float64
	name, at, err      string
}

func main() {
	data := flag.String("data", "../shared/data", "the measured data")
	peaks := flag.String("peaks", "", "rows (default peaks.jsonl)")
	match := flag.String("match", "", "only rows whose name matches")
	timeline := flag.String("timeline", "", "write the requests of the last row here")
	flag.Parse()
	if *peaks == "" {
		*peaks = filepath.Join(*data, "peaks.jsonl")
	}
	if err := run(*data, *peaks, regexp.MustCompile(*match), *timeline); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func run(data, peaks string, match *regexp.Regexp, timeline string) error {
	f, err := os.Open(peaks)
	if err != nil {
		return err
	}
	defer f.Close()
	var rows []row
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<24)
	start := time.Now()
	for sc.Scan() {
		var r row
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			return err
		}
		if !r.OK {
			continue
		}
		r.name = strings.TrimSpace(fmt.Sprintf("%s b%d s%d %s%s %s %s %s", r.Model, r.Batch, r.Seq+r.Size, r.AMP, map[bool]string{true: "pure-" + r.Pure}[r.Pure != ""], r.Opt, r.Attn, r.Mode))
		if r.Ckpt {
			r.name += " ckpt"
		}
		if r.Accum > 0 {
			r.name += " accum"
		}
		if r.ChannelsLast {
			r.name += " cl"
		}
		if !match.MatchString(r.name) {
			continue
		}
		if err := r.estimate(data, timeline); err != nil {
			r.err = err.Error()
		}
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b row) int { return int(math.Copysign(1, math.Abs(b.res)-math.Abs(a.res))) })
	var rs, as []float64
	failed := map[string]int{}
	for _, r := range rows {
		if r.err != "" {
			failed[r.err]++
			continue
		}
		rs, as = append(rs, math.Abs(r.res)), append(as, math.Abs(r.alloc))
		fmt.Printf("%+7.2f %% reserved %+7.2f %% allocated  %-55s %s\n", r.res*100, r.alloc*100, r.name, r.at)
	}
	for e, n := range failed {
		fmt.Println("FAIL", n, e)
	}
	q := func(v []float64, p float64) float64 {
		if len(v) == 0 {
			return 0
		}
		slices.Sort(v)
		return v[min(len(v)-1, int(p*float64(len(v))))] * 100
	}
	fmt.Printf("%d rows: reserved median %.2f p95 %.2f | allocated median %.2f p95 %.2f | %v\n", len(rs), q(rs, .5), q(rs, .95), q(as, .5), q(as, .95), time.Since(start).Round(time.Millisecond))
	return nil
}

func (r *row) estimate(data, timeline string) error {
	s := plan.Setup{Mode: "train", Batch: r.Batch, Seq: r.Seq, Precision: "fp32", Optimizer: r.Opt, Checkpoint: "none", Attention: "sdpa",
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
	if r.Attn != "" {
		s.Attention = r.Attn
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
	if r.Drop != nil {
		s.LoRA = fmt.Sprintf("r=16,dropout=%g", *r.Drop)
		if r.Targets != nil {
			s.LoRA += ",targets=" + strings.Join(*r.Targets, ":")
		}
		r.name += " lora"
	}
	path := filepath.Join(data, "models/hf", r.Model, "config.json")
	if r.Family != "hf" {
		path = filepath.Join(data, "models/export", r.Model+".pt2")
		s.Seq, s.Image = 0, cmp.Or(r.Size, 224)
	}
	var log func(free bool, id int32, bytes int64, where string)
	if timeline != "" {
		w, err := os.Create(timeline)
		if err != nil {
			return err
		}
		bw := bufio.NewWriter(w)
		log = func(free bool, id int32, bytes int64, where string) {
			sign := "+"
			if free {
				sign = "-"
			}
			fmt.Fprintf(bw, "%s%d %d %s\n", sign, id-1, bytes, where)
		}
		defer w.Close()
		defer bw.Flush()
	}
	res, err := plan.Estimate(path, s, log)
	if err != nil {
		return err
	}
	r.res = float64(res.PeakReserved)/float64(r.PeakReserved) - 1
	r.alloc = float64(res.PeakAllocated)/float64(r.PeakAllocated) - 1
	r.at = res.PeakAt
	return nil
}
