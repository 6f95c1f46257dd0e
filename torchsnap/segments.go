package torchsnap

import (
	"vramscope/torchsnap/internal/pickle"
	"vramscope/trace"
)

func (b *builder) block(pairs []pickle.Value) (pickle.Value, error) {
	k := trace.Block{Requested: -1}
	var err error
	for i := 0; i+1 < len(pairs); i += 2 {
		v := pairs[i+1]
		switch pairs[i] {
		case wAddress:
			k.Address, err = b.address("address", v)
		case wSize:
			k.Size, err = b.size("size", v)
		case wRequested:
			k.Requested, err = b.size("requested_size", v)
		case wState:
			switch v {
			case wInactive:
				k.State = trace.Inactive
			case wActive:
				k.State = trace.Active
			case wPendingFree, wAwaitingFree:
				k.State = trace.PendingFree
			default:
				return 0, b.d.Errorf("state of a block is %.40q, want active_allocated, active_pending_free or inactive", b.text(v))
			}
		case wFrames:
			b.trace.Features.BlockStacks = true
			k.Stack, k.Traceback, err = b.stack(v)
		case wHistory:
			err = b.history(&k, v)
		}
		if err != nil {
			return 0, err
		}
	}
	return b.addBlock(k)
}

func (b *builder) addBlock(k trace.Block) (pickle.Value, error) {
	if err := b.d.Charge(128); err != nil { // it is copied to its segment
		return 0, err
	}
	b.blocks = append(b.blocks, k)
	return pickle.Known(tagBlock, len(b.blocks)-1), nil
}

// history reads the allocations that were in a block, newest first (1.13 to
// 2.0). The newest says what a live block was asked for, and by whom.
func (b *builder) history(k *trace.Block, v pickle.Value) error {
	items := b.d.Items(v)
	if len(items) == 0 {
		return nil
	}
	a, err := b.known(items[0])
	if err != nil {
		return err
	}
	if !a.Is(tagAllocation) {
		return b.d.Errorf("history has %v in it, want dicts with a real_size", items[0])
	}
	h := b.blocks[a.Index()]
	k.Stack, k.Traceback = h.Stack, h.Traceback
	if k.Requested < 0 {
		k.Requested = h.Requested
	}
	return nil
}

func (b *builder) allocation(pairs []pickle.Value) (pickle.Value, error) {
	var k trace.Block
	var err error
	for i := 0; i+1 < len(pairs); i += 2 {
		v := pairs[i+1]
		switch pairs[i] {
		case wRealSize:
			k.Requested, err = b.size("real_size", v)
		case wFrames:
			k.Stack, k.Traceback, err = b.stack(v)
		}
		if err != nil {
			return 0, err
		}
	}
	known, err := b.addBlock(k)
	return pickle.Known(tagAllocation, known.Index()), err
}

func (b *builder) segment(pairs []pickle.Value) (pickle.Value, error) {
	s := segment{Segment: trace.Segment{Requested: -1}}
	var err error
	var hasAddress, hasSize bool
	var blocks pickle.Value
	for i := 0; i+1 < len(pairs); i += 2 {
		v := pairs[i+1]
		switch pairs[i] {
		case wDevice:
			var n int64
			if n, err = b.integer("device", v); err == nil && (n < 0 || n >= maxDevices) {
				err = b.d.Errorf("device %d, want 0 to %d", n, maxDevices-1)
			}
			s.device = int(n)
		case wAddress:
			s.Address, err = b.address("address", v)
			hasAddress = true
		case wTotalSize:
			s.Size, err = b.size("total_size", v)
			hasSize = true
		case wRequested:
			s.Requested, err = b.size("requested_size", v)
		case wStream:
			s.Stream, err = b.address("stream", v)
		case wSegmentType:
			s.Small = v == wSmall
		case wSegmentPool:
			s.Pool, err = b.pool(v)
		case wExpandable:
			s.Expandable = isTrue(v)
		case wFrames:
			s.Stack, _, err = b.stack(v)
		case wBlocks:
			blocks = v
		}
		if err != nil {
			return 0, err
		}
	}
	if !hasAddress || !hasSize {
		return 0, b.d.Errorf("segment %d has no address or no total_size", len(b.segments))
	}
	if s.Blocks, err = b.take(blocks, s.Address); err != nil {
		return 0, err
	}
	if err := b.d.Charge(256); err != nil {
		return 0, err
	}
	b.segments = append(b.segments, s)
	b.checkTiling(&b.segments[len(b.segments)-1])
	return pickle.Known(tagSegment, len(b.segments)-1), nil
}

// take reads a segment's list of blocks. A list has one owner, so that a small
// file cannot make many copies of a long one.
func (b *builder) take(list pickle.Value, address uint64) ([]trace.Block, error) {
	if list.Kind() != pickle.List {
		return nil, b.wrong("blocks", list, "a list")
	}
	if b.d.Known(list).Is(tagUsed) {
		return nil, b.d.Errorf("two segments have the same list of blocks")
	}
	items := b.d.Items(list)
	if err := b.d.Charge(64 * len(items)); err != nil {
		return nil, err
	}
	blocks := make([]trace.Block, len(items))
	for i, v := range items {
		k, err := b.known(v)
		if err != nil {
			return nil, err
		}
		if !k.Is(tagBlock) {
			return nil, b.d.Errorf("blocks has %v in it, want dicts with a size and state", v)
		}
		blocks[i] = b.blocks[k.Index()]
		if blocks[i].Address == 0 { // before 2.1: they follow each other
			blocks[i].Address = address
		}
		address = blocks[i].Address + uint64(blocks[i].Size)
	}
	b.d.SetKnown(list, pickle.Known(tagUsed, 0))
	return blocks, nil
}

// checkTiling warns where blocks leave gaps in their segment or overlap: the
// file is then read as it is, and sums over its blocks are wrong.
func (b *builder) checkTiling(s *segment) {
	at := s.Address
	for _, k := range s.Blocks {
		if k.Address != at {
			b.warn("segment %#x of device %d: a block at %#x, expected at %#x", s.Address, s.device, k.Address, at)
			return
		}
		at += uint64(k.Size)
	}
	if at != s.Address+uint64(s.Size) {
		b.warn("segment %#x of device %d: its blocks add up to %d bytes of %d", s.Address, s.device, at-s.Address, s.Size)
	}
}
