// Package replay sends the requests of a recording through the simulated
// allocator (cachealloc): under the recorded settings, to prove that the
// simulation does what the card did, and under others, to say what they would
// have done.
//
// Compile turns a device's events into a Program once; Run replays it under
// one setting and can be called many times, also concurrently. Tune searches
// for the settings under which the job fits a limit.
//
// A replay of other settings assumes that the program would have made the same
// requests. That holds for training loops and does not for programs that ask
// for the free memory, or that try something smaller after a refusal; Outcome
// says where a refusal makes it doubtful.
package replay
