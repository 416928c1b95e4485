// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/sip/locate"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// names are the hosts that were looked for, and where they are.
type names struct {
	mu    sync.Mutex
	found map[place][]transaction.Target
}

// place is what is looked for: a name with what the URI says of port and transport.
type place struct {
	host      string
	port      uint16
	transport string // "" if it is open
}

// maxNames is how many places an agent remembers.
const maxNames = 1024

func placeOf(u *message.URI) place {
	transport, _ := u.Params.Get("transport")
	if u.Scheme == "sips" {
		transport = "TLS"
	}
	host := u.Host
	if m, has := u.Params.Get("maddr"); has {
		host = m
	}
	return place{strings.ToLower(host), u.Port, strings.ToUpper(transport)}
}

func (n *names) of(p place) []transaction.Target {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.found[p]
}

// keep remembers where a place is; if there are too many, another is forgotten.
func (n *names) keep(p place, list []transaction.Target) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.found == nil {
		n.found = map[place][]transaction.Target{}
	}
	for other := range n.found {
		if len(n.found) < maxNames {
			break
		}
		delete(n.found, other)
	}
	n.found[p] = list
}

// lookup finds where a name leads that was resolved before: the targets of transports that this agent
// has, best first.
func (a *Agent) lookup(name string, port uint16, transport string) []transaction.Target {
	return slices.Clone(a.targets(place{strings.ToLower(name), port, transport}))
}

// targets are those of a place, best first.
func (a *Agent) targets(p place) []transaction.Target {
	if at, ok := a.set.Names[p.host]; ok {
		usual := uint16(5060)
		if p.transport == "TLS" {
			usual = 5061
		}
		return []transaction.Target{{Transport: cmp.Or(p.transport, "UDP"), Remote: netip.AddrPortFrom(at.Unmap(), cmp.Or(p.port, usual))}}
	}
	return a.names.of(p)
}

// resolve looks for the servers of a URI (RFC 3263). What it finds replaces what was known; finding
// nothing does not.
func (a *Agent) resolve(ctx context.Context, u message.URI) {
	p := placeOf(&u)
	if _, err := netip.ParseAddr(strings.Trim(p.host, "[]")); err == nil || p.host == "" || a.set.Names[p.host].IsValid() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, locate.Within)
	defer cancel()
	usable := func(transport string, _ bool) bool { return transport != "TLS" || p.transport == "TLS" } // the agent has none
	if list := locate.URI(ctx, locate.NewSystem(a.dialName), &u, cmp.Or(p.transport, "UDP"), usable); len(list) > 0 {
		a.names.keep(p, list)
	}
}

// dialName opens a socket to a name server in the agent's namespace.
func (a *Agent) dialName(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = a.ns.Do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// find looks for the servers for which requests wait.
func (a *Agent) find(u message.URI) {
	a.resolve(a.ctx, u)
	a.post(func() { a.engine.Resolved(u, time.Now(), &a.out) })
}

// resolveOwn resolves what registrations need.
func (a *Agent) resolveOwn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if a.set.UA.Proxy.Host != "" {
		a.resolve(ctx, a.set.UA.Proxy)
		return
	}
	if a.set.UA.Register > 0 {
		a.resolve(ctx, a.registrar())
	}
}

// registrar is the URI that registrations go to without a proxy.
func (a *Agent) registrar() message.URI {
	return message.URI{Scheme: cmp.Or(a.set.UA.AOR.Scheme, "sip"), Host: a.set.UA.AOR.Host, Port: a.set.UA.AOR.Port}
}
