package gpu

import (
	"fmt"
	"sort"
	"sync"
	"time"
)

// Poller reads all cards side by side. A call into a driver cannot be ended
// from outside, so a card that does not answer has one call in flight and no
// second; its last values are served with their age.
type Poller struct {
	driver   Driver
	deadline time.Duration
	refresh  time.Duration // between enumerations

	mu         sync.Mutex
	slots      map[string]*slot
	listed     time.Time
	listing    bool
	listErr    error
	everListed bool
	wake       chan struct{} // closed and renewed when an answer comes
}

type slot struct {
	id      Identity
	last    Card
	got     time.Time // of last's values; zero: never
	asked   time.Time // of the call in flight; zero: none
	present bool
	fresh   bool // answered since the poll began
}

// NewPoller makes a Poller that calls a card hung after the deadline; hosts
// under load and idle cards without persistence need seconds, so 10 s is usual
// (case 24). It touches no card.
func NewPoller(d Driver, deadline time.Duration) *Poller {
	return &Poller{driver: d, deadline: deadline, refresh: 30 * time.Second, slots: map[string]*slot{}, wake: make(chan struct{})}
}

// Poll asks every card and waits for the answers at most patience. Cards are
// in the driver's order. The error is that of the last enumeration; cards seen
// before are there also then.
func (p *Poller) Poll(patience time.Duration) ([]Card, error) {
	end := time.Now().Add(patience)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.listing && (time.Since(p.listed) >= p.refresh || p.listErr != nil) {
		p.listing = true
		go p.list()
	}
	p.waitUntil(end, func() bool { return !p.listing || p.everListed })
	for _, s := range p.slots {
		s.fresh = false
		if s.present && s.asked.IsZero() {
			s.asked = time.Now()
			go p.read(s, s.id)
		}
	}
	p.waitUntil(end, func() bool {
		for _, s := range p.slots {
			// A card that is late already is not waited for again.
			if !s.asked.IsZero() && time.Since(s.asked) < patience {
				return false
			}
		}
		return true
	})
	cards := make([]Card, 0, len(p.slots))
	for _, s := range p.slots {
		cards = append(cards, p.present(s))
	}
	sort.Slice(cards, func(i, j int) bool {
		a, b := cards[i].Identity, cards[j].Identity
		if a.Index != b.Index {
			return a.Index < b.Index
		}
		return a.Key() < b.Key()
	})
	err := p.listErr
	if !p.everListed && err == nil {
		err = &Missing{Timeout, "the driver has not yet listed its cards"}
	}
	return cards, err
}

// waitUntil returns when done says so or the time is over. p.mu is held before
// and after, and given up between.
func (p *Poller) waitUntil(end time.Time, done func() bool) {
	for !done() {
		left := time.Until(end)
		if left <= 0 {
			return
		}
		wake := p.wake
		timer := time.NewTimer(left)
		p.mu.Unlock()
		select {
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
		p.mu.Lock()
	}
}

func (p *Poller) signal() {
	close(p.wake)
	p.wake = make(chan struct{})
}

func (p *Poller) list() {
	ids, err := p.driver.Devices()
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.signal()
	p.listing, p.listErr, p.listed = false, err, time.Now()
	if err != nil {
		return
	}
	p.everListed = true
	for _, s := range p.slots {
		s.present = false
	}
	for _, id := range ids {
		key := p.keyOf(id)
		s := p.slots[key]
		if s == nil {
			s = &slot{last: Card{Identity: id}}
			p.slots[key] = s
		}
		if id.UUID == "" { // what was known of it before it went
			id.UUID, id.Name, id.PCI = s.last.UUID, s.last.Name, s.last.PCI
		}
		s.id, s.present = id, true
	}
}

// keyOf finds the slot of a card that no longer tells its UUID by its index:
// the row of a lost card stays that card's.
func (p *Poller) keyOf(id Identity) string {
	if id.UUID == "" {
		for key, s := range p.slots {
			if s.id.Index == id.Index {
				return key
			}
		}
	}
	return id.Key()
}

func (p *Poller) read(s *slot, id Identity) {
	start := time.Now()
	var c Card
	if id.Err != nil {
		c = Card{Identity: id, State: Refused, Detail: id.Err.Error()}
		if id.Err.Reason == Lost {
			c.State = Gone
		}
	} else {
		c = p.driver.Read(id)
		Check(&c)
	}
	c.Took = time.Since(start)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.signal()
	s.asked = time.Time{}
	if c.State == OK || c.State == Asleep || s.got.IsZero() {
		s.last, s.fresh = c, true
		if c.State == OK {
			s.got = time.Now()
		}
		return
	}
	s.last.State, s.last.Detail, s.fresh = c.State, c.Detail, true
	p.listed = time.Time{} // handles may be stale: enumerate again (cases 18, 41)
}

// present makes the card that Poll returns of a slot.
func (p *Poller) present(s *slot) Card {
	c := s.last
	if !s.got.IsZero() && !(s.fresh && c.State == OK) {
		c.Age = time.Since(s.got).Seconds()
	}
	switch late := time.Since(s.asked); {
	case !s.present:
		c.State, c.Detail = Gone, "the driver no longer lists this card"
	case !s.asked.IsZero() && late >= p.deadline:
		c.State, c.Detail = Hung, fmt.Sprintf("no answer for %.0f s: the driver call hangs (often a card in trouble; see the kernel log)", late.Seconds())
	case !s.asked.IsZero():
		c.State, c.Detail = Waiting, fmt.Sprintf("no answer for %.1f s", late.Seconds())
	}
	return c
}
