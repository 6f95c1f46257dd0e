package oomlog

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sample is a message of one form, written by the form's grammar, and what must
// be read from it: "tried=2.00GiB device=0". Sizes without a unit are bytes.
type sample struct {
	grammar string
	text    string
	want    string
	// before comes ahead of the text: the message that an adding form adds to.
	before string
}

func allSamples() []sample {
	return slices.Concat(pytorchSamples, deviceSamples, cudaSamples, tensorflowSamples, jaxSamples,
		serverSamples, ggmlSamples, librarySamples, hostSamples, consequenceSamples)
}

// TestGrammars reads every sample, alone in a log.
func TestGrammars(t *testing.T) {
	for _, tc := range allSamples() {
		t.Run(tc.grammar, func(t *testing.T) {
			report := mustScan(t, tc.before+tc.text+"\n")
			if len(report.Failures) != 1 {
				t.Fatalf("%d messages in %q; want 1: %+v", len(report.Failures), tc.text, report.Failures)
			}
			f := &report.Failures[0]
			if tc.before == "" && f.Grammar != tc.grammar {
				t.Errorf("read %q as %s", tc.text, f.Grammar)
			}
			for _, g := range grammarTable() {
				if g.id == f.Grammar && g.kind != f.Kind {
					t.Errorf("%q is a %s; want %s: %+v", tc.text, f.Kind, g.kind, f.Why)
				}
			}
			if diff := cmp.Diff(fieldMap(t, tc.want), fieldsOf(f)); diff != "" {
				t.Errorf("%q: fields (-want +got):\n%s", tc.text, diff)
			}
			if f.Line != 1 && tc.before == "" {
				t.Errorf("line %d; want 1", f.Line)
			}
		})
	}
}

// TestEveryGrammarHasASample holds the table and its tests together.
func TestEveryGrammarHasASample(t *testing.T) {
	have := map[string]bool{}
	for _, s := range allSamples() {
		have[s.grammar] = true
	}
	seen := map[string]bool{}
	for _, g := range grammarTable() {
		if seen[g.id] {
			t.Errorf("two forms are called %s", g.id)
		}
		seen[g.id] = true
		if len(g.needles) == 0 {
			t.Errorf("%s has no needle", g.id)
		}
		compile(g.pattern)
		if g.role != factRole && g.kind != Mention && !have[g.id] {
			t.Errorf("%s has no sample", g.id)
		}
	}
	for id := range have {
		if !seen[id] {
			t.Errorf("a sample of %s, which is no form", id)
		}
	}
}

func mustScan(t testing.TB, text string) Report {
	t.Helper()
	report, err := Scan(strings.NewReader(text), Options{})
	if err != nil {
		t.Fatalf("Scan(%.200q): %v", text, err)
	}
	return report
}

// fieldsOf lists the numbers and names that a failure holds.
func fieldsOf(f *Failure) map[string]string {
	out := map[string]string{}
	for _, v := range []struct {
		name string
		set  bool
		n    int64
	}{
		{"tried", f.Tried != nil, deref(f.Tried)}, {"capacity", f.Capacity != nil, deref(f.Capacity)},
		{"limit", f.Limit != nil, deref(f.Limit)}, {"free", f.Free != nil, deref(f.Free)},
		{"allocated", f.Allocated != nil, deref(f.Allocated)}, {"reserved", f.Reserved != nil, deref(f.Reserved)},
		{"unallocated", f.Unallocated != nil, deref(f.Unallocated)}, {"private", f.PrivatePools != nil, deref(f.PrivatePools)},
		{"this", f.ThisProcess != nil, deref(f.ThisProcess)},
	} {
		if v.set {
			out[v.name] = strconv.FormatInt(v.n, 10)
		}
	}
	if f.Device != nil {
		out["device"] = strconv.Itoa(*f.Device)
	}
	if f.Rank != nil {
		out["rank"] = strconv.Itoa(*f.Rank)
	}
	for name, text := range map[string]string{"where": f.Where, "op": f.Op, "dtype": f.DType} {
		if text != "" {
			out[name] = text
		}
	}
	if f.Shape != nil {
		out["shape"] = strings.Trim(strings.ReplaceAll(fmt.Sprint(f.Shape), " ", ","), "[]")
	}
	for _, p := range f.Processes {
		out["pid"+strconv.Itoa(p.PID)] = strconv.FormatInt(int64(p.Used), 10)
	}
	for _, d := range f.Details {
		out[d.Name] = strconv.FormatFloat(d.Value, 'f', -1, 64)
	}
	return out
}

func deref[T ~int64](p *T) int64 {
	if p == nil {
		return 0
	}
	return int64(*p)
}

// fieldMap reads a sample's want.
func fieldMap(t testing.TB, want string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pair := range strings.Fields(want) {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			t.Fatalf("%q is not name=value", pair)
		}
		if n := strings.IndexAny(value, "KMG"); n > 0 && value[0] <= '9' && strings.HasSuffix(value, "iB") {
			value = strconv.FormatInt(int64(*parseSize(value, "size", false)), 10)
		}
		out[name] = value
	}
	return out
}

// TestRealMessages reads what PyTorch 2.11 and JAX 0.11 printed on an H200.
func TestRealMessages(t *testing.T) {
	for _, tc := range []struct{ file, grammar, want string }{
		{"unet_10gib_b32_oom.log", "pytorch/2.10", "tried=512.00MiB device=0 capacity=139.80GiB free=118.98GiB pid459=3.97GiB pid451=3.21GiB pid455=1.11GiB pid443=2.15GiB pid444=22.00MiB this=10.32GiB limit=10.00GiB allocated=9.36GiB unallocated=358.60MiB"},
		{"varlen_limit_default_oom.log", "pytorch/2.10", "tried=884.00MiB device=0 capacity=139.80GiB free=70.78GiB pid1234=61.02GiB this=7.48GiB pid1386=518.00MiB limit=7.00GiB allocated=6.44GiB unallocated=307.42MiB"},
		{"varimg_other_processes_oom.log", "pytorch/2.10", "tried=26.00MiB device=0 capacity=139.80GiB free=18.75MiB pid639=1.94GiB pid792=57.32GiB pid886=69.54GiB this=3.09GiB pid1054=7.86GiB allocated=2.47GiB unallocated=8.53MiB"},
		{"random_limit.log", "pytorch/2.10", "tried=262.00MiB device=0 capacity=139.80GiB free=94.13GiB pid639=3.64GiB pid1084=18.44GiB pid1257=15.16GiB pid1317=518.00MiB pid1386=518.00MiB this=7.37GiB limit=7.00GiB allocated=5.64GiB unallocated=1.16GiB"},
		{"jax_oom.txt", "jax/allocator", "tried=35.76GiB device=0 where=GPU_0_bfc op=jit_add"},
	} {
		t.Run(tc.file, func(t *testing.T) {
			text, err := os.ReadFile("testdata/real/" + tc.file)
			if err != nil {
				t.Fatal(err)
			}
			report := mustScan(t, string(text))
			if len(report.Failures) != 1 || report.Failures[0].Grammar != tc.grammar || report.Failures[0].Kind != Fatal {
				t.Fatalf("read %+v; want one failure of %s", report.Failures, tc.grammar)
			}
			if diff := cmp.Diff(fieldMap(t, tc.want), fieldsOf(&report.Failures[0])); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
		})
	}
}
