package plan

import (
	"errors"

	"vramscope/internal/estimate"
	"vramscope/internal/gpu/cards"
	"vramscope/internal/modelgraph"
)

// CardFit says whether a job fits on one card of the data base.
type CardFit struct {
	GPU          string `json:"gpu"`
	Memory       int64  `json:"memory_bytes"`
	PeakReserved int64  `json:"peak_reserved_bytes"`
	Fits         bool   `json:"fits"`
}

// AllCards tries a job on every NVIDIA card of the data base whose memory is
// known. Cards of one compute capability share an estimate.
func AllCards(path string, s Setup) ([]CardFit, error) {
	g, err := Open(path, &s)
	if err != nil {
		return nil, err
	}
	r, err := s.request(g)
	if err != nil {
		return nil, err
	}
	peaks := map[string]int64{}
	fits := []CardFit{}
	for _, c := range cards.All() {
		room, ok := c.Usable()
		if c.Vendor != "NVIDIA" || !ok {
			continue
		}
		peak, ok := peaks[c.Compute]
		if !ok {
			r.Compute = c.Compute
			res, err := estimate.Run(g, r)
			if err != nil {
				return nil, err
			}
			peak = res.PeakReserved
			peaks[c.Compute] = peak
		}
		off := margin
		if c.Compute != estimate.Measured {
			off += 0.02
		}
		budget := Room{Memory: room.Bytes}.budget(g)
		fits = append(fits, CardFit{c.Name, int64(room.Bytes), peak, scale(peak, 1+off) <= budget})
	}
	return fits, nil
}

// LargestBatch solves for the largest micro-batch that fits, 0 where not even
// one sample does: memory is nearly a straight line in the batch, so each guess
// is where the line through the last two reaches the budget.
func LargestBatch(path string, g *modelgraph.Graph, s Setup, room Room) (int64, error) {
	budget := room.budget(g)
	if budget < 0 {
		return 0, nil
	}
	spent := 0
	need := func(b int64) (float64, error) {
		t := s
		t.Batch = b
		res, err := evaluate(path, t, room, &spent)
		if err != nil {
			return 0, err
		}
		return float64(scale(res.PeakReserved, 1+margin)), nil
	}
	lo, hi := int64(0), int64(1)<<30 // lo fits, hi does not
	b0, b1 := int64(1), max(s.Batch, 2)
	n0, err := need(b0)
	if ue := (*unusableError)(nil); errors.As(err, &ue) { // exported for more than one
		b0, b1 = s.Batch, s.Batch+1
		n0, err = need(b0)
	}
	if err != nil {
		return 0, err
	}
	if n0 > float64(budget) {
		return 0, nil
	}
	lo = b0
	for range 12 {
		n1, err := need(b1)
		if ue := (*unusableError)(nil); errors.As(err, &ue) {
			return lo, nil
		}
		if err != nil {
			return 0, err
		}
		if n1 <= float64(budget) {
			lo = max(lo, b1)
		} else {
			hi = min(hi, b1)
		}
		if hi-lo <= 1 || spent > maxRequests {
			break
		}
		next := (lo + hi) / 2
		if slope := (n1 - n0) / float64(b1-b0); b1 != b0 && slope > 0 {
			next = b1 + int64((float64(budget)-n1)/slope)
		}
		b0, n0 = b1, n1
		b1 = min(max(next, lo+1), hi-1, 1<<20)
		if b1 <= lo {
			break
		}
	}
	return lo, nil
}
