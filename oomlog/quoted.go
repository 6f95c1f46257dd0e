package oomlog

import (
	"bytes"
	"regexp"
	"strings"
)

// A message counts when it stands where a program puts messages: at the start of
// a line, after a logger's prefix, after the class of an exception, or after a
// few words that announce an error. In the middle of prose, in a field of a data
// row, in a comment or in a code block it is a quotation.

var (
	// dataField is the key of a JSON, YAML or repr field that holds text of users
	// or data, just before the message's place in it.
	dataField = regexp.MustCompile(`(?i)["'](?:text|prompt|content|question|answer|instruction|output|input|body|document|passage|context|completion|response|query|title|comment|chosen|rejected|sentence|code|source|page_content|user|assistant)["'] *: *\[?["'][^"]*$`)
	logField  = regexp.MustCompile(`(?i)["'](?:msg|message|error|err|exception|exc_info|stack|stack_trace|stacktrace|traceback|log|event|detail|reason|status)["'] *: *["'][^"]*$`)
	speaker   = regexp.MustCompile(`(?i)^\W{0,4}(?:user|assistant|human|system|question|answer|prompt|completion|generated(?: text)?|response|retrieved(?: document)?|document|passage|chunk|context|example|sample|row|Q|A)(?: ?#?\d+)? *[:>\]]`)
	comment   = regexp.MustCompile(`^\s*(?:#|//|/\*|\*|--|"""|'''|<!--|;)`)
	helpText  = regexp.MustCompile(`^\s*-{1,2}[a-zA-Z][\w-]*[ ,=].*|\bhelp=|\bprint\(|\braise \w|\bexcept\b|\bassert\b|\bif\b.*\bin str\(|grep|re\.(?:search|match)\(`)
	person    = regexp.MustCompile(`(?i)\b(?:I|I'm|we|my|our|you|your|please|anyone|somebody|someone|hi|hello|how|why|what|which|because|when|often|usually|sometimes|famous|typical|known|error like|such as|for example|e\.g\.|means|called|says|article|post)\b`)
	announces = regexp.MustCompile(`(?i)(?:error|exception|fail\w*|fatal|warn\w*|abort\w*|panic|caught|raised?|retry\w*|oom|what\(\)|RESOURCE_EXHAUSTED|exhausted|reason|traceback|crash\w*|critical|terminated?|detail|msg|message|last error)\b[^.?]{0,80}$`)
	// announced is a line that begins by saying so: "Error occurred when sampling:".
	announced = regexp.MustCompile(`(?i)^\W*(?:[\w.]+ +){0,3}(?:error|exception|failed|failure|fatal|caught)\b[^.?]{0,100}[:=!] *$`)
	levelWord = regexp.MustCompile(`(?i)\b(?:ERROR|WARN|WARNING|INFO|DEBUG|CRITICAL|FATAL|EXCEPTION)\b`)
	codeFence = []byte("```")
)

// quotation says why a message with this lead is a quotation, or "".
func quotation(w *window, lead string) string {
	lead = strings.TrimSpace(lead)
	switch {
	case dataField.MatchString(lead) && !logField.MatchString(lead):
		return "a field of data"
	case comment.MatchString(lead) && !strings.HasPrefix(lead, "**"):
		return "a comment"
	case speaker.MatchString(lead):
		return "text of a user, a model or a document"
	case helpText.MatchString(lead):
		return "source code or a help text"
	}
	if strings.HasSuffix(lead, "`") && strings.ContainsAny(lead, " -") || strings.Count(lead, "`")%2 == 1 && strings.Contains(lead, " ") {
		return "inline code of a document"
	}
	if strings.HasPrefix(lead, "|") && strings.Count(lead, "|") > 1 && !levelWord.MatchString(lead) {
		return "a table of a document"
	}
	if fenced(w) {
		return "a code block"
	}
	if words := strings.Fields(lead); len(words) >= 3 {
		prose := person.MatchString(lead)
		if prose && !exceptionSyntax.MatchString(lead) && !(announced.MatchString(lead) && !firstPerson.MatchString(lead)) {
			return "prose"
		}
		if prose && firstPerson.MatchString(lead) {
			return "prose"
		}
		if !announces.MatchString(lead) && !loggerLead(lead) && !exceptionSyntax.MatchString(lead) {
			return "prose"
		}
	}
	return ""
}

var firstPerson = regexp.MustCompile(`\b(?:I|my|My|we|We|you|You|anyone|please|Please|Hi|Hello|How|Why|What)\b`)

// loggerLead reports whether a lead is made of the things that loggers, progress
// bars and C++ checks print, whose words carry punctuation.
func loggerLead(lead string) bool {
	plain := 0
	for _, w := range strings.Fields(lead) {
		if strings.Trim(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
			plain++
		} else {
			plain = 0
		}
		if plain > 2 {
			return false
		}
	}
	return true
}

// fenced reports whether the window's line is inside a Markdown code block that
// opened within the last lines.
func fenced(w *window) bool {
	open := false
	for i := -60; i < 0; i++ {
		if l := w.line(i); l != nil && bytes.HasPrefix(bytes.TrimSpace(l.text), codeFence) {
			open = !open
		}
	}
	if !open {
		return false
	}
	// The block must also close: a stray fence in a log would hide what follows.
	for i := 0; i < 60; i++ {
		l := w.line(i)
		if l == nil {
			return false
		}
		if bytes.HasPrefix(bytes.TrimSpace(l.text), codeFence) {
			return true
		}
	}
	return false
}
