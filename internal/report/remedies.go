package report

import (
	"fmt"
	"strings"

	"vramscope/bytesize"
	"vramscope/internal/cause"
	"vramscope/internal/remedy"
	"vramscope/internal/term"
)

// Remedies is the result of the remedies command.
type Remedies struct {
	Remedies []Remedy `json:"remedies"`

	shown     []*remedy.Remedy
	framework string // "" for all
	cause     cause.ID
}

// Remedy is one entry of the catalogue.
type Remedy struct {
	ID          string                  `json:"id"`
	Group       string                  `json:"group"`
	Title       string                  `json:"title"`
	Summary     string                  `json:"summary"`
	Saves       RemedySaves             `json:"saves"`
	UselessWhen []string                `json:"useless_when"`
	Cost        RemedyCost              `json:"cost"`
	Risk        RemedyRisk              `json:"risk"`
	Causes      []cause.ID              `json:"causes"`
	Changes     map[string]RemedyChange `json:"changes"`
	Measured    []RemedyMeasured        `json:"measured"`
	Sources     []string                `json:"sources"`
}

// RemedySaves is the effect of a remedy on memory.
type RemedySaves struct {
	Text        string            `json:"text"`
	Formula     string            `json:"formula"`
	FormulaText string            `json:"formula_text"`
	ActsOn      []remedy.Category `json:"acts_on"`
}

// RemedyCost is the effect of a remedy on speed.
type RemedyCost struct {
	RelativeStepTime *float64 `json:"relative_step_time"`
	Basis            string   `json:"basis"`
	Note             string   `json:"note"`
}

// RemedyRisk is the effect of a remedy on what is computed.
type RemedyRisk struct {
	Level string `json:"level"`
	Note  string `json:"note"`
}

// RemedyChange is what to write for a framework.
type RemedyChange struct {
	Text  string `json:"text"`
	Needs string `json:"needs"`
}

// RemedyMeasured is one measurement with and without the remedy.
type RemedyMeasured struct {
	Job     string            `json:"job"`
	On      string            `json:"on"`
	Variant string            `json:"variant"`
	Before  RemedyMeasurement `json:"before"`
	After   RemedyMeasurement `json:"after"`
}

// RemedyMeasurement is one measured run.
type RemedyMeasurement struct {
	Batch         int      `json:"batch"`
	Accumulate    int      `json:"accumulate"`
	PeakAllocated int64    `json:"peak_allocated_bytes"`
	PeakReserved  int64    `json:"peak_reserved_bytes"`
	EndReserved   *int64   `json:"end_reserved_bytes"`
	StepSeconds   *float64 `json:"step_seconds"`
}

// NewRemedies makes the report of these remedies. Where framework is not
// empty, only the change for it is shown; where c is not empty, they were
// chosen as the answers to it.
func NewRemedies(list []*remedy.Remedy, framework string, c cause.ID) *Remedies {
	r := &Remedies{Remedies: []Remedy{}, shown: list, framework: framework, cause: c}
	for _, m := range list {
		r.Remedies = append(r.Remedies, newRemedy(m, framework))
	}
	return r
}

func newRemedy(m *remedy.Remedy, framework string) Remedy {
	f, _ := remedy.LookupFormula(m.Saves.Formula)
	out := Remedy{
		ID: m.ID, Group: m.Group, Title: m.Title, Summary: m.Summary,
		Saves:       RemedySaves{m.Saves.Text, string(f.ID), f.Text, append([]remedy.Category{}, m.Saves.ActsOn...)},
		UselessWhen: m.UselessWhen,
		Cost:        RemedyCost(m.Cost),
		Risk:        RemedyRisk(m.Risk),
		Causes:      append([]cause.ID{}, m.Causes...),
		Changes:     map[string]RemedyChange{},
		Measured:    []RemedyMeasured{},
		Sources:     m.Sources,
	}
	if framework != "" {
		if c, ok := m.Change(framework); ok {
			out.Changes[framework] = RemedyChange(c)
		}
	} else {
		for id, c := range m.Changes {
			out.Changes[id] = RemedyChange(c)
		}
	}
	for _, e := range remedy.Examples(m.ID) {
		out.Measured = append(out.Measured, RemedyMeasured{e.Job, remedy.MeasuredOn, e.Variant, measurement(e.Before), measurement(e.After)})
	}
	return out
}

func measurement(e remedy.Effect) RemedyMeasurement {
	return RemedyMeasurement{e.Batch, e.Accumulate, int64(e.PeakAllocated), int64(e.PeakReserved), e.EndReserved, e.StepSeconds}
}

// Text prints a list, or everything about the one remedy that was asked for.
func (r *Remedies) Text(p *term.Printer, one bool) error {
	if one && len(r.shown) == 1 {
		r.one(p, r.shown[0])
		return p.Err()
	}
	if c, ok := cause.Lookup(r.cause); ok {
		p.Print(p.Styled(term.Bold, "Against "+string(c.ID)+": "+c.Title) + "\n")
		p.Wrap("", 0, c.Explain)
	}
	group := ""
	for _, m := range r.shown {
		if m.Group != group {
			if group != "" || r.cause != "" {
				p.Print("\n")
			}
			group = m.Group
			p.Print(p.Styled(term.Bold, group) + "\n")
		}
		p.Wrap(fmt.Sprintf("  %-29s", m.ID), 31, m.Title)
	}
	if len(r.shown) > 0 {
		p.Print("\n")
	}
	noun := "remedies"
	if len(r.shown) == 1 {
		noun = "remedy"
	}
	p.Wrap("", 0, fmt.Sprintf("%d %s. `vramscope remedies ID` shows what one saves, costs and risks, and the change for each framework.", len(r.shown), noun))
	return p.Err()
}

// margin is the width of the labels on the left.
const margin = 11

func (r *Remedies) one(p *term.Printer, m *remedy.Remedy) {
	p.Print(p.Styled(term.Bold, m.Title) + "\n")
	p.Print(p.Styled(term.Faint, m.ID+" · "+m.Group) + "\n\n")
	p.Wrap("", 0, m.Summary)
	p.Print("\n")
	field := func(label, text string) {
		p.Wrap(fmt.Sprintf("%-*s", margin, label), margin, text)
	}
	list := func(label string, items []string) {
		for i, item := range items {
			if i > 0 {
				label = ""
			}
			p.Wrap(fmt.Sprintf("%-*s- ", margin, label), margin+2, item)
		}
	}
	field("Saves", m.Saves.Text)
	if f, ok := remedy.LookupFormula(m.Saves.Formula); ok && f.ID != "unquantified" {
		field("", "Formula: "+f.Text)
	}
	list("Not when", m.UselessWhen)
	field("Step time", costText(m.Cost))
	field("Risk", riskText(m.Risk))
	if len(m.Causes) > 0 {
		var ids []string
		for _, c := range m.Causes {
			ids = append(ids, string(c))
		}
		field("Against", strings.Join(ids, ", "))
	}
	if ex := remedy.Examples(m.ID); len(ex) > 0 {
		field("Measured", "on "+remedy.MeasuredOn+", each alone:")
		for _, e := range ex {
			name := e.Job
			if len(m.Measured) > 1 {
				name += " (" + e.Variant + ")"
			}
			p.Wrap(strings.Repeat(" ", margin)+"- ", margin+2, name+", "+e.Effects())
		}
	}
	r.changes(p, m)
	p.Print("\n")
	list("Sources", m.Sources)
}

func (r *Remedies) changes(p *term.Printer, m *remedy.Remedy) {
	for _, f := range remedy.Frameworks() {
		var c remedy.Change
		ok := false
		switch r.framework {
		case "":
			c, ok = m.Changes[f.ID]
		case f.ID:
			if c, ok = m.Change(f.ID); !ok {
				p.Printf("\nNo change is known for %s.\n", f.Name)
			}
		}
		if !ok {
			continue
		}
		p.Print("\n" + p.Styled(term.Bold, f.Name) + "\n")
		if c.Needs != "" {
			p.Wrap("  ", 2, "needs "+c.Needs)
		}
		p.Print("    " + strings.ReplaceAll(strings.TrimRight(c.Text, "\n"), "\n", "\n    ") + "\n")
	}
}

func costText(c remedy.Cost) string {
	var parts []string
	if c.RelativeStepTime != nil {
		parts = append(parts, fmt.Sprintf("× %.2f (%s)", *c.RelativeStepTime, c.Basis))
	} else {
		parts = append(parts, "no single number ("+c.Basis+")")
	}
	if c.Note != "" {
		parts = append(parts, c.Note)
	}
	return strings.Join(parts, "; ")
}

func riskText(k remedy.Risk) string {
	text := map[string]string{
		"none":             "none to the numbers",
		"rounding":         "rounding",
		"changes_training": "changes the training",
		"quality":          "may cost quality",
	}[k.Level]
	if k.Note != "" {
		text += "; " + k.Note
	}
	return text
}

// RemediesMarkdown is the whole catalogue as a page: docs/remedies.md.
func RemediesMarkdown() string {
	var b strings.Builder
	b.WriteString("# Remedies\n\n")
	b.WriteString("What changes the memory of a GPU job: what each measure saves and by which formula, when it is useless, what it costs and risks, and the exact change for each framework. " +
		"`vramscope remedies` shows the same in a terminal. This page is written by `go test ./internal/report -run TestRemediesPage -update` from internal/remedy/catalog; do not edit it.\n\n")
	b.WriteString("Formulas: A activations, W weights, G gradients, S optimizer state, g cards that share the work; all are upper bounds. " +
		"Step time is relative to the job without the measure. Measured values come from one " + remedy.MeasuredOn + ".\n")
	group := ""
	for _, m := range remedy.All() {
		if m.Group != group {
			group = m.Group
			fmt.Fprintf(&b, "\n## %s\n", group)
		}
		markdown(&b, m)
	}
	return b.String()
}

func markdown(b *strings.Builder, m *remedy.Remedy) {
	fmt.Fprintf(b, "\n### %s\n\n`%s`\n\n%s\n\n", m.Title, m.ID, m.Summary)
	fmt.Fprintf(b, "* **Saves:** %s", m.Saves.Text)
	if f, ok := remedy.LookupFormula(m.Saves.Formula); ok && f.ID != "unquantified" {
		fmt.Fprintf(b, " (%s)", f.Text)
	}
	fmt.Fprintf(b, "\n* **Useless when:** %s\n", strings.Join(m.UselessWhen, "; "))
	fmt.Fprintf(b, "* **Step time:** %s\n* **Risk:** %s\n", costText(m.Cost), riskText(m.Risk))
	var causes []string
	for _, c := range m.Causes {
		causes = append(causes, "`"+string(c)+"`")
	}
	if len(causes) > 0 {
		fmt.Fprintf(b, "* **Against:** %s\n", strings.Join(causes, ", "))
	}
	for _, e := range remedy.Examples(m.ID) {
		name := e.Job
		if len(m.Measured) > 1 {
			name += " (" + e.Variant + ")"
		}
		fmt.Fprintf(b, "* **Measured:** %s, %s\n", name, e.Effects())
	}
	fmt.Fprintf(b, "* **Sources:** %s\n", strings.Join(m.Sources, "; "))
	for _, f := range remedy.Frameworks() {
		c, ok := m.Changes[f.ID]
		if !ok {
			continue
		}
		fmt.Fprintf(b, "\n%s", f.Name)
		if c.Needs != "" {
			fmt.Fprintf(b, " (needs %s)", c.Needs)
		}
		fmt.Fprintf(b, ":\n\n```\n%s\n```\n", strings.TrimRight(c.Text, "\n"))
	}
}

// sizeOr prints a size that may be unknown.
func sizeOr(s *bytesize.Size, unknown string) string {
	if s == nil {
		return unknown
	}
	return s.String()
}
