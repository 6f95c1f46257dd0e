package diagnose

import (
	"fmt"

	"vramscope/bytesize"
	"vramscope/internal/jaxprof"
)

// JAX says what a device memory profile of JAX holds. It is one moment without a
// failure, so there is neither a cause nor a timeline.
func JAX(file string, p *jaxprof.Profile) *Input {
	in := &Input{
		File: file, Kind: "jax_profile",
		Failures: []Failure{}, Causes: []Cause{}, Remedies: []Remedy{}, Settings: []Setting{}, Holders: []Holder{}, Leaks: []Leak{},
		Advice: []string{"a profile of JAX shows one moment: take one before and one after to see what grows, and one at the failure to see who holds the memory"},
	}
	if len(p.Devices) == 0 {
		in.Summary = "A device memory profile of JAX without any buffer."
		return in
	}
	d := p.Devices[0]
	in.Summary = fmt.Sprintf("A device memory profile of JAX: %v in %d buffers on %s.", bytesize.Size(d.Bytes), d.Buffers, d.Name)
	for _, other := range p.Devices[1:] {
		in.Summary += fmt.Sprintf(" %s has %v in %d buffers.", other.Name, bytesize.Size(other.Bytes), other.Buffers)
	}
	for _, d := range p.Devices {
		for _, h := range d.Holders {
			name := h.Name
			if len(p.Devices) > 1 {
				name = d.Name + " " + name
			}
			in.Holders = append(in.Holders, Holder{Holder: name, Category: "unknown", Bytes: h.Bytes, Blocks: int(h.Blocks)})
		}
	}
	return in
}
