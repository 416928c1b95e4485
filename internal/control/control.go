// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package control lets people and programs look into a running isthmus, by HTTP
// and JSON over a Unix socket.
//
//	GET  /v1/status                        state, counters and drops of all instances
//	GET  /v1/peers?instance=NAME&limit=N   peers of one instance
//	GET  /v1/addresses                     the host's addresses from instances, and their changes, a line each, until hung up
//	GET  /v1/trace?instance=NAME&filter=F  samples of packets, a line each, until hung up
//	POST /v1/reload                        read the configuration file again
//	POST /v1/drain?instance=NAME           withdraw announced prefixes; without a name, all
//	POST /v1/undrain?instance=NAME         let them be announced again
//	GET  /v1/ask?role=R&instance=NAME&what=W&arg.X=Y     look into an instance's tables
//	POST /v1/order?role=R&instance=NAME&what=W&arg.X=Y   change something until it ends
//
// Reading is open to everybody who may connect, which the permission bits of the
// socket decide. Changing is a group of handlers of its own: it is open only to
// root and to the user who runs the daemon, whatever the bits say. So is the
// trace, which shows what others send.
//
// One user may have 16 connections at once, and all but root and the user who runs the
// daemon 48 together; on others it hangs up.
//
// An error is answered with a status of 4xx or 5xx and {"error": "…"}; faults of
// the configuration file stand in "faults" too, one by one.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/trace"
)

// Paths of the interface.
const (
	pathStatus = "/v1/status"
	pathPeers  = "/v1/peers"
	// pathAddresses is for programs that move with the host.
	pathAddresses = "/v1/addresses"
	pathTrace     = "/v1/trace"
	pathReload    = "/v1/reload"

	pathDrain   = "/v1/drain"
	pathUndrain = "/v1/undrain"
)

// SocketVariable is the environment variable that names the socket to those who
// ask, where neither a flag nor a configuration does.
const SocketVariable = "ISTHMUS_CONTROL"

// DefaultPeers is how many peers are listed where no limit is given, and
// MaxPeers the largest limit: an answer is built in memory.
const (
	DefaultPeers = 100
	MaxPeers     = 10_000
)

// ErrNoInstance reports that no instance has the name, or that it keeps no peers.
var ErrNoInstance = errors.New("no such instance")

// Status is the state of the whole process.
type Status struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Config is the path of the configuration file; empty without one.
	Config    string     `json:"config,omitempty"`
	Instances []Instance `json:"instances"`
	// Neighbors are the routers that are told of prefixes by BGP.
	Neighbors []role.Neighbor `json:"neighbors,omitempty"`
}

// Instance is the state of one instance.
type Instance struct {
	Name  string `json:"name"`
	Role  string `json:"role"`
	Ready bool   `json:"ready"`
	// State is what the role itself tells; its fields are the role's.
	State json.RawMessage `json:"state,omitempty"`
	// Values are counters and gauges without a reason, by metric name.
	Values map[string]float64 `json:"values,omitempty"`
	// Dropped counts dropped packets by reason.
	Dropped map[string]uint64 `json:"dropped,omitempty"`
	// Announcement is there for an instance whose prefixes are announced.
	Announcement *role.Announcement `json:"announcement,omitempty"`
}

// PeerList is a part of the peer table of one instance.
type PeerList struct {
	Instance string      `json:"instance"`
	Total    int         `json:"total"`
	Peers    []role.Peer `json:"peers"`
}

// Reloaded reports what came of reading the configuration again.
type Reloaded struct {
	// NeedsRestart lists settings whose new values are not in effect yet.
	NeedsRestart []Pending `json:"needs_restart"`
}

// Pending are keys of one section that wait for a restart.
type Pending struct {
	// Section is "relay", "control" and so on.
	Section string `json:"section"`
	// Instance is empty for sections without instances.
	Instance string `json:"instance,omitempty"`
	// Keys are the changed keys; empty for an instance that came or went.
	Keys []string `json:"keys,omitempty"`
	// Change is "changed", "added" or "removed".
	Change string `json:"change"`
}

// Source is what the daemon offers to this package.
type Source interface {
	// Status is a snapshot of everything.
	Status() Status
	// Peers lists peers of an instance, or returns ErrNoInstance.
	Peers(instance string, limit int) (PeerList, error)
	// Trace calls emit, one call at a time, for samples of packets of one
	// instance, or of all if it is empty, until ctx is done. emit does not wait.
	Trace(ctx context.Context, instance string, s trace.Sampling, emit func(*trace.Sample)) error
	// Addresses calls emit, one call at a time, for the address that each instance has given
	// the host and for each change from then on, until ctx is done; or until emit has been
	// too slow, so that changes were missed. emit may wait.
	Addresses(ctx context.Context, emit func(event.AddressChange))
	// Reload reads the configuration again and applies it.
	Reload() (Reloaded, error)
	// Drain withdraws what is announced for an instance, or for all if the name is
	// empty, or ends that; the error is ErrNoInstance if nothing is announced for it.
	Drain(instance string, on bool) (Drained, error)
	// Ask has an instance answer a question about its tables, and Order has it change
	// something; the error is ErrNoInstance if none is meant.
	Ask(q Question) (any, error)
	Order(q Question) (any, error)
}
