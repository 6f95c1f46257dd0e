package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"vramscope/bytesize"
	"vramscope/internal/term"
)

// Print writes an answer for people.
func Print(p *term.Printer, a *Answer) {
	r := a.Request
	p.Printf("%s, %s, batch %d", term.Safe(a.Model), r.Mode, r.Batch)
	if r.Accumulate > 1 {
		p.Printf(" × %d", r.Accumulate)
	}
	p.Printf(", %s", r.Precision)
	if r.Mode == "train" {
		p.Printf(", %s", r.Optimizer)
	}
	if r.Checkpoint != "none" {
		p.Printf(", checkpointing")
	}
	p.Printf(" (%d parameters)\n\n", a.Parameters)
	row := func(name string, n int64, note string) {
		p.Printf("  %-20s %12s  %s\n", name, bytesize.Size(n), note)
	}
	row("peak allocated", a.PeakAllocated, "estimated, at "+term.Safe(a.PeakAt))
	row("peak reserved", a.PeakReserved, "estimated: "+bytesize.Size(a.Interval.Low).String()+" to "+bytesize.Size(a.Interval.High).String())
	row("device used", a.Device, "reserved + context and libraries, ± 50 MiB")
	if r.Memory != nil {
		row("a job can take", *r.Memory, gpuName(a))
	}
	if r.Limit != nil {
		row("limit", *r.Limit, "")
	}
	row("rule of thumb", a.RuleOfThumb, "parameters × 4 + batch × (inputs + outputs + gradients) × 4")
	p.Printf("\nAt the peak:\n")
	names := slices.SortedFunc(maps.Keys(a.Breakdown), func(x, y string) int {
		return cmp.Or(cmp.Compare(a.Breakdown[y], a.Breakdown[x]), cmp.Compare(x, y))
	})
	for _, n := range names {
		row(strings.ReplaceAll(n, "_", " "), a.Breakdown[n], "")
	}
	p.Printf("\n")
	switch {
	case a.Fits == nil:
		p.Printf("Give --gpu, --memory or --limit to learn whether it fits.\n")
	case *a.Fits:
		p.Printf("It fits.\n")
	default:
		p.Printf("It does not fit.\n")
	}
	for _, n := range slices.Concat(a.Notes, a.Assumptions) {
		p.Printf("%s\n", term.Safe(n))
	}
	if a.LargestBatch != nil {
		p.Printf("The largest batch that fits as it is: %d.\n", *a.LargestBatch)
	}
	if len(a.Cards) > 0 {
		p.Printf("\nCards on which it fits (estimated):\n")
		for _, c := range a.Cards {
			if c.Fits {
				p.Printf("  %-28s a job can take %s\n", c.GPU, bytesize.Size(c.Memory))
			}
		}
	}
	if len(a.Plans) == 0 {
		return
	}
	p.Printf("\nWhat makes it fit (estimated; the factor is on the time of a step):\n")
	for _, pl := range a.Plans {
		t := "      "
		if pl.RelativeStepTime != nil {
			t = term.Safe(factor(*pl.RelativeStepTime))
		}
		p.Printf("  %10s  %s  %s\n", bytesize.Size(pl.PeakReserved), t, cmp.Or(strings.Join(pl.Measures, ", "), "nothing: as it is"))
	}
}

func gpuName(a *Answer) string {
	if a.GPU == nil {
		return ""
	}
	return "on " + *a.GPU
}
