// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
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
	way          way
	client, host *lab.Node
	address      netip.Addr // the client's Teredo address
	daemons      []*lab.Proc
	dir          string
	isthmus      instance // the client, unless it is Miredo
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
	dir, err := os.MkdirTemp("", "isthmus-client-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var ways []clientPath
	for _, w := range clientWays {
		e.Step("starting server, relay and client: %s", w.title)
		p, err := newClientPair(ctx, e, l, w, dir)
		if err != nil {
			return fmt.Errorf("client %s: %w", w.title, err)
		}
		ways = append(ways, clientPath{w, p, pairHost, p.address})
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
	offloads, err := plain.pair.client.Offloads("eth0")
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
func newClientPair(ctx context.Context, e *lab.Env, l *lab.Lab, w way, dir string) (*clientPair, error) {
	p := &clientPair{way: w, client: l.Node(w.name + "-client"), host: l.Node(w.name + "-host"), dir: filepath.Join(dir, w.name)}
	p.isthmus = instance{p.client, e.Binary, p.dir, "client"}
	l.Link(p.client, "eth0", p.host, "eth0")
	p.client.Addr("eth0", "203.0.113.20/24", pairPlainClient.String()+"/64")
	p.host.Addr("eth0", "203.0.113.1/24", "203.0.113.2/24", "203.0.113.3/24", pairPlainHost.String()+"/64").Addr("lo", pairHost.String()+"/128")
	if err := l.Err(); err != nil {
		return nil, err
	}
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		return nil, err
	}
	if w != wayTC {
		// Over a virtual cable what leaves uncut arrives uncut, and a program that
		// reads datagrams cannot take it. A network card would have cut it.
		if err := p.host.DisableOffloads("eth0"); err != nil {
			return nil, err
		}
	}
	if err := p.startHost(ctx, e); err != nil {
		return nil, err
	}
	return p, p.startClient(ctx, e)
}

// startHost starts the host's server and relay.
func (p *clientPair) startHost(ctx context.Context, e *lab.Env) error {
	routes, err := watchRoutes(p.host)
	if err != nil {
		return err
	}
	defer routes.close()
	daemon, err := p.run(ctx, instance{p.host, e.Binary, p.dir, "host"}, fmt.Sprintf(`[[teredo_server]]
name = "server"
address = %q
secondary = %q

[[teredo_relay]]
name = "relay"
mode = "host"
bind = %q
fast_path = "tc"
keep_state = false
`, serverAddr, serverAddr2, relayBind))
	if err != nil {
		return err
	}
	p.daemons = append(p.daemons, daemon)
	if err := routes.await(ctx, daemon, "2001::/32"); err != nil {
		return err
	}
	return serving(ctx, p.host, daemon, relayBind.Port())
}

// startClient starts the client and waits for its address.
func (p *clientPair) startClient(ctx context.Context, e *lab.Env) error {
	a, err := watchArrival(p.client)
	if err != nil {
		return err
	}
	defer a.close()
	var daemon *lab.Proc
	if p.way == wayMiredo {
		c, err := peersOf(e).MiredoClient(p.dir, peers.MiredoClient{Name: "client", Server: serverAddr, BindPort: clientPort})
		if err != nil {
			return err
		}
		daemon, err = p.client.Start(ctx, lab.Process{Name: "miredo", Path: c.Path, Args: c.Args, Env: c.Env})
		if err != nil {
			return err
		}
	} else {
		daemon, err = p.run(ctx, p.isthmus, fmt.Sprintf("[[teredo_client]]\nname = \"client\"\nserver = [%q]\nport = %d\nunsolicited = \"allow\"\nfast_path = %q\n",
			serverAddr, clientPort, p.way.fast))
		if err != nil {
			return err
		}
	}
	p.daemons = append(p.daemons, daemon)
	if _, err := a.await(ctx, daemon); err != nil {
		return err
	}
	p.address = a.addr
	return nil
}

// run starts the Isthmus of an end.
func (p *clientPair) run(ctx context.Context, i instance, sections string) (*lab.Proc, error) {
	if err := i.configure(sections); err != nil {
		return nil, err
	}
	return i.launch(ctx, "isthmus-"+i.name)
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
		if err := w.pair.isthmus.state(ctx, &s); err != nil {
			return err
		}
		sent, received := s.FastPath.Packets["forward"]["host_encap_forwarded"], s.FastPath.Packets["forward"]["host_decap_forwarded"]
		if fast := w.way == wayTC; fast != (sent > 0) || fast != (received > 0) {
			rep.Fault("%s sent %d and received %d packets on its fast path (%s): %s", w.way.title, sent, received, s.FastPath.Path, s.FastPath.Why)
		}
	}
	return nil
}
