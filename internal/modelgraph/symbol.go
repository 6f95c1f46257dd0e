package modelgraph

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Symbol is an extent that a file leaves open, or one that people expect to be
// open and that the file fixes.
type Symbol struct {
	Name string // as in Dim: "batch"
	// Value is the extent with which the file was exported, 0 where it does
	// not say.
	Value int64
	// Min and Max are the extents that the file allows, both included.
	Min, Max int64
	// Fixed, where it is not empty, says why only Value will do: the node
	// that holds the size as a literal.
	Fixed string
}

// NoLimit is the Max of a symbol without one.
const NoLimit = math.MaxInt64

// Bind completes the extents that the user gives with those of the file. It
// returns an error that names the symbol where an extent is outside the range
// or fixed by the file. Symbols that the graph does not have are kept.
func (g *Graph) Bind(given Binding) (Binding, error) {
	b := Binding{}
	for name, v := range given {
		b[name] = v
	}
	for _, s := range g.Symbols {
		v, ok := b[s.Name]
		if !ok {
			if s.Value > 0 {
				b[s.Name] = s.Value
			}
			continue
		}
		if s.Fixed != "" && v != s.Value {
			return nil, fmt.Errorf("%s cannot be %d, the file has %d: %s; export the model with this dimension dynamic", s.Name, v, s.Value, s.Fixed)
		}
		if v < s.Min || v > s.Max {
			if s.Max == NoLimit {
				return nil, fmt.Errorf("%s cannot be %d: the file allows %d and more", s.Name, v, s.Min)
			}
			return nil, fmt.Errorf("%s cannot be %d: the file allows %d to %d", s.Name, v, s.Min, s.Max)
		}
	}
	return b, nil
}

// AxisSymbol says what an axis of an input means by convention: images are
// [batch, channels, height, width], token ids [batch, sequence], features
// [batch, sequence, width]. others are the names of all inputs: beside a
// decoder's, the others are the encoder's. It returns "" where an axis has no
// meaning of that kind.
func AxisSymbol(input string, rank, axis int, t DType, others []string) string {
	switch {
	case axis == 0:
		return Batch.String()
	case rank >= 4 && t.IsFloat() && axis == rank-2:
		return ImageH.String()
	case rank >= 4 && t.IsFloat() && axis == rank-1:
		return ImageW.String()
	case axis == 1 && (rank == 2 && !t.IsFloat() || rank == 3):
		ofDecoder := func(name string) bool { return strings.HasPrefix(name, "decoder_") }
		if slices.ContainsFunc(others, ofDecoder) && !ofDecoder(input) && input != "labels" {
			return EncoderSeq.String()
		}
		return Seq.String()
	}
	return ""
}
