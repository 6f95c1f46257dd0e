package lint

import (
	"encoding/json"
	"io"
	"net/url"
	"path/filepath"
	"strings"

	"vramscope/internal/lint/rules"
)

// The part of SARIF 2.1.0 (OASIS standard, sarif-schema-2.1.0.json) that is
// written: section numbers are those of the standard.
type (
	sarifLog struct { // 3.13
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct { // 3.14
		Tool        sarifTool         `json:"tool"`
		Invocations []sarifInvocation `json:"invocations"`
		ColumnKind  string            `json:"columnKind"`
		Results     []sarifResult     `json:"results"`
	}
	sarifTool struct { // 3.18
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct { // 3.19
		Name  string      `json:"name"`
		Rules []sarifRule `json:"rules"`
	}
	sarifRule struct { // 3.49
		ID            string      `json:"id"`
		Name          string      `json:"name"`
		Short         sarifText   `json:"shortDescription"`
		Full          sarifText   `json:"fullDescription"`
		Help          sarifText   `json:"help"`
		Configuration sarifConfig `json:"defaultConfiguration"`
		Properties    sarifTags   `json:"properties"`
	}
	sarifConfig struct { // 3.50
		Level string `json:"level"`
	}
	sarifTags struct {
		Tags []string `json:"tags"`
	}
	sarifText struct { // 3.11, 3.12
		Text string `json:"text"`
	}
	sarifInvocation struct { // 3.20
		Successful    bool                `json:"executionSuccessful"`
		Notifications []sarifNotification `json:"toolExecutionNotifications,omitempty"`
	}
	sarifNotification struct { // 3.58
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifResult struct { // 3.27
		RuleID       string            `json:"ruleId"`
		RuleIndex    int               `json:"ruleIndex"`
		Level        string            `json:"level"`
		Message      sarifText         `json:"message"`
		Locations    []sarifLocation   `json:"locations"`
		Fingerprints map[string]string `json:"partialFingerprints"`
		Fixes        []sarifFix        `json:"fixes,omitempty"`
	}
	sarifLocation struct { // 3.28
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct { // 3.29
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct { // 3.4
		URI string `json:"uri"`
	}
	sarifRegion struct { // 3.30
		StartLine   int        `json:"startLine,omitempty"`
		StartColumn int        `json:"startColumn,omitempty"`
		EndLine     int        `json:"endLine,omitempty"`
		EndColumn   int        `json:"endColumn,omitempty"`
		ByteOffset  *int       `json:"byteOffset,omitempty"`
		ByteLength  *int       `json:"byteLength,omitempty"`
		Snippet     *sarifText `json:"snippet,omitempty"`
	}
	sarifFix struct { // 3.55
		Description sarifText     `json:"description"`
		Changes     []sarifChange `json:"artifactChanges"`
	}
	sarifChange struct { // 3.56
		Artifact     sarifArtifact      `json:"artifactLocation"`
		Replacements []sarifReplacement `json:"replacements"`
	}
	sarifReplacement struct { // 3.57
		Deleted  sarifRegion `json:"deletedRegion"`
		Inserted *sarifText  `json:"insertedContent,omitempty"`
	}
)

const sarifSchema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

// SARIF writes the result as a SARIF 2.1.0 log.
func (r *Result) SARIF(w io.Writer) error {
	driver := sarifDriver{Name: "vramscope"}
	index := map[*rules.Rule]int{}
	for i, rule := range rules.All() {
		index[rule] = i
		driver.Rules = append(driver.Rules, sarifRule{
			ID: rule.ID, Name: pascal(rule.Name), Short: sarifText{rule.Says},
			Full:          sarifText{rule.Says + " Cost: " + rule.Cost + "."},
			Help:          sarifText{"Instead: " + rule.Instead + ". Source: " + rule.Source},
			Configuration: sarifConfig{level(rule.Severity)}, Properties: sarifTags{[]string{rule.Group}},
		})
	}
	run := sarifRun{Tool: sarifTool{driver}, ColumnKind: "unicodeCodePoints", Results: []sarifResult{}}
	invocation := sarifInvocation{Successful: true}
	for _, s := range r.Skipped {
		invocation.Notifications = append(invocation.Notifications, sarifNotification{
			Level: "note", Message: sarifText{"skipped: " + s.Why}, Locations: []sarifLocation{{sarifPhysical{Artifact: sarifArtifact{fileURI(s.File)}}}},
		})
	}
	run.Invocations = []sarifInvocation{invocation}
	for _, f := range r.Findings {
		region := &sarifRegion{StartLine: f.Line, StartColumn: f.Column, EndLine: f.EndLine, EndColumn: f.EndColumn}
		if f.Source != "" {
			region.Snippet = &sarifText{f.Source}
		}
		res := sarifResult{
			RuleID: f.Rule.ID, RuleIndex: index[f.Rule], Level: level(f.Severity), Message: sarifText{f.Message},
			Locations:    []sarifLocation{{sarifPhysical{sarifArtifact{fileURI(f.File)}, region}}},
			Fingerprints: map[string]string{"vramscope/v1": fingerprint(f)},
		}
		if f.Fix != "" {
			fix := sarifFix{Description: sarifText{f.Fix}, Changes: []sarifChange{{Artifact: sarifArtifact{fileURI(f.File)}}}}
			for _, e := range f.Edits {
				start, length := e.Start, e.End-e.Start
				fix.Changes[0].Replacements = append(fix.Changes[0].Replacements, sarifReplacement{sarifRegion{ByteOffset: &start, ByteLength: &length}, &sarifText{e.New}})
			}
			res.Fixes = []sarifFix{fix}
		}
		run.Results = append(run.Results, res)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(sarifLog{sarifSchema, "2.1.0", []sarifRun{run}})
}

func level(s rules.Severity) string {
	switch s {
	case rules.Error:
		return "error"
	case rules.Warning:
		return "warning"
	}
	return "note"
}

// pascal turns loss-sum into LossSum, as SARIF wants names (3.49.7).
func pascal(name string) string {
	var b strings.Builder
	for _, part := range strings.Split(name, "-") {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}

// fileURI is a path as a relative or file URI.
func fileURI(name string) string {
	u := url.URL{Path: filepath.ToSlash(name)}
	if filepath.IsAbs(name) {
		u.Scheme = "file"
	}
	return u.String()
}
