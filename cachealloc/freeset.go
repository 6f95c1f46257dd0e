package cachealloc

import "sort"

// entry is a free block in a freeSet: its key, and where the block is.
type entry struct {
	size  int64
	addr  uint64
	block Block
}

// less orders by size, then address, as PyTorch does. No two blocks are at one
// address, but for recordings that say so: there the number decides.
func (e entry) less(f entry) bool {
	switch {
	case e.size != f.size:
		return e.size < f.size
	case e.addr != f.addr:
		return e.addr < f.addr
	}
	return e.block < f.block
}

// freeSet is the part of BlockPool::blocks (or of BlockPool::unmapped, with
// size 0) that belongs to one stream: entries ordered by size, then address.
//
// It is a sorted list of sorted leaves of at most leafCap entries. Inserting
// moves half a leaf on average and, once every leafCap/2 times, the list of
// leaves; with a million free blocks that is some 200 ns, with a hundred 20.
type freeSet struct {
	leaves [][]entry // none is empty
	n      int
}

const leafCap = 64

// position names an entry. It is valid until the set changes.
type position struct{ leaf, i int }

// lowerBound returns the position of the first entry that is not less than e.
// It is past the end where no entry is.
func (s *freeSet) lowerBound(e entry) position {
	lo, hi := 0, len(s.leaves) // the first leaf whose last entry is ≥ e
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		leaf := s.leaves[mid]
		if leaf[len(leaf)-1].less(e) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(s.leaves) {
		return position{lo, 0}
	}
	leaf := s.leaves[lo]
	i, j := 0, len(leaf)
	for i < j {
		mid := int(uint(i+j) >> 1)
		if leaf[mid].less(e) {
			i = mid + 1
		} else {
			j = mid
		}
	}
	return position{lo, i}
}

// valid reports whether p names an entry.
func (s *freeSet) valid(p position) bool { return p.leaf < len(s.leaves) }

// at returns the entry at a valid position.
func (s *freeSet) at(p position) entry { return s.leaves[p.leaf][p.i] }

// next returns the position after a valid position.
func (s *freeSet) next(p position) position {
	if p.i++; p.i == len(s.leaves[p.leaf]) {
		return position{p.leaf + 1, 0}
	}
	return p
}

// insert adds an entry that is not in the set.
func (s *freeSet) insert(e entry) {
	s.n++
	p := s.lowerBound(e)
	if p.leaf == len(s.leaves) {
		if p.leaf == 0 {
			s.leaves = append(s.leaves, append(make([]entry, 0, leafCap), e))
			return
		}
		p = position{p.leaf - 1, len(s.leaves[p.leaf-1])}
	}
	leaf := s.leaves[p.leaf]
	if len(leaf) == leafCap {
		right := append(make([]entry, 0, leafCap), leaf[leafCap/2:]...)
		leaf = leaf[:leafCap/2]
		s.leaves[p.leaf] = leaf
		s.leaves = append(s.leaves, nil)
		copy(s.leaves[p.leaf+2:], s.leaves[p.leaf+1:])
		s.leaves[p.leaf+1] = right
		if p.i > leafCap/2 {
			p.leaf, p.i, leaf = p.leaf+1, p.i-leafCap/2, right
		}
	}
	leaf = leaf[:len(leaf)+1]
	copy(leaf[p.i+1:], leaf[p.i:])
	leaf[p.i] = e
	s.leaves[p.leaf] = leaf
}

// remove takes an entry out, which must be in the set.
func (s *freeSet) remove(e entry) {
	p := s.lowerBound(e)
	if !s.valid(p) || s.at(p) != e {
		panic("cachealloc: block is not in its free set")
	}
	s.removeAt(p)
}

func (s *freeSet) removeAt(p position) {
	s.n--
	leaf := s.leaves[p.leaf]
	copy(leaf[p.i:], leaf[p.i+1:])
	leaf = leaf[:len(leaf)-1]
	if len(leaf) > 0 {
		s.leaves[p.leaf] = leaf
		return
	}
	s.leaves = append(s.leaves[:p.leaf], s.leaves[p.leaf+1:]...)
}

// all returns the entries in order, in a new slice.
func (s *freeSet) all() []entry {
	out := make([]entry, 0, s.n)
	for _, leaf := range s.leaves {
		out = append(out, leaf...)
	}
	return out
}

// streamSets are the free sets of a pool, by stream in ascending order of the
// stream's pointer, which is the order of PyTorch's BlockComparatorSize.
type streamSets struct {
	streams []uint64
	sets    []*freeSet
}

// of returns the set of a stream.
func (s *streamSets) of(stream uint64) *freeSet {
	if len(s.streams) > 0 && s.streams[0] == stream { // most programs use one
		return s.sets[0]
	}
	i := sort.Search(len(s.streams), func(i int) bool { return s.streams[i] >= stream })
	if i == len(s.streams) || s.streams[i] != stream {
		s.streams = append(s.streams, 0)
		copy(s.streams[i+1:], s.streams[i:])
		s.streams[i] = stream
		s.sets = append(s.sets, nil)
		copy(s.sets[i+1:], s.sets[i:])
		s.sets[i] = &freeSet{}
	}
	return s.sets[i]
}

// all returns the entries of all streams in order, in a new slice.
func (s *streamSets) all() []entry {
	var out []entry
	for _, set := range s.sets {
		out = append(out, set.all()...)
	}
	return out
}
