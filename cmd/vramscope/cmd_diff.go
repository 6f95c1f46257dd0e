package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"vramscope/bytesize"
	"vramscope/internal/cli"
	"vramscope/internal/holders"
	"vramscope/internal/report"
	"vramscope/internal/term"
)

type diffOptions struct {
	by, at    string
	maxGrowth string
	device    int
	top       int
	format    *cli.Format
}

func newDiffCommand(env *cli.Env) *cobra.Command {
	var o diffOptions
	cmd := &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Say what grew from one memory snapshot to another, and where",
		Long: `Diff compares who holds the memory in two memory snapshots, at their peaks or at
their ends, and lists what grew: by the line of your code and the call that asked
there, by stack, by module or by category (parameter, gradient, activation, …).

Holders match by function and file first and by line then, so that an edit that
moves lines does not hide what grew. Bytes are those of the allocator's blocks,
from a replay of each recording under its own settings.

EXIT STATUS
  0  done
  1  the allocated bytes grew by more than --max-growth
  2  wrong usage, or a snapshot cannot be read`,
		Example: `  vramscope diff examples/unet-10gib-b8.pickle.zst examples/unet-10gib-b16.pickle.zst
  vramscope diff before.pickle after.pickle --by category --at end
  vramscope diff main.pickle branch.pickle --max-growth 2% --format json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runDiff(cmd.Context(), env, &o, args[0], args[1])
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.by, "by", "line", "group by: "+strings.Join(holders.ByNames(), ", "))
	fs.StringVar(&o.at, "at", "peak", "compare at: peak (of the allocated bytes), end (of the recording)")
	fs.StringVar(&o.maxGrowth, "max-growth", "", "exit 1 where the allocated bytes grew by more: a size such as 100MiB, or a percentage such as 5%")
	fs.IntVar(&o.device, "device", -1, "device of the recordings; by default the one with the most events")
	fs.IntVar(&o.top, "top", 15, "holders to show in text that grew, and that shrank")
	o.format = cli.FormatFlag(fs, "text", "json")
	return cmd
}

func runDiff(ctx context.Context, env *cli.Env, o *diffOptions, before, after string) error {
	by, ok := holders.ParseBy(o.by)
	if !ok {
		return fmt.Errorf("--by %s: want one of %s", o.by, strings.Join(holders.ByNames(), ", "))
	}
	if o.at != "peak" && o.at != "end" {
		return fmt.Errorf("--at %s: want peak or end", o.at)
	}
	allowed, err := parseGrowth(o.maxGrowth)
	if err != nil {
		return fmt.Errorf("--max-growth: %w", err)
	}
	if before == "-" && after == "-" {
		return fmt.Errorf("standard input can be only one of the two snapshots")
	}
	x, eventX, err := o.open(ctx, env, before)
	if err != nil {
		return err
	}
	y, eventY, err := o.open(ctx, env, after)
	if err != nil {
		return err
	}
	d := holders.Diff(x, eventX, y, eventY, by)
	r := report.NewDiff(report.NewDiffSide(before, x, eventX), report.NewDiffSide(after, y, eventY), o.at, o.by, d, allowed(d.Before))
	if o.format.String() == "json" {
		err = report.WriteJSON(env.Stdout, r)
	} else {
		err = r.Text(term.New(env.Stdout, env.Getenv), o.top)
	}
	if err == nil && r.Grew {
		err = cli.No
	}
	return err
}

// open reads and analyzes a snapshot; the event is the moment to look at.
func (o *diffOptions) open(ctx context.Context, env *cli.Env, file string) (*holders.Analysis, int, error) {
	p, err := openProgram(ctx, env, file, o.device)
	if err != nil {
		return nil, 0, err
	}
	a, err := holders.Analyze(ctx, p)
	if err != nil {
		return nil, 0, err
	}
	if o.at == "end" {
		return a, p.Device.Events.Len() - 1, nil
	}
	return a, a.PeakAllocated, nil
}

// parseGrowth reads a size or a percentage. The function it returns gives the
// bytes for a program that had so many before, -1 for any number.
func parseGrowth(text string) (func(before int64) int64, error) {
	if text == "" {
		return func(int64) int64 { return -1 }, nil
	}
	if number, ok := strings.CutSuffix(text, "%"); ok {
		percent, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(percent >= 0 && percent <= 1e6) {
			return nil, fmt.Errorf("%q is not a percentage: write 5%%", text)
		}
		return func(before int64) int64 { return int64(percent / 100 * float64(before)) }, nil
	}
	size, err := bytesize.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w, or a percentage such as 5%%", err)
	}
	return func(int64) int64 { return int64(size) }, nil
}
