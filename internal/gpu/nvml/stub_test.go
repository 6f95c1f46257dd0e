package nvml

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"vramscope/internal/gpu"
)

// stub compiles testdata/stub.c and opens it, with a /sys and /proc of its own.
func stub(t *testing.T, defines ...string) (*Driver, error) {
	t.Helper()
	cc, err := exec.LookPath("gcc")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("needs gcc on Linux")
	}
	dir := t.TempDir()
	lib := filepath.Join(dir, "libnvidia-ml.so.580.9")
	args := []string{"-shared", "-fPIC", "-o", lib, "testdata/stub.c"}
	for _, d := range defines {
		args = append(args, "-D"+d)
	}
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	proc := filepath.Join(dir, "proc")
	write(t, filepath.Join(proc, "driver/nvidia/version"), "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  Thu\n")
	write(t, filepath.Join(proc, "self/maps"), "7f00-7f01 r-xp 00000000 08:01 1 "+lib+"\n")
	return Open(Options{Library: lib, Sys: filepath.Join(dir, "sys"), Proc: proc, Probe: 300 * time.Millisecond})
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func opened(t *testing.T, defines ...string) (*Driver, []gpu.Identity) {
	t.Helper()
	d, err := stub(t, defines...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	ids, err := d.Devices()
	if err != nil {
		t.Fatal(err)
	}
	return d, ids
}

func value[T any](t *testing.T, name string, r gpu.Reading[T], want T) {
	t.Helper()
	got, ok := r.Get()
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("%s: %v (%v), want %v", name, got, r.Why(), want)
	}
}

func reason[T any](t *testing.T, name string, r gpu.Reading[T], want gpu.Reason) {
	t.Helper()
	if v, ok := r.Get(); ok || r.Why().Reason != want {
		t.Errorf("%s: %v (%v), want %s", name, v, r.Why(), want)
	}
}

func TestStub(t *testing.T) {
	d, ids := opened(t)
	want := gpu.Identity{Index: 1, UUID: "GPU-b", Name: "Stub 24GB", PCI: "00000000:01:00.0", Minor: gpu.Known(8)}
	if len(ids) != 2 || ids[1].UUID != want.UUID || ids[1].PCI != want.PCI || ids[1].Name != want.Name || ids[1].Index != 1 {
		t.Fatalf("devices %+v, want the second to be %+v", ids, want)
	}
	value(t, "minor", ids[1].Minor, 8)
	value(t, "driver", d.System().Driver, "580.1")
	reason(t, "CUDA version", d.System().CUDA, gpu.OldDriver)
	c := d.Read(ids[1])
	gpu.Check(&c)
	value(t, "total", c.Memory.Total, 24000)
	value(t, "reserved", c.Memory.Reserved, 600)
	value(t, "used", c.Memory.Used, 4400)
	value(t, "free", c.Memory.Free, 19000)
	value(t, "busy", c.Busy, 97)
	value(t, "memory busy", c.MemoryBusy, 31)
	value(t, "power", c.Power, 128.5)
	value(t, "temperature", c.Temperature, 55)
	value(t, "corrected", c.Corrected, 70)
	value(t, "uncorrected", c.Uncorrected, 3)
	value(t, "rows", c.Rows, gpu.Rows{Correctable: 1, Uncorrectable: 2, Pending: true})
	value(t, "throttle by the old name", c.Throttle, gpu.Throttle(4))
	value(t, "nvlinks", c.NVLinks, 3)
	reason(t, "ecc", c.ECC, gpu.Unsupported)
	reason(t, "mig", c.MIG, gpu.Unsupported)
	reason(t, "power limit", c.PowerLimit, gpu.OldDriver)
	if len(c.Processes) != 3 {
		t.Fatalf("%d processes, want 3: %+v", len(c.Processes), c.Processes)
	}
	p := c.Processes[0]
	value(t, "memory of 100", p.Used, 3000)
	value(t, "activity of 100: the newer sample", p.SM, 80)
	if p.Name != "python3" || p.Kind != gpu.Compute || p.GPUID != gpu.NoInstance {
		t.Errorf("process %+v", p)
	}
	reason(t, "case 12: memory of 101", c.Processes[1].Used, gpu.Unsupported)
	if c.Processes[1].Kind != gpu.Both || c.Processes[2].Kind != gpu.Graphics {
		t.Errorf("kinds %s, %s", c.Processes[1].Kind, c.Processes[2].Kind)
	}
	// The same sample again is old: no activity since (case 19).
	again := d.Read(ids[1])
	value(t, "activity at the second read", again.Processes[0].SM, 0)
	events, err := d.Wait(0)
	if diff := cmp.Diff([]gpu.Event{{Card: "GPU-b", Kind: "xid", Xid: 79, GPUID: gpu.NoInstance}}, events); err != nil || diff != "" {
		t.Errorf("events: %v %s", err, diff)
	}
}

func TestOldDriver(t *testing.T) { // case 3
	d, ids := opened(t, "OLD")
	c := d.Read(ids[0])
	gpu.Check(&c)
	value(t, "used", c.Memory.Used, 5000)
	reason(t, "reserved", c.Memory.Reserved, gpu.OldDriver)
	if c.Memory.API != "nvmlDeviceGetMemoryInfo" || c.Memory.Accounting != gpu.UsedIncludesReserved {
		t.Errorf("api %q, accounting %q", c.Memory.API, c.Memory.Accounting)
	}
	value(t, "memory of 100 by the oldest list", c.Processes[0].Used, 3000)
}

func TestWideRows(t *testing.T) { // case 4
	d, ids := opened(t, "WIDE")
	c := d.Read(ids[0])
	if len(c.Processes) < 2 || c.Processes[0].PID != 100 || c.Processes[1].PID != 101 {
		t.Errorf("processes %+v", c.Processes)
	}
}

func TestIdle(t *testing.T) { // case 20
	d, ids := opened(t, "IDLE")
	value(t, "activity", d.Read(ids[0]).Processes[0].SM, 0)
}

func TestMIG(t *testing.T) { // case 17
	d, ids := opened(t, "MIG")
	c := d.Read(ids[0])
	gpu.Check(&c)
	reason(t, "busy", c.Busy, gpu.Unsupported)
	if len(c.Instances) != 1 || c.Instances[0].UUID != "MIG-1" || c.Instances[0].GPUID != 5 || c.Instances[0].CompID != 0 {
		t.Fatalf("instances %+v", c.Instances)
	}
	value(t, "instance used", c.Instances[0].Memory.Used, 300)
}

func TestLostCard(t *testing.T) { // case 23
	_, ids := opened(t, "LOST")
	if len(ids) != 2 || ids[0].Err != nil || ids[1].Err == nil || ids[1].Err.Reason != gpu.Lost {
		t.Errorf("devices %+v", ids)
	}
}

func TestHangingCard(t *testing.T) { // case 24
	d, ids := opened(t, "HANG")
	if len(ids) != 2 || ids[0].UUID != "GPU-a" || ids[1].Err == nil || ids[1].Err.Reason != gpu.Timeout {
		t.Fatalf("devices %+v", ids)
	}
	d.mu.Lock()
	first := d.probes[1]
	d.mu.Unlock()
	if _, err := d.Devices(); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if first == nil || d.probes[1] != first {
		t.Error("a second call was started for the card that hangs")
	}
}

func TestMismatch(t *testing.T) { // case 21
	_, err := stub(t, "MISMATCH")
	if !errors.Is(err, &gpu.Missing{Reason: gpu.Mismatch}) || !strings.Contains(err.Error(), "580.9") || !strings.Contains(err.Error(), "570.86.10") {
		t.Errorf("error %v, want both versions", err)
	}
}

func TestNoLibrary(t *testing.T) {
	_, err := Open(Options{Library: filepath.Join(t.TempDir(), "libnvidia-ml.so.1")})
	if !errors.Is(err, &gpu.Missing{Reason: gpu.NoDriver}) {
		t.Errorf("error %v", err)
	}
}

func TestAsleep(t *testing.T) { // case 29
	d, ids := opened(t)
	if len(ids) != 2 {
		t.Fatal("no devices")
	}
	dev := filepath.Join(d.o.Sys, "bus/pci/devices/0000:01:00.0")
	write(t, filepath.Join(dev, "vendor"), "0x10de\n")
	write(t, filepath.Join(dev, "class"), "0x030200\n")
	write(t, filepath.Join(dev, "power/runtime_status"), "suspended\n")
	if c := d.Read(ids[0]); c.State != gpu.Asleep {
		t.Errorf("state %s", c.State)
	}
	ids, err := d.Devices()
	if err != nil || len(ids) != 1 || ids[0].PCI != "00000000:01:00.0" {
		t.Errorf("devices %+v, %v", ids, err)
	}
	if c := d.Read(ids[0]); c.State != gpu.Asleep {
		t.Errorf("state %s of a card that was never awake", c.State)
	}
}

func TestStructSizes(t *testing.T) {
	d, _ := opened(t)
	fn, _ := d.lib.find("size_of")
	for i, got := range []uintptr{
		unsafe.Sizeof(memoryV1{}), unsafe.Sizeof(memoryV2{}), unsafe.Sizeof(utilization{}), unsafe.Sizeof(pciInfo{}),
		processV1, processV2, processWide, unsafe.Sizeof(processUtilization{}), unsafe.Sizeof(eventData{}),
	} {
		if want := uintptr(call(fn, uintptr(i))); got != want {
			t.Errorf("struct %d has %d bytes, in C %d", i, got, want)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		b.Skip("needs gcc")
	}
	lib := filepath.Join(b.TempDir(), "libnvidia-ml.so.1")
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-o", lib, "testdata/stub.c").CombinedOutput(); err != nil {
		b.Fatalf("%v %s", err, out)
	}
	d, err := Open(Options{Library: lib})
	if err != nil {
		b.Fatal(err)
	}
	ids, err := d.Devices()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		d.Read(ids[0])
	}
}
