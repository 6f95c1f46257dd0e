package lint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"vramscope/internal/lint/model"
	"vramscope/internal/lint/rules"
	"vramscope/internal/pysource"
)

func isPython(name string) bool {
	return strings.HasSuffix(name, ".py") || strings.HasSuffix(name, ".ipynb") || strings.HasSuffix(name, ".pyw")
}

func isJSON(name string) bool { return strings.HasSuffix(name, ".json") }

// textKind says how settings are written in a file that is not Python.
func textKind(name string) (rules.TextKind, bool) {
	base := filepath.Base(name)
	switch {
	case strings.HasPrefix(base, "Dockerfile"), strings.HasPrefix(base, "Containerfile"), strings.HasSuffix(base, ".dockerfile"), strings.HasSuffix(base, ".Dockerfile"):
		return rules.Docker, true
	case strings.HasSuffix(base, ".yml"), strings.HasSuffix(base, ".yaml"):
		return rules.YAML, true
	case base == ".env", strings.HasPrefix(base, ".env."), strings.HasSuffix(base, ".env"), base == ".envrc":
		return rules.DotEnv, true
	}
	switch filepath.Ext(base) {
	case ".sh", ".bash", ".zsh", ".fish", ".slurm", ".sbatch", ".csh":
		return rules.Shell, true
	}
	return 0, false
}

func known(name string) bool {
	_, text := textKind(name)
	return text || isPython(name) || isJSON(name)
}

// skippedFolders hold copies of other people's code, or none.
func skippedFolder(name string) bool {
	switch name {
	case "node_modules", "__pycache__", "venv", "site-packages", "__pypackages__":
		return true
	}
	return strings.HasPrefix(name, ".") && name != "." && name != ".." && name != ".github"
}

// discover lists the files below the paths. A path that is given is looked at
// whatever its name; folders of packages and hidden ones below are not.
// Symbolic links to folders are not followed, so that none leads in a circle.
// within has each file's path from the folder that was given, "" where the
// file itself was.
func discover(paths, exclude []string) (files, within []string, skipped []Skip, err error) {
	seen := map[string]bool{}
	add := func(name, rel string) {
		if !seen[name] {
			seen[name] = true
			files, within = append(files, name), append(within, rel)
		}
	}
	for _, root := range paths {
		info, err := os.Stat(root)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %s", root, linkError(err))
		}
		if !info.IsDir() {
			if !known(root) {
				return nil, nil, nil, fmt.Errorf("%s: not a Python file, notebook, shell script, Dockerfile, YAML, JSON or .env file", root)
			}
			add(root, "")
			continue
		}
		err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				skipped = append(skipped, Skip{name, "cannot be read: " + plainError(err)})
				if d != nil && d.IsDir() {
					return fs.SkipDir
				}
				return nil
			case name != root && excluded(name, root, exclude):
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			case d.IsDir():
				if name != root && skippedFolder(d.Name()) {
					return fs.SkipDir
				}
				return nil
			case d.Type()&fs.ModeSymlink != 0:
				info, err := os.Stat(name)
				if err != nil {
					if known(name) || errors.Is(err, syscall.ELOOP) {
						skipped = append(skipped, Skip{name, linkError(err)})
					}
					return nil
				}
				if info.IsDir() || !info.Mode().IsRegular() {
					return nil
				}
			case !d.Type().IsRegular():
				return nil
			}
			if known(name) {
				rel, err := filepath.Rel(root, name)
				if err != nil {
					rel = name
				}
				add(name, rel)
			}
			return nil
		})
		if err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %w", root, err)
		}
	}
	return files, within, skipped, nil
}

// linkError says in words why a path leads to no file.
func linkError(err error) string {
	switch {
	case errors.Is(err, syscall.ELOOP):
		return "is a symbolic link that leads in a circle"
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist, or is a symbolic link that leads nowhere"
	}
	return "cannot be read: " + plainError(err)
}

// excluded matches a path against patterns: a name of a file or folder, or a
// path from the root, with * and ?.
func excluded(name, root string, patterns []string) bool {
	rel, err := filepath.Rel(root, name)
	if err != nil {
		return false
	}
	rel = filepath.ToSlash(rel)
	for _, p := range patterns {
		p = strings.TrimSuffix(p, "/")
		if ok, _ := path.Match(p, rel); ok {
			return true
		}
		if ok, _ := path.Match(p, path.Base(rel)); ok {
			return true
		}
	}
	return false
}

var (
	torchPin        = regexp.MustCompile(`(?m)(?:^|["'\s])torch\s*==\s*(\d+\.\d+(?:\.\d+)?)|pytorch/pytorch:(\d+\.\d+(?:\.\d+)?)|name = "torch"\s+version = "(\d+\.\d+(?:\.\d+)?)`)
	transformersPin = regexp.MustCompile(`(?m)(?:^|["'\s])transformers\s*==\s*(\d+\.\d+(?:\.\d+)?)|name = "transformers"\s+version = "(\d+\.\d+(?:\.\d+)?)`)
)

// pins reports whether a file may pin versions.
func pins(name string) bool {
	base := filepath.Base(name)
	return strings.HasPrefix(base, "requirements") && strings.HasSuffix(base, ".txt") || base == "pyproject.toml" || base == "uv.lock" ||
		base == "poetry.lock" || base == "setup.cfg" || base == "setup.py" || strings.HasPrefix(base, "environment") || strings.HasPrefix(base, "Dockerfile")
}

// pinned collects versions.
type pinned struct{ rules.Surroundings }

func (p *pinned) note(text string) {
	if m := torchPin.FindStringSubmatch(text); m != nil && p.TorchVersion == "" {
		p.TorchVersion = m[1] + m[2] + m[3]
	}
	if m := transformersPin.FindStringSubmatch(text); m != nil && p.TransformersVersion == "" {
		p.TransformersVersion = m[1] + m[2]
	}
}

// survey reads all files once for what one must know about the others: what
// Python files define, pinned versions, limits that are set somewhere. What it
// keeps is small next to the files.
func survey(ctx context.Context, files []string, jobs int) (*model.Project, rules.Surroundings) {
	var around pinned
	var mu sync.Mutex
	python := 0
	folders := map[string]bool{}
	for _, f := range files {
		if isPython(f) {
			python++
		}
		folders[filepath.Dir(f)] = true
	}
	for dir := range folders {
		for _, name := range []string{"requirements.txt", "pyproject.toml", "uv.lock", "poetry.lock", "environment.yml", "environment.yaml", "setup.cfg"} {
			if data, why := read(filepath.Join(dir, name)); why == "" {
				around.note(string(data))
			}
		}
	}
	summaries := make([]*model.FileSummary, len(files))
	_ = each(ctx, jobs, len(files), func(i int) {
		data, why := read(files[i])
		if why != "" {
			return
		}
		text := string(data)
		mu.Lock()
		if pins(files[i]) {
			around.note(text)
		}
		around.SetsFraction = around.SetsFraction || strings.Contains(text, "set_per_process_memory_fraction")
		around.LimitsJAX = around.LimitsJAX || strings.Contains(text, "XLA_PYTHON_CLIENT") || strings.Contains(text, "XLA_CLIENT_MEM")
		mu.Unlock()
		if python < 2 || !strings.HasSuffix(files[i], ".py") || !concerns(text) {
			return
		}
		defer func() { _ = recover() }() // shows again, and is reported, when the file is checked
		if f, err := pysource.Parse(files[i], data); err == nil {
			summaries[i] = model.New(f, nil).Summarize()
		}
	})
	var some []*model.FileSummary
	for _, s := range summaries {
		if s != nil {
			some = append(some, s)
		}
	}
	return model.NewProject(some), around.Surroundings
}
