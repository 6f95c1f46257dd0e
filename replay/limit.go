package replay

import "vramscope/trace"

// Bound is what a recording tells about the memory that its process could
// have had.
type Bound struct {
	// The process could reserve at least Low bytes, for it did, and fewer
	// than High, for that was refused; High is 0 if nothing was refused.
	Low, High int64
	// ByDriver says that the driver had no more to give at the last refusal,
	// rather than a limit that somebody set.
	ByDriver bool
	// DriverFree is what the driver had free then, in bytes; -1 if nothing
	// was refused.
	DriverFree int64
}

// Refused reports whether the recording holds a refusal.
func (b *Bound) Refused() bool { return b.High > 0 }

// InferBound finds the bound from a replay under the recorded settings.
func (p *Program) InferBound(o *Outcome) Bound {
	b := Bound{Low: o.PeakReserved, DriverFree: -1}
	for _, x := range o.Refusals {
		if p.Device.Events.Action[x.Event] != trace.OOM {
			continue // the recording shows it granted
		}
		// An oom event holds the driver's free bytes as its address.
		free := int64(p.Device.Events.Addr[x.Event])
		b.DriverFree = free
		b.ByDriver = free < x.SegmentBytes
		if high := x.Reserved + x.SegmentBytes; b.High == 0 || high < b.High {
			b.High = high
		}
		if b.ByDriver {
			// What others left changes with time: only the last counts.
			b.Low, b.High = max(x.Reserved, 0)+free, x.Reserved+x.SegmentBytes
		}
	}
	if b.High > 0 && b.Low >= b.High {
		b.Low = b.High - 1
	}
	return b
}
