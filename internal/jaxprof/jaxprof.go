// Package jaxprof reads the device memory profiles that JAX writes
// (jax.profiler.save_device_memory_profile): pprof files that say which buffers
// were alive at one moment, on which device, made by which Python stack. They have
// no timeline, and their sizes are those of XLA's buffers.
package jaxprof

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"vramscope/internal/holders"
	"vramscope/trace"
)

// Profile is a device memory profile of JAX: what was alive at one moment.
type Profile struct {
	Devices []Device // most bytes first
	// Executables are compiled programs, whose bytes JAX gives as 0 where the
	// platform does not tell.
	Executables     int64
	ExecutableBytes int64
}

// Device is what one device held.
type Device struct {
	Name    string // such as "cuda:0"
	Bytes   int64
	Buffers int64
	Holders []Holder // most bytes first
}

// Holder is the buffers of one stack.
type Holder struct {
	Name   string // innermost line of the user's code, with the call that asked
	Bytes  int64
	Blocks int64
	Stack  []trace.Frame // innermost first
}

// maxProfile is the most that a profile may take, packed.
const maxProfile = 256 << 20

// IsProfile reports whether a decompressed file that begins with head looks
// like a pprof profile: its first field is a sample type, two small numbers.
func IsProfile(head []byte) bool {
	return len(head) > 5 && head[0] == 0x0a && head[1] >= 2 && head[1] < 16 && (head[2] == 0x08 || head[2] == 0x10)
}

// Read reads a profile that jax.profiler.save_device_memory_profile wrote.
func Read(r io.Reader) (*Profile, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxProfile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxProfile {
		return nil, fmt.Errorf("is a profile of more than %d MiB", maxProfile>>20)
	}
	p, err := profile.ParseData(data)
	if err != nil {
		return nil, fmt.Errorf("is no pprof profile: %w", err)
	}
	space, count := -1, -1
	for i, t := range p.SampleType {
		switch t.Type + "/" + t.Unit {
		case "space/bytes", "inuse_space/bytes":
			space = i
		case "allocations/count", "inuse_objects/count":
			count = i
		}
	}
	if space < 0 {
		return nil, errors.New("is a pprof profile without bytes: give one of jax.profiler.save_device_memory_profile")
	}
	return summarize(p, space, count), nil
}

func summarize(p *profile.Profile, space, count int) *Profile {
	out := &Profile{}
	type key struct{ device, holder string }
	devices, index := map[string]int{}, map[key]int{}
	for _, s := range p.Sample {
		blocks := int64(1)
		if count >= 0 {
			blocks = s.Value[count]
		}
		if slices.Contains(s.Label["kind"], "executable") {
			out.Executables += blocks
			out.ExecutableBytes += s.Value[space]
			continue
		}
		device := "unknown device"
		if d := s.Label["device"]; len(d) > 0 {
			device = d[0]
		}
		at, ok := devices[device]
		if !ok {
			at = len(out.Devices)
			devices[device] = at
			out.Devices = append(out.Devices, Device{Name: device})
		}
		d := &out.Devices[at]
		d.Bytes += s.Value[space]
		d.Buffers += blocks
		stack := calls(s)
		k := key{device, lineOf(stack)}
		h, ok := index[k]
		if !ok {
			h = len(d.Holders)
			index[k] = h
			d.Holders = append(d.Holders, Holder{Name: k.holder, Stack: stack})
		}
		d.Holders[h].Bytes += s.Value[space]
		d.Holders[h].Blocks += blocks
	}
	for i := range out.Devices {
		slices.SortStableFunc(out.Devices[i].Holders, func(x, y Holder) int { return cmp.Compare(y.Bytes, x.Bytes) })
	}
	slices.SortStableFunc(out.Devices, func(x, y Device) int { return cmp.Compare(y.Bytes, x.Bytes) })
	return out
}

// calls returns the frames of a sample, innermost first. Its function names
// lack where the profile is stripped.
func calls(s *profile.Sample) []trace.Frame {
	var out []trace.Frame
	for _, l := range s.Location {
		for _, line := range l.Line {
			f := trace.Frame{Line: int(line.Line)}
			if line.Function != nil {
				// JAX gives "<unknown>" or nothing where it has no name, and the
				// Python name as the system's.
				f.Function, f.File = line.Function.Name, line.Function.Filename
				if line.Function.SystemName != "" {
					f.Function = line.Function.SystemName
				}
			}
			out = append(out, f)
		}
	}
	return out
}

// lineOf names the innermost line of the user's code, or the innermost call
// where all of the stack is a library's.
func lineOf(stack []trace.Frame) string {
	if len(stack) == 0 {
		return "(no stack)"
	}
	for i, f := range stack {
		if library(f.File) {
			continue
		}
		name := fmt.Sprintf("%s:%d %s", holders.ShortPath(f.File), f.Line, f.Function)
		if i > 0 {
			name += " → " + holders.ShortPath(stack[0].File) + " " + stack[0].Function
		}
		return name
	}
	return holders.ShortPath(stack[0].File) + " " + stack[0].Function
}

func library(file string) bool {
	for _, part := range []string{"site-packages/", "dist-packages/", "lib/python3"} {
		if strings.Contains(file, part) {
			return true
		}
	}
	return false
}
