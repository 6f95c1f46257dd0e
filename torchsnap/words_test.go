package torchsnap

import (
	"testing"

	"vramscope/torchsnap/internal/pickle"
	"vramscope/trace"
)

// TestWords checks that the constants number the words, and that the first
// words are the actions.
func TestWords(t *testing.T) {
	for v, want := range map[pickle.Value]string{
		wAlloc: "alloc", wAnnotate: "annotate", wAction: "action", wAddr: "addr", wForwardFrames: "forward_frames",
		wName: "name", wLine: "line", wAddress: "address", wHistory: "history", wAwaitingFree: "active_awaiting_free",
		wDevice: "device", wBlocks: "blocks", wSmall: "small", wStage: "stage", wAnnotations: "external_annotations",
		wNotAvailable: "N/A", wEmpty: "",
	} {
		if v.Kind() != pickle.String || words[v.Index()] != want {
			t.Errorf("word %d is %q, want %q", v.Index(), words[v.Index()], want)
		}
	}
	if int(wEmpty.Index()) != len(words)-1 {
		t.Errorf("%d words, %d constants", len(words), wEmpty.Index()+1)
	}
	for a := range trace.Other {
		if words[a] != a.String() {
			t.Errorf("word %d is %q, want %q", a, words[a], a)
		}
	}
}
