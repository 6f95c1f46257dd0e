package cards

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"vramscope/internal/spelling"
)

// NotFoundError says that no card has this name.
type NotFoundError struct {
	Name    string
	Nearest []string // names that look like it, the likest first
}

func (e *NotFoundError) Error() string {
	s := fmt.Sprintf("no card %q in the data base; ", e.Name)
	switch {
	case migSlice.MatchString(e.Name):
		return s + "of a MIG slice, give the memory itself: nvidia-smi -L names it"
	case len(e.Nearest) > 0:
		return s + "did you mean " + strings.Join(e.Nearest, ", ") + "?"
	}
	return s + "`vramscope gpus` lists them"
}

// migSlice is in the name of a MIG instance: "NVIDIA H100 80GB HBM3 MIG 1g.10gb".
var migSlice = regexp.MustCompile(`(?i)\bmig [0-9]`)

// AmbiguousError says that several cards have this name.
type AmbiguousError struct {
	Name  string
	Cards []*Card
}

func (e *AmbiguousError) Error() string {
	var names []string
	for _, c := range e.Cards {
		names = append(names, c.Name)
	}
	return fmt.Sprintf("%q is several cards: %s", e.Name, strings.Join(names, ", "))
}

// Find returns the card that a driver or a person calls name: "NVIDIA
// A100-SXM4-80GB", "A100-40GB", "rtx4090". Case, spaces, punctuation and the
// vendor's words do not count. A name that several cards share is an error of
// type *AmbiguousError, one that no card has a *NotFoundError: a card that
// merely looks alike (a laptop's 4090 has another memory) is never returned.
func Find(name string) (*Card, error) {
	k := key(name)
	found := byName().cards[k]
	if len(found) != 1 {
		if narrowed := withMemory(k); len(narrowed) > 0 {
			found = narrowed
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, &NotFoundError{name, nearest(name)}
	}
	return nil, &AmbiguousError{name, found}
}

// vendorWords are left out wherever they stand in a name.
var vendorWords = regexp.MustCompile(`\b(nvidia|amd|intel|geforce|tesla|instinct|radeon|corporation|graphics|\(r\)|\(tm\))\b|[®™]`)

// memoryUnit at the end of a name is written in several ways.
var memoryUnit = regexp.MustCompile(`([0-9])\s*(gib|g)\s*$`)

// key is a name without what does not count.
func key(name string) string {
	name = vendorWords.ReplaceAllString(strings.ToLower(name), " ")
	name = memoryUnit.ReplaceAllString(name, "${1}gb")
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '+' {
			return r
		}
		return -1
	}, name)
}

// index is the table by key.
type index struct {
	cards map[string][]*Card
	keys  []string // in the order of the table
}

// byName has the cards under their names, their aliases and, for consumer
// cards, under both without the series' letters: "4090".
var byName = sync.OnceValue(func() index {
	ix := index{cards: map[string][]*Card{}}
	add := func(k string, c *Card) {
		if !slices.Contains(ix.cards[k], c) {
			ix.cards[k] = append(ix.cards[k], c)
			ix.keys = append(ix.keys, k)
		}
	}
	for _, c := range All() {
		for _, n := range append([]string{c.Name}, c.Aliases...) {
			k := key(n)
			add(k, c)
			if short, ok := strings.CutPrefix(k, "rtx"); ok && c.Class == "consumer" {
				add(short, c)
			}
		}
	}
	return ix
})

// withMemory returns the cards whose key ends with their memory: "rtx309024gb".
// Where the number begins is found by trying.
func withMemory(k string) []*Card {
	digits, ok := strings.CutSuffix(k, "gb")
	if !ok {
		return nil
	}
	for n := 1; n <= 3 && n < len(digits); n++ {
		cut := len(digits) - n
		gb, err := strconv.Atoi(digits[cut:])
		if err != nil {
			return nil
		}
		found := slices.DeleteFunc(slices.Clone(byName().cards[digits[:cut]]), func(c *Card) bool { return c.NominalGB != gb })
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// nearest suggests names for a message.
func nearest(name string) []string {
	ix := byName()
	var out []string
	for _, k := range spelling.Nearest(key(name), ix.keys, 8) {
		for _, c := range ix.cards[k] {
			if !slices.Contains(out, c.Name) && len(out) < 3 {
				out = append(out, c.Name)
			}
		}
	}
	return out
}
