package report

import (
	"fmt"

	"vramscope/bytesize"
	"vramscope/cachealloc"
	"vramscope/internal/term"
	"vramscope/replay"
)

// Tune is the result of the tune command.
type Tune struct {
	File   string          `json:"file"`
	Device int             `json:"device"`
	Torch  Torch           `json:"torch"`
	Limit  int64           `json:"limit_bytes"`
	Fits   bool            `json:"fits"`
	Best   *TuneCandidate  `json:"best"`
	Floor  int64           `json:"floor_bytes"` // the most bytes of tensors at once, rounded to 512
	Tried  int             `json:"settings_tried"`
	Found  []TuneCandidate `json:"candidates"` // best first
	Basis  string          `json:"basis"`
	// EndsInFailure says that the recording ends where the job died: what it
	// would have asked for afterwards is in no replay.
	EndsInFailure bool `json:"recording_ends_in_failure"`
}

// TuneCandidate is one settings string with what it does.
type TuneCandidate struct {
	Conf         string   `json:"conf"`
	Recorded     bool     `json:"recorded"`
	Fits         bool     `json:"fits"`
	PeakReserved int64    `json:"peak_reserved_bytes"`
	MinLimit     *int64   `json:"smallest_limit_bytes"` // null where it was not searched for
	Retries      int64    `json:"num_alloc_retries"`
	FatalOOM     *Refusal `json:"fatal_oom"`
}

// NewTune makes the report.
func NewTune(file string, p *replay.Program, v cachealloc.Version, given bool, limit int64, res *replay.TuneResult) *Tune {
	t := &Tune{
		File: file, Device: p.Device.Ordinal, Torch: Torch{v.String(), !given, p.From.String(), p.To.String()},
		Limit: limit, Floor: res.Floor, Tried: res.Tried, Basis: "replayed", EndsInFailure: p.EndsInFailure(),
	}
	for _, c := range res.Candidates {
		x := TuneCandidate{
			Conf: c.Conf, Recorded: c.Recorded, Fits: c.Outcome.Fits(), PeakReserved: c.Outcome.PeakReserved,
			Retries: c.Outcome.Retries, FatalOOM: newRefusal(p, c.Outcome.FatalOOM),
		}
		if c.MinLimit > 0 {
			x.MinLimit = &c.MinLimit
		}
		t.Found = append(t.Found, x)
	}
	if res.Best() != nil {
		t.Fits, t.Best = true, &t.Found[0]
	}
	return t
}

// recordedFits returns the job's own settings where it fits under them.
func (t *Tune) recordedFits() *TuneCandidate {
	for i := range t.Found {
		if t.Found[i].Recorded && t.Found[i].Fits {
			return &t.Found[i]
		}
	}
	return nil
}

func retries(n int64) string {
	if n == 1 {
		return "retry"
	}
	return "retries"
}

// tuneRows is how many settings the text shows.
const tuneRows = 8

// Text writes the report for people.
func (t *Tune) Text(p *term.Printer) error {
	limit := bytesize.Size(t.Limit)
	p.Printf("%s\n  device %d under %v, PyTorch %s%s\n\n", term.Safe(t.File), t.Device, limit, t.Torch.Version, inferred(t.Torch))
	switch {
	case t.Fits && t.EndsInFailure && t.Best.Conf == "":
		p.Wrap("", 0, p.Styled(term.Gold, "It gets past its failure with the default settings: leave PYTORCH_CUDA_ALLOC_CONF unset."))
	case t.Fits && t.EndsInFailure:
		p.Wrap("", 0, p.Styled(term.Gold, "It gets past its failure with"))
		p.Printf("\n    export PYTORCH_CUDA_ALLOC_CONF=%s\n", shellQuote(t.Best.Conf))
	case t.Fits && t.Best.Recorded:
		p.Wrap("", 0, p.Styled(term.Green, "It fits as it is, and no other settings leave more room."))
	case t.Fits && t.Best.Conf == "":
		p.Wrap("", 0, p.Styled(term.Green, "It fits with the default settings: leave PYTORCH_CUDA_ALLOC_CONF unset."))
	case t.Fits && t.recordedFits() != nil:
		as := "It fits as it is. The most room is left with"
		if n := t.recordedFits().Retries; n > 0 {
			as = fmt.Sprintf("It fits as it is, but with %d %s, each of which stops the program until the card is idle. Best is", n, retries(n))
		}
		p.Wrap("", 0, p.Styled(term.Green, as))
		p.Printf("\n    export PYTORCH_CUDA_ALLOC_CONF=%s\n", shellQuote(t.Best.Conf))
	case t.Fits:
		p.Wrap("", 0, p.Styled(term.Green, "It fits with"))
		p.Printf("\n    export PYTORCH_CUDA_ALLOC_CONF=%s\n", shellQuote(t.Best.Conf))
	case t.Floor > t.Limit:
		p.Wrap("", 0, p.Styled(term.Red, fmt.Sprintf("No settings make it fit: its tensors alone take %v at once, %v more than the limit.",
			bytesize.Size(t.Floor), bytesize.Size(t.Floor-t.Limit))))
	default:
		p.Wrap("", 0, p.Styled(term.Red, fmt.Sprintf("None of %d settings makes it fit. Its tensors take up to %v at once; what is left of %v does not suffice for what the allocator must keep beside them.",
			t.Tried, bytesize.Size(t.Floor), limit)))
	}
	if t.Fits && t.EndsInFailure {
		p.Print("\n")
		p.Wrap("", 0, "Whether it then runs to its end is not known: the recording ends at the failure, and what the program asks for afterwards comes on top.")
	}
	p.Print("\n")
	p.Printf("  %-40s %11s %12s %8s\n", "replayed under", "reserved", "fits down to", "retries")
	for i, c := range t.Found {
		if i >= tuneRows && !c.Recorded && c.Conf != "" {
			continue
		}
		name := settingsName(c.Conf)
		if c.Recorded {
			name += " (recorded)"
		}
		if len(name) > 40 {
			p.Printf("  %s\n", name)
			name = ""
		}
		down := "–"
		if c.MinLimit != nil {
			down = bytesize.Size(*c.MinLimit).String()
		}
		if c.Fits {
			p.Printf("  %-40s %11s %12s %8d\n", name, bytesize.Size(c.PeakReserved), down, c.Retries)
		} else {
			p.Printf("  %-40s %11s %s\n", name, bytesize.Size(c.PeakReserved), p.Styled(term.Red, fmt.Sprintf("dies at event %d", c.FatalOOM.Event)))
		}
	}
	p.Printf("\n  %d settings replayed. Tensors at once, rounded: %v.\n", t.Tried, bytesize.Size(t.Floor))
	if best := t.Best; best != nil && best.Retries > 0 {
		p.Wrap("  ", 2, fmt.Sprintf("It takes %d %s, each of which stops the program until the card is idle; a larger limit avoids them.", best.Retries, retries(best.Retries)))
	}
	return p.Err()
}

// shellQuote quotes what a shell would read otherwise.
func shellQuote(s string) string {
	for _, r := range s {
		if r == '[' || r == '>' {
			return "'" + s + "'"
		}
	}
	return s
}
