// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
)

// Verdict is what became of a packet.
type Verdict uint8

// The verdicts.
const (
	Forward Verdict = Verdict(teredoVerdictVERDICT_FORWARD) // it left by the fast path
	Punt    Verdict = Verdict(teredoVerdictVERDICT_PUNT)    // left to the kernel, and so to the engine
	Drop    Verdict = Verdict(teredoVerdictVERDICT_DROP)
)

// String returns the verdict as a word.
func (v Verdict) String() string {
	switch v {
	case Forward:
		return "forward"
	case Punt:
		return "punt"
	case Drop:
		return "drop"
	}
	return "unknown"
}

// Reason is why a packet met its verdict. bpf/layout.h says what each means.
type Reason uint8

// What the fast path forwards, in words for those who add it up.
const (
	EncapForwarded     = Reason(teredoReasonREASON_ENCAP_FORWARDED)
	DecapForwarded     = Reason(teredoReasonREASON_DECAP_FORWARDED)
	HostEncapForwarded = Reason(teredoReasonREASON_HOST_ENCAP_FORWARDED)
	HostDecapForwarded = Reason(teredoReasonREASON_HOST_DECAP_FORWARDED)
	PuntLimit          = Reason(teredoReasonREASON_PUNT_LIMIT)
)

// numReasons is how many there are.
const numReasons = int(teredoReasonREASON_COUNT)

var reasonNames = [numReasons]string{
	teredoReasonREASON_ENCAP_FORWARDED:      "encap_forwarded",
	teredoReasonREASON_DECAP_FORWARDED:      "decap_forwarded",
	teredoReasonREASON_HOST_ENCAP_FORWARDED: "host_encap_forwarded",
	teredoReasonREASON_HOST_DECAP_FORWARDED: "host_decap_forwarded",

	teredoReasonREASON_ASLEEP:        "asleep",
	teredoReasonREASON_OWN_ADDRESS:   "own_address",
	teredoReasonREASON_IP_OPTIONS:    "ip_options",
	teredoReasonREASON_FRAGMENT:      "fragment",
	teredoReasonREASON_ODD_LENGTH:    "odd_length",
	teredoReasonREASON_INDICATION:    "indication",
	teredoReasonREASON_TRAILER:       "trailer",
	teredoReasonREASON_BUBBLE:        "bubble",
	teredoReasonREASON_NEXT_HEADER:   "next_header",
	teredoReasonREASON_SHORT_PAYLOAD: "short_payload",
	teredoReasonREASON_UNKNOWN_PEER:  "unknown_peer",
	teredoReasonREASON_BUSY_PEER:     "busy_peer",
	teredoReasonREASON_EXPIRED_PEER:  "expired_peer",
	teredoReasonREASON_FOREIGN_MOVED: "foreign_moved",
	teredoReasonREASON_CARRIED:       "carried",
	teredoReasonREASON_HOP_LIMIT:     "hop_limit",
	teredoReasonREASON_TOO_BIG:       "too_big",
	teredoReasonREASON_NO_NEXT_HOP:   "no_next_hop",
	teredoReasonREASON_SERVE_LIST:    "serve_list",
	teredoReasonREASON_OFFLOAD:       "offload",
	teredoReasonREASON_NO_ROOM:       "no_room",
	teredoReasonREASON_HOST_DIRECT:   "host_direct",

	teredoReasonREASON_TRUNCATED:          "truncated",
	teredoReasonREASON_NOT_IPV6:           "not_ipv6",
	teredoReasonREASON_BAD_LENGTH:         "bad_length",
	teredoReasonREASON_BAD_CHECKSUM:       "bad_checksum",
	teredoReasonREASON_SOURCE_NOT_TEREDO:  "source_not_teredo",
	teredoReasonREASON_MAPPING_MISMATCH:   "mapping_mismatch",
	teredoReasonREASON_NO_PEER:            "no_peer",
	teredoReasonREASON_BAD_SOURCE:         "bad_source",
	teredoReasonREASON_BAD_DESTINATION:    "bad_destination",
	teredoReasonREASON_TEREDO_TO_TEREDO:   "teredo_to_teredo",
	teredoReasonREASON_NOT_SERVED:         "not_served",
	teredoReasonREASON_NEIGHBOR_DISCOVERY: "neighbor_discovery",
	teredoReasonREASON_PUNT_LIMIT:         "punt_limit",
}

// String returns the reason as a stable snake_case word.
func (r Reason) String() string {
	if int(r) >= numReasons {
		return "unknown"
	}
	return reasonNames[r]
}

// Verdict returns the verdict that goes with the reason.
func (r Reason) Verdict() Verdict {
	switch {
	case r >= Reason(teredoReasonREASON_TRUNCATED):
		return Drop
	case r >= Reason(teredoReasonREASON_ASLEEP):
		return Punt
	}
	return Forward
}

// Counter is how many packets met a verdict for one reason, since the tables were
// made.
type Counter struct {
	Verdict Verdict
	Reason  Reason
	Packets uint64
	Bytes   uint64 // from the outer IP header on, as they came
}

// Counters returns one counter for each reason.
func (t *Teredo) Counters() ([]Counter, error) { return readCounters(t.maps.Counters) }

// readCounters adds up the counters of all cores.
func readCounters(m *ebpf.Map) ([]Counter, error) {
	list := make([]Counter, numReasons)
	var cores []teredoCounter
	for i := range list {
		key := uint32(i)
		if err := m.Lookup(&key, &cores); err != nil {
			return nil, fmt.Errorf("cannot read the counters of the fast path: %w", err)
		}
		c := &list[i]
		c.Reason, c.Verdict = Reason(i), Reason(i).Verdict()
		for _, core := range cores {
			c.Packets += core.Packets
			c.Bytes += core.Bytes
		}
	}
	return list, nil
}

// Place is the program that saw a packet.
type Place uint8

// The places.
const (
	PlaceXDP         = Place(teredoHookHOOK_XDP)
	PlaceIngress     = Place(teredoHookHOOK_INGRESS)
	PlaceEgress      = Place(teredoHookHOOK_EGRESS)
	PlaceHostIngress = Place(teredoHookHOOK_HOST_INGRESS)
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
	Reason  Reason
	Length  int    // of the frame
	Data    []byte // its beginning, from the Ethernet header on
}

// sampleHeader is the size of struct sample without its data.
const sampleHeader = 24

// ParseSample takes a record of [Teredo.Samples] apart. Data aliases it.
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
		Place:   Place(b[12]), Verdict: Verdict(b[13]), Reason: Reason(b[14]),
		Length: int(binary.NativeEndian.Uint32(b[16:])),
		Data:   b[sampleHeader:][:captured],
	}, nil
}

// wordIPv4 returns the address that programs load as this word.
func wordIPv4(word uint32) netip.Addr {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], word)
	return netip.AddrFrom4(b)
}
