package diagnose

import (
	"context"
	"os"
	"testing"

	"vramscope/replay"
	"vramscope/torchsnap"
)

// BenchmarkLarge explains the snapshot that VRAMSCOPE_LARGE names, such as the
// one that replay's TestLarge writes.
func BenchmarkLarge(b *testing.B) {
	file := os.Getenv("VRAMSCOPE_LARGE")
	if file == "" {
		b.Skip("no VRAMSCOPE_LARGE")
	}
	for b.Loop() {
		t, err := torchsnap.ReadFile(file, nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Snapshot(context.Background(), file, replay.Compile(t, &t.Devices[0]), Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
