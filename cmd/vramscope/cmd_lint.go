package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vramscope/internal/cli"
	"vramscope/internal/lint"
	"vramscope/internal/lint/lsp"
	"vramscope/internal/pysource"
	"vramscope/internal/term"
)

type lintOptions struct {
	format        *cli.Format
	output        string
	selected      []string
	ignored       []string
	exclude       []string
	pedantic      bool
	config        string
	baseline      string
	writeBaseline string
	fix, diff     bool
	explain       string
	list          bool
	lsp           bool
	stdinName     string
	jobs          int
}

func (o *lintOptions) addFlags(fs *pflag.FlagSet) {
	o.format = cli.FormatFlag(fs, "text", "json", "sarif", "github")
	fs.StringVarP(&o.output, "output", "o", "", "write the result to this `FILE`")
	fs.StringSliceVar(&o.selected, "select", nil, "only these `RULES`: ids, beginnings of ids (GM1), names, groups, severities, all")
	fs.StringSliceVar(&o.ignored, "ignore", nil, "not these `RULES`")
	fs.StringSliceVar(&o.exclude, "exclude", nil, "not these files and folders (`PATTERNS` of names or paths)")
	fs.BoolVar(&o.pedantic, "pedantic", false, "show advice too (severity info)")
	fs.StringVar(&o.config, "config", "", "read this `FILE` instead of looking for pyproject.toml or vramscope.toml; \"none\" reads none")
	fs.StringVar(&o.baseline, "baseline", "", "leave out the findings in this `FILE`")
	fs.StringVar(&o.writeBaseline, "write-baseline", "", "write all findings to this `FILE`, as a baseline, and exit 0")
	fs.BoolVar(&o.fix, "fix", false, "make the changes that are safe")
	fs.BoolVar(&o.diff, "diff", false, "show what --fix would change, and change nothing")
	fs.StringVar(&o.explain, "explain", "", "explain this `RULE`, with examples")
	fs.BoolVar(&o.list, "list", false, "list all rules (f: can be fixed)")
	fs.BoolVar(&o.lsp, "lsp", false, "serve an editor over standard input and output (Language Server Protocol)")
	fs.StringVar(&o.stdinName, "stdin-name", "stdin.py", "the `NAME` by which standard input is known; its ending says what it is")
	fs.IntVar(&o.jobs, "jobs", 0, "look at `N` files at a time (0: one for each processor)")
}

func newLintCommand(env *cli.Env) *cobra.Command {
	var o lintOptions
	cmd := &cobra.Command{
		Use:   "lint PATH…",
		Short: "Which lines will waste GPU memory?",
		Long: `Lint reads Python files, notebooks, shell scripts, Dockerfiles, YAML, .env and
DeepSpeed JSON files, follows values through them, and shows the lines that leak
or waste GPU memory, or settings that do nothing. It runs nothing and needs no
Python. "-" is standard input. Each finding says what it costs, and when.

A comment "# vramscope: ignore[GM101]" on the line or above it leaves a finding
out, "# vramscope: ignore-file" a file. The table [tool.vramscope.lint] of
pyproject.toml, or [lint] of vramscope.toml, has select, ignore, exclude,
baseline and pedantic.

EXIT STATUS
  0  nothing found
  1  something found
  2  wrong usage, or a path that cannot be read`,
		Example: `  vramscope lint --list
  vramscope lint --explain GM101
  vramscope lint train.py notebooks/ --select graph,GM5
  vramscope lint . --format sarif -o lint.sarif`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runLint(cmd.Context(), env, o, args)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func runLint(ctx context.Context, env *cli.Env, o lintOptions, args []string) error {
	switch {
	case o.explain != "":
		return lint.Explain(term.New(env.Stdout, env.Getenv), o.explain)
	case o.list:
		return lint.List(term.New(env.Stdout, env.Getenv))
	}
	if len(args) == 0 && !o.lsp {
		return fmt.Errorf("lint needs a file or folder; . is this folder")
	}
	options, baseline, err := o.settings(args)
	if err != nil {
		return err
	}
	if o.lsp {
		return lsp.Serve(env.Stdin, env.Stdout, options)
	}
	result, err := o.look(ctx, env, options)
	if err != nil {
		return err
	}
	if o.writeBaseline != "" {
		return cli.Output(env, o.writeBaseline, lint.NewBaseline(result).Write)
	}
	if baseline != "" {
		b, err := lint.ReadBaseline(baseline)
		if err != nil {
			return err
		}
		if n := b.Apply(result); n > 0 {
			fmt.Fprintf(env.Stderr, "%d in the baseline left out\n", n)
		}
	}
	if o.fix || o.diff {
		done, err := o.change(env, result)
		if err != nil {
			return err
		}
		if o.diff && done {
			return cli.No
		}
		if o.diff {
			return nil
		}
		if done {
			if result, err = o.look(ctx, env, options); err != nil {
				return err
			}
		}
	}
	if err := o.print(env, result); err != nil {
		return err
	}
	if len(result.Findings) > 0 {
		return cli.No
	}
	return nil
}

// settings joins the flags with the configuration file; flags win.
func (o lintOptions) settings(args []string) (lint.Options, string, error) {
	options := lint.Options{Paths: args, Select: o.selected, Ignore: o.ignored, Exclude: o.exclude, Pedantic: o.pedantic, Jobs: o.jobs}
	baseline := o.baseline
	var c lint.Config
	var err error
	switch o.config {
	case "none":
		return options, baseline, nil
	case "":
		start := "."
		if len(args) > 0 && args[0] != "-" {
			start = args[0]
		}
		c, err = lint.FindConfig(start)
	default:
		var found bool
		c, found, err = lint.ReadConfig(o.config)
		if err == nil && !found {
			err = fmt.Errorf("%s: has no table for vramscope lint, or does not exist", o.config)
		}
	}
	if err != nil {
		return options, "", err
	}
	if len(options.Select) == 0 {
		options.Select = c.Select
	}
	options.Ignore = append(options.Ignore, c.Ignore...)
	options.Exclude = append(options.Exclude, c.Exclude...)
	options.Pedantic = options.Pedantic || c.Pedantic
	if baseline == "" {
		baseline = c.Baseline
	}
	return options, baseline, nil
}

func (o lintOptions) look(ctx context.Context, env *cli.Env, options lint.Options) (*lint.Result, error) {
	if !slices.Contains(options.Paths, "-") {
		return lint.Run(ctx, options)
	}
	if len(options.Paths) > 1 {
		return nil, fmt.Errorf("- (standard input) goes with no other path")
	}
	data, err := io.ReadAll(io.LimitReader(env.Stdin, pysource.MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	findings, err := lint.CheckText(o.stdinName, data, options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.stdinName, err)
	}
	return &lint.Result{Files: 1, Findings: findings}, nil
}

// change makes or shows the safe changes, and reports whether there are any.
func (o lintOptions) change(env *cli.Env, result *lint.Result) (bool, error) {
	if slices.ContainsFunc(result.Findings, func(f lint.Finding) bool { return f.Fix != "" && f.File == o.stdinName && !exists(f.File) }) {
		return false, fmt.Errorf("--fix and --diff change files, not standard input")
	}
	changes, err := lint.Fixes(result)
	if err != nil {
		return false, err
	}
	for _, c := range changes {
		if o.diff {
			fmt.Fprint(env.Stdout, c.Diff())
			continue
		}
		if err := c.Write(); err != nil {
			return false, err
		}
		fmt.Fprintf(env.Stderr, "%s: fixed %d\n", c.File, c.Fixed)
	}
	return len(changes) > 0, nil
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func (o lintOptions) print(env *cli.Env, result *lint.Result) error {
	return cli.Output(env, o.output, func(w io.Writer) error {
		p := term.New(w, env.Getenv)
		switch o.format.String() {
		case "json":
			return result.JSON(w)
		case "sarif":
			return result.SARIF(w)
		case "github":
			result.GitHub(p)
		default:
			result.Text(p)
		}
		return p.Err()
	})
}
