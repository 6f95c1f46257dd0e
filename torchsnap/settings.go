package torchsnap

import (
	"strconv"

	"vramscope/torchsnap/internal/pickle"
	"vramscope/trace"
)

// The keys of allocator_settings. roundup_power2_divisions has the start of
// each interval in MiB as a string.
const (
	keyConf             = "PYTORCH_CUDA_ALLOC_CONF"
	keyMaxSplit         = "max_split_size"
	keyGCThreshold      = "garbage_collection_threshold"
	keyExpandable       = "expandable_segments"
	keyPinnedThreads    = "pinned_num_register_threads"
	keyReleaseLock      = "release_lock_on_cudamalloc"
	keyPinnedRegister   = "pinned_use_cuda_host_register"
	keyRoundup          = "roundup_power2_divisions"
	keyGraphStreamReuse = "graph_capture_record_stream_reuse"
	keyRingSize         = "trace_alloc_max_entries"
	keyOverflowed       = "trace_alloc_overflowed"
)

func (b *builder) settings(v pickle.Value) error {
	if v.Kind() != pickle.Dict {
		return b.wrong("allocator_settings", v, "a dict")
	}
	s := &trace.RecordedSettings{}
	b.trace.Settings = s
	pairs := b.d.Items(v)
	for i := 0; i+1 < len(pairs); i += 2 {
		v := pairs[i+1]
		var err error
		switch key := b.text(pairs[i]); key {
		case keyConf:
			s.Conf = b.text(v)
		case keyMaxSplit:
			s.MaxSplitBytes, err = b.integer(key, v)
		case keyGCThreshold:
			var ok bool
			if s.GCThreshold, ok = b.d.Float(v); !ok {
				err = b.wrong(key, v, "a number")
			}
		case keyExpandable:
			s.Expandable = isTrue(v)
		case keyPinnedThreads:
			s.PinnedThreads, err = b.integer(key, v)
		case keyReleaseLock:
			s.ReleaseLockOnMalloc = isTrue(v)
		case keyPinnedRegister:
			s.PinnedHostRegister = isTrue(v)
		case keyGraphStreamReuse:
			s.HasGraphStreamReuse, s.GraphStreamReuse = true, isTrue(v)
		case keyRoundup:
			s.RoundupDivisions, err = b.roundup(v)
		case keyRingSize:
			b.eachDevice(v, func(r *ring, v pickle.Value) {
				r.size, _ = b.d.Int(v)
				r.size = max(r.size, 0)
			})
		case keyOverflowed:
			b.eachDevice(v, func(r *ring, v pickle.Value) { r.overflowed = isTrue(v) })
		default:
			s.UnknownKeys = append(s.UnknownKeys, key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) roundup(v pickle.Value) (map[int64]int64, error) {
	if v.Kind() != pickle.Dict {
		return nil, b.wrong(keyRoundup, v, "a dict")
	}
	out := map[int64]int64{}
	pairs := b.d.Items(v)
	for i := 0; i+1 < len(pairs); i += 2 {
		start, err := strconv.ParseInt(b.text(pairs[i]), 10, 64)
		if err != nil {
			return nil, b.d.Errorf("%s has the key %.20q, want a number of MiB", keyRoundup, b.text(pairs[i]))
		}
		if out[start], err = b.integer(keyRoundup, pairs[i+1]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ring is what the recorder says of itself, from PyTorch 2.12 on
// (pytorch#179276).
type ring struct {
	size       int64
	overflowed bool
}

const allDevices = -1

// eachDevice reads a setting that is one value for all devices, a list by
// ordinal, or a dict: the viewer reads the first, the pull request says "per
// device", and no released file was at hand.
func (b *builder) eachDevice(v pickle.Value, set func(*ring, pickle.Value)) {
	one := func(ordinal int, v pickle.Value) {
		r := b.rings[ordinal]
		set(&r, v)
		b.rings[ordinal] = r
	}
	items := b.d.Items(v)
	switch v.Kind() {
	case pickle.List:
		for i, v := range items[:min(len(items), maxDevices)] {
			one(i, v)
		}
	case pickle.Dict:
		for i := 0; i+1 < len(items) && i < 2*maxDevices; i += 2 {
			n, ok := b.d.Int(items[i])
			if !ok {
				var err error
				if n, err = strconv.ParseInt(b.text(items[i]), 10, 32); err != nil {
					continue
				}
			}
			one(int(n), items[i+1])
		}
	default:
		one(allDevices, v)
	}
}

func isTrue(v pickle.Value) bool {
	return v == pickle.Make(pickle.Bool, 1) || v == pickle.Make(pickle.Int, 1)
}
