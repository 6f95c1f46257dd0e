package lint

import (
	"encoding/json"
	"io"

	"vramscope/internal/lint/rules"
)

type jsonResult struct {
	Findings []jsonFinding `json:"findings"`
	Files    int           `json:"files"`
	Skipped  []jsonSkip    `json:"skipped"`
}

type jsonFinding struct {
	Rule     string         `json:"rule"`
	Severity rules.Severity `json:"severity"`
	File     string         `json:"file"`
	Line     int            `json:"line"`
	Column   int            `json:"column"`
	EndLine  int            `json:"end_line"`
	Message  string         `json:"message"`
	Fix      *jsonFix       `json:"fix"`
	Name     string         `json:"name"`
	Remedy   *string        `json:"remedy"`
	Cell     *int           `json:"cell"`
}

type jsonFix struct {
	Description string     `json:"description"`
	Edits       []jsonEdit `json:"edits"`
}

// jsonEdit replaces the bytes from start to end of the file.
type jsonEdit struct {
	Start int    `json:"start_byte"`
	End   int    `json:"end_byte"`
	New   string `json:"new"`
}

type jsonSkip struct {
	File string `json:"file"`
	Why  string `json:"why"`
}

// JSON writes the result as one object.
func (r *Result) JSON(w io.Writer) error {
	out := jsonResult{Findings: []jsonFinding{}, Files: r.Files, Skipped: []jsonSkip{}}
	for _, f := range r.Findings {
		j := jsonFinding{
			Rule: f.Rule.ID, Severity: f.Severity, File: f.File, Line: f.Line, Column: f.Column, EndLine: f.EndLine,
			Message: f.Message, Name: f.Rule.Name,
		}
		if f.Rule.Remedy != "" {
			j.Remedy = &f.Rule.Remedy
		}
		if f.Cell > 0 {
			j.Cell = &f.Cell
		}
		if f.Fix != "" {
			j.Fix = &jsonFix{Description: f.Fix}
			for _, e := range f.Edits {
				j.Fix.Edits = append(j.Fix.Edits, jsonEdit{e.Start, e.End, e.New})
			}
		}
		out.Findings = append(out.Findings, j)
	}
	for _, s := range r.Skipped {
		out.Skipped = append(out.Skipped, jsonSkip(s))
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(out)
}
