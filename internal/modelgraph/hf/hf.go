// Package hf builds the graphs of Hugging Face's models from their config.json,
// as transformers 5 runs them: the same operators in the same order, the same
// parameters under the same names.
//
// Each family has a file with two parts, as a PyTorch module has: what it
// declares, in the order of named_parameters, and what it runs. Blocks that
// families share (attention, rotary embedding, norms, losses) are in blocks.go.
package hf

import (
	"fmt"
	"slices"
	"strings"

	"vramscope/internal/modelgraph"
)

// Options say how the model is run.
type Options struct {
	// Train adds the labels and the loss of the model's head, and dropout.
	Train bool
	// Attention is "sdpa" (the default), "eager" or "flash".
	Attention string
}

// family builds one kind of model.
type family func(b *builder)

// families are the model types that are known.
func families() map[string]family {
	return map[string]family{
		"gpt2":        gpt2,
		"bert":        bert,
		"roberta":     roberta,
		"distilbert":  distilbert,
		"opt":         opt,
		"gpt_neox":    neox,
		"deepseek_v3": deepseek,
		"granite":     decoder(graniteStyle),
		"t5":          t5,
		"vit":         vit,
		"whisper":     whisper,
		"llama":       decoder(llamaStyle),
		"mistral":     decoder(mistralStyle),
		"qwen2":       decoder(qwen2Style),
		"qwen3":       decoder(qwen3Style),
		"gemma":       decoder(gemmaStyle),
		"gemma2":      decoder(gemma2Style),
		"gemma3_text": decoder(gemma3Style),
		"phi3":        decoder(phi3Style),
		"mixtral":     decoder(mixtralStyle),
		"qwen3_moe":   decoder(qwen3MoeStyle),
	}
}

// Types returns the model types that Build knows, sorted.
func Types() []string {
	var t []string
	for name := range families() {
		t = append(t, name)
	}
	slices.Sort(t)
	return t
}

// UnknownTypeError says that no family builds this type of model.
type UnknownTypeError struct{ Type string }

func (e *UnknownTypeError) Error() string {
	return fmt.Sprintf("key \"model_type\" is %q, which is not known: known are %s", e.Type, strings.Join(Types(), ", "))
}

// Build makes the graph of a model. Symbols: batch and seq; encoder_seq where
// the encoder has its own length.
func Build(name string, configJSON []byte, o Options) (*modelgraph.Graph, error) {
	c, err := parseConfig(configJSON)
	if err != nil {
		return nil, err
	}
	if o.Attention == "" {
		o.Attention = "sdpa"
	}
	kind := c.str("", "model_type")
	if kind == "" {
		return nil, fmt.Errorf("key \"model_type\" is missing: one of %s is needed", strings.Join(Types(), ", "))
	}
	f := families()[kind]
	if f == nil {
		return nil, &UnknownTypeError{kind}
	}
	b := &builder{Builder: modelgraph.NewBuilder(name, "hf:"+kind), c: c, o: o}
	f(b)
	if *c.err != nil {
		return nil, *c.err
	}
	return b.Finish(b.outputs...)
}
