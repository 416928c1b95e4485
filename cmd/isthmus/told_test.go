// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/trace"
)

// told is a daemon that always says the same.
type told struct{}

func (told) Status() control.Status {
	return control.Status{
		Version: "1.0", PID: 7, Started: time.Now().Add(-time.Hour), Config: "/etc/isthmus/isthmus.toml",
		Instances: []control.Instance{
			{
				Name: "home", Role: "teredo_client", Ready: true,
				State:   json.RawMessage(`{"state":"qualified","address":"2001:0:c000:201::1","nat":{"mapping":"endpoint-independent","symmetric":false},"servers":["192.0.2.1","192.0.2.2"],"peers":1,"empty":""}`),
				Values:  map[string]float64{"rx_packets_total": 12, "peers": 1, "tx_packets_total": 0},
				Dropped: map[string]uint64{"truncated": 1, "not_global": 5, "looped": 0},
			},
			{
				Name: "border", Role: "teredo_relay", Ready: true,
				State:  json.RawMessage(`{"state":"device_down","address":"2001:db8::1"}`),
				Values: map[string]float64{"host_multicast_total": 3},
			},
			{Name: "cut", Role: "teredo_client", Ready: true, State: json.RawMessage(`{"state":"qualified","address":"2001:0:c000:201::2","device_down":true}`)},
			{Name: "down", Role: "teredo_client", Ready: true, State: json.RawMessage(`{"state":"device_down","address":"2001:0:c000:201::3","device_down":true}`)},
			{Name: "alone", Role: "teredo_client", Ready: true, State: json.RawMessage(`{"state":"off_line"}`)},
			{Name: "public", Role: "teredo_server"},
		},
	}
}

func (told) Peers(instance string, limit int) (control.PeerList, error) {
	if instance != "home" {
		return control.PeerList{}, control.ErrNoInstance
	}
	return control.PeerList{Instance: instance, Total: 2, Peers: []role.Peer{{Trusted: true, Queued: limit}}}, nil
}

func (told) Reload() (control.Reloaded, error) {
	return control.Reloaded{NeedsRestart: []control.Pending{{Section: "teredo_client", Instance: "home", Keys: []string{"port", "bind"}, Change: "changed"}}}, nil
}

func (told) Ask(control.Question) (any, error) { return nil, control.ErrNoInstance }

func (told) Order(control.Question) (any, error) { return nil, control.ErrNoInstance }

func (told) Drain(instance string, on bool) (control.Drained, error) {
	if instance == "home" {
		return control.Drained{}, fmt.Errorf("%w: nothing is announced for %q", control.ErrNoInstance, instance)
	}
	return control.Drained{Instances: []string{"border"}}, nil
}

// Addresses tells of one that stands by.
func (told) Addresses(ctx context.Context, emit func(event.AddressChange)) {
	emit(event.AddressChange{Instance: "home", New: netip.MustParseAddr("2001:0:c000:201::1"), Standby: true, Interface: "teredo", Cause: event.Qualified})
	<-ctx.Done()
}

// Trace shows no more packets than a reader that gets no time for a while can still have.
func (told) Trace(ctx context.Context, _ string, _ trace.Sampling, emit func(*trace.Sample)) error {
	client, host := netip.MustParseAddr("2001:0:c000:201::1"), netip.MustParseAddr("2001:db8::1")
	for range 100 {
		emit(&trace.Sample{
			Time: time.Unix(3, 4000).UTC(), Instance: "border", Path: trace.Fast, Hook: "tc", Device: "eth0",
			Verdict: trace.Punt, Reason: "bubble", Link: trace.IP, Length: 40,
			Data: packet.AppendIPv6Header(nil, packet.ProtoNone, 64, 0, client, host),
		})
	}
	<-ctx.Done()
	return nil
}

// serveTold answers as a daemon on a socket until the test ends.
func serveTold(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "control.sock")
	serveAt(t, socket, told{})
	return socket
}

// serveAt has a source answer on a socket until the test ends.
func serveAt(t *testing.T, socket string, source control.Source) {
	t.Helper()
	listener, err := control.Listen(socket, fs.FileMode(0o600), "")
	if err != nil {
		t.Fatal(err)
	}
	server := control.NewServer(source)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
}
