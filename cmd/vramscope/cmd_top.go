package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	xterm "golang.org/x/term"

	"vramscope/internal/cli"
	"vramscope/internal/gpu"
	"vramscope/internal/gpu/fake"
	"vramscope/internal/gpu/nvml"
	"vramscope/internal/monitor"
	"vramscope/internal/term"
	"vramscope/internal/top"
)

type topOptions struct {
	format  *cli.Format
	once    bool
	loop    float64
	demo    string
	library string
	wake    bool
}

func newTopCommand(env *cli.Env) *cobra.Command {
	var o topOptions
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show who is using the cards now",
		Long: `Top shows the cards of this machine with their memory, activity and health, and
the processes on them with user, container, pod or Slurm job. Memory that no
visible process holds is shown as such, with what it is likely to be. What the
driver does not say is n/a with the reason, in JSON null, never 0.

On a terminal it follows the cards: s sorts, / filters, t shows the tree, p
pauses, k ends the selected process after a question, q quits. Elsewhere, or
with --once, it prints one sample; with -l one every so many seconds (JSON: an
object a line).

A card that does not answer, or has fallen off the bus, stays in the list with
its last values and their age. Cards that are powered down are not woken.

EXIT STATUS
  0  done
  2  wrong usage, or a scenario that cannot be read
  3  there is no driver here, or it does not work`,
		Example: `  vramscope top --demo --once
  vramscope top --once --format json
  vramscope top -l 5 --format csv
  vramscope top --demo=faults`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runTop(cmd.Context(), env, &o) },
	}
	fs := cmd.Flags()
	o.format = cli.FormatFlag(fs, "text", "json", "csv")
	fs.BoolVar(&o.once, "once", false, "print one sample and end")
	fs.Float64VarP(&o.loop, "loop", "l", 0, "seconds between samples (default 2 on a terminal)")
	fs.StringVar(&o.demo, "demo", "", "play a `SCENARIO` instead: "+strings.Join(fake.Names(), ", ")+", or a JSON file")
	fs.Lookup("demo").NoOptDefVal = "demo"
	fs.StringVar(&o.library, "nvml", "", "`PATH` of libnvidia-ml, where it is in no usual place")
	fs.BoolVar(&o.wake, "wake", false, "ask also cards that are powered down")
	complete(cmd, "format", o.format.Allowed())
	return cmd
}

func runTop(ctx context.Context, env *cli.Env, o *topOptions) error {
	if o.loop < 0 || o.loop > 0 && o.loop < 0.1 {
		return errors.New("--loop: want 0.1 seconds or more; each question costs the driver time")
	}
	var driver gpu.Driver
	var files monitor.Files = monitor.HostFiles{}
	end := func(p monitor.Process) error { return top.EndProcess(files, p) }
	if o.demo != "" {
		s, err := scenario(o.demo)
		if err != nil {
			return err
		}
		played := fake.New(s)
		driver, files = played, played.Files()
		end = func(monitor.Process) error { return errors.New("this is a demonstration: nothing was ended") }
	} else {
		d, err := nvml.Open(nvml.Options{Library: o.library, Wake: o.wake})
		if err != nil {
			return cli.Cannot(fmt.Errorf("top: %w; --demo shows what it would look like", err))
		}
		driver = d
	}
	defer driver.Close()
	m := monitor.New(driver, files)
	stop := make(chan struct{})
	defer close(stop)
	go m.Watch(stop)

	out, isFile := env.Stdout.(*os.File)
	printer := term.New(env.Stdout, env.Getenv)
	view := top.View{Width: printer.Width, Color: printer.Color, Cursor: -1, ASCII: !utf8Locale(env.Getenv)}
	if isFile && xterm.IsTerminal(int(out.Fd())) && !o.once && o.format.String() == "text" {
		interval := 2 * time.Second
		if o.loop > 0 {
			interval = time.Duration(o.loop * float64(time.Second))
		}
		screen := top.Screen{
			Sample: func() *monitor.Sample { return m.Sample(min(interval, time.Second)) },
			End:    end, Interval: interval, View: view, In: env.Stdin, Out: env.Stdout,
		}
		return screen.Run(ctx)
	}
	for n := 0; ; n++ {
		patience := 10 * time.Second
		if n > 0 {
			patience = time.Second
		}
		s := m.Sample(patience)
		if s.Problem != "" && n == 0 && len(s.Cards) == 0 {
			return cli.Cannot(errors.New("top: " + s.Problem))
		}
		view.Sample = s
		if err := printSample(env.Stdout, o, &view, n); err != nil {
			return err
		}
		if o.once || o.loop == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(o.loop * float64(time.Second))):
		}
	}
}

func printSample(w io.Writer, o *topOptions, view *top.View, n int) error {
	switch o.format.String() {
	case "json":
		return top.WriteJSON(w, view.Sample, o.once || o.loop == 0)
	case "csv":
		return top.WriteCSV(w, view.Sample, n == 0)
	}
	_, err := io.WriteString(w, strings.Join(view.Render(), "\n")+"\n")
	return err
}

// scenario reads an embedded scenario or a file.
func scenario(name string) (*fake.Scenario, error) {
	if !strings.ContainsAny(name, "./\\") {
		return fake.Load(name)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	s, err := fake.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// utf8Locale says whether block characters can be expected to show.
func utf8Locale(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return true
}
