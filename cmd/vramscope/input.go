package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	"vramscope/internal/cli"
	"vramscope/internal/jaxprof"
	"vramscope/oomlog"
	"vramscope/replay"
	"vramscope/torchsnap"
	"vramscope/trace"
)

// inputKind is what a file holds.
type inputKind int

const (
	textInput inputKind = iota
	snapshotInput
	jaxInput
)

// input is an open file or standard input, decompressed, with its kind known
// from its first bytes.
type input struct {
	io.Reader
	name     string
	kind     inputKind
	paste    oomlog.Paste // of a text
	progress *progress
	closers  []func()
}

// sniffed is how much of a file is looked at to tell its kind.
const sniffed = 64 << 10

// openInput opens a file, or standard input for "-".
func openInput(env *cli.Env, file string) (*input, error) {
	in := &input{name: file, progress: newProgress(env, "reading "+file)}
	in.closers = append(in.closers, in.progress.end)
	r := env.Stdin
	var total int64
	if file == "-" {
		in.name = "standard input"
	} else {
		f, err := os.Open(file)
		if err != nil {
			return nil, in.fail(err)
		}
		in.closers = append(in.closers, func() { f.Close() })
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			total = info.Size()
		}
		r = f
	}
	plain, done, err := torchsnap.Decompress(&counter{r: r, report: in.progress.report, total: total})
	if err != nil {
		in.close()
		return nil, in.fail(err)
	}
	in.closers = append(in.closers, done)
	buffered := bufio.NewReaderSize(plain, sniffed)
	in.Reader = buffered
	head, err := buffered.Peek(sniffed)
	if err != nil && err != io.EOF && len(head) == 0 {
		in.close()
		return nil, in.fail(err)
	}
	if len(head) == 0 {
		in.close()
		return nil, in.fail(errors.New("is empty: give a memory snapshot or a log"))
	}
	switch {
	case jaxprof.IsProfile(head):
		in.kind = jaxInput
	case head[0] == 0x80, // PROTO, the first opcode of pickles since protocol 2
		binary(head): // no log: the reader of snapshots says what it is
		in.kind = snapshotInput
	default:
		in.paste = oomlog.Sniff(head)
	}
	return in, nil
}

// binary reports whether a file begins as no text does, whatever its encoding.
func binary(head []byte) bool {
	for _, mark := range []string{"\xff\xfe", "\xfe\xff"} { // UTF-16
		if bytes.HasPrefix(head, []byte(mark)) {
			return false
		}
	}
	r, n := utf8.DecodeRune(head)
	return r == utf8.RuneError && n == 1
}

// counter reports what was read.
type counter struct {
	r           io.Reader
	report      func(read, total int64)
	read, total int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.read += int64(n)
	c.report(c.read, c.total)
	return n, err
}

func (in *input) close() {
	for i := len(in.closers) - 1; i >= 0; i-- {
		in.closers[i]()
	}
	in.closers = nil
}

// fail puts the file's name in front of an error, once.
func (in *input) fail(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	if strings.HasPrefix(err.Error(), in.name+":") {
		return err
	}
	return fmt.Errorf("%s: %w", in.name, err)
}

// program reads the snapshot and prepares one of its devices for replay: the
// given one, or for -1 the one with the most events.
func (in *input) program(ctx context.Context, env *cli.Env, device int) (*replay.Program, error) {
	if in.kind == jaxInput {
		return nil, in.fail(errors.New("is a memory profile of JAX, which holds one moment and no events: only explain reads it"))
	}
	t, err := torchsnap.Read(in, nil)
	in.progress.end()
	if err != nil {
		return nil, in.fail(err)
	}
	d, err := chooseDevice(t, device)
	if err != nil {
		return nil, in.fail(err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(t.Devices) > 1 && device < 0 {
		fmt.Fprintf(env.Stderr, "%s: has %d devices; this is about device %d (--device chooses)\n", in.name, len(t.Devices), d.Ordinal)
	}
	return replay.Compile(t, d), nil
}

// openProgram reads a snapshot from a file; see input.program.
func openProgram(ctx context.Context, env *cli.Env, file string, device int) (*replay.Program, error) {
	in, err := openInput(env, file)
	if err != nil {
		return nil, err
	}
	defer in.close()
	return in.program(ctx, env, device)
}

func chooseDevice(t *trace.Trace, ordinal int) (*trace.Device, error) {
	var best *trace.Device
	for i := range t.Devices {
		d := &t.Devices[i]
		if d.Ordinal == ordinal {
			return d, nil
		}
		if best == nil || d.Events.Len() > best.Events.Len() {
			best = d
		}
	}
	if ordinal >= 0 {
		return nil, fmt.Errorf("holds nothing of device %d", ordinal)
	}
	if best == nil || best.Events.Len() == 0 {
		return nil, errors.New("holds no events: call torch.cuda.memory._record_memory_history() before the memory is used, then dump again")
	}
	return best, nil
}
