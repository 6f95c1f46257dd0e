package oomlog

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// line is a line of the log as the program wrote it: without the colours and
// prefixes that terminals, launchers and runtimes add. A progress bar that
// rewrites itself gives one for each state, all with the same number.
type line struct {
	number int
	offset int64 // of the physical line
	at     int64 // of this state of it
	text   []byte
	full   []byte // with its prefixes
	source source
	level  byte // 'E', 'W', 'I' or 0, from a logger's prefix
	width  int  // visible columns of the line with its prefixes
	bare   bool // nothing was stripped
	label  int  // the length of a "3: " or "> " at its start
	notes  *notes
	joins  bool // goes on in the next line of its stream without a separator
}

// source is who wrote a line, as its prefixes say.
type source struct {
	container string
	worker    string
	rank      int // -1 when unknown
}

func (s source) String() string {
	w := s.worker
	if s.rank >= 0 && w == "" {
		w = "rank" + strconv.Itoa(s.rank)
	}
	if s.container != "" && w != "" {
		return s.container + "/" + w
	}
	return s.container + w
}

// maxLine bounds what is treated as one line; longer ones are cut.
const maxLine = 32 << 10

// splitLines cuts a piece of the input into lines. number and offset belong to
// its first byte.
func splitLines(data []byte, offset int64, number int) []line {
	var out []line
	for len(data) > 0 {
		physical, rest, found := bytes.Cut(data, []byte("\n"))
		at := offset
		for piece := physical; ; {
			cut := piece
			if len(cut) > maxLine {
				cut = cut[:maxLine]
			}
			more := len(cut) < len(piece)
			out = appendLine(out, cut, at, number)
			if more && len(out) > 0 {
				out[len(out)-1].joins = true
			}
			if !more {
				break
			}
			piece = piece[len(cut):]
			at += int64(len(cut))
		}
		offset += int64(len(physical))
		if found {
			offset++
			number++
		}
		data = rest
	}
	markWraps(out)
	return out
}

// appendLine normalises one physical line.
func appendLine(out []line, raw []byte, offset int64, number int) []line {
	src := source{rank: -1}
	if inner, ok := dockerLog(raw); ok {
		return appendStates(out, inner, offset, number, src, false)
	}
	return appendStates(out, raw, offset, number, src, true)
}

func appendStates(out []line, raw []byte, offset int64, number int, src source, bare bool) []line {
	if embedded := bytes.Count(raw, []byte(`\n`)); embedded >= 2 && bytes.Contains(raw, []byte("Traceback (most")) {
		raw = bytes.ReplaceAll(raw, []byte(`\n`), []byte("\r")) // a traceback inside a JSON or repr string
	}
	start := len(out)
	all := len(raw)
	for len(raw) > 0 {
		at := offset + int64(all-len(raw))
		state, rest, _ := bytes.Cut(raw, []byte("\r"))
		raw = rest
		if len(bytes.TrimSpace(state)) == 0 {
			continue
		}
		text := stripANSI(state)
		l := line{number: number, offset: offset, at: at, full: text, width: utf8.RuneCount(text), source: src}
		l.text, l.source, l.level, l.joins = stripPrefixes(text, src)
		l.bare = bare && len(l.text) == len(text) && l.source == src
		if m := labels.FindIndex(text); bare && m != nil {
			l.label = m[1]
		}
		out = append(out, l)
	}
	if len(out) == start {
		out = append(out, line{number: number, offset: offset, at: offset, source: src, bare: true})
	}
	return out
}

// dockerLog reads a line of Docker's json-file driver.
func dockerLog(raw []byte) ([]byte, bool) {
	if !bytes.HasPrefix(raw, []byte(`{"log":"`)) {
		return nil, false
	}
	var v struct{ Log string }
	if json.Unmarshal(raw, &v) != nil {
		return nil, false
	}
	return bytes.TrimRight([]byte(v.Log), "\r\n"), true
}

// stripANSI removes terminal control sequences (ECMA-48 CSI and OSC).
func stripANSI(s []byte) []byte {
	if bytes.IndexByte(s, 0x1b) < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != 0x1b {
			out = append(out, s[i])
			continue
		}
		if i++; i >= len(s) {
			break
		}
		switch s[i] {
		case '[':
			for i++; i < len(s) && (s[i] < 0x40 || s[i] > 0x7e); i++ {
			}
		case ']':
			for i++; i < len(s) && s[i] != 0x07 && s[i] != 0x1b; i++ {
			}
			if i+1 < len(s) && s[i] == 0x1b {
				i++
			}
		}
	}
	return out
}

// prefix is a form of line prefix. first holds the bytes it can begin with, so
// that most lines try one or two.
type prefix struct {
	first string
	form  *regexp.Regexp
	// The submatch that names each of these, 0 for none.
	rank, worker, container, level, partial int
}

const digits = "0123456789"

const upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

const lower = "abcdefghijklmnopqrstuvwxyz"

var slurmLabel = regexp.MustCompile(`^ {0,4}(\d{1,5}): `)

// labels are prefixes that the rest of a wrapped line can look like.
var labels = regexp.MustCompile(`^(?: {0,4}\d{1,5}: |> )`)

var prefixes = []prefix{
	// Kubernetes CRI: time, stream, P for a part of a line or F.
	{first: digits, form: regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d) std(?:out|err) ([PF]) ?`), partial: 1},
	// ISO and Python logging times, with what follows them in TensorFlow and absl.
	{first: digits, form: regexp.MustCompile(`^\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?[:,]? ?`)},
	{first: digits, form: regexp.MustCompile(`^\d\d:\d\d:\d\d(?:[.,]\d+)? `)},
	{first: "[", form: regexp.MustCompile(`^\[\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\] ?`)},
	{first: "[", form: regexp.MustCompile(`^\[ *\d+\.\d{6}\] `)},
	// syslog and journald.
	{first: upper, form: regexp.MustCompile(`^(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d (?:[\w.-]+ )(?:[\w./-]+(?:\[\d+\])?: )?`)},
	{first: lower, form: regexp.MustCompile(`^[\w.-]+ (?:systemd|dockerd|python3?|kernel|bash|srun|slurmstepd)(?:\[\d+\])?: `)},
	// torchrun, torch's own rank prefix, mpirun --tag-output, PMI, pdsh.
	{first: "[", form: regexp.MustCompile(`^\[(?:rank|default|Rank |RANK )(\d+)\]:? ?`), rank: 1},
	{first: "[", form: regexp.MustCompile(`^\[\d+,(\d+)\]<std(?:out|err|diag)>: ?`), rank: 1},
	{first: "[", form: regexp.MustCompile(`^\[[A-Za-z][\w.-]*:(\d+)\]: ?`), rank: 1},
	{first: "[", form: regexp.MustCompile(`^\[(\d{1,5})\]:? `), rank: 1},
	{first: "[", form: regexp.MustCompile(`^\[((?:pod|deployment|job)/[\w./-]+)\] `), container: 1},
	// Slurm's srun --label.
	{first: digits + " ", form: slurmLabel, rank: 1},
	// Ray and vLLM workers.
	{first: "(", form: regexp.MustCompile(`^\((\w*?(?:_?(?:TP|DP|PP|EP)(\d+))? ?(?:rank=(\d+) )?pid=\d+(?:, ip=[\d.]+)?)\) ?`), worker: 1, rank: 2},
	// docker compose, and workers named by their rank.
	{first: lower + upper, form: regexp.MustCompile(`^([a-z][\w.-]*?) {0,40}\| `), container: 1},
	{first: lower, form: regexp.MustCompile(`^((?:rank-)?worker-(\d+)): `), worker: 1, rank: 2},
	// vLLM: level, time, place.
	{first: upper, form: regexp.MustCompile(`^(INFO|WARNING|ERROR|DEBUG|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d (?:\[[\w./-]+(?::\d+)?\] ?|[\w./-]+:\d+\] ?)?`), level: 1},
	// Quoted in a mail or an issue.
	{first: ">", form: regexp.MustCompile(`^> `)},
}

// stripPrefixes removes what others put in front of a line, several deep.
func stripPrefixes(text []byte, src source) (rest []byte, _ source, level byte, partial bool) {
	for range 6 {
		if len(text) == 0 {
			break
		}
		stripped := false
		for i := range prefixes {
			p := &prefixes[i]
			if strings.IndexByte(p.first, text[0]) < 0 {
				continue
			}
			head := text[:min(len(text), 200)]
			m := p.form.FindSubmatchIndex(head)
			if m == nil || m[1] == 0 {
				continue
			}
			group := func(i int) string {
				if i == 0 || m[2*i] < 0 {
					return ""
				}
				return string(head[m[2*i]:m[2*i+1]])
			}
			if r := group(p.rank); r != "" {
				src.rank, _ = strconv.Atoi(r)
			} else if p.worker == 1 && p.rank == 2 && len(m) >= 8 {
				if r := group(3); r != "" {
					src.rank, _ = strconv.Atoi(r)
				}
			}
			if w := group(p.worker); w != "" {
				src.worker = w
			}
			if c := group(p.container); c != "" {
				src.container = c
			}
			if l := group(p.level); l != "" {
				level = l[0]
			}
			partial = partial || group(p.partial) == "P"
			text = text[m[1]:]
			stripped = true
			break
		}
		if !stripped {
			break
		}
	}
	return text, src, level, partial
}

// usualWidths are terminal widths at which one full line is enough to believe in
// a wrap.
var usualWidths = map[int]bool{80: true, 100: true, 120: true, 132: true}

// markWraps finds lines that a terminal broke: as wide as the widest around
// them, and followed by a line without a prefix. Such a line goes on in the next,
// which then belongs to the same source.
func markWraps(lines []line) {
	const near = 8
	for i := range lines[:max(0, len(lines)-1)] {
		l, next := &lines[i], &lines[i+1]
		if l.width >= 40 && next.label > 0 && len(next.text) == len(next.full)-next.label && next.number != l.number && alone(lines, i+1) {
			// The end of a wrapped line can look like a label.
			next.text, next.source, next.bare = next.full, source{rank: -1}, true
		}
		if l.joins || l.width < 40 || !next.bare || next.number == l.number || len(next.text) == 0 {
			if l.joins && next.bare {
				next.source = l.source
			}
			continue
		}
		same, widest := 0, 0
		for _, o := range lines[max(0, i-near):min(len(lines), i+near+1)] {
			widest = max(widest, o.width)
			if o.width == l.width {
				same++
			}
		}
		if l.width == widest && (same > 1 || usualWidths[l.width]) {
			l.joins = true
			next.source = l.source
		}
	}
}

// alone reports whether no line near line i has a label of its kind.
func alone(lines []line, i int) bool {
	for j := max(0, i-8); j < min(len(lines), i+9); j++ {
		if j != i && lines[j].label > 0 && lines[j].number != lines[i].number {
			return false
		}
	}
	return true
}
