// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/teredo"
)

// maker says whose program plays a role.
type maker string

// The makers.
const (
	isthmus  maker = "isthmus"
	miredo   maker = "miredo"
	osmocom  maker = "osmocom"
	kamailio maker = "kamailio"
)

// title is the maker's name in tables.
func (m maker) title() string {
	switch m {
	case miredo:
		return "Miredo"
	case osmocom:
		return "Osmocom"
	case kamailio:
		return "Kamailio"
	}
	return "Isthmus"
}

// daemonStart bounds the time until a daemon serves. Each needs milliseconds;
// the rest is for a loaded machine.
const daemonStart = time.Minute

// daemons knows how the programs are started: Isthmus by a configuration file
// as a user would write it, peers from their private folder.
type daemons struct {
	env *lab.Env
	dir string          // for configurations, control sockets and process ids
	ctx context.Context // ends the daemons when it ends
	run []*lab.Proc     // those that no one has stopped
}

// start starts a program that is to run until it is stopped.
func (d *daemons) start(ctx context.Context, node *lab.Node, what lab.Process) (*lab.Proc, error) {
	p, err := node.Start(ctx, what)
	return d.keep(p, err)
}

// keep notes a program that has been started.
func (d *daemons) keep(p *lab.Proc, err error) (*lab.Proc, error) {
	if err == nil {
		d.run = append(d.run, p)
	}
	return p, err
}

// processes are those that run, and this one, which plays the hosts.
func (d *daemons) processes() []int {
	pids := []int{os.Getpid()}
	for _, p := range d.run {
		pids = append(pids, p.PID())
	}
	return pids
}

// stop ends a program.
func (d *daemons) stop(p *lab.Proc) error {
	d.forget(p)
	return p.Stop()
}

// forget takes a program for stopped.
func (d *daemons) forget(p *lab.Proc) {
	d.run = slices.DeleteFunc(d.run, func(q *lab.Proc) bool { return q == p })
}

// healthy tells of programs that ended by themselves.
func (d *daemons) healthy() error {
	if d.ctx.Err() != nil {
		return nil // all were told to end
	}
	var errs []error
	for _, p := range d.run {
		errs = append(errs, alive(p.Name(), p))
	}
	return errors.Join(errs...)
}

// errEarly stands for the end of a daemon that should have gone on.
var errEarly = errors.New("it should run until it is stopped")

// missing says why a maker's programs cannot run, "" if they can.
func missing(e *lab.Env, who maker) string {
	if who == isthmus {
		return ""
	}
	if e.Limited {
		return "needs root"
	}
	if e.Peers == "" {
		return "needs 'make peers'"
	}
	for _, program := range []string{"miredo", "miredo-server"} {
		if _, err := peersOf(e).Program(program); err != nil {
			return "not in this release"
		}
	}
	return ""
}

func peersOf(e *lab.Env) *peers.Peers { return &peers.Peers{Dir: e.Peers} }

// isthmus is the Isthmus of a role on a node.
func (d *daemons) isthmus(node *lab.Node, role string) instance {
	return instance{node, d.env.Binary, d.dir, node.Name() + "-" + role}
}

// startIsthmus runs one role of Teredo from a configuration with that section.
func (d *daemons) startIsthmus(ctx context.Context, node *lab.Node, role, section string) (*lab.Proc, error) {
	i := d.isthmus(node, role)
	if err := i.configure(fmt.Sprintf("[[teredo_%s]]\nname = %q\n%s", role, node.Name(), section)); err != nil {
		return nil, err
	}
	p, err := i.launch(ctx, "isthmus-"+role)
	return d.keep(p, err)
}

// startPeer runs a command of package peers.
func (d *daemons) startPeer(ctx context.Context, node *lab.Node, name string, c *peers.Command, err error) (*lab.Proc, error) {
	if err != nil {
		return nil, err
	}
	return d.start(ctx, node, lab.Process{Name: name, Path: c.Path, Args: c.Args, Env: c.Env})
}

// startServer starts the Teredo server.
func (n *teredoNet) startServer(ctx context.Context, who maker) error {
	var p *lab.Proc
	var err error
	switch {
	case who == isthmus:
		section := fmt.Sprintf("address = %q\n", serverAddr)
		if !n.single {
			section += fmt.Sprintf("secondary = %q\n", serverAddr2)
		}
		p, err = n.daemons.startIsthmus(ctx, n.server, "server", section)
	case n.single:
		return errors.New("the server of Miredo needs two addresses")
	default:
		c, e := peersOf(n.daemons.env).MiredoServer(n.daemons.dir, peers.MiredoServer{Name: "server", Address: serverAddr, Address2: serverAddr2})
		p, err = n.daemons.startPeer(ctx, n.server, "miredo-server", c, e)
	}
	if err != nil {
		return err
	}
	return serves(ctx, n.server, who, p, teredo.Port)
}

// startRelay starts the relay between the two networks.
func (n *teredoNet) startRelay(ctx context.Context, who maker) error {
	return n.startRelayAt(ctx, n.relay, who, relayBind, "relay")
}

// startHostRelay makes the host its own relay: it gets an IPv4 address and no
// longer needs the other one.
func (n *teredoNet) startHostRelay(ctx context.Context, who maker) error {
	n.host.RemoveRoute("2001::/32", "2001:db8::3").Addr("v4", hostRelay.Addr().String()+"/24")
	if err := n.lab.Err(); err != nil {
		return err
	}
	return n.startRelayAt(ctx, n.host, who, hostRelay, "host")
}

func (n *teredoNet) startRelayAt(ctx context.Context, node *lab.Node, who maker, bind netip.AddrPort, mode string) error {
	route, err := watchRoutes(node)
	if err != nil {
		return err
	}
	defer route.close()
	var p *lab.Proc
	if who == isthmus {
		p, err = n.daemons.startIsthmus(ctx, node, "relay", fmt.Sprintf("mode = %q\nbind = %q\ncarry_clients = %v\n", mode, bind, n.fallback))
	} else {
		c, e := peersOf(n.daemons.env).MiredoRelay(n.daemons.dir, peers.MiredoRelay{Name: node.Name(), Bind: bind})
		p, err = n.daemons.startPeer(ctx, node, "miredo-relay", c, e)
	}
	if err != nil {
		return err
	}
	if err := route.await(ctx, p, "2001::/32"); err != nil {
		return err
	}
	return serves(ctx, node, who, p, bind.Port())
}

// start starts the client; await waits for its address.
func (c *teredoClient) start(ctx context.Context, who maker) (err error) {
	d := c.net.daemons
	if c.arrival, err = watchArrival(c.node); err != nil {
		return err
	}
	c.who = who
	if who == isthmus {
		c.process, err = d.startIsthmus(ctx, c.node, "client", c.section())
	} else {
		command, e := peersOf(d.env).MiredoClient(d.dir, peers.MiredoClient{Name: c.name, Server: serverAddr, BindPort: cmp.Or(c.port, clientPort)})
		c.process, err = d.startPeer(ctx, c.node, "miredo-client", command, e)
	}
	if err != nil {
		c.arrival.close()
	}
	return err
}

// section is the client's part of the configuration. It is open to everybody,
// since the experiments reach it from outside.
func (c *teredoClient) section() string {
	lines := []string{
		fmt.Sprintf("server = [%s]", quoted(append([]netip.Addr{serverAddr}, c.servers...))),
		fmt.Sprintf("port = %d", cmp.Or(c.port, clientPort)),
		`unsolicited = "allow"`,
	}
	if len(c.interfaces) > 0 {
		lines = append(lines, fmt.Sprintf("interfaces = [%s]", quoted(c.interfaces)))
	}
	if c.net.single {
		lines = append(lines, `secondary = "none"`)
	}
	if c.net.fallback {
		lines = append(lines, fmt.Sprintf("fallback = %q", relayBind))
	}
	return strings.Join(append(lines, c.lines...), "\n") + "\n" + c.settings
}

// quoted writes a list for a configuration file.
func quoted[T any](list []T) string {
	words := make([]string, len(list))
	for i, v := range list {
		words[i] = fmt.Sprintf("%q", fmt.Sprint(v))
	}
	return strings.Join(words, ", ")
}

// await waits for the client's address and gives the time from the start of
// the process to the address with its route.
func (c *teredoClient) await(ctx context.Context) (time.Duration, error) {
	defer c.arrival.close()
	at, err := c.arrival.await(ctx, c.process)
	if err != nil {
		return 0, fmt.Errorf("%s (%s NAT) got no address: %w", c.name, c.kind, err)
	}
	c.addr = c.arrival.addr
	return at.Sub(c.process.Started()), nil
}

// natReport is what an Isthmus client says of the NAT in front of it.
type natReport struct {
	Kind      string `json:"nat"` // in the words of RFC 4787
	Symmetric bool   `json:"symmetric_nat"`
}

// isthmus is the client's Isthmus.
func (c *teredoClient) isthmus() instance { return c.net.daemons.isthmus(c.node, "client") }

// askNAT asks a running Isthmus client, as `isthmus status` does.
func (c *teredoClient) askNAT(ctx context.Context) (n natReport, err error) {
	err = c.isthmus().state(ctx, &n)
	return n, err
}

// awaitNAT waits until a running Isthmus client knows its kind of NAT, which it
// finds out behind its address.
func (c *teredoClient) awaitNAT(ctx context.Context) (n natReport, err error) {
	err = poll(ctx, daemonStart, 5*time.Millisecond, func(ctx context.Context) (_ bool, err error) {
		n, err = c.askNAT(ctx)
		return n.Kind != "" && !strings.HasPrefix(n.Kind, "unknown"), err
	})
	if err != nil {
		return n, fmt.Errorf("%s does not know its NAT: %+v: %w", c.name, n, err)
	}
	return n, nil
}

// stop ends the client.
func (c *teredoClient) stop() error { return c.net.daemons.stop(c.process) }

// serves waits until a daemon has done what it does before it works.
func serves(ctx context.Context, node *lab.Node, who maker, p *lab.Proc, port uint16) error {
	if who == isthmus {
		return running(ctx, p)
	}
	return serving(ctx, node, p, port) // Miredo does not tell
}

// running waits until an Isthmus daemon says that all of it serves, as it tells service
// managers.
func running(ctx context.Context, p *lab.Proc) error {
	ctx, cancel := context.WithTimeout(ctx, daemonStart)
	defer cancel()
	_, err := p.WaitFor(ctx, "all instances are running")
	return err
}
