package pickle

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
)

// Ref names an object that was written, for writing it again by reference. The
// zero Ref names none.
type Ref uint32

// Encoder writes a pickle of protocol 4 with the opcodes that CPython writes,
// except frames, which readers may do without. Its caller sees to it that the
// values nest. The first error sticks, and Flush returns it.
type Encoder struct {
	w       *bufio.Writer
	buf     []byte
	strings map[string]Ref
	refs    Ref
}

// NewEncoder returns an encoder that writes to w, which Flush completes.
func NewEncoder(w io.Writer) *Encoder {
	e := &Encoder{w: bufio.NewWriterSize(w, 256<<10), strings: map[string]Ref{}}
	e.buf = append(e.buf, opProto, 4)
	return e
}

// Flush ends the pickle.
func (e *Encoder) Flush() error {
	e.buf = append(e.buf, opStop)
	e.spill()
	return e.w.Flush()
}

// spill hands on what was written. bufio.Writer keeps the first error.
func (e *Encoder) spill() {
	e.w.Write(e.buf)
	e.buf = e.buf[:0]
}

func (e *Encoder) memoize() Ref {
	e.buf = append(e.buf, opMemoize)
	if len(e.buf) > 32<<10 {
		e.spill()
	}
	e.refs++
	return e.refs
}

// Get writes an earlier object again.
func (e *Encoder) Get(r Ref) {
	if i := uint32(r - 1); i < 256 {
		e.buf = append(e.buf, opBinGet, byte(i))
	} else {
		e.buf = binary.LittleEndian.AppendUint32(append(e.buf, opLongBinGet), i)
	}
}

// Text writes a string, by reference if it was written before.
func (e *Encoder) Text(s string) {
	if r, ok := e.strings[s]; ok {
		e.Get(r)
		return
	}
	if len(s) < 256 {
		e.buf = append(e.buf, opShortBinUnicode, byte(len(s)))
	} else {
		e.buf = binary.LittleEndian.AppendUint32(append(e.buf, opBinUnicode), uint32(len(s)))
	}
	e.buf = append(e.buf, s...)
	e.strings[s] = e.memoize()
}

// Int writes a number.
func (e *Encoder) Int(n int64) {
	switch {
	case n >= 0 && n < 1<<8:
		e.buf = append(e.buf, opBinInt1, byte(n))
	case n >= 0 && n < 1<<16:
		e.buf = append(e.buf, opBinInt2, byte(n), byte(n>>8))
	case int64(int32(n)) == n:
		e.buf = binary.LittleEndian.AppendUint32(append(e.buf, opBinInt), uint32(n))
	default:
		k := 1
		for k < 8 && n>>(8*k-1) != 0 && n>>(8*k-1) != -1 {
			k++
		}
		e.buf = append(e.buf, opLong1, byte(k))
		for range k {
			e.buf = append(e.buf, byte(n))
			n >>= 8
		}
	}
}

// Uint writes an unsigned number.
func (e *Encoder) Uint(n uint64) {
	if n <= math.MaxInt64 {
		e.Int(int64(n))
		return
	}
	e.buf = append(e.buf, opLong1, 9)
	e.buf = append(binary.LittleEndian.AppendUint64(e.buf, n), 0)
}

// Float writes a number.
func (e *Encoder) Float(f float64) {
	e.buf = binary.BigEndian.AppendUint64(append(e.buf, opBinFloat), math.Float64bits(f))
}

// Bool writes True or False.
func (e *Encoder) Bool(b bool) {
	if b {
		e.buf = append(e.buf, opNewTrue)
	} else {
		e.buf = append(e.buf, opNewFalse)
	}
}

// Pair ends a tuple of the two values before.
func (e *Encoder) Pair() {
	e.buf = append(e.buf, opTuple2)
	e.memoize()
}

// List writes an empty list, into which the values between Mark and Appends
// go.
func (e *Encoder) List() Ref {
	e.buf = append(e.buf, opEmptyList)
	return e.memoize()
}

// Dict writes an empty dict, into which the keys and values between Mark and
// SetItems go.
func (e *Encoder) Dict() Ref {
	e.buf = append(e.buf, opEmptyDict)
	return e.memoize()
}

// Mark begins a batch.
func (e *Encoder) Mark() { e.buf = append(e.buf, opMark) }

// Appends ends a batch of items.
func (e *Encoder) Appends() { e.buf = append(e.buf, opAppends) }

// SetItems ends a batch of keys and values.
func (e *Encoder) SetItems() { e.buf = append(e.buf, opSetItems) }
