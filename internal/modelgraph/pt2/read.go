// Package pt2 reads what torch.export.save writes (.pt2) and turns it into a
// modelgraph.Graph. It needs neither the weights nor PyTorch, and reads the
// layouts of PyTorch 2.1 to 2.11: a zip file with the program as JSON.
//
// The graph has the operators of the file, one for one, with ATen's names.
// Nodes that only compute sizes or check them are left out; graphs inside the
// graph (a part without gradients, a part under autocast) stand in their
// place, their nodes with the attribute no_grad or autocast. Symbols of the
// export become those of package modelgraph by the axis of the input in which
// they occur, and Graph.Symbols holds their ranges.
package pt2

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"vramscope/internal/modelgraph"
)

// maxProgram limits the text of the program, in bytes. A model of a thousand
// layers has 140 MB.
const maxProgram = 256 << 20

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

// ReadFrom reads an export of size bytes. The graph gets the name model.
func ReadFrom(r io.ReaderAt, size int64, model string) (*modelgraph.Graph, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, fmt.Errorf("not a whole zip file (%w); torch.export.save writes one", err)
	}
	entry, err := findProgram(z)
	if err != nil {
		return nil, err
	}
	text, err := readEntry(entry)
	if err != nil {
		return nil, fmt.Errorf("%q in the archive: %w", entry.Name, err)
	}
	g, err := parse(text, model)
	if err != nil {
		return nil, fmt.Errorf("%q in the archive: %w", entry.Name, err)
	}
	return g, nil
}

// parse turns the text of a program into a graph.
func parse(text []byte, model string) (*modelgraph.Graph, error) {
	p, err := decode(text)
	if err != nil {
		return nil, err
	}
	return build(p, model)
}

// findProgram finds models/NAME.json (since 2.8) or
// serialized_exported_program.json, at the root or in the archive's folder.
func findProgram(z *zip.Reader) (*zip.File, error) {
	var models []*zip.File
	kind := ""
	for _, f := range z.File {
		dir, base := path.Split(path.Clean(f.Name))
		switch {
		case base == "serialized_exported_program.json":
			return f, nil
		case path.Base(dir) == "models" && path.Ext(base) == ".json":
			models = append(models, f)
			if base == "model.json" {
				return f, nil
			}
		case base == "data.pkl":
			kind = "; this is a pickled state or TorchScript file: export the model with torch.export.export and torch.export.save"
		case base == "archive_format":
			kind = "; the archive holds no exported program"
		}
	}
	switch len(models) {
	case 0:
		return nil, fmt.Errorf("no models/model.json in the archive%s", kind)
	case 1:
		return models[0], nil
	}
	names := make([]string, 0, 3)
	for _, f := range models[:min(3, len(models))] {
		names = append(names, f.Name)
	}
	return nil, fmt.Errorf("%d programs in the archive (%s …), and none is called model.json", len(models), strings.Join(names, ", "))
}

func readEntry(f *zip.File) ([]byte, error) {
	if f.UncompressedSize64 > maxProgram {
		return nil, fmt.Errorf("%d bytes when unpacked, more than the %d that a program may have", f.UncompressedSize64, int64(maxProgram))
	}
	// Deflate packs 1032:1 at most, so a small file cannot claim a big buffer.
	if f.UncompressedSize64 > 1100*f.CompressedSize64+1000 {
		return nil, fmt.Errorf("claims %d bytes when unpacked from %d", f.UncompressedSize64, f.CompressedSize64)
	}
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text := make([]byte, f.UncompressedSize64)
	n, err := io.ReadFull(r, text)
	if err != nil {
		return nil, fmt.Errorf("ends after %d of %d bytes: %w", n, len(text), err)
	}
	if _, err := io.ReadFull(r, make([]byte, 1)); err != io.EOF { // the checksum
		if err == nil {
			err = errors.New("longer than the archive says")
		}
		return nil, err
	}
	return text, nil
}
