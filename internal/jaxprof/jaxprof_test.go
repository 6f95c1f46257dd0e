package jaxprof

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"vramscope/torchsnap"
)

// TestRead reads what JAX 0.10 wrote on one H200; jax_stats.json of the same
// process says bytes_in_use.
func TestRead(t *testing.T) {
	f, err := os.Open("testdata/jax_memory.prof")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Devices) != 1 || p.Devices[0].Name != "cuda:0" {
		t.Fatalf("devices: %+v", p.Devices)
	}
	d := p.Devices[0]
	var bytes, blocks int64
	for _, h := range d.Holders {
		bytes += h.Bytes
		blocks += h.Blocks
	}
	if bytes != d.Bytes || blocks != d.Buffers || d.Bytes != 134217728+65536+8192+33554432*2+268435456 {
		t.Errorf("%d bytes in %d buffers; holders: %d in %d", d.Bytes, d.Buffers, bytes, blocks)
	}
	if want := "jaxprof.py:14 <module>"; !strings.HasSuffix(d.Holders[0].Name, want) {
		t.Errorf("largest holder is %q, want …%q", d.Holders[0].Name, want)
	}
	if p.Executables != 15 {
		t.Errorf("%d executables, want 15", p.Executables)
	}
}

func TestIsProfile(t *testing.T) {
	data, err := os.ReadFile("testdata/jax_memory.prof")
	if err != nil {
		t.Fatal(err)
	}
	r, done, err := torchsnap.Decompress(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	head, _ := r.Peek(64)
	if !IsProfile(head) {
		t.Errorf("not taken for a profile: % x", head)
	}
	for _, text := range []string{"", "\n", "\n\nTraceback (most recent call last):", "\x80\x04\x95", "log"} {
		if IsProfile([]byte(text)) {
			t.Errorf("%q is taken for a profile", text)
		}
	}
}

func FuzzRead(f *testing.F) {
	data, err := os.ReadFile("testdata/jax_memory.prof")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Read(bytes.NewReader(data))
		if err == nil && p == nil {
			t.Fatal("neither a profile nor an error")
		}
	})
}
