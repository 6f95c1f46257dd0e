// Package monitor turns what the driver says into who uses the cards: samples
// with each process' user, command, container, pod and job, the memory that no
// visible process holds, and how fast memory grows. It reads /proc through
// Files, so that tests and demonstrations bring their own.
package monitor
