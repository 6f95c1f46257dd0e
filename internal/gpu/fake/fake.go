// Package fake is a driver that plays a scenario from a JSON file: values that
// move, faults at given times, and the /proc of the machine it pretends to be.
// It serves tests and --demo; docs/gpu.md describes the file.
package fake

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"vramscope/internal/gpu"
)

//go:embed scenarios/*.json
var scenarios embed.FS

// Scenario is what a file says.
type Scenario struct {
	Description string     `json:"description"`
	System      gpu.System `json:"system"`
	Cards       []Card     `json:"cards"`
	Events      []Event    `json:"events"`
	// Proc is the machine's /proc: files by path, and symbolic links, whose
	// text starts with "-> ".
	Proc map[string]string `json:"proc"`
	// Error makes Devices fail, as a driver does that cannot start.
	Error *gpu.Missing `json:"error"`
}

// Card is a card with what happens to it.
type Card struct {
	gpu.Card
	// Growth and Wave are added to the process of the same PID and to the
	// card: bytes a second, and the height of a wave of a period in seconds.
	Growth []Growth `json:"growth"`
	// BusyWave moves the utilisation up and down by so many percent.
	BusyWave int     `json:"busy_wave"`
	Faults   []Fault `json:"faults"`
}

// Growth is how the memory of a process moves.
type Growth struct {
	PID       int     `json:"pid"`
	PerSecond int64   `json:"bytes_per_second"`
	Wave      int64   `json:"wave_bytes"`
	Period    float64 `json:"period_seconds"`
}

// Fault is what goes wrong, from At until Until (0: for good) in seconds.
type Fault struct {
	At    float64 `json:"at"`
	Until float64 `json:"until"`
	Kind  string  `json:"kind"`  // lost, refused, unlisted, slow
	Delay float64 `json:"delay"` // slow: seconds that an answer takes
	Text  string  `json:"detail"`
}

// Event is an event of the driver.
type Event struct {
	At   float64 `json:"at"`
	Card int     `json:"card"`
	Kind string  `json:"kind"`
	Xid  uint64  `json:"xid"`
}

// Names lists the embedded scenarios.
func Names() []string {
	entries, _ := fs.ReadDir(scenarios, "scenarios")
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".json"))
	}
	return names
}

// Load reads an embedded scenario.
func Load(name string) (*Scenario, error) {
	data, err := scenarios.ReadFile("scenarios/" + name + ".json")
	if err != nil {
		return nil, fmt.Errorf("no scenario %q: there are %s, or name a file", name, strings.Join(Names(), ", "))
	}
	return Parse(data)
}

// Parse reads a scenario.
func Parse(data []byte) (*Scenario, error) {
	s := new(Scenario)
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(s); err != nil {
		return nil, fmt.Errorf("byte %d: %w", dec.InputOffset(), err)
	}
	return s, nil
}

// Driver plays a scenario. It implements gpu.Driver.
type Driver struct {
	s     *Scenario
	start time.Time

	mu     sync.Mutex
	played int
	Reads  int // how often a card was asked, for tests
}

var _ gpu.Driver = (*Driver)(nil)

// New starts to play now.
func New(s *Scenario) *Driver { return &Driver{s: s, start: time.Now()} }

func (d *Driver) now() float64 { return time.Since(d.start).Seconds() }

// System implements gpu.Driver.
func (d *Driver) System() gpu.System { return d.s.System }

// Close implements gpu.Driver.
func (d *Driver) Close() error { return nil }

// Files is the machine's /proc.
func (d *Driver) Files() Files { return d.s.Proc }

func (c *Card) fault(now float64, kind string) *Fault {
	for i := range c.Faults {
		if f := &c.Faults[i]; f.Kind == kind && now >= f.At && (f.Until == 0 || now < f.Until) {
			return f
		}
	}
	return nil
}

// Devices implements gpu.Driver.
func (d *Driver) Devices() ([]gpu.Identity, error) {
	if d.s.Error != nil {
		return nil, d.s.Error
	}
	ids := []gpu.Identity{}
	for i := range d.s.Cards {
		c := &d.s.Cards[i]
		if c.fault(d.now(), "unlisted") == nil {
			ids = append(ids, c.Identity)
		}
	}
	return ids, nil
}

// Read implements gpu.Driver.
func (d *Driver) Read(id gpu.Identity) gpu.Card {
	d.mu.Lock()
	d.Reads++
	d.mu.Unlock()
	i := slices.IndexFunc(d.s.Cards, func(c Card) bool { return c.Identity.Key() == id.Key() })
	if i < 0 {
		return gpu.Card{Identity: id, State: gpu.Refused, Detail: "no such card"}
	}
	now := d.now()
	from := &d.s.Cards[i]
	if f := from.fault(now, "slow"); f != nil {
		time.Sleep(time.Duration(f.Delay * float64(time.Second)))
		now = d.now()
	}
	for kind, state := range map[string]gpu.State{"lost": gpu.Gone, "refused": gpu.Refused} {
		if f := from.fault(now, kind); f != nil {
			return gpu.Card{Identity: id, State: state, Detail: f.Text}
		}
	}
	c := from.Card
	c.Processes = slices.Clone(c.Processes)
	c.Instances = slices.Clone(c.Instances)
	if c.State == "" {
		c.State = gpu.OK
	}
	if c.ProcessErr.Why() != nil && c.ProcessErr.Why().Reason == gpu.NotAsked {
		c.ProcessErr = gpu.Known(struct{}{})
	}
	var added int64
	for _, g := range from.Growth {
		more := int64(float64(g.PerSecond) * now)
		if g.Period > 0 {
			more += int64(float64(g.Wave) * (1 - math.Cos(2*math.Pi*now/g.Period)) / 2)
		}
		more = more >> 21 << 21 // the driver gives out memory in 2 MiB
		if free, ok := c.Memory.Free.Get(); ok {
			more = min(more, int64(free)-added)
		}
		for j := range c.Processes {
			if p := &c.Processes[j]; p.PID == g.PID {
				p.Used = plus(p.Used, more)
			}
		}
		added += more
	}
	c.Memory.Used, c.Memory.Free = plus(c.Memory.Used, added), plus(c.Memory.Free, -added)
	if v, ok := c.Busy.Get(); ok && from.BusyWave > 0 {
		v += int(float64(from.BusyWave) * math.Sin(now*0.7+float64(i)))
		c.Busy = gpu.Known(max(0, min(100, v)))
	}
	return c
}

func plus(r gpu.Reading[uint64], more int64) gpu.Reading[uint64] {
	if v, ok := r.Get(); ok {
		return gpu.Known(uint64(int64(v) + more))
	}
	return r
}

// Wait implements gpu.Driver.
func (d *Driver) Wait(timeout time.Duration) ([]gpu.Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	end := time.Now().Add(timeout)
	for {
		var out []gpu.Event
		for d.played < len(d.s.Events) && d.s.Events[d.played].At <= d.now() {
			e := d.s.Events[d.played]
			out = append(out, gpu.Event{Card: d.s.Cards[e.Card].Key(), Kind: e.Kind, Xid: e.Xid, GPUID: gpu.NoInstance})
			d.played++
		}
		if len(out) > 0 || !time.Now().Before(end) {
			return out, nil
		}
		d.mu.Unlock()
		time.Sleep(min(50*time.Millisecond, time.Until(end)))
		d.mu.Lock()
	}
}

// Files is a /proc in memory.
type Files map[string]string

// ReadFile returns a file's bytes.
func (f Files) ReadFile(name string) ([]byte, error) {
	text, ok := f[name]
	switch {
	case !ok:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case text == "!":
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return []byte(text), nil
}

// ReadLink returns what a link points to.
func (f Files) ReadLink(name string) (string, error) {
	if to, ok := strings.CutPrefix(f[name], "-> "); ok {
		return to, nil
	}
	return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrNotExist}
}

// List returns the names in a folder, sorted. A folder whose own text is "!"
// may not be read.
func (f Files) List(dir string) ([]string, error) {
	if f[dir] == "!" {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: fs.ErrPermission}
	}
	seen := map[string]bool{}
	var names []string
	for name := range f {
		rest := name
		if dir != "." {
			var ok bool
			if rest, ok = strings.CutPrefix(name, dir+"/"); !ok {
				continue
			}
		}
		rest, _, _ = strings.Cut(rest, "/")
		if rest != "" && !seen[rest] {
			seen[rest] = true
			names = append(names, path.Base(rest))
		}
	}
	if len(names) == 0 {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: fs.ErrNotExist}
	}
	slices.Sort(names)
	return names, nil
}
