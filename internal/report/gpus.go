package report

import (
	"fmt"
	"strings"

	"vramscope/bytesize"
	"vramscope/internal/gpu/cards"
	"vramscope/internal/term"
)

// GPUs is the result of the gpus command.
type GPUs struct {
	GPUs []GPU `json:"gpus"`

	shown []*cards.Card
}

// GPU is one card of the data base. What is not known is null.
type GPU struct {
	Name              string   `json:"name"`
	Aliases           []string `json:"aliases"`
	Vendor            string   `json:"vendor"`
	Class             string   `json:"class"`
	Architecture      string   `json:"architecture"`
	ComputeCapability string   `json:"compute_capability"`
	NominalGB         int      `json:"nominal_gb"`
	Total             *int64   `json:"total_bytes"`
	Usable            *int64   `json:"usable_bytes"`
	UsableBasis       *string  `json:"usable_basis"`
	Bandwidth         *float64 `json:"bandwidth_gb_per_second"`
	TFLOPS            GPUPeak  `json:"dense_tflops"`
	BF16              bool     `json:"bf16"`
	Link              string   `json:"link"`
	MIG               bool     `json:"mig"`
	ECC               bool     `json:"ecc"`
	Unified           bool     `json:"unified_memory"`
	Source            string   `json:"source"`
}

// GPUPeak is arithmetic without sparsity, in 10¹² operations a second.
type GPUPeak struct {
	FP32 *float64 `json:"fp32"`
	TF32 *float64 `json:"tf32"`
	FP16 *float64 `json:"fp16"`
	BF16 *float64 `json:"bf16"`
	FP8  *float64 `json:"fp8"`
}

// NewGPUs makes the report of these cards.
func NewGPUs(list []*cards.Card) *GPUs {
	r := &GPUs{GPUs: []GPU{}, shown: list}
	for _, c := range list {
		g := GPU{
			Name: c.Name, Aliases: c.Aliases, Vendor: c.Vendor, Class: c.Class, Architecture: c.Architecture,
			ComputeCapability: c.Compute, NominalGB: c.NominalGB, Bandwidth: c.Bandwidth, TFLOPS: GPUPeak(c.Peak),
			BF16: c.BF16, Link: c.Link, MIG: c.MIG, ECC: c.ECC, Unified: c.Unified, Source: c.Source,
		}
		if c.Total != nil {
			total := int64(*c.Total)
			g.Total = &total
		}
		if room, ok := c.Usable(); ok {
			usable := int64(room.Bytes)
			g.Usable, g.UsableBasis = &usable, &room.Basis
		}
		r.GPUs = append(r.GPUs, g)
	}
	return r
}

// Text prints a table, or everything about the one card that was asked for.
func (r *GPUs) Text(p *term.Printer, one bool) error {
	if one && len(r.shown) == 1 {
		oneGPU(p, r.shown[0])
		return p.Err()
	}
	p.Print(p.Styled(term.Bold, fmt.Sprintf("%-29s %6s %11s %6s %7s %7s  %s", "card", "memory", "job takes", "GB/s", "bf16", "fp32", "compute")) + "\n")
	for _, c := range r.shown {
		takes := "shared"
		if room, ok := c.Usable(); ok {
			takes = room.Bytes.String()
			if room.Basis == "rule" {
				takes = "~" + takes
			}
		}
		p.Printf("%-29s %3d GB %11s %6s %7s %7s  %s\n", c.Name, c.NominalGB, takes,
			number(c.Bandwidth), number(c.Peak.BF16), number(c.Peak.FP32), c.Compute)
	}
	p.Print("\n")
	p.Wrap("", 0, fmt.Sprintf("%d cards. \"job takes\" is what CUDA can give, after the driver's share and before the process's context; ~ by rule. "+
		"bf16 and fp32 are TFLOP/s without sparsity; - is unknown or not in hardware. `vramscope gpus NAME` shows one card.", len(r.shown)))
	return p.Err()
}

func oneGPU(p *term.Printer, c *cards.Card) {
	field := func(label, text string) {
		p.Wrap(fmt.Sprintf("%-*s", gpuMargin, label), gpuMargin, text)
	}
	p.Print(p.Styled(term.Bold, c.Name) + "\n\n")
	field("Known as", strings.Join(c.Aliases, ", "))
	field("Kind", fmt.Sprintf("%s, %s, %s, compute %s", c.Vendor, c.Class, c.Architecture, c.Compute))
	field("Memory", fmt.Sprintf("%d GB nominal; the driver reports %s", c.NominalGB, sizeOr(c.Total, "an unknown total")))
	if room, ok := c.Usable(); ok {
		field("A job takes", fmt.Sprintf("%s (%s)", room.Bytes, room.How))
		field("", fmt.Sprintf("of which a PyTorch process's context is about %s (measured on an H200)", bytesize.Size(cards.ContextBytes)))
	} else {
		field("A job takes", "unknown: the memory is the host's, shared with everything that runs there")
	}
	field("Bandwidth", number(c.Bandwidth)+" GB/s")
	field("TFLOP/s", fmt.Sprintf("fp32 %s, tf32 %s, fp16 %s, bf16 %s, fp8 %s (without sparsity; - is unknown or not in hardware)",
		number(c.Peak.FP32), number(c.Peak.TF32), number(c.Peak.FP16), number(c.Peak.BF16), number(c.Peak.FP8)))
	field("bfloat16", yesNo(c.BF16))
	field("Link", c.Link)
	field("MIG", yesNo(c.MIG))
	field("ECC", yesNo(c.ECC))
	field("Source", c.Source)
}

// gpuMargin is the width of the labels on the left.
const gpuMargin = 13

func number(f *float64) string {
	if f == nil {
		return "-"
	}
	return fmt.Sprintf("%g", *f)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
