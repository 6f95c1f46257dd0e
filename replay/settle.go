package replay

import "vramscope/trace"

// settle decides by replay what the events alone leave open: whether memory
// was released by empty_cache or by the malloc that follows, and when the
// program switched expandable segments on or off.
func (p *Program) settle() {
	for i := range p.ops {
		if p.ops[i].unsure {
			p.settleEmptyCaches()
			break
		}
	}
	var plain, mapped bool
	for _, i := range p.segment {
		switch p.Device.Events.Action[i] {
		case trace.SegmentAlloc:
			plain = true
		case trace.SegmentMap:
			mapped = true
		}
	}
	if plain && mapped {
		p.settleExpandable()
	}
}

// settleEmptyCaches splits the memory that was released right before a malloc
// got more, without a stack to tell by whom. It was an empty_cache if the
// malloc would have found a cached block, or if the driver would have given
// the memory: the process had more at another time.
func (p *Program) settleEmptyCaches() {
	most, _ := p.RecordedReserved()
	r := newRunner(p, Scenario{})
	ops := make([]op, 0, len(p.ops)+16)
	for _, o := range p.ops {
		if o.unsure && o.kind == opAlloc {
			req := &p.Requests[o.request]
			s := r.a.Settings()
			needs := s.AllocationSize(s.RoundSize(req.Size))
			if r.a.ServesFromCache(req.Pool, req.Size, req.Stream) || r.a.Reserved()+needs <= most {
				split := o.from
				for split < o.to && releases(p.Device.Events.Action[p.segment[split]]) {
					split++
				}
				first := int(p.segment[o.from])
				p.EmptyCaches = append(p.EmptyCaches, first)
				clear := op{kind: opEmptyCache, request: -1, event: int32(first), from: o.from, to: split}
				ops = append(ops, clear)
				r.step(&clear)
				o.from = split
			}
		}
		ops = append(ops, o)
		r.step(&o)
	}
	p.ops = ops
}

func releases(a trace.Action) bool { return a == trace.SegmentFree || a == trace.SegmentUnmap }

// maxChanges bounds the search for changes of the settings.
const maxChanges = 16

// settleExpandable finds where the program switched expandable segments on or
// off: a replay that parts from the recording is continued with the switch
// thrown before the operation where it parts, and that is kept if the replay
// then gets further. What came before it went alike either way.
func (p *Program) settleExpandable() {
	reached := func() (opIndex int, ok bool) {
		r := newRunner(p, Scenario{})
		for i := range p.ops {
			if !r.do(i) || r.recorded.split != nil || !r.placed(&p.ops[i]) {
				return i, false
			}
		}
		return len(p.ops), true
	}
	settings := p.Recorded
	at, ok := reached()
	for range maxChanges {
		if ok {
			return
		}
		settings.ExpandableSegments = !settings.ExpandableSegments
		p.Changes = append(p.Changes, Change{Event: int(p.ops[at].event), Settings: settings, op: at})
		further, done := reached()
		if further <= at {
			p.Changes = p.Changes[:len(p.Changes)-1]
			return
		}
		at, ok = further, done
	}
}
