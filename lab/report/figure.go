// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// missMark stands beside a figure outside its must, absentMark where there is no
// number.
const (
	missMark   = "MISS"
	absentMark = "-"
)

// Figure is one measured number beside others.
type Figure struct {
	// Name says what was measured.
	Name string `json:"name"`
	// Unit of all values, "" for a plain number.
	Unit string `json:"unit,omitempty"`
	// Decimals are the digits printed behind the point. A figure is judged
	// as it is printed, so that what is read and what is judged agree.
	Decimals int `json:"decimals,omitempty"`
	// Published is what a paper or a standard states.
	Published Value `json:"published"`
	// Peer is what the peer reached in this run, Isthmus what Isthmus did.
	Peer    Value `json:"peer"`
	Isthmus Value `json:"isthmus"`
	// Must is the bound of Isthmus's median; nil if there is none.
	Must *Must `json:"must,omitempty"`
}

// Value is a set of samples of one figure, or the reason why there is none.
type Value struct {
	// Samples in the order measured, in the unit of the figure.
	Samples []float64
	// Absent says why there are no samples, "needs root" for example.
	Absent string
}

// Must is a bound of a figure.
type Must struct {
	// AtLeast tells a lower bound from an upper one.
	AtLeast bool `json:"at_least"`
	// Bound is the last value that is still good.
	Bound float64 `json:"bound"`
	// Most is the upper end where values must lie in a range from Bound on; 0
	// if Bound is all there is.
	Most float64 `json:"most,omitempty"`
}

// Measured is a value with samples.
func Measured(samples ...float64) Value { return Value{Samples: samples} }

// Milliseconds is a value with durations as its samples.
func Milliseconds(samples ...time.Duration) Value {
	v := Value{}
	for _, d := range samples {
		v.Samples = append(v.Samples, float64(d)/float64(time.Millisecond))
	}
	return v
}

// None is a value that is not there, and why.
func None(why string) Value { return Value{Absent: why} }

// Known reports whether there are samples.
func (v Value) Known() bool { return len(v.Samples) > 0 }

// Median of the samples, NaN if there are none.
func (v Value) Median() float64 {
	n := len(v.Samples)
	if n == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v.Samples))
	return (s[(n-1)/2] + s[n/2]) / 2
}

// Judged reports whether there are a must and something to judge by it.
func (f Figure) Judged() bool { return f.Must != nil && f.Isthmus.Known() }

// Missed reports whether Isthmus was measured and is outside its must, with
// the precision in which it is printed.
func (f Figure) Missed() bool {
	if !f.Judged() {
		return false
	}
	scale := math.Pow10(f.Decimals)
	printed := math.Round(f.Isthmus.Median()*scale) / scale
	if f.Must.Most != 0 && printed > f.Must.Most {
		return true
	}
	if f.Must.AtLeast {
		return printed < f.Must.Bound
	}
	return printed > f.Must.Bound
}

// Ratio is Isthmus's median over the peer's; ok is false if one is unknown or
// the peer's is 0.
func (f Figure) Ratio() (ratio float64, ok bool) {
	if !f.Isthmus.Known() || !f.Peer.Known() || f.Peer.Median() == 0 {
		return 0, false
	}
	return f.Isthmus.Median() / f.Peer.Median(), true
}

func (f Figure) label() string {
	if f.Unit == "" {
		return f.Name
	}
	return f.Name + ", " + f.Unit
}

func (f Figure) number(x float64) string { return strconv.FormatFloat(x, 'f', f.Decimals, 64) }

// text prints the median, with the range if there are several samples.
func (f Figure) text(v Value) string {
	switch {
	case !v.Known() && v.Absent == "":
		return absentMark
	case !v.Known():
		return v.Absent
	case len(v.Samples) == 1:
		return f.number(v.Samples[0])
	}
	return fmt.Sprintf("%s (%s to %s)", f.number(v.Median()), f.number(slices.Min(v.Samples)), f.number(slices.Max(v.Samples)))
}

func (f Figure) ratioText() string {
	ratio, ok := f.Ratio()
	if !ok {
		return absentMark
	}
	return strconv.FormatFloat(ratio, 'f', 2, 64)
}

func (f Figure) mustText() string {
	if f.Must == nil {
		return ""
	}
	bound := strconv.FormatFloat(f.Must.Bound, 'f', -1, 64)
	switch {
	case f.Must.Most != 0:
		return bound + " to " + strconv.FormatFloat(f.Must.Most, 'f', -1, 64)
	case f.Must.AtLeast:
		return ">= " + bound
	}
	return "<= " + bound
}
