package oomlog

import (
	"os"
	"strings"
	"testing"

	"vramscope/bytesize"
)

func TestSniff(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       Paste
	}{
		{"summary", "file:memory_summary.txt", PasteSummary},
		{"nvidia-smi", "file:smi_idle.txt", PasteSMI},
		{"nvidia-smi with a process", "file:smi_process.txt", PasteSMI},
		{"nvidia-smi -q", "file:smi_q.txt", PasteSMI},
		{"nvidia-smi -q -x", "file:smi_q.xml", PasteSMI},
		{"nvidia-smi, cards as csv", "file:smi_query.csv", PasteSMI},
		{"nvidia-smi, processes as csv", "file:smi_apps.csv", PasteSMI},
		{"stats as json", `{"allocated_bytes.all.current": 1, "reserved_bytes.all.current": 2}`, PasteStats},
		{"stats as printed", `OrderedDict([('allocated_bytes.all.current', 1), ('reserved_bytes.all.current', 2)])`, PasteStats},
		{"a failure", "file:real/unet_10gib_b32_oom.log", PasteLog},
		{"a log with JSON lines", `{"level":"info","msg":"start"}`, PasteLog},
		{"a log in which nvidia-smi ran", strings.Repeat("step\n", 1000) + "| NVIDIA-SMI 580.159.04 |", PasteLog},
		{"nothing", "", PasteLog},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := tc.text
			if name, ok := strings.CutPrefix(text, "file:"); ok {
				text = readFile(t, name)
			}
			if got := Sniff([]byte(text)); got != tc.want {
				t.Errorf("got %s; want %s", got, tc.want)
			}
		})
	}
}

func readFile(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestParseSummary(t *testing.T) {
	s, err := ParseSummary(strings.NewReader(readFile(t, "memory_summary.txt")))
	if err != nil {
		t.Fatal(err)
	}
	if s.Device == nil || *s.Device != 1 || s.OOMs == nil || *s.OOMs != 2 || s.Retries == nil || *s.Retries != 7 {
		t.Errorf("device %v, failures %v, retries %v; want 1, 2, 7", s.Device, s.OOMs, s.Retries)
	}
	if r, ok := s.Row("GPU reserved memory"); !ok || r.Current != 10<<30 || r.Total != 20<<30 || r.Count {
		t.Errorf("reserved %+v; want 10 GiB of 20", r)
	}
	if r, ok := s.Row("Allocations"); !ok || r.Current != 812 || r.Total != 99000 || !r.Count {
		t.Errorf("allocations %+v; want 812 of 99,000", r)
	}
	if r, ok := s.Row("GPU reserved segments"); !ok || r.Current != 99 || !r.Count {
		t.Errorf("segments %+v; want 99", r)
	}
	if len(s.Rows) != 10 || s.Rows[2].Metric != "Allocated memory" || s.Rows[2].Pool != "small" || s.Rows[2].Peak != 26<<20 {
		t.Errorf("%d rows, third %+v; want 10, the small pool's", len(s.Rows), s.Rows[2])
	}
	if len(s.Missing) != 3 {
		t.Errorf("missing %q; want the card, the code and requested memory", s.Missing)
	}
	if _, err := ParseSummary(strings.NewReader("| a | b |\n")); err == nil {
		t.Error("a table of something else is a summary")
	}
}

func TestParseStats(t *testing.T) {
	for name, text := range map[string]string{
		"flat JSON":    `{"allocated_bytes.all.peak": 9663676416, "reserved_bytes.all.peak": 10737418240, "num_ooms": 2, "num_alloc_retries": 7}`,
		"nested JSON":  `{"allocated_bytes": {"all": {"peak": 9663676416}}, "reserved_bytes": {"all": {"peak": 10737418240}}, "num_ooms": 2, "num_alloc_retries": 7}`,
		"nested dict":  `{'allocated_bytes': {'all': {'peak': 9663676416}}, 'reserved_bytes': {'all': {'peak': 10737418240}}, 'num_ooms': 2, 'num_alloc_retries': 7}`,
		"ordered dict": "OrderedDict([('allocated_bytes.all.peak', 9663676416),\n ('reserved_bytes.all.peak', 10737418240),\n ('num_ooms', 2), ('num_alloc_retries', 7)])",
		"new ordered":  "OrderedDict({'allocated_bytes.all.peak': 9663676416, 'reserved_bytes.all.peak': 10737418240, 'num_ooms': 2, 'num_alloc_retries': 7})",
	} {
		t.Run(name, func(t *testing.T) {
			s, err := ParseStats(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if v, ok := s.Bytes("reserved_bytes.all.peak"); !ok || v != 10*bytesize.GiB || s.Values["num_ooms"] != 2 || len(s.Values) != 4 {
				t.Errorf("%v; want 10 GiB and two failures", s.Values)
			}
			if len(s.Missing) != 1 {
				t.Errorf("missing %q; want the card only", s.Missing)
			}
		})
	}
	s, err := ParseStats(strings.NewReader(`{'allocated_bytes.all.current': 5}`))
	if err != nil || len(s.Missing) != 5 {
		t.Errorf("%v, missing %q; want all four and the card", err, s.Missing)
	}
	if _, err := ParseStats(strings.NewReader("hello")); err == nil {
		t.Error("a greeting is no statistics")
	}
}

func TestParseSMI(t *testing.T) {
	for _, tc := range []struct {
		file, form, used string
		processes        int
		missing          string
	}{
		{"smi_idle.txt", "table", "0 B", 0, ""},
		{"smi_process.txt", "table", "3.51 GiB", 1, ""},
		{"smi_q.txt", "query", "3.51 GiB", 1, ""},
		{"smi_q.xml", "xml", "0 B", 0, ""},
		{"smi_query.csv", "csv", "0 B", 0, "the processes"},
	} {
		t.Run(tc.file, func(t *testing.T) {
			s, err := ParseSMI(strings.NewReader(readFile(t, tc.file)))
			if err != nil {
				t.Fatal(err)
			}
			if s.Form != tc.form || len(s.GPUs) != 1 || len(s.Processes) != tc.processes {
				t.Fatalf("%+v; want one card, %d processes, as %s", s, tc.processes, tc.form)
			}
			g := s.GPUs[0]
			if g.Total == nil || *g.Total != 143771*bytesize.MiB || g.Used == nil || g.Used.String() != tc.used {
				t.Errorf("total %v, used %v; want 143771 MiB, %s", g.Total, g.Used, tc.used)
			}
			if tc.form != "query" && g.Name != "NVIDIA H200" {
				t.Errorf("name %q", g.Name)
			}
			if tc.form != "csv" && s.Driver != "580.159.04" || s.CUDA != "13.0" && tc.form != "csv" {
				t.Errorf("driver %q, CUDA %q", s.Driver, s.CUDA)
			}
			for _, p := range s.Processes {
				if p.PID != 1379 || p.Used == nil || *p.Used != 3590*bytesize.MiB || p.Type != "C" || p.Name != "python3" || p.GPU != 0 {
					t.Errorf("process %+v", p)
				}
			}
			if all := strings.Join(s.Missing, "; "); !strings.Contains(all, tc.missing) || !strings.Contains(all, "one moment") {
				t.Errorf("missing %q; want %q", all, tc.missing)
			}
		})
	}
	s, err := ParseSMI(strings.NewReader(readFile(t, "smi_apps.csv")))
	if err != nil || len(s.Processes) != 1 || s.Processes[0].PID != 1379 || *s.Processes[0].Used != 3590*bytesize.MiB {
		t.Errorf("%+v, %v; want process 1379", s, err)
	}
	hidden := strings.Replace(readFile(t, "smi_idle.txt"), "      0MiB / 143771MiB", "  90000MiB / 143771MiB", 1)
	s, err = ParseSMI(strings.NewReader(hidden))
	if err != nil || !strings.Contains(strings.Join(s.Missing, ";"), "no process is listed") {
		t.Errorf("%v, missing %q; want a word about 90000 MiB that nobody holds", err, s.Missing)
	}
	for _, bad := range []string{"", "hello", "<nvidia_smi_log><gpu>", "index, memory.total [MiB]\n\"0"} {
		if _, err := ParseSMI(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is read as nvidia-smi", bad)
		}
	}
}

func FuzzPaste(f *testing.F) {
	for _, name := range []string{"memory_summary.txt", "smi_process.txt", "smi_q.txt", "smi_query.csv", "smi_apps.csv"} {
		f.Add(readFile(f, name))
	}
	f.Add(`{"allocated_bytes": {"all": {"peak": 1}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		Sniff([]byte(text))
		if s, err := ParseSummary(strings.NewReader(text)); err == nil && len(s.Rows) == 0 {
			t.Error("a summary without rows")
		}
		if s, err := ParseStats(strings.NewReader(text)); err == nil && len(s.Values) == 0 {
			t.Error("statistics without a number")
		}
		if s, err := ParseSMI(strings.NewReader(text)); err == nil && len(s.GPUs)+len(s.Processes) == 0 {
			t.Error("nvidia-smi without card or process")
		}
	})
}
