package plan

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"vramscope/internal/modelgraph"
	"vramscope/internal/modelgraph/hf"
	"vramscope/internal/modelgraph/onnx"
	"vramscope/internal/modelgraph/pt2"
)

const maxConfig = 16 << 20

// Open reads a model: a config.json of Hugging Face or the folder that holds
// one, a .pt2 file of torch.export, or an ONNX file. Errors begin with the path.
func Open(path string, s *Setup) (*modelgraph.Graph, error) {
	g, err := open(path, s)
	if err != nil || s.LoRA == "" {
		return g, err
	}
	l, err := s.lora()
	if err != nil {
		return nil, err
	}
	if g, err = modelgraph.WithLoRA(g, l); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return g, nil
}

func open(path string, s *Setup) (*modelgraph.Graph, error) {
	train := s.Mode == "train"
	if st, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, underlying(err))
	} else if st.IsDir() {
		path = filepath.Join(path, "config.json")
	}
	if strings.HasSuffix(path, ".pt2") || strings.HasSuffix(path, ".onnx") {
		read := pt2.Read
		if strings.HasSuffix(path, ".onnx") {
			read = onnx.Read
		}
		g, err := read(path)
		if err != nil {
			return nil, err
		}
		if train && !modelgraph.HasLoss(g) {
			if g, err = modelgraph.WithClassLoss(g); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
		return g, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, underlying(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConfig))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, underlying(err))
	}
	name := filepath.Base(filepath.Dir(path))
	g, err := hf.Build(name, data, hf.Options{Train: train, Attention: s.Attention})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return g, nil
}

func underlying(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
