package oomlog

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"vramscope/bytesize"
)

// setField stores what a pattern's group read. name decides where it goes; a name
// without a field of its own becomes a [Detail].
func setField(f *Failure, name, typ, text string, decimal bool) {
	switch name {
	case "device", "rank":
		n, err := strconv.Atoi(text)
		if err != nil || n > 1<<20 {
			return
		}
		if name == "device" {
			f.Device = &n
		} else {
			f.Rank = &n
		}
		return
	case "pid":
		if n, err := strconv.Atoi(text); err == nil {
			f.Details = append(f.Details, Detail{"pid", float64(n), "id"})
		}
		return
	case "where":
		f.Where = text
		return
	case "op":
		f.Op = text
		return
	case "dtype":
		f.DType = text
		return
	case "shape":
		f.Shape = parseShape(text)
		return
	case "procs":
		parseProcesses(f, text)
		return
	}
	if typ == "c" {
		if v, ok := number(text); ok {
			f.Details = append(f.Details, Detail{name, v, "count"})
		}
		return
	}
	size := parseSize(text, typ, decimal)
	if size == nil {
		return
	}
	switch name {
	case "tried":
		f.Tried = size
	case "capacity":
		f.Capacity = size
	case "limit":
		f.Limit = size
	case "free":
		f.Free = size
	case "allocated":
		f.Allocated = size
	case "reserved":
		f.Reserved = size
	case "unallocated":
		f.Unallocated = size
	case "private":
		f.PrivatePools = size
	case "this":
		f.ThisProcess = size
	default:
		f.Details = append(f.Details, Detail{name, float64(*size), "bytes"})
	}
}

// notAvailable is 2^64 bytes as PyTorch prints it: NVML's "not available", or
// the memory fraction of a process that has none.
const notAvailable = "17179869184.00GiB"

// parseSize reads a squeezed size. typ is the field type; decimal makes KB, MB
// and GB powers of ten. It returns nil for what is no number of bytes.
func parseSize(text, typ string, decimal bool) *bytesize.Size {
	if text == notAvailable {
		return nil
	}
	i := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' && r != ',' })
	unit := ""
	if i >= 0 {
		text, unit = text[:i], text[i:]
	}
	v, ok := number(text)
	if !ok {
		return nil
	}
	switch typ {
	case "g":
		unit = "GiB"
	case "m":
		unit = "MiB"
	}
	base := 1024.0
	if decimal && !strings.Contains(unit, "i") {
		base = 1000
	}
	switch strings.ToUpper(unit) {
	case "", "B", "BYTES":
	case "K", "KB", "KIB":
		v *= base
	case "M", "MB", "MIB":
		v *= base * base
	case "G", "GB", "GIB":
		v *= base * base * base
	case "T", "TB", "TIB":
		v *= base * base * base * base
	default:
		return nil
	}
	if v >= math.MaxInt64 {
		return nil
	}
	s := bytesize.Size(math.Round(v))
	return &s
}

var thousands = regexp.MustCompile(`^-?\d{1,3}(,\d{3})+(\.\d+)?$`)

// number reads digits with a decimal point, thousands commas or a decimal comma.
func number(text string) (float64, bool) {
	if strings.Contains(text, ",") {
		if thousands.MatchString(text) {
			text = strings.ReplaceAll(text, ",", "")
		} else {
			text = strings.Replace(strings.TrimRight(text, ","), ",", ".", 1)
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil && !math.IsInf(v, 0) && !math.IsNaN(v)
}

// parseShape reads "2,3,4", with or without brackets.
func parseShape(text string) []int64 {
	var out []int64
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("[]{}(), x", r) }) {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || len(out) == 32 {
			return nil
		}
		out = append(out, n)
	}
	return out
}

var processSyntax = regexp.MustCompile(`(?:Process([0-9]+)|this(process))has([0-9.]+(?:bytes|[KMGT]iB))`)

// parseProcesses reads PyTorch's list of processes, squeezed. A process whose
// memory NVML does not know is left out.
func parseProcesses(f *Failure, text string) {
	for _, m := range processSyntax.FindAllStringSubmatch(text, 256) {
		size := parseSize(m[3], "size", false)
		if size == nil {
			continue
		}
		if m[2] != "" {
			f.ThisProcess = size
			continue
		}
		if pid, err := strconv.Atoi(m[1]); err == nil {
			f.Processes = append(f.Processes, Process{PID: pid, Used: *size})
		}
	}
}
