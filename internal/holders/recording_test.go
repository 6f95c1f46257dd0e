package holders

import (
	"os"
	"path/filepath"
	"testing"

	"vramscope/replay"
	"vramscope/torchsnap"
)

// recordingFolders hold recordings of a card (shared/data/snapshots).
var recordingFolders = []string{"testdata", "../../torchsnap/testdata"}

// recorded analyzes a recording by its name.
func recorded(t testing.TB, name string) *Analysis {
	t.Helper()
	for _, dir := range recordingFolders {
		path := filepath.Join(dir, name+".pickle.zst")
		if _, err := os.Stat(path); err == nil {
			return analyzeFile(t, path)
		}
	}
	t.Fatalf("no recording %s", name)
	return nil
}

func analyzeFile(t testing.TB, path string) *Analysis {
	t.Helper()
	tr, err := torchsnap.ReadFile(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for i := range tr.Devices {
		if tr.Devices[i].Events.Len() > tr.Devices[most].Events.Len() {
			most = i
		}
	}
	return analyze(t, replay.Compile(tr, &tr.Devices[most]))
}

func analyze(t testing.TB, p *replay.Program) *Analysis {
	t.Helper()
	a, err := Analyze(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// sum adds the requests of a category whose phase lies in a step; step < 0
// means all.
func (a *Analysis) sum(c Category, step int) (requested int64, blocks int) {
	for i := range a.Program.Requests {
		if a.Category(i) != c || step >= 0 && (a.phase[i] < 0 || a.Phases[a.phase[i]].Step != step) {
			continue
		}
		requested += a.Program.Requests[i].Size
		blocks++
	}
	return requested, blocks
}
