package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"vramscope/internal/cause"
	"vramscope/internal/cli"
	"vramscope/internal/diagnose"
	"vramscope/internal/holders"
	"vramscope/internal/jaxprof"
	"vramscope/internal/remedy"
	"vramscope/internal/report"
	"vramscope/internal/term"
	"vramscope/oomlog"
)

type explainOptions struct {
	simulationOptions
	batch     int
	with      string
	withBatch int
	by        string
	framework string
	why       bool
	all       bool
	failOn    []string
	output    string
	format    *cli.Format
}

func newExplainCommand(env *cli.Env) *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain FILE…",
		Short: "Say why a job ran out of memory, and what to change",
		Long: `Explain reads a memory snapshot of PyTorch or the log of any framework, plain or
compressed by gzip or zstd (- is standard input), and says what happened, who
holds the memory, why, and what to change, best first, each with the bytes that
it saves for this job and how that number was found: measured, replayed,
estimated, or a rule without a number. It also reads what nvidia-smi,
torch.cuda.memory_summary() and memory_stats() print, and the device memory
profiles of JAX.

A snapshot is written by two lines of Python:

    torch.cuda.memory._record_memory_history()              # at the start
    torch.cuda.memory._dump_snapshot("snap.pickle")         # at the failure

Other tools open what --format writes of a snapshot: pprof (go tool pprof,
Pyroscope) and folded (flame graphs) show what was alive at the failure or the
peak, perfetto (ui.perfetto.dev) the timeline, csv all events with their holders.

With --batch N, the micro-batch of the recording, it says which micro-batch fits;
a second recording at another one (--with, --with-batch) makes that exact.

EXIT STATUS
  0  done
  1  with --fail-on: the failure or one of the causes named was found
  2  wrong usage, or a file cannot be read`,
		Example: `  vramscope explain examples/unet-10gib-oom.pickle.zst
  python train.py 2>&1 | vramscope explain -
  vramscope explain snap.pickle --limit 24GiB --batch 32
  vramscope explain fail.pickle --batch 32 --with ok.pickle --with-batch 16
  vramscope explain snap.pickle --format json --fail-on oom,leak
  vramscope explain snap.pickle --format pprof -o memory.pb.gz && go tool pprof -top memory.pb.gz`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runExplain(cmd.Context(), env, &o, args) },
	}
	fs := cmd.Flags()
	o.addFlags(fs)
	fs.IntVar(&o.batch, "batch", 0, "micro-batch (samples a forward pass) of the recording")
	fs.StringVar(&o.with, "with", "", "a second recording of the program, at another micro-batch")
	fs.IntVar(&o.withBatch, "with-batch", 0, "micro-batch of the second recording")
	fs.StringVar(&o.by, "by", "line", "group holders by line, stack, module or category")
	fs.StringVar(&o.framework, "framework", "", "print the changes for this framework, such as transformers or lightning")
	fs.BoolVar(&o.why, "why", false, "show the rule that decided each category")
	fs.BoolVar(&o.all, "all", false, "show all holders and remedies")
	fs.StringSliceVar(&o.failOn, "fail-on", nil, "exit 1 where one of these was found: oom, or the id of a cause")
	fs.StringVarP(&o.output, "output", "o", "", "write to this file instead of standard output")
	o.format = cli.FormatFlag(fs, append([]string{"text", "json"}, exportFormats...)...)
	return cmd
}

// topShown is how many holders and remedies the text shows without --all.
const topShown = 6

func runExplain(ctx context.Context, env *cli.Env, o *explainOptions, files []string) error {
	by, ok := holders.ParseBy(o.by)
	if !ok {
		return fmt.Errorf("--by %s: want line, stack, module or category", o.by)
	}
	if _, ok := remedy.LookupFramework(o.framework); o.framework != "" && !ok {
		return fmt.Errorf("--framework %s is not known: `vramscope remedies` lists those that are", o.framework)
	}
	for _, id := range o.failOn {
		if _, ok := cause.Lookup(cause.ID(id)); id != "oom" && !ok {
			return fmt.Errorf("--fail-on %s: want oom or the id of a cause, such as leak", id)
		}
	}
	if (o.with == "") != (o.withBatch == 0) || o.with != "" && o.batch == 0 {
		return errors.New("--with needs --batch and --with-batch: the micro-batch of each recording")
	}
	if o.with != "" && o.batch == o.withBatch {
		return errors.New("--with needs a recording at another micro-batch")
	}
	if slices.Contains(exportFormats, o.format.String()) {
		return runExport(ctx, env, o, files)
	}
	var unreadable error
	result := &diagnose.Result{Inputs: []diagnose.Input{}}
	for _, file := range files {
		in, err := explainFile(ctx, env, o, by, file)
		switch {
		case err == nil:
			result.Inputs = append(result.Inputs, *in)
		case len(files) == 1 || ctx.Err() != nil:
			return err
		default: // the others are still worth reading
			unreadable = &cli.StatusError{Status: cli.ExitInput}
			cli.Exit(env.Stderr, err)
		}
	}
	if len(result.Inputs) == 0 {
		return unreadable
	}
	err := cli.Output(env, o.output, func(w io.Writer) error {
		if o.format.String() == "json" {
			return report.WriteJSON(w, result)
		}
		opts := report.ExplainOptions{Framework: o.framework, Why: o.why, Top: topShown}
		if o.all {
			opts.Top = 0
		}
		return report.ExplainText(term.New(w, env.Getenv), result, opts)
	})
	switch {
	case err != nil:
		return err
	case unreadable != nil:
		return unreadable
	case found(result, o.failOn):
		return cli.No
	}
	return nil
}

// explainFile diagnoses a file by what it holds.
func explainFile(ctx context.Context, env *cli.Env, o *explainOptions, by holders.By, file string) (*diagnose.Input, error) {
	in, err := openInput(env, file)
	if err != nil {
		return nil, err
	}
	defer in.close()
	switch in.kind {
	case snapshotInput:
		return explainSnapshot(ctx, o, by, in, env)
	case jaxInput:
		p, err := jaxprof.Read(in)
		if err != nil {
			return nil, in.fail(err)
		}
		return diagnose.JAX(in.name, p), nil
	}
	return explainText(in)
}

// explainText diagnoses a log, or what people paste instead.
func explainText(in *input) (*diagnose.Input, error) {
	switch in.paste {
	case oomlog.PasteSummary:
		s, err := oomlog.ParseSummary(in)
		if err != nil {
			return nil, in.fail(err)
		}
		return diagnose.MemorySummary(in.name, &s), nil
	case oomlog.PasteStats:
		s, err := oomlog.ParseStats(in)
		if err != nil {
			return nil, in.fail(err)
		}
		return diagnose.MemoryStats(in.name, &s), nil
	case oomlog.PasteSMI:
		s, err := oomlog.ParseSMI(in)
		if err != nil {
			return nil, in.fail(err)
		}
		return diagnose.SMI(in.name, &s), nil
	}
	r, err := oomlog.Scan(in, oomlog.Options{})
	if err != nil {
		return nil, in.fail(err)
	}
	return diagnose.Log(in.name, &r), nil
}

func explainSnapshot(ctx context.Context, o *explainOptions, by holders.By, file *input, env *cli.Env) (*diagnose.Input, error) {
	p, err := file.program(ctx, env, o.device)
	if err != nil {
		return nil, err
	}
	v, err := o.version(p)
	if err != nil {
		return nil, err
	}
	opts := diagnose.Options{
		Limit: int64(o.limit), Capacity: int64(o.capacity), Version: v, Batch: o.batch, WithBatch: o.withBatch, By: by,
	}
	if o.with != "" {
		if opts.With, err = openProgram(ctx, env, o.with, o.device); err != nil {
			return nil, err
		}
	}
	in, err := diagnose.Snapshot(ctx, file.name, p, opts)
	if err != nil {
		return nil, file.fail(err)
	}
	return in, nil
}

// found reports whether the result has what --fail-on names.
func found(r *diagnose.Result, failOn []string) bool {
	for _, in := range r.Inputs {
		if slices.Contains(failOn, "oom") && slices.ContainsFunc(in.Failures, func(f diagnose.Failure) bool { return !f.Survived }) {
			return true
		}
		for _, c := range in.Causes {
			if slices.Contains(failOn, string(c.ID)) && c.Confidence >= 0.5 {
				return true
			}
		}
	}
	return false
}
