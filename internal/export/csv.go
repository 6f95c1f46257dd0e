package export

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"

	"vramscope/internal/holders"
	"vramscope/internal/timeline"
	"vramscope/trace"
)

// EventsCSV writes a row for each event with what was allocated, active and
// reserved after it, and for an allocation its category, its line and the event
// that gave it back (empty where it lived to the end). Times are microseconds
// since the Unix epoch, empty where the recording has none.
func EventsCSV(w io.Writer, a *holders.Analysis, s *timeline.Series) error {
	c := csv.NewWriter(w)
	row := []string{
		"event", "time_us", "action", "address", "size_bytes", "stream", "allocated_bytes", "active_bytes", "reserved_bytes",
		"freed_at_event", "category", "line",
	}
	if err := c.Write(row); err != nil {
		return err
	}
	names := a.Names(holders.ByLine)
	next := 0 // request
	e := &a.Program.Device.Events
	for i := range s.Len() {
		ev := e.At(i)
		row[0], row[1], row[2] = strconv.Itoa(i), "", ev.Action.String()
		if ev.Action == trace.Other {
			row[2] = a.Program.Trace.Labels.Text(ev.Name)
		}
		if ev.Time != 0 {
			row[1] = strconv.FormatInt(ev.Time, 10)
		}
		row[3] = "0x" + strconv.FormatUint(ev.Addr, 16)
		if ev.Action == trace.OOM { // there it is what the driver had free
			row[3] = ""
		}
		row[4] = strconv.FormatInt(ev.Size, 10)
		row[5] = strconv.FormatUint(ev.Stream, 10)
		row[6] = strconv.FormatInt(s.Allocated[i], 10)
		row[7] = strconv.FormatInt(s.Active[i], 10)
		row[8] = strconv.FormatInt(s.Reserved[i], 10)
		row[9], row[10], row[11] = "", "", ""
		for next < len(a.Program.Requests) && int(a.Program.Requests[next].Event) < i {
			next++
		}
		if next < len(a.Program.Requests) && int(a.Program.Requests[next].Event) == i {
			r := &a.Program.Requests[next]
			if r.Free >= 0 {
				row[9] = strconv.Itoa(int(r.Free))
			}
			row[10], row[11] = a.Category(next).String(), safeCell(names(next))
		}
		if err := c.Write(row); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// HoldersCSV writes a row for each holder.
func HoldersCSV(w io.Writer, list []holders.Holder) error {
	c := csv.NewWriter(w)
	c.Write([]string{"holder", "category", "allocated_bytes", "requested_bytes", "blocks"})
	for _, h := range list {
		c.Write([]string{safeCell(h.Name), h.Category.String(), fmt.Sprint(h.Bytes), fmt.Sprint(h.Requested), fmt.Sprint(h.Blocks)})
	}
	c.Flush()
	return c.Error()
}

// safeCell keeps a name out of a recording from being run as a formula by a
// spreadsheet (OWASP: CSV injection).
func safeCell(s string) string {
	if s != "" && (s[0] == '=' || s[0] == '+' || s[0] == '-' || s[0] == '@') {
		return "'" + s
	}
	return s
}
