// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package portmap asks the gateway of a Teredo client to reserve its UDP port:
// by UPnP (RFC 6081 section 5.3) or by NAT-PMP (RFC 6886). It does its own I/O;
// what a reserved port means is decided by package client.
//
// Gateways are not believed more than needed, since anybody on the network can
// answer in their place. Only answers from the gateway's own address count; no
// address of another host in an answer is ever contacted; redirections are not
// followed; each answer is bounded in size and all of them together in time; and
// nothing that a gateway writes reaches the log but numbers and addresses.
//
//house:edge
package portmap

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/special"
)

// Method is a protocol to ask a gateway.
type Method string

// Methods.
const (
	UPnP   Method = "upnp"
	NATPMP Method = "nat-pmp"
)

// Target is whose port is to be reserved, and where.
type Target struct {
	// Local is the address and port of the service socket.
	Local netip.AddrPort
	// Gateway is the router on the way to the Teredo server.
	Gateway netip.Addr

	times *times // nil: as usual
}

// valid reports whether there is something to ask for.
func (t Target) valid() bool {
	return t.Local.Addr().Is4() && t.Local.Port() != 0 && t.Gateway.Is4()
}

// Mapping is a port that a gateway has reserved. The zero value is none.
type Mapping struct {
	Method Method
	// External is the address and port by which the gateway shows the service
	// socket.
	External netip.AddrPort
	// Lifetime ends the reservation unless it is renewed; 0 is no end.
	Lifetime time.Duration
}

// Errors that a caller distinguishes.
var (
	// ErrNoGateway: no one at the gateway's address speaks the protocol.
	ErrNoGateway = errors.New("the gateway does not answer")
	// errAnswer: the gateway said something that cannot be.
	errAnswer = errors.New("the gateway's answer makes no sense")
	// errStranger: what answered the search was not the gateway's, or led to
	// someone else.
	errStranger = fmt.Errorf("%w; others answered in its place, or it named others, which are not contacted", ErrNoGateway)
)

// Reason names in snake_case why a port was not reserved, for a counter's label;
// it is one of [Reasons].
func Reason(err error) string {
	switch {
	case errors.As(err, new(refused)):
		return "refused"
	case errors.Is(err, errTooLarge):
		return "answer_too_large"
	case errors.Is(err, errAnswer):
		return "bad_answer"
	case errors.Is(err, errStranger):
		return "answer_of_stranger"
	case errors.Is(err, ErrNoGateway):
		return "no_gateway"
	}
	return "other"
}

// Reasons lists what Reason returns, in the order in which one of several errors
// is chosen.
var Reasons = []string{"refused", "answer_too_large", "bad_answer", "answer_of_stranger", "no_gateway", "other"}

// refused is an error code of a gateway.
type refused struct {
	method Method
	code   int
}

// Error names the code, as the tables of the protocol list it.
func (r refused) Error() string {
	return fmt.Sprintf("the gateway refuses to reserve the port (%s error %d)", r.method, r.code)
}

// external checks what a gateway says of itself. A private address is possible:
// then another NAT follows (RFC 6081 section 5.3.1).
func external(a netip.Addr, port uint16) (netip.AddrPort, error) {
	if !a.Is4() || port == 0 || !special.Forwarded4(a.As4()) {
		return netip.AddrPort{}, errAnswer
	}
	return netip.AddrPortFrom(a, port), nil
}
