// Package cards is the data base of GPUs: how much memory each has, what the
// driver reports of it and what a job can take, and how fast it is. It is a
// table (cards.csv) with a source in each row; what is not known is nil. It
// does not look at the machine: package gpu does.
package cards

import (
	"bytes"
	_ "embed" // the table
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"vramscope/bytesize"
)

// Card is one model of GPU. Boards with several GPUs (K80, A16, MI250X) have a
// row for one of them, which is what a process sees.
type Card struct {
	Name         string   // short, unique: "A100 SXM4 80GB"
	Aliases      []string // what drivers and people call it
	Vendor       string   // NVIDIA, AMD, Intel
	Class        string   // datacenter, workstation, consumer, embedded
	Architecture string   // "Hopper", "CDNA 3"
	Compute      string   // compute capability, or the compiler's target for others
	NominalGB    int      // what the box says
	// Total is what the driver reports (nvidia-smi's memory.total), a little
	// less than nominal; inline ECC of GDDR memory takes a sixteenth of it.
	Total     *bytesize.Size
	usable    *bytesize.Size
	basis     string
	Bandwidth *float64 // GB/s (10⁹)
	Peak      Peak
	BF16      bool   // in hardware
	Link      string // to other cards or the host; numbers are GB/s, both directions
	MIG       bool   // can be partitioned
	ECC       bool
	Unified   bool // the card's memory is the host's memory
	Source    string
}

// Peak is arithmetic without sparsity in 10¹² operations a second: tensor or
// matrix units where they exist, accumulating in float32; FP32 is that of the
// ordinary units. nil is unknown or not in hardware.
type Peak struct {
	FP32, TF32, FP16, BF16, FP8 *float64
}

// Room is the memory that a job can take: everything but the driver's own
// share. The context of the job's process comes out of it.
type Room struct {
	Bytes bytesize.Size
	Basis string // measured, quoted or rule
	How   string // in words
}

// ContextBytes is what a process takes on the card before its first tensor:
// CUDA context and kernels, measured for PyTorch 2.11 (CUDA 13.0) on an H200.
// With cuBLAS, cuDNN and fragments of the driver 638 to 771 MiB lie beyond
// what PyTorch reserves (data/fresh-process.jsonl).
const ContextBytes = 648_871_936

// The rule for the driver's share: 384 MiB and one percent of the total. The
// largest shares seen stay below it: 439 MiB on an RTX 3070 of 8,192 and on an
// RTX 2080 Ti of 11,264 MiB, 463 on an RTX 5080 of 16,303, 882 on an A100 of
// 81,920. It differs by driver (an RTX 3090 has had from 308 to 452 MiB), so
// quoted rows have the least that CUDA was seen to offer. Windows (WDDM) shows
// CUDA the whole card and takes its share all the same.
const (
	reserveFixed   = 384 * bytesize.MiB
	reservePercent = 1
	nominalPercent = 93 // of nominal GiB, where the total is not known: GDDR memory with inline ECC has 93.7
)

// Usable returns what a job can take. It is false for unified memory, which
// the host shares.
func (c *Card) Usable() (Room, bool) {
	switch {
	case c.Unified:
		return Room{}, false
	case c.usable != nil && c.basis == "measured":
		return Room{*c.usable, c.basis, "measured: what CUDA reports as total on an idle card"}, true
	case c.usable != nil:
		return Room{*c.usable, c.basis, "quoted: the least that CUDA has been seen to report as total"}, true
	case c.Total != nil:
		return Room{lessReserve(*c.Total), "rule", "rule: the driver's total less 384 MiB and 1 %"}, true
	}
	total := bytesize.Size(c.NominalGB) * bytesize.GiB / 100 * nominalPercent
	return Room{lessReserve(total), "rule", "rule: 93 % of nominal less 384 MiB and 1 %; the driver's total is not known here"}, true
}

func lessReserve(total bytesize.Size) bytesize.Size {
	return total - reserveFixed - total/100*reservePercent
}

// All returns the table, data-centre cards of NVIDIA first. Callers must not
// change it.
func All() []*Card { return table() }

//go:embed cards.csv
var csvText []byte

// table is embedded and checked by the tests, so an error is a programmer's.
var table = sync.OnceValue(func() []*Card {
	all, err := read(bytes.NewReader(csvText))
	if err != nil {
		panic(err)
	}
	return all
})

// read decodes the table. The first row names the columns.
func read(r io.Reader) ([]*Card, error) {
	rows := csv.NewReader(r)
	head, err := rows.Read()
	if err != nil {
		return nil, fmt.Errorf("cards: header: %w", err)
	}
	var all []*Card
	for {
		fields, err := rows.Read()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("cards: %w", err)
		}
		row := row{values: map[string]string{}}
		for i, name := range head {
			row.values[name] = fields[i]
		}
		c := row.card()
		if row.err != nil {
			return nil, fmt.Errorf("cards: %s: %w", fields[0], row.err)
		}
		all = append(all, c)
	}
}

// row reads the columns of one line and keeps the first error.
type row struct {
	values map[string]string
	err    error
}

func (r *row) card() *Card {
	return &Card{
		Name:         r.text("name"),
		Aliases:      strings.Split(r.text("aliases"), ";"),
		Vendor:       r.text("vendor"),
		Class:        r.text("class"),
		Architecture: r.text("architecture"),
		Compute:      r.text("compute"),
		NominalGB:    int(r.whole("memory_gb")),
		Total:        r.mib("total_mib"),
		usable:       r.mib("usable_mib"),
		basis:        r.values["usable_basis"],
		Bandwidth:    r.number("bandwidth"),
		Peak:         Peak{r.number("fp32"), r.number("tf32"), r.number("fp16"), r.number("bf16"), r.number("fp8")},
		BF16:         r.yes("bf16_native"),
		Link:         r.text("link"),
		MIG:          r.yes("mig"),
		ECC:          r.yes("ecc"),
		Unified:      r.yes("unified"),
		Source:       r.text("source"),
	}
}

func (r *row) fail(column string, err error) {
	if r.err == nil && err != nil {
		r.err = fmt.Errorf("column %s: %w", column, err)
	}
}

func (r *row) text(column string) string {
	v := r.values[column]
	if v == "" {
		r.fail(column, fmt.Errorf("is empty"))
	}
	return v
}

func (r *row) whole(column string) int64 {
	n, err := strconv.ParseInt(r.values[column], 10, 64)
	r.fail(column, err)
	return n
}

func (r *row) number(column string) *float64 {
	if r.values[column] == "" {
		return nil
	}
	f, err := strconv.ParseFloat(r.values[column], 64)
	r.fail(column, err)
	return &f
}

func (r *row) mib(column string) *bytesize.Size {
	if r.values[column] == "" {
		return nil
	}
	n := bytesize.Size(r.whole(column)) * bytesize.MiB
	return &n
}

func (r *row) yes(column string) bool {
	v := r.values[column]
	if v != "yes" && v != "no" {
		r.fail(column, fmt.Errorf("%q, want yes or no", v))
	}
	return v == "yes"
}
