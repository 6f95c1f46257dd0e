package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vramscope/bytesize"
	"vramscope/cachealloc"
	"vramscope/internal/cli"
	"vramscope/internal/report"
	"vramscope/internal/term"
	"vramscope/replay"
)

// simulationOptions are the flags of commands that replay a recording.
type simulationOptions struct {
	device   int
	torch    string
	limit    bytesize.Size
	capacity bytesize.Size
}

func (o *simulationOptions) addFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.device, "device", -1, "device of the recording; by default the one with the most events")
	fs.StringVar(&o.torch, "torch", "", "version of PyTorch whose rules apply, such as 2.11; by default inferred from the file")
	fs.Var(&o.limit, "limit", "what the process may reserve, such as 10GiB (a memory fraction, a MIG slice)")
	fs.Var(&o.capacity, "capacity", "what the driver can give to the process")
}

// open reads a snapshot to be replayed, and the version whose rules apply.
func (o *simulationOptions) open(ctx context.Context, env *cli.Env, file string) (p *replay.Program, v cachealloc.Version, err error) {
	if p, err = openProgram(ctx, env, file, o.device); err != nil {
		return nil, v, err
	}
	if p.Recorded.Backend == cachealloc.CUDAMallocAsync {
		return nil, v, cli.Cannot(fmt.Errorf("%s: recorded with backend:cudaMallocAsync, where the driver's own pool decides: not simulated", file))
	}
	v, err = o.version(p)
	return p, v, err
}

// version returns the version to simulate: the one given, or the newest that
// can have written the recording.
func (o *simulationOptions) version(p *replay.Program) (cachealloc.Version, error) {
	if o.torch == "" {
		return p.To, nil
	}
	v, err := cachealloc.ParseVersion(o.torch)
	if err != nil {
		return v, fmt.Errorf("--torch: %w", err)
	}
	return v, nil
}

type replayOptions struct {
	simulationOptions
	confs  []string
	failOn string
	format *cli.Format
}

func newReplayCommand(env *cli.Env) *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay SNAPSHOT",
		Short: "Say what the allocator would have done under other settings",
		Long: `Replay sends the requests of a recorded memory snapshot through a simulation of
PyTorch's caching allocator: first under the recorded settings, which shows
whether the simulation does what the card did, then under each --conf.

A settings string is written as in PYTORCH_CUDA_ALLOC_CONF. Under a --limit the
replay says at which event the job would die, with which request and stack.

EXIT STATUS
  0  done
  1  with --fail-on oom: a replay ran out of memory
  2  wrong usage, or the snapshot cannot be read`,
		Example: `  vramscope replay examples/unet-10gib-oom.pickle.zst
  vramscope replay snap.pickle --conf expandable_segments:True --conf max_split_size_mb:128
  vramscope replay snap.pickle --limit 24GiB --format json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runReplay(cmd.Context(), env, &o, args[0]) },
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().StringArrayVar(&o.confs, "conf", nil, "settings to replay under; repeat for more")
	cmd.Flags().StringVar(&o.failOn, "fail-on", "", "exit 1 where a replay ends in: oom")
	o.format = cli.FormatFlag(cmd.Flags(), "text", "json")
	return cmd
}

func runReplay(ctx context.Context, env *cli.Env, o *replayOptions, file string) error {
	if o.failOn != "" && o.failOn != "oom" {
		return fmt.Errorf("--fail-on %s: want oom", o.failOn)
	}
	p, v, err := o.open(ctx, env, file)
	if err != nil {
		return err
	}
	scenarios := []replay.Scenario{{}}
	confs := []string{p.RecordedConf}
	for _, conf := range o.confs {
		s, err := cachealloc.ParseSettings(conf, v)
		if err != nil {
			return fmt.Errorf("--conf: %w", err)
		}
		if s.Backend == cachealloc.CUDAMallocAsync {
			return errors.New("--conf: backend:cudaMallocAsync is not simulated: the driver's own pool decides there")
		}
		scenarios = append(scenarios, replay.Scenario{Settings: &s})
		confs = append(confs, conf)
	}
	r := report.NewReplay(file, p, v, o.torch != "")
	died := false
	for i, sc := range scenarios {
		sc.Version, sc.Limit, sc.Capacity = v, int64(o.limit), int64(o.capacity)
		out, err := p.Run(ctx, sc)
		if err != nil {
			return err
		}
		r.Add(p, confs[i], int64(o.limit), out)
		died = died || !out.Fits()
	}
	if o.format.String() == "json" {
		err = report.WriteJSON(env.Stdout, r)
	} else {
		err = r.Text(term.New(env.Stdout, env.Getenv))
	}
	if err == nil && died && o.failOn == "oom" {
		err = cli.No
	}
	return err
}
