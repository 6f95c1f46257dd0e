package export

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"vramscope/internal/holders"
)

// Folded writes what was alive right after event as folded stacks: a line for
// each stack, its calls from the outermost on joined by semicolons, the category
// last, and the bytes. Lines are sorted.
func Folded(w io.Writer, a *holders.Analysis, event int) error {
	names := a.Names(holders.ByLine)
	bytes := map[string]int64{}
	var line strings.Builder
	for i := range a.Live(event) {
		line.Reset()
		for _, f := range frames(a, names, i) {
			text := f.Function
			if f.File != "" {
				text += fmt.Sprintf(" (%s:%d)", holders.ShortPath(f.File), f.Line)
			}
			line.WriteString(oneFrame.Replace(text))
			line.WriteByte(';')
		}
		line.WriteString("[" + a.Category(i).String() + "]")
		bytes[line.String()] += a.Allocated[i]
	}
	b := bufio.NewWriter(w)
	for _, stack := range slices.Sorted(maps.Keys(bytes)) {
		fmt.Fprintf(b, "%s %d\n", stack, bytes[stack])
	}
	return b.Flush()
}

// oneFrame keeps a name from being taken for two frames or two lines.
var oneFrame = strings.NewReplacer(";", ":", "\n", " ", "\r", " ")
