// Package bytesize reads and prints numbers of bytes the way GPU people write
// them: binary units in output, and "24GiB", "24GB", "24g", "512MiB" or plain
// bytes in input.
package bytesize

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes. It implements flag.Value, pflag.Value and
// encoding.TextUnmarshaler.
type Size int64

// Binary units.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
	TiB Size = 1 << 40
)

// String prints three significant digits or so with a binary unit: "512 B",
// "2.00 MiB", "9.45 GiB".
func (s Size) String() string {
	sign, v := "", s
	if s < 0 {
		if s == math.MinInt64 {
			return "-8.00 EiB"
		}
		sign, v = "-", -s
	}
	switch {
	case v >= TiB:
		return fmt.Sprintf("%s%.2f TiB", sign, float64(v)/float64(TiB))
	case v >= GiB:
		return fmt.Sprintf("%s%.2f GiB", sign, float64(v)/float64(GiB))
	case v >= MiB:
		return fmt.Sprintf("%s%.2f MiB", sign, float64(v)/float64(MiB))
	case v >= KiB:
		return fmt.Sprintf("%s%.2f KiB", sign, float64(v)/float64(KiB))
	}
	return fmt.Sprintf("%s%d B", sign, v)
}

// units in input. Vendors sell "24 GB" cards that hold 24 GiB and nvidia-smi
// and PyTorch count in binary units, so GB and G mean GiB here as well.
var units = map[string]float64{
	"": 1, "b": 1, "bytes": 1,
	"k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10,
	"m": 1 << 20, "mb": 1 << 20, "mib": 1 << 20,
	"g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30,
	"t": 1 << 40, "tb": 1 << 40, "tib": 1 << 40,
}

// Parse reads a size. GB, G and GiB are all 2^30 bytes.
func Parse(text string) (Size, error) {
	t := strings.TrimSpace(text)
	i := 0
	for i < len(t) && (t[i] >= '0' && t[i] <= '9' || t[i] == '.') {
		i++
	}
	unit, ok := units[strings.ToLower(strings.TrimSpace(t[i:]))]
	if i == 0 || !ok {
		return 0, fmt.Errorf("%q is not a size: write 24GiB, 512MiB or a number of bytes", text)
	}
	if unit == 1 {
		n, err := strconv.ParseInt(t[:i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a whole number of bytes below 2^63", text)
		}
		return Size(n), nil
	}
	f, err := strconv.ParseFloat(t[:i], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size: %q is not a number", text, t[:i])
	}
	if f *= unit; f >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is more than 2^63 bytes", text)
	}
	return Size(math.Round(f)), nil
}

// Set implements flag.Value.
func (s *Size) Set(text string) error {
	v, err := Parse(text)
	if err == nil {
		*s = v
	}
	return err
}

// Type implements pflag.Value.
func (*Size) Type() string { return "SIZE" }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(text []byte) error { return s.Set(string(text)) }
