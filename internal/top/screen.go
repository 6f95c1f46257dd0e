package top

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"

	"vramscope/internal/gpu"
	"vramscope/internal/monitor"
	"vramscope/internal/term"
)

// Screen follows a monitor on a terminal.
type Screen struct {
	Sample   func() *monitor.Sample // waits for the cards a little
	End      func(monitor.Process) error
	Interval time.Duration
	View     View
	In       io.Reader
	Out      io.Writer
}

// Run shows the screen until the user quits or ctx ends.
func (s *Screen) Run(ctx context.Context) error {
	s.View.History, s.View.Xids = map[string][]float64{}, map[string][]uint64{}
	s.View.Cursor = -1
	m := &model{screen: s, view: s.View}
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(s.In), tea.WithOutput(s.Out), tea.WithFPS(10)).Run()
	return err
}

// model is the state between messages. Keys change it in press, which knows
// no terminal.
type model struct {
	screen    *Screen
	view      View
	filtering bool
	ending    *monitor.Process // the process of the open question
}

type sampled struct{ sample *monitor.Sample }

func (m *model) take() tea.Msg { return sampled{m.screen.Sample()} }

func (m *model) later() tea.Cmd {
	return tea.Tick(m.screen.Interval, func(time.Time) tea.Msg { return m.take() })
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return m.take }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.view.Width, m.view.Height = msg.Width, msg.Height
	case sampled:
		m.receive(msg.sample)
		return m, m.later()
	case tea.KeyPressMsg:
		if m.press(msg.String(), msg.Text) {
			return m, tea.Quit
		}
	}
	return m, nil
}

// View implements tea.Model.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.view.Render(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "vramscope top"
	return v
}

// historyLength is what the widest spark line shows.
const historyLength = 120

func (m *model) receive(s *monitor.Sample) {
	for _, e := range s.Events {
		if e.Kind == "xid" {
			m.view.Xids[e.Card] = append(m.view.Xids[e.Card], e.Xid)
		}
	}
	for i := range s.Cards {
		c := &s.Cards[i]
		if part, ok := share(&c.Memory); ok && c.State == gpu.OK {
			h := append(m.view.History[c.Key()], part)
			m.view.History[c.Key()] = h[max(0, len(h)-historyLength):]
		}
	}
	if m.view.Paused {
		return
	}
	// The cursor stays on its process, not on its place.
	var key string
	if rows := m.rows(); m.view.Cursor >= 0 && m.view.Cursor < len(rows) {
		key = rows[m.view.Cursor].proc.Key()
	}
	m.view.Sample = s
	if key != "" {
		m.view.Cursor = slices.IndexFunc(m.rows(), func(r row) bool { return r.proc.Key() == key })
	}
}

func (m *model) rows() []row {
	if m.view.Sample == nil {
		return nil
	}
	return m.view.rows()
}

// press acts on a key and says whether it ends the program.
func (m *model) press(key, text string) (quit bool) {
	if key == "ctrl+c" {
		return true
	}
	switch {
	case m.ending != nil:
		p := *m.ending
		m.ending, m.view.Prompt = nil, ""
		if key != "y" && key != "Y" {
			return false
		}
		m.view.Prompt = fmt.Sprintf("asked PID %d to end", p.PID)
		if err := m.screen.End(p); err != nil {
			m.view.Prompt = err.Error()
		}
		return false
	case m.filtering:
		switch key {
		case "enter":
			m.filtering, m.view.Prompt = false, ""
			return false
		case "esc":
			m.filtering, m.view.Filter, m.view.Prompt = false, "", ""
			return false
		case "backspace":
			if r := []rune(m.view.Filter); len(r) > 0 {
				m.view.Filter = string(r[:len(r)-1])
			}
		default:
			m.view.Filter += term.Safe(text)
		}
		m.view.Prompt = "filter: " + m.view.Filter + "_   (Enter keeps, Esc clears)"
		return false
	}
	m.view.Prompt = ""
	switch key {
	case "q":
		return true
	case "s":
		m.view.Sort = (m.view.Sort + 1) % Sort(len(sortNames))
	case "t":
		m.view.Tree = !m.view.Tree
	case "p", "space":
		m.view.Paused = !m.view.Paused
	case "/":
		m.filtering, m.view.Prompt = true, "filter: "+m.view.Filter+"_   (Enter keeps, Esc clears)"
	case "esc":
		m.view.Cursor, m.view.Filter = -1, ""
	case "down", "j":
		m.view.Cursor = min(m.view.Cursor+1, len(m.rows())-1)
	case "up":
		m.view.Cursor = max(m.view.Cursor-1, -1)
	case "k":
		rows := m.rows()
		if m.view.Cursor < 0 || m.view.Cursor >= len(rows) {
			m.view.Prompt = "select a process with ↑ and ↓ first"
			return false
		}
		p := rows[m.view.Cursor].proc
		if p.Hidden != "" {
			m.view.Prompt = fmt.Sprintf("PID %d cannot be ended from here: %s", p.PID, p.Hidden)
			return false
		}
		m.ending = &p
		m.view.Prompt = fmt.Sprintf("end PID %d (%s: %s) with SIGTERM? y/N", p.PID, p.User, term.Safe(p.Command))
	}
	return false
}

// EndProcess sends SIGTERM to a process, if its PID is still that process.
func EndProcess(files monitor.Files, p monitor.Process) error {
	now := monitor.StartOf(files, p.PID)
	if now == 0 || now != p.Start {
		return fmt.Errorf("PID %d is no longer that process", p.PID)
	}
	proc, err := os.FindProcess(p.PID)
	if err != nil {
		return err
	}
	if err := proc.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("PID %d: %w", p.PID, err)
	}
	return nil
}
