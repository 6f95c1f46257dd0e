package oomlog

import (
	"fmt"
	"strings"
	"testing"
)

// bfcDump is TensorFlow's dump with many chunks.
func bfcDump(chunks int) string {
	var b strings.Builder
	b.WriteString(bfcFatal)
	const p = "2019-03-04 05:06:07.890123: I tensorflow/core/common_runtime/bfc_allocator.cc:665] "
	b.WriteString(p + "Bin (256): \tTotal Chunks: 7, Chunks in use: 6. 1.8KiB allocated for chunks. 1.5KiB in use in bin. 1.5KiB client-requested in use in bin.\n")
	for i := range chunks {
		state := "Chunk"
		if i%3 == 0 {
			state = "Free "
		}
		fmt.Fprintf(&b, "%s%s at 0x7f%010x of size 1048576\n", p, state, i<<20)
	}
	b.WriteString(p + "7 Chunks of size 256 totalling 1.8KiB\n" + p + "Sum Total of in-use chunks: 5.50GiB\n" +
		p + "Stats: \nLimit:  7000000000\nInUse:  6900000000\nMaxInUse: 6950000000\nNumAllocs: 12345\nMaxAllocSize: 2147483648\n\n")
	b.WriteString("ResourceExhaustedError: OOM when allocating tensor with shape[8,8] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Mul]\n")
	return b.String()
}

// TestLongDump: the lines of a dump of any length belong to the message before it.
func TestLongDump(t *testing.T) {
	report := mustScan(t, bfcDump(30000))
	if len(report.Failures) != 2 || report.Dropped != 0 {
		t.Fatalf("%d messages, %d dropped; want the allocator's and the exception", len(report.Failures), report.Dropped)
	}
	f := &report.Failures[0]
	for name, want := range map[string]float64{"sum_free_chunks": 10000 << 20, "in_use": 5.5 * (1 << 30), "max_in_use": 6950000000, "sum_chunks": 7} {
		if got, ok := f.Detail(name); !ok || got != want {
			t.Errorf("%s = %v, %v; want %v", name, got, ok, want)
		}
	}
	if f.Limit == nil || *f.Limit != 7000000000 || f.Allocated == nil || *f.Allocated != 6900000000 {
		t.Errorf("limit %v, in use %v", f.Limit, f.Allocated)
	}
}

func BenchmarkDump(b *testing.B) {
	text := bfcDump(30000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := Scan(strings.NewReader(text), Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
