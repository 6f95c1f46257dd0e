package pickle

import (
	"errors"
	"fmt"
	"io"
)

const (
	windowSize = 256 << 10
	lowWater   = 16 << 10 // refill when fewer bytes are left
	slack      = 16       // zeros after the end, so that arguments may be read before they are checked

	// maxString is the longest string taken. A snapshot's are names of files
	// and functions, and settings.
	maxString = 64 << 20

	// maxLine is the longest line taken of protocol 0, which has one for a
	// number or string.
	maxLine = 4 << 20
)

// window is the part of the stream that is in memory.
type window struct {
	r    io.Reader
	buf  []byte // slack bytes longer than end
	base int64  // offset in the stream of buf[0]
	end  int    // bytes in buf
	soft int    // refill when the position reaches this
	eof  bool
	max  int64 // bytes of the stream that may be read
}

// fill moves what begins at pos to the front and reads until at least want
// bytes are there or the stream ends. pos becomes 0.
func (w *window) fill(pos, want int) error {
	n := copy(w.buf, w.buf[pos:w.end])
	w.base += int64(pos)
	w.end = n
	for !w.eof && w.end < want {
		if len(w.buf)-slack-w.end < windowSize/4 {
			// Double what has arrived: a declared size proves nothing.
			bigger := make([]byte, max(windowSize, 2*w.end)+slack)
			copy(bigger, w.buf[:w.end])
			w.buf = bigger
		}
		m, err := w.r.Read(w.buf[w.end : len(w.buf)-slack])
		w.end += m
		if w.base+int64(w.end) > w.max {
			return &Error{w.base + int64(w.end), fmt.Sprintf("more than %d bytes (decompressed); a larger file needs a higher limit", w.max)}
		}
		if err == io.EOF {
			w.eof = true
		} else if err != nil {
			var own *Error
			if errors.As(err, &own) {
				return err
			}
			return &Error{w.base + int64(w.end), fmt.Sprintf("reading: %v", err)}
		}
	}
	w.soft = w.end - lowWater
	if w.eof {
		w.soft = w.end - slack
	}
	clear(w.buf[w.end : w.end+slack])
	return nil
}

// Error is what is wrong with the input, and where.
type Error struct {
	Offset int64 // in the decompressed stream
	Text   string
}

func (e *Error) Error() string { return fmt.Sprintf("byte %d: %s", e.Offset, e.Text) }
