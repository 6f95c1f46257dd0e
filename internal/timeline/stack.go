package timeline

import (
	"slices"
	"sort"

	"vramscope/internal/holders"
)

// Stack says what the allocated bytes were made of at any event: bytes by
// group, the groups in the order in which they are drawn, bottom first.
type Stack struct {
	Groups []string
	// Category of each group, for its colour; holders of one category share it.
	Categories []holders.Category

	changes []change // by event
	every   []int64  // sums before event i*spacing, one for each group
}

// change is what an event does to the allocated bytes.
type change struct {
	bytes int64
	group uint8
}

// spacing is the number of events between two stored sums.
const spacing = 256

// maxGroups bounds the groups of a Stack; what is left is "other".
const maxGroups = 16

// ByCategory stacks the allocated bytes by category, what lives longest first.
func ByCategory(a *holders.Analysis) *Stack {
	order := []holders.Category{
		holders.Parameter, holders.OptimizerState, holders.Gradient, holders.Input,
		holders.Activation, holders.Temporary, holders.Workspace, holders.Unknown,
	}
	s := &Stack{Categories: order}
	group := make([]uint8, len(order))
	for i, c := range order {
		s.Groups = append(s.Groups, c.String())
		group[c] = uint8(i)
	}
	s.fill(a, func(i int) uint8 { return group[a.Category(i)] })
	return s
}

// ByHolder stacks the allocated bytes by the user's lines (or modules, or
// whole stacks) that hold the most at the given event; what the others hold is
// the last group.
func ByHolder(a *holders.Analysis, by holders.By, event int) *Stack {
	s := &Stack{}
	type key struct {
		name     string
		category holders.Category
	}
	index := map[key]uint8{}
	for _, h := range a.At(event, by) {
		if len(s.Groups) == maxGroups-1 {
			break
		}
		index[key{h.Name, h.Category}] = uint8(len(s.Groups))
		s.Groups = append(s.Groups, h.Name)
		s.Categories = append(s.Categories, h.Category)
	}
	other := uint8(len(s.Groups))
	s.Groups = append(s.Groups, "other")
	s.Categories = append(s.Categories, holders.Unknown)
	names := a.Names(by)
	s.fill(a, func(i int) uint8 {
		if g, ok := index[key{names(i), a.Category(i)}]; ok {
			return g
		}
		return other
	})
	return s
}

// fill notes what each event changes, and the sums.
func (s *Stack) fill(a *holders.Analysis, groupOf func(request int) uint8) {
	n := a.Program.Device.Events.Len()
	k := len(s.Groups)
	s.changes = make([]change, n)
	sums := make([]int64, k)
	var frees []int
	for i := range a.Program.Requests {
		r := &a.Program.Requests[i]
		if a.Allocated[i] == 0 {
			continue
		}
		g := groupOf(i)
		if r.Event < 0 {
			sums[g] += a.Allocated[i]
		} else {
			s.changes[r.Event] = change{a.Allocated[i], g}
		}
		if r.Free >= 0 {
			frees = append(frees, i)
		}
	}
	for _, i := range frees {
		s.changes[a.Program.Requests[i].Free] = change{-a.Allocated[i], groupOf(i)}
	}
	s.every = make([]int64, 0, (n/spacing+1)*k)
	for i, c := range s.changes {
		if i%spacing == 0 {
			s.every = append(s.every, sums...)
		}
		sums[c.group] += c.bytes
	}
	if n == 0 {
		s.every = append(s.every, sums...)
	}
}

// At adds the bytes of each group right after event to dst and returns it.
func (s *Stack) At(dst []int64, event int) []int64 {
	k := len(s.Groups)
	at := event / spacing
	from := len(dst)
	dst = append(dst, s.every[at*k:(at+1)*k]...)
	sums := dst[from:]
	for _, c := range s.changes[at*spacing : min(event+1, len(s.changes))] {
		sums[c.group] += c.bytes
	}
	return dst
}

// Empty reports which groups never hold anything.
func (s *Stack) Empty() []bool {
	empty := slices.Repeat([]bool{true}, len(s.Groups))
	for _, c := range s.changes {
		if c.bytes > 0 {
			empty[c.group] = false
		}
	}
	for i, v := range s.every[:len(s.Groups)] {
		if v > 0 {
			empty[i] = false
		}
	}
	return empty
}

// Block is the life of a request as a rectangle: Bytes from event From to
// event To, which is the number of events for one that lived to the end.
type Block struct {
	Request  int
	From, To int
	Bytes    int64
}

// Largest returns the n blocks that take the most bytes × events of [from, to),
// in the order of their requests, and how many there are in all.
func Largest(a *holders.Analysis, from, to, n int) (blocks []Block, all int) {
	end := a.Program.Device.Events.Len()
	area := func(b Block) float64 {
		return float64(b.Bytes) * float64(min(b.To, to)-max(b.From, from)+1)
	}
	for i := range a.Program.Requests {
		r := &a.Program.Requests[i]
		b := Block{i, int(r.Event), int(r.Free), a.Allocated[i]}
		if b.To < 0 {
			b.To = end
		}
		if b.From >= to {
			break
		}
		if b.Bytes > 0 && b.To > from {
			blocks = append(blocks, b)
		}
	}
	all = len(blocks)
	if all > n {
		sort.Slice(blocks, func(i, j int) bool { return area(blocks[i]) > area(blocks[j]) })
		blocks = blocks[:n]
		slices.SortFunc(blocks, func(x, y Block) int { return x.Request - y.Request })
	}
	return blocks, all
}
