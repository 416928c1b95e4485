// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package measure

import (
	"encoding/csv"
	"io"
	"strconv"
	"time"
)

// Table writes rows of CSV.
type Table struct {
	w     *csv.Writer
	start time.Time
}

// NewTable writes the head of a table, whose times count from an instant on.
func NewTable(w io.Writer, start time.Time, columns ...string) *Table {
	t := &Table{csv.NewWriter(w), start}
	_ = t.w.Write(columns) // Close tells
	return t
}

// Columns of tables.
var (
	TSNColumns      = []string{"time_s", "local", "remote", "tsn", "stream", "octets", "again"}
	MessageColumns  = []string{"time_s", "stream", "offset", "octets", "delay_ms", "jitter_ms"}
	RateColumns     = []string{"time_s", "octets", "mbit_s"}
	PathColumns     = []string{"time_s", "local", "remote", "state", "current", "errors", "rto_ms", "srtt_ms", "cwnd", "in_flight", "next_tsn"}
	MarkColumns     = []string{"time_s", "local", "remote", "mark", "tsn", "rto_ms"}
	SummaryColumns  = []string{"time_s", "octets", "messages", "mbit_s", "delay_ms", "delay_deviation_ms", "jitter_ms", "chunks", "again", "longest_gap_ms", "sent", "late", "fast", "copies", "moved", "retransmitted_percent"}
	FailoverColumns = []string{"time_s", "old_local", "old_remote", "new_local", "new_remote", "gap_ms", "t_first_ms", "t_new_ms", "t_down_ms", "rto_ms"}
)

// Row writes a row: an instant first, as seconds from the start on.
func (t *Table) Row(at time.Time, values ...any) {
	row := []string{strconv.FormatFloat(at.Sub(t.start).Seconds(), 'f', 6, 64)}
	for _, v := range values {
		row = append(row, text(v))
	}
	_ = t.w.Write(row) // Close tells
}

// Close writes what is left, and returns the first error.
func (t *Table) Close() error {
	t.w.Flush()
	return t.w.Error()
}

// text is a value as a table has it: times in milliseconds, what has not happened as nothing.
func text(v any) string {
	switch v := v.(type) {
	case time.Duration:
		if v == Never {
			return ""
		}
		return strconv.FormatFloat(float64(v)/float64(time.Millisecond), 'f', 3, 64)
	case bool:
		if v {
			return "1"
		}
		return "0"
	case float64:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case int:
		return strconv.Itoa(v)
	case uint64:
		return strconv.FormatUint(v, 10)
	case uint32:
		return strconv.FormatUint(uint64(v), 10)
	case uint16:
		return strconv.FormatUint(uint64(v), 10)
	case string:
		return v
	case interface{ String() string }:
		return v.String()
	}
	panic("a table has no such values")
}
