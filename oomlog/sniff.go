package oomlog

import "bytes"

// Paste is what a text is that somebody pastes instead of a log.
type Paste string

const (
	// PasteLog is a log, or anything else: for [Scan].
	PasteLog Paste = "log"
	// PasteSummary is torch.cuda.memory_summary(): for [ParseSummary].
	PasteSummary Paste = "memory_summary"
	// PasteStats is torch.cuda.memory_stats(), as JSON or printed: for [ParseStats].
	PasteStats Paste = "memory_stats"
	// PasteSMI is the output of nvidia-smi: the table, -q, -q -x, or
	// --query-… --format=csv. For [ParseSMI].
	PasteSMI Paste = "nvidia_smi"
)

// Sniff tells what a text is from its first 64 KiB. A log that holds such a table
// somewhere is a log.
func Sniff(head []byte) Paste {
	head = head[:min(len(head), 64<<10)]
	trimmed := bytes.TrimSpace(head)
	begins := trimmed[:min(len(trimmed), 2<<10)]
	has := func(text string) bool { return bytes.Contains(begins, []byte(text)) }
	switch {
	case has("<nvidia_smi_log>"), has("nvsmi_device_v"), has("NVSMI LOG"),
		has("| NVIDIA-SMI "), has("| NVIDIA-SMI\t"):
		return PasteSMI
	case has("CUDA memory summary, device ID"):
		return PasteSummary
	case has("memory.total [MiB]"), has("memory.used [MiB]"), has("used_gpu_memory [MiB]"), has("used_memory [MiB]"):
		return PasteSMI
	case isStats(trimmed):
		return PasteStats
	}
	return PasteLog
}

// isStats recognises the keys of memory_stats at the start of a JSON object or a
// printed dict.
func isStats(text []byte) bool {
	for _, open := range []string{"{", "OrderedDict(", "defaultdict(", "[('"} {
		if bytes.HasPrefix(text, []byte(open)) {
			return bytes.Contains(text, []byte("reserved_bytes")) && bytes.Contains(text, []byte("allocated_bytes"))
		}
	}
	return false
}
