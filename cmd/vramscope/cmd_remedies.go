package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vramscope/internal/cause"
	"vramscope/internal/cli"
	"vramscope/internal/remedy"
	"vramscope/internal/report"
	"vramscope/internal/spelling"
	"vramscope/internal/term"
)

type remediesOptions struct {
	framework string
	cause     string
	format    *cli.Format
}

func newRemediesCommand(env *cli.Env) *cobra.Command {
	var o remediesOptions
	cmd := &cobra.Command{
		Use:   "remedies [ID]",
		Short: "List what helps against running out of memory, with its cost and risk",
		Long: `Remedies is the catalogue of measures that change the memory of a GPU job: what
each saves and by which formula, when it is useless, what it costs and risks,
the exact change for each framework with the version it needs, and the source.
Some are in it because they are often recommended and save nothing.

With an ID it shows one. The examples were measured, each measure alone, on one
card and on small jobs: yours differs. ` + "`vramscope explain` and `vramscope fit`" + `
compute for a job what its remedies save.

EXIT STATUS
  0  done
  2  wrong usage: no such remedy, framework or cause`,
		Example: `  vramscope remedies
  vramscope remedies expandable_segments
  vramscope remedies --cause fragmentation --framework pytorch`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var words []string
			if len(args) == 0 {
				for _, r := range remedy.All() {
					words = append(words, r.ID+"\t"+r.Title)
				}
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error { return runRemedies(env, &o, args) },
	}
	cmd.Flags().StringVar(&o.framework, "framework", "", "only remedies that it has a change for: "+strings.Join(frameworkIDs(), ", "))
	cmd.Flags().StringVar(&o.cause, "cause", "", "only answers to this cause, such as fragmentation or leak")
	o.format = cli.FormatFlag(cmd.Flags(), "text", "json")
	complete(cmd, "framework", frameworkIDs())
	complete(cmd, "cause", causeIDs())
	complete(cmd, "format", o.format.Allowed())
	return cmd
}

func runRemedies(env *cli.Env, o *remediesOptions, args []string) error {
	framework := ""
	if o.framework != "" {
		f, ok := remedy.LookupFramework(o.framework)
		if !ok {
			return unknown("framework", o.framework, frameworkIDs())
		}
		framework = f.ID
	}
	if o.cause != "" && !slices.Contains(causeIDs(), o.cause) {
		return unknown("cause", o.cause, causeIDs())
	}
	var list []*remedy.Remedy
	if len(args) == 1 {
		if o.cause != "" {
			return errors.New("--cause filters the list: leave it out together with an ID")
		}
		r, ok := remedy.ByID(args[0])
		if !ok {
			return unknown("remedy", args[0], remedyIDs())
		}
		list = append(list, r)
	} else {
		for _, r := range remedy.All() {
			_, known := r.Change(framework)
			if (framework == "" || known) && (o.cause == "" || r.Answers(cause.ID(o.cause))) {
				list = append(list, r)
			}
		}
	}
	result := report.NewRemedies(list, framework, cause.ID(o.cause))
	if o.format.String() == "json" {
		return report.WriteJSON(env.Stdout, result)
	}
	return result.Text(term.New(env.Stdout, env.Getenv), len(args) == 1)
}

// unknown says which words would do: those that are like it, or all of them
// where they are few.
func unknown(what, word string, words []string) error {
	text := fmt.Sprintf("no %s %q", what, word)
	if near := spelling.Nearest(word, words, 3); len(near) > 0 {
		return errors.New(text + "; did you mean " + strings.Join(near, ", ") + "?")
	}
	if len(words) > 30 {
		return errors.New(text + "; `vramscope remedies` lists them")
	}
	return errors.New(text + "; there are " + strings.Join(words, ", "))
}

func remedyIDs() []string {
	var ids []string
	for _, r := range remedy.All() {
		ids = append(ids, r.ID)
	}
	return ids
}

func frameworkIDs() []string {
	var ids []string
	for _, f := range remedy.Frameworks() {
		ids = append(ids, f.ID)
	}
	return ids
}

func causeIDs() []string {
	var ids []string
	for _, c := range cause.All() {
		ids = append(ids, string(c.ID))
	}
	return ids
}

// complete lets the shell complete the values of a flag.
func complete(cmd *cobra.Command, flag string, words []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // there is no such flag: a programmer's error
	}
}
