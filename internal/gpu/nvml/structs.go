package nvml

import "encoding/binary"

// The structs of nvml.h, with C's padding written out. Sizes are held by
// TestStructSizes and by a C compiler in TestStub.

type memoryV1 struct{ Total, Free, Used uint64 }

type memoryV2 struct {
	Version                     uint32
	_                           uint32
	Total, Reserved, Free, Used uint64
}

// memoryV2Version is nvmlMemory_v2: the version over the size of the struct.
const memoryV2Version = 2<<24 | 40

type bar1 struct{ Total, Free, Used uint64 }

type utilization struct{ GPU, Memory uint32 }

type pciInfo struct {
	Legacy                             [16]byte
	Domain, Bus, Device, ID, Subsystem uint32
	BusID                              [32]byte
}

type processUtilization struct {
	PID               uint32
	_                 uint32
	Time              uint64 // µs
	SM, Mem, Enc, Dec uint32
}

type eventData struct {
	Device        uintptr
	Type, Data    uint64
	GPUID, CompID uint32
}

// process is a row of a list of processes, whatever the version.
type process struct {
	pid           uint32
	used          uint64
	gpuID, compID uint32
}

// The layouts of such a row: v1 ends after used; 535.43 to 535.86 wrote the
// larger one, with protected memory, under the name of the smaller.
const (
	processV1   = 16
	processV2   = 24
	processWide = 32
)

func parseProcesses(buf []byte, n, size int) []process {
	list := make([]process, 0, n)
	for i := range n {
		row := buf[i*size:]
		p := process{
			pid: binary.NativeEndian.Uint32(row), used: binary.NativeEndian.Uint64(row[8:]),
			gpuID: ^uint32(0), compID: ^uint32(0),
		}
		if size >= processV2 {
			p.gpuID, p.compID = binary.NativeEndian.Uint32(row[16:]), binary.NativeEndian.Uint32(row[20:])
		}
		list = append(list, p)
	}
	return list
}
