package bytesize

import "testing"

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		text string
		want Size
	}{
		{"0", 0}, {"10737418240", 10 * GiB}, {"24GiB", 24 * GiB}, {"24GB", 24 * GiB}, {"24g", 24 * GiB},
		{"512MiB", 512 * MiB}, {" 1.5 gib ", 3 * GiB / 2}, {"2t", 2 * TiB}, {"7 b", 7},
	} {
		if got, err := Parse(tc.text); err != nil || got != tc.want {
			t.Errorf("Parse(%q) = %d, %v; want %d", tc.text, got, err, tc.want)
		}
	}
	for _, bad := range []string{"", "GiB", "-1", "1.5", "24 potatoes", "1..5g", "99999999999t", "9223372036854775808"} {
		if got, err := Parse(bad); err == nil {
			t.Errorf("Parse(%q) = %d; want an error", bad, got)
		}
	}
}

func TestString(t *testing.T) {
	for _, tc := range []struct {
		size Size
		want string
	}{
		{0, "0 B"}, {512, "512 B"}, {2 * MiB, "2.00 MiB"}, {10146021376, "9.45 GiB"}, {-3 * GiB, "-3.00 GiB"}, {1 << 50, "1024.00 TiB"},
	} {
		if got := tc.size.String(); got != tc.want {
			t.Errorf("Size(%d) = %q; want %q", int64(tc.size), got, tc.want)
		}
	}
}
