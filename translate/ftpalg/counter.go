// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg

import (
	"iter"
	"sync/atomic"
)

// Counter is something that a [Proxy] counts.
type Counter uint8

// Counters. Each connection that was accepted ends under exactly one of those
// from ended on, or was refused under one of those from too_many on.
const (
	accepted Counter = iota

	// What was done to commands and replies.
	epsvTranslated  // EPSV went as PASV and came back with a port
	epsvFailed      // the server refused PASV
	epsvUnsupported // EPSV with a protocol other than 2, or ALL
	eprtTranslated  // EPRT went as PORT
	eprtUnmapped    // no port could be made to lead to the client
	badPassiveReply // a 227, or a 229 of a call, without a port
	pasvTranslated  // PASV of a call went as EPSV and came back with a port of the pool
	pasvUnmapped    // no port could be made to lead to the server
	portTranslated  // PORT or EPRT of a call went as EPRT with the address that the server sees
	portUnmapped    // no port of the pool could be kept for the server
	algsAnswered    // ALGS, whatever its argument
	authAccepted
	authRefused
	lineTooLong // passed in pieces, unseen
	telnetRefused

	// Connections that were not served.
	tooMany
	tooManyOfClient
	strangerRefused // the translator knows no such connection
	serverUnreachable

	// Ends of the rest.
	ended
	resetByClient
	resetByServer
	hostGone // a side has stopped to acknowledge
	idleTimeout
	writeTimeout
	noopRefused
	stopped
	gaveWay // its client had most of all connections, and another needed one
	broken  // an error of another kind

	counters = int(iota)
)

var counterNames = [counters]string{
	accepted:          "accepted",
	epsvTranslated:    "epsv_translated",
	epsvFailed:        "epsv_failed",
	epsvUnsupported:   "epsv_unsupported",
	eprtTranslated:    "eprt_translated",
	eprtUnmapped:      "eprt_unmapped",
	badPassiveReply:   "bad_passive_reply",
	pasvTranslated:    "pasv_translated",
	pasvUnmapped:      "pasv_unmapped",
	portTranslated:    "port_translated",
	portUnmapped:      "port_unmapped",
	algsAnswered:      "algs_answered",
	authAccepted:      "auth_accepted",
	authRefused:       "auth_refused",
	lineTooLong:       "line_too_long",
	telnetRefused:     "telnet_refused",
	tooMany:           "too_many",
	tooManyOfClient:   "too_many_of_client",
	strangerRefused:   "stranger_refused",
	serverUnreachable: "server_unreachable",
	ended:             "ended",
	resetByClient:     "reset_by_client",
	resetByServer:     "reset_by_server",
	hostGone:          "host_gone",
	idleTimeout:       "idle_timeout",
	writeTimeout:      "write_timeout",
	noopRefused:       "noop_refused",
	stopped:           "stopped",
	gaveWay:           "gave_way",
	broken:            "broken",
}

// String returns the counter's name in snake_case, as a metric's label.
func (c Counter) String() string { return counterNames[c] }

// tally holds the counters of a proxy; its connections add to them at once.
type tally [counters]atomic.Uint64

func (t *tally) add(c Counter) { t[c].Add(1) }

// all yields each counter and its value.
func (t *tally) all() iter.Seq2[Counter, uint64] {
	return func(yield func(Counter, uint64) bool) {
		for c := range t {
			if !yield(Counter(c), t[c].Load()) {
				return
			}
		}
	}
}
