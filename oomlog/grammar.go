package oomlog

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// grammar is one message form. The tables of them are in the files
// grammar_*.go; the messages that test them are beside, in grammar_*_test.go.
type grammar struct {
	id        string // framework/form
	framework string
	version   string // the versions that print this form
	form      string // what it is, for people
	// needles are the fixed strings that lead to a candidate. One is enough.
	needles []string
	kind    Kind
	// role is empty for a message of its own; see the role constants.
	role   role
	memory Memory
	// pattern reads the candidate. It is a regular expression in which white
	// space does not count and {name} or {name:type} is a field: see fieldTypes.
	pattern string
	// weak forms count only where no other is found on their line.
	weak bool
	// decimal is set where the source's MB and GB are powers of ten.
	decimal bool
	// fixed are details that the form itself says.
	fixed []Detail
	// fact describes what a role of factRole records.
	fact     FactKind
	factName string
}

// role is what a form other than a message of its own is for.
type role uint8

const (
	ownMessage role = iota
	// addsTo forms fill in the failure just before them in their stream: lines
	// of a dump, the second line of a pair.
	addsTo
	// factRole forms are kept as facts of the report.
	factRole
)

// Form describes a message form for documentation.
type Form struct {
	ID        string
	Framework string
	Versions  string
	Form      string
	Kind      Kind
	Memory    Memory
	Fields    []string
}

// Grammars lists the message forms that [Scan] reads, in the order of the tables.
func Grammars() []Form {
	var out []Form
	for _, g := range grammarTable() {
		if g.role == factRole {
			continue
		}
		out = append(out, Form{
			ID: g.id, Framework: g.framework, Versions: g.version, Form: g.form,
			Kind: g.kind, Memory: g.memory, Fields: g.fields(),
		})
	}
	return out
}

// grammarTable returns all forms. Where two read the same text, the earlier wins.
func grammarTable() []grammar {
	return slices.Concat(
		serverGrammars(), pytorchGrammars(), pytorchDeviceGrammars(), collectiveGrammars(),
		tensorflowGrammars(), jaxGrammars(), ggmlGrammars(), runtimeGrammars(), libraryGrammars(),
		hostGrammars(), cudaGrammars(), consequenceGrammars(), lastGrammars(), factGrammars(),
	)
}

// fieldTypes are the regular expressions of the field types, in squeezed text.
var fieldTypes = map[string]string{
	"size":   `[0-9][0-9,]*(?:\.[0-9]+)?(?:bytes|[kKMGT]i?B?|B)`,
	"n":      `[0-9][0-9,]*`,                   // whole bytes, no unit
	"g":      `[0-9]+(?:\.[0-9]+)?`,            // a number of GiB whose unit stands elsewhere
	"m":      `[0-9][0-9,]*(?:\.[0-9]+)?`,      // the same in MiB
	"c":      `-?[0-9][0-9,]*(?:\.[0-9]+)?`,    // a count of something else
	"i":      `[0-9]+`,                         // an ordinal
	"t":      `.{1,160}?`,                      // text up to what follows
	"w":      `[A-Za-z0-9_./:\-\[\]<>]{1,160}`, // one word
	"word":   `[A-Za-z0-9_]{1,80}`,
	"quoted": `[^'"]{1,160}`,
	"procs":  `(?:Process[0-9]+has[0-9.]+(?:bytes|[KMGT]iB)memoryinuse\.|Includingnon-PyTorchmemory,thisprocesshas[0-9.]+(?:bytes|[KMGT]iB)memoryinuse\.)*`,
}

// defaultType gives the type of fields whose name decides it.
func defaultType(name string) string {
	switch name {
	case "device", "rank", "pid":
		return "i"
	case "where", "op", "dtype":
		return "w"
	case "shape":
		return "t"
	case "procs":
		return "procs"
	}
	return "size"
}

var optionalSpace = regexp.MustCompile(` [?*]`)

var fieldSyntax = regexp.MustCompile(`\{([a-z_]+[0-9]?)(?::([a-z]+))?\}`)

// compile turns a pattern into a regular expression over squeezed text. Group
// names are name__type.
func compile(pattern string) *regexp.Regexp {
	pattern = optionalSpace.ReplaceAllString(pattern, "")
	pattern = strings.Map(func(r rune) rune {
		if r <= ' ' {
			return -1
		}
		return r
	}, pattern)
	return regexp.MustCompile(fieldSyntax.ReplaceAllStringFunc(pattern, func(field string) string {
		m := fieldSyntax.FindStringSubmatch(field)
		name, typ := m[1], m[2]
		if typ == "" {
			typ = defaultType(strings.TrimRight(name, "0123456789"))
		}
		return "(?P<" + name + "__" + typ + ">" + fieldTypes[typ] + ")"
	}))
}

// fields lists what the form recovers, in the order of its pattern.
func (g *grammar) fields() []string {
	var out []string
	for _, m := range fieldSyntax.FindAllStringSubmatch(g.pattern, -1) {
		name := strings.TrimRight(m[1], "0123456789")
		if slices.Contains(out, name) {
			continue
		}
		out = append(out, name)
	}
	return out
}

// matcher is the compiled table: the needles of all forms, and their patterns
// compiled when first needed. One matcher serves one scan.
type matcher struct {
	table   []grammar
	find    *needles
	byWord  []int // needle → form
	regexps []*regexp.Regexp
}

// sharedNeedles is built once for all scans: it is read only.
var sharedNeedles = sync.OnceValues(func() (*needles, []int) {
	var words []string
	var of []int
	for i, g := range grammarTable() {
		for _, w := range g.needles {
			words, of = append(words, w), append(of, i)
		}
	}
	return newNeedles(words), of
})

func newMatcher() *matcher {
	find, byWord := sharedNeedles()
	table := grammarTable()
	return &matcher{table: table, find: find, byWord: byWord, regexps: make([]*regexp.Regexp, len(table))}
}

func (m *matcher) regexp(i int) *regexp.Regexp {
	if m.regexps[i] == nil {
		m.regexps[i] = compile(m.table[i].pattern)
	}
	return m.regexps[i]
}
