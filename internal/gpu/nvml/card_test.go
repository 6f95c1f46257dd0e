package nvml

import (
	"encoding/json"
	"testing"
	"time"

	"vramscope/internal/gpu"
)

// TestCard asks the card of this machine, if it has one, and logs the answer
// and its cost; docs/gpu.md has it beside nvidia-smi's.
func TestCard(t *testing.T) {
	d, err := Open(Options{})
	if err != nil {
		t.Skip(err)
	}
	defer d.Close()
	ids, err := d.Devices()
	if err != nil || len(ids) == 0 {
		t.Skipf("no card: %v", err)
	}
	var took time.Duration
	var c gpu.Card
	for range 20 {
		start := time.Now()
		c = d.Read(ids[0])
		took = time.Since(start)
	}
	gpu.Check(&c)
	if c.State != gpu.OK {
		t.Fatalf("state %s: %s", c.State, c.Detail)
	}
	if c.Memory.Accounting == gpu.DoesNotAdd {
		t.Errorf("memory does not add up: %+v", c.Memory)
	}
	text, _ := json.MarshalIndent(c, "", " ")
	t.Logf("a read took %v\n%s\nmissing: %v", took, text, c.Missing())
	events, err := d.Wait(10 * time.Millisecond)
	t.Logf("events: %v %v", events, err)
}
