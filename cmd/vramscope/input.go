package main

import (
	"context"
	"fmt"

	"vramscope/internal/cli"
	"vramscope/replay"
	"vramscope/torchsnap"
	"vramscope/trace"
)

// readSnapshot reads a snapshot from a file, or from standard input for "-".
func readSnapshot(env *cli.Env, file string) (*trace.Trace, error) {
	p := newProgress(env, "reading "+file)
	defer p.end()
	opts := &torchsnap.Options{Progress: p.report}
	if file != "-" {
		return torchsnap.ReadFile(file, opts)
	}
	t, err := torchsnap.Read(env.Stdin, opts)
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return t, nil
}

// openProgram reads a snapshot and prepares one of its devices for replay: the
// given one, or for -1 the one with the most events.
func openProgram(ctx context.Context, env *cli.Env, file string, device int) (*replay.Program, error) {
	t, err := readSnapshot(env, file)
	if err != nil {
		return nil, err
	}
	d, err := chooseDevice(t, device)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(t.Devices) > 1 && device < 0 {
		fmt.Fprintf(env.Stderr, "%s: has %d devices; this is about device %d (--device chooses)\n", file, len(t.Devices), d.Ordinal)
	}
	return replay.Compile(t, d), nil
}

func chooseDevice(t *trace.Trace, ordinal int) (*trace.Device, error) {
	var best *trace.Device
	for i := range t.Devices {
		d := &t.Devices[i]
		if d.Ordinal == ordinal {
			return d, nil
		}
		if best == nil || d.Events.Len() > best.Events.Len() {
			best = d
		}
	}
	if ordinal >= 0 {
		return nil, fmt.Errorf("holds nothing of device %d", ordinal)
	}
	if best == nil || best.Events.Len() == 0 {
		return nil, fmt.Errorf("holds no events: record them with torch.cuda.memory._record_memory_history() before the memory is used")
	}
	return best, nil
}
