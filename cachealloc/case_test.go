package cachealloc

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"vramscope/bytesize"
	"vramscope/trace"
)

// TestCases runs testdata/*.txt, stories that a reader of the CUDA notes can
// follow. One line is one step:
//
//	conf SETTINGS | torch 2.11 | limit SIZE | card SIZE   before the first request
//	alloc NAME SIZE [stream N] [pool N]                   a request
//	refuse SIZE                                           … that must fail
//	free NAME | use NAME stream N | request-free NAME | complete NAME
//	empty-cache | begin-pool N [stream N] | end-pool N | release-pool N
//	expect reserved|allocated|active SIZE                 now
//	expect peak-reserved SIZE | expect retries N | expect segments N
//	expect same-segment A B | expect at NAME OFFSET       offset in its segment
//	expect events ACTION SIZE, …                          since the last such line
func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			c := &story{t: t, version: Version{2, 11}, blocks: map[string]Block{}}
			s := bufio.NewScanner(f)
			for n := 1; s.Scan(); n++ {
				line, _, _ := strings.Cut(s.Text(), "#")
				if words := strings.Fields(line); len(words) > 0 {
					if err := c.step(words); err != nil {
						t.Fatalf("%s:%d: %s: %v", file, n, strings.TrimSpace(line), err)
					}
					if c.a != nil {
						checkInvariants(t, c.a)
					}
				}
			}
			if s.Err() != nil {
				t.Fatal(s.Err())
			}
		})
	}
}

type story struct {
	t       *testing.T
	version Version
	conf    string
	limit   int64
	card    int64
	a       *Allocator
	blocks  map[string]Block
	events  []string
}

func (c *story) allocator() *Allocator {
	if c.a == nil {
		s := mustParse(c.t, c.conf, c.version)
		c.a = New(Config{
			Version: c.version, Settings: &s, Limit: c.limit, Driver: &Card{Capacity: c.card}, TotalMemory: 80 << 30,
			OnSegment: func(a trace.Action, _ uint64, size int64, _ uint64) {
				c.events = append(c.events, fmt.Sprintf("%s %v", a, bytesize.Size(size)))
			},
		})
	}
	return c.a
}

// number returns the number after a word such as "stream", or 0.
func number(words []string, name string) uint64 {
	for i, w := range words[:len(words)-1] {
		if w == name {
			n, _ := strconv.ParseUint(words[i+1], 10, 64)
			return n
		}
	}
	return 0
}

func (c *story) step(w []string) error {
	switch w[0] {
	case "conf":
		c.conf = w[1]
	case "torch":
		v, err := ParseVersion(w[1])
		c.version = v
		return err
	case "limit", "card":
		n, err := bytesize.Parse(w[1])
		if w[0] == "limit" {
			c.limit = int64(n)
		} else {
			c.card = int64(n)
		}
		return err
	case "alloc":
		n, err := bytesize.Parse(w[2])
		if err != nil {
			return err
		}
		var b Block
		if id := number(w, "pool"); id > 0 {
			b, err = c.allocator().MallocIn(trace.Pool{User: id}, int64(n), number(w, "stream"))
		} else {
			b, err = c.allocator().Malloc(int64(n), number(w, "stream"))
		}
		c.blocks[w[1]] = b
		return err
	case "refuse":
		n, err := bytesize.Parse(w[1])
		if err != nil {
			return err
		}
		var oom *OOMError
		if _, err := c.allocator().Malloc(int64(n), number(w, "stream")); !errors.As(err, &oom) {
			return fmt.Errorf("was served (%v)", err)
		}
	case "free":
		c.allocator().Free(c.blocks[w[1]])
	case "request-free":
		c.allocator().RequestFree(c.blocks[w[1]])
		c.allocator().Defer(c.blocks[w[1]])
	case "complete":
		c.allocator().Complete(c.blocks[w[1]])
	case "use":
		c.allocator().RecordStream(c.blocks[w[1]], number(w, "stream"))
	case "empty-cache":
		c.allocator().EmptyCache()
	case "begin-pool", "end-pool", "release-pool":
		n, _ := strconv.ParseUint(w[1], 10, 64)
		switch id := (trace.Pool{User: n}); w[0] {
		case "begin-pool":
			c.allocator().BeginAllocateToPool(id, number(w, "stream"))
		case "end-pool":
			c.allocator().EndAllocateToPool(id)
		default:
			c.allocator().ReleasePool(id)
		}
	case "expect":
		return c.expect(w[1:])
	default:
		return fmt.Errorf("unknown step %q", w[0])
	}
	return nil
}

func (c *story) expect(w []string) error {
	s := c.allocator().Stats()
	equal := func(got int64) error {
		want, err := bytesize.Parse(w[1])
		if err == nil && int64(want) != got {
			err = fmt.Errorf("got %v (%d)", bytesize.Size(got), got)
		}
		return err
	}
	switch w[0] {
	case "reserved":
		return equal(s.ReservedBytes.All.Current)
	case "allocated":
		return equal(s.AllocatedBytes.All.Current)
	case "active":
		return equal(s.ActiveBytes.All.Current)
	case "peak-reserved":
		return equal(s.ReservedBytes.All.Peak)
	case "retries":
		return equal(s.NumAllocRetries)
	case "segments":
		return equal(int64(len(c.a.Segments())))
	case "same-segment":
		x, y := c.segmentOf(w[1]), c.segmentOf(w[2])
		if x != y {
			return fmt.Errorf("they are in %#x and %#x", x, y)
		}
		return nil
	case "at":
		return c.offset(w)
	case "events":
		got := strings.Join(c.events, ", ")
		c.events = nil
		if want := strings.Join(w[1:], " "); got != want {
			return fmt.Errorf("got %s", got)
		}
		return nil
	}
	return fmt.Errorf("unknown expectation %q", w[0])
}

func (c *story) offset(w []string) error {
	want, err := bytesize.Parse(w[2])
	if got := int64(c.a.Address(c.blocks[w[1]]) - c.segmentOf(w[1])); err == nil && got != int64(want) {
		err = fmt.Errorf("it is at %v", bytesize.Size(got))
	}
	return err
}

func (c *story) segmentOf(name string) uint64 {
	addr := c.a.Address(c.blocks[name])
	for _, s := range c.a.Segments() {
		if addr >= s.Address && addr < s.Address+uint64(s.Size) {
			return s.Address
		}
	}
	return 0
}

// reporter is what checkInvariants needs of *testing.T and *rapid.T.
type reporter interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkInvariants compares all blocks with each other and with the statistics.
func checkInvariants(t reporter, a *Allocator) {
	t.Helper()
	var reserved, allocated, active, requested, segments int64
	var end uint64
	for _, s := range a.Segments() {
		if s.Address < end {
			t.Fatalf("segment %#x overlaps the one before, which ends at %#x", s.Address, end)
		}
		end = s.Address + uint64(s.Size)
		if !s.Expandable {
			segments++
		}
		reserved += s.Size
		at := s.Address
		wasFree := false
		for _, b := range s.Blocks {
			if b.Address != at || b.Size <= 0 {
				t.Fatalf("block %#x of %d bytes in segment %#x; want it at %#x", b.Address, b.Size, s.Address, at)
			}
			at += uint64(b.Size)
			if b.State == trace.Inactive && wasFree {
				t.Fatalf("two free blocks in a row at %#x", b.Address)
			}
			wasFree = b.State == trace.Inactive
			if b.State == trace.Active {
				allocated += b.Size
			}
			if b.State != trace.Inactive {
				active += b.Size
				requested += b.Requested
				if b.Requested > b.Size {
					t.Fatalf("block %#x of %d bytes serves a request of %d", b.Address, b.Size, b.Requested)
				}
			}
		}
		if at != end {
			t.Fatalf("blocks of segment %#x end at %#x; want %#x", s.Address, at, end)
		}
	}
	s := a.Stats()
	for _, c := range []struct {
		name      string
		got, want int64
	}{
		{"reserved_bytes", s.ReservedBytes.All.Current, reserved},
		{"total_allocated_memory", a.Reserved(), reserved},
		{"allocated_bytes", s.AllocatedBytes.All.Current, allocated},
		{"active_bytes", s.ActiveBytes.All.Current, active},
		{"requested_bytes", s.RequestedBytes.All.Current, requested},
		{"segment", s.Segment.All.Current, segments},
		{"small + large", s.ReservedBytes.Small.Current + s.ReservedBytes.Large.Current, reserved},
	} {
		if c.got != c.want {
			t.Fatalf("%s is %d, the blocks say %d", c.name, c.got, c.want)
		}
	}
}
