package report

import (
	"fmt"
	"math"

	"vramscope/bytesize"
	"vramscope/internal/holders"
	"vramscope/internal/term"
)

// Diff is the result of the diff command.
type Diff struct {
	Before        DiffSide     `json:"before"`
	After         DiffSide     `json:"after"`
	At            string       `json:"at"`
	By            string       `json:"by"`
	Basis         string       `json:"basis"`
	Growth        int64        `json:"growth_bytes"`
	GrowthPercent *float64     `json:"growth_percent"` // null where there was nothing before
	MaxGrowth     *int64       `json:"max_growth_bytes"`
	Grew          bool         `json:"grew_beyond_max"`
	Holders       []DiffHolder `json:"holders"`
	Same          int          `json:"unchanged_holders"`
}

// DiffSide is one of the two recordings.
type DiffSide struct {
	File      string `json:"file"`
	Device    int    `json:"device"`
	Event     int    `json:"event"`
	Allocated int64  `json:"allocated_bytes"`
	Complete  bool   `json:"complete"`
	Why       string `json:"incomplete_because,omitempty"`
}

// DiffHolder is code that holds more or less than before.
type DiffHolder struct {
	Holder       string `json:"holder"`
	Was          string `json:"was,omitempty"` // where its line moved
	Category     string `json:"category"`
	Growth       int64  `json:"growth_bytes"`
	Before       int64  `json:"before_bytes"`
	After        int64  `json:"after_bytes"`
	BeforeBlocks int    `json:"before_blocks"`
	AfterBlocks  int    `json:"after_blocks"`
}

// NewDiffSide describes a recording and the moment in it.
func NewDiffSide(file string, a *holders.Analysis, event int) DiffSide {
	h := a.Program.History()
	return DiffSide{File: file, Device: a.Program.Device.Ordinal, Event: event, Complete: h.Complete, Why: h.Reason}
}

// NewDiff makes the report of a difference. The most that it may be is
// maxGrowth bytes; below zero any growth is allowed.
func NewDiff(before, after DiffSide, at, by string, d *holders.Difference, maxGrowth int64) *Diff {
	r := &Diff{Before: before, After: after, At: at, By: by, Basis: "replayed", Growth: d.After - d.Before, Holders: []DiffHolder{}, Same: d.Same}
	r.Before.Allocated, r.After.Allocated = d.Before, d.After
	if d.Before > 0 {
		percent := math.Round(1e4*float64(r.Growth)/float64(d.Before)) / 100
		r.GrowthPercent = &percent
	}
	if maxGrowth >= 0 {
		r.MaxGrowth, r.Grew = &maxGrowth, r.Growth > maxGrowth
	}
	for _, g := range d.Holders {
		r.Holders = append(r.Holders, DiffHolder{
			Holder: g.Holder, Was: g.Was, Category: g.Category.String(), Growth: g.Bytes(),
			Before: g.Before, After: g.After, BeforeBlocks: g.BeforeBlocks, AfterBlocks: g.AfterBlocks,
		})
	}
	return r
}

// Text writes the report for people, with at most top holders that grew and
// as many that shrank.
func (r *Diff) Text(p *term.Printer, top int) error {
	p.Printf("before  %12s  %s, device %d, event %d\n", bytesize.Size(r.Before.Allocated), term.Safe(r.Before.File), r.Before.Device, r.Before.Event)
	p.Printf("after   %12s  %s, device %d, event %d\n", bytesize.Size(r.After.Allocated), term.Safe(r.After.File), r.After.Device, r.After.Event)
	percent := ""
	if r.GrowthPercent != nil {
		percent = fmt.Sprintf(" (%+.1f %%)", *r.GrowthPercent)
	}
	p.Printf("growth  %12s  allocated bytes at the %s%s, replayed\n", growth(r.Growth), r.At, percent)
	for _, s := range []*DiffSide{&r.Before, &r.After} {
		if !s.Complete {
			p.Wrap("  ", 2, term.Safe(s.File)+" is not complete: "+s.Why+".")
		}
	}
	if len(r.Holders) == 0 {
		p.Printf("\nNo holder changed, by %s.\n", r.By)
	}
	rest := 0
	for i, h := range r.Holders {
		fromEnd := len(r.Holders) - 1 - i
		if h.Growth > 0 && i >= top || h.Growth <= 0 && fromEnd >= top {
			rest++
			continue
		}
		if i == 0 {
			p.Printf("\n%14s  %12s  %12s   category", "growth", "before", "after")
			if r.By != "category" {
				p.Printf(", and the %s that asked", r.By)
			}
			p.Print("\n")
		}
		style := term.Red
		if h.Growth <= 0 {
			style = term.Green
		}
		p.Printf("%s  %12s  %12s   %s, %s\n", p.Styled(style, fmt.Sprintf("%14s", growth(h.Growth))), bytesize.Size(h.Before), bytesize.Size(h.After), h.Category, blocks(h.BeforeBlocks, h.AfterBlocks))
		if h.Holder != h.Category {
			p.Wrap("    ", 6, term.Safe(h.Holder))
		}
		if h.Was != "" {
			p.Wrap("    was ", 6, term.Safe(h.Was))
		}
	}
	if rest > 0 {
		p.Printf("%d more changed (--top shows more of them).\n", rest)
	}
	if r.Same > 0 && len(r.Holders) > 0 {
		p.Printf("%d did not change.\n", r.Same)
	}
	if r.MaxGrowth != nil {
		verdict, style := "within", term.Green
		if r.Grew {
			verdict, style = "beyond", term.Red
		}
		p.Printf("\nThe growth is %s the %s that --max-growth allows.\n", p.Styled(style, verdict), bytesize.Size(*r.MaxGrowth))
	}
	return p.Err()
}

// growth prints a size with its sign.
func growth(n int64) string {
	if n > 0 {
		return "+" + bytesize.Size(n).String()
	}
	return bytesize.Size(n).String()
}

func blocks(before, after int) string {
	switch {
	case before == after && after == 1:
		return "1 block"
	case before == after:
		return fmt.Sprintf("%d blocks", after)
	}
	return fmt.Sprintf("%d → %d blocks", before, after)
}
