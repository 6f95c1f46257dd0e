//go:build !linux && !freebsd && !windows

package nvml

func call(uintptr, ...uintptr) ret { return functionNotFound }
