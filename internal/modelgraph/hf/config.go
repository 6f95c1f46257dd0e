package hf

import (
	"encoding/json"
	"fmt"
	"math"
)

// config is a config.json. Errors name the key and say what is accepted; the
// first one stays.
type config struct {
	m    map[string]any
	path string // of a nested configuration: "text_config."
	err  *error
}

func parseConfig(data []byte) (*config, error) {
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	return &config{m: m, err: new(error)}, nil
}

func (c *config) fail(format string, args ...any) {
	if *c.err == nil {
		*c.err = fmt.Errorf(format, args...)
	}
}

// sub returns a nested configuration, or nil.
func (c *config) sub(key string) *config {
	m, ok := c.m[key].(map[string]any)
	if !ok {
		return nil
	}
	return &config{m: m, path: c.path + key + ".", err: c.err}
}

// maxSize bounds what a configuration may ask for: more is nonsense.
const maxSize = 1 << 31

// int returns a positive integer. The first of the keys that is there counts.
func (c *config) int(keys ...string) int64 {
	v, ok := c.opt(keys...)
	if !ok {
		c.fail("key %q is missing: a positive integer is needed", c.path+keys[0])
		return 1
	}
	return v
}

// intOr returns a positive integer or def where it is absent or null.
func (c *config) intOr(def int64, keys ...string) int64 {
	if v, ok := c.opt(keys...); ok {
		return v
	}
	return def
}

func (c *config) opt(keys ...string) (int64, bool) {
	for _, k := range keys {
		v, ok := c.m[k]
		if !ok || v == nil {
			continue
		}
		f, ok := v.(float64)
		if !ok || f != math.Trunc(f) || f < 1 || f > maxSize {
			c.fail("key %q is %v: a positive integer below 2^31 is needed", c.path+k, v)
			return 1, true
		}
		return int64(f), true
	}
	return 0, false
}

func (c *config) float(def float64, keys ...string) float64 {
	for _, k := range keys {
		switch v := c.m[k].(type) {
		case float64:
			return v
		case nil:
		default:
			c.fail("key %q is %v: a number is needed", c.path+k, v)
		}
	}
	return def
}

func (c *config) bool(def bool, key string) bool {
	switch v := c.m[key].(type) {
	case bool:
		return v
	case nil:
		return def
	default:
		c.fail("key %q is %v: true or false is needed", c.path+key, v)
		return def
	}
}

func (c *config) str(def string, keys ...string) string {
	for _, k := range keys {
		switch v := c.m[k].(type) {
		case string:
			return v
		case nil:
		default:
			c.fail("key %q is %v: a string is needed", c.path+k, v)
		}
	}
	return def
}

func (c *config) strings(key string) []string {
	a, _ := c.m[key].([]any)
	var out []string
	for _, v := range a {
		s, ok := v.(string)
		if !ok {
			c.fail("key %q holds %v: strings are needed", c.path+key, v)
		}
		out = append(out, s)
	}
	return out
}

// divides fails unless a is a multiple of b.
func (c *config) divides(a int64, aName string, b int64, bName string) {
	if b <= 0 || a%b != 0 {
		c.fail("key %q is %d, which %q = %d does not divide", c.path+aName, a, c.path+bName, b)
	}
}

// layers returns a number of layers, at most 100,000.
func (c *config) layers(keys ...string) int64 {
	n := c.int(keys...)
	if n > 100_000 {
		c.fail("key %q is %d: at most 100000 layers are accepted", c.path+keys[0], n)
		return 1
	}
	return n
}
