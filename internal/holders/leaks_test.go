package holders

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestLeakOfRecording(t *testing.T) {
	leaks := recorded(t, "leak_resnet18").Leaks()
	if len(leaks) != 1 {
		t.Fatalf("%d leaks, want 1: %+v", len(leaks), leaks)
	}
	l := leaks[0]
	if l.BytesPerStep != 512 || l.BlocksPerStep != 1 {
		t.Errorf("%v bytes and %v blocks per step, want 512 and 1", l.BytesPerStep, l.BlocksPerStep)
	}
	if !strings.HasPrefix(l.Line, "train/workloads.py:46 loss") {
		t.Errorf("line is %q", l.Line)
	}
	if got := l.StepsLeft(1<<20, 1<<19); got != 1024 {
		t.Errorf("%d steps left, want 1024", got)
	}
}

func TestNoLeakInRecordings(t *testing.T) {
	for _, dir := range recordingFolders {
		files, err := filepath.Glob(filepath.Join(dir, "*.pickle.zst"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.Contains(f, "leak_resnet18") {
				continue
			}
			if leaks := analyzeFile(t, f).Leaks(); len(leaks) > 0 {
				t.Errorf("%s: %+v", f, leaks)
			}
		}
	}
}

// TestLeakInOneBlock is a history that is concatenated in each step.
func TestLeakInOneBlock(t *testing.T) {
	record := func(steps int, size func(int) int64) []Leak {
		s := newScript()
		s.alloc(layer0, inLoad)
		var history uint64
		for step := range steps {
			h := s.alloc(mib, inModule)
			g := s.alloc(layer0, inEngine)
			s.free(inEngine, h)
			tmp := s.alloc(512, inOptimizer)
			s.free(inOptimizer, tmp)
			s.free(inZeroGrad, g)
			longer := s.alloc(size(step), inLoss)
			if history != 0 {
				s.free(inLoss, history)
			}
			history = longer
		}
		return s.analyze(t).Leaks()
	}
	leaks := record(20, func(i int) int64 { return int64(i+1) * 4096 })
	if len(leaks) != 1 || leaks[0].BytesPerStep != 4096 || leaks[0].BlocksPerStep != 0 {
		t.Errorf("found %+v, want 4096 bytes per step", leaks)
	}
	if leaks := record(20, func(i int) int64 { return int64(i*i%7+1) * 4096 }); len(leaks) > 0 {
		t.Errorf("varying sizes: %+v", leaks)
	}
	if leaks := record(9, func(i int) int64 { return int64(i+1) * 4096 }); len(leaks) > 0 {
		t.Errorf("a few steps of rising sizes: %+v", leaks)
	}
}

func TestLeaksOfScripts(t *testing.T) {
	always := func(int) bool { return true }
	for _, tc := range []struct {
		name     string
		training training
		want     float64 // bytes per step, 0: no leak
	}{
		{"every step", training{steps: 12, keepLoss: always}, 512},
		{"every third step", training{steps: 30, keepLoss: func(i int) bool { return i%3 == 0 }}, 512.0 / 3},
		{"with accumulation", training{steps: 12, accumulate: 2, keepLoss: always}, 1024},
		{"a buffer of four", training{steps: 30, keepLoss: always, bounded: 4}, 0},
		{"only in the first steps", training{steps: 30, keepLoss: func(i int) bool { return i < 5 }}, 0},
		{"nothing kept", training{steps: 30, evaluate: 4}, 0},
		{"too few steps to tell", training{steps: 4, keepLoss: always}, 0},
		{"many steps", training{steps: 500, keepLoss: always}, 512},
	} {
		t.Run(tc.name, func(t *testing.T) {
			leaks := tc.training.record(t).Leaks()
			if tc.want == 0 {
				if len(leaks) > 0 {
					t.Errorf("reported %+v", leaks)
				}
				return
			}
			if len(leaks) != 1 {
				t.Fatalf("%d leaks, want 1", len(leaks))
			}
			if got := leaks[0].BytesPerStep; got < tc.want*0.9 || got > tc.want*1.1 {
				t.Errorf("%v bytes per step, want %v", got, tc.want)
			}
			if want := "u/train.py:31 main → torch/nn/functional.py cross_entropy"; leaks[0].Line != want {
				t.Errorf("line is %q, want %q", leaks[0].Line, want)
			}
		})
	}
}
