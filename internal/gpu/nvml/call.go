//go:build linux || freebsd || windows

package nvml

import "github.com/ebitengine/purego"

// call calls a C function; pointers among args are converted in the call's own
// expression, which keeps what they point to alive and in place.
//
//go:uintptrescapes
func call(fn uintptr, args ...uintptr) ret {
	if fn == 0 {
		return functionNotFound
	}
	r, _, _ := purego.SyscallN(fn, args...)
	return ret(uint32(r))
}
