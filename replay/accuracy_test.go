package replay

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vramscope/bytesize"
	"vramscope/cachealloc"
)

var (
	update  = flag.Bool("update", false, "rewrite docs/accuracy.md")
	folders = flag.String("recordings", "", "more folders of recordings for docs/accuracy.md, separated by commas")
)

const accuracyDoc = "../docs/accuracy.md"

// TestAccuracy holds docs/accuracy.md: what the replay of each recording gives
// must stand there. -update rewrites the rows of the recordings at hand (those
// of the repository and of -recordings) and keeps the others.
func TestAccuracy(t *testing.T) {
	all := measuredRecordings(t)
	if len(all) < 20 {
		t.Fatalf("only %d recordings found", len(all))
	}
	own, parts := ownRows(t, all)
	tables := []table{
		{"## Own settings", own},
		{"## What is not exact", parts},
		{"## Other settings", crossRows(t, all)},
	}
	doc, err := os.ReadFile(accuracyDoc)
	if err != nil && !*update {
		t.Fatal(err)
	}
	if *update {
		for i := range tables {
			tables[i].keep(string(doc))
		}
		doc = []byte(accuracyText(tables))
		if err := os.WriteFile(accuracyDoc, doc, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tab := range tables {
		for _, row := range tab.rows {
			if !strings.Contains(string(doc), row+"\n") {
				t.Errorf("%s lacks the row\n%s\nrun make accuracy", accuracyDoc, row)
			}
		}
	}
}

// measuredRecordings lists the recordings of the repository and of the folders
// of -recordings: one index.json, or NAME.json beside each NAME.pickle.zst.
func measuredRecordings(t *testing.T) []recording {
	all := recordings(t)
	for i := range all {
		all[i].inRepository = true
	}
	known := map[string]bool{}
	for _, r := range all {
		known[r.Name] = true
	}
	for _, dir := range strings.FieldsFunc(*folders, func(r rune) bool { return r == ',' || r == ' ' }) {
		var found []recording
		if data, err := os.ReadFile(filepath.Join(dir, "index.json")); err == nil {
			if err := json.Unmarshal(data, &found); err != nil {
				t.Fatal(err)
			}
		} else {
			found = besides(t, dir)
		}
		for _, r := range found {
			if r.path = filepath.Join(dir, r.File); !known[r.Name] {
				known[r.Name] = true
				all = append(all, r)
			}
		}
	}
	slices.SortFunc(all, func(a, b recording) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// besides reads what testdata/recordings/causes.py writes beside each snapshot.
func besides(t *testing.T, dir string) []recording {
	files, _ := filepath.Glob(filepath.Join(dir, "*.pickle.zst"))
	var out []recording
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".pickle.zst")
		data, err := os.ReadFile(filepath.Join(dir, name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		// An older form of the script left the unit out of the names.
		old := struct {
			Allocated int64 `json:"peak_allocated"`
			Reserved  int64 `json:"peak_reserved"`
		}{}
		r := recording{Complete: true, TakenAt: "end"}
		for _, v := range []any{&r, &old} {
			if err := json.Unmarshal(data, v); err != nil {
				t.Fatal(err)
			}
		}
		if r.Reserved == 0 {
			r.Allocated, r.Reserved, r.Retries, r.OOMs = old.Allocated, old.Reserved, r.Stats["num_alloc_retries"], r.Stats["num_ooms"]
		}
		r.Name, r.File = name, filepath.Base(f)
		out = append(out, r)
	}
	return out
}

// ownRows replays each recording under its own settings. parts lists those
// that do not come out equal to the byte, and why.
func ownRows(t *testing.T, all []recording) (own, parts []string) {
	for _, r := range all {
		p := compileFile(t, r.path)
		o := run(t, p, Scenario{Limit: r.Limit})
		in := "no"
		if r.inRepository {
			in = "yes"
		}
		_, segments := p.RecordedReserved()
		own = append(own, fmt.Sprintf("| %s | %s | %d | %s | %s | %s | %d | %s | %s | %s |", r.Name, scenarioName(r.Conf, r.Limit),
			p.Device.Events.Len(), pair(o.PeakReserved, r.Reserved), pair(o.PeakAllocated, r.Allocated), pair(int64(o.SegmentEvents), int64(segments)),
			o.Misplaced, pair(o.Retries, r.Retries), pair(o.OOMs, r.OOMs), in))
		exact := o.Divergence == nil && o.Misplaced == 0 && o.PeakReserved == r.Reserved && o.PeakAllocated == r.Allocated && o.OOMs == r.OOMs
		if exact && p.Complete() {
			continue
		}
		parts = append(parts, fmt.Sprintf("| %s | %s | %s |", r.Name, differs(p, o, r), reason(p, o)))
	}
	return own, parts
}

func differs(p *Program, o *Outcome, r recording) string {
	var out []string
	say := func(what string, got, want int64) {
		if got != want {
			out = append(out, fmt.Sprintf("%s %+d bytes", what, got-want))
		}
	}
	say("reserved peak", o.PeakReserved, r.Reserved)
	say("allocated peak", o.PeakAllocated, r.Allocated)
	if o.Misplaced > 0 {
		out = append(out, fmt.Sprintf("%d blocks at another address", o.Misplaced))
	}
	if o.Divergence != nil {
		out = append(out, fmt.Sprintf("segment events from event %d on", o.Divergence.Event))
	}
	if len(out) == 0 {
		out = append(out, "nothing that the recording shows")
	}
	return strings.Join(out, "; ")
}

func reason(p *Program, o *Outcome) string {
	h := p.History()
	switch {
	case !h.Complete:
		if h.CompleteFrom >= p.Device.Events.Len() {
			return h.Reason + "; some of them to the end"
		}
		return fmt.Sprintf("%s; complete from event %d", h.Reason, h.CompleteFrom)
	case len(p.Changes) > 0:
		var at []string
		for _, c := range p.Changes {
			at = append(at, fmt.Sprint(c.Event))
		}
		return "the program switched expandable segments; each switch shows only when a segment is next needed (events " +
			strings.Join(at, ", ") + "), and until then blocks were split by a rule that the recording does not tell"
	case o.Divergence != nil:
		return o.Divergence.Reason
	}
	return "not found"
}

// crossRows replays each recording that ran to its end under the settings and
// the limit of each other recording of the same program.
func crossRows(t *testing.T, all []recording) []string {
	var rows []string
	programs := map[string]*Program{}
	for _, r := range all {
		if slices.ContainsFunc(all, func(x recording) bool { return x.Name != r.Name && x.sameProgram(r) }) {
			programs[r.Name] = compileFile(t, r.path)
		}
	}
	for _, from := range all {
		for _, to := range all {
			if from.Name == to.Name || !from.sameProgram(to) || from.Error != nil || to.Disturbed {
				continue
			}
			rows = append(rows, crossRow(t, from, to, programs[from.Name], programs[to.Name]))
		}
	}
	return rows
}

func crossRow(t *testing.T, from, to recording, p, q *Program) string {
	s, err := cachealloc.ParseSettings(to.Conf, p.To)
	if err != nil {
		t.Fatal(err)
	}
	o := run(t, p, Scenario{Settings: &s, Limit: to.Limit})
	end := func(died bool, request int, size int64) string {
		if !died {
			return "lives"
		}
		return fmt.Sprintf("dies at request %d of %v", request, bytesize.Size(size))
	}
	got := end(false, 0, 0)
	if x := o.FatalOOM; x != nil {
		got = end(true, x.Request, x.SegmentBytes)
	}
	card := end(false, 0, 0)
	if x := run(t, q, Scenario{Limit: to.Limit}).FatalOOM; to.Error != nil && x != nil {
		card = end(true, x.Request, x.SegmentBytes)
	}
	if got == card {
		got = "both: " + got
	} else {
		got = got + "; card: " + card
	}
	return fmt.Sprintf("| %s → %s | %s | %s | %s | %s | %s |", from.Name, to.Name, scenarioName(to.Conf, to.Limit),
		pair(o.PeakReserved, to.Reserved), pair(o.Retries, to.Retries), got, sameRequests(p, q))
}

// sameRequests says how far two recordings of a program hold the same
// requests: where they do not, their memory cannot be the same either.
func sameRequests(p, q *Program) string {
	n := min(len(p.Requests), len(q.Requests))
	for i := range n {
		a, b := &p.Requests[i], &q.Requests[i]
		// A refused request is recorded by the bytes it needed.
		refused := b.Free < 0 && i == len(q.Requests)-1
		if a.Size != b.Size && !refused {
			return fmt.Sprintf("other requests from %d on", i)
		}
	}
	if len(p.Requests) != len(q.Requests) {
		return fmt.Sprintf("all %d up to the end of one", n)
	}
	return fmt.Sprintf("all %d", n)
}

// sameProgram goes by the names: FAMILY_SETTINGS, one seed for each family.
func (r recording) sameProgram(x recording) bool {
	f, _, _ := strings.Cut(r.Name, "_")
	return strings.HasPrefix(x.Name, f+"_") && slices.Contains([]string{"varlen", "varimg", "random", "random7"}, f)
}

func scenarioName(conf string, limit int64) string {
	name := "default"
	if conf != "" {
		name = "`" + conf + "`"
	}
	if limit > 0 {
		name += fmt.Sprintf(", limit %v", bytesize.Size(limit))
	}
	return name
}

// pair is what was simulated and what the card's statistics said.
func pair(got, card int64) string {
	if got == card {
		return fmt.Sprintf("%d =", got)
	}
	return fmt.Sprintf("%d ≠ %d", got, card)
}

// table is the rows of a section of the page; the first cell is their name.
type table struct {
	heading string
	rows    []string
}

// keep adds those rows of the page that stand for recordings not at hand.
func (t *table) keep(doc string) {
	name := func(row string) string { return strings.SplitN(row, "|", 3)[1] }
	have := map[string]bool{}
	for _, row := range t.rows {
		have[name(row)] = true
	}
	_, section, _ := strings.Cut(doc, t.heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	inTable := false
	for line := range strings.Lines(section) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "|---"):
			inTable = true
		case inTable && strings.HasPrefix(line, "|") && !have[name(line)]:
			t.rows = append(t.rows, line)
		}
	}
	slices.Sort(t.rows)
}

func accuracyText(tables []table) string {
	text := `# Replayed and measured

Generated by ` + "`make accuracy`" + ` from recordings of one NVIDIA H200 with PyTorch 2.11; do not edit. Each pair of numbers is what the
replay gives and what the card's own statistics (torch.cuda.memory_stats) said: "=" where they are the same to the byte,
"≠" with both where not. Sizes are bytes.

The recordings marked "yes" lie in the repository, and ` + "`go test ./replay`" + ` replays them each time; the others are too many or
too large for it, and their rows are kept from the last run that had them (` + "`make accuracy RECORDINGS='DIR DIR'`" + `).

What else is compared with a card: [who holds the memory](accuracy-holders.md).
`
	intros := []string{`
Each recording replayed under the settings it was made with, from its first event. Segment events count where the replay
gives the same ones in the same order, with the same sizes, streams and addresses, and the same final segments and blocks
(` + "`matches_recording`" + `); a difference is listed below. "Misplaced" counts blocks at another address than recorded. Refusals
are out-of-memory errors, those that the program survived among them. Whether the driver gave memory is taken from the
recording here where the recording shows it, so retries and refusals are tested by the last section, where nothing is.

| recording | settings | events | reserved peak | allocated peak | segment events | misplaced | retries | refusals | in the repository |
|---|---|---|---|---|---|---|---|---|---|
`, `
Recordings that miss something, or whose replay is not equal to the byte, with the place where it first parts and the
reason. An incomplete recording is replayed from what it tells of the state before its first event, and no match is claimed.

| recording | what differs | why |
|---|---|---|
`, `
The requests of one recording replayed under the settings and the limit of another recording of the same program, and
compared with what the card did there. Where a run died, the request (counted from 0) and the bytes it asked the driver for
are compared too. "Requests" says whether the two runs of the program asked for the same: where they did not, as a program
that looks at the memory it has will not, no replay of one can be exact for the other.

| recording → other | other settings | reserved peak | retries | end | requests |
|---|---|---|---|---|---|
`}
	for i, t := range tables {
		text += "\n" + t.heading + "\n" + intros[i] + strings.Join(t.rows, "\n") + "\n"
	}
	return text
}
