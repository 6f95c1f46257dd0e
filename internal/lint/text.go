package lint

import (
	"fmt"
	"strings"

	"vramscope/internal/lint/rules"
	"vramscope/internal/term"
)

// maxShown is the longest source line that the text output shows, in
// characters.
const maxShown = 160

// Text prints the findings with their source lines and a caret, then a
// summary.
func (r *Result) Text(p *term.Printer) {
	for _, f := range r.Findings {
		place := fmt.Sprintf("%s:%d:%d", term.Safe(f.File), f.Line, f.Column)
		if f.Cell > 0 {
			place += fmt.Sprintf(" (cell %d, line %d)", f.Cell, f.CellLine)
		}
		p.Printf("%s: %s %s %s\n", p.Styled(term.Bold, place), p.Styled(style(f.Severity), string(f.Severity)), f.Rule.ID, term.Safe(f.Message))
		source, caret := excerpt(f)
		if source != "" {
			p.Printf("    %s\n    %s\n", source, p.Styled(style(f.Severity), caret))
		}
		if f.Fix != "" {
			p.Printf("    %s\n", p.Styled(term.Faint, "fix: "+f.Fix))
		}
	}
	for _, s := range r.Skipped {
		p.Printf("%s: skipped: %s\n", term.Safe(s.File), s.Why)
	}
	p.Print(r.summary() + "\n")
}

func style(s rules.Severity) term.Style {
	switch s {
	case rules.Error:
		return term.Red
	case rules.Warning:
		return term.Gold
	}
	return term.Blue
}

func (r *Result) summary() string {
	n := len(r.Findings)
	fixes := 0
	for _, f := range r.Findings {
		if f.Fix != "" {
			fixes++
		}
	}
	s := fmt.Sprintf("%s in %s", count(n, "finding"), count(r.Files, "file"))
	if len(r.Skipped) > 0 {
		s += fmt.Sprintf(", %d skipped", len(r.Skipped))
	}
	if fixes > 0 {
		s += fmt.Sprintf("; %d can be fixed with --fix", fixes)
	}
	return s
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// excerpt returns the source line, without its indentation and cut to what
// fits, and carets under the finding.
func excerpt(f Finding) (source, caret string) {
	line := []rune(strings.ReplaceAll(f.Source, "\t", " "))
	trimmed := []rune(strings.TrimLeft(string(line), " "))
	col := f.Column - 1 - (len(line) - len(trimmed))
	if len(trimmed) == 0 || col < 0 || col > len(trimmed) {
		return "", ""
	}
	width := len(trimmed) - col
	if f.EndLine == f.Line {
		width = f.EndColumn - f.Column
	}
	if col > maxShown/2 {
		cut := col - maxShown/4
		trimmed = append([]rune("…"), trimmed[cut:]...)
		col -= cut - 1
	}
	if len(trimmed) > maxShown {
		trimmed = append(trimmed[:maxShown:maxShown], '…')
	}
	width = max(1, min(width, len(trimmed)-col))
	return term.Safe(string(trimmed)), strings.Repeat(" ", col) + strings.Repeat("^", width)
}

// GitHub prints the findings as annotations of a GitHub workflow.
// (docs.github.com, "Workflow commands": data escapes %, CR and LF, properties
// also : and ,.)
func (r *Result) GitHub(p *term.Printer) {
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	for _, f := range r.Findings {
		level := "warning"
		switch f.Severity {
		case rules.Error:
			level = "error"
		case rules.Info:
			level = "notice"
		}
		p.Printf("::%s file=%s,line=%d,endLine=%d,col=%d,title=%s::%s\n",
			level, property.Replace(f.File), f.Line, f.EndLine, f.Column, property.Replace("vramscope "+f.Rule.ID), data.Replace(f.Message))
	}
}
