// Command vramscope says who uses the memory of a GPU, whether a job will fit,
// and what to change when it did not.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"vramscope/internal/cli"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	env := &cli.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	err := newRootCommand(env).ExecuteContext(ctx)
	if err != nil && ctx.Err() != nil {
		return cli.ExitCanceled
	}
	return cli.Exit(env.Stderr, err)
}

// newRootCommand lists all commands. Each lives in cmd_NAME.go.
func newRootCommand(env *cli.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "vramscope",
		Short: "Why a GPU job ran out of memory, and what to change",
		Long: `Vramscope says before a run whether a job fits and which measures make it fit;
during a run who uses the memory; after "CUDA out of memory" why it happened and
what to change, with the bytes that each change saves for this very job.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.AddCommand(
		newDiffCommand(env),
		newFitCommand(env),
		newExplainCommand(env),
		newGPUsCommand(env),
		newLintCommand(env),
		newRemediesCommand(env),
		newReplayCommand(env),
		newTopCommand(env),
		newTuneCommand(env),
		newVersionCommand(env),
	)
	return root
}
