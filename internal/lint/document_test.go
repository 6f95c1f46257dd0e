package lint

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vramscope/internal/lint/rules"
)

var update = flag.Bool("update", false, "rewrite docs/lint-rules.md")

const documentHead = `# The rules of ` + "`vramscope lint`" + `

Written from the rules and their examples by ` + "`go test ./internal/lint -run TestDocument -update`" + `. Each example is
also a test: bad code is found at its line, good code has no finding, and code that looks like the fault and is none
(internal/lint/rules/examples, "trap") stays silent.

Severity: **error** crashes or silently has no effect, **warning** is a leak or a large waste, **info** is advice and shown
with ` + "`--pedantic`" + ` or when selected by id. A rule marked *fix* changes the code with ` + "`--fix`" + ` where that is safe.

## Using it

    vramscope lint .                                   # 1: something found
    vramscope lint . --select graph,GM5 --ignore GM501
    vramscope lint . --write-baseline lint-base.json   # old code: then --baseline lint-base.json
    vramscope lint . --diff                            # what --fix would change
    vramscope lint . --format github                   # annotations in a workflow; sarif for code scanning
    vramscope lint --explain GM101

* In the code: ` + "`# vramscope: ignore[GM101]` or `# noqa: GM101`" + ` on the line or above it, ` + "`# vramscope: ignore-file`" + `.
* In pyproject.toml: the table ` + "`[tool.vramscope.lint]`" + ` (or ` + "`[lint]`" + ` of vramscope.toml) with select, ignore, exclude, baseline,
  pedantic. The first such file from the given folder upwards counts; flags win.
* pre-commit: the hook ` + "`vramscope-lint`" + ` of .pre-commit-hooks.yaml.
* Editors: ` + "`vramscope lint --lsp`" + ` is a language server over standard input and output, with quick fixes. It sees one file at a
  time, so what other files say about it is not known there.
* Beside Python files and notebooks it reads shell scripts, Dockerfiles, YAML, .env files and DeepSpeed JSON for settings.
  Versions of torch and transformers are taken from requirements, pyproject.toml, lock files or the image of a Dockerfile.
* What cannot be read (binary, above 8 MiB, another encoding, a link in a circle) is named and skipped.

## How it sees code

1. **Reading** (internal/pysource). An own reader in Go: a lexer by hand, recursive descent, precedence climbing. A logical
   line that cannot be read costs that line only; a bracket that is never closed ends at the next line that begins with a
   word such as ` + "`def`" + `. It takes Python 2 to 3.14 and notebooks. Compared node by node with CPython 3.11 over 7,904 files
   of Debian packages (torch, torchvision, NumPy, SciPy, pandas, SymPy, Django …) it agrees on every node and place, and it
   reads about 600,000 lines a second on one core. The alternative, tree-sitter's Python grammar, reads 2 to 3 MB/s by cgo
   (notes/go-stack.md §8; this reader: 11 MB/s), which we do not use, and would need a C compiler for WebAssembly and a runtime
   in the binary otherwise; that way was not built or measured, because the own reader met the bars.
2. **Meaning** (internal/lint/model). Values are followed through assignments, branches (joined), loops (run twice), calls
   and returns, classes and their attributes, and imports between the files of a scan. What a thing is follows from how it was
   made or used: what ` + "`backward()`" + ` is called on is a tensor with a graph, what has both ` + "`step()` and `zero_grad()`" + ` is an
   optimizer. Nothing is known by its name, but for names that nothing in a file binds (a fragment, or import *): ` + "`nn`, `F`, `tf`" + `
   and the like are then what they usually are. Gradients are known to be off under ` + "`no_grad`" + ` and the like, in functions that
   only run there, and in the methods that a framework runs so.
3. **Rules** (internal/lint/rules). A rule is its words and one function. What the model does not know, a rule is silent about.

Speed: the PyTorch 1.13 and torchvision sources, 1.05 million lines with all rules, take 12 s on one core (5 million lines a
minute); with the installed packages of docs/lint-noise.md, 11,000 files, 36 s of processor time and 380 MiB. A file whose
rules take too much work, which only generated code does, is named and its remaining rules are left out. docs/lint-noise.md has what it finds in code that is thought correct.
`

func document() string {
	var b strings.Builder
	b.WriteString(documentHead)
	for _, r := range rules.All() {
		fix := ""
		if r.Fixes {
			fix = ", *fix*"
		}
		fmt.Fprintf(&b, "\n## %s %s\n\n**%s**, group %s%s. %s\n\n", r.ID, r.Name, r.Severity, r.Group, fix, r.Says)
		fmt.Fprintf(&b, "* Cost: %s\n* Instead: %s\n", r.Cost, r.Instead)
		if r.Quiet != "" {
			fmt.Fprintf(&b, "* Quiet: %s\n", r.Quiet)
		}
		fmt.Fprintf(&b, "* Source: %s\n", r.Source)
		for _, kind := range []string{"bad", "good"} {
			for _, e := range rules.Examples(r.ID) {
				if e.Kind == kind {
					language := "python"
					if !strings.HasSuffix(e.File, ".py") {
						language = "text"
					}
					fmt.Fprintf(&b, "\n%s:\n\n```%s\n%s```\n", strings.ToUpper(kind[:1])+kind[1:], language, e.Plain())
					break
				}
			}
		}
	}
	return b.String()
}

// TestDocument holds docs/lint-rules.md to the rules.
func TestDocument(t *testing.T) {
	const name = "../../docs/lint-rules.md"
	want := document()
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("rewrite it with -update:\n%.2000s", diff)
	}
}
