package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExit(t *testing.T) {
	for _, tc := range []struct {
		name   string
		err    error
		status int
		text   string
	}{
		{"done", nil, ExitDone, ""},
		{"no", No, ExitNo, ""},
		{"no, wrapped", fmt.Errorf("x: %w", No), ExitNo, ""},
		{"input", errors.New("snap.pickle: byte 3: bad"), ExitInput, "snap.pickle: byte 3: bad\n"},
		{"cannot", Cannot(errors.New("no card")), ExitCannot, "no card\n"},
		{"an input that writes lines and escapes", errors.New("a\nb\x1b[31m\u202e: bad"), ExitInput, "a b·[31m·: bad\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b strings.Builder
			if status := Exit(&b, tc.err); status != tc.status || b.String() != tc.text {
				t.Errorf("status %d, %q; want %d, %q", status, b.String(), tc.status, tc.text)
			}
		})
	}
}

// TestOutput: a file is whole or what it was before.
func TestOutput(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.txt")
	env := &Env{Stdout: io.Discard}
	say := func(text string, err error) func(io.Writer) error {
		return func(w io.Writer) error { io.WriteString(w, text); return err }
	}
	if err := Output(env, path, say("first", nil)); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := Output(env, path, say("sec", broken)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if data, _ := os.ReadFile(path); string(data) != "first" {
		t.Errorf("the file holds %q", data)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%d files were left", len(files))
	}
	if err := Output(env, filepath.Join(dir, "no", "x"), say("", nil)); err == nil || !strings.HasPrefix(err.Error(), filepath.Join(dir, "no", "x")+": ") {
		t.Errorf("got %v", err)
	}
}
