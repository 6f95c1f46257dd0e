// Package lint finds the lines of a program that will waste GPU memory. It
// walks files, reads each into a model (internal/lint/model), asks the rules
// (internal/lint/rules) and leaves out what a comment, the configuration or a
// baseline says to leave out. It never runs the program.
package lint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"vramscope/internal/lint/model"
	"vramscope/internal/lint/rules"
	"vramscope/internal/pysource"
)

// Options say what to look at and for.
type Options struct {
	Paths    []string
	Select   []string // rules, prefixes of rules or groups; none: all but advice
	Ignore   []string
	Exclude  []string // patterns of paths
	Pedantic bool     // advice too
	Jobs     int      // files at a time; 0: one for each processor
}

// Finding is one finding with its place in a file.
type Finding struct {
	Rule      *rules.Rule
	Severity  rules.Severity
	File      string
	Line      int // from 1; of a notebook, of the .ipynb
	Column    int // from 1, in characters
	EndLine   int
	EndColumn int
	Cell      int // of a notebook, from 1; 0 elsewhere
	CellLine  int
	Message   string
	Source    string // the line
	Fix       string // "" without
	Edits     []rules.Edit
}

// Skip is a file that was not looked at, and why.
type Skip struct {
	File, Why string
}

// Result is what a run found.
type Result struct {
	Files    int // looked at
	Lines    int
	Findings []Finding
	Skipped  []Skip
}

// Run looks at all files below the paths. The error is about the paths or the
// options; files that cannot be read are in Result.Skipped.
func Run(ctx context.Context, o Options) (*Result, error) {
	chosen, err := choose(o)
	if err != nil {
		return nil, err
	}
	files, within, skipped, err := discover(o.Paths, o.Exclude)
	if err != nil {
		return nil, err
	}
	jobs := o.Jobs
	if jobs <= 0 {
		jobs = runtime.GOMAXPROCS(0)
	}
	r := &Result{Skipped: skipped}
	project, around := survey(ctx, files, jobs)
	type outcome struct {
		findings []Finding
		lines    int
		skip     string
		looked   bool
	}
	outcomes := make([]outcome, len(files))
	err = each(ctx, jobs, len(files), func(i int) {
		out := &outcomes[i]
		// A fault of the linter costs the file in which it shows, not the run.
		defer func() {
			if x := recover(); x != nil {
				*out = outcome{skip: fmt.Sprintf("internal error: %v (please report it)", x)}
			}
		}()
		data, why := read(files[i])
		if why != "" {
			out.skip = why
			return
		}
		findings, lines, err := checkFile(files[i], data, project, around, isTest(within[i]), chosen)
		if err != nil {
			out.skip = err.Error()
		}
		out.findings, out.lines, out.looked = findings, lines, lines > 0
	})
	if err != nil {
		return nil, err
	}
	for i, out := range outcomes {
		if out.skip != "" {
			r.Skipped = append(r.Skipped, Skip{files[i], out.skip})
		}
		if out.looked {
			r.Files++
		}
		r.Lines += out.lines
		r.Findings = append(r.Findings, out.findings...)
	}
	slices.SortStableFunc(r.Skipped, func(a, b Skip) int { return strings.Compare(a.File, b.File) })
	return r, nil
}

// each runs f(0) … f(n-1), jobs at a time.
func each(ctx context.Context, jobs, n int, f func(int)) error {
	var g errgroup.Group
	g.SetLimit(jobs)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if ctx.Err() == nil {
				f(i)
			}
			return ctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// CheckText looks at one text, as standard input or an editor gives it, without
// knowing other files.
func CheckText(name string, data []byte, o Options) ([]Finding, error) {
	chosen, err := choose(o)
	if err != nil {
		return nil, err
	}
	findings, _, err := checkFile(name, data, nil, rules.Surroundings{}, isTest(name), chosen)
	if errors.Is(err, errIntricate) {
		err = nil
	}
	return findings, err
}

// selection says which rules run and whether advice is wanted.
type selection struct {
	rules []*rules.Rule
	info  map[*rules.Rule]bool // advice of this rule is wanted
}

// checkFile looks at one file and returns what it found and how many lines it
// has; 0 where there is nothing to look at.
func checkFile(name string, data []byte, project *model.Project, around rules.Surroundings, test bool, s selection) ([]Finding, int, error) {
	pass := rules.Pass{Around: around, IsTest: test}
	var f *pysource.File
	var err error
	if isPython(name) {
		if f, err = pysource.Parse(name, data); err != nil {
			return nil, 0, err
		}
		if !concerns(f.Src) {
			return nil, strings.Count(f.Src, "\n") + 1, nil
		}
		pass.M = model.New(f, project)
		pass.Settings = rules.PythonSettings(pass.M)
	} else {
		kind, ok := textKind(name)
		if !ok && !isJSON(name) {
			return nil, 0, nil
		}
		if f, err = pysource.ReadText(name, data); err != nil {
			return nil, 0, err
		}
		if !concerns(f.Src) {
			return nil, strings.Count(f.Src, "\n") + 1, nil
		}
		if ok {
			pass.Settings = rules.TextSettings(kind, f.Src)
		}
	}
	pass.File = f
	var out []Finding
	if ignoresFile(f) {
		return nil, strings.Count(f.Src, "\n") + 1, nil
	}
	found, complete := rules.Check(pass, s.rules)
	if !complete {
		err = errIntricate
	}
	for _, x := range found {
		if x.Severity == rules.Info && !s.info[x.Rule] || suppressed(f, x) {
			continue
		}
		out = append(out, locate(f, name, x))
	}
	return out, strings.Count(f.Src, "\n") + 1, err
}

// errIntricate comes with the findings of the rules that ended.
var errIntricate = errors.New("is too intricate to be checked in full (generated?); some rules did not end")

func locate(f *pysource.File, name string, x rules.Finding) Finding {
	line, column := f.Position(x.Start)
	endLine, endColumn := f.Position(x.End)
	source, _ := f.Line(x.Start)
	out := Finding{
		Rule: x.Rule, Severity: x.Severity, File: name, Line: line, Column: column, EndLine: endLine, EndColumn: endColumn,
		Message: x.Message, Source: source, Fix: x.Fix, Edits: x.Edits,
	}
	out.Cell, out.CellLine = f.Cell(x.Start)
	if f.Notebook { // offsets are those of the cells' text, not of the file
		out.Fix, out.Edits = "", nil
	}
	return out
}

// concerns reports whether a text can be of interest: it names something that
// uses a GPU. Other files cost no more than this search.
func concerns(src string) bool {
	for _, word := range []string{"torch", "tensorflow", "keras", "jax", "backward(", ".eval()", ".train()", "zero_grad", "lightning", "transformers", "accelerate", "deepspeed",
		"PYTORCH_", "PYTROCH", "XLA_", "TF_", "CUDA_", "JAX_", "zero_optimization", "trl", "peft", "TrainingArguments",
		"from_pretrained", "nn.Module", "DataLoader", "GradScaler", "Accelerator", "checkpoint(", "tf.", "jnp.", ".cuda()", ".step(", "precision=", "fully_shard",
		"forward_hook", "cross_entropy", "softmax(", "retain_graph", "scaler"} {
		if strings.Contains(src, word) {
			return true
		}
	}
	return false
}

// isTest reports whether a file is a test or for debugging, by its path from
// the folder that was given: there, waste is no matter.
func isTest(name string) bool {
	for _, part := range strings.Split(filepath.ToSlash(name), "/") {
		part = strings.ToLower(strings.TrimSuffix(part, filepath.Ext(part)))
		if part == "test" || part == "tests" || part == "testing" || strings.HasPrefix(part, "test_") || strings.HasSuffix(part, "_test") || strings.Contains(part, "debug") || part == "conftest" {
			return true
		}
	}
	return false
}

// read returns a file's content, or why it was not read.
func read(name string) ([]byte, string) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, "cannot be read: " + plainError(err)
	case !info.Mode().IsRegular():
		return nil, "is not a regular file"
	case info.Size() > pysource.MaxSize:
		return nil, pysource.ErrTooLarge.Error()
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, "cannot be read: " + plainError(err)
	}
	return data, ""
}

// plainError is the reason without the path, which is said already.
func plainError(err error) string {
	s := err.Error()
	if i := strings.LastIndex(s, ": "); i >= 0 {
		return s[i+2:]
	}
	return s
}
