package holders

import "sort"

// forwardStart finds where in run i the forward pass of the backward that
// follows begins; what comes before is evaluation or setup. It is the first
// request that backward finds alive and that is freed before the next
// backward, with the requests of the user's own lines right before it.
func (a *Analysis) forwardStart(r run, runs []run, i int) int32 {
	req := a.Program.Requests
	next := int32(a.Program.Device.Events.Len()) // the next backward, or the end of the steps
	for j := i + 2; j < len(runs); j++ {
		if runs[j].class == backwardRun {
			next = runs[j].first
			break
		}
		if j == len(runs)-1 {
			next = runs[j].first + 1
		}
	}
	start := int32(-1)
	module := a.firstModule(r)
	open := i+2 == len(runs) // the recording ends in this backward
	for q := r.from; q < r.to; q++ {
		free := req[q].Free
		if a.sites[a.stacks[q]].role != roleLoad && free >= r.end && free < next || open && free < 0 && q >= module {
			start = q
			break
		}
	}
	if start < 0 {
		start = module
	}
	return req[a.backUp(r, start, r.end)].Event
}

// openForwardStart is forwardStart for a run in which the recording ends, -1 if
// that is no training: where steps are known, the model was entered on a way
// that no forward pass of theirs took.
func (a *Analysis) openForwardStart(r run) int32 {
	req := a.Program.Requests
	known := a.trainingEntries()
	from := r.to // what is entered as in training
	for q := r.to - 1; q >= r.from; q-- {
		e := a.sites[a.stacks[q]].entry
		if e >= 0 && known != nil && !known[e] {
			break
		}
		// An earlier attempt ends with a refusal that the program survived,
		// and the next begins outside of the model.
		if q < a.dying && a.refused(int(q)) && a.sites[a.stacks[q+1]].role == roleUser {
			break
		}
		if e >= 0 {
			from = q
		}
	}
	if from == r.to && known != nil {
		return -1
	}
	if from < r.to {
		return req[a.backUp(r, from, int32(a.Program.Device.Events.Len()))].Event
	}
	return req[a.firstModule(r)].Event
}

// trainingEntries are the ways into the model of complete forward passes, nil
// where there is none.
func (a *Analysis) trainingEntries() map[int32]bool {
	var known map[int32]bool
	req := a.Program.Requests
	for i := range a.Steps {
		if !a.Steps[i].Complete {
			continue
		}
		for _, p := range a.Steps[i].Passes {
			first := sort.Search(len(req), func(i int) bool { return int(req[i].Event) >= p.Forward.First })
			for q := first; q < len(req) && int(req[q].Event) < p.Forward.End; q++ {
				if e := a.sites[a.stacks[q]].entry; e >= 0 {
					if known == nil {
						known = map[int32]bool{}
					}
					known[e] = true
				}
			}
		}
	}
	return known
}

// firstModule returns the first request of a run inside a module, or the
// first that is no part of building the model, or the first.
func (a *Analysis) firstModule(r run) int32 {
	first := int32(-1)
	for q := r.from; q < r.to; q++ {
		switch a.sites[a.stacks[q]].role {
		case roleForward:
			return q
		case roleLoad:
			first = -1
		default:
			if first < 0 {
				first = q
			}
		}
	}
	if first < 0 {
		first = r.from
	}
	return first
}

// entersModule reports whether some request of a run is made in a module.
func (a *Analysis) entersModule(r run) bool {
	for q := r.from; q < r.to; q++ {
		if a.sites[a.stacks[q]].role == roleForward {
			return true
		}
	}
	return false
}

// backUp moves a start back over requests of the user's own lines that are
// alive at event: the inputs.
func (a *Analysis) backUp(r run, start, event int32) int32 {
	req := a.Program.Requests
	for start > r.from {
		q := start - 1
		if a.sites[a.stacks[q]].role != roleUser || req[q].Free >= 0 && req[q].Free < event {
			break
		}
		start = q
	}
	return start
}
