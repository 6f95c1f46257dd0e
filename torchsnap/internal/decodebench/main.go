// Decodebench compares reading a snapshot here and by CPython's pickle.load:
// the same file, one after the other, several times, each in a process of its
// own, and the best of each counts.
//
//	go run ./torchsnap/internal/decodebench FILE
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"vramscope/torchsnap"
)

const rounds = 3

// python reads the file sys.argv[1], with the collector off if there is a
// second argument, and prints the seconds that it took, by the clock and of
// the processor.
const python = `
import gc, pickle, sys, time
if len(sys.argv) > 2: gc.disable()
wall, cpu = time.perf_counter(), time.process_time()
with open(sys.argv[1], "rb") as f: x = pickle.load(f)
print([time.perf_counter() - wall, time.process_time() - cpu], flush=True)
import os
os._exit(0)
`

// reader is one way to read the file.
type reader struct {
	name    string
	command func(path string) *exec.Cmd
	seconds float64 // by the clock, the best
	cpu     float64 // of all threads, the best; what counts on a busy machine
	rss     int64   // peak of that process, bytes
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "-child" {
		child(os.Args[2])
		return
	}
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: decodebench FILE (not compressed)")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func child(path string) {
	start := time.Now()
	t, err := torchsnap.ReadFile(path, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cpu := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	json.NewEncoder(os.Stdout).Encode([]float64{time.Since(start).Seconds(), cpu.Seconds()})
	runtime.KeepAlive(t)
}

func run(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	readers := []*reader{
		{name: "torchsnap", command: func(p string) *exec.Cmd { return exec.Command(self, "-child", p) }},
		{name: "pickle.load", command: func(p string) *exec.Cmd { return exec.Command("python3", "-c", python, p) }},
		{name: "pickle.load, collector off", command: func(p string) *exec.Cmd { return exec.Command("python3", "-c", python, p, "off") }},
	}
	for range rounds {
		for _, r := range readers {
			if err := r.measure(path); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	size := float64(info.Size())
	fmt.Printf("%s: %.1f MB\n", path, size/1e6)
	for _, r := range readers {
		fmt.Printf("%-28s %7.3f s %7.1f MB/s %7.3f s CPU, peak %.2f of the file; %.1f times torchsnap's time, %.1f its CPU\n",
			r.name, r.seconds, size/1e6/r.seconds, r.cpu, float64(r.rss)/size, r.seconds/readers[0].seconds, r.cpu/readers[0].cpu)
	}
	return nil
}

func (r *reader) measure(path string) error {
	cmd := r.command(path)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var t [2]float64
	if err := json.Unmarshal(out, &t); err != nil {
		return err
	}
	if r.seconds == 0 || t[0] < r.seconds {
		r.seconds = t[0]
	}
	if r.cpu == 0 || t[1] < r.cpu {
		r.cpu = t[1]
	}
	r.rss = max(r.rss, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss*1024)
	return nil
}
