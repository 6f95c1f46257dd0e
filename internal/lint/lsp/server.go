// Package lsp speaks the Language Server Protocol (3.17) over a pair of
// streams, so that editors show the findings of `vramscope lint` while one
// types, and offer its fixes. It looks at one file at a time.
package lsp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"vramscope/internal/lint"
	"vramscope/internal/lint/rules"
)

// maxMessage is the largest message that is read, in bytes.
const maxMessage = 64 << 20

type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// The error codes of JSON-RPC and the protocol that are used.
const (
	parseError     = -32700
	methodNotFound = -32601
	invalidParams  = -32602
)

type (
	position struct {
		Line      int `json:"line"`      // from 0
		Character int `json:"character"` // in UTF-16 units
	}
	span struct {
		Start position `json:"start"`
		End   position `json:"end"`
	}
	diagnostic struct {
		Range    span   `json:"range"`
		Severity int    `json:"severity"`
		Code     string `json:"code"`
		Source   string `json:"source"`
		Message  string `json:"message"`
	}
	textEdit struct {
		Range   span   `json:"range"`
		NewText string `json:"newText"`
	}
	workspaceEdit struct {
		Changes map[string][]textEdit `json:"changes"`
	}
	codeAction struct {
		Title       string        `json:"title"`
		Kind        string        `json:"kind"`
		Diagnostics []diagnostic  `json:"diagnostics"`
		IsPreferred bool          `json:"isPreferred"`
		Edit        workspaceEdit `json:"edit"`
	}
)

// document is an open file.
type document struct {
	text     string
	findings []lint.Finding
}

// Server serves one editor.
type Server struct {
	in       *bufio.Reader
	out      io.Writer
	options  lint.Options
	docs     map[string]*document
	shutdown bool
}

// Serve answers messages until the editor says exit or closes the stream.
func Serve(in io.Reader, out io.Writer, o lint.Options) error {
	s := &Server{in: bufio.NewReader(in), out: out, options: o, docs: map[string]*document{}}
	for {
		body, err := s.read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("language server: %w", err)
		}
		var m message
		if err := json.Unmarshal(body, &m); err != nil {
			if err := s.write(message{ID: json.RawMessage("null"), Error: &rpcError{parseError, "not a JSON-RPC message"}}); err != nil {
				return err
			}
			continue
		}
		if m.Method == "exit" {
			return nil
		}
		if err := s.handle(m); err != nil {
			return err
		}
	}
}

// read returns the body of the next message.
func (s *Server) read() ([]byte, error) {
	length := -1
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			break
		}
		if name, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(name, "Content-Length") {
			length, err = strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				return nil, fmt.Errorf("Content-Length %q is no number", value)
			}
		}
	}
	if length < 0 || length > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes; up to %d are read", length, maxMessage)
	}
	body := make([]byte, length)
	_, err := io.ReadFull(s.in, body)
	return body, err
}

func (s *Server) write(m message) error {
	m.JSONRPC = "2.0"
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "Content-Length: %d\r\n\r\n%s", len(body), body)
	return err
}

func (s *Server) handle(m message) error {
	var p struct {
		TextDocument struct {
			URI  string `json:"uri"`
			Text string `json:"text"`
		} `json:"textDocument"`
		ContentChanges []struct {
			Text string `json:"text"`
		} `json:"contentChanges"`
		Range span `json:"range"`
	}
	if len(m.Params) > 0 {
		if err := json.Unmarshal(m.Params, &p); err != nil {
			if m.ID != nil {
				return s.write(message{ID: m.ID, Error: &rpcError{invalidParams, err.Error()}})
			}
			return nil
		}
	}
	uri := p.TextDocument.URI
	switch m.Method {
	case "initialize":
		return s.write(message{ID: m.ID, Result: map[string]any{
			"capabilities": map[string]any{
				"textDocumentSync":   map[string]any{"openClose": true, "change": 1}, // whole texts
				"codeActionProvider": map[string]any{"codeActionKinds": []string{"quickfix"}},
			},
			"serverInfo": map[string]string{"name": "vramscope lint"},
		}})
	case "textDocument/didOpen":
		return s.check(uri, p.TextDocument.Text)
	case "textDocument/didChange":
		if n := len(p.ContentChanges); n > 0 {
			return s.check(uri, p.ContentChanges[n-1].Text)
		}
	case "textDocument/didClose":
		delete(s.docs, uri)
		return s.publish(uri, nil)
	case "textDocument/codeAction":
		return s.write(message{ID: m.ID, Result: s.actions(uri, p.Range)})
	case "shutdown":
		s.shutdown = true
		return s.write(message{ID: m.ID, Result: json.RawMessage("null")})
	default:
		if m.ID != nil && m.Method != "" {
			return s.write(message{ID: m.ID, Error: &rpcError{methodNotFound, m.Method + " is not supported"}})
		}
	}
	return nil
}

// check looks at a text and publishes what it finds.
func (s *Server) check(uri, text string) error {
	findings, err := lint.CheckText(fileName(uri), []byte(text), s.options)
	if err != nil {
		findings = nil // not Python at this moment; say nothing
	}
	d := &document{text, findings}
	s.docs[uri] = d
	diagnostics := []diagnostic{}
	for _, f := range findings {
		diagnostics = append(diagnostics, d.diagnostic(f))
	}
	return s.publish(uri, diagnostics)
}

func (s *Server) publish(uri string, diagnostics []diagnostic) error {
	if diagnostics == nil {
		diagnostics = []diagnostic{}
	}
	params, err := json.Marshal(map[string]any{"uri": uri, "diagnostics": diagnostics})
	if err != nil {
		return err
	}
	return s.write(message{Method: "textDocument/publishDiagnostics", Params: params})
}

// actions returns the fixes of the findings that touch a range.
func (s *Server) actions(uri string, at span) []codeAction {
	out := []codeAction{}
	d := s.docs[uri]
	if d == nil {
		return out
	}
	for _, f := range d.findings {
		diag := d.diagnostic(f)
		if f.Fix == "" || before(at.End, diag.Range.Start) || before(diag.Range.End, at.Start) {
			continue
		}
		var edits []textEdit
		for _, e := range f.Edits {
			edits = append(edits, textEdit{span{d.position(e.Start), d.position(e.End)}, e.New})
		}
		out = append(out, codeAction{
			Title: f.Rule.ID + ": " + f.Fix, Kind: "quickfix", Diagnostics: []diagnostic{diag}, IsPreferred: true,
			Edit: workspaceEdit{map[string][]textEdit{uri: edits}},
		})
	}
	return out
}

func before(a, b position) bool {
	return a.Line < b.Line || a.Line == b.Line && a.Character < b.Character
}

func (d *document) diagnostic(f lint.Finding) diagnostic {
	severity := map[rules.Severity]int{rules.Error: 1, rules.Warning: 2, rules.Info: 3}[f.Severity]
	return diagnostic{
		Range:    span{d.character(f.Line, f.Column), d.character(f.EndLine, f.EndColumn)},
		Severity: severity, Code: f.Rule.ID, Source: "vramscope", Message: f.Message,
	}
}

// character turns a line and a column in characters, from 1, into a position
// in UTF-16 units.
func (d *document) character(line, column int) position {
	text := d.line(line - 1)
	units := 0
	for _, r := range text {
		if column--; column < 1 {
			break
		}
		units += utf16Len(r)
	}
	return position{line - 1, units}
}

func utf16Len(r rune) int {
	if r >= 0x10000 {
		return 2
	}
	return 1
}

func (d *document) line(n int) string {
	rest := d.text
	for ; n > 0; n-- {
		_, after, ok := strings.Cut(rest, "\n")
		if !ok {
			return ""
		}
		rest = after
	}
	first, _, _ := strings.Cut(rest, "\n")
	return first
}

// position turns a byte offset into a position.
func (d *document) position(offset int) position {
	offset = min(offset, len(d.text))
	text := d.text[:offset]
	line := strings.Count(text, "\n")
	last := text[strings.LastIndexByte(text, '\n')+1:]
	units := 0
	for _, r := range last {
		units += utf16Len(r)
	}
	return position{line, units}
}

// fileName returns the path of a file URI; of others, the URI.
func fileName(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" {
		return uri
	}
	return u.Path
}
