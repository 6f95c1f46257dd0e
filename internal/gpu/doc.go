// Package gpu is what a driver says about the cards of this machine: one
// narrow interface (Driver), values that are a number or the reason why there
// is none (Reading), the rules by which raw answers are believed (Check), and a
// Poller that outlives cards that hang or fall off the bus. It does not know
// who the processes are: package monitor does. The drivers are gpu/nvml and,
// for tests and demonstrations, gpu/fake.
package gpu
