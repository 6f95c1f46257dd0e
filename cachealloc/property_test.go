package cachealloc

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"vramscope/trace"
)

// confs are settings that exercise each rule.
var confs = []string{
	"", "max_split_size_mb:32", "expandable_segments:True", "garbage_collection_threshold:0.4",
	"roundup_power2_divisions:4", "max_split_size_mb:64,garbage_collection_threshold:0.6",
	"expandable_segments:True,max_split_size_mb:64,garbage_collection_threshold:0.5",
	"roundup_power2_divisions:[1:2,64:8,>:1]", "large_segment_size_mb:40,max_split_size_mb:40",
}

// TestProperties runs random programs under random settings: blocks never
// overlap and add up to the statistics after each step, a live block never
// moves, and what is all freed is all given back.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		conf := rapid.SampledFrom(confs).Draw(t, "conf")
		version := rapid.SampledFrom([]Version{{2, 4}, {2, 8}, {2, 11}}).Draw(t, "version")
		s, err := ParseSettings(conf, version)
		if err != nil {
			t.Skip(err)
		}
		limit := rapid.SampledFrom([]int64{0, 300 << 20, 1 << 30}).Draw(t, "limit")
		card := &Card{Capacity: rapid.SampledFrom([]int64{0, 500 << 20}).Draw(t, "card")}
		a := New(Config{Version: version, Settings: &s, Limit: limit, Driver: card, TotalMemory: 4 << 30})
		type request struct {
			block Block
			addr  uint64
			size  int64
		}
		var live []request
		var waiting []Block
		size := rapid.OneOf(
			rapid.Int64Range(1, 4096), rapid.Int64Range(1<<19, 3<<20), rapid.Int64Range(9<<20, 120<<20),
			rapid.SampledFrom([]int64{512, 1 << 20, 1<<20 + 1, 10 << 20, 20 << 20, 32 << 20}))
		pick := func(t *rapid.T) request {
			if len(live) == 0 {
				t.Skip("nothing is live")
			}
			i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
			r := live[i]
			live = append(live[:i], live[i+1:]...)
			return r
		}
		t.Repeat(map[string]func(*rapid.T){
			"malloc": func(t *rapid.T) {
				n := size.Draw(t, "size")
				stream := rapid.SampledFrom([]uint64{0, 0, 0, 7}).Draw(t, "stream")
				pool := trace.Pool{User: rapid.SampledFrom([]uint64{0, 0, 0, 1}).Draw(t, "pool")}
				b, err := a.MallocIn(pool, n, stream)
				var oom *OOMError
				if err != nil && !errors.As(err, &oom) {
					t.Fatal(err)
				}
				if err == nil {
					live = append(live, request{b, a.Address(b), a.Size(b)})
				}
			},
			"free": func(t *rapid.T) {
				r := pick(t)
				a.Free(r.block)
			},
			"free later": func(t *rapid.T) {
				r := pick(t)
				a.RequestFree(r.block)
				a.Defer(r.block)
				waiting = append(waiting, r.block)
			},
			"complete": func(t *rapid.T) {
				if len(waiting) == 0 || !a.Pending(waiting[0]) {
					t.Skip("nothing waits")
				}
				a.Complete(waiting[0])
				waiting = waiting[1:]
			},
			"empty cache": func(t *rapid.T) {
				before, releases := a.Reserved(), a.Releases()
				waits := a.Stats().Active.All.Current != a.Stats().Allocation.All.Current
				a.EmptyCache()
				if got := a.Reserved() < before; got != releases && !waits {
					t.Fatalf("Releases said %v, EmptyCache gave back %d", releases, before-a.Reserved())
				}
				if a.Releases() {
					t.Fatal("there is still something to release")
				}
				waiting = nil
			},
			"": func(t *rapid.T) {
				checkInvariants(t, a)
				for _, r := range live {
					if a.Address(r.block) != r.addr || a.Size(r.block) != r.size {
						t.Fatalf("live block %d moved", r.block)
					}
				}
				if limit > 0 && a.Reserved() > limit {
					t.Fatalf("%d bytes reserved beyond the limit", a.Reserved())
				}
				if card.Used() != a.Reserved() {
					t.Fatalf("the driver gave %d bytes, the allocator holds %d", card.Used(), a.Reserved())
				}
				// A retry may have completed what waited.
				kept := waiting[:0]
				for _, b := range waiting {
					if a.nodes[b].live && a.Pending(b) {
						kept = append(kept, b)
					}
				}
				waiting = kept
			},
		})
		for _, r := range live {
			a.Free(r.block)
		}
		a.ReleasePool(trace.Pool{User: 1})
		a.EmptyCache()
		checkInvariants(t, a)
		if s := a.Stats(); a.Reserved() != 0 || s.Allocation.All.Current != 0 || s.InactiveSplitBytes.All.Current != 0 || s.InactiveSplit.All.Current != 0 {
			t.Fatalf("after freeing everything %d bytes are reserved: %+v", a.Reserved(), s)
		}
	})
}

// TestFreeSet compares the free set with a sorted slice.
func TestFreeSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set freeSet
		model := map[entry]bool{}
		e := rapid.Custom(func(t *rapid.T) entry {
			return entry{size: rapid.Int64Range(1, 40).Draw(t, "size"), addr: rapid.Uint64Range(0, 40).Draw(t, "addr")}
		})
		smallest := func(from entry) (best entry, ok bool) {
			for x := range model {
				if !x.less(from) && (!ok || x.less(best)) {
					best, ok = x, true
				}
			}
			return best, ok
		}
		for range rapid.IntRange(0, 600).Draw(t, "steps") {
			x := e.Draw(t, "entry")
			switch {
			case !model[x]:
				set.insert(x)
				model[x] = true
			case rapid.Bool().Draw(t, "remove"):
				set.remove(x)
				delete(model, x)
			}
			from := e.Draw(t, "from")
			want, ok := smallest(from)
			at := set.lowerBound(from)
			if set.valid(at) != ok || ok && set.at(at) != want {
				t.Fatalf("lowerBound(%v): want %v, %v", from, want, ok)
			}
		}
		all := set.all()
		if len(all) != len(model) || set.n != len(model) {
			t.Fatalf("%d entries, want %d", len(all), len(model))
		}
		for i := range all[:max(0, len(all)-1)] {
			if !all[i].less(all[i+1]) {
				t.Fatalf("out of order at %d", i)
			}
		}
	})
}

func BenchmarkMallocFree(b *testing.B) {
	for _, bc := range []struct {
		name string
		live int
	}{{"live=1e3", 1e3}, {"live=1e6", 1e6}} {
		b.Run(bc.name, func(b *testing.B) {
			a := New(Config{})
			blocks := make([]Block, bc.live)
			x := uint64(1)
			next := func(n uint64) uint64 { x ^= x << 13; x ^= x >> 7; x ^= x << 17; return x % n }
			for i := range blocks {
				blocks[i], _ = a.Malloc(int64(512+next(1<<15)), 0)
			}
			for i := 0; i < len(blocks); i += 2 { // half of them free: many holes
				a.Free(blocks[i])
				blocks[i], _ = a.Malloc(int64(512+next(1<<15)), 0)
			}
			b.ReportAllocs()
			for b.Loop() {
				i := next(uint64(len(blocks)))
				a.Free(blocks[i])
				blocks[i], _ = a.Malloc(int64(512+next(1<<15)), 0)
			}
		})
	}
}
