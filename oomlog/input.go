package oomlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrBinary is returned, wrapped in a word about what was found, for input that
// is no text.
var ErrBinary = errors.New("not a text")

// ErrEmpty is returned for input without a byte.
var ErrEmpty = errors.New("empty input")

// magics are the first bytes of files that people hand over by mistake.
var magics = []struct {
	bytes string
	what  string
}{
	{"\x1f\x8b", "gzip: decompress it first"},
	{"\x28\xb5\x2f\xfd", "zstd: decompress it first"},
	{"\xfd7zXZ\x00", "xz: decompress it first"},
	{"BZh", "bzip2: decompress it first"},
	{"PK\x03\x04", "a zip archive (a checkpoint or a spreadsheet)"},
	{"\x7fELF", "an ELF program"},
	{"\x80\x02", "a pickle"}, {"\x80\x03", "a pickle"}, {"\x80\x04", "a pickle"}, {"\x80\x05", "a pickle"},
	{"\x89PNG", "a PNG picture"},
	{"%PDF-", "a PDF"},
	{"SQLite format 3\x00", "an SQLite data base"},
}

// openText looks at the start of the input and returns it as UTF-8.
func openText(r io.Reader) (io.Reader, string, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	head, err := br.Peek(8 << 10)
	if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, "", err
	}
	if len(head) == 0 {
		return nil, "", ErrEmpty
	}
	for _, m := range magics {
		if bytes.HasPrefix(head, []byte(m.bytes)) {
			return nil, "", fmt.Errorf("%w: it looks like %s", ErrBinary, m.what)
		}
	}
	switch {
	case bytes.HasPrefix(head, []byte{0xff, 0xfe}):
		return &utf16Reader{r: br}, "utf-16le", nil
	case bytes.HasPrefix(head, []byte{0xfe, 0xff}):
		return &utf16Reader{r: br, big: true}, "utf-16be", nil
	case bytes.HasPrefix(head, []byte{0xef, 0xbb, 0xbf}):
		br.Discard(3)
		return br, "utf-8", nil
	}
	// PowerShell's ">" writes UTF-16; some tools drop its mark.
	if even, odd := zeros(head); len(head) >= 64 {
		switch half := len(head) / 2; {
		case odd > half*7/10 && even < half/20:
			return &utf16Reader{r: br}, "utf-16le", nil
		case even > half*7/10 && odd < half/20:
			return &utf16Reader{r: br, big: true}, "utf-16be", nil
		}
	}
	if at, n := controls(head); n > len(head)/10 {
		return nil, "", fmt.Errorf("%w: byte 0x%02x at offset %d, and %d of the first %d bytes are control characters",
			ErrBinary, head[at], at, n, len(head))
	}
	return br, "utf-8", nil
}

// zeros counts NUL bytes at even and odd offsets.
func zeros(b []byte) (even, odd int) {
	for i, c := range b {
		if c == 0 {
			if i%2 == 0 {
				even++
			} else {
				odd++
			}
		}
	}
	return even, odd
}

// controls counts bytes that no text holds, and says where the first is. A run of
// NULs at the start, which log rotation by truncation leaves, does not count
// when text follows.
func controls(b []byte) (first, n int) {
	if t := bytes.TrimLeft(b, "\x00"); len(t) > 0 {
		first, b = len(b)-len(t), t
	}
	at := -1
	for i, c := range b {
		if c < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != 0x1b && c != '\b' && c != '\f' || c == 0x7f {
			if at < 0 {
				at = first + i
			}
			n++
		}
	}
	return max(at, 0), n
}

// utf16Reader decodes UTF-16. An unpaired surrogate or a last odd byte becomes
// U+FFFD.
type utf16Reader struct {
	r    io.Reader
	big  bool
	in   [4 << 10]byte
	have int
	high rune
	out  []byte
	err  error
}

func (u *utf16Reader) Read(p []byte) (int, error) {
	for len(u.out) == 0 {
		if u.err != nil {
			return 0, u.err
		}
		n, err := u.r.Read(u.in[u.have:])
		u.have += n
		if err != nil {
			u.err = err
		}
		u.decode()
	}
	n := copy(p, u.out)
	u.out = u.out[n:]
	return n, nil
}

func (u *utf16Reader) decode() {
	u.out = u.out[:0]
	i := 0
	for ; i+1 < u.have; i += 2 {
		c := rune(u.in[i]) | rune(u.in[i+1])<<8
		if u.big {
			c = rune(u.in[i+1]) | rune(u.in[i])<<8
		}
		switch {
		case u.high != 0 && utf16.IsSurrogate(c) && c >= 0xdc00:
			u.out = utf8.AppendRune(u.out, utf16.DecodeRune(u.high, c))
			u.high = 0
			continue
		case u.high != 0:
			u.out = utf8.AppendRune(u.out, utf8.RuneError)
			u.high = 0
		}
		switch {
		case c >= 0xd800 && c < 0xdc00:
			u.high = c
		case c != 0xfeff:
			u.out = utf8.AppendRune(u.out, c)
		}
	}
	u.have = copy(u.in[:], u.in[i:u.have])
	if u.err != nil && (u.have > 0 || u.high != 0) {
		u.out = utf8.AppendRune(u.out, utf8.RuneError)
		u.have, u.high = 0, 0
	}
}
