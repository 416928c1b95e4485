// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"

	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// Parameters are those of the protocol (RFC 9260 section 16), for an association. They begin as [Defaults].
type Parameters = assoc.Parameters

// PathParameters are those of one path.
type PathParameters = assoc.PathParameters

// Defaults returns the values that the RFCs recommend.
func Defaults() Parameters { return assoc.Defaults() }

// AnyPort is the port of UDP that the kernel chooses.
const AnyPort = -1

// Config says how endpoints are opened. The zero value is ready to use.
type Config struct {
	// Parameters of associations; nil is Defaults().
	Parameters *Parameters
	// UDPPort is the local port of UDP, where UDP carries the packets. 0 is 9899 for who listens, and any for who
	// only dials; AnyPort is any.
	UDPPort int
	// HideAddresses has no address named to peers but those that packets come from, as a host behind a NAT must (RFC
	// 6951 section 5.7).
	HideAddresses bool
	// StaticAddresses has an endpoint with all addresses of the host keep those that there are when it is opened. Else
	// it follows the host: an address that comes or goes is added to all associations, or deleted (RFC 5061), and with
	// a link that goes down its paths fail at once.
	StaticAddresses bool
	// BesideKernel has raw sockets opened although the kernel speaks SCTP itself: see ErrKernel.
	BesideKernel bool
	// Prompt has each packet read as it comes. Else an endpoint that has had nothing but heartbeats for a second, and of
	// those some hundreds a second, reads them together each 30 ms, which takes a fraction of the processor. One whose
	// Parameters have an RTO.Min below 150 ms is always prompt, and so it is from when an association or a path is given one: it
	// would miss answers that are late by that.
	Prompt bool
	// MaxAssociations bounds those of an endpoint; 0 is 4096.
	MaxAssociations int
	// Backlog bounds associations that wait for Accept; 0 is 128.
	Backlog int
}

// Defaults of a Config.
const (
	defaultAssociations = 4096
	defaultBacklog      = 128
)

// Dial sets up an association with the zero Config. See [Config.Dial].
func Dial(network, address string) (*Conn, error) {
	return new(Config).Dial(context.Background(), network, address)
}

// Listen opens an endpoint with the zero Config. See [Config.Listen].
func Listen(network, address string) (*Listener, error) {
	return new(Config).Listen(context.Background(), network, address)
}

// Dial opens an endpoint for one association, with all addresses of the host and a port of its own, and sets up
// that. Networks are "sctp", "sctp4" and "sctp6", which need CAP_NET_RAW, and "sctp+udp", "sctp4+udp" and
// "sctp6+udp". The address is as [Addr] says, and should have all addresses of the peer that are known: any of them
// may be the one that works now. The sockets live in the network namespace of the calling thread. To dial from
// addresses or a port of one's choice, or several times by one port, see [Config.Open].
func (c *Config) Dial(ctx context.Context, network, address string) (*Conn, error) {
	e, err := c.open(ctx, network, ":0", false)
	if err != nil {
		return nil, err
	}
	defer e.Close() // once the association has ended
	return e.Dial(ctx, address)
}

// Listen opens an endpoint that takes associations. Without hosts in the address it has all addresses of the host,
// and follows them. Port 0 is a port that is free.
func (c *Config) Listen(ctx context.Context, network, address string) (*Listener, error) {
	e, err := c.open(ctx, network, address, true)
	if err != nil {
		return nil, err
	}
	return &Listener{endpoint: e}, nil
}

// Open opens an endpoint that only dials: by a port and from addresses of one's choice, and as many associations as
// are wanted. Without hosts in the address it has all of the host, and follows them; port 0 is one that is free.
func (c *Config) Open(ctx context.Context, network, address string) (*Endpoint, error) {
	return c.open(ctx, network, address, false)
}
