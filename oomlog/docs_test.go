package oomlog

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/log-formats.md")

// TestDocs holds docs/log-formats.md to the table of grammars.
func TestDocs(t *testing.T) {
	const file = "../docs/log-formats.md"
	want := formatsPage()
	if *update {
		if err := os.MkdirAll("../docs", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the table of grammars gives: go test ./oomlog -run TestDocs -update", file)
	}
}

func formatsPage() string {
	var b strings.Builder
	b.WriteString(`# Log messages

<!-- Written by go test ./oomlog -run TestDocs -update from the table of grammars. -->

` + "`vramscope explain`" + ` reads these messages in any log: through colours, progress bars, CRLF, UTF-16, the prefixes of
Docker, Kubernetes, journald, torchrun, Slurm, mpirun, Ray and vLLM, ranks that write in turn, and lines that a terminal or
a mail program wrapped. Sizes mean what the source means by them; where the source prints GB and counts in powers of two,
so do we. A field that a message lacks stays unknown.

The kind *failure* becomes *caught* when the program goes on afterwards or says that it handled it, and *mention* when the
message is part of prose, a data row, a comment or a code block. *adds* lines fill in the message before them. *masked* in
the fields marks errors that do not speak of memory and most often come from a lack of it.

`)
	forms := Grammars()
	adds := map[string]bool{}
	fixed := map[string][]Detail{}
	for _, g := range grammarTable() {
		adds[g.id] = g.role == addsTo
		fixed[g.id] = g.fixed
	}
	last := ""
	var order []string
	by := map[string][]Form{}
	for _, f := range forms {
		if f.Kind == Mention {
			continue
		}
		if len(by[f.Framework]) == 0 {
			order = append(order, f.Framework)
		}
		by[f.Framework] = append(by[f.Framework], f)
	}
	for _, framework := range order {
		if framework != last {
			fmt.Fprintf(&b, "## %s\n\n| form | versions | what it is | memory | kind | fields |\n|---|---|---|---|---|---|\n", framework)
			last = framework
		}
		for _, f := range by[framework] {
			kind := string(f.Kind)
			if adds[f.ID] {
				kind = "adds"
			}
			fields := f.Fields
			for _, d := range fixed[f.ID] {
				fields = append(fields, d.Name)
			}
			versions := f.Versions
			if versions == "" {
				versions = "all"
			}
			_, form, _ := strings.Cut(f.ID, "/")
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", form, strings.ReplaceAll(versions, "|", "\\|"), f.Form, f.Memory, kind, strings.Join(fields, ", "))
		}
		b.WriteString("\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
