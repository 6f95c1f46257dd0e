package gpu

import "time"

// Driver is what a monitor asks of a driver. Only Devices, Read and Wait may
// touch a card and so may hang; a Poller lives with that. A Driver may be used
// by several goroutines, but not twice at a time for one card.
type Driver interface {
	System() System
	// Devices enumerates the cards anew.
	Devices() ([]Identity, error)
	// Read asks everything of one card. Errors are in the Card.
	Read(Identity) Card
	// Wait returns events as they come, at the latest after the timeout (then
	// none). An error of reason Unsupported is final.
	Wait(timeout time.Duration) ([]Event, error)
	Close() error
}

// Event is a report of the driver: an Xid error or an ECC event.
type Event struct {
	Card  string `json:"card"` // its key
	Kind  string `json:"kind"` // "xid", "ecc_single_bit", "ecc_double_bit", "retirement", …
	Xid   uint64 `json:"xid,omitempty"`
	GPUID uint32 `json:"-"` // MIG instance, or NoInstance
}
