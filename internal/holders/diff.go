package holders

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"vramscope/trace"
)

// Growth is how much one holder has in two recordings.
type Growth struct {
	Holder   string // as the second recording names it, or the first where it is gone
	Was      string // its name in the first where that differs: the line moved
	Category Category

	Before, After             int64 // allocated bytes
	BeforeBlocks, AfterBlocks int
}

// Bytes is the growth.
func (g *Growth) Bytes() int64 { return g.After - g.Before }

// Difference is what changed from one recording to another.
type Difference struct {
	Before, After int64    // allocated bytes at the two moments
	Holders       []Growth // that changed, most growth first, most shrinkage last
	Same          int      // holders that did not change
}

// Diff compares who held memory at two moments of two recordings. Holders
// match by the functions and files of their stacks and their category; among
// equal ones those of equal lines match first, then the others in the order of
// their lines, since an edit above moves a line but not its code.
func Diff(before *Analysis, eventBefore int, after *Analysis, eventAfter int, by By) *Difference {
	x, y := before.holdersAt(eventBefore, by), after.holdersAt(eventAfter, by)
	d := &Difference{}
	for i := range x {
		d.Before += x[i].Bytes
	}
	for i := range y {
		d.After += y[i].Bytes
	}
	type key struct {
		code     string
		category Category
	}
	type sides struct{ x, y []*diffHolder }
	groups := map[key]*sides{}
	var order []key
	group := func(h *diffHolder) *sides {
		k := key{h.code, h.Category}
		g := groups[k]
		if g == nil {
			g = &sides{}
			groups[k] = g
			order = append(order, k)
		}
		return g
	}
	for i := range x {
		g := group(&x[i])
		g.x = append(g.x, &x[i])
	}
	for i := range y {
		g := group(&y[i])
		g.y = append(g.y, &y[i])
	}
	for _, k := range order {
		d.match(groups[k].x, groups[k].y)
	}
	slices.SortStableFunc(d.Holders, func(a, b Growth) int {
		return cmp.Or(-cmp.Compare(a.Bytes(), b.Bytes()), cmp.Compare(a.Holder, b.Holder), cmp.Compare(a.Category, b.Category))
	})
	return d
}

// match pairs holders of the same code.
func (d *Difference) match(x, y []*diffHolder) {
	byLines := func(a, b *diffHolder) int { return slices.Compare(a.lines, b.lines) }
	slices.SortStableFunc(x, byLines)
	slices.SortStableFunc(y, byLines)
	partner := map[*diffHolder]*diffHolder{}
	var moved []*diffHolder // of x
	rest := slices.Clone(y)
	for _, h := range x {
		if i := slices.IndexFunc(rest, func(o *diffHolder) bool { return slices.Equal(o.lines, h.lines) }); i >= 0 {
			partner[h] = rest[i]
			rest = slices.Delete(rest, i, i+1)
		} else {
			moved = append(moved, h)
		}
	}
	for i, h := range moved {
		if i < len(rest) {
			partner[h] = rest[i]
		}
	}
	for _, h := range x {
		g := Growth{Holder: h.Name, Category: h.Category, Before: h.Bytes, BeforeBlocks: h.Blocks}
		if o := partner[h]; o != nil {
			g.After, g.AfterBlocks = o.Bytes, o.Blocks
			if o.Name != h.Name {
				g.Holder, g.Was = o.Name, h.Name
			}
		}
		d.add(g)
	}
	for _, o := range rest[min(len(moved), len(rest)):] {
		d.add(Growth{Holder: o.Name, Category: o.Category, After: o.Bytes, AfterBlocks: o.Blocks})
	}
}

func (d *Difference) add(g Growth) {
	if g.Before == g.After && g.BeforeBlocks == g.AfterBlocks {
		d.Same++
		return
	}
	d.Holders = append(d.Holders, g)
}

// diffHolder is a holder with what it is recognised by in another recording.
type diffHolder struct {
	Holder
	code  string // functions and files
	lines []int
}

func (a *Analysis) holdersAt(event int, by By) []diffHolder {
	hs := a.At(event, by)
	out := make([]diffHolder, len(hs))
	for i, h := range hs {
		out[i] = diffHolder{Holder: h, code: h.Name}
		if by == ByLine || by == ByStack {
			out[i].code, out[i].lines = a.code(h.Stack, by, h.Name)
		}
	}
	return out
}

// code returns what a stack is recognised by, and its lines.
func (a *Analysis) code(id trace.StackID, by By, name string) (string, []int) {
	s := &a.Program.Trace.Stacks
	site := &a.sites[id]
	if site.Call < 0 {
		return name, nil
	}
	if by == ByLine {
		if site.Line < 0 {
			return name, nil
		}
		f := s.Frame(trace.FrameID(site.Line))
		return strings.Replace(name, ":"+strconv.Itoa(f.Line)+" ", " ", 1), []int{f.Line}
	}
	var text strings.Builder
	var lines []int
	for f := range s.All(id) {
		if kindOf(&f) != nativeFrame {
			text.WriteString(ShortPath(f.File) + "\x00" + f.Function + "\n")
			lines = append(lines, f.Line)
		}
	}
	return text.String(), lines
}
