package torchsnap_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"vramscope/torchsnap"
)

// TestTruncated cuts real files at many places: always an error with the
// place, never a panic or a trace.
func TestTruncated(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"streams", "graph", "unet_10gib_b32_oom", "cpp_stacks"} {
		data := decompressed(t, name)
		for range 200 {
			cut := rng.IntN(len(data))
			tr, err := torchsnap.Read(bytes.NewReader(data[:cut]), nil)
			if tr != nil || err == nil {
				t.Fatalf("%s cut at byte %d is read without an error", name, cut)
			}
			var place *torchsnap.Error
			if !errors.As(err, &place) || place.Offset > int64(cut) {
				t.Fatalf("%s cut at byte %d: error %q has no place before it", name, cut, err)
			}
		}
	}
}

// TestTruncatedCompressed cuts the files as they are stored.
func TestTruncatedCompressed(t *testing.T) {
	data, err := os.ReadFile("testdata/streams.pickle.zst")
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(data) - 1 {
		if _, err := torchsnap.Read(bytes.NewReader(data[:cut]), nil); err == nil {
			t.Fatalf("cut at byte %d is read without an error", cut)
		}
	}
}

// TestCorrupt changes bytes of a real file: no panic, and never more memory
// than the file's size warrants.
func TestCorrupt(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	data := decompressed(t, "streams")
	for range 300 {
		bad := bytes.Clone(data)
		for range 1 + rng.IntN(3) {
			bad[rng.IntN(len(bad))] = byte(rng.Uint32())
		}
		if tr, err := torchsnap.Read(bytes.NewReader(bad), nil); err == nil {
			for i := range tr.Devices {
				tr.Devices[i].History()
			}
		}
	}
}

func le32(n uint32) string { return string(binary.LittleEndian.AppendUint32(nil, n)) }
func le64(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }

// TestRefused gives inputs that are no snapshots, by accident or by intent.
func TestRefused(t *testing.T) {
	for _, tc := range []struct{ name, input, want string }{
		{"empty", "", "the file is empty"},
		{"jpeg", "\xff\xd8\xff\xe0\x00\x10JFIF\x00", "this is a JPEG picture"},
		{"png", "\x89PNG\r\n\x1a\n", "this is a PNG picture"},
		{"checkpoint", "PK\x03\x04\x00\x00archive/data.pkl", "torch.save checkpoint"},
		{"old checkpoint", "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02", "torch.save checkpoint"},
		{"json", "{\n  \"segments\": []}", "this is JSON"},
		{"json list", "[1, 2]", "this is JSON"},
		{"html", "<!DOCTYPE html><html>", "an HTML or XML page"},
		{"safetensors", le64(40) + `{"w":{"dtype":"F32","shape":[1]}}`, "a safetensors file"},
		{"text", "Traceback (most recent call last):\n", "want a pickle"},
		{"other pickle", "\x80\x04}\x94(\x8c\x05model\x94K\x01\x8c\x01b\x94K\x02u.", `byte 22: a pickle of something else, not a memory snapshot: a dict with the keys "model, b"`},
		{"a number", "\x80\x04K\x01.", "a pickle of something else"},
		{"other list", "\x80\x04]\x94(K\x01K\x02e.", "a list whose first item is an integer"},

		{"command", "cposix\nsystem\n(S'id'\ntR.", "want a pickle"},
		{"command, protocol 2", "\x80\x02cposix\nsystem\n(X\x02\x00\x00\x00idtR.", `byte 2: GLOBAL: the file asks Python to load or run "posix.system"`},
		{"command, protocol 4", "\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R.", `byte 17: STACK_GLOBAL: the file asks Python to load or run "posix.system"`},
		{"command, inst", "\x80\x02(X\x02\x00\x00\x00idiposix\nsystem\n.", `INST: the file asks Python to load or run "posix.system"`},
		{"extension", "\x80\x02\x82\x01.", "EXT1: "},
		{"persistent id", "\x80\x02K\x01Q.", "BINPERSID: "},
		{"reduce", "\x80\x02K\x01)R.", "REDUCE: "},
		{"build", "\x80\x02}}b.", "BUILD: "},
		{"object", "\x80\x02K\x01)\x81.", "NEWOBJ: "},

		{"a terabyte of text", "\x80\x04\x8d" + le64(1<<40) + "abc", "declares 1099511627776 bytes"},
		{"four gigabytes of text", "\x80\x04X" + le32(1<<32-1) + "abc", "declares 4294967295 bytes"},
		{"sixty megabytes of text", "\x80\x04X" + le32(60<<20) + "abc", "truncated"},
		{"memo at four billion", "\x80\x04}r" + le32(1<<32-1) + ".", "memo index 4294967295"},
		{"memo never written", "\x80\x04h\x07.", "memo entry 7 is read before it is written"},
		{"memo written twice", "\x80\x02}q\x00]q\x00.", "memo entry 0 is written twice"},
		{"deep", "\x80\x04" + strings.Repeat("]\x94(", 100_000), "nested more than"},
		{"long integer", "\x80\x02\x8b" + le32(1000) + strings.Repeat("\x11", 1000) + ".", "an integer of more than 64 bits"},
		{"no mark", "\x80\x02}u.", "without a mark"},
		{"empty stack", "\x80\x02e.", "without a mark"},
		{"append to nothing", "\x80\x02K\x01a.", "too few values"},
		{"reaching before a mark", "\x80\x02](K\x01a.", "too few values"},
		{"two values", "\x80\x02K\x01K\x02.", "stops with 2 values"},
		{"odd dict", "\x80\x02}(K\x01u.", "a key that has no value"},
		{"items of a number", "\x80\x02K\x01(K\x01K\x02u.", "sets items of an integer"},
		{"protocol 9", "\x80\x09.", "want a pickle"},
		{"unknown opcode", "\x80\x04\xff", "unknown pickle opcode 0xff"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr, err := torchsnap.Read(strings.NewReader(tc.input), nil)
			if tr != nil || err == nil {
				t.Fatal("read without an error")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %q, want one with %q", err, tc.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q has more than a line", err)
			}
			if !strings.HasPrefix(err.Error(), "byte ") {
				t.Errorf("error %q does not begin with the place", err)
			}
		})
	}
}

// TestMemoryBounded reads streams of megabytes that decompress from nothing or
// ask for much more than they hold.
func TestMemoryBounded(t *testing.T) {
	const limit = 16 << 20
	for _, tc := range []struct {
		name        string
		head, body  string
		times       int
		wantMessage string
	}{
		{"stack", "\x80\x02", "K\x01", 20 << 20, "MiB of memory"},
		{"lists", "\x80\x02", "]", 20 << 20, "MiB of memory"},
		{"floats", "\x80\x02", "G\x00\x00\x00\x00\x00\x00\x00\x000", 20 << 20, "MiB of memory"},
		{"memo", "\x80\x04K\x01", "\x94", 20 << 20, "MiB of memory"},
		{"one list", "\x80\x04]", "K\x01a", 20 << 20, "MiB of memory"},
		{"tuples", "\x80\x02", ")0", 20 << 20, "MiB of memory"},
		{"long line", "\x80\x02I", "1111", 20 << 20, "a line of more than"},
		{"nothing", "\x80\x02", "K\x010", 20 << 20, "more than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var packed bytes.Buffer
			w, err := zstd.NewWriter(&packed)
			if err != nil {
				t.Fatal(err)
			}
			w.Write([]byte(tc.head))
			piece := bytes.Repeat([]byte(tc.body), 1<<20)
			for n := 0; n < tc.times; n += 1 << 20 {
				w.Write(piece)
			}
			w.Close()
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err = torchsnap.Read(&packed, &torchsnap.Options{MaxMemory: limit, MaxBytes: 50 << 20})
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), tc.wantMessage) {
				t.Errorf("error %v, want one with %q", err, tc.wantMessage)
			}
			// Everything ever allocated, of which half may be garbage of growth.
			if got := after.TotalAlloc - before.TotalAlloc; got > 8*limit {
				t.Errorf("allocated %d MiB under a limit of %d", got>>20, limit>>20)
			}
		})
	}
}

func TestReadFileNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "picture.pickle")
	if err := os.WriteFile(path, []byte("\xff\xd8\xff\xe0"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, path + ".missing"} {
		if _, err := torchsnap.ReadFile(p, nil); err == nil || !strings.HasPrefix(err.Error(), p+": ") {
			t.Errorf("error %v, want one that begins with the path", err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(decompressed(f, "streams")[:4000])
	small := read(f, decompressed(f, "streams"))
	small.Devices[0].Events.Truncate(20)
	small.Devices[0].Segments = small.Devices[0].Segments[:2]
	f.Add(write(f, small))
	for _, name := range []string{"torchscript", "old_list", "v1_13", "protocol0", "v2_15"} {
		data, err := os.ReadFile("testdata/dialects/" + name + ".pickle")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tr, err := torchsnap.Read(bytes.NewReader(data), &torchsnap.Options{MaxMemory: 64 << 20})
		if err != nil {
			return
		}
		for i := range tr.Devices {
			tr.Devices[i].History()
		}
		// What was read can be written, and is then read the same.
		again := read(t, write(t, tr))
		if len(again.Devices) != len(tr.Devices) {
			t.Fatalf("%d devices, %d after writing", len(tr.Devices), len(again.Devices))
		}
		for i := range tr.Devices {
			a, b := &tr.Devices[i], &again.Devices[i]
			if a.Events.Len() != b.Events.Len() || len(a.Segments) != len(b.Segments) {
				t.Fatalf("device %d: %d events and %d segments, %d and %d after writing", a.Ordinal, a.Events.Len(), len(a.Segments), b.Events.Len(), len(b.Segments))
			}
		}
	})
}
