// Package onnx reads ONNX files and turns them into modelgraph.Graphs. It walks
// the protocol buffer itself, without generated code, and passes over the
// weights.
//
// Each ONNX operator becomes the ATen operator that PyTorch would run for it,
// with ATen's attributes; where an exporter took one apart (a matrix product
// and an addition for a linear layer) it becomes one again. Nodes that only
// compute shapes are worked out here, with symbols, and leave no trace.
// Operators without a counterpart keep their ONNX name behind "onnx.".
//
// An ONNX file is made for inference: dropout is gone and batch normalisation
// may be part of a convolution. Graph.Assumptions says so.
package onnx

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"vramscope/internal/modelgraph"
)

// Read reads the file of that name. Errors begin with the name.
func Read(name string) (*modelgraph.Graph, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, bare(err))
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, bare(err))
	}
	g, err := ReadFrom(f, st.Size(), strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return g, nil
}

// bare is an error without the path that os adds.
func bare(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// ReadFrom reads a model of size bytes. The graph gets the name model.
func ReadFrom(r io.ReaderAt, size int64, model string) (*modelgraph.Graph, error) {
	s := &source{r: r, size: size}
	p := readModel(s)
	if s.err != nil {
		return nil, s.err
	}
	if p.graph == nil {
		return nil, errors.New("no graph in it: this is not an ONNX file")
	}
	if p.opset != 0 && p.opset < 7 {
		return nil, fmt.Errorf("operator set %d; 7 and later are read: convert it with onnx.version_converter", p.opset)
	}
	return build(p, model)
}
