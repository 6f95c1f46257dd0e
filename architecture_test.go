package vramscope

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// layers lists the packages from the bottom up: a package imports only what
// stands above it in this list. docs/architecture.md says why.
var layers = []string{
	"bytesize",
	"trace", "torchsnap", "cachealloc", "replay", "oomlog", // public
	"internal/spelling", "internal/term", "internal/cli", "internal/cause", "internal/remedy", "internal/gpu", "internal/monitor", "internal/top",
	"internal/holders", "internal/jaxprof", "internal/modelgraph", "internal/estimate", "internal/plan", "internal/diagnose",
	"internal/pysource", "internal/lint",
	"internal/timeline", "internal/export", "internal/report", "internal/web",
	"cmd",
}

// public packages import the standard library and each other, and torchsnap
// the decompressors.
var public = []string{"bytesize", "trace", "torchsnap", "cachealloc", "replay", "oomlog"}

// importers names, for each third-party system, the packages that may import it.
var importers = map[string][]string{
	"charm.land/bubbletea":             {"internal/top"},
	"charm.land/lipgloss":              {"internal/top"},
	"github.com/klauspost/compress":    {"torchsnap"},
	"github.com/spf13/cobra":           {"cmd/vramscope"},
	"github.com/spf13/pflag":           {"cmd/vramscope", "internal/cli"},
	"github.com/goccy/go-yaml":         {"internal/remedy", "internal/lint"},
	"github.com/ebitengine/purego":     {"internal/gpu/nvml", "internal/gpu/cuda"},
	"github.com/google/pprof":          {"internal/export", "internal/jaxprof"},
	"google.golang.org/protobuf":       {"internal/export", "internal/modelgraph/onnx"},
	"golang.org/x/sync":                {"internal/diagnose", "internal/lint"},
	"golang.org/x/term":                {"internal/term", "cmd/vramscope"},
	"github.com/prometheus/prometheus": {"internal/monitor/store", "internal/monitor/alert"},
}

type pkg struct {
	ImportPath string
	Imports    []string
}

func listPackages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

func layerOf(path string) int {
	for i, l := range layers {
		if path == l || strings.HasPrefix(path, l+"/") {
			return i
		}
	}
	return -1
}

// TestImportsPointDown holds the layering of DESIGN: commands, then views and
// reports, then analysis, then the public packages.
func TestImportsPointDown(t *testing.T) {
	const module = "vramscope/"
	for _, p := range listPackages(t) {
		self := strings.TrimPrefix(p.ImportPath, module)
		if p.ImportPath == "vramscope" {
			continue
		}
		mine := layerOf(self)
		if mine < 0 {
			t.Errorf("%s has no place in the layers", self)
			continue
		}
		isPublic := false
		for _, name := range public {
			isPublic = isPublic || self == name || strings.HasPrefix(self, name+"/")
		}
		for _, imp := range p.Imports {
			if inner, ok := strings.CutPrefix(imp, module); ok {
				if theirs := layerOf(inner); theirs > mine {
					t.Errorf("%s imports %s, which is above it", self, inner)
				}
				continue
			}
			if !strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") {
				continue // the standard library
			}
			owners, known := []string(nil), false
			for system, who := range importers {
				if imp == system || strings.HasPrefix(imp, system+"/") {
					owners, known = who, true
				}
			}
			if !known {
				if isPublic {
					t.Errorf("%s is public and imports %s", self, imp)
				}
				continue
			}
			allowed := false
			for _, who := range owners {
				allowed = allowed || self == who || strings.HasPrefix(self, who+"/")
			}
			if !allowed {
				t.Errorf("%s imports %s, which is for %v", self, imp, owners)
			}
		}
	}
}

// TestLinks follows the relative links of all pages.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:\s]+)(#[^)]*)?\)`)
	found := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllSubmatch(text, -1) {
			found++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), string(m[1]))); err != nil {
				t.Errorf("%s: no %s", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 20 {
		t.Errorf("only %d links found", found)
	}
}

// TestDependencies holds docs/dependencies.md: it names every module that a
// package or a test needs.
func TestDependencies(t *testing.T) {
	page, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "list", "-deps", "-test", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for _, module := range strings.Fields(string(out)) {
		if module != "vramscope" && !bytes.Contains(page, []byte(module)) {
			t.Errorf("docs/dependencies.md lacks %s", module)
			page = append(page, module...) // say it once
		}
	}
}
