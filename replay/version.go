package replay

import (
	"strings"

	"vramscope/cachealloc"
	"vramscope/trace"
)

// features are the parts of a recording by the version that brought them,
// newest first (torch/cuda/memory.py and torch/csrc/cuda/memory_snapshot.cpp).
var features = []struct {
	since cachealloc.Version
	has   func(*trace.Trace) bool
}{
	{cachealloc.Version{Major: 2, Minor: 12}, func(t *trace.Trace) bool { return t.Features.EventPools }},
	{cachealloc.Version{Major: 2, Minor: 10}, func(t *trace.Trace) bool { return t.Settings != nil && t.Settings.HasGraphStreamReuse }},
	{cachealloc.Version{Major: 2, Minor: 9}, func(t *trace.Trace) bool { return t.Features.UserMetadata }},
	{cachealloc.Version{Major: 2, Minor: 7}, func(t *trace.Trace) bool { return t.Features.CompileContext }},
	{cachealloc.Version{Major: 2, Minor: 5}, func(t *trace.Trace) bool { return t.Features.Annotations }},
	{cachealloc.Version{Major: 2, Minor: 3}, func(t *trace.Trace) bool { return t.Features.Settings }},
	{cachealloc.Version{Major: 2, Minor: 2}, func(t *trace.Trace) bool { return t.Features.Times }},
	{cachealloc.Version{Major: 2, Minor: 1}, func(t *trace.Trace) bool { return t.Features.BlockStacks }},
}

// InferVersion returns the oldest and the newest version of PyTorch that
// writes a recording with these parts. The file itself does not say.
func InferVersion(t *trace.Trace) (from, to cachealloc.Version) {
	to = cachealloc.Newest
	for _, f := range features {
		if f.has(t) {
			return f.since, to
		}
		to = cachealloc.Version{Major: f.since.Major, Minor: f.since.Minor - 1}
	}
	return cachealloc.Version{Major: 1, Minor: 12}, to
}

// recordedSettings returns the settings in force when the recording was
// written. The recorded state wins over the recorded string: both can be
// changed at run time, and PYTORCH_ALLOC_CONF was once ignored (#183387).
func recordedSettings(t *trace.Trace, v cachealloc.Version) (cachealloc.Settings, string) {
	s := cachealloc.DefaultSettings()
	r := t.Settings
	if r == nil {
		return s, ""
	}
	if parsed, err := cachealloc.ParseSettings(r.Conf, v); err == nil {
		s = parsed
	}
	s.Conf = r.Conf
	if r.MaxSplitBytes > 0 {
		s.MaxSplitBytes = r.MaxSplitBytes
	} else {
		s.MaxSplitBytes = cachealloc.DefaultSettings().MaxSplitBytes
	}
	s.GCThreshold = r.GCThreshold
	s.ExpandableSegments = r.Expandable
	s.GraphStreamReuse = r.GraphStreamReuse
	for i := range s.RoundupDivisions {
		if d, ok := r.RoundupDivisions[int64(1)<<i]; ok {
			s.RoundupDivisions[i] = d
		}
	}
	if strings.Contains(r.Conf, string(cachealloc.CUDAMallocAsync)) {
		s.Backend = cachealloc.CUDAMallocAsync
	}
	return s, r.Conf
}
