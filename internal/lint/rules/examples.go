package rules

import (
	"embed"
	"strings"
)

//go:embed examples/*.txt
var exampleFiles embed.FS

// Example is a piece of code for a rule: what it finds ("bad"), what to write
// instead ("good"), and code that looks like the fault and is none ("trap").
// They are the tests of the rule, and what --explain shows.
type Example struct {
	Kind string // bad, good, trap
	Name string // of a trap or further example
	File string // the file name to check it under
	Text string
}

// marker ends the lines where a bad example is to be found.
const marker = "  # here"

// Examples returns the examples of a rule.
func Examples(id string) []Example {
	data, err := exampleFiles.ReadFile("examples/" + id + ".txt")
	if err != nil {
		return nil
	}
	var out []Example
	for _, line := range strings.SplitAfter(string(data), "\n") {
		head, ok := strings.CutPrefix(strings.TrimSpace(line), "-- ")
		if head, ok2 := strings.CutSuffix(head, " --"); ok && ok2 {
			kind, name, _ := strings.Cut(head, ": ")
			kind, file, _ := strings.Cut(kind, " ")
			if file == "" {
				file = "example.py"
			}
			out = append(out, Example{Kind: kind, Name: name, File: file})
			continue
		}
		if len(out) > 0 {
			out[len(out)-1].Text += line
		}
	}
	return out
}

// Plain is the text without the marks of the tests.
func (e Example) Plain() string {
	return strings.TrimRight(strings.ReplaceAll(e.Text, marker, ""), "\n") + "\n"
}
