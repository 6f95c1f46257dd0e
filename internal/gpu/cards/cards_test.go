package cards

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vramscope/bytesize"
)

// TestTable checks that every row could be true: orders of magnitude, and the
// relations between columns that physics and vendors keep.
func TestTable(t *testing.T) {
	if n := len(All()); n < 60 {
		t.Errorf("%d cards", n)
	}
	seen := map[string]bool{}
	for _, c := range All() {
		t.Run(c.Name, func(t *testing.T) {
			if seen[key(c.Name)] {
				t.Error("name used twice")
			}
			seen[key(c.Name)] = true
			nominal := bytesize.Size(c.NominalGB) * bytesize.GiB
			if c.Total != nil && (*c.Total > nominal || *c.Total < nominal/100*92) && c.Name != "B200" && c.Name != "B300" {
				t.Errorf("total %s of nominal %s", *c.Total, nominal)
			}
			room, ok := c.Usable()
			if ok == c.Unified {
				t.Errorf("usable %v, unified %v", ok, c.Unified)
			}
			if ok && (room.Bytes >= nominal || room.Bytes < nominal/100*82 || c.Total != nil && room.Bytes >= *c.Total) {
				t.Errorf("usable %s of %s", room.Bytes, nominal)
			}
			if (c.usable != nil) != (c.basis == "measured" || c.basis == "quoted") {
				t.Errorf("basis %q", c.basis)
			}
			if c.Bandwidth == nil || *c.Bandwidth < 100 || *c.Bandwidth > 10000 {
				t.Errorf("bandwidth %v", c.Bandwidth)
			}
			checkPeak(t, c)
			switch c.Class {
			case "datacenter", "workstation", "consumer", "embedded":
			default:
				t.Errorf("class %q", c.Class)
			}
			if c.Vendor == "NVIDIA" && (c.Compute >= "8" || c.Compute[:1] == "1") != c.BF16 {
				t.Errorf("bfloat16 %v with compute capability %s", c.BF16, c.Compute)
			}
		})
	}
}

// checkPeak: narrower types are at least as fast, and twice as fast at most
// per halving on the same units.
func checkPeak(t *testing.T, c *Card) {
	t.Helper()
	p := c.Peak
	if p.BF16 != nil && !c.BF16 {
		t.Error("a bfloat16 rate without bfloat16")
	}
	for _, pair := range []struct {
		name         string
		wide, narrow *float64
	}{{"tf32 to fp16", p.TF32, p.FP16}, {"fp16 to fp8", p.FP16, p.FP8}} {
		if pair.wide == nil || pair.narrow == nil {
			continue
		}
		if ratio := *pair.narrow / *pair.wide; ratio < 1.9 || ratio > 2.1 {
			t.Errorf("%s: ratio %.2f, want 2", pair.name, ratio)
		}
	}
	if p.FP32 != nil && p.FP16 != nil && *p.FP16 < *p.FP32 {
		t.Errorf("fp16 %v below fp32 %v", *p.FP16, *p.FP32)
	}
}

func TestFind(t *testing.T) {
	for _, test := range []struct{ name, want string }{
		{"h200", "H200"},
		{"NVIDIA H200", "H200"},
		{"rtx4090", "RTX 4090"},
		{"RTX 4090", "RTX 4090"},
		{"NVIDIA GeForce RTX 4090", "RTX 4090"},
		{"4090", "RTX 4090"},
		{"RTX 3090 24GB", "RTX 3090"},
		{"RTX3060-12GB", "RTX 3060"},
		{"A100-40GB", "A100 SXM4 40GB"},
		{"A100 80G", "A100 SXM4 80GB"},
		{"NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"},
		{"NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"},
		{"a100-pcie-40gb", "A100 PCIe 40GB"},
		{"NVIDIA H100 80GB HBM3", "H100 SXM"},
		{"H100", "H100 SXM"},
		{"h100 80gb", "H100 SXM"},
		{"H100 NVL", "H100 NVL"},
		{"Tesla V100-SXM2-16GB", "V100 SXM2 16GB"},
		{"V100-32GB", "V100 SXM2 32GB"},
		{"Tesla T4", "T4"},
		{"t4", "T4"},
		{"L40S", "L40S"},
		{"L4", "L4"},
		{"NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"},
		{"A6000", "RTX A6000"},
		{"RTX 4060 Ti 8GB", "RTX 4060 Ti 8GB"},
		{"4060 ti 16gb", "RTX 4060 Ti 16GB"},
		{"GH200 144GB", "GH200 144GB"},
		{"NVIDIA GH200 480GB", "GH200 96GB"},
		{"GB10", "GB10"},
		{"AMD Instinct MI300X", "MI300X"},
		{"mi250x", "MI250X"},
		{"Radeon RX 7900 XTX", "RX 7900 XTX"},
		{"Tesla K80", "K80"},
		{"B200", "B200"},
		{"NVIDIA GeForce RTX 4090 Laptop GPU", "RTX 4090 Laptop"},
	} {
		c, err := Find(test.name)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		} else if c.Name != test.want {
			t.Errorf("%s: found %s, want %s", test.name, c.Name, test.want)
		}
	}
}

// TestFindOwnNames: every name finds its card, and every alias finds it or
// says that it is not the only one.
func TestFindOwnNames(t *testing.T) {
	for _, c := range All() {
		if got, err := Find(c.Name); err != nil || got != c {
			t.Errorf("%s: %v, %v", c.Name, got, err)
		}
		for _, a := range c.Aliases {
			got, err := Find(a)
			var several *AmbiguousError
			if got != c && !errors.As(err, &several) {
				t.Errorf("%s for %s: %v, %v", a, c.Name, got, err)
			}
		}
	}
}

func TestFindNeverGuesses(t *testing.T) {
	for _, test := range []struct{ name, want string }{
		{"A100", `"A100" is several cards: A100 SXM4 80GB, A100 PCIe 80GB, A100 SXM4 40GB, A100 PCIe 40GB`},
		{"RTX 4060 Ti", `"RTX 4060 Ti" is several cards: RTX 4060 Ti 16GB, RTX 4060 Ti 8GB`},
		{"RTX 6000", `"RTX 6000" is several cards: RTX PRO 6000 Blackwell, RTX 6000 Ada`},
		{"A100 60GB", `no card "A100 60GB" in the data base`},
		{"RTX 4090 48GB", `no card "RTX 4090 48GB" in the data base`},
		{"RTX 4095", `no card "RTX 4095" in the data base; did you mean RTX 4090`},
		{"MI300", `no card "MI300" in the data base; did you mean MI300X`},
		{"TPU v5", `no card "TPU v5" in the data base`},
		{"NVIDIA A100-SXM4-80GB MIG 1g.10gb", `no card "NVIDIA A100-SXM4-80GB MIG 1g.10gb" in the data base; of a MIG slice, give the memory itself`},
		{"", `no card "" in the data base`},
		{"NVIDIA", `no card "NVIDIA" in the data base`},
		{strings.Repeat("9", 500) + "gb", "no card "},
	} {
		c, err := Find(test.name)
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%.40s: %v, %v; want %s", test.name, c, err, test.want)
		}
	}
}

// TestMeasured holds the H200's numbers to what was measured (driver-facts.txt:
// NVML total 150,754,820,096, reserved 644,939,776, CUDA total 150,109,880,320).
func TestMeasured(t *testing.T) {
	c, err := Find("NVIDIA H200")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := *c.Total/bytesize.MiB, bytesize.Size(150_754_820_096)/bytesize.MiB; got != want {
		t.Errorf("total %d MiB, want %d", got, want)
	}
	room, _ := c.Usable()
	if got, want := room.Bytes/bytesize.MiB, bytesize.Size(150_109_880_320)/bytesize.MiB; got != want || room.Basis != "measured" {
		t.Errorf("usable %d MiB (%s), want %d", got, room.Basis, want)
	}
}

// TestRuleIsCareful: where the driver's share is known, the rule would have
// left the job no more than there is.
func TestRuleIsCareful(t *testing.T) {
	for _, c := range All() {
		if c.usable != nil && c.Total != nil {
			if rule := lessReserve(*c.Total); rule > *c.usable {
				t.Errorf("%s: the rule says %s, there are %s", c.Name, rule, *c.usable)
			}
		}
	}
}

func TestReadRefuses(t *testing.T) {
	head := "name,aliases,vendor,class,architecture,compute,memory_gb,total_mib,usable_mib,usable_basis,bandwidth,fp32,tf32,fp16,bf16,fp8,bf16_native,link,mig,ecc,unified,source\n"
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", "cards: header: EOF"},
		{"short row", head + "X,x\n", "cards: record on line 2: wrong number of fields"},
		{"no source", head + "X,x,V,consumer,A,1.0,1,,,,100,,,,,,no,PCIe,no,no,no,\n", "cards: X: column source: is empty"},
		{"no number", head + "X,x,V,consumer,A,1.0,1,much,,,100,,,,,,no,PCIe,no,no,no,s\n", `cards: X: column total_mib: strconv.ParseInt: parsing "much": invalid syntax`},
		{"maybe", head + "X,x,V,consumer,A,1.0,1,,,,100,,,,,,maybe,PCIe,no,no,no,s\n", `cards: X: column bf16_native: "maybe", want yes or no`},
	} {
		_, err := read(strings.NewReader(test.text))
		if err == nil {
			t.Fatalf("%s: no error", test.name)
		}
		if diff := cmp.Diff(test.want, err.Error()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", test.name, diff)
		}
	}
}

func FuzzFind(f *testing.F) {
	for _, name := range []string{"h200", "A100-40GB", "RTX 4090 24GB", "4060 ti", "", "999gb", "ſſ®"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		c, err := Find(name)
		if (c == nil) == (err == nil) {
			t.Fatalf("%q: %v, %v", name, c, err)
		}
	})
}
