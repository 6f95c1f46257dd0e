package cachealloc

import (
	"fmt"
	"strconv"
	"strings"
)

// Version is a release of PyTorch.
type Version struct{ Major, Minor int }

// Newest is the version whose rules apply where none is given.
var Newest = Version{2, 14}

// ParseVersion reads "2.11", "2.11.0" or "2.11.0+cu130".
func ParseVersion(text string) (Version, error) {
	major, rest, _ := strings.Cut(text, ".")
	minor, _, _ := strings.Cut(rest, ".")
	minor, _, _ = strings.Cut(minor, "+")
	var v Version
	var err1, err2 error
	v.Major, err1 = strconv.Atoi(major)
	v.Minor, err2 = strconv.Atoi(minor)
	if err1 != nil || err2 != nil || v.Major < 1 || v.Minor < 0 {
		return Version{}, fmt.Errorf("%q is not a version of PyTorch: write 2.11", text)
	}
	return v, nil
}

// AtLeast reports whether v is w or newer.
func (v Version) AtLeast(w Version) bool {
	return v.Major > w.Major || v.Major == w.Major && v.Minor >= w.Minor
}

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// Rules are the differences between versions that change what the allocator
// does. The zero value is PyTorch 1.9: split, best fit, and release all on a
// failed cudaMalloc.
type Rules struct {
	Version Version

	MaxSplit           bool // oversize blocks are kept whole (#44742)
	GarbageCollection  bool // (#74261)
	PerSizeRoundup     bool // roundup divisions per power of two (#87290)
	Expandable         bool // expandable segments (#96995)
	ExpandableInPools  bool // … in private pools too (#128068)
	KeepsExpandable    bool // GC and max_split release pass over them (#134338)
	NonSplitRounding   bool // max_non_split_rounding_mb (#136174)
	FullFractionNoCap  bool // a memory fraction of 1 sets no limit (#161035)
	RoundupAfterLast   bool // ">" in the roundup list starts after the last key
	LargeSegmentKey    bool // large_segment_size_mb (#172056)
	RejectsAtLimit     bool // throw_on_cudamalloc_oom (#179473)
	SharedConfigParser bool // c10/core/AllocatorConfig.cpp reads the settings
}

// changes lists what each version brought, oldest first.
var changes = []struct {
	since Version
	apply func(*Rules)
}{
	{Version{1, 10}, func(r *Rules) { r.MaxSplit = true }},
	{Version{1, 12}, func(r *Rules) { r.GarbageCollection = true }},
	{Version{2, 0}, func(r *Rules) { r.PerSizeRoundup = true }},
	{Version{2, 1}, func(r *Rules) { r.Expandable = true }},
	{Version{2, 5}, func(r *Rules) { r.ExpandableInPools, r.KeepsExpandable = true, true }},
	{Version{2, 6}, func(r *Rules) { r.NonSplitRounding = true }},
	{Version{2, 9}, func(r *Rules) { r.FullFractionNoCap, r.RoundupAfterLast, r.SharedConfigParser = true, true, true }},
	{Version{2, 11}, func(r *Rules) { r.LargeSegmentKey = true }},
	{Version{2, 12}, func(r *Rules) { r.RejectsAtLimit = true }},
}

// RulesFor returns the rules of a version; the zero Version means Newest.
func RulesFor(v Version) Rules {
	if v == (Version{}) {
		v = Newest
	}
	r := Rules{Version: v}
	for _, c := range changes {
		if v.AtLeast(c.since) {
			c.apply(&r)
		}
	}
	return r
}
