package torchsnap

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/klauspost/compress/zstd"

	"vramscope/torchsnap/internal/pickle"
	"vramscope/trace"
)

// Error is what is wrong with an input: a text, and the offset in the
// decompressed stream.
type Error = pickle.Error

// Options of reading. The zero value and nil are the defaults.
type Options struct {
	// MaxBytes is the most that is read, after decompression; 8 GiB if 0.
	MaxBytes int64
	// MaxMemory is about the most that the contents may take; if 0, 4 GiB. A
	// real snapshot takes less than its size.
	MaxMemory int64
	// Progress is called now and then with the bytes read of the file, as it
	// is compressed, and its size, 0 if unknown.
	Progress func(read, total int64)
	// Total is the size for Progress; ReadFile finds it out.
	Total int64
}

const (
	defaultMaxBytes  = 8 << 30
	defaultMaxMemory = 4 << 30
)

// ReadFile reads the snapshot in a file. Errors begin with its path.
func ReadFile(path string, opts *Options) (*trace.Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			return nil, fmt.Errorf("%s: %w", path, pe.Err)
		}
		return nil, err
	}
	defer f.Close()
	var o Options
	if opts != nil {
		o = *opts
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && o.Total == 0 {
		o.Total = info.Size()
	}
	t, err := Read(f, &o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Read reads a snapshot, plain or compressed, to the end of r.
func Read(r io.Reader, opts *Options) (*trace.Trace, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.MaxMemory <= 0 {
		o.MaxMemory = defaultMaxMemory
	}
	if o.Progress != nil {
		r = &progress{r: r, report: o.Progress, total: o.Total}
	}
	plain, closer, err := Decompress(r)
	if err != nil {
		return nil, err
	}
	defer closer()
	head, err := plain.Peek(512)
	if err != nil && err != io.EOF {
		return nil, &Error{Offset: int64(len(head)), Text: readError(err)}
	}
	if text := foreign(head); text != "" {
		return nil, &Error{Text: text}
	}
	b := &builder{
		trace:  &trace.Trace{Pools: []trace.Pool{{}}},
		pools:  map[trace.Pool]uint16{},
		labels: map[pickle.Value]trace.LabelID{},
		rings:  map[int]ring{},
		total:  o.Total,
	}
	b.d = pickle.NewDecoder(plain, b, pickle.Limits{Bytes: o.MaxBytes, Memory: o.MaxMemory}, words)
	root, err := b.d.Decode()
	if err != nil {
		return nil, err
	}
	return b.finish(root)
}

// Decompress returns what r holds, undoing gzip and zstd, which it knows by
// their first bytes. The function returned lets go of the decompressor.
func Decompress(r io.Reader) (*bufio.Reader, func(), error) {
	br := bufio.NewReaderSize(r, 64<<10)
	head, err := br.Peek(4)
	if err != nil && err != io.EOF {
		return nil, nil, &Error{Text: readError(err)}
	}
	switch {
	case len(head) >= 2 && head[0] == 0x1f && head[1] == 0x8b:
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, nil, &Error{Text: "gzip: " + readError(err)}
		}
		return bufio.NewReaderSize(whole{z}, 64<<10), func() { z.Close() }, nil
	case string(head) == "\x28\xb5\x2f\xfd":
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, nil, &Error{Text: "zstd: " + readError(err)}
		}
		return bufio.NewReaderSize(whole{z}, 64<<10), z.Close, nil
	}
	return br, func() {}, nil
}

// errEndsEarly is what a decompressor's io.ErrUnexpectedEOF means to people.
var errEndsEarly = errors.New("the compressed data ends early: the file is truncated, copy or write it again")

// whole is a decompressor whose input should be whole.
type whole struct{ r io.Reader }

func (w whole) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errEndsEarly
	}
	return n, err
}

func readError(err error) string {
	var pe *fs.PathError // the caller names the file
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errEndsEarly.Error()
	case errors.As(err, &pe):
		return pe.Err.Error()
	}
	return err.Error()
}

// progress reports every few MiB.
type progress struct {
	r                     io.Reader
	report                func(read, total int64)
	total, read, reported int64
}

func (p *progress) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.read += int64(n)
	if p.read-p.reported >= 1<<20 || err == io.EOF {
		p.reported = p.read
		p.report(p.read, p.total)
	}
	return n, err
}
