package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/term"

	"vramscope/internal/cli"
)

// progress says on a terminal how far long work is. Nothing is printed in the
// first second, nor where standard error is no terminal.
type progress struct {
	env     *cli.Env
	what    string
	start   time.Time
	last    time.Time
	printed bool
	enabled bool
}

func newProgress(env *cli.Env, what string) *progress {
	f, ok := env.Stderr.(*os.File)
	now := time.Now()
	return &progress{env: env, what: what, start: now, last: now, enabled: ok && term.IsTerminal(int(f.Fd()))}
}

// report shows done of total; total is 0 where it is not known.
func (p *progress) report(done, total int64) {
	now := time.Now()
	if !p.enabled || now.Sub(p.start) < time.Second || now.Sub(p.last) < 100*time.Millisecond {
		return
	}
	p.last, p.printed = now, true
	if total > 0 {
		fmt.Fprintf(p.env.Stderr, "\r\x1b[K%s: %d %%", p.what, 100*done/total)
	} else {
		fmt.Fprintf(p.env.Stderr, "\r\x1b[K%s: %d", p.what, done)
	}
}

// end takes the line away.
func (p *progress) end() {
	if p.printed {
		fmt.Fprint(p.env.Stderr, "\r\x1b[K")
	}
}
