package lint

import (
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vramscope/internal/lint/rules"
	"vramscope/internal/term"
)

// TestExamples checks every rule against its examples: bad code is found at
// the marked lines, good code has no finding of any rule, and a trap none of
// this rule.
func TestExamples(t *testing.T) {
	for _, r := range rules.All() {
		t.Run(r.ID, func(t *testing.T) {
			kinds := map[string]int{}
			for _, e := range rules.Examples(r.ID) {
				kinds[e.Kind]++
				t.Run(e.Kind+" "+e.Name, func(t *testing.T) { checkExample(t, r, e) })
			}
			if kinds["bad"] == 0 || kinds["good"] == 0 {
				t.Errorf("%d bad and %d good examples; want some of each", kinds["bad"], kinds["good"])
			}
			if r.Quiet != "" && kinds["trap"] == 0 {
				t.Error("the rule says where it is quiet, but has no trap")
			}
		})
	}
}

func checkExample(t *testing.T, r *rules.Rule, e rules.Example) {
	o := Options{Pedantic: true, Select: []string{r.ID}}
	if e.Kind == "good" {
		o = Options{}
	}
	findings, err := CheckText(e.File, []byte(e.Text), o)
	if err != nil {
		t.Fatal(err)
	}
	var want, got []int
	for i, line := range strings.Split(e.Text, "\n") {
		for range strings.Count(line, "# here") {
			want = append(want, i+1)
		}
	}
	for _, f := range findings {
		got = append(got, f.Line)
		if e.Kind != "bad" {
			t.Errorf("line %d: %s %s", f.Line, f.Rule.ID, f.Message)
		}
	}
	slices.Sort(got)
	if e.Kind != "bad" {
		return
	}
	if want == nil && len(got) > 0 && filepath.Ext(e.File) == ".json" {
		return // JSON has no comments to mark the line with
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestRuleList: the rules of the first and second release of
// notes/remedies-and-lint-rules.md §2.14, 100 in all.
func TestRuleList(t *testing.T) {
	const releases = `101 102 103 104 105 106 107 109 110 111 112 113 114 115 116 118 201 202 203
		301 302 303 304 305 307 308 310 311 312 401 402 403 404 405 406 407 408
		501 502 503 504 505 506 507 508 509 510 511 601 602 603 604 605 606 607 701 702 703 706
		801 804 806 807 901 902 903 904 905 906 907 908 912
		1001 1002 1003 1004 1005 1006 1007 1008 1009 1010 1101 1102 1104
		1201 1202 1203 1204 1205 1206 1207 1208 1301 1302 1303 1304 1305 1306 1309`
	var got []string
	names := map[string]bool{}
	for _, r := range rules.All() {
		got = append(got, strings.TrimPrefix(r.ID, "GM"))
		if names[r.Name] {
			t.Errorf("%s: the name %s is taken", r.ID, r.Name)
		}
		names[r.Name] = true
		if r.Says == "" || r.Cost == "" || r.Instead == "" || r.Source == "" || r.Group == "" {
			t.Errorf("%s: some of its words are missing", r.ID)
		}
	}
	if diff := cmp.Diff(strings.Fields(releases), got); diff != "" {
		t.Error(diff)
	}
}

func plainPrinter(w io.Writer) *term.Printer {
	return term.New(w, func(string) string { return "" })
}
