// Package oomlog finds out-of-memory failures in the text that training jobs and
// inference servers leave behind, and reads the numbers in them.
//
// It is a set of message grammars, one for each framework and generation (see
// [Grammars]), behind a scanner that takes constant memory whatever the size of
// the log. The scanner looks through colours, progress bars, the prefixes of
// container runtimes and launchers, terminals that wrap lines, and ranks that
// write in turn. Around each failure it keeps what an explanation needs as
// evidence, with line numbers: the traceback, the phase of the job, the last
// step, settings that limit memory, and whether the program went on afterwards.
//
// A message must have the shape that a framework gives it. The words alone, or a
// whole message inside a quotation, a document or a comment, are a [Mention].
//
// The package reads; it does not judge. Why a job ran out of memory, and what to
// change, is the business of the callers; here is only the arithmetic that the
// numbers themselves allow, such as [Failure.Unexplained].
//
// People often paste something else than a log. [Sniff] recognises a
// torch.cuda.memory_summary table, memory_stats as JSON or as a printed dict,
// and the output of nvidia-smi; [ParseSummary], [ParseStats] and [ParseSMI] read
// them.
package oomlog
