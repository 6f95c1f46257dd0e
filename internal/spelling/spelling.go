// Package spelling finds what somebody may have meant by a word that is not
// in a list, for the "did you mean" of error messages. It never decides.
package spelling

import (
	"cmp"
	"slices"
	"strings"
)

// Nearest returns up to n of the names that are like word, the likest first:
// those with few edits to it, or that contain it or begin with it. Case does
// not count.
func Nearest(word string, names []string, n int) []string {
	word = strings.ToLower(word)
	type match struct {
		name string
		cost int
	}
	var found []match
	for _, name := range names {
		lower := strings.ToLower(name)
		cost := distance(word, lower)
		if len(word) > 2 && strings.Contains(lower, word) {
			cost = min(cost, 1+(len(lower)-len(word))/8)
		}
		if cost <= 1+min(len(word), len(lower))/4 {
			found = append(found, match{name, cost})
		}
	}
	slices.SortStableFunc(found, func(a, b match) int { return cmp.Compare(a.cost, b.cost) })
	var out []string
	for _, m := range found {
		if !slices.Contains(out, m.name) && len(out) < n {
			out = append(out, m.name)
		}
	}
	return out
}

// distance is the number of insertions, deletions and replacements of bytes
// between a and b (Levenshtein). Words are cut at 64 bytes, names are shorter.
func distance(a, b string) int {
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, above+1, row[j]+1)
			diagonal = above
		}
	}
	return row[len(b)]
}
