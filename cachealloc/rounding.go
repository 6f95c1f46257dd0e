package cachealloc

import (
	"math"
	"math/bits"
)

// Constants of CUDACachingAllocator.cpp (c10/core/AllocatorConfig.h since
// 2.9), unchanged since 1.0.
const (
	MinBlockSize  = 512      // kMinBlockSize: all sizes are rounded to at least this
	SmallSize     = 1 << 20  // kSmallSize: the largest small request
	SmallBuffer   = 2 << 20  // kSmallBuffer: small requests come from segments of this size
	LargeBuffer   = 20 << 20 // kLargeBuffer: requests below MinLargeAlloc come from these
	MinLargeAlloc = 10 << 20 // kMinLargeAlloc: above, a segment for the request alone
	RoundLarge    = 2 << 20  // kRoundLarge: … rounded to this
	MaxRequest    = 1 << 60  // more is refused before the allocator sees it
)

const unlimited = math.MaxInt64

// RoundSize returns the bytes that a request of n takes: round_size() of
// CUDACachingAllocator.cpp.
func (s *Settings) RoundSize(n int64) int64 {
	if n < MinBlockSize {
		return MinBlockSize
	}
	if s.RoundupBypassBytes == 0 || n <= s.RoundupBypassBytes {
		if d := s.divisions(n); d > 1 && n > MinBlockSize*d {
			return roundupPower2(n, d)
		}
	}
	return roundUp(n, MinBlockSize)
}

// divisions returns roundup_power2_divisions for a request of n bytes.
func (s *Settings) divisions(n int64) int64 {
	log2 := bits.Len64(uint64(n)) - 1
	return s.RoundupDivisions[min(max(log2-20, 0), len(s.RoundupDivisions)-1)]
}

// roundupPower2 rounds n up to the next of the d equal steps between two
// powers of two: roundup_power2_next_division().
func roundupPower2(n, d int64) int64 {
	if n&(n-1) == 0 {
		return n
	}
	floor := int64(1) << (bits.Len64(uint64(n)) - 1)
	step := floor >> (bits.Len64(uint64(d)) - 1)
	if step == 0 {
		return floor << 1
	}
	return roundUp(n, step)
}

// AllocationSize returns the bytes that the allocator asks the driver for to
// serve a rounded request: get_allocation_size().
func (s *Settings) AllocationSize(rounded int64) int64 {
	switch {
	case rounded <= SmallSize:
		return SmallBuffer
	case rounded < MinLargeAlloc:
		return s.LargeSegmentBytes
	}
	return roundUp(rounded, RoundLarge)
}

func roundUp(n, step int64) int64 { return (n + step - 1) / step * step }
