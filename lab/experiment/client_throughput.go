// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of client-throughput.
const (
	clientName  = "client-throughput"
	clientBytes = 8 << 20 // of the transfer that is checked byte by byte
)

// clientThroughput is the experiment client-throughput.
var clientThroughput = lab.Experiment{
	Name:      clientName,
	Summary:   "TCP through a client on the host itself: tc and user space, Miredo, plain IPv6",
	NeedsRoot: true,
	Needs:     []string{"miredo", "miredo-server"},
	Run:       runClientThroughput,
}

// clientPair is a client and a host that are joined by one cable. Addresses are the
// same in each pair.
//
//	client eth0 203.0.113.20 ------ 203.0.113.1 eth0 host
//	            2001:db8::2         2001:db8::1
//	                                2001:db8:1::1 behind it, by Teredo only
//
// The host is Teredo server and its own relay as well, by tc in all pairs.
type clientPair struct {
	*teredoClient
	host    *lab.Node
	daemons *daemons
}

// Addresses of a pair.
var (
	pairPlainHost   = netip.MustParseAddr("2001:db8::1")
	pairPlainClient = netip.MustParseAddr("2001:db8::2")
	pairHost        = netip.MustParseAddr("2001:db8:1::1")
)

// clientWays are the clients that are compared.
var clientWays = []way{wayMiredo, wayUser, wayTC}

// clientPath is one path of TCP streams, between these addresses of a pair.
type clientPath struct {
	way          way
	pair         *clientPair
	host, client netip.Addr
}

func runClientThroughput(ctx context.Context, e *lab.Env) (err error) {
	rounds, length := streamForm(e.Runs)
	l, err := e.New(ctx, clientName)
	if err != nil {
		return err
	}
	defer closing(&err, l.Close)
	var ways []clientPath
	for _, w := range clientWays {
		e.Step("starting server, relay and client: %s", w.title)
		p, err := newClientPair(ctx, e, l, w)
		if err != nil {
			return fmt.Errorf("client %s: %w", w.title, err)
		}
		ways = append(ways, clientPath{w, p, pairHost, p.addr})
	}
	// Plain IPv6 takes the cable of the last one.
	plain := clientPath{wayPlain, ways[len(ways)-1].pair, pairPlainHost, pairPlainClient}
	ways = append([]clientPath{plain}, ways...)
	rep := &report.Report{Experiment: clientName, Title: "TCP through a client on the host itself, offloads on", Peer: "Miredo"}
	if err := checkStreams(ctx, e, rep, ways); err != nil {
		return err
	}
	if err := measureStreams(ctx, e, rep, ways, rounds, length); err != nil {
		return err
	}
	offloads, err := plain.pair.node.Offloads("eth0")
	if err != nil {
		return err
	}
	rep.Fact("offloads of the cables", "%s", offloads)
	if err := checkClients(ctx, rep, ways); err != nil {
		return err
	}
	return finish(e, rep)
}

// newClientPair draws a pair and starts what runs in it.
func newClientPair(ctx context.Context, e *lab.Env, l *lab.Lab, w way) (*clientPair, error) {
	p := &clientPair{host: l.Node(w.name + "-host"), daemons: &daemons{env: e, dir: l.Dir(), ctx: ctx}}
	p.teredoClient = &teredoClient{net: &teredoNet{lab: l, daemons: p.daemons}, node: l.Node(w.name + "-client"), name: w.name, settings: fmt.Sprintf("fast_path = %q\n", w.fast)}
	l.Link(p.node, "eth0", p.host, "eth0")
	p.node.Addr("eth0", "203.0.113.20/24", pairPlainClient.String()+"/64")
	p.host.Addr("eth0", "203.0.113.1/24", "203.0.113.2/24", "203.0.113.3/24", pairPlainHost.String()+"/64").Addr("lo", pairHost.String()+"/128")
	if err := l.Err(); err != nil {
		return nil, err
	}
	if w != wayTC {
		// Over a virtual cable what leaves uncut arrives uncut, and a program that
		// reads datagrams cannot take it. A network card would have cut it.
		if err := p.host.DisableOffloads("eth0"); err != nil {
			return nil, err
		}
	}
	if err := p.startHost(ctx); err != nil {
		return nil, err
	}
	who := isthmus
	if w == wayMiredo {
		who = miredo
	}
	if err := p.start(ctx, who); err != nil {
		return nil, err
	}
	_, err := p.await(ctx)
	return p, err
}

// startHost starts the host's server and relay.
func (p *clientPair) startHost(ctx context.Context) error {
	routes, err := watchRoutes(p.host)
	if err != nil {
		return err
	}
	defer routes.close()
	daemon, err := p.daemons.keep(p.daemons.isthmus(p.host, "host").run(ctx, fmt.Sprintf(`[[teredo_server]]
name = "server"
address = %q
secondary = %q

[[teredo_relay]]
name = "relay"
mode = "host"
bind = %q
fast_path = "tc"
keep_state = false
`, serverAddr, serverAddr2, relayBind)))
	if err != nil {
		return err
	}
	if err := routes.await(ctx, daemon, "2001::/32"); err != nil {
		return err
	}
	return serving(ctx, p.host, daemon, relayBind.Port())
}

// clientFast is what an Isthmus client says of its fast path.
type clientFast struct {
	FastPath struct {
		Path    string                       `json:"path"`
		Why     string                       `json:"why"`
		Packets map[string]map[string]uint64 `json:"packets"` // by verdict and reason
	} `json:"fast_path"`
}

// checkClients looks whether packets took the ways that the columns are named
// after.
func checkClients(ctx context.Context, rep *report.Report, ways []clientPath) error {
	for _, w := range ways {
		if !w.way.ours() {
			continue
		}
		var s clientFast
		if err := w.pair.isthmus().state(ctx, &s); err != nil {
			return err
		}
		sent, received := s.FastPath.Packets["forward"]["host_encap_forwarded"], s.FastPath.Packets["forward"]["host_decap_forwarded"]
		if fast := w.way == wayTC; fast != (sent > 0) || fast != (received > 0) {
			rep.Fault("%s sent %d and received %d packets on its fast path (%s): %s", w.way.title, sent, received, s.FastPath.Path, s.FastPath.Why)
		}
	}
	return nil
}
