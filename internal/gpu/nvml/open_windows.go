package nvml

import "syscall"

var libraryPaths = []string{
	"nvml.dll",
	`C:\Windows\System32\nvml.dll`,
	`C:\Program Files\NVIDIA Corporation\NVSMI\nvml.dll`,
}

func openLibrary(path string) (uintptr, error) {
	h, err := syscall.LoadLibrary(path)
	return uintptr(h), err
}

func symbol(handle uintptr, name string) uintptr {
	fn, err := syscall.GetProcAddress(syscall.Handle(handle), name)
	if err != nil {
		return 0
	}
	return fn
}
