package pt2

import (
	"strings"

	"vramscope/internal/modelgraph"
)

// maxStack limits nesting of modules.
const maxStack = 64

// parseStack reads "key,path,class;key,path,class;…", outermost first, without
// the model itself; the key of a second call of a module differs ("L__self__drop@1"). ok is false where there is none.
func parseStack(text string) (fs []modelgraph.Frame, ok bool) {
	if text == "" || strings.HasPrefix(text, "_empty_nn_module_stack") {
		return nil, false
	}
	for entry := range strings.SplitSeq(text, ";") {
		key, rest, _ := strings.Cut(entry, ",")
		path, class, _ := strings.Cut(rest, ",")
		if path == "" {
			continue
		}
		fs = append(fs, modelgraph.Frame{Key: key, Path: path, Class: class})
		if len(fs) == maxStack {
			break
		}
	}
	return fs, true
}
