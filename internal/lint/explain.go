package lint

import (
	"fmt"
	"strings"

	"vramscope/internal/lint/rules"
	"vramscope/internal/term"
)

// Explain prints what a rule looks for, what it costs, and examples.
func Explain(p *term.Printer, id string) error {
	for _, r := range rules.All() {
		if !strings.EqualFold(r.ID, id) && !strings.EqualFold(r.Name, id) {
			continue
		}
		p.Printf("%s %s (%s, group %s)\n\n", p.Styled(term.Bold, r.ID), r.Name, p.Styled(style(r.Severity), string(r.Severity)), r.Group)
		p.Wrap("", 0, r.Says)
		p.Print("\n")
		field := func(name, text string) {
			if text != "" {
				p.Wrap(fmt.Sprintf("%-9s", name), 9, text)
			}
		}
		field("Cost", r.Cost+".")
		field("Instead", r.Instead)
		field("Quiet", r.Quiet)
		if r.Fixes {
			field("Fix", "--fix changes it where that is safe")
		}
		if r.Remedy != "" {
			field("Remedy", "vramscope remedies "+r.Remedy)
		}
		field("Source", r.Source)
		for _, kind := range []string{"bad", "good"} {
			for _, e := range rules.Examples(r.ID) {
				if e.Kind == kind {
					p.Printf("\n%s:\n", p.Styled(term.Bold, strings.ToUpper(kind[:1])+kind[1:]))
					for _, l := range strings.Split(strings.TrimRight(e.Plain(), "\n"), "\n") {
						p.Print(strings.TrimRight("    "+l, " ") + "\n")
					}
					break
				}
			}
		}
		return p.Err()
	}
	return fmt.Errorf("no rule is called %q (vramscope lint --list shows them)", id)
}

// List prints all rules, a line each.
func List(p *term.Printer) error {
	var groups []string
	byGroup := map[string][]*rules.Rule{}
	for _, r := range rules.All() {
		if byGroup[r.Group] == nil {
			groups = append(groups, r.Group)
		}
		byGroup[r.Group] = append(byGroup[r.Group], r)
	}
	for _, g := range groups {
		p.Printf("%s\n", p.Styled(term.Bold, g))
		for _, r := range byGroup[g] {
			fix := " "
			if r.Fixes {
				fix = "f"
			}
			p.Wrap(fmt.Sprintf("  %-6s %-7s %s ", r.ID, r.Severity, fix), 19, r.Says)
		}
	}
	return p.Err()
}
