//go:build !linux && !freebsd && !windows

package nvml

import "errors"

var libraryPaths = []string{"libnvidia-ml"}

func openLibrary(string) (uintptr, error) {
	return 0, errors.New("NVIDIA has no driver for this system")
}

func symbol(uintptr, string) uintptr { return 0 }
