package oomlog

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"vramscope/bytesize"
)

// maxPaste bounds the pasted tables: they are a few kilobytes.
const maxPaste = 16 << 20

// Summary is a torch.cuda.memory_summary() table (torch/cuda/memory.py).
type Summary struct {
	Device  *int         `json:"device"`
	OOMs    *int64       `json:"ooms"`
	Retries *int64       `json:"retries"`
	Rows    []SummaryRow `json:"rows"`
	// Missing says in words what the table cannot show.
	Missing []string `json:"missing"`
}

// SummaryRow is a line of the table. Sizes are bytes, as exact as the table: it
// prints whole KiB or MiB. Rows of counts have Count set.
type SummaryRow struct {
	Metric string `json:"metric"`
	// Pool is "", "large" or "small".
	Pool    string `json:"pool,omitempty"`
	Count   bool   `json:"count,omitempty"`
	Current int64  `json:"current"`
	Peak    int64  `json:"peak"`
	Total   int64  `json:"total_allocated"`
	Freed   int64  `json:"total_freed"`
}

// Row returns the row of a metric for all pools, such as "GPU reserved memory".
func (s *Summary) Row(metric string) (SummaryRow, bool) {
	for _, r := range s.Rows {
		if r.Metric == metric && r.Pool == "" {
			return r, true
		}
	}
	return SummaryRow{}, false
}

var (
	summaryDevice  = regexp.MustCompile(`memory summary, device ID (\d+)`)
	summaryOOMs    = regexp.MustCompile(`OOMs: (\d+)`)
	summaryRetries = regexp.MustCompile(`Malloc retries: (\d+)`)
	summaryCell    = regexp.MustCompile(`^(-?\d+) ?([KMGTP]?i?B?)$`)
)

// ParseSummary reads a memory_summary table.
func ParseSummary(r io.Reader) (Summary, error) {
	var s Summary
	in := bufio.NewScanner(io.LimitReader(r, maxPaste))
	in.Buffer(nil, 1<<20)
	metric := ""
	for n := 1; in.Scan(); n++ {
		text := string(stripANSI(in.Bytes()))
		if m := summaryDevice.FindStringSubmatch(text); m != nil {
			v, err := strconv.Atoi(m[1])
			if err == nil {
				s.Device = &v
			}
		}
		s.OOMs = firstInt(s.OOMs, summaryOOMs, text)
		s.Retries = firstInt(s.Retries, summaryRetries, text)
		cells := strings.Split(strings.Trim(strings.TrimSpace(text), "|"), "|")
		if len(cells) != 5 {
			continue
		}
		row := SummaryRow{Metric: strings.TrimSpace(cells[0])}
		if pool, ok := strings.CutPrefix(row.Metric, "from "); ok {
			row.Metric, row.Pool = metric, strings.TrimSuffix(pool, " pool")
		} else {
			metric = row.Metric
		}
		ok := true
		for i, dst := range []*int64{&row.Current, &row.Peak, &row.Total, &row.Freed} {
			v, count, err := summaryValue(cells[i+1])
			ok = ok && err == nil
			*dst, row.Count = v, count
		}
		row.Count = row.Count || strings.Contains(row.Metric, "alloc") && !strings.Contains(row.Metric, "memory") || strings.Contains(row.Metric, "segments") || row.Metric == "Allocations"
		if ok {
			s.Rows = append(s.Rows, row)
		}
	}
	if err := in.Err(); err != nil {
		return s, err
	}
	if len(s.Rows) == 0 {
		return s, errors.New("no row of a memory summary")
	}
	s.Missing = append(s.Missing,
		"the size of the card and what other processes and the context hold: run nvidia-smi",
		"which code holds the memory: record a snapshot")
	if _, ok := s.Row("Requested memory"); !ok {
		s.Missing = append(s.Missing, "requested memory (PyTorch before 2.0 does not print it)")
	}
	return s, nil
}

func firstInt(have *int64, form *regexp.Regexp, text string) *int64 {
	if m := form.FindStringSubmatch(text); m != nil && have == nil {
		if v, err := strconv.ParseInt(m[1], 10, 64); err == nil {
			return &v
		}
	}
	return have
}

// summaryValue reads a cell: "1024 KiB", "0 B", or a count with K or M for
// thousands and millions. KB and MB of older versions are binary as well.
func summaryValue(cell string) (v int64, count bool, err error) {
	m := summaryCell.FindStringSubmatch(strings.Join(strings.Fields(cell), " "))
	if m == nil {
		return 0, false, fmt.Errorf("%q is no cell of a memory summary", cell)
	}
	if v, err = strconv.ParseInt(m[1], 10, 64); err != nil {
		return 0, false, err
	}
	base := int64(1024)
	if !strings.HasSuffix(m[2], "B") {
		base, count = 1000, true
	}
	if m[2] != "" && m[2][0] != 'B' {
		for range 1 + strings.IndexByte("KMGTP", m[2][0]) {
			if v > 1<<62/base || v < -(1<<62/base) {
				return 0, false, fmt.Errorf("%q is too large", cell)
			}
			v *= base
		}
	}
	return v, count, nil
}

// Stats are the numbers of torch.cuda.memory_stats(): by flat key, such as
// "reserved_bytes.all.peak".
type Stats struct {
	Values map[string]int64 `json:"values"`
	// Missing says in words what is not among them.
	Missing []string `json:"missing"`
}

// Bytes returns the number of a key as a size.
func (s *Stats) Bytes(key string) (bytesize.Size, bool) {
	v, ok := s.Values[key]
	return bytesize.Size(v), ok
}

// statsPair is a flat key and its number in a printed dict or OrderedDict.
var statsPair = regexp.MustCompile(`['"]([a-z_]+(?:\.[a-z_]+){0,2})['"]\s*[:,]\s*(-?\d+)`)

// ParseStats reads memory_stats as JSON, flat or nested
// (memory_stats_as_nested_dict), or as Python prints the dict.
func ParseStats(r io.Reader) (Stats, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxPaste))
	if err != nil {
		return Stats{}, err
	}
	s := Stats{Values: map[string]int64{}}
	var nested map[string]any
	if json.Unmarshal(data, &nested) == nil {
		flatten(s.Values, "", nested, 0)
	} else if quoted := strings.ReplaceAll(string(data), "'", `"`); json.Unmarshal([]byte(quoted), &nested) == nil {
		flatten(s.Values, "", nested, 0) // a nested dict, printed
	} else {
		for _, m := range statsPair.FindAllSubmatch(data, 10000) {
			if v, err := strconv.ParseInt(string(m[2]), 10, 64); err == nil {
				s.Values[string(m[1])] = v
			}
		}
	}
	if len(s.Values) == 0 {
		return s, errors.New("no number of memory_stats")
	}
	for _, want := range []struct{ key, word string }{
		{"allocated_bytes.all.peak", "peak allocated"},
		{"reserved_bytes.all.peak", "peak reserved"},
		{"num_alloc_retries", "retries of the driver's allocation"},
		{"num_ooms", "failures so far"},
	} {
		if _, ok := s.Values[want.key]; !ok {
			s.Missing = append(s.Missing, want.word+" ("+want.key+")")
		}
	}
	sort.Strings(s.Missing)
	s.Missing = append(s.Missing, "the size of the card and what other processes and the context hold: run nvidia-smi")
	return s, nil
}

func flatten(dst map[string]int64, prefix string, v any, depth int) {
	switch v := v.(type) {
	case map[string]any:
		if depth > 8 {
			return
		}
		for k, x := range v {
			if prefix != "" {
				k = prefix + "." + k
			}
			flatten(dst, k, x, depth+1)
		}
	case float64:
		if v >= -(1<<53) && v <= 1<<53 {
			dst[prefix] = int64(v)
		}
	}
}
