package oomlog_test

import (
	"fmt"
	"strings"

	"vramscope/oomlog"
)

func ExampleScan() {
	log := `step 410 loss 2.31
Traceback (most recent call last):
  File "train.py", line 88, in train
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is free. Process 71 has 9.00 GiB memory in use. Including non-PyTorch memory, this process has 13.50 GiB memory in use. Of the allocated memory 12.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.
`
	report, err := oomlog.Scan(strings.NewReader(log), oomlog.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	f := report.First()
	fmt.Printf("line %d: %s %s asked for %v on device %d\n", f.Line, f.Framework, f.Version, *f.Tried, *f.Device)
	if lacks, ok := f.Lacks(); ok {
		fmt.Println("lacks", lacks)
	}
	if others, ok := f.OtherProcesses(); ok {
		fmt.Println("other processes hold", others)
	}
	for _, fact := range f.Facts {
		fmt.Println(fact.Kind, fact.Name)
	}
	// Output:
	// line 5: pytorch >=2.2 asked for 1.50 GiB on device 0
	// lacks 512.00 MiB
	// other processes hold 9.00 GiB
	// phase backward
	// step step
}

func ExampleSniff() {
	text := `{"allocated_bytes.all.peak": 9663676416, "reserved_bytes.all.peak": 10737418240}`
	fmt.Println(oomlog.Sniff([]byte(text)))
	stats, err := oomlog.ParseStats(strings.NewReader(text))
	if err != nil {
		fmt.Println(err)
		return
	}
	peak, _ := stats.Bytes("reserved_bytes.all.peak")
	fmt.Println("peak reserved", peak)
	// Output:
	// memory_stats
	// peak reserved 10.00 GiB
}
