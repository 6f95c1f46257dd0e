package oomlog

import "sort"

// needles finds many fixed strings in one pass over the input. White space and
// control characters do not count, on either side: a needle is found even when a
// terminal wrapped the line in the middle of it, and the patterns that read the
// candidates are matched in the same squeezed form.
//
// It is an Aho-Corasick automaton with every transition filled in; the state is
// an offset into the table, so that one byte costs two loads. States that end a
// needle come last, so that one comparison finds them.
type needles struct {
	class   [256]uint8
	next    []uint32
	stride  uint32
	accept  uint32
	root    uint32
	outputs map[uint32][]int // by state: the needles that end there
}

// newNeedles builds the automaton. Needle i reports as i.
func newNeedles(words []string) *needles {
	n := &needles{outputs: map[uint32][]int{}}
	// Class 0 is white space, class 1 every byte that is in no needle.
	classes := uint8(2)
	for i := range n.class {
		n.class[i] = 1
		if isSpace(byte(i)) {
			n.class[i] = 0
		}
	}
	type node struct {
		next [128]int32
		fail int32
		out  []int
	}
	trie := []*node{{}}
	for id, word := range words {
		at := int32(0)
		for _, b := range squeeze([]byte(word)) {
			if n.class[b] == 1 {
				n.class[b] = classes
				classes++
			}
			c := n.class[b]
			if trie[at].next[c] == 0 {
				trie = append(trie, &node{})
				trie[at].next[c] = int32(len(trie) - 1)
			}
			at = trie[at].next[c]
		}
		trie[at].out = append(trie[at].out, id)
	}
	// Breadth first: fill in fail links and the missing transitions.
	queue := []int32{}
	for c := 2; c < int(classes); c++ {
		if t := trie[0].next[c]; t != 0 {
			queue = append(queue, t)
		}
	}
	for i := 0; i < len(queue); i++ {
		s := queue[i]
		fail := trie[s].fail
		trie[s].out = append(trie[s].out, trie[fail].out...)
		for c := 2; c < int(classes); c++ {
			if t := trie[s].next[c]; t != 0 {
				trie[t].fail = trie[fail].next[c]
				queue = append(queue, t)
			} else {
				trie[s].next[c] = trie[fail].next[c]
			}
		}
	}
	order := append([]int32{0}, queue...) // breadth first keeps the busy states together
	sort.SliceStable(order, func(i, j int) bool {
		return len(trie[order[i]].out) == 0 && len(trie[order[j]].out) > 0
	})
	number := make([]uint32, len(trie))
	n.stride = uint32(classes)
	n.accept = ^uint32(0)
	for i, s := range order {
		number[s] = uint32(i) * n.stride
		if out := trie[s].out; len(out) > 0 {
			n.accept = min(n.accept, number[s])
			n.outputs[number[s]] = out
		}
	}
	n.root = number[0]
	n.next = make([]uint32, len(trie)*int(classes))
	for s, t := range trie {
		row := n.next[number[s]:]
		row[0], row[1] = number[s], n.root
		for c := 2; c < int(classes); c++ {
			row[c] = number[t.next[c]]
		}
	}
	return n
}

// scan runs over data from state s and calls found with the offset after each
// needle's last byte. It returns the state to go on with.
func (n *needles) scan(s uint32, data []byte, found func(end int, needles []int)) uint32 {
	next, class := n.next, &n.class
	for i, b := range data {
		c := class[b]
		s = next[s+uint32(c)]
		if s >= n.accept && c != 0 {
			found(i+1, n.outputs[s])
		}
	}
	return s
}

// isSpace reports whether the matcher ignores b: white space and every other
// control character (PyTorch 2.2 printed the device as one).
func isSpace(b byte) bool { return b <= ' ' || b == 0x7f }

// squeeze returns s without the bytes that the matcher ignores.
func squeeze(s []byte) []byte {
	out := make([]byte, 0, len(s))
	for _, b := range s {
		if !isSpace(b) {
			out = append(out, b)
		}
	}
	return out
}
