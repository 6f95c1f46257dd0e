package torchsnap

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

const writeOne = "; a snapshot is what torch.cuda.memory._dump_snapshot(\"snap.pickle\") writes"

// signatures are the first bytes of what people give instead of a snapshot.
var signatures = []struct{ prefix, what string }{
	{"PK\x03\x04", "a zip archive, probably a torch.save checkpoint"},
	{"\xff\xd8\xff", "a JPEG picture"},
	{"\x89PNG", "a PNG picture"},
	{"%PDF", "a PDF document"},
	{"GGUF", "a GGUF model"},
	{"\x7fELF", "a program"},
	{"\x89HDF", "an HDF5 file"},
	{"\xfd7zXZ\x00", "compressed by xz; decompress it first"},
	{"BZh", "compressed by bzip2; decompress it first"},
	{"<", "an HTML or XML page"},
	{"# ", "text"},
}

// IsSnapshot reports whether a decompressed stream that begins with head looks
// like a pickle. 512 bytes are enough.
func IsSnapshot(head []byte) bool {
	if len(head) < 2 {
		return false
	}
	switch {
	case head[0] == 0x80: // PROTO
		return head[1] >= 2 && head[1] <= 5
	case head[0] == '}' || head[0] == ']': // protocol 1
		return head[1] == 'q' || head[1] == '('
	}
	return bytes.HasPrefix(head, []byte("(dp")) || bytes.HasPrefix(head, []byte("(lp"))
}

// foreign says what a file is that is no pickle, "" if it may be one.
func foreign(head []byte) string {
	if len(head) == 0 {
		return "the file is empty, want a memory snapshot" + writeOne
	}
	// The old format of torch.save begins with a pickled magic number.
	if bytes.Contains(head[:min(len(head), 32)], []byte("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19")) {
		return "this is a torch.save checkpoint, not a memory snapshot" + writeOne
	}
	if IsSnapshot(head) {
		return ""
	}
	for _, s := range signatures {
		if bytes.HasPrefix(head, []byte(s.prefix)) {
			return fmt.Sprintf("this is %s, not a memory snapshot%s", s.what, writeOne)
		}
	}
	if len(head) > 9 && head[8] == '{' && binary.LittleEndian.Uint64(head) < 100<<20 {
		return "this is a safetensors file, not a memory snapshot" + writeOne
	}
	if t := bytes.TrimLeft(head, " \t\r\n"); len(t) > 1 && (t[0] == '{' || t[0] == '[') && bytes.IndexByte(head, 0) < 0 {
		return "this is JSON, not a memory snapshot" + writeOne
	}
	return fmt.Sprintf("found %.16q, want a pickle (it begins with byte 80 hex)%s", head[:min(len(head), 16)], writeOne)
}
