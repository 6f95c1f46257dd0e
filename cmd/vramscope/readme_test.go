package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestREADME runs the commands of the blocks marked console in README.md, from
// the top of the repository, and compares what they print with what stands
// below them. -update writes it.
func TestREADME(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no shell")
	}
	const path = "../../README.md"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	const fence = "```console\n"
	parts := strings.Split(string(data), fence)
	if len(parts) < 8 {
		t.Fatalf("only %d blocks", len(parts)-1)
	}
	for i, part := range parts[1:] {
		block, rest, ok := strings.Cut(part, "```\n")
		if !ok {
			t.Fatalf("no end of the block %q", block)
		}
		got := runBlock(t, root, block)
		if *update {
			parts[i+1] = got + "```\n" + rest
		} else if diff := cmp.Diff(block, got); diff != "" {
			t.Errorf("README.md (-README +run; -update rewrites it):\n%s", diff)
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(strings.Join(parts, fence)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// runBlock runs the lines that begin with a $ and returns them with what they
// print. `$ command # exits 1` expects that status.
func runBlock(t *testing.T, root, block string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(block) {
		command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "$ ")
		if !ok {
			continue
		}
		out.WriteString(line)
		shell, comment, _ := strings.Cut(command, " # ")
		// What a fresh checkout types; the test has the program already.
		shell = strings.ReplaceAll(shell, "go run ./cmd/vramscope", "vramscope")
		cmd := exec.Command("sh", "-c", shell)
		cmd.Dir = root
		var stderr strings.Builder
		cmd.Stderr = &stderr
		text, err := cmd.Output()
		status := 0
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			status = exit.ExitCode()
		} else if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		if want := strings.HasPrefix(comment, "exits 1"); status != map[bool]int{true: 1}[want] {
			t.Errorf("%s: exit status %d\n%s", command, status, stderr.String())
		}
		out.Write(text)
	}
	return out.String()
}
