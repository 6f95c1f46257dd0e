// Command comparetimeline compares the requests of an estimate with those of a
// recorded snapshot, one by one, and prints where they part: the way to find a
// rule that is missing.
//
//	go run ./internal/plan/comparetimeline -snapshot gpt2_b8_s512_amp.pickle.zst -model models/hf/gpt2 -batch 8 -seq 512 -precision amp-bf16
package main

import (
	"flag"
	"fmt"
	"os"

	"vramscope/internal/plan"
	"vramscope/torchsnap"
	"vramscope/trace"
)

func main() {
	s := plan.Setup{Accumulate: 1}
	snapshot := flag.String("snapshot", "", "the recording")
	model := flag.String("model", "", "the model, as for fit")
	hunks := flag.Int("hunks", 12, "differences to print")
	flag.StringVar(&s.Mode, "mode", "train", "as for fit, like the flags below")
	flag.Int64Var(&s.Batch, "batch", 1, "")
	flag.Int64Var(&s.Seq, "seq", 0, "")
	flag.Int64Var(&s.Image, "image", 0, "")
	flag.StringVar(&s.Precision, "precision", "fp32", "")
	flag.StringVar(&s.Optimizer, "optimizer", "adamw", "")
	flag.StringVar(&s.Checkpoint, "checkpoint", "none", "")
	flag.StringVar(&s.Attention, "attention", "sdpa", "")
	flag.IntVar(&s.Accumulate, "accumulate", 1, "")
	flag.StringVar(&s.ZeroGrad, "zero-grad", "set-to-none", "")
	flag.StringVar(&s.MemoryFormat, "memory-format", "contiguous", "")
	flag.Parse()
	if err := run(*snapshot, *model, s, *hunks); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

// event is a request (positive size) or a free (negative), and who made it.
type event struct {
	size int64
	who  string
}

func run(snapshot, model string, s plan.Setup, hunks int) error {
	t, err := torchsnap.ReadFile(snapshot, nil)
	if err != nil {
		return err
	}
	recorded := events(t)
	var estimated []event
	_, err = plan.Estimate(model, s, func(free bool, _ int32, bytes int64, where string) {
		if free {
			bytes = -bytes
		}
		estimated = append(estimated, event{bytes, where})
	})
	if err != nil {
		return err
	}
	n := 0
	same := diff(recorded, estimated, func(a, b []event, at int) {
		n++
		if n > hunks {
			return
		}
		fmt.Printf("event %d\n", at)
		show("  recorded ", a)
		show("  estimated", b)
	})
	fmt.Printf("%d recorded, %d estimated, %d equal, %d differences\n", len(recorded), len(estimated), same, n)
	return nil
}

func show(label string, es []event) {
	for i, e := range es {
		if i == 8 {
			fmt.Printf("%s … %d more\n", label, len(es)-i)
			return
		}
		fmt.Printf("%s %+12d  %s\n", label, e.size, e.who)
	}
}

// events are the requests and frees of the busiest device.
func events(t *trace.Trace) []event {
	var out []event
	best := -1
	for i := range t.Devices {
		if best < 0 || t.Devices[i].Events.Len() > t.Devices[best].Events.Len() {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	es := &t.Devices[best].Events
	for i := range es.Len() {
		e := es.At(i)
		who := ""
		for k, f := range t.Stacks.Calls(e.Stack) {
			if k == 3 {
				break
			}
			fr := t.Stacks.Frame(f)
			who += fmt.Sprintf("%s:%d ", fr.Function, fr.Line)
		}
		switch e.Action {
		case trace.Alloc:
			out = append(out, event{e.Size, who})
		case trace.FreeCompleted:
			out = append(out, event{-e.Size, who})
		}
	}
	return out
}

// window is how far ahead a common run of events is looked for after a
// difference, run how long it must be.
const (
	window = 400
	length = 4
)

// diff reports where two sequences part and meet again, and how many events
// are equal.
func diff(a, b []event, part func(a, b []event, at int)) (same int) {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		if a[i].size == b[j].size {
			i, j, same = i+1, j+1, same+1
			continue
		}
		x, y := meet(a[i:], b[j:])
		part(a[i:i+x], b[j:j+y], i)
		i, j = i+x, j+y
	}
	if i < len(a) || j < len(b) {
		part(a[i:], b[j:], i)
	}
	return same
}

// meet finds the nearest place where a run of events is equal again.
func meet(a, b []event) (x, y int) {
	equal := func(x, y int) bool {
		for k := range length {
			if x+k >= len(a) || y+k >= len(b) {
				return k > 0 && (x+k >= len(a)) == (y+k >= len(b))
			}
			if a[x+k].size != b[y+k].size {
				return false
			}
		}
		return true
	}
	for d := 1; d <= 2*window; d++ {
		for x := max(0, d-window); x <= min(d, window); x++ {
			if y := d - x; x <= len(a) && y <= len(b) && equal(x, y) {
				return x, y
			}
		}
	}
	return len(a), len(b)
}
