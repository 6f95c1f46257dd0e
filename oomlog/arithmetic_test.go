package oomlog

import (
	"testing"

	"vramscope/bytesize"
)

// one reads a log that holds one message.
func one(t *testing.T, text string) *Failure {
	t.Helper()
	report := mustScan(t, text)
	if len(report.Failures) != 1 {
		t.Fatalf("%d messages in %q; want 1", len(report.Failures), text)
	}
	return &report.Failures[0]
}

func TestArithmetic(t *testing.T) {
	type answer struct {
		value bytesize.Size
		known bool
	}
	const g, m = bytesize.GiB, bytesize.MiB
	const head = "CUDA out of memory. Tried to allocate "
	for _, tc := range []struct {
		name, text                                  string
		reserved, idle, other, unexplained          answer
		outside, lacks                              answer
		atLimit, freeSuffices, idleSuffices, spills bool
	}{
		{
			name:     "everything listed",
			text:     head + "4.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is free. Process 7 has 2.00 GiB memory in use. Including non-PyTorch memory, this process has 20.50 GiB memory in use. Of the allocated memory 15.00 GiB is allocated by PyTorch, and 5.00 GiB is reserved by PyTorch but unallocated.",
			reserved: answer{20 * g, true}, idle: answer{5 * g, true}, other: answer{2 * g, true},
			unexplained: answer{g / 2, true}, outside: answer{g / 2, true}, lacks: answer{3 * g, true}, idleSuffices: true,
		},
		{
			name:     "a container: the process is among the others",
			text:     head + "4.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is free. Process 7 has 2.00 GiB memory in use. Process 9 has 20.50 GiB memory in use. Of the allocated memory 19.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.",
			reserved: answer{20 * g, true}, idle: answer{g, true}, other: answer{2 * g, true},
			unexplained: answer{g / 2, true}, outside: answer{g / 2, true}, lacks: answer{3 * g, true},
		},
		{
			name:     "no list: somebody holds 9 GiB",
			text:     head + "1.00 GiB (GPU 0; 16.00 GiB total capacity; 5.00 GiB already allocated; 512.00 MiB free; 6.50 GiB reserved in total by PyTorch)",
			reserved: answer{6*g + g/2, true}, idle: answer{g + g/2, true}, unexplained: answer{9 * g, true}, lacks: answer{512 * m, true}, idleSuffices: true,
		},
		{
			name:     "cached is without what is allocated",
			text:     head + "12.50 MiB (GPU 0; 4.00 GiB total capacity; 3.00 GiB already allocated; 8.00 MiB free; 256.00 MiB cached)",
			reserved: answer{3*g + 256*m, true}, idle: answer{256 * m, true}, unexplained: answer{g - 264*m, true}, lacks: answer{4*m + m/2, true}, idleSuffices: true,
		},
		{
			name:     "a limit",
			text:     head + "2.00 GiB (GPU 0; 40.00 GiB total capacity; 9.00 GiB already allocated; 29.00 GiB free; 10.00 GiB allowed; 9.50 GiB reserved in total by PyTorch)",
			reserved: answer{9*g + g/2, true}, idle: answer{g / 2, true}, unexplained: answer{g + g/2, true}, lacks: answer{g + g/2, true},
			atLimit: true, freeSuffices: true,
		},
		{
			name:     "Windows spills",
			text:     head + "2.00 GiB (GPU 0; 8.00 GiB total capacity; 9.00 GiB already allocated; 0 bytes free; 10.00 GiB reserved in total by PyTorch)",
			reserved: answer{10 * g, true}, idle: answer{g, true}, unexplained: answer{-2 * g, true}, lacks: answer{2 * g, true}, spills: true,
		},
		{name: "no numbers", text: "RuntimeError: CUDA error: out of memory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := one(t, tc.text)
			check := func(name string, want answer, value bytesize.Size, known bool) {
				t.Helper()
				if known != want.known || known && value != want.value {
					t.Errorf("%s = %v, %v; want %v, %v", name, value, known, want.value, want.known)
				}
			}
			v, ok := f.ReservedTotal()
			check("ReservedTotal", tc.reserved, v, ok)
			v, ok = f.Idle()
			check("Idle", tc.idle, v, ok)
			v, ok = f.OtherProcesses()
			check("OtherProcesses", tc.other, v, ok)
			v, ok = f.Unexplained()
			check("Unexplained", tc.unexplained, v, ok)
			v, ok = f.OutsideAllocator()
			check("OutsideAllocator", tc.outside, v, ok)
			v, ok = f.Lacks()
			check("Lacks", tc.lacks, v, ok)
			if got := f.AtLimit(); got != tc.atLimit {
				t.Errorf("AtLimit = %v", got)
			}
			if got := f.FreeSuffices(); got != tc.freeSuffices {
				t.Errorf("FreeSuffices = %v", got)
			}
			if got := f.IdleSuffices(); got != tc.idleSuffices {
				t.Errorf("IdleSuffices = %v", got)
			}
			if got := f.Spilled(); got != tc.spills {
				t.Errorf("Spilled = %v", got)
			}
		})
	}
}

func TestSmallRequestAndNeverFits(t *testing.T) {
	f := one(t, "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 4.00 GiB total capacity; 3.00 GiB already allocated; 8.00 MiB free; 3.50 GiB reserved in total by PyTorch)")
	if most, ok := f.SmallRequest(); !ok || most != 10*bytesize.MiB {
		t.Errorf("SmallRequest = %v, %v; want 10 MiB", most, ok)
	}
	if f.NeverFits() {
		t.Error("20 MiB fit in 4 GiB")
	}
	f = one(t, "CUDA out of memory. Tried to allocate 55.50 GiB. GPU 0 has a total capacty of 12.00 GiB of which 9.00 GiB is free.")
	if _, ok := f.SmallRequest(); ok || !f.NeverFits() {
		t.Errorf("55.5 GiB on 12 GiB: NeverFits = %v", f.NeverFits())
	}
}
