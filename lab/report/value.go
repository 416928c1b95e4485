// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"slices"
)

// valueJSON is how a Value is written: what is wanted most first, then every
// sample, so that a page can be made again from the file.
type valueJSON struct {
	Median  *float64  `json:"median,omitempty"`
	Min     *float64  `json:"min,omitempty"`
	Max     *float64  `json:"max,omitempty"`
	Samples int       `json:"samples,omitempty"`
	Values  []float64 `json:"values,omitempty"`
	Absent  string    `json:"absent,omitempty"`
}

// MarshalJSON writes the median with minimum, maximum, count and all samples, or
// the reason of absence.
func (v Value) MarshalJSON() ([]byte, error) {
	if !v.Known() {
		return json.Marshal(valueJSON{Absent: v.Absent})
	}
	median, low, high := v.Median(), slices.Min(v.Samples), slices.Max(v.Samples)
	return json.Marshal(valueJSON{Median: &median, Min: &low, Max: &high, Samples: len(v.Samples), Values: v.Samples})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (v *Value) UnmarshalJSON(text []byte) error {
	var read valueJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*v = Value{Samples: read.Values, Absent: read.Absent}
	return nil
}
