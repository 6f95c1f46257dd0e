package main

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"vramscope/torchsnap"
)

var update = flag.Bool("update", false, "rewrite the golden parts of the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"vramscope": main})
}

// TestScript runs the commands end to end: testdata/script/*.txtar, one file a
// topic. `go test ./cmd/vramscope -run TestScript -update` rewrites what they
// compare with.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Cmds:                commands,
		Setup: func(env *testscript.Env) error {
			for name, dir := range map[string]string{"EXAMPLES": "../../examples", "RECORDINGS": "../../testdata/recordings", "JAX": "../../internal/jaxprof/testdata", "PLAN": "../../internal/plan/testdata"} {
				path, err := filepath.Abs(dir) // recordings of a card
				if err != nil {
					return err
				}
				env.Setenv(name, path)
			}
			return nil
		},
	})
}

// commands make files that a script cannot hold.
var commands = map[string]func(*testscript.TestScript, bool, []string){
	// unpack FROM TO: without compression
	"unpack": func(ts *testscript.TestScript, _ bool, args []string) {
		plain, done, err := torchsnap.Decompress(strings.NewReader(ts.ReadFile(args[0])))
		ts.Check(err)
		defer done()
		data, err := io.ReadAll(plain)
		ts.Check(err)
		write(ts, args[1], data)
	},
	// pack FROM TO: with gzip
	"pack": func(ts *testscript.TestScript, _ bool, args []string) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err := io.WriteString(z, ts.ReadFile(args[0]))
		ts.Check(err)
		ts.Check(z.Close())
		write(ts, args[1], b.Bytes())
	},
	// first N FROM TO: the first bytes
	"first": func(ts *testscript.TestScript, _ bool, args []string) {
		n, err := strconv.Atoi(args[0])
		ts.Check(err)
		data := ts.ReadFile(args[1])
		if n >= len(data) {
			ts.Fatalf("%s has only %d bytes", args[1], len(data))
		}
		write(ts, args[2], []byte(data[:n]))
	},
	// bytes TO HEX…
	"bytes": func(ts *testscript.TestScript, _ bool, args []string) {
		data, err := hex.DecodeString(strings.Join(args[1:], ""))
		ts.Check(err)
		write(ts, args[0], data)
	},
	// oneline FILE (or stderr): exactly one line, so that scripts can be read
	"oneline": func(ts *testscript.TestScript, _ bool, args []string) {
		if text := ts.ReadFile(args[0]); strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
			ts.Fatalf("not one line: %q", text)
		}
	},
}

func write(ts *testscript.TestScript, path string, data []byte) {
	ts.Check(os.WriteFile(ts.MkAbs(path), data, 0o644))
}
