package rules

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"vramscope/internal/pysource"
)

// config is a value of a DeepSpeed configuration with its place: from JSON, or
// from a dictionary in Python.
type config struct {
	pos, end int
	fields   map[string]*config // of an object
	text     string             // of a scalar: true, 5e8, auto
}

func (c *config) get(path ...string) *config {
	for _, k := range path {
		if c == nil {
			return nil
		}
		c = c.fields[k]
	}
	return c
}

func (c *config) is(text string) bool { return c != nil && strings.EqualFold(c.text, text) }

// number returns a number, and false for "auto" and what is missing.
func (c *config) number() (float64, bool) {
	if c == nil {
		return 0, false
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(c.text, "_", ""), 64)
	return v, err == nil
}

func deepspeedConfig(p *Pass) {
	if p.M == nil {
		if strings.HasSuffix(p.File.Name, ".json") {
			if c, err := readConfig(p.File.Src); err == nil {
				p.checkDeepspeed(c)
			}
		}
		return
	}
	if !strings.Contains(p.File.Src, "zero_optimization") {
		return
	}
	p.inspectAll(p.File.Body, func(n pysource.Node) bool {
		d, ok := n.(*pysource.Dict)
		if !ok {
			return true
		}
		if c := p.dictConfig(d); c.get("zero_optimization") != nil {
			p.checkDeepspeed(c)
			return false
		}
		return true
	})
}

func (p *Pass) checkDeepspeed(c *config) {
	zero := c.get("zero_optimization")
	if zero == nil || zero.fields == nil {
		return
	}
	stage, known := zero.get("stage").number()
	if known && stage < 3 {
		if o := zero.get("offload_param"); o != nil && !o.get("device").is("none") {
			p.ReportAt(o.pos, o.end, "offload_param needs stage 3: with stage %g the parameters stay on the GPU.", stage)
		}
		if o := zero.get("stage3_gather_16bit_weights_on_model_save"); o.is("true") {
			p.ReportAt(o.pos, o.end, "stage3_gather_16bit_weights_on_model_save is for stage 3; this is stage %g.", stage).As(Warning)
		}
	}
	if o := zero.get("cpu_offload"); o != nil && !o.is("false") {
		p.ReportAt(o.pos, o.end, "cpu_offload is the old spelling, and is ignored by recent versions: use offload_optimizer {\"device\": \"cpu\"}.").As(Warning)
	}
	for _, name := range []string{"offload_param", "offload_optimizer"} {
		o := zero.get(name)
		if !o.get("device").is("nvme") {
			continue
		}
		switch {
		case known && stage < 3:
			p.ReportAt(o.pos, o.end, "%s to nvme needs stage 3; this is stage %g.", name, stage)
		case o.get("nvme_path") == nil:
			p.ReportAt(o.pos, o.end, "%s to nvme needs nvme_path.", name)
		}
	}
	if f, b := c.get("fp16", "enabled"), c.get("bf16", "enabled"); f.is("true") && b.is("true") {
		p.ReportAt(b.pos, b.end, "fp16 and bf16 are both enabled: DeepSpeed stops at start.")
	}
	train, ok1 := c.get("train_batch_size").number()
	micro, ok2 := c.get("train_micro_batch_size_per_gpu").number()
	steps, ok3 := c.get("gradient_accumulation_steps").number()
	if ok1 && ok2 && ok3 && micro > 0 && steps > 0 {
		if world := train / (micro * steps); world != float64(int(world)) || world < 1 {
			t := c.get("train_batch_size")
			p.ReportAt(t.pos, t.end, "train_batch_size %g is no multiple of micro-batch %g × accumulation %g: DeepSpeed stops at start.", train, micro, steps)
		}
	}
}

// dictConfig reads a dictionary literal.
func (p *Pass) dictConfig(d *pysource.Dict) *config {
	c := &config{pos: d.Pos(), end: d.End(), fields: map[string]*config{}}
	for i, k := range d.Keys {
		s, ok := k.(*pysource.Str)
		if !ok {
			continue
		}
		v := d.Values[i]
		if sub, ok := v.(*pysource.Dict); ok {
			child := p.dictConfig(sub)
			child.pos, child.end = k.Pos(), k.End()
			c.fields[s.Value] = child
			continue
		}
		text := p.constant(v)
		if text == "" {
			text = "auto" // not known
		}
		c.fields[s.Value] = &config{pos: k.Pos(), end: v.End(), text: text}
	}
	return c
}

// maxConfigDepth bounds the nesting of a configuration.
const maxConfigDepth = 50

func readConfig(src string) (*config, error) {
	dec := json.NewDecoder(strings.NewReader(src))
	dec.UseNumber()
	return readValue(dec, 0)
}

func readValue(dec *json.Decoder, depth int) (*config, error) {
	if depth > maxConfigDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxConfigDepth)
	}
	t, err := dec.Token()
	if err != nil {
		return nil, err
	}
	end := int(dec.InputOffset())
	c := &config{end: end}
	switch t := t.(type) {
	case json.Delim:
		if t == '{' {
			c.fields = map[string]*config{}
		}
		for dec.More() {
			key, from := "", 0
			if t == '{' {
				k, err := dec.Token()
				if err != nil {
					return nil, err
				}
				key, _ = k.(string)
				from = int(dec.InputOffset()) - len(key) - 2
			}
			v, err := readValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			if c.fields != nil {
				v.pos = max(from, 0)
				v.end = v.pos + len(key) + 2
				c.fields[key] = v
			}
		}
		_, err = dec.Token()
		return c, err
	case string:
		c.text = t
	case json.Number:
		c.text = t.String()
	case bool:
		c.text = strconv.FormatBool(t)
	}
	return c, nil
}
