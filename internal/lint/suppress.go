package lint

import (
	"regexp"
	"strings"

	"vramscope/internal/lint/rules"
	"vramscope/internal/pysource"
)

var (
	ignoreComment = regexp.MustCompile(`#\s*vramscope:\s*ignore(?:\[([^\]]*)\])?\s*(?:$|[^\w\[-])`)
	noqaComment   = regexp.MustCompile(`#\s*noqa:\s*([A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*)`)
	ignoreFile    = regexp.MustCompile(`(?m)^\s*#\s*vramscope:\s*ignore-file\b`)
)

// ignoresFile reports whether a comment says to leave out the whole file.
func ignoresFile(f *pysource.File) bool {
	return strings.Contains(f.Src, "ignore-file") && ignoreFile.MatchString(f.Src)
}

// suppressed reports whether a comment says to leave out a finding: on its
// first or last line, or on a line of its own just above it.
//
//	x = f()  # vramscope: ignore[GM101]
//	x = f()  # noqa: GM101
//	# vramscope: ignore-file
func suppressed(f *pysource.File, x rules.Finding) bool {
	first, start := f.Line(x.Start)
	last, _ := f.Line(x.End)
	if silences(first, x.Rule) || silences(last, x.Rule) {
		return true
	}
	if start == 0 {
		return false
	}
	above, _ := f.Line(start - 1)
	return strings.HasPrefix(strings.TrimSpace(above), "#") && silences(above, x.Rule)
}

func silences(line string, r *rules.Rule) bool {
	if !strings.Contains(line, "#") {
		return false
	}
	if m := ignoreComment.FindStringSubmatchIndex(line); m != nil {
		if m[2] < 0 {
			return true
		}
		return lists(line[m[2]:m[3]], r)
	}
	if m := noqaComment.FindStringSubmatch(line); m != nil {
		return lists(m[1], r)
	}
	return false
}

func lists(words string, r *rules.Rule) bool {
	for _, w := range strings.FieldsFunc(words, func(c rune) bool { return c == ',' || c == ' ' }) {
		if strings.EqualFold(w, r.ID) || strings.EqualFold(w, r.Name) {
			return true
		}
	}
	return false
}
