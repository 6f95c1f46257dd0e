package monitor

import (
	"slices"
	"time"
)

// Trend is how the used memory of a card moves.
type Trend struct {
	// PerSecond is the growth in bytes a second, 0 where it is not clear.
	PerSecond float64
	// Full is the time until the card is full at that rate; 0 is never.
	Full time.Duration
	Over time.Duration // what the estimate rests on
}

// The window of a trend, and the least of it that gives one.
const (
	trendWindow = 2 * time.Minute
	trendLeast  = 10 * time.Second
	trendPoints = 60
)

type point struct {
	at   time.Time
	used uint64
}

type series struct{ points []point }

func (s *series) add(at time.Time, used uint64) {
	s.points = append(s.points, point{at, used})
	for len(s.points) > 0 && at.Sub(s.points[0].at) > trendWindow {
		s.points = s.points[1:]
	}
}

// trend is the Theil–Sen slope (the median of the slopes between all pairs) of
// at most 60 bins' minima: one spike or a saw-tooth of caches does not move
// it. A slope counts as growth where the later of two bins holds more in four
// of five pairs; warm-up also looks so, which is why top calls the time to
// full an estimate, and alerts are not made of it.
func (s *series) trend(free uint64) Trend {
	n := len(s.points)
	if n < 5 || s.points[n-1].at.Sub(s.points[0].at) < trendLeast {
		return Trend{}
	}
	over := s.points[n-1].at.Sub(s.points[0].at)
	bins := s.points
	if size := (n + trendPoints - 1) / trendPoints; size > 1 {
		bins = nil
		for chunk := range slices.Chunk(s.points, size) {
			bins = append(bins, slices.MinFunc(chunk, func(a, b point) int {
				switch {
				case a.used < b.used:
					return -1
				case a.used > b.used:
					return 1
				}
				return 0
			}))
		}
	}
	var slopes []float64
	up := 0
	for i := range bins {
		for j := range i {
			rise := float64(bins[i].used) - float64(bins[j].used)
			if rise > 0 {
				up++
			}
			if dt := bins[i].at.Sub(bins[j].at).Seconds(); dt > 0 {
				slopes = append(slopes, rise/dt)
			}
		}
	}
	if len(slopes) == 0 || up*5 < len(slopes)*4 {
		return Trend{Over: over}
	}
	slices.Sort(slopes)
	t := Trend{PerSecond: slopes[len(slopes)/2], Over: over}
	if t.PerSecond > 0 {
		t.Full = time.Duration(min(float64(free)/t.PerSecond, 1e6) * float64(time.Second))
	}
	return t
}
