package lint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Config is what a configuration file says: the table [tool.vramscope.lint] of
// pyproject.toml, or [lint] of vramscope.toml.
type Config struct {
	File     string
	Select   []string
	Ignore   []string
	Exclude  []string
	Baseline string
	Pedantic bool
}

// FindConfig looks for a configuration from the folder of start upwards, to
// the first pyproject.toml or vramscope.toml with the table. None is no error.
func FindConfig(start string) (Config, error) {
	dir, err := filepath.Abs(start)
	if err != nil {
		return Config{}, nil
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		dir = filepath.Dir(dir)
	}
	for {
		for _, name := range []string{"vramscope.toml", "pyproject.toml"} {
			c, found, err := ReadConfig(filepath.Join(dir, name))
			if found || err != nil {
				return c, err
			}
		}
		up := filepath.Dir(dir)
		if up == dir {
			return Config{}, nil
		}
		dir = up
	}
}

// ReadConfig reads one file, and reports whether it is there and has the table.
func ReadConfig(name string) (Config, bool, error) {
	c := Config{File: name}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		return c, false, fmt.Errorf("%s: %s", name, plainError(err))
	}
	table := "tool.vramscope.lint"
	if filepath.Base(name) != "pyproject.toml" {
		table = "lint"
	}
	found, err := c.parse(string(data), table)
	if err != nil {
		return c, found, fmt.Errorf("%s: %w", name, err)
	}
	if c.Baseline != "" && !filepath.IsAbs(c.Baseline) {
		c.Baseline = filepath.Join(filepath.Dir(name), c.Baseline)
	}
	return c, found, nil
}

// parse reads the one table, whose values are strings, booleans and lists of
// strings: the part of TOML that the settings use. Other tables are skipped.
func (c *Config) parse(text, table string) (found bool, err error) {
	in := false
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if strings.HasPrefix(line, "[") {
			name := strings.Trim(strings.TrimSpace(strings.SplitN(line, "#", 2)[0]), "[] \t")
			in = name == table
			found = found || in
			continue
		}
		if !in || line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return found, fmt.Errorf("line %d: expected key = value, found %q", i+1, line)
		}
		first := i + 1
		value = strings.TrimSpace(value)
		if strings.HasPrefix(value, "[") { // a list may go over several lines
			for !closed(value) && i+1 < len(lines) {
				i++
				value += "\n" + strings.TrimSpace(lines[i])
			}
		}
		if err := c.set(strings.TrimSpace(key), value); err != nil {
			return found, fmt.Errorf("line %d: %w", first, err)
		}
	}
	return found, nil
}

func (c *Config) set(key, value string) error {
	switch key {
	case "select", "ignore", "exclude":
		list, err := tomlList(value)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		switch key {
		case "select":
			c.Select = list
		case "ignore":
			c.Ignore = list
		default:
			c.Exclude = list
		}
	case "baseline":
		s, rest, err := tomlString(value)
		if err != nil || !blank(rest) {
			return fmt.Errorf("%s: expected a string, found %s", key, value)
		}
		c.Baseline = s
	case "pedantic":
		word := strings.TrimSpace(strings.SplitN(value, "#", 2)[0])
		if word != "true" && word != "false" {
			return fmt.Errorf("%s: expected true or false, found %s", key, value)
		}
		c.Pedantic = word == "true"
	default:
		return fmt.Errorf("unknown key %q: the table has select, ignore, exclude, baseline and pedantic", key)
	}
	return nil
}

// closed reports whether a list that begins here ends here.
func closed(value string) bool {
	_, err := tomlList(value)
	return err == nil
}

func blank(s string) bool {
	s = strings.TrimSpace(s)
	return s == "" || s[0] == '#'
}

// tomlString reads a basic or literal string and returns what follows it.
func tomlString(s string) (text, rest string, err error) {
	if s == "" || s[0] != '"' && s[0] != '\'' {
		return "", s, errors.New("expected a string")
	}
	quote := s[0]
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == quote:
			return b.String(), s[i+1:], nil
		case s[i] == '\n':
			return "", s, errors.New("a string that does not end")
		case s[i] == '\\' && quote == '"' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return "", s, errors.New("a string that does not end")
}

func tomlList(s string) ([]string, error) {
	if s == "" || s[0] != '[' {
		return nil, errors.New("expected a list of strings")
	}
	s = s[1:]
	out := []string{}
	for {
		s = skipBlank(s)
		if strings.HasPrefix(s, "]") {
			if !blank(s[1:]) {
				return nil, errors.New("something follows the list")
			}
			return out, nil
		}
		text, rest, err := tomlString(s)
		if err != nil {
			return nil, err
		}
		out = append(out, text)
		s = skipBlank(rest)
		if strings.HasPrefix(s, ",") {
			s = s[1:]
		} else if !strings.HasPrefix(s, "]") {
			return nil, errors.New("expected a comma or the end of the list")
		}
	}
}

// skipBlank skips space, line ends and comments.
func skipBlank(s string) string {
	for {
		s = strings.TrimLeft(s, " \t\r\n")
		if !strings.HasPrefix(s, "#") {
			return s
		}
		_, s, _ = strings.Cut(s, "\n")
	}
}
