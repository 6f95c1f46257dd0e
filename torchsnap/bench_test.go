package torchsnap_test

import (
	"bytes"
	"io"
	"os"
	"testing"

	"vramscope/torchsnap"
)

// benchmarkFile returns the snapshot that VRAMSCOPE_SNAPSHOT names, plain or
// compressed, or the largest recording under testdata.
func benchmarkFile(b *testing.B) []byte {
	path := os.Getenv("VRAMSCOPE_SNAPSHOT")
	if path == "" {
		return decompressed(b, "cpp_stacks")
	}
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	r, done, err := torchsnap.Decompress(f)
	if err != nil {
		b.Fatal(err)
	}
	defer done()
	data, err := io.ReadAll(r)
	if err != nil {
		b.Fatal(err)
	}
	return data
}

// BenchmarkRead measures decoding without decompression. For a comparison with
// CPython on the same file: go run ./torchsnap/internal/decodebench FILE.
func BenchmarkRead(b *testing.B) {
	data := benchmarkFile(b)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := torchsnap.Read(bytes.NewReader(data), &torchsnap.Options{Total: int64(len(data))}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	data := benchmarkFile(b)
	t := read(b, data)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := torchsnap.Write(io.Discard, t); err != nil {
			b.Fatal(err)
		}
	}
}
