// Package cli has the conventions that all commands share: the surroundings
// they run in, their exit statuses, and the --format and --output flags.
package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"vramscope/internal/term"
)

// Env is what a command sees of the world. Tests make their own.
type Env struct {
	Stdin  io.Reader
	Stdout io.Writer // results, nothing else
	Stderr io.Writer // progress, warnings, errors
	Getenv func(string) string
}

// The exit statuses of all commands (`run` exits as its child).
const (
	ExitDone     = 0
	ExitNo       = 1 // done, and the answer is no
	ExitInput    = 2 // wrong usage or unreadable input
	ExitCannot   = 3 // could not be done here
	ExitCanceled = 130
)

// StatusError carries an exit status. A nil Err exits silently: the command
// has said what there is to say.
type StatusError struct {
	Status int
	Err    error
}

func (e *StatusError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Status)
	}
	return e.Err.Error()
}

func (e *StatusError) Unwrap() error { return e.Err }

// No is the error of a command whose answer is no.
var No error = &StatusError{Status: ExitNo}

// Cannot wraps an error of a command that could not do its work here.
func Cannot(err error) error { return &StatusError{Status: ExitCannot, Err: err} }

// Exit prints err where it has text and returns the exit status. Errors
// without a status are those of usage or input.
func Exit(stderr io.Writer, err error) int {
	if err == nil {
		return ExitDone
	}
	status := ExitInput
	var se *StatusError
	if errors.As(err, &se) {
		status = se.Status
		err = se.Err
	}
	if err != nil {
		// One line, whatever the input put into it.
		fmt.Fprintln(stderr, term.Safe(strings.ReplaceAll(err.Error(), "\n", " ")))
	}
	return status
}

// Format is the value of --format.
type Format struct {
	value   string
	allowed []string
}

// FormatFlag adds --format with these values, the first being the default.
func FormatFlag(fs *pflag.FlagSet, allowed ...string) *Format {
	f := &Format{value: allowed[0], allowed: allowed}
	fs.Var(f, "format", "output format: "+strings.Join(allowed, ", "))
	return f
}

func (f *Format) String() string { return f.value }

// Type implements pflag.Value.
func (f *Format) Type() string { return "FORMAT" }

// Set implements pflag.Value.
func (f *Format) Set(v string) error {
	if !slices.Contains(f.allowed, v) {
		return fmt.Errorf("want one of %s", strings.Join(f.allowed, ", "))
	}
	f.value = v
	return nil
}

// Allowed returns the values that Set takes, for shell completion.
func (f *Format) Allowed() []string { return f.allowed }

// Output is where a command with --output writes its result: a file, complete
// or not there at all, or standard output where path is "" or "-".
func Output(env *Env, path string, write func(io.Writer) error) (err error) {
	if path == "" || path == "-" {
		return write(env.Stdout)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".vramscope-*")
	if err != nil {
		var pe *fs.PathError // of a name that nobody gave
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return fmt.Errorf("%s: %w", path, err)
	}
	defer func() {
		if err != nil {
			os.Remove(tmp.Name())
		}
	}()
	if err = write(tmp); err != nil {
		tmp.Close()
		return err
	}
	if err = tmp.Chmod(0o644); err != nil {
		tmp.Close()
		return err
	}
	if err = tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
