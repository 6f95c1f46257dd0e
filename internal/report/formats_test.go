package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vramscope/internal/diagnose"
	"vramscope/internal/gpu/cards"
	"vramscope/internal/holders"
	"vramscope/internal/remedy"
)

const formatsDoc = "../../docs/formats.md"

// formats are the objects of docs/formats.md: a section for each, with a table
// of all fields and an example. Lists of an example end after two elements.
func formats(t *testing.T) []struct {
	command string
	value   any
} {
	explain := explained(t, "testdata/recordings/leak_graph.pickle.zst", diagnose.Options{Limit: 4 << 30, Batch: 8})
	name8, p8 := program(t, unet8)
	name16, p16 := program(t, unet16)
	before, err := holders.Analyze(t.Context(), p8)
	if err != nil {
		t.Fatal(err)
	}
	after, err := holders.Analyze(t.Context(), p16)
	if err != nil {
		t.Fatal(err)
	}
	by, _ := holders.ParseBy("line")
	difference := holders.Diff(before, before.PeakAllocated, after, after.PeakAllocated, by)
	expandable, _ := remedy.ByID("expandable_segments")
	card, err := cards.Find("h200")
	if err != nil {
		t.Fatal(err)
	}
	return []struct {
		command string
		value   any
	}{
		{"explain", explain},
		{"replay", replayed(t, unetFails, 0)},
		{"tune", tuned(t, unet16, 6<<30)},
		{"diff", NewDiff(NewDiffSide(name8, before, before.PeakAllocated), NewDiffSide(name16, after, after.PeakAllocated), "peak", "line", difference, 1<<30)},
		{"remedies", NewRemedies([]*remedy.Remedy{expandable}, "", "")},
		{"gpus", NewGPUs([]*cards.Card{card})},
	}
}

// TestFormats holds the page: its examples are what the program writes, and
// every field stands in a table. -update writes the examples.
func TestFormats(t *testing.T) {
	data, err := os.ReadFile(formatsDoc)
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	for _, f := range formats(t) {
		t.Run(f.command, func(t *testing.T) {
			heading := "\n## " + f.command + "\n"
			head, section, ok := strings.Cut(page, heading)
			if !ok {
				t.Fatalf("no section%s", heading)
			}
			section, rest, more := strings.Cut(section, "\n## ")
			words, old, _ := strings.Cut(section, "```json\n")
			old, tail, ok := strings.Cut(old, "```")
			if !ok {
				t.Fatal("no example")
			}
			example := shorten(t, f.value)
			if *update {
				page = head + heading + words + "```json\n" + example + "```" + tail
				if more {
					page += "\n## " + rest
				}
			} else if old != example {
				t.Errorf("the example (-docs/formats.md +got; -update rewrites it):\n%s", cmp.Diff(old, example))
			}
			for _, field := range fields(reflect.TypeOf(f.value)) {
				if !strings.Contains(words, "| `"+field+"` |") {
					t.Errorf("field %s is not explained", field)
				}
			}
		})
	}
	if *update {
		if err := os.WriteFile(formatsDoc, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// fields lists the JSON names of a type and of what it holds: a.b, a[].b. Those
// of a type that occurs twice are listed once.
func fields(t reflect.Type) []string {
	var out []string
	seen := map[reflect.Type]bool{}
	var walk func(prefix string, t reflect.Type)
	walk = func(prefix string, t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer:
			walk(prefix, t.Elem())
		case reflect.Slice, reflect.Array:
			walk(prefix+"[]", t.Elem())
		case reflect.Map:
			walk(prefix+"{}", t.Elem())
		case reflect.Struct:
			if seen[t] {
				return
			}
			seen[t] = true
			for i := range t.NumField() {
				name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
				if name == "" || name == "-" {
					continue
				}
				if prefix != "" {
					name = prefix + "." + name
				}
				out = append(out, name)
				walk(name, t.Field(i).Type)
			}
		}
	}
	walk("", t)
	return out
}

// shorten is the JSON of v with lists that end after two elements, and lists
// of plain values on one line.
func shorten(t *testing.T, v any) string {
	t.Helper()
	var raw, out bytes.Buffer
	if err := WriteJSON(&raw, v); err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(&raw)
	d.UseNumber()
	next := func() json.Token {
		tok, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	plain := func(tok json.Token) string {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(tok); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(b.String(), "\n")
	}
	// value returns the text of the value to come.
	var value func(indent string) string
	value = func(indent string) string {
		tok := next()
		open, ok := tok.(json.Delim)
		if !ok {
			return plain(tok)
		}
		inner := indent + "  "
		var parts []string
		short := open == '['
		for d.More() {
			key := ""
			if open == '{' {
				key = plain(next()) + ": "
			}
			text := value(inner)
			if open == '[' && len(parts) == 2 {
				continue
			}
			short = short && !strings.Contains(text, "\n")
			parts = append(parts, key+text)
		}
		next()
		closing := map[json.Delim]string{'[': "]", '{': "}"}[open]
		switch {
		case len(parts) == 0:
			return open.String() + closing
		case short && len(strings.Join(parts, ", ")) < 100:
			return open.String() + strings.Join(parts, ", ") + closing
		}
		return open.String() + "\n" + inner + strings.Join(parts, ",\n"+inner) + "\n" + indent + closing
	}
	fmt.Fprintln(&out, value(""))
	return out.String()
}
