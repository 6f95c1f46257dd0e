// Package rules has the rules of `vramscope lint`: what each looks for in the
// model of a file, and what it says about it. A rule is data (id, severity,
// words, source) and one function. A rule goes by values: where the model does
// not know what something is, the rule is silent.
package rules

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"vramscope/internal/lint/model"
	"vramscope/internal/pysource"
)

// Severity says how bad a finding is.
type Severity string

// The severities. Info is advice, shown only when asked for.
const (
	Error   Severity = "error"   // crashes, or silently has no effect
	Warning Severity = "warning" // a leak or a large waste
	Info    Severity = "info"
)

// Rule is one thing to look for.
type Rule struct {
	ID       string
	Name     string
	Group    string
	Severity Severity
	// Says is what is wrong in one sentence; Cost what it costs, and when.
	Says string
	Cost string
	// Instead is what to write.
	Instead string
	// Quiet lists where the rule is silent on purpose.
	Quiet  string
	Source string
	Remedy string // IDs of the catalogue
	Fixes  bool   // offers a safe fix
	// Text says that the rule looks at settings of the environment, in files
	// of all kinds.
	Text  bool
	Check func(*Pass)
}

// Edit replaces a range of the source.
type Edit struct {
	Start, End int
	New        string
}

// Finding is one place that a rule has found.
type Finding struct {
	Rule     *Rule
	Severity Severity
	Start    int
	End      int
	Message  string
	Fix      string // what the edits do, "" without
	Edits    []Edit
}

// Surroundings is what is known beside the file.
type Surroundings struct {
	TorchVersion        string // pinned by the project, "" not known
	TransformersVersion string
	SetsFraction        bool // some file calls set_per_process_memory_fraction
	LimitsJAX           bool // some file sets an XLA memory variable
	Multiprocess        bool // launched by torchrun, accelerate or deepspeed
}

// Pass is one rule looking at one file.
type Pass struct {
	File     *pysource.File
	M        *model.Model // nil for a file that is not Python
	Settings []Setting
	Around   Surroundings
	IsTest   bool // a test, an example of a bug, a debugging script
	rule     *Rule
	findings *[]Finding
	work     *int // what is left of maxWork
}

// Report adds a finding about a node.
func (p *Pass) Report(n pysource.Node, format string, args ...any) *Finding {
	start, end := n.Pos(), n.End()
	switch n := n.(type) {
	case *pysource.Function:
		start, end = n.NamePos, n.NamePos+len(n.Name)
	case *pysource.Class:
		start, end = n.NamePos, n.NamePos+len(n.Name)
	}
	return p.ReportAt(start, end, format, args...)
}

// ReportAt adds a finding about a range.
func (p *Pass) ReportAt(start, end int, format string, args ...any) *Finding {
	*p.findings = append(*p.findings, Finding{
		Rule: p.rule, Severity: p.rule.Severity, Start: start, End: end, Message: fmt.Sprintf(format, args...),
	})
	return &(*p.findings)[len(*p.findings)-1]
}

// WithFix adds a safe fix to a finding.
func (f *Finding) WithFix(what string, edits ...Edit) *Finding {
	f.Fix, f.Edits = what, edits
	return f
}

// As changes the severity of one finding.
func (f *Finding) As(s Severity) *Finding {
	f.Severity = s
	return f
}

// All returns the rules in the order of their ids.
var All = sync.OnceValue(func() []*Rule {
	var all []*Rule
	for _, group := range [][]Rule{
		graphRules, graphRules2, evaluationRules, optimizerRules, accumulationRules, precisionRules, allocatorRules, switchRules,
		loadingRules, dataRules, parallelRules, layerRules, huggingFaceRules, trainerRules, lightningRules, tensorflowRules, jaxRules,
	} {
		for i := range group {
			all = append(all, &group[i])
		}
	}
	slices.SortFunc(all, func(a, b *Rule) int {
		if len(a.ID) != len(b.ID) {
			return len(a.ID) - len(b.ID)
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all
})

// Check runs rules over a file. Findings come in the order of the source.
// complete is false where the file is too intricate to be checked in full: then
// the rules that did not end have found nothing.
func Check(p Pass, rules []*Rule) (findings []Finding, complete bool) {
	work := maxWork
	p.findings, p.work = &findings, &work
	complete = true
	for _, r := range rules {
		if p.M == nil && !r.Text {
			continue
		}
		before := len(findings)
		p.rule = r
		if !p.run(r) {
			findings, complete = findings[:before], false
			break
		}
	}
	slices.SortStableFunc(findings, func(a, b Finding) int { return a.Start - b.Start })
	// One finding of a rule at one place.
	findings = slices.CompactFunc(findings, func(a, b Finding) bool { return a.Rule == b.Rule && a.Start == b.Start })
	return findings, complete
}

// run runs one rule and reports whether it came to its end.
func (p *Pass) run(r *Rule) (ended bool) {
	defer func() {
		if x := recover(); x != nil {
			if _, ok := x.(outOfWork); !ok {
				panic(x)
			}
		}
	}()
	r.Check(p)
	return true
}
