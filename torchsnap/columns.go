package torchsnap

import "vramscope/trace"

const (
	chunkBits = 14
	chunkRows = 1 << chunkBits
)

// column grows in pieces that are joined at the end: one copy and no garbage,
// where growing a slice would cost several.
type column[T comparable] struct {
	chunks []*[chunkRows]T
}

// set writes row i. A row that was never set is zero.
func (c *column[T]) set(i int, v T) {
	k := i >> chunkBits
	if k >= len(c.chunks) || c.chunks[k] == nil {
		var zero T
		if v == zero {
			return
		}
		for len(c.chunks) <= k {
			c.chunks = append(c.chunks, nil)
		}
		c.chunks[k] = new([chunkRows]T)
	}
	c.chunks[k][i&(chunkRows-1)] = v
}

func (c *column[T]) at(i int) (v T) {
	if k := i >> chunkBits; k < len(c.chunks) && c.chunks[k] != nil {
		v = c.chunks[k][i&(chunkRows-1)]
	}
	return v
}

// rows returns rows from to to.
func (c *column[T]) rows(from, to int) []T {
	out := make([]T, to-from)
	for i := from; i < to; {
		k := i >> chunkBits
		n := min(to, (k+1)<<chunkBits) - i
		if k < len(c.chunks) && c.chunks[k] != nil {
			j := i & (chunkRows - 1)
			copy(out[i-from:], c.chunks[k][j:j+n])
		}
		i += n
	}
	return out
}

// optional is rows, but nil where none has a value.
func (c *column[T]) optional(from, to int) []T {
	for k := from >> chunkBits; k < len(c.chunks) && k<<chunkBits < to; k++ {
		if c.chunks[k] == nil {
			continue
		}
		var zero T
		for i := max(from, k<<chunkBits); i < min(to, (k+1)<<chunkBits); i++ {
			if c.chunks[k][i&(chunkRows-1)] != zero {
				return c.rows(from, to)
			}
		}
	}
	return nil
}

// events are the events of all devices in the order of the file.
type events struct {
	n         int
	action    column[trace.Action]
	addr      column[uint64]
	size      column[int64]
	stream    column[uint64]
	stack     column[trace.StackID]
	traceback column[trace.TracebackID]
	time      column[int64]
	pool      column[uint16]
	compile   column[trace.LabelID]
	metadata  column[trace.LabelID]
	name      column[trace.LabelID]
}

func (t *events) add(e *trace.Event) {
	i := t.n
	t.n++
	t.action.set(i, e.Action)
	t.addr.set(i, e.Addr)
	t.size.set(i, e.Size)
	t.stream.set(i, e.Stream)
	t.stack.set(i, e.Stack)
	t.traceback.set(i, e.Traceback)
	t.time.set(i, e.Time)
	t.pool.set(i, e.Pool)
	t.compile.set(i, e.Compile)
	t.metadata.set(i, e.Metadata)
	t.name.set(i, e.Name)
}

func (t *events) at(i int) trace.Event {
	return trace.Event{
		Action: t.action.at(i), Addr: t.addr.at(i), Size: t.size.at(i), Stream: t.stream.at(i),
		Stack: t.stack.at(i), Traceback: t.traceback.at(i), Time: t.time.at(i), Pool: t.pool.at(i),
		Compile: t.compile.at(i), Metadata: t.metadata.at(i), Name: t.name.at(i),
	}
}

// device returns rows from to to. With last nothing is needed afterwards, and
// the pieces of each column are let go before the next is copied.
func (t *events) device(from, to int, last bool) trace.Events {
	return trace.Events{
		Action:    take(&t.action, from, to, last),
		Addr:      take(&t.addr, from, to, last),
		Size:      take(&t.size, from, to, last),
		Stream:    take(&t.stream, from, to, last),
		Stack:     take(&t.stack, from, to, last),
		Traceback: take(&t.traceback, from, to, last),
		Time:      takeOptional(&t.time, from, to, last),
		Pool:      takeOptional(&t.pool, from, to, last),
		Compile:   takeOptional(&t.compile, from, to, last),
		Metadata:  takeOptional(&t.metadata, from, to, last),
		Name:      takeOptional(&t.name, from, to, last),
	}
}

func take[T comparable](c *column[T], from, to int, last bool) []T {
	out := c.rows(from, to)
	if last {
		c.chunks = nil
	}
	return out
}

func takeOptional[T comparable](c *column[T], from, to int, last bool) []T {
	out := c.optional(from, to)
	if last {
		c.chunks = nil
	}
	return out
}
