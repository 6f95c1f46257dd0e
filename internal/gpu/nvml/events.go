package nvml

import (
	"time"
	"unsafe"

	"vramscope/internal/gpu"
)

// eventKinds are the events that we ask for, by nvmlEventType of nvml.h.
var eventKinds = map[uint64]string{
	0x1: "ecc_single_bit", 0x2: "ecc_double_bit", 0x8: "xid", 0x200: "ecc_storm", 0x400: "retirement",
	0x800: "retirement_failure", 0x1000: "poison", 0x2000: "poison_fatal", 0x4000: "unavailable", 0x8000: "recovery_action",
}

// Wait implements gpu.Driver. Only what happens after a card's registration,
// in the first Wait after it was enumerated, is seen.
func (d *Driver) Wait(timeout time.Duration) ([]gpu.Event, error) {
	set, keys, why := d.register()
	if why != nil {
		return nil, why
	}
	fn, _ := d.lib.find("nvmlEventSetWait_v2", "nvmlEventSetWait")
	ms := timeout.Milliseconds()
	var events []gpu.Event
	for {
		data := &eventData{GPUID: gpu.NoInstance, CompID: gpu.NoInstance}
		switch r := call(fn, set, uintptr(unsafe.Pointer(data)), uintptr(uint32(ms))); r {
		case success:
			e := gpu.Event{Card: keys[data.Device], Kind: eventKinds[data.Type], GPUID: data.GPUID}
			if e.Kind == "xid" {
				e.Xid = data.Data
			}
			events = append(events, e)
			ms = 0 // what else is there
			if len(events) >= 1000 {
				return events, nil
			}
		case timedOut:
			return events, nil
		default:
			return events, r.missing()
		}
	}
}

// register watches the cards that are not watched yet.
func (d *Driver) register() (set uintptr, keys map[uintptr]string, why *gpu.Missing) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.events == 0 {
		s := new(uintptr)
		if r := d.ask("nvmlEventSetCreate", uintptr(unsafe.Pointer(s))); r != success {
			return 0, nil, r.missing()
		}
		d.events = *s
	}
	keys = map[uintptr]string{}
	watching := false
	for key, c := range d.cards {
		keys[c.handle] = key
		if d.watched[c.handle] {
			watching = true
			continue
		}
		supported := new(uint64)
		if d.ask("nvmlDeviceGetSupportedEventTypes", c.handle, uintptr(unsafe.Pointer(supported))) != success {
			continue
		}
		var want uint64
		for bit := range eventKinds {
			want |= bit & *supported
		}
		if d.ask("nvmlDeviceRegisterEvents", c.handle, uintptr(want), d.events) == success {
			d.watched[c.handle] = true
			watching = true
		}
	}
	if !watching {
		return 0, nil, &gpu.Missing{Reason: gpu.Unsupported, Detail: "no card here reports events"}
	}
	return d.events, keys, nil
}
