package oomlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"
)

func encodeUTF16(text string, order binary.ByteOrder, bom bool) []byte {
	var out []byte
	units := utf16.Encode([]rune(text))
	if bom {
		units = append([]uint16{0xfeff}, units...)
	}
	for _, u := range units {
		b := make([]byte, 2)
		order.PutUint16(b, u)
		out = append(out, b...)
	}
	return out
}

func TestEncodings(t *testing.T) {
	text := "start 🚀\r\nRuntimeError: " + message + "\r\n"
	for _, tc := range []struct {
		name  string
		input []byte
		want  string
	}{
		{"utf-8", []byte(text), "utf-8"},
		{"utf-8 with a mark", append([]byte{0xef, 0xbb, 0xbf}, text...), "utf-8"},
		{"utf-16 little", encodeUTF16(text, binary.LittleEndian, true), "utf-16le"},
		{"utf-16 big", encodeUTF16(text, binary.BigEndian, true), "utf-16be"},
		{"utf-16 little without a mark", encodeUTF16(text, binary.LittleEndian, false), "utf-16le"},
		{"utf-16 big without a mark", encodeUTF16(text, binary.BigEndian, false), "utf-16be"},
		{"utf-16 with half a character at the end", append(encodeUTF16(text, binary.LittleEndian, true), 0x3d), "utf-16le"},
		{"a rotated log that starts with NULs", append(make([]byte, 5000), text...), "utf-8"},
		{"latin-1", append([]byte("caf\xe9\n"), text...), "utf-8"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, r := range map[string]io.Reader{"whole": bytes.NewReader(tc.input), "by bytes": iotest.OneByteReader(bytes.NewReader(tc.input))} {
				report, err := Scan(r, Options{})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if report.Encoding != tc.want || len(report.Failures) != 1 || report.Failures[0].Kind != Fatal {
					t.Errorf("%s: encoding %s, failures %+v; want %s and one", name, report.Encoding, report.Failures, tc.want)
				}
			}
		})
	}
}

func TestNoText(t *testing.T) {
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(i*7 + i>>3)
	}
	for _, tc := range []struct {
		name  string
		input []byte
		want  error
		word  string
	}{
		{"empty", nil, ErrEmpty, "empty"},
		{"noise", noise, ErrBinary, "control characters"},
		{"zeros", make([]byte, 10000), ErrBinary, "not a text"},
		{"gzip", []byte("\x1f\x8b\x08\x00text"), ErrBinary, "gzip"},
		{"pickle", []byte("\x80\x04\x95\x00\x00"), ErrBinary, "pickle"},
		{"zip", []byte("PK\x03\x04rest"), ErrBinary, "zip"},
		{"ELF", []byte("\x7fELF\x02\x01"), ErrBinary, "ELF"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Scan(bytes.NewReader(tc.input), Options{})
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.word) {
				t.Errorf("got %v; want %v with %q", err, tc.want, tc.word)
			}
		})
	}
}

// TestDirectory: reading a directory is an error of the system, said in its words.
func TestReadError(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if _, err := Scan(dir, Options{}); err == nil {
		t.Error("a directory is a log")
	}
	report, err := Scan(io.MultiReader(strings.NewReader("RuntimeError: "+message+"\n"+strings.Repeat("x\n", 100000)), iotest.ErrReader(errors.New("disk on fire"))), Options{})
	if err == nil || !strings.Contains(err.Error(), "disk on fire") || len(report.Failures) != 1 {
		t.Errorf("err %v, %d failures; want the failure that was read and the error", err, len(report.Failures))
	}
}

// TestOneLongLine reads messages in a single line of 100 MB, in little memory.
func TestOneLongLine(t *testing.T) {
	size := int64(100 << 20)
	if testing.Short() {
		size = 10 << 20
	}
	filler := io.LimitReader(repeat("some words without an end, "), size)
	end := " RuntimeError: " + message
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	report, err := Scan(io.MultiReader(strings.NewReader("ValueError: "+message+" "), filler, strings.NewReader(end)), Options{})
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Failures) != 1 && len(report.Failures) != 2 {
		t.Fatalf("%d messages; want the one at the start and the one at the end", len(report.Failures))
	}
	if report.Lines != 1 || report.Failures[0].Line != 1 {
		t.Errorf("%d lines, failure on %d; want 1, 1", report.Lines, report.Failures[0].Line)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
		t.Errorf("allocated %d MiB in all for one line", grown>>20)
	}
}

type repeat string

func (r repeat) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], r)
	}
	return n, nil
}

// TestLongLineFullOfMessages: a line of megabytes that holds one message after
// another is read in pieces.
func TestLongLineFullOfMessages(t *testing.T) {
	line := strings.Repeat("RuntimeError: "+message+" and then ", 20000)
	report := mustScan(t, "a first line\n"+line+"\nstep 2\nRuntimeError: "+strings.Replace(message, "18.00", "17.00", 1)+"\n")
	if n := len(report.Failures); n < 2 || report.Failures[n-1].Line != 4 {
		t.Errorf("%d messages; want those of line 2 and the one of line 4", n)
	}
}

// TestAcrossBlocks finds a message wherever the blocks of input divide it.
func TestAcrossBlocks(t *testing.T) {
	text := "torch.OutOfMemoryError: " + message + "\n"
	for _, at := range []int{blockSize, lookBack + blockSize, lookBack + blockSize + lookAhead, blockSize + lookAhead} {
		for d := -len(text) - 2; d <= 2; d += 41 {
			pad := strings.Repeat(strings.Repeat("0123456789abcdef", 6)+"\n", (at+d)/97+1)[:at+d]
			report := mustScan(t, pad+"\n"+text+strings.Repeat("after the end 7\n", 6000))
			if len(report.Failures) != 1 || report.Failures[0].Free == nil {
				t.Fatalf("at %d%+d: %+v", at, d, report.Failures)
			}
			if want := strings.Count(pad, "\n") + 2; report.Failures[0].Line != want || report.Failures[0].Offset != int64(len(pad)+1) {
				t.Fatalf("at %d%+d: line %d, offset %d; want %d, %d", at, d, report.Failures[0].Line, report.Failures[0].Offset, want, len(pad)+1)
			}
		}
	}
}

// TestManyFailures keeps the first thousand and counts the rest.
func TestManyFailures(t *testing.T) {
	var b strings.Builder
	for i := range 2000 {
		b.WriteString("RuntimeError: " + strings.Replace(message, "18.00", "1"+string(rune('0'+i%10))+string(rune('0'+i/10%10))+string(rune('0'+i/100%10))+string(rune('0'+i/1000))+".00", 1) + "\n")
	}
	report := mustScan(t, b.String())
	if len(report.Failures) != 1000 || report.Dropped < 500 {
		t.Errorf("%d kept, %d dropped; want 1000 and the rest", len(report.Failures), report.Dropped)
	}
}

// FuzzScan: any input gives a report or an error; what it reports lies within it.
func FuzzScan(f *testing.F) {
	for i, s := range allSamples() {
		f.Add([]byte(wear(i%len(dresses), s.before+s.text)))
	}
	f.Add([]byte("\x1b[31m\r\r\n{\"log\":\"\\n\"}\n[rank1]: \xff\xfe"))
	f.Add(encodeUTF16("RuntimeError: "+message, binary.LittleEndian, true))
	f.Fuzz(func(t *testing.T, data []byte) {
		report, err := Scan(bytes.NewReader(data), Options{MaxFailures: 50})
		if err != nil {
			return
		}
		if len(report.Failures) > 50 {
			t.Errorf("%d failures", len(report.Failures))
		}
		for _, x := range report.Failures {
			if x.Line < 1 || x.Line > report.Lines || x.Offset < 0 || x.Offset > report.Bytes || x.Grammar == "" || x.Kind == "" || len(x.Text) > 2<<10 {
				t.Errorf("%+v in %d lines, %d bytes", x, report.Lines, report.Bytes)
			}
			for _, p := range []*int64{(*int64)(x.Tried), (*int64)(x.Capacity), (*int64)(x.Free), (*int64)(x.Allocated)} {
				if p != nil && *p < 0 {
					t.Errorf("a negative size: %+v", x)
				}
			}
			x.Unexplained()
			x.Lacks()
		}
	})
}
