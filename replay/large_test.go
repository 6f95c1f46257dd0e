package replay

import (
	"flag"
	"os"
	"testing"

	"vramscope/torchsnap"
	"vramscope/trace"
)

var (
	largeFrom = flag.String("large-from", "", "the recording whose steps TestLarge runs several times over")
	largeOut  = flag.String("large-out", "", "where TestLarge writes the snapshot")
	largeN    = flag.Int("large-n", 10, "how many times")
)

// TestLarge writes a large snapshot for benchmarks: the events of a recording,
// with those of its steps run over and over, sent through the allocator. What
// is alive at the end of a step is alive at its start, so the steps can follow
// each other.
//
//	go test ./replay -run TestLarge -large-from varlen_default.pickle.zst -large-out /tmp/large.pickle
func TestLarge(t *testing.T) {
	if *largeOut == "" {
		t.Skip("no -large-out")
	}
	p := compileFile(t, *largeFrom)
	big := p.repeat(t, *largeN)
	tr := big.Record(Scenario{})
	f, err := os.Create(*largeOut)
	if err != nil {
		t.Fatal(err)
	}
	if err := torchsnap.Write(f, tr); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d events", tr.Devices[0].Events.Len())
}

// repeat returns the program with the part that can follow itself repeated:
// between two moments at which the same requests are alive.
func (p *Program) repeat(t testing.TB, n int) *Program {
	t.Helper()
	from, to := p.cycle()
	if from < 0 {
		t.Fatal("nothing in this recording can be repeated")
	}
	q := *p
	q.history = trace.History{Complete: true}
	q.ops = append([]op(nil), p.ops[:to]...)
	q.Requests = append([]Request(nil), p.Requests...)
	for range n - 1 {
		clone := map[int32]int32{}
		for _, o := range p.ops[from:to] {
			if o.request >= 0 {
				id, ok := clone[o.request]
				if !ok && o.kind == opAlloc {
					id, ok = int32(len(q.Requests)), true
					clone[o.request] = id
					q.Requests = append(q.Requests, p.Requests[o.request])
				}
				if !ok {
					continue
				}
				o.request = id
			}
			q.ops = append(q.ops, o)
		}
	}
	return &q
}

// cycle returns the longest range of operations in which everything that is
// born dies, and nothing from before it does.
func (p *Program) cycle() (from, to int) {
	last := make([]int, len(p.Requests)) // the operation that frees it
	for i, o := range p.ops {
		if o.request >= 0 && (o.kind == opFree || o.kind == opRequestFree) {
			last[o.request] = i
		}
	}
	born := map[int32]int{}
	open := 0
	depthAt := make([]int, len(p.ops)+1) // live requests that die later
	for i, o := range p.ops {
		switch o.kind {
		case opAlloc:
			if last[o.request] > 0 {
				open++
				born[o.request] = i
			}
		case opFree, opRequestFree:
			open--
		}
		depthAt[i+1] = open
	}
	least := open
	from, to = -1, -1
	for i := len(p.ops) / 50; i <= len(p.ops); i++ {
		if depthAt[i] <= least {
			if from < 0 {
				from = i
			}
			to = i
		}
	}
	return from, to
}
