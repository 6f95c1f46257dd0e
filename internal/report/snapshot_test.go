package report

import (
	"context"
	"path/filepath"
	"testing"

	"vramscope/cachealloc"
	"vramscope/internal/diagnose"
	"vramscope/internal/holders"
	"vramscope/internal/term"
	"vramscope/replay"
	"vramscope/torchsnap"
)

// program reads a recording of the repository, and returns the name that the
// reports show.
func program(t *testing.T, file string) (string, *replay.Program) {
	t.Helper()
	tr, err := torchsnap.ReadFile(filepath.Join("../..", file), nil)
	if err != nil {
		t.Fatal(err)
	}
	return file, replay.Compile(tr, &tr.Devices[0])
}

const (
	unetFails = "examples/unet-10gib-oom.pickle.zst"
	unet16    = "examples/unet-10gib-b16.pickle.zst"
	unet8     = "examples/unet-10gib-b8.pickle.zst"
)

func explained(t *testing.T, file string, o diagnose.Options) *diagnose.Result {
	t.Helper()
	name, p := program(t, file)
	in, err := diagnose.Snapshot(context.Background(), name, p, o)
	if err != nil {
		t.Fatal(err)
	}
	return &diagnose.Result{Inputs: []diagnose.Input{*in}}
}

func TestExplainText(t *testing.T) {
	_, with := program(t, unet16)
	for _, tc := range []struct {
		golden, file string
		o            diagnose.Options
		show         ExplainOptions
	}{
		{"explain_unet_b32", unetFails, diagnose.Options{}, ExplainOptions{Top: 6}},
		{"explain_unet_b16", unet16, diagnose.Options{}, ExplainOptions{Top: 6}},
		{"explain_unet_b8", unet8, diagnose.Options{}, ExplainOptions{Top: 6}},
		{"explain_unet_b32_with_b16", unetFails, diagnose.Options{Limit: 10 << 30, Batch: 32, With: with, WithBatch: 16}, ExplainOptions{Top: 2}},
		{"explain_why", "testdata/recordings/optimizer_state.pickle.zst", diagnose.Options{By: holders.ByCategory}, ExplainOptions{Top: 3, Why: true}},
		{"explain_leak", "testdata/recordings/leak_graph.pickle.zst", diagnose.Options{}, ExplainOptions{Top: 3, Framework: "lightning"}},
		{"explain_incomplete", "testdata/recordings/ring_overflow.pickle.zst", diagnose.Options{}, ExplainOptions{Top: 1}},
	} {
		t.Run(tc.golden, func(t *testing.T) {
			r := explained(t, tc.file, tc.o)
			golden(t, "testdata/"+tc.golden+".txt", text(t, func(p *term.Printer) error { return ExplainText(p, r, tc.show) }))
		})
	}
}

// replayed is what the replay command reports.
func replayed(t *testing.T, file string, limit int64, confs ...string) *Replay {
	t.Helper()
	name, p := program(t, file)
	r := NewReplay(name, p, p.To, false)
	run := func(conf string, s *cachealloc.Settings) {
		o, err := p.Run(context.Background(), replay.Scenario{Settings: s, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		r.Add(p, conf, limit, o)
	}
	run(p.RecordedConf, nil)
	for _, conf := range confs {
		s, err := cachealloc.ParseSettings(conf, p.To)
		if err != nil {
			t.Fatal(err)
		}
		run(conf, &s)
	}
	return r
}

func TestReplayText(t *testing.T) {
	for _, tc := range []struct {
		golden, file string
		limit        int64
		confs        []string
	}{
		{"replay_own", unetFails, 0, nil},
		{"replay_others", unet16, 0, []string{"expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"}},
		{"replay_limit", unet16, 6 << 30, []string{"expandable_segments:True"}},
		{"replay_grants", unetFails, 10 << 30, []string{"expandable_segments:True"}},
		{"replay_incomplete", "testdata/recordings/ring_overflow.pickle.zst", 0, nil},
		{"replay_small_segment", "testdata/recordings/varlen_limit_default_oom.pickle.zst", 0, nil},
	} {
		t.Run(tc.golden, func(t *testing.T) {
			golden(t, "testdata/"+tc.golden+".txt", text(t, replayed(t, tc.file, tc.limit, tc.confs...).Text))
		})
	}
}

func tuned(t *testing.T, file string, limit int64) *Tune {
	t.Helper()
	name, p := program(t, file)
	res, err := p.Tune(context.Background(), replay.TuneOptions{Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	return NewTune(name, p, p.To, false, limit, res)
}

func TestTuneText(t *testing.T) {
	for _, tc := range []struct {
		golden, file string
		limit        int64
	}{
		{"tune_fits", unet16, 8 << 30},
		{"tune_default_fits", unet8, 20 << 30},
		{"tune_retries", "testdata/recordings/stream_limit.pickle.zst", 200 << 20},
		{"tune_too_big", unet16, 5 << 30},
		{"tune_nothing_helps", unet16, 6440000000},
		{"tune_ends_in_failure", unetFails, 10 << 30},
	} {
		t.Run(tc.golden, func(t *testing.T) {
			golden(t, "testdata/"+tc.golden+".txt", text(t, tuned(t, tc.file, tc.limit).Text))
		})
	}
}
