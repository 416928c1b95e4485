// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf/ringbuf"
)

// Place is the program that saw a packet.
type Place uint8

// The places, as bpf/base.h has the hooks.
const (
	PlaceXDP Place = iota
	PlaceIngress
	PlaceEgress
	PlaceHostIngress
)

// String returns the place as a word.
func (p Place) String() string {
	switch p {
	case PlaceXDP:
		return "xdp"
	case PlaceIngress:
		return "ingress"
	case PlaceEgress:
		return "egress"
	case PlaceHostIngress:
		return "host_ingress"
	}
	return "unknown"
}

// Sample is a packet as it came.
type Sample struct {
	Time    time.Duration // by CLOCK_MONOTONIC
	Ifindex int
	Place   Place
	Verdict Verdict
	Reason  uint8  // [Object.Reason] has its word
	Length  int    // of the frame
	Data    []byte // its beginning, from the Ethernet header on
}

// Samples returns a reader of the sampled packets; [ParseSample] takes its records apart.
func (o *Object) Samples() (*ringbuf.Reader, error) {
	r, err := ringbuf.NewReader(o.tables[samplesMap])
	if err != nil {
		return nil, fmt.Errorf("cannot read samples of the fast path: %w", err)
	}
	return r, nil
}

// sampleHeader is the size of struct sample without its data.
const sampleHeader = 24

// ParseSample takes a record of [Object.Samples] apart. Data aliases it.
func ParseSample(b []byte) (Sample, error) {
	if len(b) < sampleHeader {
		return Sample{}, errors.New("a sample of the fast path is cut short")
	}
	captured := int(binary.NativeEndian.Uint32(b[20:]))
	if captured > len(b)-sampleHeader {
		return Sample{}, errors.New("a sample of the fast path is cut short")
	}
	return Sample{
		Time:    time.Duration(binary.NativeEndian.Uint64(b)),
		Ifindex: int(binary.NativeEndian.Uint32(b[8:])),
		Place:   Place(b[12]), Verdict: Verdict(b[13]), Reason: b[14],
		Length: int(binary.NativeEndian.Uint32(b[16:])),
		Data:   b[sampleHeader:][:captured],
	}, nil
}
