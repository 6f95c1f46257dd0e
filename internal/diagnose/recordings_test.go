package diagnose

import (
	"context"
	"slices"
	"strings"
	"testing"

	"vramscope/internal/cause"
	"vramscope/replay"
	"vramscope/torchsnap"
)

const (
	recordings = "../../testdata/recordings/"
	examples   = "../../examples/"
)

func compile(t testing.TB, file string) *replay.Program {
	t.Helper()
	tr, err := torchsnap.ReadFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return replay.Compile(tr, &tr.Devices[0])
}

func explain(t testing.TB, file string, o Options) *Input {
	t.Helper()
	in, err := Snapshot(context.Background(), file, compile(t, file), o)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// TestCausesOfRecordings: each of these jobs was made to die of one cause on a
// card (testdata/recordings/causes.py).
func TestCausesOfRecordings(t *testing.T) {
	for _, tc := range []struct {
		file    string
		options Options
		first   cause.ID
		also    []cause.ID // that must be named too
		not     []cause.ID // that must not be claimed, from a confidence of a half
		remedy  string     // the first
	}{
		{examples + "unet-10gib-oom.pickle.zst", Options{}, cause.TooBig, []cause.ID{cause.Limit}, []cause.ID{cause.Fragmentation, cause.Leak}, "micro_batch"},
		{recordings + "optimizer_first_step.pickle.zst", Options{}, cause.OptimizerState, nil, []cause.ID{cause.Fragmentation}, ""},
		{recordings + "evaluation.pickle.zst", Options{}, cause.Evaluation, nil, []cause.ID{cause.Leak}, "no_grad"},
		{recordings + "checkpoint_save.pickle.zst", Options{}, cause.Checkpoint, nil, []cause.ID{cause.Leak}, ""},
		{recordings + "logits.pickle.zst", Options{}, cause.Logits, nil, []cause.ID{cause.Leak, cause.Fragmentation}, ""},
		{recordings + "leak_graph.pickle.zst", Options{}, cause.Leak, nil, []cause.ID{cause.TooBig, cause.VariableLength}, "detach_losses"},
		{recordings + "longest_last.pickle.zst", Options{}, cause.VariableLength, nil, []cause.ID{cause.Leak, cause.Fragmentation}, ""},
		{recordings + "random_limit.pickle.zst", Options{}, cause.Fragmentation, nil, []cause.ID{cause.Leak}, "expandable_segments"},
		{recordings + "varimg_other_processes_oom.pickle.zst", Options{}, cause.OtherProcess, nil, []cause.ID{cause.Limit, cause.Fragmentation}, "close_other_processes"},
		{recordings + "varimg_other_processes_oom.pickle.zst", Options{Capacity: 150110011392}, cause.OtherProcess, nil, []cause.ID{cause.Limit}, "close_other_processes"},
	} {
		t.Run(tc.file, func(t *testing.T) {
			in := explain(t, tc.file, tc.options)
			if len(in.Failures) == 0 || in.Failures[0].Survived || in.Failures[0].Basis != Measured {
				t.Fatalf("failures: %+v", in.Failures)
			}
			if len(in.Causes) == 0 || in.Causes[0].ID != tc.first {
				t.Errorf("causes: %v; want %s first", causesOf(in), tc.first)
			}
			for _, id := range tc.also {
				if !slices.ContainsFunc(in.Causes, func(c Cause) bool { return c.ID == id }) {
					t.Errorf("causes: %v; want %s too", causesOf(in), id)
				}
			}
			for _, id := range tc.not {
				if slices.ContainsFunc(in.Causes, func(c Cause) bool { return c.ID == id && c.Confidence > 0.5 }) {
					t.Errorf("causes: %v; %s is not one", causesOf(in), id)
				}
			}
			if tc.remedy != "" && in.Remedies[0].ID != tc.remedy {
				t.Errorf("first remedy %s; want %s", in.Remedies[0].ID, tc.remedy)
			}
			checkSums(t, in)
		})
	}
}

func causesOf(in *Input) (out []string) {
	for _, c := range in.Causes {
		out = append(out, string(c.ID))
	}
	return out
}

// checkSums: what is listed adds up, and every number says where it is from.
func checkSums(t *testing.T, in *Input) {
	t.Helper()
	var holders, categories int64
	for _, h := range in.Holders {
		holders += h.Bytes
	}
	for _, n := range in.Moment.ByCategory {
		categories += n
	}
	if holders != in.Moment.Allocated || categories != in.Moment.Allocated {
		t.Errorf("holders add up to %d, categories to %d, allocated is %d", holders, categories, in.Moment.Allocated)
	}
	if in.Moment.Reserved < in.Moment.Allocated {
		t.Errorf("%d reserved, %d allocated", in.Moment.Reserved, in.Moment.Allocated)
	}
	for _, r := range in.Remedies {
		if r.Basis == "" || r.Title == "" || r.Saves == nil && r.Basis != Rule && r.Basis != Replayed {
			t.Errorf("remedy without its basis: %+v", r)
		}
		if len(r.Change) == 0 {
			t.Errorf("%s changes nothing", r.ID)
		}
	}
}

// TestLives: jobs that did not die have no cause, but for what grows.
func TestLives(t *testing.T) {
	for _, tc := range []struct {
		file   string
		causes []string
	}{
		{examples + "unet-10gib-b16.pickle.zst", nil},
		{recordings + "graph.pickle.zst", nil},
		{recordings + "caught_oom.pickle.zst", nil},
		{recordings + "varimg_default.pickle.zst", nil},
		{recordings + "leak_resnet18.pickle.zst", []string{"leak"}},
	} {
		t.Run(tc.file, func(t *testing.T) {
			in := explain(t, tc.file, Options{})
			if got := causesOf(in); !slices.Equal(got, tc.causes) {
				t.Errorf("causes %v; want %v", got, tc.causes)
			}
			for _, f := range in.Failures {
				if !f.Survived {
					t.Errorf("a failure that it did not survive: %+v", f)
				}
			}
			checkSums(t, in)
		})
	}
}

// TestUnderALimit: a job that lived is replayed under a limit that kills it.
func TestUnderALimit(t *testing.T) {
	in := explain(t, recordings+"varimg_default.pickle.zst", Options{Limit: 4 << 30})
	if len(in.Failures) != 1 || in.Failures[0].Basis != Replayed || in.Failures[0].Survived {
		t.Fatalf("failures: %+v", in.Failures)
	}
	for _, s := range in.Settings { // its tensors alone take 4.66 GiB
		if s.Survives == nil || *s.Survives {
			t.Errorf("%q is said to survive", s.Conf)
		}
	}
	// Between what its tensors take and what the defaults reserve, only
	// growing segments help (4,834 MiB, measured).
	in = explain(t, recordings+"varimg_default.pickle.zst", Options{Limit: 4900 << 20})
	for _, s := range in.Settings {
		if strings.HasPrefix(s.Conf, "garbage") {
			continue // what it reserves depends on the limit
		}
		if want := s.Conf == "expandable_segments:True"; want && !*s.Survives || !want && s.PeakReserved < 4900<<20 {
			t.Errorf("%q: %+v", s.Conf, s)
		}
	}
	if r := in.Remedies[0]; r.ID != "expandable_segments" || r.Fits == nil || !*r.Fits || *r.Saves != 7446986752-5068816384 {
		t.Errorf("first remedy: %+v", r)
	}
}

// TestLimitGiven: a limit that the recorded failure contradicts is told apart.
func TestLimitGiven(t *testing.T) {
	file := examples + "unet-10gib-oom.pickle.zst"
	in := explain(t, file, Options{Limit: 24 << 30})
	if len(in.Advice) == 0 || !strings.Contains(in.Advice[0], "would be served") || in.Causes[0].ID != cause.TooBig {
		t.Errorf("under more: advice %q, causes %v", in.Advice, causesOf(in))
	}
	in = explain(t, file, Options{Limit: 6 << 30})
	if f := in.Failures[0]; f.Basis != Replayed || *f.Event >= 378 || f.Survived {
		t.Errorf("under less: %+v", f)
	}
	in = explain(t, file, Options{Limit: 10 << 30})
	if f := in.Failures[0]; f.Basis != Measured || *f.Event != 378 || *f.Limit != 10<<30 {
		t.Errorf("under the same: %+v", f)
	}
}

// TestSettings holds the replayed numbers of one recording against the card's:
// varimg was run there under these settings too.
func TestSettings(t *testing.T) {
	in := explain(t, recordings+"varimg_default.pickle.zst", Options{})
	want := map[string]int64{"": 7446986752, "expandable_segments:True": 5068816384, "max_split_size_mb:128": 10850664448}
	for _, s := range in.Settings {
		if w, ok := want[s.Conf]; ok && s.PeakReserved != w {
			t.Errorf("%q: %d; the card: %d", s.Conf, s.PeakReserved, w)
		}
		delete(want, s.Conf)
	}
	if len(want) > 0 {
		t.Errorf("not tried: %v", want)
	}
}

// TestBatch: the U-Net on a 10 GiB card. Measured there on an H200 under that
// limit (2026-12-01): 18 to 20 run as they are, 21 with one retry, 22 with two,
// 24 refuses workspaces, 32 dies.
func TestBatch(t *testing.T) {
	b8, b16 := examples+"unet-10gib-b8.pickle.zst", examples+"unet-10gib-b16.pickle.zst"
	for _, tc := range []struct {
		name        string
		file        string
		options     Options
		least, most int
	}{
		{"from 16 alone", b16, Options{Batch: 16, Limit: 10 << 30}, 19, 24},
		{"from 8 alone", b8, Options{Batch: 8, Limit: 10 << 30}, 19, 24},
		{"from 8 and 16", b8, Options{Batch: 8, Limit: 10 << 30, With: compile(t, b16), WithBatch: 16}, 20, 23},
		{"from 16 and the failure", examples + "unet-10gib-oom.pickle.zst", Options{Batch: 32, Limit: 10 << 30, With: compile(t, b16), WithBatch: 16}, 20, 23},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := explain(t, tc.file, tc.options)
			b := in.Batch
			if b == nil || b.UpperBound || b.Basis != Estimated {
				t.Fatalf("batch: %+v", b)
			}
			if b.Largest < tc.least || b.Largest > tc.most {
				t.Errorf("largest micro-batch %d; on the card it is 22", b.Largest)
			}
			if b.Peak > 10<<30 || b.NextPeak <= b.Peak {
				t.Errorf("%+v", b)
			}
			t.Logf("%+v", *b)
		})
	}
	in := explain(t, examples+"unet-10gib-oom.pickle.zst", Options{Batch: 32, Limit: 10 << 30})
	if in.Batch == nil || !in.Batch.UpperBound {
		t.Errorf("a recording without a step gives an upper bound: %+v", in.Batch)
	}
}

// TestIncomplete: recordings that begin late are explained, and say so.
func TestIncomplete(t *testing.T) {
	for _, name := range []string{"ring_overflow", "late_start"} {
		in := explain(t, recordings+name+".pickle.zst", Options{})
		if len(in.Advice) == 0 || in.Moment.Allocated == 0 {
			t.Errorf("%s: advice %v, moment %+v", name, in.Advice, in.Moment)
		}
	}
}
