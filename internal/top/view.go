// Package top shows a monitor's samples: as a screen that follows the cards,
// as text once, as JSON and as CSV. View is pure: the same state gives the
// same screen. Only this package knows the terminal library.
package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"vramscope/bytesize"
	"vramscope/internal/gpu"
	"vramscope/internal/monitor"
	"vramscope/internal/term"
)

// Sort is the order of the processes.
type Sort int

// The orders that the key s goes through.
const (
	ByMemory Sort = iota
	ByBusy
	ByPID
	ByUser
)

var sortNames = []string{"memory", "busy", "PID", "user"}

// View is all that decides what the screen shows.
type View struct {
	Width, Height int // Height 0 is without bound
	Color         bool
	ASCII         bool // no block characters
	Sample        *monitor.Sample
	History       map[string][]float64 // of each card's key: share in use, oldest first, 0 to 1
	Xids          map[string][]uint64  // of each card's key: Xid errors seen
	Sort          Sort
	Filter        string
	Tree          bool
	Paused        bool
	Cursor        int    // row of the processes; -1 is none
	Prompt        string // in place of the keys
}

// row is a process in the list.
type row struct {
	card   *monitor.Card
	proc   monitor.Process
	indent int
}

// Render draws the screen, a line for each element.
func (v *View) Render() []string {
	if v.Sample == nil {
		return []string{v.fit("asking the driver …")}
	}
	lines := []string{v.header()}
	if v.Sample.Problem != "" {
		lines = append(lines, v.fit("driver: "+v.Sample.Problem))
	}
	for _, n := range v.Sample.Notes {
		lines = append(lines, v.fit("note: "+n))
	}
	if h := v.Sample.Host; h != nil {
		lines = append(lines, v.fit(fmt.Sprintf("host memory %s, available %s: what a card without its own memory runs out of",
			bytesize.Size(h.Total), bytesize.Size(h.Available))))
	}
	long := v.Height == 0 || len(v.Sample.Cards)*2+8 <= v.Height
	for i := range v.Sample.Cards {
		lines = append(lines, v.card(&v.Sample.Cards[i], long)...)
	}
	rows := v.rows()
	lines = append(lines, v.style(term.Bold, v.fit("    PID USER     CARD KIND       MEMORY   SM% JOB OR POD    COMMAND")))
	var footer []string
	for i := range v.Sample.Cards {
		c := &v.Sample.Cards[i]
		if c.Explain != "" {
			footer = append(footer, v.fold(fmt.Sprintf("card %d: %s", c.Index, c.Explain))...)
		}
	}
	if v.Height > 0 {
		footer = footer[:min(len(footer), max(0, v.Height-len(lines)-5))]
	}
	room := len(rows)
	if v.Height > 0 {
		room = max(1, v.Height-len(lines)-len(footer)-1)
	}
	first := 0
	if v.Cursor >= room {
		first = min(v.Cursor, len(rows)-1) - room + 1
	}
	for i := first; i < min(len(rows), first+room); i++ {
		line := v.process(&rows[i])
		if i == v.Cursor {
			line = v.selected(line)
		}
		lines = append(lines, line)
	}
	if len(rows) == 0 {
		word := "no processes"
		if v.Filter != "" {
			word = "no process matches " + v.Filter
		}
		lines = append(lines, v.fit("    "+word))
	}
	if v.Height > 0 {
		for len(lines)+len(footer)+1 < v.Height {
			lines = append(lines, "")
		}
	}
	lines = append(lines, footer...)
	if v.Height > 0 {
		lines = append(lines[:min(len(lines), v.Height-1)], v.keys())
	}
	return lines
}

func (v *View) keys() string {
	if v.Prompt != "" {
		return v.style(term.Gold, v.fit(v.Prompt))
	}
	return v.style(term.Faint, v.fit("q quit  s sort: "+sortNames[v.Sort]+"  / filter  t tree  p pause  ↑↓ select  k end process"))
}

func (v *View) header() string {
	s := v.Sample
	text := "vramscope top"
	if d, ok := s.System.Driver.Get(); ok {
		text += "   driver " + term.Safe(d)
	}
	if c, ok := s.System.CUDA.Get(); ok {
		text += fmt.Sprintf("   CUDA %d.%d", c/1000, c%1000/10)
	}
	text += fmt.Sprintf("   %s   %d cards", s.Time.Format(time.TimeOnly), len(s.Cards))
	if v.Paused {
		text += "   PAUSED"
	}
	return v.style(term.Bold, v.fit(text))
}

// share is what part of the memory that jobs can have is in use.
func share(m *gpu.Memory) (float64, bool) {
	total, ok1 := m.Total.Get()
	used, ok2 := m.Used.Get()
	if reserved, ok := m.Reserved.Get(); ok && m.Accounting == gpu.UsedExcludesReserved && reserved < total {
		total -= reserved
	}
	if !ok1 || !ok2 || total == 0 {
		return 0, false
	}
	return min(1, float64(used)/float64(total)), true
}

func (v *View) card(c *monitor.Card, long bool) []string {
	part, ok := share(&c.Memory)
	bar, numbers := strings.Repeat(" ", 16), "       n/a"
	if ok {
		bar = v.bar(part, 16)
		used, _ := c.Memory.Used.Get()
		total, _ := c.Memory.Total.Get()
		numbers = fmt.Sprintf("%10s/%s %3.0f%%", bytesize.Size(used), bytesize.Size(total), part*100)
	} else if c.Unified {
		sum, _ := c.SumOfProcesses()
		numbers = fmt.Sprintf("%10s by processes, host memory", bytesize.Size(sum))
	}
	line := fmt.Sprintf("%2d %s [%s] %s", c.Index, pad(term.Safe(c.ShortName()), 10), bar, pad(numbers, 26))
	line += fmt.Sprintf(" %s %s %s", cell(c.Busy, "%3d%%"), cell(c.Power, "%3.0fW"), cell(c.Temperature, "%2d°C"))
	switch {
	case c.State == gpu.OK && part > 0.9:
		line = v.style(term.Gold, v.fit(line))
	case c.State == gpu.OK:
		line = v.fit(line)
	default:
		line = v.style(term.Red, v.fit(line))
	}
	if !long {
		if c.State != gpu.OK {
			line = v.style(term.Red, v.fit(fmt.Sprintf("%2d %s %s: %s (values %.0f s old)", c.Index, pad(term.Safe(c.ShortName()), 10), strings.ToUpper(string(c.State)), c.Detail, c.Age)))
		}
		return []string{line}
	}
	return append([]string{line}, v.detail(c)...)
}

// detail is the second line of a card, and one for each MIG instance.
func (v *View) detail(c *monitor.Card) []string {
	if c.State != gpu.OK {
		text := strings.ToUpper(string(c.State)) + ": " + c.Detail
		if c.Age > 0 {
			text += fmt.Sprintf("; the values are %.0f s old", c.Age)
		}
		return []string{v.style(term.Red, v.fit("   "+text))}
	}
	var say []string
	if free, ok := c.Memory.Free.Get(); ok {
		say = append(say, "free "+bytesize.Size(free).String())
	}
	if t := c.Trend; t.PerSecond > 0 {
		say = append(say, fmt.Sprintf("+%s/s, full in about %s (estimated)", bytesize.Size(t.PerSecond), roughly(t.Full)))
	}
	if n := v.Xids[c.Key()]; len(n) > 0 {
		say = append(say, fmt.Sprintf("Xid %d", n[len(n)-1]))
	}
	if r, ok := c.Rows.Get(); ok && r.Failed {
		say = append(say, "ROW REMAP FAILED")
	} else if ok && r.Pending {
		say = append(say, "row remap pending: reset")
	}
	if n, ok := c.Uncorrected.Get(); ok && n > 0 {
		say = append(say, fmt.Sprintf("%d uncorrected ECC errors", n))
	}
	if t, ok := c.Throttle.Get(); ok && t.Slowing() {
		say = append(say, "slowed: "+strings.Join(t.Names(), ", "))
	}
	if rest, ok := c.Unattributed.Get(); ok && c.Explain != "" && rest > 0 {
		say = append(say, bytesize.Size(rest).String()+" without process")
	}
	if reserved, ok := c.Memory.Reserved.Get(); ok {
		say = append(say, "driver's own "+bytesize.Size(reserved).String())
	} else if _, ok := c.Memory.Total.Get(); ok {
		say = append(say, "driver's own n/a ("+string(c.Memory.Reserved.Why().Reason)+")")
	}
	say = append(say, c.Notes...)
	lines := []string{v.fit("   " + pad(v.spark(v.History[c.Key()], 10), 11) + strings.Join(say, "; "))}
	for _, inst := range c.Instances {
		text := fmt.Sprintf("   MIG %d/%d %s", inst.GPUID, inst.CompID, term.Safe(inst.Name))
		if part, ok := share(&inst.Memory); ok {
			used, _ := inst.Memory.Used.Get()
			total, _ := inst.Memory.Total.Get()
			text += fmt.Sprintf(" [%s] %s/%s", v.bar(part, 10), bytesize.Size(used), bytesize.Size(total))
		} else {
			text += " n/a (" + inst.Memory.Used.Why().Error() + ")"
		}
		lines = append(lines, v.fit(text))
	}
	return lines
}

func cell[T any](r gpu.Reading[T], format string) string {
	if x, ok := r.Get(); ok {
		return fmt.Sprintf(format, x)
	}
	return "n/a "
}

// rows are the processes that the filter leaves, in order.
func (v *View) rows() []row {
	var rows []row
	for i := range v.Sample.Cards {
		c := &v.Sample.Cards[i]
		for _, p := range c.Processes {
			text := fmt.Sprintf("%d %s %s %s %s %s", p.PID, p.User, p.Command, p.Job, p.Pod, p.Container)
			if v.Filter == "" || strings.Contains(strings.ToLower(text), strings.ToLower(v.Filter)) {
				rows = append(rows, row{card: c, proc: p})
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		switch v.Sort {
		case ByBusy:
			x, _ := a.proc.SM.Get()
			y, _ := b.proc.SM.Get()
			return cmp.Compare(y, x)
		case ByPID:
			return cmp.Compare(a.proc.PID, b.proc.PID)
		case ByUser:
			return cmp.Compare(a.proc.User, b.proc.User)
		}
		x, _ := a.proc.Used.Get()
		y, _ := b.proc.Used.Get()
		return cmp.Compare(y, x)
	})
	if v.Tree {
		rows = tree(rows)
	}
	return rows
}

// tree puts processes below their parent, where that is in the list too, and
// siblings side by side.
func tree(rows []row) []row {
	listed := map[int]bool{}
	for _, r := range rows {
		listed[r.proc.PID] = true
	}
	var out []row
	done := make([]bool, len(rows))
	var add func(i, indent int)
	add = func(i, indent int) {
		if done[i] {
			return
		}
		done[i] = true
		rows[i].indent = indent
		out = append(out, rows[i])
		for j := range rows {
			switch {
			case rows[j].proc.PID == rows[i].proc.PID:
				add(j, indent) // the same process on another card
			case rows[j].proc.Parent == rows[i].proc.PID:
				add(j, indent+1)
			}
		}
	}
	for i := range rows {
		if !listed[rows[i].proc.Parent] {
			add(i, 0)
			for j := range rows { // siblings
				if p := rows[j].proc.Parent; p > 1 && p == rows[i].proc.Parent {
					add(j, 0)
				}
			}
		}
	}
	for i := range rows {
		add(i, 0) // what has a loop for parents
	}
	return out
}

func (v *View) process(r *row) string {
	p := &r.proc
	user, command, job := p.User, p.Command, ""
	if user == "" {
		user = "?"
	}
	if command == "" {
		command = "?"
	}
	switch {
	case p.Job != "":
		job = "slurm " + p.Job
	case p.Pod != "":
		job = "pod " + p.Pod[:min(8, len(p.Pod))]
	case p.Container != "":
		job = p.Container
	}
	if p.Hidden != "" {
		command += " (" + p.Hidden + ")"
	}
	switch p.State {
	case "Z":
		command = fmt.Sprintf("[zombie; parent %d must reap it] %s", p.Parent, command)
	case "D":
		command = "[stuck in the kernel] " + command
	}
	kind := map[gpu.Kind]string{gpu.Compute: "C", gpu.Graphics: "G", gpu.Both: "C+G", gpu.MPS: "M"}[p.Kind]
	if p.GPUID != gpu.NoInstance {
		kind += fmt.Sprintf(" %d/%d", p.GPUID, p.CompID)
	}
	memory := "n/a"
	if used, ok := p.Used.Get(); ok {
		memory = bytesize.Size(used).String()
	}
	return v.fit(fmt.Sprintf("%7d %s %4d %s %10s %5s %s %s%s", p.PID, pad(term.Safe(user), 8), r.card.Index, pad(kind, 6), memory,
		strings.TrimSpace(cell(p.SM, "%d%%")), pad(term.Safe(job), 13), strings.Repeat("  ", r.indent), term.Safe(command)))
}

// roughly prints a time to people's precision.
func roughly(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}

func (v *View) bar(part float64, width int) string {
	full, half := "█", "▌"
	if v.ASCII {
		full, half = "#", "+"
	}
	halves := int(math.Round(part * float64(2*width)))
	text := strings.Repeat(full, halves/2)
	if halves%2 == 1 {
		text += half
	}
	return pad(text, width)
}

func (v *View) spark(values []float64, width int) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	if v.ASCII {
		levels = []rune("_.-=*#")
	}
	if len(values) > width {
		values = values[len(values)-width:]
	}
	var b strings.Builder
	for _, x := range values {
		b.WriteRune(levels[min(len(levels)-1, int(x*float64(len(levels))))])
	}
	return b.String()
}

func pad(text string, width int) string {
	n := utf8.RuneCountInString(text)
	if n > width {
		return cut(text, width)
	}
	return text + strings.Repeat(" ", width-n)
}

func cut(text string, width int) string {
	r := []rune(text)
	if len(r) <= width {
		return text
	}
	if width < 1 {
		return ""
	}
	return string(r[:width-1]) + "~"
}

// fit cuts a line to the screen. Without a screen (Height 0) lines are whole.
func (v *View) fit(text string) string {
	text = strings.TrimRight(term.Safe(text), " ")
	if v.Height == 0 {
		return text
	}
	return cut(text, v.Width)
}

// fold breaks a sentence into lines of the screen.
func (v *View) fold(text string) []string {
	var b strings.Builder
	p := term.New(&b, func(string) string { return "" })
	p.Width = v.Width
	p.Wrap("", 2, term.Safe(text))
	return strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
}

func (v *View) style(s term.Style, text string) string {
	if !v.Color || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

func (v *View) selected(line string) string {
	if v.Color {
		return "\x1b[7m" + pad(line, v.Width) + "\x1b[0m"
	}
	return ">" + strings.TrimPrefix(line, " ")
}
