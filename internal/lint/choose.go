package lint

import (
	"fmt"
	"strings"

	"vramscope/internal/lint/rules"
)

// choose returns the rules that the options select. Each word is the id of a
// rule, a name, the beginning of ids (GM1), a group, a severity, or "all".
func choose(o Options) (selection, error) {
	s := selection{info: map[*rules.Rule]bool{}}
	matched := map[string]bool{}
	named := func(words []string, r *rules.Rule) (hit, exact bool) {
		for _, w := range words {
			w = strings.TrimSpace(w)
			switch {
			case strings.EqualFold(w, r.ID), strings.EqualFold(w, r.Name):
				hit, exact = true, true
			case strings.EqualFold(w, "all"), strings.EqualFold(w, r.Group), strings.EqualFold(w, string(r.Severity)), isPrefix(w, r.ID):
				hit = true
				exact = exact || strings.EqualFold(w, string(r.Severity))
			default:
				continue
			}
			matched[w] = true
		}
		return hit, exact
	}
	for _, r := range rules.All() {
		hit, exact := named(o.Select, r)
		if out, _ := named(o.Ignore, r); out || len(o.Select) > 0 && !hit {
			continue
		}
		s.rules = append(s.rules, r)
		s.info[r] = o.Pedantic || exact
	}
	for _, words := range [][]string{o.Select, o.Ignore} {
		for _, w := range words {
			if w = strings.TrimSpace(w); !matched[w] {
				return selection{}, fmt.Errorf("no rule or group is called %q (vramscope lint --list shows them)", w)
			}
		}
	}
	return s, nil
}

// isPrefix reports whether w is the beginning of an id by whole digits of its
// group: GM1 means GM101 to GM118 and not GM1001, GM10 means GM1001 to GM1010.
func isPrefix(w, id string) bool {
	w, id = strings.ToUpper(w), strings.ToUpper(id)
	return strings.HasPrefix(w, "GM") && len(id)-len(w) == 2 && strings.HasPrefix(id, w) || w == "GM"
}
