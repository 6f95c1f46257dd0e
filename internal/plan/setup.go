// Package plan answers whether a job fits on a card and what makes it fit: it
// reads the model, has its memory estimated, compares with the card, and
// searches the measures for the least costly combination that fits.
package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"vramscope/bytesize"
	"vramscope/cachealloc"
	"vramscope/internal/estimate"
	"vramscope/internal/gpu/cards"
	"vramscope/internal/modelgraph"
)

// Setup is a job: the model and how it is run. The JSON names are the flags'.
type Setup struct {
	Mode         string `json:"mode"`  // train or infer
	Batch        int64  `json:"batch"` // the micro-batch on each device
	Seq          int64  `json:"seq,omitempty"`
	EncoderSeq   int64  `json:"encoder_seq,omitempty"`
	Image        int64  `json:"image,omitempty"` // height and width
	Precision    string `json:"precision"`
	Optimizer    string `json:"optimizer,omitempty"`
	Checkpoint   string `json:"checkpoint"` // none or full
	Attention    string `json:"attention"`
	Accumulate   int    `json:"accumulate"`
	ZeroGrad     string `json:"zero_grad"`
	MemoryFormat string `json:"memory_format"`
	Conf         string `json:"conf"`
	LoRA         string `json:"lora,omitempty"` // r=16,targets=q_proj:v_proj,dropout=0.05
}

// Room is what the job may take.
type Room struct {
	GPU    string        // name in the data base, "" if not given
	Memory bytesize.Size // what a job can take on the card, 0 if not known
	Basis  string        // how Memory is known
	Limit  bytesize.Size // what the process may reserve, 0 for no limit

	compute string // the card's compute capability
}

// OneOf fails unless value is one of those allowed.
func OneOf(flag, value string, allowed ...string) error {
	if !slices.Contains(allowed, value) {
		return fmt.Errorf("--%s %s: want one of %s", flag, value, strings.Join(allowed, ", "))
	}
	return nil
}

// Check refuses values that make no sense.
func (s *Setup) Check() error {
	var precisions []string
	for _, p := range estimate.Precisions() {
		precisions = append(precisions, string(p))
	}
	for _, err := range []error{
		OneOf("mode", s.Mode, "train", "infer"),
		OneOf("precision", s.Precision, precisions...),
		OneOf("optimizer", s.Optimizer, estimate.Optimizers()...),
		OneOf("checkpoint", s.Checkpoint, "none", "full"),
		OneOf("attention", s.Attention, "sdpa", "eager"),
		OneOf("zero-grad", s.ZeroGrad, "set-to-none", "zero"),
		OneOf("memory-format", s.MemoryFormat, "contiguous", "channels_last"),
	} {
		if err != nil {
			return err
		}
	}
	for _, n := range []struct {
		flag string
		v    int64
		zero bool
	}{{"batch", s.Batch, false}, {"seq", s.Seq, true}, {"encoder-seq", s.EncoderSeq, true}, {"image", s.Image, true}, {"accumulate", int64(s.Accumulate), false}} {
		if n.v < 0 || n.v > 1<<31 || n.v == 0 && !n.zero {
			return fmt.Errorf("--%s %d: want a positive number below 2^31", n.flag, n.v)
		}
	}
	if _, err := s.lora(); err != nil {
		return fmt.Errorf("--lora %s: %w", s.LoRA, err)
	}
	if _, err := s.settings(); err != nil {
		return fmt.Errorf("--conf: %w", err)
	}
	return nil
}

// lora reads r=16,targets=q_proj:v_proj,dropout=0.05.
func (s *Setup) lora() (modelgraph.LoRA, error) {
	l := modelgraph.LoRA{Targets: []string{"all-linear"}}
	if s.LoRA == "" {
		return l, nil
	}
	for part := range strings.SplitSeq(s.LoRA, ",") {
		key, v, _ := strings.Cut(part, "=")
		var err error
		switch key {
		case "r":
			l.Rank, err = strconv.ParseInt(v, 10, 32)
		case "targets":
			l.Targets = strings.Split(v, ":")
		case "dropout":
			l.Dropout, err = strconv.ParseFloat(v, 64)
		default:
			err = fmt.Errorf("%q: want r=RANK,targets=NAME:NAME,dropout=P", part)
		}
		if err != nil {
			return l, err
		}
	}
	if l.Rank < 1 {
		return l, fmt.Errorf("want r=RANK with a positive rank")
	}
	return l, nil
}

func (s *Setup) settings() (*cachealloc.Settings, error) {
	if s.Conf == "" {
		return nil, nil
	}
	c, err := cachealloc.ParseSettings(s.Conf, TorchVersion)
	return &c, err
}

// TorchVersion is the release whose rules an estimate follows.
var TorchVersion = cachealloc.Version{Major: 2, Minor: 11}

// request turns the setup into one for the estimator.
func (s *Setup) request(g *modelgraph.Graph) (estimate.Request, error) {
	bind := modelgraph.Binding{"batch": s.Batch}
	for name, v := range map[string]int64{"seq": s.Seq, "encoder_seq": s.EncoderSeq, "image_height": s.Image, "image_width": s.Image} {
		if v > 0 {
			bind[name] = v
		}
	}
	bind, err := g.Bind(bind)
	if err != nil {
		return estimate.Request{}, err
	}
	r := estimate.Request{
		Bind:         bind,
		Precision:    estimate.Precision(s.Precision),
		Optimizer:    s.Optimizer,
		Checkpoint:   s.Checkpoint == "full",
		Accumulate:   s.Accumulate,
		KeepGrads:    s.ZeroGrad == "zero",
		ChannelsLast: s.MemoryFormat == "channels_last",
	}
	if s.Mode == "infer" {
		r.Mode = estimate.Infer
	}
	if r.Checkpoint && r.Mode == estimate.Train && !slices.ContainsFunc(g.Calls, func(c modelgraph.Call) bool { return c.Block }) {
		return r, fmt.Errorf("--checkpoint full: this model has no repeated blocks that could be recomputed")
	}
	r.Settings, err = s.settings()
	return r, err
}

// FindRoom looks the card up.
func FindRoom(gpu string, memory, limit bytesize.Size) (Room, error) {
	r := Room{Memory: memory, Limit: limit}
	if memory > 0 {
		r.Basis = "given"
	}
	if gpu == "" {
		return r, nil
	}
	c, err := cards.Find(gpu)
	if err != nil {
		return r, err
	}
	r.GPU, r.compute = c.Name, c.Compute
	if memory == 0 {
		if room, ok := c.Usable(); ok {
			r.Memory, r.Basis = room.Bytes, room.Basis
		}
	}
	return r, nil
}
