package cachealloc

import (
	"errors"
	"strings"
	"testing"
)

func mustParse(t testing.TB, conf string, v Version) Settings {
	t.Helper()
	s, err := ParseSettings(conf, v)
	if err != nil {
		t.Fatalf("ParseSettings(%q, %v): %v", conf, v, err)
	}
	return s
}

func TestParseSettings(t *testing.T) {
	divisions := func(at map[int]int64) (d [16]int64) {
		for i, n := range at {
			d[i] = n
		}
		return d
	}
	for _, tc := range []struct {
		name    string
		version Version
		conf    string
		change  func(*Settings)
	}{
		{"empty", Version{2, 11}, "", func(*Settings) {}},
		{"split", Version{2, 11}, "max_split_size_mb:128", func(s *Settings) { s.MaxSplitBytes = 128 << 20 }},
		{"split 20 from 2.9 on", Version{2, 9}, "max_split_size_mb:20", func(s *Settings) { s.MaxSplitBytes = 20 << 20 }},
		{"split below zero wraps to no limit", Version{2, 4}, "max_split_size_mb:-1", func(*Settings) {}},
		{"digits then letters", Version{2, 4}, "max_split_size_mb:64MB", func(s *Settings) { s.MaxSplitBytes = 64 << 20 }},
		{"two with spaces", Version{2, 2}, " garbage_collection_threshold : 0.6 , max_split_size_mb : 64 ", func(s *Settings) {
			s.GCThreshold, s.MaxSplitBytes = 0.6, 64<<20
		}},
		{"trailing comma", Version{2, 11}, "expandable_segments:True,", func(s *Settings) { s.ExpandableSegments = true }},
		{"1.13 ignores a key without value", Version{1, 13}, "max_split_size_mb, backend:native", func(*Settings) {}},
		{"async", Version{2, 0}, "backend:cudaMallocAsync", func(s *Settings) { s.Backend = CUDAMallocAsync }},
		{"large segments", Version{2, 11}, "large_segment_size_mb:64,max_split_size_mb:64", func(s *Settings) {
			s.LargeSegmentBytes, s.MaxSplitBytes = 64<<20, 64<<20
		}},
		{"roundup one value", Version{2, 11}, "roundup_power2_divisions:4", func(s *Settings) {
			for i := range s.RoundupDivisions {
				s.RoundupDivisions[i] = 4
			}
		}},
		{"roundup list before 2.9", Version{2, 8}, "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", func(s *Settings) {
			s.RoundupDivisions = divisions(map[int]int64{0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1, 8: 1, 9: 2, 10: 8, 11: 8, 12: 8, 13: 8, 14: 8, 15: 8})
		}},
		{"roundup list since 2.9", Version{2, 9}, "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", func(s *Settings) {
			s.RoundupDivisions = divisions(map[int]int64{0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1, 8: 1, 9: 2, 10: 4, 11: 8, 12: 8, 13: 8, 14: 8, 15: 8})
		}},
		{"roundup list with a gap", Version{2, 4}, "roundup_power2_divisions:[64:8,256:4]", func(s *Settings) {
			s.RoundupDivisions = divisions(map[int]int64{0: 8, 1: 8, 2: 8, 3: 8, 4: 8, 5: 8, 6: 8, 8: 4})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := DefaultSettings()
			want.Conf = tc.conf
			tc.change(&want)
			if got := mustParse(t, tc.conf, tc.version); got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestParseSettingsRefuses(t *testing.T) {
	for _, tc := range []struct {
		name    string
		version Version
		conf    string
		want    string
	}{
		{"misspelt", Version{2, 4}, "max_split_size:128", "Unrecognized CachingAllocator option: max_split_size (did you mean max_split_size_mb?)"},
		{"misspelt, new parser", Version{2, 11}, "expandable_segment:True", "Unrecognized key 'expandable_segment' in CUDA allocator config. (did you mean expandable_segments?)"},
		{"too new", Version{2, 0}, "expandable_segments:True", "Unrecognized CachingAllocator option: expandable_segments (it exists from PyTorch 2.1 on)"},
		{"split too small", Version{2, 4}, "max_split_size_mb:20", "max_split_size_mb too small, must be > 20"},
		{"split too small in 1.10", Version{1, 10}, "max_split_size_mb:2", "must be >= 20"},
		{"split below the large segment", Version{2, 11}, "max_split_size_mb:32,large_segment_size_mb:64", "must be >= 64"},
		{"split without a number", Version{2, 4}, "max_split_size_mb:lots", "stoi"},
		{"split without a value", Version{2, 4}, "max_split_size_mb:", "Error, expecting max_split_size_mb value"},
		{"equals sign", Version{2, 4}, "max_split_size_mb=128", "Unrecognized CachingAllocator option: max_split_size_mb=128 (did you mean max_split_size_mb?)"},
		{"no comma", Version{2, 4}, "max_split_size_mb:128:expandable_segments:True", "expected ,"},
		{"lower case true", Version{2, 4}, "expandable_segments:true", "Expected a single True/False argument for expandable_segments"},
		{"lower case true, new parser", Version{2, 11}, "expandable_segments:true", "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'"},
		{"gc 1", Version{2, 4}, "garbage_collection_threshold:1.0", "garbage_collect_threshold too big, set it 0.0~1.0"},
		{"gc 0", Version{2, 11}, "garbage_collection_threshold:0", "garbage_collect_threshold is invalid, set it in (0.0, 1.0)"},
		{"gc NaN", Version{2, 4}, "garbage_collection_threshold:nan", "garbage_collect_threshold too big"},
		{"divisions not a power of two", Version{2, 4}, "roundup_power2_divisions:3", "For roundups, the divisons has to be power of 2 "},
		{"interval not a power of two", Version{2, 4}, "roundup_power2_divisions:[100:2]", "For roundups, the intervals have to be power of 2 "},
		{"list without end", Version{2, 4}, "roundup_power2_divisions:[256:1", "expected ]"},
		{"backend", Version{2, 4}, "backend:jemalloc", "Unknown allocator backend, options are native and cudaMallocAsync"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParseSettings(tc.conf, tc.version)
			var se *SettingsError
			if !errors.As(err, &se) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v; want a SettingsError with %q", err, tc.want)
			}
		})
	}
}

func FuzzParseSettings(f *testing.F) {
	for _, s := range []string{"", "max_split_size_mb:128", "roundup_power2_divisions:[256:1,>:8]", "a:b,[:]", "backend:native,", "expandable_segments_reserve_by_class:[x:1"} {
		f.Add(s, 11)
	}
	f.Fuzz(func(t *testing.T, conf string, minor int) {
		for _, v := range []Version{{1, 10}, {1, 13}, {2, 4}, {2, max(0, minor%20)}} {
			s, err := ParseSettings(conf, v)
			if err != nil {
				continue
			}
			// What it accepts, the allocator can work with.
			a := New(Config{Version: v, Settings: &s, Limit: 1 << 40})
			for _, n := range []int64{1, 513, 1 << 20, 5 << 20, 50 << 20} {
				if b, err := a.Malloc(n, 0); err == nil {
					a.Free(b)
				}
			}
		}
	})
}

func TestRoundSize(t *testing.T) {
	d := func(n int64) *Settings {
		s := DefaultSettings()
		for i := range s.RoundupDivisions {
			s.RoundupDivisions[i] = n
		}
		return &s
	}
	bypass := d(4)
	bypass.RoundupBypassBytes = 1 << 20
	for _, tc := range []struct {
		name    string
		s       *Settings
		n, want int64
	}{
		{"small", d(0), 1, 512}, {"exact", d(0), 512, 512}, {"next", d(0), 513, 1024},
		{"off", d(1), 88080385, 88080896},
		{"below 512 per division", d(4), 1200, 1536},
		{"quarters", d(4), 88080384, 100663296}, {"eighths", d(8), 88080384, 92274688},
		{"halves", d(2), 419430400, 536870912}, {"2100", d(4), 2100, 2560},
		{"power of two", d(4), 1 << 30, 1 << 30}, {"to the next power", d(4), 1<<30 - 1, 1 << 30},
		{"bypassed", bypass, 88080384, 88080384}, {"not bypassed", bypass, 600000, 655360},
	} {
		if got := tc.s.RoundSize(tc.n); got != tc.want {
			t.Errorf("%s: RoundSize(%d) = %d; want %d", tc.name, tc.n, got, tc.want)
		}
	}
}
