package oomlog

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"vramscope/bytesize"
)

// SMI is what nvidia-smi printed. nvidia-smi's MiB are binary.
type SMI struct {
	// Form is "table", "query" (-q), "xml" (-q -x) or "csv".
	Form   string   `json:"form"`
	Driver string   `json:"driver,omitempty"`
	CUDA   string   `json:"cuda,omitempty"`
	GPUs   []SMIGPU `json:"gpus"`
	// Processes of a CSV list of applications have GPU -1.
	Processes []SMIProcess `json:"processes"`
	// Missing says in words what this output does not show.
	Missing []string `json:"missing"`
}

// SMIGPU is a card. Total counts what the driver reserves for itself where
// Reserved is known; Used then does not.
type SMIGPU struct {
	Index    int            `json:"index"`
	Name     string         `json:"name"`
	BusID    string         `json:"bus_id,omitempty"`
	UUID     string         `json:"uuid,omitempty"`
	Total    *bytesize.Size `json:"total_bytes"`
	Reserved *bytesize.Size `json:"reserved_bytes"`
	Used     *bytesize.Size `json:"used_bytes"`
	Free     *bytesize.Size `json:"free_bytes"`
	MIG      string         `json:"mig,omitempty"`
}

// SMIProcess is a process with memory on a card. Used is nil where nvidia-smi
// prints N/A, as on Windows.
type SMIProcess struct {
	GPU  int            `json:"gpu"`
	PID  int            `json:"pid"`
	Type string         `json:"type,omitempty"`
	Name string         `json:"name,omitempty"`
	Used *bytesize.Size `json:"used_bytes"`
}

// ParseSMI reads the output of nvidia-smi in any of its forms.
func ParseSMI(r io.Reader) (SMI, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxPaste))
	if err != nil {
		return SMI{}, err
	}
	var s SMI
	switch {
	case bytes.Contains(data, []byte("<nvidia_smi_log>")):
		s, err = parseSMIXML(data)
	case bytes.Contains(data, []byte("NVSMI LOG")):
		s = parseSMIQuery(string(data))
	case bytes.Contains(data, []byte("NVIDIA-SMI")):
		s = parseSMITable(string(data))
	default:
		s, err = parseSMICSV(data)
	}
	if err != nil {
		return s, err
	}
	if len(s.GPUs) == 0 && len(s.Processes) == 0 {
		return s, errors.New("no card and no process in this output of nvidia-smi")
	}
	s.say()
	return s, nil
}

// say fills in Missing.
func (s *SMI) say() {
	if len(s.GPUs) == 0 {
		s.Missing = append(s.Missing, "the cards: run nvidia-smi without --query-compute-apps")
	}
	for _, g := range s.GPUs {
		if g.Total == nil || g.Used == nil {
			s.Missing = append(s.Missing, fmt.Sprintf("the memory of card %d", g.Index))
			continue
		}
		var held bytesize.Size
		unknown := false
		n := 0
		for _, p := range s.Processes {
			if p.GPU != g.Index {
				continue
			}
			n++
			if p.Used == nil {
				unknown = true
			} else {
				held += *p.Used
			}
		}
		switch {
		case s.Form == "csv":
		case unknown:
			s.Missing = append(s.Missing, fmt.Sprintf("the memory of each process on card %d (N/A: Windows, or no permission)", g.Index))
		case n == 0 && *g.Used > 256*bytesize.MiB:
			s.Missing = append(s.Missing, fmt.Sprintf("who holds %v on card %d: no process is listed, which is usual inside a container; run nvidia-smi on the host", *g.Used, g.Index))
		case *g.Used-held > 512*bytesize.MiB:
			s.Missing = append(s.Missing, fmt.Sprintf("who holds %v of card %d: the processes listed hold %v of %v", *g.Used-held, g.Index, held, *g.Used))
		}
	}
	if s.Form == "csv" && len(s.Processes) == 0 {
		s.Missing = append(s.Missing, "the processes: run nvidia-smi")
	}
	s.Missing = append(s.Missing, "what was there when the job failed: this is one moment")
}

// mib reads "3599 MiB", "3599MiB" or "3599"; N/A gives nil.
func mib(text string) *bytesize.Size {
	text = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "MiB"))
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 0 || v > 1<<40 {
		return nil
	}
	size := bytesize.Size(v) * bytesize.MiB
	return &size
}

var (
	smiVersions = regexp.MustCompile(`Driver Version: *([\d.]+)(?: *CUDA Version: *([\d.]+))?`)
	smiName     = regexp.MustCompile(`^\| +(\d+) +(.+?) +(?:On|Off|N/A|TCC|WDDM|MCDM) *\| +([0-9A-Fa-f]{8}:[0-9A-Fa-f:.]+) `)
	smiMemory   = regexp.MustCompile(`(\d+) ?MiB */ *(\d+) ?MiB`)
	smiMIG      = regexp.MustCompile(`\| +(Enabled|Disabled|Enabled\*|Disabled\*|N/A) \|\s*$`)
	smiProcess  = regexp.MustCompile(`^\| +(\d+) +(?:\S+ +\S+ +)?(\d+) +([CGM+]+) +(.+?) +(\d+ ?MiB|N/A) *\|`)
)

// parseSMITable reads the table that nvidia-smi prints by itself.
func parseSMITable(text string) SMI {
	s := SMI{Form: "table"}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if m := smiVersions.FindStringSubmatch(line); m != nil && s.Driver == "" {
			s.Driver, s.CUDA = m[1], m[2]
		}
		if m := smiName.FindStringSubmatch(line); m != nil {
			i, _ := strconv.Atoi(m[1])
			s.GPUs = append(s.GPUs, SMIGPU{Index: i, Name: m[2], BusID: m[3]})
			continue
		}
		if m := smiProcess.FindStringSubmatch(line); m != nil {
			i, _ := strconv.Atoi(m[1])
			pid, _ := strconv.Atoi(m[2])
			s.Processes = append(s.Processes, SMIProcess{GPU: i, PID: pid, Type: m[3], Name: m[4], Used: mib(m[5])})
			continue
		}
		if len(s.GPUs) == 0 {
			continue
		}
		g := &s.GPUs[len(s.GPUs)-1]
		if m := smiMemory.FindStringSubmatch(line); m != nil && g.Total == nil {
			g.Used, g.Total = mib(m[1]), mib(m[2])
		} else if m := smiMIG.FindStringSubmatch(line); m != nil && g.MIG == "" {
			g.MIG = m[1]
		}
	}
	return s
}

// parseSMIQuery reads nvidia-smi -q, whose sections are indented lists.
func parseSMIQuery(text string) SMI {
	s := SMI{Form: "query"}
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \r\n")
		indent := len(line) - len(strings.TrimLeft(line, " "))
		key, value, pair := strings.Cut(strings.TrimSpace(line), " : ")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if strings.HasPrefix(line, "GPU ") {
			s.GPUs = append(s.GPUs, SMIGPU{Index: len(s.GPUs), BusID: strings.TrimPrefix(line, "GPU ")})
			section = ""
			continue
		}
		switch key {
		case "Driver Version":
			s.Driver = value
		case "CUDA Version":
			s.CUDA = value
		}
		if len(s.GPUs) == 0 {
			continue
		}
		if !pair {
			if indent <= 4 {
				section = key
			}
			continue
		}
		if indent <= 4 {
			section = key
		}
		g := &s.GPUs[len(s.GPUs)-1]
		last := len(s.Processes) - 1
		switch {
		case key == "Product Name":
			g.Name = value
		case key == "GPU UUID":
			g.UUID = value
		case section == "MIG Mode" && key == "Current":
			g.MIG = value
		case section == "FB Memory Usage":
			switch key {
			case "Total":
				g.Total = mib(value)
			case "Reserved":
				g.Reserved = mib(value)
			case "Used":
				g.Used = mib(value)
			case "Free":
				g.Free = mib(value)
			}
		case section == "Processes" && key == "Process ID":
			if pid, err := strconv.Atoi(value); err == nil {
				s.Processes = append(s.Processes, SMIProcess{GPU: g.Index, PID: pid})
			}
		case section == "Processes" && last >= 0 && s.Processes[last].GPU == g.Index:
			switch key {
			case "Type":
				s.Processes[last].Type = value
			case "Name":
				s.Processes[last].Name = value
			case "Used GPU Memory":
				s.Processes[last].Used = mib(value)
			}
		}
	}
	return s
}

// parseSMIXML reads nvidia-smi -q -x.
func parseSMIXML(data []byte) (SMI, error) {
	var v struct {
		Driver string `xml:"driver_version"`
		CUDA   string `xml:"cuda_version"`
		GPUs   []struct {
			ID     string `xml:"id,attr"`
			Name   string `xml:"product_name"`
			UUID   string `xml:"uuid"`
			MIG    string `xml:"mig_mode>current_mig"`
			Memory struct {
				Total    string `xml:"total"`
				Reserved string `xml:"reserved"`
				Used     string `xml:"used"`
				Free     string `xml:"free"`
			} `xml:"fb_memory_usage"`
			Processes []struct {
				PID  int    `xml:"pid"`
				Type string `xml:"type"`
				Name string `xml:"process_name"`
				Used string `xml:"used_memory"`
			} `xml:"processes>process_info"`
		} `xml:"gpu"`
	}
	if err := xml.Unmarshal(data, &v); err != nil {
		return SMI{}, fmt.Errorf("nvidia-smi -q -x: %w", err)
	}
	s := SMI{Form: "xml", Driver: v.Driver, CUDA: v.CUDA}
	for i, g := range v.GPUs {
		s.GPUs = append(s.GPUs, SMIGPU{Index: i, Name: g.Name, BusID: g.ID, UUID: g.UUID, MIG: g.MIG,
			Total: mib(g.Memory.Total), Reserved: mib(g.Memory.Reserved), Used: mib(g.Memory.Used), Free: mib(g.Memory.Free)})
		for _, p := range g.Processes {
			s.Processes = append(s.Processes, SMIProcess{GPU: i, PID: p.PID, Type: p.Type, Name: p.Name, Used: mib(p.Used)})
		}
	}
	return s, nil
}

// parseSMICSV reads --query-gpu and --query-compute-apps with --format=csv.
func parseSMICSV(data []byte) (SMI, error) {
	s := SMI{Form: "csv"}
	in := csv.NewReader(bytes.NewReader(data))
	in.TrimLeadingSpace, in.FieldsPerRecord = true, -1
	var column map[string]int
	for {
		row, err := in.Read()
		if err == io.EOF {
			return s, nil
		}
		if err != nil {
			return s, fmt.Errorf("nvidia-smi's CSV: %w", err)
		}
		if named := columns(row); named != nil {
			column = named
			continue
		}
		if column == nil {
			return s, errors.New("nvidia-smi's CSV without its header: run it again without noheader")
		}
		cell := func(names ...string) string {
			for _, n := range names {
				if i, ok := column[n]; ok && i < len(row) {
					return strings.TrimSpace(row[i])
				}
			}
			return ""
		}
		if pid, err := strconv.Atoi(cell("pid")); err == nil {
			s.Processes = append(s.Processes, SMIProcess{GPU: -1, PID: pid, Name: cell("process_name", "name"), Used: mib(cell("used_gpu_memory", "used_memory"))})
			continue
		}
		index, err := strconv.Atoi(cell("index"))
		if err != nil {
			index = len(s.GPUs)
		}
		s.Driver = cell("driver_version")
		s.GPUs = append(s.GPUs, SMIGPU{Index: index, Name: cell("name", "gpu_name"), BusID: cell("pci.bus_id"), UUID: cell("uuid", "gpu_uuid"), MIG: cell("mig.mode.current"),
			Total: mib(cell("memory.total")), Reserved: mib(cell("memory.reserved")), Used: mib(cell("memory.used")), Free: mib(cell("memory.free"))})
	}
}

// columns reads a header row: "memory.total [MiB]" is the column memory.total.
func columns(row []string) map[string]int {
	out := map[string]int{}
	known := false
	for i, name := range row {
		name, _, _ = strings.Cut(strings.TrimSpace(name), " [")
		out[name] = i
		known = known || strings.HasPrefix(name, "memory.") || name == "pid"
	}
	if !known {
		return nil
	}
	return out
}
