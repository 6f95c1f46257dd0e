package timeline

// fan is how many entries of a level make one of the next.
const fan = 16

// Pyramid finds the extremes of any stretch of a series in logarithmic time.
// It keeps the places of the extremes, a fifteenth of the series' length each.
type Pyramid struct {
	v        []int64
	min, max [][]int32 // by level: the index in v of the extreme of fan^(level+1) values
}

// NewPyramid summarises v, which must not change afterwards.
func NewPyramid(v []int64) *Pyramid {
	p := &Pyramid{v: v}
	for width := len(v); width > fan; {
		next := (width + fan - 1) / fan
		lo, hi := make([]int32, next), make([]int32, next)
		for i := range next {
			first, end := i*fan, min((i+1)*fan, width)
			a, b := p.place(p.min, first), p.place(p.max, first)
			for j := first + 1; j < end; j++ {
				if x := p.place(p.min, j); v[x] < v[a] {
					a = x
				}
				if x := p.place(p.max, j); v[x] > v[b] {
					b = x
				}
			}
			lo[i], hi[i] = a, b
		}
		p.min, p.max = append(p.min, lo), append(p.max, hi)
		width = next
	}
	return p
}

// place returns the index in v of entry j of the topmost level so far.
func (p *Pyramid) place(levels [][]int32, j int) int32 {
	if len(levels) == 0 {
		return int32(j)
	}
	return levels[len(levels)-1][j]
}

// Len returns the length of the series.
func (p *Pyramid) Len() int { return len(p.v) }

// Extremes returns the places of the first least and the first greatest value
// in [from, to), which must be within the series and not empty.
func (p *Pyramid) Extremes(from, to int) (least, most int) {
	least, most = from, from
	take := func(a, b int) {
		if p.v[a] < p.v[least] || p.v[a] == p.v[least] && a < least {
			least = a
		}
		if p.v[b] > p.v[most] || p.v[b] == p.v[most] && b < most {
			most = b
		}
	}
	for i := from; i < to; {
		level, width := -1, 1
		for level+1 < len(p.max) && i%(width*fan) == 0 && i+width*fan <= to {
			level, width = level+1, width*fan
		}
		if level < 0 {
			take(i, i)
		} else {
			take(int(p.min[level][i/width]), int(p.max[level][i/width]))
		}
		i += width
	}
	return least, most
}
