package gpu

import (
	"fmt"
	"math"
)

// slack is by how much total may differ from the sum of its parts: each of the
// four may be rounded to a MiB on its own (monitoring note, case 2).
const slack = 4 << 20

// maxPID is the largest that Linux gives out (PID_MAX_LIMIT, 2²²); a larger
// one is a row read with the wrong layout (case 4). Windows' are below too.
const maxPID = 1 << 22

// Check decides which of a driver's raw answers are believed, for all drivers
// alike. What is not becomes missing with its reason; nothing is clamped,
// scaled to fit or derived from other values.
func Check(c *Card) {
	if n, known := c.Memory.Total.Get(); c.Memory.Total.Why().is(Unsupported) || known && n == 0 {
		// GB10, Jetson: NOT_SUPPORTED or success with a total of 0 (case 14).
		c.Unified = true
		why := &Missing{Unsupported, "the card has no memory of its own: it shares the host's"}
		absent := Absent[uint64](why)
		c.Memory = Memory{Total: absent, Reserved: absent, Used: absent, Free: absent, API: c.Memory.API}
	}
	checkMemory(&c.Memory)
	for i := range c.Instances {
		checkMemory(&c.Instances[i].Memory)
	}
	c.Busy = percent(c.Busy)
	c.MemoryBusy = percent(c.MemoryBusy)
	if mig, _ := c.MIG.Get(); mig {
		c.Busy = None[int](Unsupported, "in MIG mode the card as a whole has no utilisation") // case 17
		c.MemoryBusy = c.Busy
	}
	c.checkProcesses()
	if node, ok := c.NUMA.Get(); ok {
		c.Notes = append(c.Notes, fmt.Sprintf("the card's memory is NUMA node %d: the system may hold pages in it, and used may stay high after a process exits", node)) // case 16
	}
}

func (m *Missing) is(r Reason) bool { return m != nil && m.Reason == r }

func checkMemory(m *Memory) {
	for _, r := range []*Reading[uint64]{&m.Total, &m.Reserved, &m.Used, &m.Free} {
		if v, ok := r.Get(); ok && v >= 1<<62 { // NVML_VALUE_NOT_AVAILABLE and underflows (cases 12, 45)
			*r = None[uint64](Unsupported, "the driver gives no number here")
		}
	}
	total, ok1 := m.Total.Get()
	used, ok2 := m.Used.Get()
	free, ok3 := m.Free.Get()
	if !ok1 || !ok2 || !ok3 {
		return
	}
	reserved, known := m.Reserved.Get()
	near := func(sum uint64) bool { return sum <= total+slack && total <= sum+slack }
	switch {
	case known && near(reserved+used+free):
		m.Accounting = UsedExcludesReserved
	case near(used + free):
		m.Accounting = UsedIncludesReserved
	default:
		m.Accounting = DoesNotAdd
	}
}

func percent(r Reading[int]) Reading[int] {
	if v, ok := r.Get(); ok && (v < 0 || v > 100) { // case 19
		return None[int](Invalid, fmt.Sprintf("the driver says %d %%", v))
	}
	return r
}

// checkProcesses drops rows that cannot be processes and doubts numbers that
// cannot be memory, and says so in the notes.
func (c *Card) checkProcesses() {
	total, bounded := c.Memory.Total.Get()
	mig, _ := c.MIG.Get()
	kept, bad := c.Processes[:0:0], 0
	for _, p := range c.Processes {
		if p.PID <= 0 || p.PID > maxPID {
			bad++
			continue
		}
		if v, ok := p.Used.Get(); ok {
			switch {
			case v == math.MaxUint64:
				p.Used = None[uint64](Unsupported, "the driver does not know the memory of a process here (Windows, WSL, some MIG set-ups)") // case 12
			case bounded && v > total:
				p.Used = None[uint64](Invalid, "more than the card has") // case 45
				p.Note = "the driver's number is larger than the card"
			}
		}
		p.SM = percent(p.SM)
		if !mig {
			p.GPUID, p.CompID = NoInstance, NoInstance
		}
		kept = append(kept, p)
	}
	c.Processes = kept
	if bad > 0 {
		detail := fmt.Sprintf("the driver listed %d rows that are no processes (drivers 535.43 to 535.86 are known for it)", bad)
		c.ProcessErr = None[struct{}](Invalid, detail) // case 4
		c.Notes = append(c.Notes, detail)
	}
}

// Plausible says whether a list of processes can have been read with the right
// layout: a driver tries an older one where it is not.
func Plausible(list []Process) bool {
	for _, p := range list {
		if p.PID <= 0 || p.PID > maxPID {
			return false
		}
	}
	return true
}

// SumOfProcesses adds the memory of the processes, each counted once though it
// be in several lists, and how many of them have no number.
func (c *Card) SumOfProcesses() (sum uint64, unknown int) {
	for _, p := range c.Processes {
		if v, ok := p.Used.Get(); ok {
			sum += v
		} else {
			unknown++
		}
	}
	return sum, unknown
}
