package pickle

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
)

// Decode reads the pickle and returns its value.
func (d *Decoder) Decode() (Value, error) {
	if err := d.fill(0, 2); err != nil {
		return 0, err
	}
	if err := d.memo.grow(d, 0); err != nil {
		return 0, err
	}
	var (
		first = d.memo.chunks[0]
		le    = binary.LittleEndian
		buf   = d.buf
		pos   = 0
		stack = d.stack
		floor = 0 // the values below are out of reach: they are before a mark
		v     Value
		err   error
	)
	for {
		if pos >= d.soft {
			if pos, err = d.refill(pos); err != nil {
				return 0, err
			}
			buf = d.buf
		}
		op := buf[pos]
		d.at = d.base + int64(pos)
		pos++
		switch op {
		// In the order of their numbers in real files.
		case opBinGet:
			if v = first[buf[pos]]; v == 0 {
				_, err := d.get(int(buf[pos]))
				return 0, err
			}
			pos++
			// Most often it is the key of an event and a small value follows:
			// both in one go.
			if pos+16 > d.end {
				break
			}
			if w, after := d.smallValue(buf, pos, first); after > 0 && len(stack)+2 <= cap(stack) {
				stack = append(stack, v, w)
				pos = after
				continue
			}
		case opLongBinGet:
			i := int(le.Uint32(buf[pos:]))
			pos += 4
			if c := i >> chunkBits; c < len(d.memo.chunks) && d.memo.chunks[c] != nil {
				v = d.memo.chunks[c][i&chunkMask]
			} else {
				v = 0
			}
			if v == 0 {
				_, err := d.get(i)
				return 0, err
			}
		case opMemoize:
			if len(stack) <= floor {
				return 0, d.underflow("MEMOIZE")
			}
			if err := d.memoize(stack[len(stack)-1]); err != nil {
				return 0, err
			}
			continue
		case opLong1:
			n := int(buf[pos])
			pos++
			if pos+n > d.end {
				return 0, d.truncated()
			}
			if n <= 7 && n > 0 {
				shift := 64 - 8*uint(n)
				x := int64(le.Uint64(buf[pos:])<<shift) >> shift
				v = Make(Int, x)
			} else if v, err = d.long(buf[pos : pos+n]); err != nil {
				return 0, err
			}
			pos += n
		case opMark:
			if len(d.marks) >= maxDepth {
				return 0, d.Errorf("nested more than %d deep", maxDepth)
			}
			d.marks = append(d.marks, len(stack))
			floor = len(stack)
			continue
		case opBinInt1:
			v = Make(Int, int64(buf[pos]))
			pos++
		case opBinInt2:
			v = Make(Int, int64(le.Uint16(buf[pos:])))
			pos += 2
		case opBinInt:
			v = Make(Int, int64(int32(le.Uint32(buf[pos:]))))
			pos += 4
		case opShortBinUnicode, opShortBinString, opShortBinBytes:
			n := int(buf[pos])
			pos++
			if pos+n > d.end {
				return 0, d.truncated()
			}
			if v, err = d.intern(buf[pos : pos+n]); err != nil {
				return 0, err
			}
			pos += n
		case opEmptyList:
			if after, list, err := d.knownList(buf, pos); err != nil {
				return 0, err
			} else if after > 0 {
				pos = after
				stack = append(stack, list)
				continue
			}
			i, err := d.objects.push(d, 0)
			if err != nil {
				return 0, err
			}
			v = Make(List, int64(i))
		case opEmptyDict:
			i, err := d.objects.push(d, 0)
			if err != nil {
				return 0, err
			}
			v = Make(Dict, int64(i))
		case opEmptySet:
			i, err := d.objects.push(d, 0)
			if err != nil {
				return 0, err
			}
			v = Make(List, int64(i))

		case opSetItems, opAppends, opAddItems, opTuple, opList, opDict, opFrozenSet, opPopMark:
			if len(d.marks) == 0 {
				return 0, d.Errorf("%q without a mark before it", op)
			}
			m := floor
			d.marks = d.marks[:len(d.marks)-1]
			floor = 0
			if n := len(d.marks); n > 0 {
				floor = d.marks[n-1]
			}
			items := stack[m:]
			switch op {
			case opSetItems, opAppends, opAddItems:
				if m <= floor {
					return 0, d.underflow("SETITEMS or APPENDS")
				}
				d.stack = stack
				if err := d.fillContainer(op == opSetItems, stack[m-1], items); err != nil {
					return 0, err
				}
				stack = stack[:m]
				continue
			case opPopMark:
				stack = stack[:m]
				continue
			case opTuple, opFrozenSet:
				v, err = d.tuple(items)
			default:
				v, err = d.container(op == opDict, items)
			}
			if err != nil {
				return 0, err
			}
			stack = stack[:m]
		case opSetItem, opAppend:
			n := 1
			if op == opSetItem {
				n = 2
			}
			m := len(stack) - n
			if m-1 < floor {
				return 0, d.underflow("SETITEM or APPEND")
			}
			if err := d.fillContainer(op == opSetItem, stack[m-1], stack[m:]); err != nil {
				return 0, err
			}
			stack = stack[:m]
			continue
		case opTuple1, opTuple2, opTuple3:
			m := len(stack) - int(op-opTuple1) - 1
			if m < floor {
				return 0, d.underflow("TUPLE")
			}
			if v, err = d.tuple(stack[m:]); err != nil {
				return 0, err
			}
			stack = stack[:m]
		case opEmptyTuple:
			if v, err = d.tuple(nil); err != nil {
				return 0, err
			}
		case opNewTrue, opNewFalse:
			v = Make(Bool, int64(opNewFalse-op))
		case opNone:
			v = Make(None, 0)
		case opBinFloat:
			if v, err = d.float(math.Float64frombits(binary.BigEndian.Uint64(buf[pos:]))); err != nil {
				return 0, err
			}
			pos += 8

		case opPut, opBinPut, opLongBinPut:
			var i int64
			switch op {
			case opBinPut:
				i = int64(buf[pos])
				pos++
			case opLongBinPut:
				i = int64(le.Uint32(buf[pos:]))
				pos += 4
			default:
				var line []byte
				if line, pos, err = d.line(pos); err != nil {
					return 0, err
				}
				buf = d.buf
				if i, err = strconv.ParseInt(string(line), 10, 64); err != nil {
					return 0, d.Errorf("memo index %.20q", line)
				}
			}
			if len(stack) <= floor {
				return 0, d.underflow("PUT")
			}
			if err := d.put(i, stack[len(stack)-1]); err != nil {
				return 0, err
			}
			continue
		case opGet, opInt, opLong, opFloat, opUnicode, opString:
			var line []byte
			if line, pos, err = d.line(pos); err != nil {
				return 0, err
			}
			buf = d.buf
			if v, err = d.textValue(op, line); err != nil {
				return 0, err
			}
		case opLong4, opBinUnicode, opBinString, opBinBytes, opBinUnicode8, opBinBytes8, opByteArray8:
			var n uint64
			if op == opBinUnicode8 || op == opBinBytes8 || op == opByteArray8 {
				n = le.Uint64(buf[pos:])
				pos += 8
			} else {
				n = uint64(le.Uint32(buf[pos:]))
				pos += 4
			}
			if n > maxString {
				return 0, d.Errorf("declares %d bytes of one value; at most %d are taken", n, maxString)
			}
			if pos+int(n) > d.end {
				if pos, err = d.need(pos, int(n)); err != nil {
					return 0, err
				}
				buf = d.buf
			}
			if op == opLong4 {
				v, err = d.long(buf[pos : pos+int(n)])
			} else {
				v, err = d.intern(buf[pos : pos+int(n)])
			}
			if err != nil {
				return 0, err
			}
			pos += int(n)

		case opDup:
			if len(stack) <= floor {
				return 0, d.underflow("DUP")
			}
			v = stack[len(stack)-1]
		case opPop:
			if len(stack) > floor {
				stack = stack[:len(stack)-1]
				continue
			}
			return 0, d.underflow("POP")
		case opProto:
			if buf[pos] > 5 {
				return 0, d.Errorf("pickle protocol %d; 0 to 5 are known", buf[pos])
			}
			pos++
			continue
		case opFrame: // only says how far a buffer should be read
			pos += 8
			continue
		case opStop:
			if len(stack) != 1 || len(d.marks) != 0 {
				return 0, d.Errorf("the pickle stops with %d values on its stack, want 1", len(stack))
			}
			d.stack = stack
			return stack[0], d.drain(pos)
		default:
			if _, bad := code[op]; bad {
				d.stack = stack
				return 0, d.refuse(op, buf[pos:min(d.end, pos+512)])
			}
			return 0, d.Errorf("unknown pickle opcode %#02x", op)
		}
		if len(stack) == cap(stack) {
			if err := d.Charge(8 * max(cap(stack), 1024)); err != nil {
				return 0, err
			}
		}
		stack = append(stack, v)
		// CPython memoises nearly all that it makes, and a dict's mark follows.
		if buf[pos] == opMemoize {
			pos++
			if err := d.memoize(v); err != nil {
				return 0, err
			}
			if buf[pos] == opMark && len(d.marks) < maxDepth {
				pos++
				d.marks = append(d.marks, len(stack))
				floor = len(stack)
			}
		}
	}
}

// smallValue reads the number or the memoised value that begins at pos, and
// returns the position after it; 0 if something else is there.
func (d *Decoder) smallValue(buf []byte, pos int, first *[1 << chunkBits]Value) (v Value, after int) {
	le := binary.LittleEndian
	switch buf[pos] {
	case opBinInt1:
		return Make(Int, int64(buf[pos+1])), pos + 2
	case opBinGet:
		if v = first[buf[pos+1]]; v != 0 {
			return v, pos + 2
		}
	case opLong1:
		if n := int(buf[pos+1]); n <= 7 && n > 0 {
			shift := 64 - 8*uint(n)
			return Make(Int, int64(le.Uint64(buf[pos+2:])<<shift)>>shift), pos + 2 + n
		}
	case opBinInt:
		return Make(Int, int64(int32(le.Uint32(buf[pos+1:])))), pos + 5
	case opBinInt2:
		return Make(Int, int64(le.Uint16(buf[pos+1:]))), pos + 3
	case opLongBinGet:
		i := int(le.Uint32(buf[pos+1:]))
		if c := i >> chunkBits; c < len(d.memo.chunks) && d.memo.chunks[c] != nil {
			if v = d.memo.chunks[c][i&chunkMask]; v != 0 {
				return v, pos + 5
			}
		}
	}
	return 0, 0
}

// knownList recognises, at an EMPTY_LIST that ends at pos, a list that has
// only earlier objects in it: what most of a snapshot's bytes are. Equal bytes
// make equal lists, so that a look into a map replaces reading them. It
// returns the position after the list, 0 if this is none.
func (d *Decoder) knownList(buf []byte, pos int) (after int, list Value, err error) {
	start, memo := pos, pos
	switch buf[pos] {
	case opMemoize:
		start++
	case opBinPut:
		start += 2
	case opLongBinPut:
		start += 5
	}
	end := start
	if buf[start] == opMark {
		start++
		end = start
	run:
		for {
			switch buf[end] {
			case opBinGet:
				end += 2
			case opLongBinGet:
				end += 5
			default:
				break run
			}
			if end >= d.end {
				return 0, 0, nil
			}
		}
		// Another mark would add a second batch.
		if end == start || buf[end] != opAppends || buf[end+1] == opMark {
			return 0, 0, nil
		}
	} else {
		switch buf[start] {
		case opBinGet:
			end += 2
		case opLongBinGet:
			end += 5
		default:
			return 0, 0, nil
		}
		if end >= d.end || buf[end] != opAppend {
			return 0, 0, nil
		}
		// One by one is how protocol 0 writes them all.
		switch buf[end+1] {
		case opBinGet, opLongBinGet:
			if next := end + 3; buf[end+1] == opBinGet && buf[next] == opAppend || buf[end+1] == opLongBinGet && buf[min(next+3, len(buf)-1)] == opAppend {
				return 0, 0, nil
			}
		}
	}
	if end+1 >= d.end {
		return 0, 0, nil
	}
	run := buf[start:end]
	known, ok := d.runs[string(run)]
	if !ok {
		if known, err = d.newRun(run); err != nil || known == 0 {
			return 0, 0, err
		}
	}
	i, err := d.objects.push(d, known)
	if err != nil {
		return 0, 0, err
	}
	list = Make(List, int64(i))
	switch buf[memo] {
	case opMemoize:
		err = d.memoize(list)
	case opBinPut:
		err = d.put(int64(buf[memo+1]), list)
	case opLongBinPut:
		err = d.put(int64(binary.LittleEndian.Uint32(buf[memo+1:])), list)
	}
	return end + 1, list, err
}

// newRun asks the Sink what a list of earlier objects is.
func (d *Decoder) newRun(run []byte) (Value, error) {
	d.scratch = d.scratch[:0]
	for i := 0; i < len(run); {
		n := int(run[i+1])
		if run[i] == opBinGet {
			i += 2
		} else {
			n = int(binary.LittleEndian.Uint32(run[i+1:]))
			i += 5
		}
		v, err := d.get(n)
		if err != nil {
			return 0, err
		}
		d.scratch = append(d.scratch, v)
	}
	known, err := d.sink.List(d.scratch)
	if err != nil || known == 0 {
		return 0, err
	}
	if err := d.Charge(len(run) + 64); err != nil {
		return 0, err
	}
	d.runs[string(run)] = known
	return known, nil
}

// fillContainer does SETITEMS, APPENDS and their forms for one item.
func (d *Decoder) fillContainer(dict bool, target Value, items []Value) error {
	switch {
	case dict && len(items)%2 != 0:
		return d.Errorf("a dict with a key that has no value")
	case dict && target.Kind() == Dict:
		return d.setItems(target, items)
	case !dict && target.Kind() == List:
		return d.extend(target, items)
	case dict:
		return d.Errorf("sets items of %v, want a dict", target)
	}
	return d.Errorf("appends to %v, want a list", target)
}

// container does LIST and DICT.
func (d *Decoder) container(dict bool, items []Value) (Value, error) {
	i, err := d.objects.push(d, 0)
	if err != nil || len(items) == 0 {
		if dict {
			return Make(Dict, int64(i)), err
		}
		return Make(List, int64(i)), err
	}
	v := Make(List, int64(i))
	if dict {
		v = Make(Dict, int64(i))
	}
	return v, d.fillContainer(dict, v, items)
}

// refill reads more when little is left. At the end of the stream it checks
// that the next opcode is whole.
func (d *Decoder) refill(pos int) (int, error) {
	d.at = d.base + int64(pos)
	if !d.eof {
		if err := d.fill(pos, lowWater+1); err != nil {
			return 0, err
		}
		pos = 0
	}
	if d.eof && (pos >= d.end || pos+1+int(fixedArgs[d.buf[pos]]) > d.end) {
		return 0, d.truncated()
	}
	return pos, nil
}

// need makes n bytes from pos on available.
func (d *Decoder) need(pos, n int) (int, error) {
	if err := d.fill(pos, n+lowWater); err != nil {
		return 0, err
	}
	if d.end < n {
		return 0, d.truncated()
	}
	return 0, nil
}

// line reads an argument that ends with a line feed.
func (d *Decoder) line(pos int) ([]byte, int, error) {
	for want := lowWater; ; want *= 4 {
		if i := bytes.IndexByte(d.buf[pos:d.end], '\n'); i >= 0 {
			return bytes.TrimSuffix(d.buf[pos:pos+i], []byte("\r")), pos + i + 1, nil
		}
		if d.eof {
			return nil, 0, d.truncated()
		}
		if want > maxLine {
			return nil, 0, d.Errorf("a line of more than %d bytes", maxLine)
		}
		if err := d.fill(pos, want); err != nil {
			return nil, 0, err
		}
		pos = 0
	}
}

// drain reads what follows the pickle, so that checksums are checked and a
// pipe's writer can end.
func (d *Decoder) drain(pos int) error {
	for !d.eof {
		if err := d.fill(d.end, 1); err != nil {
			return err
		}
	}
	return nil
}

// long reads a little-endian number in two's complement. Of unsigned 64-bit
// ones (PyTorch writes unknown lines as 2^64-1) it keeps the bits.
func (d *Decoder) long(b []byte) (Value, error) {
	sign := byte(0)
	if len(b) > 0 && b[len(b)-1]&0x80 != 0 {
		sign = 0xff
	}
	for len(b) > 8 && b[len(b)-1] == sign {
		b = b[:len(b)-1]
	}
	if len(b) > 8 || len(b) == 8 && sign != 0 && b[7]&0x80 == 0 {
		return 0, d.Errorf("an integer of more than 64 bits")
	}
	var n uint64
	for i := len(b) - 1; i >= 0; i-- {
		n = n<<8 | uint64(b[i])
	}
	if sign != 0 && len(b) < 8 {
		n |= ^uint64(0) << (8 * len(b))
	}
	return d.integer(int64(n))
}

// textValue reads the arguments of protocol 0.
func (d *Decoder) textValue(op byte, line []byte) (Value, error) {
	s := string(line)
	switch op {
	case opGet:
		i, err := strconv.ParseUint(s, 10, 31)
		if err != nil {
			return 0, d.Errorf("memo index %.20q", s)
		}
		return d.get(int(i))
	case opFloat:
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return 0, d.Errorf("float %.30q", s)
		}
		return d.float(f)
	case opUnicode:
		return d.intern(unescapeUnicode(line))
	case opString:
		if n := len(line); n >= 2 && (line[0] == '\'' || line[0] == '"') && line[n-1] == line[0] {
			return d.intern(line[1 : n-1])
		}
		return 0, d.Errorf("string %.30q without quotes", s)
	}
	if op == opInt && (s == "00" || s == "01") {
		return Make(Bool, int64(s[1]-'0')), nil
	}
	if op == opLong && len(s) > 0 && s[len(s)-1] == 'L' {
		s = s[:len(s)-1]
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, d.Errorf("integer %.30q", s)
	}
	return d.integer(n)
}

// unescapeUnicode undoes Python's raw-unicode-escape: \uXXXX and \UXXXXXXXX,
// and Latin-1 for the rest.
func unescapeUnicode(b []byte) []byte {
	var out []byte
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' && i+1 < len(b) {
			n := map[byte]int{'u': 4, 'U': 8}[b[i+1]]
			if n > 0 && i+2+n <= len(b) {
				if r, err := strconv.ParseUint(string(b[i+2:i+2+n]), 16, 32); err == nil {
					out = append(out, string(rune(r))...)
					i += 1 + n
					continue
				}
			}
		}
		out = append(out, string(rune(b[i]))...)
	}
	return out
}

func (d *Decoder) truncated() error {
	return d.Errorf("the file ends at byte %d in the middle of a value: it is truncated, copy or write it again", d.base+int64(d.end))
}

func (d *Decoder) underflow(op string) error {
	return d.Errorf("%s with too few values before it", op)
}
