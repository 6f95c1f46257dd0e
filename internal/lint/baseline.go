package lint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Baseline holds the findings of old code, which are left out: as many of each
// rule, file and source line as it counts. Line numbers are not in it, so that
// code may move.
type Baseline struct {
	Findings []baselineEntry `json:"findings"`
}

type baselineEntry struct {
	Rule  string `json:"rule"`
	File  string `json:"file"`
	Line  string `json:"line"` // its text without space around it
	Count int    `json:"count"`
}

func (f Finding) baselineKey() baselineEntry {
	return baselineEntry{Rule: f.Rule.ID, File: filepath.ToSlash(filepath.Clean(f.File)), Line: strings.TrimSpace(f.Source)}
}

// fingerprint identifies a finding from run to run.
func fingerprint(f Finding) string {
	k := f.baselineKey()
	sum := sha256.Sum256([]byte(k.Rule + "\x00" + k.File + "\x00" + k.Line))
	return hex.EncodeToString(sum[:8])
}

// NewBaseline returns the baseline of a result.
func NewBaseline(r *Result) Baseline {
	counts := map[baselineEntry]int{}
	var order []baselineEntry
	for _, f := range r.Findings {
		k := f.baselineKey()
		if counts[k] == 0 {
			order = append(order, k)
		}
		counts[k]++
	}
	b := Baseline{Findings: []baselineEntry{}}
	for _, k := range order {
		n := counts[k]
		k.Count = n
		b.Findings = append(b.Findings, k)
	}
	slices.SortFunc(b.Findings, func(x, y baselineEntry) int {
		if c := strings.Compare(x.File, y.File); c != 0 {
			return c
		}
		if c := strings.Compare(x.Rule, y.Rule); c != 0 {
			return c
		}
		return strings.Compare(x.Line, y.Line)
	})
	return b
}

// Write writes the baseline.
func (b Baseline) Write(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(b)
}

// ReadBaseline reads what Write wrote.
func ReadBaseline(name string) (Baseline, error) {
	var b Baseline
	data, err := os.ReadFile(name)
	if err != nil {
		return b, fmt.Errorf("%s: %s", name, plainError(err))
	}
	if err := json.Unmarshal(data, &b); err != nil {
		return b, fmt.Errorf("%s: is not a baseline of vramscope lint: %w; write it anew with --write-baseline", name, err)
	}
	return b, nil
}

// Apply leaves out the findings that the baseline has, and returns how many.
func (b Baseline) Apply(r *Result) int {
	left := map[baselineEntry]int{}
	for _, e := range b.Findings {
		n := e.Count
		e.Count = 0
		left[e] += n
	}
	before := len(r.Findings)
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool {
		k := f.baselineKey()
		if left[k] == 0 {
			return false
		}
		left[k]--
		return true
	})
	return before - len(r.Findings)
}
