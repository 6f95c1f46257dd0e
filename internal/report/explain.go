package report

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"vramscope/bytesize"
	"vramscope/internal/cause"
	"vramscope/internal/diagnose"
	"vramscope/internal/remedy"
	"vramscope/internal/term"
)

// ExplainOptions say how much of a diagnosis to show.
type ExplainOptions struct {
	Framework string // whose changes to print; "" means that of the input
	Why       bool   // show the rule that decided each category
	Top       int    // holders and remedies to show
}

// ExplainText writes a diagnosis for people.
func ExplainText(p *term.Printer, r *diagnose.Result, o ExplainOptions) error {
	for i := range r.Inputs {
		if i > 0 {
			p.Print("\n")
		}
		(&explain{p, &r.Inputs[i], o}).print()
	}
	return p.Err()
}

type explain struct {
	*term.Printer
	in *diagnose.Input
	o  ExplainOptions
}

func (x *explain) print() {
	x.Printf("%s\n", x.Styled(term.Bold, term.Safe(x.in.File)))
	x.Wrap("  ", 2, term.Safe(x.in.Summary))
	x.stack()
	x.causes()
	x.holders()
	x.leaks()
	x.remedies()
	x.settings()
	x.batch()
	for _, a := range x.in.Advice {
		x.Print("\n")
		x.Wrap("  Note: ", 8, term.Safe(a))
	}
}

func (x *explain) title(text string) { x.Printf("\n%s\n", x.Styled(term.Bold, text)) }

// stackLines is how many calls of the failing stack are shown.
const stackLines = 12

// stack shows the calls of the fatal request, those inside torch's module
// plumbing folded away.
func (x *explain) stack() {
	if len(x.in.Failures) == 0 || x.in.Failures[0].Survived || len(x.in.Failures[0].Stack) == 0 {
		return
	}
	shown := 0
	for _, line := range x.in.Failures[0].Stack {
		if plumbing(line) {
			continue
		}
		if shown++; shown > stackLines {
			break
		}
		x.Printf("    %s\n", term.Safe(line))
	}
}

// plumbing reports whether a line of a stack is a call inside torch from one
// module to the next.
func plumbing(line string) bool {
	return strings.Contains(line, "torch/nn/modules/module.py") || strings.Contains(line, "torch/nn/modules/container.py")
}

func (x *explain) causes() {
	if len(x.in.Causes) == 0 {
		return
	}
	x.title("Why")
	for _, c := range x.in.Causes {
		title := string(c.ID)
		if info, ok := cause.Lookup(c.ID); ok {
			title = info.Title
		}
		style := term.Bold
		if c.Confidence < 0.5 {
			style = term.Faint
		}
		x.Wrap("  ", 4, x.Styled(style, fmt.Sprintf("%s (%s, confidence %.0f %%)", title, c.ID, 100*c.Confidence)))
		for _, e := range c.Evidence {
			place := ""
			switch {
			case e.Line != nil:
				place = fmt.Sprintf("line %d: ", *e.Line)
			case e.Event != nil:
				place = fmt.Sprintf("event %d: ", *e.Event)
			}
			x.Wrap("    - ", 6, term.Safe(place+e.Text))
		}
	}
}

func (x *explain) holders() {
	if len(x.in.Holders) == 0 {
		return
	}
	when, now := "now", ""
	var total int64
	if m := x.in.Moment; m != nil {
		when = "at the " + strings.ReplaceAll(m.Name, "_", " ")
		if m.Name == "peak_allocated" {
			when = "at the peak of allocated memory"
		}
		now = fmt.Sprintf("event %d: %v in use, %v reserved", m.Event, bytesize.Size(m.Allocated), bytesize.Size(m.Reserved))
		total = m.Allocated
	}
	x.title("Who holds it " + when)
	if now != "" {
		x.Printf("  %s\n", now)
	}
	x.categories()
	for i, h := range x.in.Holders {
		if i >= x.o.Top && x.o.Top > 0 {
			var rest int64
			for _, h := range x.in.Holders[i:] {
				rest += h.Bytes
			}
			x.Printf("  %11v  in %d other places\n", bytesize.Size(rest), len(x.in.Holders)-i)
			break
		}
		share := ""
		if total > 0 {
			share = fmt.Sprintf("%3.0f %%", 100*float64(h.Bytes)/float64(total))
		}
		x.Printf("  %11v %s  %s, %d %s\n", bytesize.Size(h.Bytes), share, h.Category, h.Blocks, plural(h.Blocks, "block"))
		if h.Holder != h.Category {
			x.Wrap("                    ", 20, term.Safe(h.Holder))
		}
		if x.o.Why && h.Why != "" {
			x.Wrap("                    because ", 20, h.Why)
		}
	}
}

// categories shows the split by purpose on a line.
func (x *explain) categories() {
	if x.in.Moment == nil {
		return
	}
	type part struct {
		name  string
		bytes int64
	}
	var parts []part
	for name, n := range x.in.Moment.ByCategory {
		if n > 0 {
			parts = append(parts, part{name, n})
		}
	}
	if len(parts) < 2 {
		return
	}
	sort.Slice(parts, func(i, j int) bool {
		return parts[i].bytes > parts[j].bytes || parts[i].bytes == parts[j].bytes && parts[i].name < parts[j].name
	})
	var words []string
	for _, q := range parts {
		words = append(words, fmt.Sprintf("%s %v", q.name, bytesize.Size(q.bytes)))
	}
	x.Wrap("  ", 2, x.Styled(term.Faint, strings.Join(words, ", ")))
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

func (x *explain) leaks() {
	if len(x.in.Leaks) == 0 {
		return
	}
	x.title("What grows")
	for i, l := range x.in.Leaks {
		if i >= x.o.Top && x.o.Top > 0 {
			x.Printf("  and %d lines more\n", len(x.in.Leaks)-i)
			break
		}
		x.Wrap("  ", 4, fmt.Sprintf("%v a step, %v by now: %s", bytesize.Size(l.PerStep), bytesize.Size(l.Bytes), term.Safe(l.Holder)))
	}
}

func (x *explain) remedies() {
	if len(x.in.Remedies) == 0 {
		return
	}
	x.title("What to change, best first")
	if f := x.in.Failures; len(f) > 0 && !f[0].Survived && f[0].Lacks != nil && *f[0].Lacks > 0 {
		x.Wrap("  ", 2, fmt.Sprintf("It lacks %v: a change must save at least that.", bytesize.Size(*f[0].Lacks)))
	}
	shown, hidden := 0, 0
	for i := range x.in.Remedies {
		r := &x.in.Remedies[i]
		if x.o.Top > 0 && shown >= x.o.Top || x.useless(r) {
			hidden++
			continue
		}
		shown++
		x.remedy(shown, r)
	}
	var nothing []string
	useless := 0
	for i := range x.in.Remedies {
		if r := &x.in.Remedies[i]; x.useless(r) {
			useless++
			if slices.Contains(folklore, r.ID) {
				nothing = append(nothing, r.ID)
			}
		}
	}
	if len(nothing) > 0 {
		x.Wrap("  ", 2, x.Styled(term.Faint, "Often recommended, of no use here: "+strings.Join(nothing, ", ")+"."))
	}
	if slices.ContainsFunc(x.in.Remedies, func(r diagnose.Remedy) bool { return r.AtMost && x.in.Moment != nil }) {
		x.Wrap("  ", 2, x.Styled(term.Faint, "A: activations, W: weights, G: gradients, S: optimizer state."))
	}
	if more := hidden - useless; more > 0 {
		x.Wrap("  ", 2, x.Styled(term.Faint, fmt.Sprintf("%d more with --all or --format json; `vramscope remedies ID` explains each.", more)))
	}
}

// folklore is what people try first, so that it is worth saying when it does
// nothing.
var folklore = []string{
	"empty_cache", "gc_collect", "max_split_size_mb", "garbage_collection_threshold", "roundup_power2_divisions",
	"expandable_segments", "set_to_none", "data_parallel", "jit_script", "channels_last",
}

// changeLines is how much of a change is shown.
const changeLines = 6

// useless reports whether a remedy is only worth a line: it saves nothing worth
// the work (less than a thousandth of what is in use), or takes more.
func (x *explain) useless(r *diagnose.Remedy) bool {
	little := int64(0)
	if m := x.in.Moment; m != nil {
		little = m.Allocated / 1000
	}
	return r.Saves != nil && *r.Saves <= little
}

func (x *explain) remedy(n int, r *diagnose.Remedy) {
	saves := "no number for this job"
	if r.Saves != nil {
		bound := ""
		switch {
		case r.AtLeast:
			bound = "at least "
		case r.AtMost:
			bound = "at most "
		}
		saves = fmt.Sprintf("saves %s%v", bound, bytesize.Size(*r.Saves))
	}
	fits := ""
	switch {
	case r.Fits == nil:
	case *r.Fits:
		fits = x.Styled(term.Green, ", makes it fit")
	default:
		fits = ", not enough alone"
	}
	id := ""
	if !strings.Contains(r.Title, "("+r.ID+")") {
		id = " (" + r.ID + ")"
	}
	x.Wrap(fmt.Sprintf("  %d. ", n), 5, x.Styled(term.Bold, r.Title)+id)
	why := string(r.Basis)
	if r.Why != "" {
		why += ": " + strings.TrimSuffix(strings.TrimPrefix(r.Why, "replayed "), ".")
	}
	x.Wrap("     ", 5, saves+fits+" ("+term.Safe(why)+")")
	cost := r.Cost.Note
	if t := r.Cost.RelativeStepTime; t != nil && *t != 1 {
		cost = strings.TrimSuffix(fmt.Sprintf("step time × %.3g (%s)", *t, cost), " ()")
	}
	if cost != "" {
		x.Wrap("     cost: ", 11, cost)
	}
	if change := x.change(r); change != "" {
		for i, line := range strings.Split(change, "\n") {
			if i == changeLines && x.o.Top > 0 {
				x.Printf("       %s\n", x.Styled(term.Faint, "… vramscope remedies "+r.ID))
				break
			}
			x.Printf("       %s\n", x.Styled(term.Blue, line))
		}
	}
}

// change is what to write, for the framework asked for or that of the input.
func (x *explain) change(r *diagnose.Remedy) string {
	for _, id := range []string{x.o.Framework, r.Framework, remedy.Any} {
		for id != "" {
			if c, ok := r.Change[id]; ok {
				return c
			}
			f, ok := remedy.LookupFramework(id)
			if !ok {
				break
			}
			id = f.Parent
		}
	}
	return ""
}

func (x *explain) settings() {
	if len(x.in.Settings) == 0 {
		return
	}
	x.title("Allocator settings, all replayed")
	x.Printf("  %-32s %11s %11s\n", "", "reserved", "saves")
	limited := slices.ContainsFunc(x.in.Settings, func(s diagnose.Setting) bool { return s.Survives != nil })
	unsure := false
	for _, s := range x.in.Settings {
		name := settingsName(s.Conf)
		saves := ""
		switch {
		case s.Recorded:
			name += " (recorded)"
		case s.Saves == nil:
			saves = "–"
		case *s.Saves < 0:
			saves = x.Styled(term.Red, fmt.Sprintf("%11s", "+"+bytesize.Size(-*s.Saves).String()))
		default:
			saves = bytesize.Size(*s.Saves).String()
		}
		verdict := ""
		switch {
		case s.Survives == nil:
			if unsure = unsure || limited; limited {
				verdict = "may survive"
			}
		case *s.Survives:
			verdict = x.Styled(term.Green, "survives")
			if s.Retries > 0 {
				verdict += fmt.Sprintf(", %d %s", s.Retries, retries(s.Retries))
			}
		default:
			verdict = x.Styled(term.Red, "dies")
			if s.DiesAt != nil {
				verdict += fmt.Sprintf(" at event %d", *s.DiesAt)
			}
		}
		if len(name) > 32 {
			x.Printf("  %s\n", name)
			name = ""
		}
		x.Print(strings.TrimRight(fmt.Sprintf("  %-32s %11v %11s  %s", name, bytesize.Size(s.PeakReserved), saves, verdict), " ") + "\n")
	}
	note := "Reserved is what the recording would take without a limit; + means that it takes more."
	if unsure {
		note += " May survive: it depends on where in the range above the limit is; --limit SIZE settles it."
	}
	if f := x.in.Failures; len(f) > 0 && !f[0].Survived && f[0].Basis == diagnose.Measured {
		note += " The recording ends at its failure: what comes after is in no replay."
	}
	x.Wrap("  ", 2, x.Styled(term.Faint, note))
}

func (x *explain) batch() {
	b := x.in.Batch
	if b == nil {
		return
	}
	x.title("Micro-batch")
	text := fmt.Sprintf("The largest that fits is %d (%s: %s). It reserves %v; %d would take %v without a limit. Each sample takes about %v, all else %v.",
		b.Largest, b.Basis, b.How, bytesize.Size(b.Peak), b.Largest+1, bytesize.Size(b.NextPeak), bytesize.Size(b.PerSample), bytesize.Size(b.Fixed))
	if b.Largest == 0 {
		text = fmt.Sprintf("Not even one sample fits (%s: %s): it would reserve %v.", b.Basis, b.How, bytesize.Size(b.NextPeak))
	}
	if b.UpperBound {
		text += " The recording holds no complete step, so this is an upper bound: what backward and the optimizer need comes on top."
	}
	x.Wrap("  ", 2, text)
}
