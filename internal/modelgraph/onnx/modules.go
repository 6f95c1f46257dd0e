package onnx

import (
	"slices"
	"strings"

	"vramscope/internal/modelgraph"
)

// stackOf is the modules that a node belongs to: torch.onnx's metadata, or
// names such as "/layer1/layer1.0/conv1/Conv" that its older exporter makes.
func stackOf(n *nodeProto, producer string) []modelgraph.Frame {
	if n.scopes != "" {
		return scopeFrames(quoted(n.scopes), quoted(n.classes))
	}
	if !strings.HasPrefix(n.name, "/") || producer != "pytorch" {
		return nil
	}
	parts := strings.Split(n.name[1:], "/")
	fs := []modelgraph.Frame{}
	path, last := "", ""
	for _, p := range parts[:min(len(parts)-1, maxStack)] {
		switch {
		case path == "":
			path = p
		case strings.HasPrefix(p, last+"."):
			path += p[len(last):]
		default:
			path += "." + p
		}
		last = p
		fs = append(fs, modelgraph.Frame{Key: path, Path: path})
	}
	return fs
}

// maxStack limits nesting of modules.
const maxStack = 64

func scopeFrames(scopes, classes []string) []modelgraph.Frame {
	if len(scopes) < 2 || strings.HasPrefix(scopes[0], "_empty") {
		return nil
	}
	fs := []modelgraph.Frame{}
	for i, path := range scopes[:min(len(scopes)-1, maxStack)] {
		if path == "" {
			continue
		}
		f := modelgraph.Frame{Key: path, Path: path}
		if i < len(classes) {
			f.Class = classes[i]
		}
		fs = append(fs, f)
	}
	return fs
}

// quoted reads Python's list of strings: "[”, 'layer1']".
func quoted(list string) []string {
	parts := strings.Split(strings.Trim(list, "[]"), ", ")
	for i := range parts {
		parts[i] = strings.Trim(parts[i], `'"`)
	}
	return slices.Clip(parts)
}
