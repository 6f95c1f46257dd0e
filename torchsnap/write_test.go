package torchsnap_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vramscope/torchsnap"
	"vramscope/trace"
)

// recordings returns the names of those under testdata.
func recordings(tb testing.TB) []string {
	tb.Helper()
	files, err := filepath.Glob("testdata/*.pickle.zst")
	if err != nil || len(files) == 0 {
		tb.Fatalf("no recordings: %v", err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".pickle.zst")
	}
	return files
}

// equalTraces compares all of two traces, stacks and labels by their contents.
func equalTraces(a, b *trace.Trace) string {
	return cmp.Diff(a, b,
		cmp.Transformer("stacks", func(s trace.Stacks) [][]trace.Frame {
			out := make([][]trace.Frame, s.Len())
			for id := range out {
				for f := range s.All(trace.StackID(id)) {
					out[id] = append(out[id], f)
				}
			}
			return out
		}),
		cmp.Transformer("labels", func(l trace.Labels) (out []string) {
			for id := range l.Len() {
				out = append(out, l.Text(trace.LabelID(id)))
			}
			return out
		}))
}

func write(tb testing.TB, t *trace.Trace) []byte {
	tb.Helper()
	var buf bytes.Buffer
	if err := torchsnap.Write(&buf, t); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func read(tb testing.TB, data []byte) *trace.Trace {
	tb.Helper()
	t, err := torchsnap.Read(bytes.NewReader(data), nil)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func TestWriteReadsBack(t *testing.T) {
	for _, name := range recordings(t) {
		t.Run(name, func(t *testing.T) {
			tr := recording(t, name)
			if diff := equalTraces(tr, read(t, write(t, tr))); diff != "" {
				t.Errorf("what was read (-) and written and read again (+):\n%s", diff)
			}
		})
	}
}

// TestWriteAsPythonReads compares the original and what was written, both as
// CPython reads them.
func TestWriteAsPythonReads(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	dir := t.TempDir()
	args := []string{"testdata/same.py"}
	for _, name := range recordings(t) {
		written := filepath.Join(dir, name+".written")
		plain := filepath.Join(dir, name+".original")
		if err := os.WriteFile(written, write(t, recording(t, name)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(plain, decompressed(t, name), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, plain, written)
	}
	if out, err := exec.Command(python, args...).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// decompressed returns the bytes of a recording's pickle.
func decompressed(tb testing.TB, name string) []byte {
	tb.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".pickle.zst"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	r, done, err := torchsnap.Decompress(f)
	if err != nil {
		tb.Fatal(err)
	}
	defer done()
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(r); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}
