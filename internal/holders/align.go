package holders

// The costs of an alignment: leaving out an element on either side, and
// pairing two requests whose sizes are neither equal nor in proportion to the
// batches.
const (
	gapCost = int32(3)
	oddCost = int32(2)
	never   = int32(1) << 29 // of a pair that may not be
)

// maxCells bounds the table of an alignment: 64 MiB.
const maxCells = 1 << 24

// alignment pairs the elements of two sequences in order, at the least cost
// (Needleman and Wunsch 1970), and yields the pairs from the last to the first.
//
// It looks at a band around the diagonal and widens it until no path outside
// can be cheaper (Ukkonen 1985): the time is that of the length times the
// number of elements that are left out. Two sequences so different that the
// table would pass maxCells are aligned within the widest band that fits.
func alignment(n, m int, cost func(i, j int) int32) func(yield func(i, j int) bool) {
	return func(yield func(i, j int) bool) {
		if n == 0 || m == 0 {
			return
		}
		skew := max(n-m, m-n)
		widest := max(maxCells/(n+1)/2, 1)
		var t table
		for band := min(skew+32, widest); ; band = min(2*band, widest) {
			t = newTable(n, m, band)
			t.fill(cost)
			// Each step away from the diagonal leaves out an element.
			if band >= m || band == widest || t.at(n, m) <= gapCost*int32(band-skew) {
				break
			}
		}
		for i, j := n, m; i > 0 && j > 0; {
			c := t.at(i, j)
			switch {
			case c >= never:
				return // the ends lie too far apart for the band
			case c == t.at(i-1, j-1)+cost(i-1, j-1):
				i, j = i-1, j-1
				if !yield(i, j) {
					return
				}
			case c == t.at(i-1, j)+gapCost:
				i--
			default:
				j--
			}
		}
	}
}

// table holds the costs of the prefixes of two sequences, in a band around
// the diagonal.
type table struct {
	n, m, band, width int
	cells             []int32
}

func newTable(n, m, band int) table {
	width := min(2*band+1, m+1)
	return table{n, m, band, width, make([]int32, (n+1)*width)}
}

// first is the first column of row i.
func (t *table) first(i int) int {
	return min(max(i*t.m/t.n-t.band, 0), t.m+1-t.width)
}

// at returns the cost of aligning i with j elements, never where that is
// outside of the band.
func (t *table) at(i, j int) int32 {
	if i < 0 || j < 0 {
		return never
	}
	c := j - t.first(i)
	if c < 0 || c >= t.width {
		return never
	}
	return t.cells[i*t.width+c]
}

func (t *table) fill(cost func(i, j int) int32) {
	var above []int32 // the row before, and its first column
	firstAbove := 0
	for i := 0; i <= t.n; i++ {
		first := t.first(i)
		row := t.cells[i*t.width : (i+1)*t.width]
		left := never
		for c := range row {
			j := first + c
			best := min(left+gapCost, never)
			if k := j - firstAbove; i > 0 {
				if k < len(above) {
					best = min(best, above[k]+gapCost)
				}
				if k > 0 && k <= len(above) && above[k-1] < best { // a pair may be cheaper
					best = min(best, above[k-1]+cost(i-1, j-1))
				}
			} else if j == 0 {
				best = 0
			}
			row[c], left = best, best
		}
		above, firstAbove = row, first
	}
}
