package holders

import "vramscope/replay"

// Scales tells for each request whether its size grows with the batch: what
// forward and backward make, but not what they make of parameters alone.
// It is an estimate, from one recording: a size that as few requests of a
// pass have as there are parameters of it (or of twice it: the copies that
// autocast makes) belongs to the parameters.
func (a *Analysis) Scales() []bool {
	req := a.Program.Requests
	parameters := map[int64]int{} // by size
	for i := range req {
		if c := a.Category(i); c == Parameter {
			parameters[req[i].Size]++
		}
	}
	// Requests of such sizes, by phase.
	type key struct {
		phase int32
		size  int64
	}
	counts := map[key]int{}
	own := func(size int64) int { return parameters[size] + parameters[2*size] }
	for i := range req {
		if a.phase[i] >= 0 && own(req[i].Size) > 0 {
			counts[key{a.phase[i], req[i].Size}]++
		}
	}
	out := make([]bool, len(req))
	for i := range req {
		if a.phase[i] < 0 {
			continue
		}
		switch k := a.Phases[a.phase[i]].Kind; k {
		case Forward, Backward, Evaluation, Generation, Attempt:
			switch a.Category(i) {
			case Parameter, Gradient, OptimizerState:
				continue
			case Workspace:
				if a.Rules[i] != ruleForwardScratch {
					continue
				}
			}
			// Backward makes a weight's gradient once more where it
			// reduces, casts or adds it.
			most := own(req[i].Size)
			if k == Backward {
				most *= 3
			}
			out[i] = most == 0 || counts[key{a.phase[i], req[i].Size}] > most
		}
	}
	return out
}

// ScaleBatch returns the program as it would be with batches of to instead of
// from samples: the requests that Scales names grow in proportion. Replays of
// it are estimates; Fit does better with a second recording.
func (a *Analysis) ScaleBatch(from, to int) *replay.Program {
	scales := a.Scales()
	req := a.Program.Requests
	return a.Program.Resize(func(i int) int64 {
		if !scales[i] {
			return req[i].Size
		}
		return max(scaled(req[i].Size, int64(to), int64(from)), 1)
	})
}

// scaled returns size·to/from, without overflow and rounded up.
func scaled(size, to, from int64) int64 {
	q, r := size/from, size%from
	return q*to + (r*to+from-1)/from
}
