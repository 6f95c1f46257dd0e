package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"vramscope/internal/cli"
	"vramscope/internal/report"
	"vramscope/internal/term"
	"vramscope/replay"
)

type tuneOptions struct {
	simulationOptions
	workers int
	format  *cli.Format
}

func newTuneCommand(env *cli.Env) *cobra.Command {
	var o tuneOptions
	cmd := &cobra.Command{
		Use:   "tune SNAPSHOT --limit SIZE",
		Short: "Find the allocator settings that make a recorded job fit",
		Long: `Tune replays a recorded memory snapshot under many allocator settings that this
version of PyTorch accepts and reports those under which the job runs to its end
within the limit: with the least reserved memory, the fewest retries (each waits
for the card) and the fewest words. Every figure was replayed.

Where no setting helps it says so: then the tensors alone are too large, and
'vramscope explain' names what else to change.

EXIT STATUS
  0  settings that fit were found
  1  no settings make it fit
  2  wrong usage, or the snapshot cannot be read`,
		Example: `  vramscope tune examples/unet-10gib-b16.pickle.zst --limit 8GiB
  vramscope tune snap.pickle --limit 24GiB --format json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runTune(cmd.Context(), env, &o, args[0]) },
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().IntVar(&o.workers, "workers", 0, "replays at a time; by default one for each CPU")
	o.format = cli.FormatFlag(cmd.Flags(), "text", "json")
	return cmd
}

func runTune(ctx context.Context, env *cli.Env, o *tuneOptions, file string) error {
	if o.limit <= 0 {
		return errors.New("tune needs --limit: how much may the process reserve, such as 24GiB?")
	}
	p, v, err := o.open(ctx, env, file)
	if err != nil {
		return err
	}
	progress := newProgress(env, "replaying settings")
	res, err := p.Tune(ctx, replay.TuneOptions{
		Limit: int64(o.limit), Capacity: int64(o.capacity), Version: v, Workers: o.workers,
		Progress: func(done, total int) { progress.report(int64(done), int64(total)) },
	})
	progress.end()
	if err != nil {
		return err
	}
	r := report.NewTune(file, p, v, o.torch != "", int64(o.limit), res)
	if o.format.String() == "json" {
		err = report.WriteJSON(env.Stdout, r)
	} else {
		err = r.Text(term.New(env.Stdout, env.Getenv))
	}
	if err == nil && res.Best() == nil {
		err = cli.No
	}
	return err
}
