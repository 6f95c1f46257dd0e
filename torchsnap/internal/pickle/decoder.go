// Package pickle reads Python pickles that hold plain data: numbers, strings,
// lists, tuples, dicts. It refuses every opcode that would make Python run code
// or fetch an object from elsewhere, so reading a hostile file is safe.
//
// It is made for files of a few repeated shapes and hundreds of megabytes. A
// value is eight bytes without pointers. Dicts are handed to a Sink as they
// end, and lists that consist of known objects as soon as they are recognised,
// so that the caller keeps rows of a table instead of objects.
//
// All of protocols 0 to 5 is read, except out-of-band buffers.
package pickle

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Sink takes what a pickle holds.
type Sink interface {
	// Dict takes the keys and values of a dict that is written in one piece,
	// as all but protocol 0 do, and returns what it is Known as, or the zero
	// Value if the decoder shall keep it as it is.
	Dict(pairs []Value) (Value, error)
	// List takes the items of a list that consists of earlier objects.
	List(items []Value) (Value, error)
}

// Limits bound what a decoder takes.
type Limits struct {
	Bytes  int64 // of the stream
	Memory int64 // approximate, of what the decoder and its Sink keep
}

// Decoder reads one pickle.
type Decoder struct {
	window
	sink  Sink
	at    int64 // offset of the current opcode
	stack []Value
	marks []int

	memo    table
	objects table // by index of a List or Dict: Missing (empty), stored, or Known
	items   [][]Value
	bigs    []int64
	floats  []float64
	text    []string
	strings map[string]Value
	// The string interned last.
	lastText string
	last     Value
	runs     map[string]Value // what a run of GETs makes: the memo never changes
	scratch  []Value
	memory   int64
	limit    int64
}

// maxDepth bounds the nesting. A snapshot has six levels.
const maxDepth = 500

// NewDecoder returns a decoder that reads r. words are strings whose values
// the Sink wants to know beforehand: word i is Make(String, i).
func NewDecoder(r io.Reader, sink Sink, limits Limits, words []string) *Decoder {
	d := &Decoder{
		window:  window{r: r, max: limits.Bytes, buf: make([]byte, windowSize+slack)},
		sink:    sink,
		strings: make(map[string]Value, 1024),
		runs:    make(map[string]Value, 1024),
		stack:   make([]Value, 0, 1<<13),
		limit:   limits.Memory,
	}
	for i, w := range words {
		d.text = append(d.text, w)
		d.strings[w] = Make(String, int64(i))
	}
	return d
}

// Charge counts bytes of memory and fails when they pass the limit.
func (d *Decoder) Charge(bytes int) error {
	if d.memory += int64(bytes); d.memory > d.limit {
		return d.Errorf("the contents need more than %d MiB of memory; this is no sensible snapshot, or it needs a higher limit", d.limit>>20)
	}
	return nil
}

// Offset is the place of the opcode that is being read.
func (d *Decoder) Offset() int64 { return d.at }

// Errorf returns an Error at the current opcode.
func (d *Decoder) Errorf(format string, args ...any) error {
	return &Error{d.at, fmt.Sprintf(format, args...)}
}

// Text returns the text of a String.
func (d *Decoder) Text(v Value) string { return d.text[v.Index()] }

// Int returns an integer, false if v is none.
func (d *Decoder) Int(v Value) (int64, bool) {
	switch v.Kind() {
	case Int:
		return v.Payload(), true
	case Big:
		return d.bigs[v.Index()], true
	}
	return 0, false
}

// Float returns a number, false if v is none.
func (d *Decoder) Float(v Value) (float64, bool) {
	if v.Kind() == Float {
		return d.floats[v.Index()], true
	}
	n, ok := d.Int(v)
	return float64(n), ok
}

// Known returns what the Sink knows a List or Dict as, Missing if nothing.
func (d *Decoder) Known(v Value) Value {
	if k := v.Kind(); k == List || k == Dict {
		if o := *d.objects.at(v.Index()); o.Kind() >= firstKnown {
			return o
		}
	}
	return 0
}

// SetKnown records what a List or Dict is known as, and forgets its items. A
// pickle that changes it later is refused.
func (d *Decoder) SetKnown(v, known Value) {
	o := d.objects.at(v.Index())
	if o.Kind() == stored {
		d.items[o.Index()] = nil
	}
	*o = known
}

// Items returns the items of a List, Dict (keys and values in turn) or Tuple
// that is not Known. The caller must not change them.
func (d *Decoder) Items(v Value) []Value {
	switch v.Kind() {
	case List, Dict:
		if o := *d.objects.at(v.Index()); o.Kind() == stored {
			return d.items[o.Index()]
		}
	case Tuple:
		return d.items[v.Index()]
	}
	return nil
}

// NumObjects is the number of lists and dicts so far: their indexes are below.
func (d *Decoder) NumObjects() int { return d.objects.n }

func (d *Decoder) store(items []Value) (int, error) {
	if err := d.Charge(8*len(items) + 24); err != nil {
		return 0, err
	}
	d.items = append(d.items, append([]Value(nil), items...))
	return len(d.items) - 1, nil
}

// extend appends items to a List or Dict.
func (d *Decoder) extend(v Value, items []Value) error {
	o := d.objects.at(v.Index())
	switch o.Kind() {
	case Missing:
		i, err := d.store(items)
		*o = Make(stored, int64(i))
		return err
	case stored:
		if err := d.Charge(8 * len(items)); err != nil {
			return err
		}
		s := &d.items[o.Index()]
		*s = append(*s, items...)
		return nil
	}
	return d.Errorf("%v is changed after it was used; no writer of snapshots does that", v)
}

// setItems gives a dict its keys and values.
func (d *Decoder) setItems(dict Value, pairs []Value) error {
	if o := d.objects.at(dict.Index()); o.Kind() == Missing && len(pairs) > 2 {
		known, err := d.sink.Dict(pairs)
		if err != nil {
			return err
		}
		if known != 0 {
			*o = known
			return nil
		}
	}
	return d.extend(dict, pairs)
}

// intern returns the value of a string.
func (d *Decoder) intern(b []byte) (Value, error) {
	// Python writes a fresh "N/A" for every event.
	if d.last != 0 && string(b) == d.lastText {
		return d.last, nil
	}
	if v, ok := d.strings[string(b)]; ok {
		d.lastText, d.last = d.Text(v), v
		return v, nil
	}
	if err := d.Charge(len(b) + 80); err != nil {
		return 0, err
	}
	s := string(b)
	v := Make(String, int64(len(d.text)))
	d.text = append(d.text, s)
	d.strings[s] = v
	return v, nil
}

// integer returns the value of a number.
func (d *Decoder) integer(n int64) (Value, error) {
	if n<<8>>8 == n {
		return Make(Int, n), nil
	}
	if err := d.Charge(16); err != nil {
		return 0, err
	}
	d.bigs = append(d.bigs, n)
	return Make(Big, int64(len(d.bigs)-1)), nil
}

func (d *Decoder) float(f float64) (Value, error) {
	if math.IsNaN(f) {
		f = math.NaN()
	}
	if err := d.Charge(16); err != nil {
		return 0, err
	}
	d.floats = append(d.floats, f)
	return Make(Float, int64(len(d.floats)-1)), nil
}

// put writes a memo entry. Writing one twice is refused, because what was read
// from it before would have to be read again.
func (d *Decoder) put(i int64, v Value) error {
	// Writers count upwards, one byte or more for each.
	if i < 0 || i > d.at {
		return d.Errorf("memo index %d, but only %d bytes were read", i, d.at)
	}
	p := d.memo.at(int(i))
	if p == nil {
		if err := d.memo.grow(d, int(i)); err != nil {
			return err
		}
		p = d.memo.at(int(i))
	}
	if *p != 0 && *p != v {
		return d.Errorf("memo entry %d is written twice", i)
	}
	*p = v
	d.memo.n = max(d.memo.n, int(i)+1)
	return nil
}

// memoize writes the next memo entry.
func (d *Decoder) memoize(v Value) error {
	if i := d.memo.n; i>>chunkBits < len(d.memo.chunks) && d.memo.chunks[i>>chunkBits] != nil {
		p := &d.memo.chunks[i>>chunkBits][i&chunkMask]
		if *p == 0 {
			*p = v
			d.memo.n++
			return nil
		}
	}
	return d.put(int64(d.memo.n), v)
}

// get reads a memo entry.
func (d *Decoder) get(i int) (Value, error) {
	if p := d.memo.at(i); p != nil && *p != 0 {
		return *p, nil
	}
	return 0, d.Errorf("memo entry %d is read before it is written", i)
}

// tuple returns a tuple.
func (d *Decoder) tuple(items []Value) (Value, error) {
	if len(items) == 2 && items[0].Kind() == Int && items[1].Kind() == Int {
		a, b := items[0].Payload(), items[1].Payload()
		if a>>27 == 0 && b>>28 == 0 && a >= 0 && b >= 0 {
			return Make(Pair, a<<28|b), nil
		}
	}
	i, err := d.store(items)
	return Make(Tuple, int64(i)), err
}

// PairOf returns the two numbers of a tuple of two, false if v is none.
func (d *Decoder) PairOf(v Value) (a, b int64, ok bool) {
	switch v.Kind() {
	case Pair:
		n := v.Payload()
		return n >> 28, n & (1<<28 - 1), true
	case Tuple, List:
		if items := d.Items(v); len(items) == 2 {
			a, ok1 := d.Int(items[0])
			b, ok2 := d.Int(items[1])
			return a, b, ok1 && ok2
		}
	}
	return 0, 0, false
}

// refuse says which code the file asks to run.
func (d *Decoder) refuse(op byte, arg []byte) error {
	what := "an object that only its own code can make"
	switch op {
	case opGlobal, opInst:
		if module, rest, ok := strings.Cut(string(arg), "\n"); ok {
			name, _, _ := strings.Cut(rest, "\n")
			what = fmt.Sprintf("%.80q", module+"."+name)
		}
	case opStackGlobal:
		if n := len(d.stack); n >= 2 && d.stack[n-1].Kind() == String && d.stack[n-2].Kind() == String {
			what = fmt.Sprintf("%.80q", d.Text(d.stack[n-2])+"."+d.Text(d.stack[n-1]))
		}
	}
	return d.Errorf("%s: the file asks Python to load or run %s, which a memory snapshot never does: refused, nothing was run", code[op], what)
}
