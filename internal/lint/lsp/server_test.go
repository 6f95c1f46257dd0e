package lsp

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vramscope/internal/lint"
)

// editor talks to a server over pipes, as an editor does.
type editor struct {
	t    *testing.T
	in   io.WriteCloser
	out  *bufio.Reader
	done chan error
}

func start(t *testing.T) *editor {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	e := &editor{t, inW, bufio.NewReader(outR), make(chan error, 1)}
	go func() {
		err := Serve(inR, outW, lint.Options{})
		inR.Close()
		outW.Close()
		e.done <- err
	}()
	return e
}

func (e *editor) send(body string) {
	e.t.Helper()
	if _, err := fmt.Fprintf(e.in, "Content-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		e.t.Fatal(err)
	}
}

func (e *editor) receive() map[string]any {
	e.t.Helper()
	length := 0
	for {
		line, err := e.out.ReadString('\n')
		if err != nil {
			e.t.Fatal(err)
		}
		if line = strings.TrimSpace(line); line == "" {
			break
		}
		fmt.Sscanf(line, "Content-Length: %d", &length)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(e.out, body); err != nil {
		e.t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		e.t.Fatal(err)
	}
	return m
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func TestSession(t *testing.T) {
	e := start(t)
	e.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{}}}`)
	m := e.receive()
	capabilities := m["result"].(map[string]any)["capabilities"].(map[string]any)
	if capabilities["codeActionProvider"] == nil || capabilities["textDocumentSync"] == nil {
		t.Errorf("capabilities: %v", capabilities)
	}
	e.send(`{"jsonrpc":"2.0","method":"initialized","params":{}}`)

	// A line with characters outside of the basic plane before the finding.
	text := "import torch\n\"😀\"; opt.zero_grad(set_to_none=False)\nwith torch.no_grad:\n    pass\n"
	open := func(method, body string) {
		e.send(`{"jsonrpc":"2.0","method":"textDocument/` + method + `","params":` + body + `}`)
	}
	open("didOpen", `{"textDocument":{"uri":"file:///x/a.py","languageId":"python","version":1,"text":`+quote(text)+`}}`)
	m = e.receive()
	params := m["params"].(map[string]any)
	var got []string
	for _, d := range params["diagnostics"].([]any) {
		d := d.(map[string]any)
		r := d["range"].(map[string]any)["start"].(map[string]any)
		got = append(got, fmt.Sprintf("%v %v %v:%v", d["code"], d["severity"], r["line"], r["character"]))
	}
	if diff := cmp.Diff([]string{"GM304 2 1:6", "GM202 1 2:5"}, got); diff != "" || m["method"] != "textDocument/publishDiagnostics" {
		t.Errorf("%v: %s", m["method"], diff)
	}

	e.send(`{"jsonrpc":"2.0","id":2,"method":"textDocument/codeAction","params":{"textDocument":{"uri":"file:///x/a.py"},"range":{"start":{"line":1,"character":8},"end":{"line":1,"character":8}},"context":{"diagnostics":[]}}}`)
	actions := e.receive()["result"].([]any)
	if len(actions) != 1 {
		t.Fatalf("actions: %v", actions)
	}
	edit := actions[0].(map[string]any)["edit"].(map[string]any)["changes"].(map[string]any)["file:///x/a.py"].([]any)[0]
	want := map[string]any{"newText": "True", "range": map[string]any{
		"start": map[string]any{"line": 1.0, "character": 32.0}, "end": map[string]any{"line": 1.0, "character": 37.0}}}
	if diff := cmp.Diff(any(want), edit); diff != "" {
		t.Error(diff)
	}

	open("didChange", `{"textDocument":{"uri":"file:///x/a.py","version":2},"contentChanges":[{"text":"import torch\n"}]}`)
	if d := e.receive()["params"].(map[string]any)["diagnostics"].([]any); len(d) != 0 {
		t.Errorf("after the change: %v", d)
	}
	open("didClose", `{"textDocument":{"uri":"file:///x/a.py"}}`)
	e.receive()

	e.send(`{"jsonrpc":"2.0","id":3,"method":"textDocument/hover","params":{}}`)
	if m := e.receive(); m["error"].(map[string]any)["code"] != -32601.0 {
		t.Errorf("an unknown method: %v", m)
	}
	e.send(`{"jsonrpc":`)
	if m := e.receive(); m["error"].(map[string]any)["code"] != -32700.0 {
		t.Errorf("no JSON: %v", m)
	}
	e.send(`{"jsonrpc":"2.0","id":4,"method":"shutdown"}`)
	if m := e.receive(); m["id"] != 4.0 || m["error"] != nil {
		t.Errorf("shutdown: %v", m)
	}
	e.send(`{"jsonrpc":"2.0","method":"exit"}`)
	if err := <-e.done; err != nil {
		t.Error(err)
	}
}

func TestBadStreams(t *testing.T) {
	for _, in := range []string{"", "Content-Length: 5\r\n\r\n{}", "Content-Length: -1\r\n\r\n", "Content-Length: x\r\n\r\n", "Content-Length: 99999999999\r\n\r\n"} {
		var out strings.Builder
		err := Serve(strings.NewReader(in), &out, lint.Options{})
		if (err == nil) != (in == "") {
			t.Errorf("%q: %v", in, err)
		}
	}
}
