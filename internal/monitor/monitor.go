package monitor

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"vramscope/bytesize"
	"vramscope/internal/gpu"
)

// Sample is the machine at one time.
type Sample struct {
	Time    time.Time
	System  gpu.System
	Cards   []Card
	Events  []gpu.Event // since the sample before
	Notes   []string    // on the whole machine
	Host    *Host       // where a card shares the host's memory
	Problem string      // why the driver could not list the cards; "" is none
}

// Host is the host's memory, in bytes.
type Host struct {
	Total     uint64 `json:"total_bytes"`
	Available uint64 `json:"available_bytes"` // MemAvailable: with what the page cache would give back
}

// Card is a card with its users.
type Card struct {
	gpu.Card
	Processes []Process
	// Unattributed is used less the sum of the processes: what no visible
	// process holds. Missing where one of the numbers is.
	Unattributed gpu.Reading[int64]
	Hidden       []Holder // processes with the card's device open that the driver does not list
	Explain      string   // what the unattributed memory is likely to be, and what to do; "" is nothing
	Trend        Trend
}

// Process is a process on a card with its owner.
type Process struct {
	gpu.Process
	Owner
}

// Key names a process for good: PIDs are reused (case 31).
func (p *Process) Key() string { return fmt.Sprintf("%d/%d", p.PID, p.Start) }

// Monitor takes samples.
type Monitor struct {
	driver gpu.Driver
	poller *gpu.Poller
	files  Files
	trends map[string]*series

	mu     sync.Mutex
	events []gpu.Event
	system *gpu.System
}

// New makes a Monitor. It asks nothing of the driver yet.
func New(d gpu.Driver, files Files) *Monitor {
	return &Monitor{driver: d, poller: gpu.NewPoller(d, 10*time.Second), files: files, trends: map[string]*series{}}
}

// Watch collects the driver's events until stop is closed. A driver without
// events ends it at once.
func (m *Monitor) Watch(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		events, err := m.driver.Wait(time.Second)
		m.mu.Lock()
		m.events = append(m.events, events...)
		if n := len(m.events); n > 1000 {
			m.events = m.events[n-1000:]
		}
		m.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Sample waits for the cards at most patience.
func (m *Monitor) Sample(patience time.Duration) *Sample {
	cards, err := m.poller.Poll(patience)
	s := &Sample{Time: time.Now()}
	if err != nil {
		s.Problem = err.Error()
	}
	m.mu.Lock()
	if m.system == nil && err == nil {
		system := m.driver.System()
		m.system = &system
	}
	if m.system != nil {
		s.System = *m.system
	}
	s.Events, m.events = m.events, nil
	m.mu.Unlock()
	if name := hook(m.files); name != "" {
		s.Notes = append(s.Notes, name+" is loaded into this process: the values below are a quota's, not the card's")
	}
	users := readUsers(m.files)
	listed := map[int]bool{}
	for i := range cards {
		for _, p := range cards[i].Processes {
			listed[p.PID] = true
		}
	}
	held, refused := holders(m.files, users, listed)
	unified := false
	for i := range cards {
		c := Card{Card: cards[i]}
		for _, p := range c.Card.Processes {
			c.Processes = append(c.Processes, Process{Process: p, Owner: owner(m.files, users, p.PID, p.Name)})
		}
		var hidden []Holder
		if minor, ok := c.Minor.Get(); ok {
			hidden = held[strconv.Itoa(minor)]
		}
		c.attribute(hidden, refused)
		if used, ok := c.Memory.Used.Get(); ok && c.State == gpu.OK {
			t := m.trends[c.Key()]
			if t == nil {
				t = new(series)
				m.trends[c.Key()] = t
			}
			free, _ := c.Memory.Free.Get()
			t.add(s.Time, used)
			c.Trend = t.trend(free)
		}
		unified = unified || c.Unified
		s.Cards = append(s.Cards, c)
	}
	if unified {
		if total, available, ok := hostMemory(m.files); ok {
			s.Host = &Host{total, available}
		}
	}
	return s
}

// quiet is memory without a process that needs no explanation: the driver
// keeps some for itself and the contexts' bookkeeping (measured on an H200:
// 9 MB beside a process of 3.6 GB).
const quiet = 256 << 20

// attribute finds what no visible process holds, and says what it may be.
// Nothing is scaled to make the sums fit (case 7).
func (c *Card) attribute(hidden []Holder, refused int) {
	c.Hidden = hidden
	used, ok := c.Memory.Used.Get()
	if !ok {
		c.Unattributed = gpu.Absent[int64](c.Memory.Used.Why())
		return
	}
	sum, unknown := c.SumOfProcesses()
	if why := c.ProcessErr.Why(); why != nil {
		c.Unattributed = gpu.Absent[int64](why)
		return
	}
	if unknown > 0 {
		c.Unattributed = gpu.None[int64](gpu.Unsupported, fmt.Sprintf("the driver tells no memory of %d processes", unknown))
		return
	}
	rest := int64(min(used, math.MaxInt64)) - int64(min(sum, math.MaxInt64))
	c.Unattributed = gpu.Known(rest)
	size := bytesize.Size(rest)
	switch {
	case rest < -quiet:
		c.Explain = fmt.Sprintf("the processes claim %s more than the card has in use: shared or managed memory is counted in each", -size)
	case rest < quiet:
	case len(hidden) > 0:
		c.Explain = fmt.Sprintf("%s without a listed process: PID %s the card open; end what is stuck there (a parent first), never the driver", size, pids(hidden))
	case slices.ContainsFunc(c.Processes, func(p Process) bool { return p.Kind == gpu.MPS || p.Name == "nvidia-cuda-mps-server" }):
		c.Explain = fmt.Sprintf("%s without a listed process: the MPS server's shared context is part of it", size)
	case refused > 0:
		c.Explain = fmt.Sprintf("%s without a visible process; %d processes of others could not be looked at: run as root to see them", size, refused)
	case len(c.Processes) > 0:
		c.Explain = fmt.Sprintf("%s beyond the listed processes: managed memory is counted for the card alone, or a process of another namespace", size)
	default:
		c.Explain = fmt.Sprintf("%s and no process: of another container, a guest, or left by one that died; look with fuser -v /dev/nvidia* on the host, reset the card as the last step", size)
	}
}

func pids(hidden []Holder) string {
	text := ""
	for i, h := range hidden {
		if i == 3 {
			return fmt.Sprintf("%s and %d more have", text, len(hidden)-i)
		}
		if i > 0 {
			text += ", "
		}
		text += strconv.Itoa(h.PID)
		if h.State == "D" || h.State == "Z" {
			text += " (" + h.State + ")"
		}
	}
	if len(hidden) == 1 {
		return text + " has"
	}
	return text + " have"
}
