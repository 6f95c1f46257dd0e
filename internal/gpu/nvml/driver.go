package nvml

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unsafe"

	"vramscope/internal/gpu"
)

// Options of Open; the zero value is right for a machine.
type Options struct {
	Library string        // path of the library; "" looks in the usual places
	Sys     string        // "" is /sys
	Proc    string        // "" is /proc
	Wake    bool          // ask cards that sleep, which wakes them
	Probe   time.Duration // how long one card may take when it is enumerated; 0 is 5 s
}

// Driver implements gpu.Driver.
type Driver struct {
	o   Options
	lib *library

	mu      sync.Mutex
	ready   bool
	cards   map[string]*card // by key
	probes  map[int]*probe   // by index, while in flight
	events  uintptr          // event set
	watched map[uintptr]bool // handles registered with it
}

// card is what is kept between reads. One read at a time uses it.
type card struct {
	handle   uintptr
	seen     uint64 // time stamp of the newest process utilisation, µs
	answered bool   // once
}

type probe struct {
	done   chan struct{}
	id     gpu.Identity
	handle uintptr
}

var _ gpu.Driver = (*Driver)(nil)

// Open opens the library and the driver. It touches no card, and where all
// cards sleep not even the driver, which would wake them.
func Open(o Options) (*Driver, error) {
	if o.Sys == "" {
		o.Sys = "/sys"
	}
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	if o.Probe == 0 {
		o.Probe = 5 * time.Second
	}
	paths := libraryPaths
	if o.Library != "" {
		paths = []string{o.Library}
	}
	lib, err := open(paths)
	if err != nil {
		return nil, err
	}
	d := &Driver{o: o, lib: lib, cards: map[string]*card{}, probes: map[int]*probe{}, watched: map[uintptr]bool{}}
	if awake, asleep := d.sysCards(); len(asleep) > 0 && len(awake) == 0 {
		return d, nil
	}
	if err := d.start(); err != nil {
		return nil, err
	}
	return d, nil
}

// start initialises the library if it is not. d.mu is not held.
func (d *Driver) start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ready {
		return nil
	}
	fn, _ := d.lib.find("nvmlInit_v2", "nvmlInit")
	if r := call(fn); r != success {
		why := r.missing()
		if r == versionMismatch {
			why.Detail = fmt.Sprintf("the driver's library is %s and its kernel module %s: reload the module or reboot",
				d.libraryVersion(), d.moduleVersion())
		}
		return why
	}
	d.ready = true
	return nil
}

// Close implements gpu.Driver. Calls in flight keep the library open.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.events != 0 {
		fn, _ := d.lib.find("nvmlEventSetFree")
		call(fn, d.events)
		d.events = 0
	}
	if d.ready {
		fn, _ := d.lib.find("nvmlShutdown")
		call(fn)
		d.ready = false
	}
	return nil
}

// System implements gpu.Driver.
func (d *Driver) System() gpu.System {
	s := gpu.System{
		Driver:  d.text("nvmlSystemGetDriverVersion"),
		Library: d.text("nvmlSystemGetNVMLVersion"),
	}
	var v int32
	fn, _ := d.lib.find("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion")
	s.CUDA = reading(call(fn, uintptr(unsafe.Pointer(&v))), func() int { return int(v) })
	return s
}

func (d *Driver) text(name string) gpu.Reading[string] {
	buf := make([]byte, 96)
	fn, _ := d.lib.find(name)
	return reading(call(fn, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf))), func() string { return cString(buf) })
}

// libraryVersion is the version in the name of the library's file.
func (d *Driver) libraryVersion() string {
	maps, _ := os.ReadFile(filepath.Join(d.o.Proc, "self/maps"))
	for line := range strings.Lines(string(maps)) {
		if _, version, ok := strings.Cut(strings.TrimSpace(line), "libnvidia-ml.so."); ok {
			return version
		}
	}
	return "of an unknown version"
}

// moduleVersion is that of the kernel module that is loaded now.
func (d *Driver) moduleVersion() string {
	text, err := os.ReadFile(filepath.Join(d.o.Proc, "driver/nvidia/version"))
	if err != nil {
		return "of an unknown version"
	}
	for _, word := range strings.Fields(string(text)) {
		if strings.Count(word, ".") >= 1 && strings.Trim(word, "0123456789.") == "" {
			return word
		}
	}
	return "of an unknown version"
}

// sysCards lists the PCI addresses of NVIDIA's display controllers by whether
// they are powered.
func (d *Driver) sysCards() (awake, asleep []string) {
	if d.o.Wake {
		return nil, nil
	}
	dir := filepath.Join(d.o.Sys, "bus/pci/devices")
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		attribute := func(name string) string {
			text, _ := os.ReadFile(filepath.Join(dir, e.Name(), name))
			return strings.TrimSpace(string(text))
		}
		if attribute("vendor") != "0x10de" || !strings.HasPrefix(attribute("class"), "0x03") {
			continue
		}
		if d.suspended(e.Name()) {
			asleep = append(asleep, e.Name())
		} else {
			awake = append(awake, e.Name())
		}
	}
	return awake, asleep
}

// suspended says whether a card is powered down. NVML's bus ids have eight
// digits of domain, sysfs' four, and small letters.
func (d *Driver) suspended(pci string) bool {
	if d.o.Wake {
		return false
	}
	pci = strings.ToLower(pci)
	if len(pci) > 12 {
		pci = pci[len(pci)-12:]
	}
	text, err := os.ReadFile(filepath.Join(d.o.Sys, "bus/pci/devices", pci, "power/runtime_status"))
	return err == nil && strings.TrimSpace(string(text)) == "suspended"
}

// Devices implements gpu.Driver. Each card is asked on its own, so that one
// which hangs leaves the others.
func (d *Driver) Devices() ([]gpu.Identity, error) {
	awake, asleep := d.sysCards()
	var ids []gpu.Identity
	for _, pci := range asleep {
		ids = append(ids, gpu.Identity{PCI: "0000" + strings.ToUpper(pci), Name: "NVIDIA card, asleep"})
	}
	if len(asleep) > 0 && len(awake) == 0 {
		return ids, nil
	}
	if err := d.start(); err != nil {
		return nil, err
	}
	if len(asleep) == 0 {
		var n uint32
		fn, _ := d.lib.find("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")
		if r := call(fn, uintptr(unsafe.Pointer(&n))); r != success {
			d.stale(r)
			return nil, r.missing()
		}
		awake = make([]string, n) // by index
	}
	timeout := time.After(d.o.Probe)
	probes := make([]*probe, len(awake))
	for i, pci := range awake {
		probes[i] = d.probe(i, pci)
	}
	for i, p := range probes {
		select {
		case <-p.done:
			d.mu.Lock()
			delete(d.probes, i)
			if p.id.Err == nil {
				if c := d.cards[p.id.Key()]; c == nil || c.handle != p.handle {
					d.cards[p.id.Key()] = &card{handle: p.handle}
				}
			}
			d.mu.Unlock()
			ids = append(ids, p.id)
		case <-timeout:
			ids = append(ids, gpu.Identity{Index: i, Err: &gpu.Missing{Reason: gpu.Timeout, Detail: "the driver does not answer for this card"}})
			timeout = time.After(0) // the others have had their time too
		}
	}
	return ids, nil
}

// stale notes that the library must be initialised again.
func (d *Driver) stale(r ret) {
	if r == uninitialized || r == driverNotLoaded {
		d.mu.Lock()
		d.ready = false
		d.mu.Unlock()
	}
}

// probe starts to ask for the card of an index, or by its bus id, unless that
// question is still open.
func (d *Driver) probe(index int, pci string) *probe {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.probes[index]; p != nil {
		return p
	}
	p := &probe{done: make(chan struct{})}
	d.probes[index] = p
	go func() {
		defer close(p.done)
		p.id.Index = index
		handle := new(uintptr)
		var r ret
		if pci == "" {
			fn, _ := d.lib.find("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")
			r = call(fn, uintptr(uint32(index)), uintptr(unsafe.Pointer(handle)))
		} else {
			name := append([]byte(pci), 0)
			fn, _ := d.lib.find("nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByPciBusId")
			r = call(fn, uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(handle)))
		}
		if r != success {
			d.stale(r)
			p.id.Err, p.id.PCI = r.missing(), pci
			return
		}
		p.handle = *handle
		p.id.UUID, p.id.Name, p.id.PCI = d.identify(*handle)
		p.id.Minor = d.number(*handle, "nvmlDeviceGetMinorNumber")
		var n uint32
		fn, _ := d.lib.find("nvmlDeviceGetIndex")
		if call(fn, *handle, uintptr(unsafe.Pointer(&n))) == success {
			p.id.Index = int(n)
		}
	}()
	return p
}

func (d *Driver) identify(h uintptr) (uuid, name, pci string) {
	uuid, name = d.deviceText(h, "nvmlDeviceGetUUID"), d.deviceText(h, "nvmlDeviceGetName")
	info := new(pciInfo)
	fn, found := d.lib.find("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo")
	if call(fn, h, uintptr(unsafe.Pointer(info))) == success {
		pci = cString(info.Legacy[:])
		if found == "nvmlDeviceGetPciInfo_v3" {
			pci = cString(info.BusID[:])
		}
	}
	return uuid, name, pci
}

func (d *Driver) deviceText(h uintptr, name string) string {
	buf := make([]byte, 96)
	fn, _ := d.lib.find(name)
	if call(fn, h, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf))) != success {
		return ""
	}
	return cString(buf)
}

func cString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return strings.ToValidUTF8(string(b), "?")
}

// reading makes a Reading of a call's result.
func reading[T any](r ret, value func() T) gpu.Reading[T] {
	if r != success {
		return gpu.Absent[T](r.missing())
	}
	return gpu.Known(value())
}
