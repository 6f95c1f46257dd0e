package nvml

import (
	"fmt"
	"sync"

	"vramscope/internal/gpu"
)

// ret is an nvmlReturn_t.
type ret uint32

// The return codes that mean something to us, from nvml.h.
const (
	success          ret = 0
	uninitialized    ret = 1
	invalidArgument  ret = 2
	notSupported     ret = 3
	noPermission     ret = 4
	notFound         ret = 6
	insufficientSize ret = 7
	driverNotLoaded  ret = 9
	timedOut         ret = 10
	libraryNotFound  ret = 12
	functionNotFound ret = 13
	corruptedInfoROM ret = 14
	gpuIsLost        ret = 15
	resetRequired    ret = 16
	operatingSystem  ret = 17
	versionMismatch  ret = 18
	argumentVersion  ret = 25
	notReady         ret = 27
	gpuNotFound      ret = 28
	unknown          ret = 999
)

var meanings = map[ret]gpu.Missing{
	uninitialized:    {Reason: gpu.Failed, Detail: "the library is not initialised (a driver reload?)"},
	invalidArgument:  {Reason: gpu.Invalid, Detail: "the driver does not know this card or instance any more"},
	notSupported:     {Reason: gpu.Unsupported},
	noPermission:     {Reason: gpu.Permission, Detail: "the driver asks for more rights, or the container lost the device"},
	notFound:         {Reason: gpu.NotFound},
	driverNotLoaded:  {Reason: gpu.NoDriver, Detail: "the NVIDIA kernel module is not loaded"},
	timedOut:         {Reason: gpu.Timeout},
	libraryNotFound:  {Reason: gpu.NoDriver, Detail: "a library of the driver is missing (containers need the \"utility\" capability)"},
	functionNotFound: {Reason: gpu.OldDriver},
	corruptedInfoROM: {Reason: gpu.Failed, Detail: "the card's InfoROM is corrupt: a board problem"},
	gpuIsLost:        {Reason: gpu.Lost, Detail: "the card has fallen off the bus"},
	resetRequired:    {Reason: gpu.NeedsReset, Detail: "the card needs a reset before it can be used"},
	operatingSystem:  {Reason: gpu.Permission, Detail: "the system or a cgroup blocks access to the card"},
	versionMismatch:  {Reason: gpu.Mismatch, Detail: "driver library and kernel module have different versions: reload the module or reboot"},
	argumentVersion:  {Reason: gpu.OldDriver, Detail: "the driver does not know this version of the call"},
	notReady:         {Reason: gpu.Timeout, Detail: "the card is not ready"},
	gpuNotFound:      {Reason: gpu.NotFound, Detail: "the driver found no card"},
	unknown:          {Reason: gpu.Failed, Detail: "\"unknown error\": seen when a container loses its cards (systemd daemon-reload); restart it"},
}

// missing turns a return code into the reason for a missing value.
func (r ret) missing() *gpu.Missing {
	if m, ok := meanings[r]; ok {
		return &m
	}
	return &gpu.Missing{Reason: gpu.Failed, Detail: fmt.Sprintf("NVML error %d", uint32(r))}
}

// library is an opened libnvidia-ml with the functions found so far.
type library struct {
	handle uintptr
	path   string

	mu  sync.Mutex
	fns map[string]uintptr // 0: looked for and not there
}

// find returns the first of these functions that the library has.
func (l *library) find(names ...string) (fn uintptr, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range names {
		fn, seen := l.fns[n]
		if !seen {
			fn = symbol(l.handle, n)
			l.fns[n] = fn
		}
		if fn != 0 {
			return fn, n
		}
	}
	return 0, ""
}

// open opens the first library of the list that can be.
func open(paths []string) (*library, error) {
	var first error
	for _, p := range paths {
		h, err := openLibrary(p)
		if err == nil {
			return &library{handle: h, path: p, fns: map[string]uintptr{}}, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, &gpu.Missing{Reason: gpu.NoDriver, Detail: fmt.Sprintf("the NVIDIA driver's library is not on this machine (%v)", first)}
}
