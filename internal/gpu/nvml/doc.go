// Package nvml is the driver of NVIDIA cards: libnvidia-ml, opened at run time
// without cgo. Every function is looked up by name before use, the newest
// version first, so that an old library lacks values instead of ending the
// process. Struct layouts are those of nvml.h (API 13).
package nvml
