// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package role says what a running instance of a role is to the daemon. It
// holds interfaces and plain values only, so that both the run packages, which
// implement it, and the daemon, which composes them, may import it.
package role

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/trace"
)

// Instance is one configured instance of a role.
type Instance interface {
	// Name is the name from the configuration, unique in the process.
	Name() string
	// Role is the name of its section of the configuration.
	Role() string
	// Run works until ctx is done, then undoes what it changed on the
	// machine (addresses, routes, devices) and returns nil; if [Leaving] tells
	// so, it leaves what a successor can go on with. It returns early
	// only with an error that says in one sentence what is wrong and what to
	// do. It is called once.
	Run(ctx context.Context) error
	// Ready is closed once the instance serves: sockets are bound and the
	// device is up. A client need not be qualified to be ready.
	Ready() <-chan struct{}
	// Status is a snapshot of the role's own state, a struct that
	// encoding/json can marshal with snake_case keys. Counters do not belong
	// in it: Collect reports them once for all readers. Safe at any time.
	Status() any
	// Collect reports all counters and gauges. Safe at any time.
	Collect(emit func(Metric))
}

// ErrLeave is the cause, see [context.Cause], of the end of instances for which a
// successor will go on.
var ErrLeave = errors.New("a successor goes on")

// Leaving reports whether ctx ended because a successor will go on.
func Leaving(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrLeave) }

// PeerLister is an Instance that keeps peers.
type PeerLister interface {
	// Peers returns at most limit peers, in any order, and the number of all.
	Peers(limit int) (peers []Peer, total int)
}

// AddressSource is an Instance that gives the host an address, and tells others
// when that changes.
type AddressSource interface {
	// OnAddressChange has f called for each change, in order, from before Run is
	// called. It must not wait.
	OnAddressChange(f func(event.AddressChange))
}

// AddressFollower is an Instance that acts on changes of the host's address.
type AddressFollower interface {
	// AddressChanged is told each change of each instance. It must not wait.
	AddressChanged(event.AddressChange)
}

// Tracer is an Instance that can show packets with what became of them.
type Tracer interface {
	// Trace calls emit for samples of what passes, one call at a time, until ctx
	// is done; then it returns nil. A sample and its data belong to emit for the
	// time of the call alone. One trace runs at a time: others get trace.ErrBusy.
	Trace(ctx context.Context, s trace.Sampling, emit func(*trace.Sample)) error
}

// Peer is one entry of a peer table, for people and programs that read status.
type Peer struct {
	// Address is the IPv6 address of the peer.
	Address netip.Addr `json:"address"`
	// Mapped is the IPv4 address and port to which its packets are sent.
	Mapped netip.AddrPort `json:"mapped"`
	// Trusted reports that a packet from it has proved the mapping.
	Trusted bool `json:"trusted"`
	// LastReceived and LastSent are zero if there was none.
	LastReceived time.Time `json:"last_received,omitzero"`
	LastSent     time.Time `json:"last_sent,omitzero"`
	// Queued is the number of packets that wait for the peer.
	Queued int `json:"queued"`
}

// Kind tells counters from gauges.
type Kind uint8

// Kinds of metrics.
const (
	// Counter only grows.
	Counter Kind = iota
	// Gauge goes up and down.
	Gauge
)

// Metric is one value at one moment. The metric's full name becomes
// isthmus_<role>_<Name>, with the label instance.
type Metric struct {
	// Name is snake_case, with a unit where there is one, and for counters
	// with the ending _total: "rx_packets_total", "peers".
	Name string
	// Kind is Counter or Gauge.
	Kind Kind
	// Help is one sentence, the same for all values of the name.
	Help string
	// Reason, Verdict and Path, if set, become labels of these names: why and what
	// became of packets, and which of several ways they took.
	Reason, Verdict, Path string
	// Value is the value now.
	Value float64
}

// DroppedName is the metric that holds one counter per drop reason.
const DroppedName = "dropped_total"

// Dropped is the counter of packets dropped for a named reason (snake_case).
func Dropped(reason string, count uint64) Metric {
	return Metric{
		Name: DroppedName, Kind: Counter, Help: "Packets dropped, by reason.",
		Reason: reason, Value: float64(count),
	}
}

// Count is a counter without labels.
func Count(name, help string, count uint64) Metric {
	return Metric{Name: name, Kind: Counter, Help: help, Value: float64(count)}
}

// Level is a gauge without labels.
func Level(name, help string, value float64) Metric {
	return Metric{Name: name, Kind: Gauge, Help: help, Value: value}
}
