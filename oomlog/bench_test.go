package oomlog

import (
	"bytes"
	"fmt"
	"io"
	"testing"
)

// interleaved generates the log of eight ranks, size bytes of it, with a failure
// at each of the given places.
type interleaved struct {
	left     int64
	failures []int64
	at       int64
	line     int
	pending  []byte
}

func (g *interleaved) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		if len(g.pending) == 0 {
			if g.left <= 0 {
				return n, io.EOF
			}
			g.pending = g.next(g.pending[:0])
			g.left -= int64(len(g.pending))
			g.at += int64(len(g.pending))
		}
		k := copy(p[n:], g.pending)
		g.pending = g.pending[k:]
		n += k
	}
	return n, nil
}

func (g *interleaved) next(b []byte) []byte {
	rank := g.line % 8
	g.line++
	if len(g.failures) > 0 && g.at >= g.failures[0] {
		g.failures = g.failures[1:]
		p := fmt.Sprintf("[rank%d]: ", rank)
		for _, l := range []string{
			"Traceback (most recent call last):",
			`  File "/work/train.py", line 210, in <module>`, "    main()",
			`  File "/work/train.py", line 188, in main`, "    loss.backward()",
			`  File "/opt/lib/torch/autograd/__init__.py", line 266, in backward`, "    Variable._execution_engine.run_backward(",
			fmt.Sprintf("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %d.00 MiB. GPU %d has a total capacity of 79.25 GiB of which 11.50 MiB is free. Including non-PyTorch memory, this process has 79.20 GiB memory in use. Of the allocated memory 77.10 GiB is allocated by PyTorch, and 901.12 MiB is reserved by PyTorch but unallocated.", 2*rank+20, rank) + hint22 + oldURL,
		} {
			b = append(append(append(b, p...), l...), '\n')
		}
		return b
	}
	switch g.line % 5 {
	case 0:
		return fmt.Appendf(b, "[rank%d]: 2026-01-02 03:04:05,678 INFO trainer: step %d loss 2.%04d grad_norm 0.81 lr 1.2e-4 tokens/s 41873\n", rank, g.line/8, g.line%9973)
	case 1:
		return fmt.Appendf(b, "[rank%d]:  41%%|████▏     | %d/200000 [1:02:03<1:31:10, 2.14it/s]\r", rank, g.line/8)
	default:
		return fmt.Appendf(b, "[rank%d]: dataset: shard %07d of corpus/part-%05d.parquet: 1048576 rows, the quick brown fox jumps over a lazy dog\n", rank, g.line, g.line%4096)
	}
}

func failuresIn(size int64) *interleaved {
	return &interleaved{left: size, failures: []int64{size / 3, size/3 + 4000, size * 3 / 4}}
}

// TestInterleavedFailures finds three failures of three ranks in a long log.
func TestInterleavedFailures(t *testing.T) {
	report, err := Scan(failuresIn(8<<20), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Failures) != 3 {
		t.Fatalf("%d messages; want 3", len(report.Failures))
	}
	for _, f := range report.Failures {
		if f.Kind != Fatal && f.Kind != Caught || f.Rank == nil || f.Device == nil || *f.Rank != *f.Device || f.Traceback == nil || len(f.Traceback.Frames) != 3 {
			t.Errorf("line %d: %+v", f.Line, f)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	var buf bytes.Buffer
	if _, err := io.Copy(&buf, failuresIn(64<<20)); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(buf.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if r, err := Scan(bytes.NewReader(buf.Bytes()), Options{}); err != nil || len(r.Failures) != 3 {
			b.Fatal(len(r.Failures), err)
		}
	}
}
