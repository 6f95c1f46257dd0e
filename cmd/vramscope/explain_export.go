package main

import (
	"context"
	"fmt"
	"io"

	"vramscope/internal/cli"
	"vramscope/internal/export"
	"vramscope/internal/holders"
	"vramscope/internal/timeline"
	"vramscope/replay"
)

// exportFormats are the formats of explain that other tools open. They show one
// snapshot.
var exportFormats = []string{"pprof", "perfetto", "folded", "csv"}

// runExport writes a snapshot for another tool.
func runExport(ctx context.Context, env *cli.Env, o *explainOptions, files []string) error {
	format := o.format.String()
	if len(files) != 1 {
		return fmt.Errorf("--format %s: wants one snapshot, got %d files", format, len(files))
	}
	p, err := openProgram(ctx, env, files[0], o.device)
	if err != nil {
		return err
	}
	a, err := holders.Analyze(ctx, p)
	if err != nil {
		return err
	}
	moment := a.PeakAllocated
	if x := a.Outcome.FatalOOM; x != nil {
		moment = x.Event
	}
	return cli.Output(env, o.output, func(w io.Writer) error {
		switch format {
		case "pprof":
			return export.PProf(w, a, moment)
		case "folded":
			return export.Folded(w, a, moment)
		}
		s, _, err := timeline.Of(ctx, p, replay.Scenario{})
		if err != nil {
			return err
		}
		if format == "csv" {
			return export.EventsCSV(w, a, s)
		}
		return export.Perfetto(w, a, s, int64(o.limit))
	})
}
