package oomlog

import (
	"bytes"
	"regexp"
	"regexp/syntax"
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
	// back is how many bytes, squeezed, the pattern may begin before the needle;
	// 0 means usualBack.
	back int
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

const usualBack = 48

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
	"n":      `[0-9][0-9,]*`,                                // whole bytes, no unit
	"g":      `[0-9]+(?:\.[0-9]+)?`,                         // a number of GiB whose unit stands elsewhere
	"m":      `[0-9][0-9,]*(?:\.[0-9]+)?`,                   // the same in MiB
	"c":      `-?[0-9][0-9,]*(?:\.[0-9]+)?`,                 // a count of something else
	"i":      `[0-9]+`,                                      // an ordinal
	"t":      `.{1,160}?`,                                   // text up to what follows
	"w":      `[A-Za-z0-9_./:\-\[\]<>]{1,160}`,              // one word
	"step":   `[0-9]+\.(?:[0-9]+|batch|extern|interactive)`, // Slurm's job and step
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
	return regexp.MustCompile("^(?:" + fieldSyntax.ReplaceAllStringFunc(pattern, func(field string) string {
		m := fieldSyntax.FindStringSubmatch(field)
		name, typ := m[1], m[2]
		if typ == "" {
			typ = defaultType(strings.TrimRight(name, "0123456789"))
		}
		return "(?P<" + name + "__" + typ + ">" + fieldTypes[typ] + ")"
	}) + ")")
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

// matcher is the table made ready: the needles of all forms, and their patterns,
// compiled when first needed. It is shared by all scans and does not change.
type matcher struct {
	table    []grammar
	find     *needles
	words    [][]byte // the needles, squeezed
	byWord   []int    // needle → form
	wordsOf  [][]int  // form → needles
	patterns []func() *pattern
}

var sharedMatcher = sync.OnceValue(func() *matcher {
	m := &matcher{table: grammarTable()}
	var words []string
	for i, g := range m.table {
		m.wordsOf = append(m.wordsOf, nil)
		for _, w := range g.needles {
			m.wordsOf[i] = append(m.wordsOf[i], len(words))
			words, m.words, m.byWord = append(words, w), append(m.words, squeeze([]byte(w))), append(m.byWord, i)
		}
		m.patterns = append(m.patterns, sync.OnceValue(func() *pattern { return newPattern(g.pattern) }))
	}
	m.find = newNeedles(words)
	return m
})

// match finds the first place in b[from:until] where the form begins to read b,
// and returns its submatches. The pattern is tried only near a needle, and only
// where its first byte stands: most candidates cost one attempt.
func (m *matcher) match(form int, b []byte, from, until int) []int {
	back := m.table[form].back
	if back == 0 {
		back = usualBack
	}
	p := m.patterns[form]()
	var best []int
	for _, word := range m.wordsOf[form] {
		end := min(len(b), until+back+len(m.words[word]))
		if best != nil {
			end = min(end, best[0]+back+len(m.words[word]))
		}
	needle:
		for at := from; at < end; {
			i := bytes.Index(b[at:end], m.words[word])
			if i < 0 {
				break
			}
			i += at
			at = i + 1
			for start := max(from, i-back); start <= i && start < until; start++ {
				if !p.first[b[start]] {
					continue
				}
				sub := p.re.FindSubmatchIndex(b[start:])
				if sub == nil || sub[1] == 0 {
					continue
				}
				if best == nil || start < best[0] {
					for k := range sub {
						if sub[k] >= 0 {
							sub[k] += start
						}
					}
					best = sub
				}
				break needle
			}
		}
	}
	return best
}

// pattern is a compiled form.
type pattern struct {
	re    *regexp.Regexp
	first [256]bool // the bytes it can begin with
}

func newPattern(text string) *pattern {
	p := &pattern{re: compile(text)}
	parsed, err := syntax.Parse(p.re.String(), syntax.Perl)
	if err != nil {
		panic(err) // it has just been compiled
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		panic(err)
	}
	seen := make([]bool, len(prog.Inst))
	var walk func(pc uint32)
	walk = func(pc uint32) {
		if seen[pc] {
			return
		}
		seen[pc] = true
		switch i := &prog.Inst[pc]; i.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			walk(i.Out)
			walk(i.Arg)
		case syntax.InstCapture, syntax.InstEmptyWidth, syntax.InstNop:
			walk(i.Out)
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			for b := range p.first {
				// A byte beyond ASCII may begin any rune.
				p.first[b] = p.first[b] || b >= 0x80 || i.MatchRune(rune(b))
			}
		}
	}
	walk(uint32(prog.Start))
	return p
}

func (m *matcher) regexp(i int) *regexp.Regexp { return m.patterns[i]().re }
