// Package vramscope is the module of the program cmd/vramscope. It holds no
// code, only the test of the architecture: docs/architecture.md.
package vramscope
