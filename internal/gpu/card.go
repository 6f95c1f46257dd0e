package gpu

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
)

// System is what the driver says of itself.
type System struct {
	Driver   Reading[string] `json:"driver_version"`
	Library  Reading[string] `json:"library_version"`
	CUDA     Reading[int]    `json:"cuda_version"` // 13000 is 13.0
	Warnings []string        `json:"warnings,omitempty"`
}

// Identity is how a card is found again. UUID is the key: indices, names and
// handles are reused.
type Identity struct {
	Index int          `json:"index"`
	UUID  string       `json:"uuid"`
	Name  string       `json:"name"`
	PCI   string       `json:"pci_bus_id"`
	Minor Reading[int] `json:"minor_number"` // N of /dev/nvidiaN
	// Err is set where the driver counts the card but gives no access to it.
	Err *Missing `json:"-"`
}

// Key is what identifies the card between samples.
func (id Identity) Key() string {
	if id.UUID != "" {
		return id.UUID
	}
	if id.PCI != "" {
		return id.PCI
	}
	return fmt.Sprintf("index %d", id.Index)
}

// State is how the card answers.
type State string

// The states of a card.
const (
	OK      State = "ok"
	Waiting State = "waiting" // an answer is late; what is shown is old
	Hung    State = "hung"    // no answer within the deadline
	Gone    State = "lost"    // fallen off the bus, or no longer listed
	Refused State = "refused" // access ended: permission, container, reset
	Asleep  State = "asleep"  // powered down, and left so
)

// NoInstance is the GPU or compute instance of what is not in MIG mode.
const NoInstance = math.MaxUint32

// Memory is the memory of a card or MIG instance in bytes, as the driver has
// it: total = reserved + used + free, but for rounding. Reserved is the
// driver's own share; drivers before R510 count it in used and do not tell.
type Memory struct {
	Total    Reading[uint64] `json:"total_bytes"`
	Reserved Reading[uint64] `json:"reserved_bytes"`
	Used     Reading[uint64] `json:"used_bytes"`
	Free     Reading[uint64] `json:"free_bytes"`
	// API names the call behind the numbers.
	API string `json:"api,omitempty"`
	// Accounting is what the addition of the numbers gave (see Check).
	Accounting Accounting `json:"accounting,omitempty"`
}

// Accounting is what used means on this driver, found by addition.
type Accounting string

// The ways to count, see notes on nvmlDeviceGetMemoryInfo_v2 in docs/gpu.md.
const (
	UsedExcludesReserved Accounting = "used excludes reserved"
	UsedIncludesReserved Accounting = "used includes reserved"
	DoesNotAdd           Accounting = "numbers do not add up"
)

// Kind is the list in which the driver has a process.
type Kind string

// The kinds of process.
const (
	Compute  Kind = "compute"
	Graphics Kind = "graphics"
	Both     Kind = "compute+graphics"
	MPS      Kind = "mps"
)

// Process is one process on a card. PID is that of the host.
type Process struct {
	PID    int             `json:"pid"`
	Kind   Kind            `json:"kind"`
	Used   Reading[uint64] `json:"used_bytes"`
	SM     Reading[int]    `json:"sm_percent"`            // of time with a kernel running
	Name   string          `json:"driver_name,omitempty"` // as the driver has it
	GPUID  uint32          `json:"gpu_instance_id"`       // NoInstance outside MIG
	CompID uint32          `json:"compute_instance_id"`   // NoInstance outside MIG
	Note   string          `json:"note,omitempty"`        // what is odd about this row
}

// Instance is a MIG instance. Its memory is that of the GPU instance, which
// compute instances share: it is never added per compute instance.
type Instance struct {
	UUID   string `json:"uuid"`
	Name   string `json:"name"`
	GPUID  uint32 `json:"gpu_instance_id"`
	CompID uint32 `json:"compute_instance_id"`
	Memory Memory `json:"memory"`
}

// Rows is the state of row remapping (Ampere and newer).
type Rows struct {
	Correctable   int  `json:"correctable"`
	Uncorrectable int  `json:"uncorrectable"`
	Pending       bool `json:"pending"` // a reset applies it
	Failed        bool `json:"failed"`  // the card is to be replaced
}

// Throttle is why clocks are held down: bits as in nvml.h.
type Throttle uint64

var throttleNames = []string{ // by bit; nvmlClocksEventReason… of nvml.h
	"idle", "application clocks", "power cap", "hardware slowdown", "sync boost",
	"thermal (software)", "thermal (hardware)", "power brake", "display clocks",
}

// Names lists the reasons.
func (t Throttle) Names() []string {
	names := []string{}
	for i, n := range throttleNames {
		if t&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	if rest := t >> len(throttleNames); rest != 0 {
		names = append(names, fmt.Sprintf("unknown (%#x)", uint64(rest)<<len(throttleNames)))
	}
	return names
}

// Slowing says whether a reason costs speed: idle and set clocks do not count.
func (t Throttle) Slowing() bool { return t&^0b100010011 != 0 }

// MarshalJSON writes the names.
func (t Throttle) MarshalJSON() ([]byte, error) { return json.Marshal(t.Names()) }

// UnmarshalJSON reads the bits.
func (t *Throttle) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, (*uint64)(t)) }

// PCIe is the link now in use, and throughput where it was asked for.
type PCIe struct {
	Generation Reading[int] `json:"generation"`
	Width      Reading[int] `json:"width"`
}

// Card is all that a driver says of a card at one time.
type Card struct {
	Identity
	State  State   `json:"state"`
	Detail string  `json:"state_detail,omitempty"`
	Age    float64 `json:"age_seconds"` // of the values; 0 is just read

	Memory      Memory            `json:"memory"`
	BAR1Used    Reading[uint64]   `json:"bar1_used_bytes"`
	BAR1Total   Reading[uint64]   `json:"bar1_total_bytes"`
	Busy        Reading[int]      `json:"gpu_busy_percent"`          // of time with a kernel running
	MemoryBusy  Reading[int]      `json:"memory_controller_percent"` // of time in use: no occupancy
	Power       Reading[float64]  `json:"power_watts"`
	PowerLimit  Reading[float64]  `json:"power_limit_watts"`
	Temperature Reading[int]      `json:"temperature_celsius"`
	SMClock     Reading[int]      `json:"sm_clock_mhz"`
	Throttle    Reading[Throttle] `json:"throttle"`
	ECC         Reading[bool]     `json:"ecc_enabled"`
	Corrected   Reading[uint64]   `json:"ecc_corrected_since_boot"`
	Uncorrected Reading[uint64]   `json:"ecc_uncorrected_since_boot"`
	Rows        Reading[Rows]     `json:"row_remap"`
	PCIe        PCIe              `json:"pcie"`
	NVLinks     Reading[int]      `json:"nvlinks_active"`
	MIG         Reading[bool]     `json:"mig_enabled"`
	Unified     bool              `json:"unified_memory"` // the host's memory is the card's
	NUMA        Reading[int]      `json:"numa_node"`      // where the card's memory is one
	Instances   []Instance        `json:"instances"`
	Processes   []Process         `json:"processes"`
	ProcessErr  Reading[struct{}] `json:"-"` // why Processes may be incomplete
	Notes       []string          `json:"notes"`
	Took        time.Duration     `json:"-"` // what the sample cost
}

// Missing maps the name of each value that could not be had to the reason.
func (c *Card) Missing() map[string]string {
	m := map[string]string{}
	add := func(name string, why *Missing) {
		if why != nil {
			m[name] = why.Error()
		}
	}
	c.Memory.missing("memory.", add)
	add("bar1_used_bytes", c.BAR1Used.Why())
	add("bar1_total_bytes", c.BAR1Total.Why())
	add("gpu_busy_percent", c.Busy.Why())
	add("memory_controller_percent", c.MemoryBusy.Why())
	add("power_watts", c.Power.Why())
	add("power_limit_watts", c.PowerLimit.Why())
	add("temperature_celsius", c.Temperature.Why())
	add("sm_clock_mhz", c.SMClock.Why())
	add("throttle", c.Throttle.Why())
	add("ecc_enabled", c.ECC.Why())
	add("ecc_corrected_since_boot", c.Corrected.Why())
	add("ecc_uncorrected_since_boot", c.Uncorrected.Why())
	add("row_remap", c.Rows.Why())
	add("pcie.generation", c.PCIe.Generation.Why())
	add("pcie.width", c.PCIe.Width.Why())
	add("nvlinks_active", c.NVLinks.Why())
	add("mig_enabled", c.MIG.Why())
	add("numa_node", c.NUMA.Why())
	add("processes", c.ProcessErr.Why())
	for i := range c.Instances {
		c.Instances[i].Memory.missing(fmt.Sprintf("instances[%d].memory.", i), add)
	}
	return m
}

func (m *Memory) missing(prefix string, add func(string, *Missing)) {
	add(prefix+"total_bytes", m.Total.Why())
	add(prefix+"reserved_bytes", m.Reserved.Why())
	add(prefix+"used_bytes", m.Used.Why())
	add(prefix+"free_bytes", m.Free.Why())
}

// ShortName is the name without the vendor, for narrow columns.
func (id Identity) ShortName() string {
	name := strings.TrimPrefix(id.Name, "NVIDIA ")
	return strings.TrimPrefix(name, "GeForce ")
}
