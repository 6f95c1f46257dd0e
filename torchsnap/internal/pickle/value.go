package pickle

// Value is one value of a pickle in eight bytes: its kind in the low byte, and
// above it the payload, a signed number of 56 bits: the number itself, or an
// index into one of the decoder's tables. The zero Value is no value.
type Value uint64

// Kind says what a Value is.
type Kind uint8

// The kinds.
const (
	Missing Kind = iota
	None
	Bool
	Int   // payload: the number
	Big   // payload: index of a number that needs more than 56 bits
	Float // payload: index
	String
	List  // payload: index of the object; equal for the same object only
	Dict  // as List
	Tuple // payload: index of the stored items
	Pair  // a tuple of two numbers below 2^28: payload a<<28 | b
	stored
	firstKnown
)

// Make returns a value of a kind with a payload.
func Make(k Kind, n int64) Value { return Value(n)<<8 | Value(k) }

// Known returns a value by which a Sink names what a dict or list turned out
// to be: a tag of its own (0 to 200) and an index.
func Known(tag uint8, n int) Value { return Make(firstKnown+Kind(tag), int64(n)) }

// Kind returns v's kind.
func (v Value) Kind() Kind { return Kind(v) }

// Is reports whether v is Known with this tag.
func (v Value) Is(tag uint8) bool { return Kind(v) == firstKnown+Kind(tag) }

// Payload returns the payload: see the kinds.
func (v Value) Payload() int64 { return int64(v) >> 8 }

// Index returns the payload of a value that names an entry of a table.
func (v Value) Index() int { return int(int64(v) >> 8) }

var kindNames = [...]string{
	Missing: "nothing", None: "None", Bool: "a bool", Int: "an integer", Big: "an integer", Float: "a float",
	String: "a string", List: "a list", Dict: "a dict", Tuple: "a tuple", Pair: "a tuple",
}

// String says what v is, for messages: "a string".
func (v Value) String() string {
	if k := int(v.Kind()); k < len(kindNames) {
		return kindNames[k]
	}
	return "an object"
}

const (
	chunkBits = 14
	chunkLen  = 1 << chunkBits
	chunkMask = chunkLen - 1
)

// table is a growing array of values that never moves: growing by copying was
// 40 % of a first version's time.
type table struct {
	chunks []*[chunkLen]Value
	n      int
}

// at returns entry i, nil if it was never made.
func (t *table) at(i int) *Value {
	if c := i >> chunkBits; uint(c) < uint(len(t.chunks)) && t.chunks[c] != nil {
		return &t.chunks[c][i&chunkMask]
	}
	return nil
}

// push appends v and returns its index.
func (t *table) push(d *Decoder, v Value) (int, error) {
	i := t.n
	if i>>chunkBits >= len(t.chunks) || t.chunks[i>>chunkBits] == nil {
		if err := t.grow(d, i); err != nil {
			return 0, err
		}
	}
	t.chunks[i>>chunkBits][i&chunkMask] = v
	t.n++
	return i, nil
}

// grow makes the chunk of entry i.
func (t *table) grow(d *Decoder, i int) error {
	if err := d.Charge(8 * chunkLen); err != nil {
		return err
	}
	for len(t.chunks) <= i>>chunkBits {
		t.chunks = append(t.chunks, nil)
	}
	t.chunks[i>>chunkBits] = new([chunkLen]Value)
	return nil
}
