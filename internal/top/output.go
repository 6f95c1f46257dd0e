package top

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"vramscope/internal/gpu"
	"vramscope/internal/monitor"
)

// jsonSample is one sample in JSON; numbers that could not be had are null,
// and "missing" says why.
type jsonSample struct {
	Time    string        `json:"time"`
	System  gpu.System    `json:"system"`
	Problem string        `json:"problem"`
	Notes   []string      `json:"notes"`
	Host    *monitor.Host `json:"host_memory"`
	Cards   []jsonCard    `json:"cards"`
	Events  []gpu.Event   `json:"events"`
}

type jsonCard struct {
	gpu.Card
	Processes    []jsonProcess      `json:"processes"`
	Unattributed gpu.Reading[int64] `json:"unattributed_bytes"`
	Explain      string             `json:"unattributed_explanation"`
	Holders      []monitor.Holder   `json:"unlisted_holders"`
	Trend        *jsonTrend         `json:"trend"`
	Missing      map[string]string  `json:"missing"`
}

type jsonTrend struct {
	PerSecond float64 `json:"bytes_per_second"`
	Full      float64 `json:"seconds_to_full"`
	Basis     string  `json:"basis"`
}

type jsonProcess struct {
	PID    int                 `json:"pid"`
	Kind   gpu.Kind            `json:"kind"`
	Used   gpu.Reading[uint64] `json:"used_bytes"`
	SM     gpu.Reading[int]    `json:"sm_percent"`
	GPUID  *uint32             `json:"gpu_instance_id"`
	CompID *uint32             `json:"compute_instance_id"`
	monitor.Owner
	Missing map[string]string `json:"missing"`
}

// WriteJSON writes a sample as an object, indented or as one line.
func WriteJSON(w io.Writer, s *monitor.Sample, indent bool) error {
	out := jsonSample{
		Time: s.Time.UTC().Format(time.RFC3339Nano), System: s.System, Problem: s.Problem, Host: s.Host,
		Notes: orEmpty(s.Notes), Cards: []jsonCard{}, Events: orEmpty(s.Events),
	}
	for i := range s.Cards {
		c := &s.Cards[i]
		j := jsonCard{
			Card: c.Card, Unattributed: c.Unattributed, Explain: c.Explain, Holders: orEmpty(c.Hidden),
			Processes: []jsonProcess{}, Missing: c.Missing(),
		}
		j.Notes, j.Instances = orEmpty(j.Notes), orEmpty(j.Instances)
		if why := c.Unattributed.Why(); why != nil {
			j.Missing["unattributed_bytes"] = why.Error()
		}
		if c.Trend.PerSecond > 0 {
			j.Trend = &jsonTrend{c.Trend.PerSecond, c.Trend.Full.Seconds(), "estimated"}
		}
		for _, p := range c.Processes {
			jp := jsonProcess{PID: p.PID, Kind: p.Kind, Used: p.Used, SM: p.SM, Owner: p.Owner, Missing: map[string]string{}}
			if p.GPUID != gpu.NoInstance {
				jp.GPUID, jp.CompID = &p.GPUID, &p.CompID
			}
			if why := p.Used.Why(); why != nil {
				jp.Missing["used_bytes"] = why.Error()
			}
			if why := p.SM.Why(); why != nil {
				jp.Missing["sm_percent"] = why.Error()
			}
			if p.Hidden != "" {
				jp.Missing["owner"] = p.Hidden
			}
			j.Processes = append(j.Processes, jp)
		}
		out.Cards = append(out.Cards, j)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if indent {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(out)
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// csvColumns are the columns of WriteCSV: a row for each card ("card") and
// each process ("process"). A missing number is an empty field.
var csvColumns = []string{
	"time", "row", "index", "uuid", "name", "state", "age_seconds", "total_bytes", "reserved_bytes", "used_bytes", "free_bytes",
	"unattributed_bytes", "gpu_busy_percent", "power_watts", "temperature_celsius", "pid", "user", "slurm_job", "pod", "container", "command",
}

// WriteCSV writes a sample, with the header if asked.
func WriteCSV(w io.Writer, s *monitor.Sample, header bool) error {
	out := csv.NewWriter(w)
	if header {
		if err := out.Write(csvColumns); err != nil {
			return err
		}
	}
	at := s.Time.UTC().Format(time.RFC3339)
	for i := range s.Cards {
		c := &s.Cards[i]
		id := []string{strconv.Itoa(c.Index), c.UUID, c.Name, string(c.State), strconv.FormatFloat(c.Age, 'f', 1, 64)}
		line := append([]string{at, "card"}, id...)
		line = append(line, field(c.Memory.Total), field(c.Memory.Reserved), field(c.Memory.Used), field(c.Memory.Free),
			field(c.Unattributed), field(c.Busy), field(c.Power), field(c.Temperature), "", "", "", "", "", "")
		if err := out.Write(line); err != nil {
			return err
		}
		for _, p := range c.Processes {
			line := append([]string{at, "process"}, id...)
			line = append(line, "", "", field(p.Used), "", "", field(p.SM), "", "", strconv.Itoa(p.PID), p.User, p.Job, p.Pod, p.Container, p.Command)
			if err := out.Write(line); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

func field[T any](r gpu.Reading[T]) string {
	if v, ok := r.Get(); ok {
		return fmt.Sprint(v)
	}
	return ""
}
