package cause

import (
	"regexp"
	"strings"
	"testing"
)

// TestTable checks what JSON readers and documents rely on: unique snake_case
// ids, and a title and an explanation that read as such.
func TestTable(t *testing.T) {
	snake := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	seen := map[ID]bool{}
	for _, c := range All() {
		if seen[c.ID] || !snake.MatchString(string(c.ID)) {
			t.Errorf("%q: used twice or not snake_case", c.ID)
		}
		seen[c.ID] = true
		if c.Title == "" || strings.HasSuffix(c.Title, ".") {
			t.Errorf("%s: title %q: want a few words without a full stop", c.ID, c.Title)
		}
		if !strings.HasSuffix(c.Explain, ".") {
			t.Errorf("%s: explanation %q is no sentence", c.ID, c.Explain)
		}
		if got := c.ID.Title(); got != c.Title {
			t.Errorf("%s.Title() = %q, want %q", c.ID, got, c.Title)
		}
	}
	if len(seen) != 28 {
		t.Errorf("%d causes, DESIGN.md has 28", len(seen))
	}
	if _, ok := Lookup("no_such_cause"); ok {
		t.Error("Lookup found a cause that does not exist")
	}
	if got := ID("no_such_cause").Title(); got != "no_such_cause" {
		t.Errorf("title of an unknown id = %q", got)
	}
}
