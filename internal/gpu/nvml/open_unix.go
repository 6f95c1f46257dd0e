//go:build linux || freebsd

package nvml

import "github.com/ebitengine/purego"

// libraryPaths are where the library is: by the linker's own search, WSL, the
// GPU operator's and GKE's containers, and the usual folders of distributions.
var libraryPaths = []string{
	"libnvidia-ml.so.1",
	"/usr/lib/wsl/lib/libnvidia-ml.so.1",
	"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
	"/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
	"/usr/lib64/libnvidia-ml.so.1",
	"/usr/local/nvidia/lib64/libnvidia-ml.so.1",
	"/home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1",
	"/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
	"/run/nvidia/driver/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
	"/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1",
	"libnvidia-ml.so",
}

func openLibrary(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_LAZY|purego.RTLD_LOCAL)
}

func symbol(handle uintptr, name string) uintptr {
	fn, err := purego.Dlsym(handle, name)
	if err != nil {
		return 0
	}
	return fn
}
