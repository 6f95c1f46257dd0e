package gpu

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Reason says in a word why a value is missing.
type Reason string

// The reasons. NotAsked is that of the zero Reading.
const (
	NotAsked    Reason = "not asked"
	Unsupported Reason = "unsupported"  // this card, board or system has no such value
	OldDriver   Reason = "old driver"   // the driver lacks the call
	Permission  Reason = "permission"   // this user or container may not see it
	NotFound    Reason = "not found"    // the driver knows no such thing, now
	Timeout     Reason = "timeout"      // the driver did not answer in time
	Lost        Reason = "lost"         // the card is gone from the bus
	NeedsReset  Reason = "needs reset"  // the card waits for a reset
	Mismatch    Reason = "mismatch"     // library and kernel module differ
	NoDriver    Reason = "no driver"    // no driver or library here
	Invalid     Reason = "invalid"      // an answer that cannot be true
	Failed      Reason = "driver error" // the driver's own unspecific error
)

// Missing is a value that could not be had. It is an error.
type Missing struct {
	Reason Reason
	Detail string // a sentence for people; may be empty
}

func (m *Missing) Error() string {
	if m.Detail == "" {
		return string(m.Reason)
	}
	return string(m.Reason) + ": " + m.Detail
}

// Is makes errors.Is compare reasons.
func (m *Missing) Is(target error) bool {
	t, ok := target.(*Missing)
	return ok && t.Reason == m.Reason
}

// Reading is a value or the reason why there is none. The zero Reading was
// never asked for. In JSON it is the value or null; the reasons stand apart.
type Reading[T any] struct {
	value   T
	known   bool
	missing *Missing
}

// Known is a reading that has a value.
func Known[T any](v T) Reading[T] { return Reading[T]{value: v, known: true} }

// None is a reading without a value.
func None[T any](reason Reason, detail string) Reading[T] {
	return Reading[T]{missing: &Missing{Reason: reason, Detail: detail}}
}

// Absent is a reading without a value, for the reason of another.
func Absent[T any](why *Missing) Reading[T] { return Reading[T]{missing: why} }

// Get returns the value, and whether there is one.
func (r Reading[T]) Get() (T, bool) { return r.value, r.known }

// Why returns nil where there is a value, and otherwise the reason.
func (r Reading[T]) Why() *Missing {
	if r.known {
		return nil
	}
	if r.missing == nil {
		return &Missing{Reason: NotAsked}
	}
	return r.missing
}

// MarshalJSON writes the value or null.
func (r Reading[T]) MarshalJSON() ([]byte, error) {
	if !r.known {
		return []byte("null"), nil
	}
	return json.Marshal(r.value)
}

// UnmarshalJSON reads what scenario files say: a value, null (unsupported) or
// {"missing": REASON, "detail": TEXT}.
func (r *Reading[T]) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("null")) {
		*r = None[T](Unsupported, "")
		return nil
	}
	var why struct {
		Missing Reason `json:"missing"`
		Detail  string `json:"detail"`
	}
	if len(data) > 0 && data[0] == '{' && json.Unmarshal(data, &why) == nil && why.Missing != "" {
		*r = None[T](why.Missing, why.Detail)
		return nil
	}
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		return fmt.Errorf("want a value, null or {\"missing\": …}: %w", err)
	}
	*r = Known(v)
	return nil
}
