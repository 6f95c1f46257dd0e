package diagnose

import (
	"golang.org/x/sync/errgroup"

	"vramscope/cachealloc"
	"vramscope/replay"
)

// alwaysTried are the settings that every recording is replayed under, with
// the remedy that each belongs to: the ones that forums recommend.
var alwaysTried = []struct{ remedy, conf string }{
	{"expandable_segments", "expandable_segments:True"},
	{"max_split_size_mb", "max_split_size_mb:128"},
	{"max_split_size_mb", "max_split_size_mb:512"},
	{"garbage_collection_threshold", "garbage_collection_threshold:0.8"},
	{"roundup_power2_divisions", "roundup_power2_divisions:8"},
}

// trySettings replays the recording under other settings, on all CPUs. Savings
// compare runs without a limit, since a job that dies takes less; whether the
// job survives is asked under the limit.
func (s *subject) trySettings() error {
	base, err := s.unlimited(&s.p.Recorded)
	if err != nil {
		return err
	}
	s.in.Settings = append(s.in.Settings, Setting{Conf: s.p.RecordedConf, Recorded: true})
	sets := []cachealloc.Settings{s.p.Recorded}
	for _, t := range alwaysTried {
		set, err := cachealloc.ParseSettings(t.conf, s.o.Version)
		if err != nil || t.conf == s.p.RecordedConf || set.GCThreshold > 0 && s.high == 0 {
			continue // this version does not have it, or it needs a limit
		}
		s.in.Settings = append(s.in.Settings, Setting{Conf: t.conf})
		sets = append(sets, set)
	}
	var g errgroup.Group
	for i := range s.in.Settings {
		g.Go(func() error { return s.trySetting(&s.in.Settings[i], &sets[i], base) })
	}
	// The other CPU has time for the batch, see smallerBatch.
	g.Go(func() (err error) {
		s.half, err = s.a.ScaleBatch(2, 1).Run(s.ctx, replay.Scenario{Settings: &s.p.Recorded, Version: s.o.Version})
		return err
	})
	return g.Wait()
}

// unlimited replays without a limit. For a recording without refusals under
// its own settings that was done.
func (s *subject) unlimited(set *cachealloc.Settings) (*replay.Outcome, error) {
	if set == &s.p.Recorded && s.a.Outcome.OOMs == 0 && s.a.Outcome.Retries == 0 {
		return s.a.Outcome, nil
	}
	sc := replay.Scenario{Settings: set, Version: s.o.Version}
	if set.GCThreshold > 0 {
		sc.Limit = s.high // it collects nothing without a limit
	}
	return s.p.Run(s.ctx, sc)
}

func (s *subject) trySetting(x *Setting, set *cachealloc.Settings, base *replay.Outcome) error {
	x.Basis = Replayed
	free := base
	if !x.Recorded {
		var err error
		if free, err = s.unlimited(set); err != nil {
			return err
		}
		if set.GCThreshold > 0 { // under a limit: so must be what it is compared with
			if base, err = s.p.Run(s.ctx, replay.Scenario{Settings: &s.p.Recorded, Version: s.o.Version, Limit: s.high}); err != nil {
				return err
			}
		}
		if free.Fits() && base.Fits() {
			x.Saves = ptr(base.PeakReserved - free.PeakReserved)
		}
	}
	x.PeakReserved, x.Retries = free.PeakReserved, free.Retries
	switch {
	case x.Recorded && s.fatal != nil && !s.simulated: // it is what happened
		x.Survives, x.DiesAt, x.Retries = ptr(false), ptr(s.fatal.Event), s.a.Outcome.Retries
		return nil
	case s.low == 0:
		return nil
	case free.Fits() && free.PeakReserved <= s.low && set.GCThreshold == 0:
		x.Survives = ptr(true)
		return nil
	}
	ok, out, err := s.survives(s.p, set)
	if err != nil {
		return err
	}
	x.Survives, x.Retries = ok, out.Retries
	if out.FatalOOM != nil {
		x.DiesAt = ptr(out.FatalOOM.Event)
	}
	return nil
}
