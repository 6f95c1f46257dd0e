package cachealloc

// Driver is what the allocator gets memory from. A simulation answers for the
// CUDA driver; addresses decide ties between blocks of equal size.
type Driver interface {
	// Alloc is cudaMalloc: it returns the address of size bytes, or false
	// where the driver is out of memory.
	Alloc(size int64) (addr uint64, ok bool)
	// Free is cudaFree.
	Free(addr uint64, size int64)
	// Reserve is cuMemAddressReserve: a range of addresses, without memory.
	Reserve(size int64) (addr uint64)
	// Map backs a part of a reserved range with memory, or returns false where
	// the driver is out of memory.
	Map(addr uint64, size int64) bool
	// Unmap gives the memory of a part of a reserved range back.
	Unmap(addr uint64, size int64)
}

// Card is a Driver for a card of a given size that nobody else uses.
//
// Its addresses come from a model of what recordings on an H200 (driver 580)
// show: cudaMalloc takes whole 32 MiB units of address space from the top
// down, and a request that fits into the unused tail of an earlier one goes to
// the lowest such tail.
type Card struct {
	// Capacity is what the driver can give, in bytes; 0 means without end.
	Capacity int64

	used  int64
	top   uint64
	holes []hole // free parts of taken units, by address
	next  uint64 // of reserved ranges
}

type hole struct {
	addr uint64
	size int64
}

const (
	addressTop     = 0x7f00_0000_0000
	addressReserve = 0x3_0000_0000 // where recordings have expandable segments
	addressUnit    = 32 << 20
)

// Alloc implements Driver.
func (c *Card) Alloc(size int64) (uint64, bool) {
	if c.Capacity > 0 && c.used+size > c.Capacity {
		return 0, false
	}
	c.used += size
	for i, h := range c.holes {
		if h.size >= size {
			if h.size == size {
				c.holes = append(c.holes[:i], c.holes[i+1:]...)
			} else {
				c.holes[i] = hole{h.addr + uint64(size), h.size - size}
			}
			return h.addr, true
		}
	}
	if c.top == 0 {
		c.top = addressTop
	}
	whole := roundUp(size, addressUnit)
	if uint64(whole) > c.top {
		c.used -= size
		return 0, false // out of addresses
	}
	c.top -= uint64(whole)
	if whole > size {
		c.addHole(c.top+uint64(size), whole-size)
	}
	return c.top, true
}

// Free implements Driver.
func (c *Card) Free(addr uint64, size int64) {
	c.used -= size
	c.addHole(addr, size)
}

func (c *Card) addHole(addr uint64, size int64) {
	i := 0
	for j := len(c.holes); i < j; {
		if mid := int(uint(i+j) >> 1); c.holes[mid].addr < addr {
			i = mid + 1
		} else {
			j = mid
		}
	}
	if i < len(c.holes) && addr+uint64(size) == c.holes[i].addr {
		c.holes[i].addr = addr
		c.holes[i].size += size
	} else {
		c.holes = append(c.holes, hole{})
		copy(c.holes[i+1:], c.holes[i:])
		c.holes[i] = hole{addr, size}
	}
	if i > 0 && c.holes[i-1].addr+uint64(c.holes[i-1].size) == c.holes[i].addr {
		c.holes[i-1].size += c.holes[i].size
		c.holes = append(c.holes[:i], c.holes[i+1:]...)
	}
}

// Reserve implements Driver.
func (c *Card) Reserve(size int64) uint64 {
	if c.next == 0 {
		c.next = addressReserve
	}
	addr := c.next
	c.next += uint64(roundUp(size, addressUnit))
	return addr
}

// Map implements Driver.
func (c *Card) Map(_ uint64, size int64) bool {
	if c.Capacity > 0 && c.used+size > c.Capacity {
		return false
	}
	c.used += size
	return true
}

// Unmap implements Driver.
func (c *Card) Unmap(_ uint64, size int64) { c.used -= size }

// Used returns the bytes taken.
func (c *Card) Used() int64 { return c.used }
