package main

import (
	"github.com/spf13/cobra"

	"vramscope/internal/cli"
	"vramscope/internal/gpu/cards"
	"vramscope/internal/report"
	"vramscope/internal/term"
)

type gpusOptions struct {
	format *cli.Format
}

func newGPUsCommand(env *cli.Env) *cobra.Command {
	var o gpusOptions
	cmd := &cobra.Command{
		Use:   "gpus [NAME]",
		Short: "Show the card data base: memory, what a job can take of it, speed",
		Long: `Gpus is the data base of cards that fit and predict use: the memory on the box,
what the driver reports of it, what a job can take, bandwidth and arithmetic.
It does not look at this machine; top does.

NAME is what the driver or people call a card: "NVIDIA A100-SXM4-80GB",
A100-40GB, rtx4090. A name that several cards share is an error that lists
them; a card is never guessed.

EXIT STATUS
  0  done
  2  wrong usage: no such card, or several`,
		Example: `  vramscope gpus
  vramscope gpus h200
  vramscope gpus "NVIDIA A100-SXM4-80GB" --format json`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var words []string
			if len(args) == 0 {
				for _, c := range cards.All() {
					words = append(words, c.Name)
				}
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error { return runGPUs(env, &o, args) },
	}
	o.format = cli.FormatFlag(cmd.Flags(), "text", "json")
	complete(cmd, "format", o.format.Allowed())
	return cmd
}

func runGPUs(env *cli.Env, o *gpusOptions, args []string) error {
	list := cards.All()
	if len(args) == 1 {
		c, err := cards.Find(args[0])
		if err != nil {
			return err
		}
		list = []*cards.Card{c}
	}
	result := report.NewGPUs(list)
	if o.format.String() == "json" {
		return report.WriteJSON(env.Stdout, result)
	}
	return result.Text(term.New(env.Stdout, env.Getenv), len(args) == 1)
}
