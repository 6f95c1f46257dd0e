package nvml

import (
	"fmt"
	"strings"
	"unsafe"

	"vramscope/internal/gpu"
)

// Read implements gpu.Driver.
func (d *Driver) Read(id gpu.Identity) gpu.Card {
	c := gpu.Card{Identity: id, State: gpu.OK}
	if id.PCI != "" && d.suspended(id.PCI) {
		c.State, c.Detail = gpu.Asleep, "powered down; a question would wake it"
		return c
	}
	d.mu.Lock()
	kept := d.cards[id.Key()]
	d.mu.Unlock()
	if kept == nil {
		c.State, c.Detail = gpu.Refused, "the card was not enumerated"
		return c
	}
	h := kept.handle
	var r ret
	c.Memory, r = d.memory(h)
	switch r {
	case success, notSupported: // the latter: unified memory
	case gpuIsLost:
		c.State = gpu.Gone
	case noPermission, operatingSystem, unknown:
		c.State = gpu.Refused
		if kept.answered { // case 22
			c.Detail = "access ended while running: a container loses its cards when systemd reloads; restart the container"
		}
	default:
		d.stale(r)
		c.State = gpu.Refused
	}
	if c.State != gpu.OK {
		if c.Detail == "" {
			c.Detail = r.missing().Error()
		}
		return c
	}
	kept.answered = true

	bar := new(bar1)
	r = d.ask("nvmlDeviceGetBAR1MemoryInfo", h, uintptr(unsafe.Pointer(bar)))
	c.BAR1Used = reading(r, func() uint64 { return bar.Used })
	c.BAR1Total = reading(r, func() uint64 { return bar.Total })
	u := new(utilization)
	r = d.ask("nvmlDeviceGetUtilizationRates", h, uintptr(unsafe.Pointer(u)))
	c.Busy = reading(r, func() int { return int(u.GPU) })
	c.MemoryBusy = reading(r, func() int { return int(u.Memory) })
	c.Power = milli(d.number(h, "nvmlDeviceGetPowerUsage"))
	c.PowerLimit = milli(d.number(h, "nvmlDeviceGetEnforcedPowerLimit"))
	n := new([4]uint32)
	r = d.ask("nvmlDeviceGetTemperature", h, 0, uintptr(unsafe.Pointer(&n[0])))
	c.Temperature = reading(r, func() int { return int(n[0]) })
	r = d.ask("nvmlDeviceGetClockInfo", h, 1, uintptr(unsafe.Pointer(&n[0])))
	c.SMClock = reading(r, func() int { return int(n[0]) })
	bits := new(uint64)
	fn, _ := d.lib.find("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
	r = call(fn, h, uintptr(unsafe.Pointer(bits)))
	c.Throttle = reading(r, func() gpu.Throttle { return gpu.Throttle(*bits) })
	r = d.ask("nvmlDeviceGetEccMode", h, uintptr(unsafe.Pointer(&n[0])), uintptr(unsafe.Pointer(&n[1])))
	c.ECC = reading(r, func() bool { return n[0] == 1 })
	r = d.ask("nvmlDeviceGetTotalEccErrors", h, 0, 0, uintptr(unsafe.Pointer(bits)))
	c.Corrected = reading(r, func() uint64 { return *bits })
	r = d.ask("nvmlDeviceGetTotalEccErrors", h, 1, 0, uintptr(unsafe.Pointer(bits)))
	c.Uncorrected = reading(r, func() uint64 { return *bits })
	r = d.ask("nvmlDeviceGetRemappedRows", h, uintptr(unsafe.Pointer(&n[0])), uintptr(unsafe.Pointer(&n[1])),
		uintptr(unsafe.Pointer(&n[2])), uintptr(unsafe.Pointer(&n[3])))
	c.Rows = reading(r, func() gpu.Rows {
		return gpu.Rows{Correctable: int(n[0]), Uncorrectable: int(n[1]), Pending: n[2] != 0, Failed: n[3] != 0}
	})
	c.PCIe.Generation = d.number(h, "nvmlDeviceGetCurrPcieLinkGeneration")
	c.PCIe.Width = d.number(h, "nvmlDeviceGetCurrPcieLinkWidth")
	c.NVLinks = d.nvlinks(h)
	c.NUMA = d.number(h, "nvmlDeviceGetNumaNodeId")
	r = d.ask("nvmlDeviceGetMigMode", h, uintptr(unsafe.Pointer(&n[0])), uintptr(unsafe.Pointer(&n[1])))
	c.MIG = reading(r, func() bool { return n[0] == 1 })
	if mig, _ := c.MIG.Get(); mig {
		c.Instances = d.instances(h)
	}
	d.processes(&c, kept)
	return c
}

func (d *Driver) ask(name string, args ...uintptr) ret {
	fn, _ := d.lib.find(name)
	return call(fn, args...)
}

func (d *Driver) number(h uintptr, name string) gpu.Reading[int] {
	v := new(uint32)
	fn, _ := d.lib.find(name)
	return reading(call(fn, h, uintptr(unsafe.Pointer(v))), func() int { return int(*v) })
}

func milli(r gpu.Reading[int]) gpu.Reading[float64] {
	if v, ok := r.Get(); ok {
		return gpu.Known(float64(v) / 1000)
	}
	return gpu.Absent[float64](r.Why())
}

// memory asks by the call that tells the driver's share apart, and by the
// older one where that is not there (case 3).
func (d *Driver) memory(h uintptr) (gpu.Memory, ret) {
	if fn, name := d.lib.find("nvmlDeviceGetMemoryInfo_v2"); fn != 0 {
		m := &memoryV2{Version: memoryV2Version}
		switch r := call(fn, h, uintptr(unsafe.Pointer(m))); r {
		case success:
			return gpu.Memory{Total: gpu.Known(m.Total), Reserved: gpu.Known(m.Reserved), Used: gpu.Known(m.Used), Free: gpu.Known(m.Free), API: name}, r
		case argumentVersion, functionNotFound, invalidArgument:
		default:
			none := gpu.Absent[uint64](r.missing())
			return gpu.Memory{Total: none, Reserved: none, Used: none, Free: none, API: name}, r
		}
	}
	m := new(memoryV1)
	fn, name := d.lib.find("nvmlDeviceGetMemoryInfo")
	r := call(fn, h, uintptr(unsafe.Pointer(m)))
	get := func(v *uint64) gpu.Reading[uint64] { return reading(r, func() uint64 { return *v }) }
	return gpu.Memory{
		Total: get(&m.Total), Used: get(&m.Used), Free: get(&m.Free), API: name,
		Reserved: gpu.None[uint64](gpu.OldDriver, "drivers before R510 count their own share in used"),
	}, r
}

func (d *Driver) nvlinks(h uintptr) gpu.Reading[int] {
	fn, _ := d.lib.find("nvmlDeviceGetNvLinkState")
	active, state := 0, new(uint32)
	for link := range uintptr(18) { // NVML_NVLINK_MAX_LINKS
		switch r := call(fn, h, link, uintptr(unsafe.Pointer(state))); {
		case r == success:
			active += int(*state & 1)
		case link == 0:
			return gpu.Absent[int](r.missing())
		}
	}
	return gpu.Known(active)
}

// instances lists the MIG devices, anew each time: their handles do not
// outlive a change of the layout (case 18).
func (d *Driver) instances(h uintptr) []gpu.Instance {
	count, _ := d.number(h, "nvmlDeviceGetMaxMigDeviceCount").Get()
	fn, _ := d.lib.find("nvmlDeviceGetMigDeviceHandleByIndex")
	var list []gpu.Instance
	for i := range count {
		mh := new(uintptr)
		if call(fn, h, uintptr(i), uintptr(unsafe.Pointer(mh))) != success {
			continue // no instance in this place
		}
		inst := gpu.Instance{
			UUID: d.deviceText(*mh, "nvmlDeviceGetUUID"), Name: d.deviceText(*mh, "nvmlDeviceGetName"),
			GPUID: gpu.NoInstance, CompID: gpu.NoInstance,
		}
		if v, ok := d.number(*mh, "nvmlDeviceGetGpuInstanceId").Get(); ok {
			inst.GPUID = uint32(v)
		}
		if v, ok := d.number(*mh, "nvmlDeviceGetComputeInstanceId").Get(); ok {
			inst.CompID = uint32(v)
		}
		inst.Memory, _ = d.memory(*mh)
		list = append(list, inst)
	}
	return list
}

// lists are the three calls that together have all processes. A process is in
// the MPS list alone, or in one or both of the others.
var lists = []struct {
	kind gpu.Kind
	name string
}{
	{gpu.Compute, "nvmlDeviceGetComputeRunningProcesses"},
	{gpu.Graphics, "nvmlDeviceGetGraphicsRunningProcesses"},
	{gpu.MPS, "nvmlDeviceGetMPSComputeRunningProcesses"},
}

func (d *Driver) processes(c *gpu.Card, kept *card) {
	c.ProcessErr = gpu.Known(struct{}{})
	type key struct {
		pid, gpuID uint32
	}
	at := map[key]int{}
	for _, l := range lists {
		rows, r := d.list(kept.handle, l.name)
		if r != success {
			if l.kind == gpu.Compute {
				c.ProcessErr = gpu.Absent[struct{}](r.missing())
			}
			continue
		}
		for _, row := range rows {
			k := key{row.pid, row.gpuID}
			if i, seen := at[k]; seen {
				if c.Processes[i].Kind != l.kind {
					c.Processes[i].Kind = gpu.Both
					if l.kind == gpu.MPS {
						c.Processes[i].Kind = gpu.MPS
					}
				}
				continue
			}
			at[k] = len(c.Processes)
			c.Processes = append(c.Processes, gpu.Process{
				PID: int(row.pid), Kind: l.kind, Used: gpu.Known(row.used), GPUID: row.gpuID, CompID: row.compID,
				Name: d.processName(row.pid),
			})
		}
	}
	d.activity(c, kept)
}

// list reads one list of processes with the layout that makes sense (case 4).
func (d *Driver) list(h uintptr, name string) ([]process, ret) {
	fns := []struct {
		name string
		size int
	}{{name + "_v3", processV2}, {name + "_v2", processV2}, {name, processV1}}
	r := functionNotFound
	var rows []process
	for _, f := range fns {
		fn, _ := d.lib.find(f.name)
		if fn == 0 {
			continue
		}
		var buf []byte
		var n int
		if buf, n, r = fetch(fn, h); r != success {
			continue
		}
		sizes := []int{f.size}
		if f.size == processV2 {
			sizes = append(sizes, processWide)
		}
		for i, size := range sizes {
			got := parseProcesses(buf, n, size)
			if plausible(got) {
				return got, success
			}
			if i == 0 && rows == nil {
				rows = got
			}
		}
	}
	if rows != nil {
		return rows, success // gpu.Check says what is wrong with them
	}
	return nil, r
}

// fetch gets the rows of a list as bytes, with room for the widest layout and
// for processes that start between the two calls.
func fetch(fn, h uintptr) ([]byte, int, ret) {
	n := new(uint32)
	r := call(fn, h, uintptr(unsafe.Pointer(n)), 0)
	for range 3 {
		if r != insufficientSize || *n > 1<<20 {
			break
		}
		room := *n + 16
		buf := make([]byte, int(room)*processWide)
		*n = room
		r = call(fn, h, uintptr(unsafe.Pointer(n)), uintptr(unsafe.Pointer(&buf[0])))
		if r == success {
			return buf, int(min(*n, room)), success
		}
	}
	return nil, 0, r
}

func plausible(rows []process) bool {
	list := make([]gpu.Process, len(rows))
	for i, r := range rows {
		list[i].PID = int(r.pid)
	}
	return gpu.Plausible(list)
}

func (d *Driver) processName(pid uint32) string {
	buf := make([]byte, 256)
	if d.ask("nvmlSystemGetProcessName", uintptr(pid), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf))) != success {
		return ""
	}
	return strings.TrimSpace(cString(buf))
}

// activity fills in how busy each process kept the card since the last read.
// NOT_FOUND is the driver's way to say that none did (case 20).
func (d *Driver) activity(c *gpu.Card, kept *card) {
	fn, _ := d.lib.find("nvmlDeviceGetProcessUtilization")
	n := new(uint32)
	r := call(fn, kept.handle, 0, uintptr(unsafe.Pointer(n)), uintptr(kept.seen))
	var samples []processUtilization
	if r == insufficientSize && *n > 0 && *n < 1<<20 {
		*n += 16
		samples = make([]processUtilization, *n)
		r = call(fn, kept.handle, uintptr(unsafe.Pointer(&samples[0])), uintptr(unsafe.Pointer(n)), uintptr(kept.seen))
		samples = samples[:min(int(*n), len(samples))]
	}
	if r != success && r != notFound {
		for i := range c.Processes {
			c.Processes[i].SM = gpu.Absent[int](r.missing())
		}
		return
	}
	if r == notFound {
		samples = nil
	}
	since, newest := kept.seen, map[int]processUtilization{}
	for _, s := range samples {
		if s.Time <= since || s.Time < newest[int(s.PID)].Time {
			continue // an old sample again (case 19)
		}
		newest[int(s.PID)] = s
		kept.seen = max(kept.seen, s.Time)
	}
	for i := range c.Processes {
		c.Processes[i].SM = gpu.Known(int(newest[c.Processes[i].PID].SM))
	}
}

// String names the library in use.
func (d *Driver) String() string { return fmt.Sprintf("NVML (%s)", d.lib.path) }
