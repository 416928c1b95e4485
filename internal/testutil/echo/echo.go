// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package echo is a toy of a role, for tests of what all roles share: it answers by UDP
// what it is sent. The program gets it by one line of a list and knows no more of it.
package echo

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/role"
)

const name = "echo"

// Role is the echo as the program knows it.
var Role = role.Of[Settings]{
	Section: config.SectionOf[Settings]{
		Name: name, Help: "Echo (RFC 862): answers by UDP what it is sent.",
		Keys: (*Settings).keys, Claims: (*Settings).claims,
	},
	Summary: func(s *Settings) string { return fmt.Sprintf("echoes on UDP %s", s.Listen) },
	New:     func(s Settings, log *slog.Logger) (role.Instance, error) { return newInstance(s), nil },
}.Role()

// Settings are one [[echo]] section.
type Settings struct {
	Name   string
	Listen netip.AddrPort
	Prefix string
}

func (s *Settings) keys() []key.Key {
	return []key.Key{
		key.Of("name", &s.Name, name, key.InstanceName, key.Identity, "Unique over all instances."),
		key.Of("listen", &s.Listen, "127.0.0.1:7007", listen, key.Restart, "Where it listens."),
		key.Of("prefix", &s.Prefix, "", key.Optional(key.InstanceName), key.Live, "What it puts in front. Empty: nothing."),
	}
}

var listen = key.Text("127.0.0.1:7", func(s string) (netip.AddrPort, *key.Fault) {
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return a, key.Wrong("write it like 127.0.0.1:7", "%q is not an address with a port", s)
	}
	return a, nil
})

func (s *Settings) claims() []config.Claim {
	return []config.Claim{config.Socket{Key: "listen", Protocol: "UDP", At: s.Listen}}
}

var _ role.Changer[Settings] = (*instance)(nil)

type instance struct {
	settings Settings
	prefix   atomic.Pointer[string]
	ready    chan struct{}
	echoed   atomic.Uint64
}

func newInstance(s Settings) *instance {
	i := &instance{settings: s, ready: make(chan struct{})}
	i.prefix.Store(&s.Prefix)
	return i
}

func (i *instance) Name() string           { return i.settings.Name }
func (i *instance) Role() string           { return name }
func (i *instance) Ready() <-chan struct{} { return i.ready }
func (i *instance) Status() any {
	return map[string]any{"prefix": *i.prefix.Load()}
}

func (i *instance) Collect(emit func(role.Metric)) {
	emit(role.Count("echoed_total", "Datagrams sent back.", i.echoed.Load()))
}

func (i *instance) Prepare(s Settings) (role.Change, error) {
	return func() ([]string, error) { i.prefix.Store(&s.Prefix); return nil, nil }, nil
}

func (i *instance) Run(ctx context.Context) error {
	socket, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(i.settings.Listen))
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w", i.settings.Listen, err)
	}
	defer context.AfterFunc(ctx, func() { _ = socket.Close() })()
	close(i.ready)
	buffer := make([]byte, 2048)
	for {
		n, from, err := socket.ReadFromUDPAddrPort(buffer)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot go on listening: %w", err)
		}
		if _, err := socket.WriteToUDPAddrPort(append([]byte(*i.prefix.Load()), buffer[:n]...), from); err == nil {
			i.echoed.Add(1)
		}
	}
}
