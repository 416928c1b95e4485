// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package dot1x has terminals of the lab prove who they are by IEEE 802.1X and EAP-TLS before a link carries
// anything for them: hostapd is the authenticator, wpa_supplicant the terminal's supplicant, and certificates are
// made for each run. hostapd on a wire opens no port; this package does, by what hostapd says.
package dot1x

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// Port is the port of an access router: the end of a link with one terminal at its other end. While it is closed,
// EAPOL alone passes, in either direction.
type Port struct {
	node    *lab.Node
	iface   string
	process *lab.Proc
	events  *peers.ControlSocket
	orders  *peers.ControlSocket
	asks    *peers.ControlSocket // of follow alone
	carried counts               // of sessions that have ended

	mu         sync.Mutex
	session    Session // that goes on
	sessions   []Session
	authorized string // the terminal's address; "" while the port is closed
	since      time.Time
	proofs     int
	failures   int
	fault      error
	changed    chan struct{} // closed and replaced at each change
}

// State is what a port is doing.
type State struct {
	Open     bool
	Since    time.Time // of the last change
	Proofs   int       // authentications that have succeeded
	Failures int       // and those that have failed
}

// Guard closes an interface of a node, and opens it while a terminal is authorised. It ends with the lab.
func Guard(ctx context.Context, node *lab.Node, p *peers.Peers, dir string, c peers.Hostapd) (*Port, error) {
	port := &Port{node: node, iface: c.Interface, changed: make(chan struct{})}
	if err := port.filter(ctx, port.table()); err != nil {
		return nil, err
	}
	command, err := p.Hostapd(dir, c)
	if err != nil {
		return nil, err
	}
	if port.process, err = node.Start(ctx, lab.Process{Name: "hostapd", Path: command.Path, Args: command.Args}); err != nil {
		return nil, err
	}
	socket := peers.Control(dir, c.Name, c.Interface)
	if port.events, err = dial(ctx, port.process, socket, "events"); err != nil {
		return nil, err
	}
	if err := port.events.Attach(); err != nil {
		return nil, err
	}
	if port.orders, err = dial(ctx, port.process, socket, "orders"); err != nil {
		return nil, err
	}
	if port.asks, err = dial(ctx, port.process, socket, "asks"); err != nil {
		return nil, err
	}
	go port.follow(ctx)
	return port, nil
}

// startWait bounds the time until a program has its control socket. It takes milliseconds; the rest is for a loaded
// machine.
const startWait = time.Minute

// dial connects to the control socket of a program, once that is there.
func dial(ctx context.Context, p *lab.Proc, socket, name string) (*peers.ControlSocket, error) {
	for late := time.After(startWait); ; {
		c, err := peers.DialControl(socket, name)
		if err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-p.Done():
			return nil, fmt.Errorf("%s has ended: %w", p.Name(), p.Wait())
		case <-late:
			return nil, fmt.Errorf("%s does not listen: %w", p.Name(), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// table has the port's two chains, which a closed port drops in, but for EAPOL (EtherType 0x888e).
func (p *Port) table() string {
	var text strings.Builder
	fmt.Fprintf(&text, "table netdev dot1x-%s {\n", p.iface)
	for _, hook := range []string{"ingress", "egress"} {
		fmt.Fprintf(&text, "\tchain %s { type filter hook %s device %q priority 0; policy accept; }\n", hook, hook, p.iface)
	}
	return text.String() + "}\n" + p.counting() + p.rules(false)
}

// rules are those of an open port, or of a closed one, in place of the ones before.
func (p *Port) rules(open bool) string {
	var text strings.Builder
	for _, hook := range []string{"ingress", "egress"} {
		fmt.Fprintf(&text, "flush chain netdev dot1x-%s %s\n", p.iface, hook)
		if !open {
			fmt.Fprintf(&text, "add rule netdev dot1x-%s %s ether type != 0x888e drop\n", p.iface, hook)
		}
	}
	return text.String() + p.count(open)
}

// filter loads rules, all or none.
func (p *Port) filter(ctx context.Context, rules string) error {
	if _, err := p.node.Run(ctx, "nft", rules); err != nil {
		return fmt.Errorf("the port %s cannot be set: %w", p.iface, err)
	}
	return nil
}

// follow takes hostapd's events until it ends.
func (p *Port) follow(ctx context.Context) {
	for {
		event, err := p.events.Event()
		if err != nil {
			return
		}
		if err := p.take(ctx, event); err != nil && ctx.Err() == nil {
			p.change(func() { p.fault = err })
			return
		}
	}
}

// take does what an event asks for.
func (p *Port) take(ctx context.Context, event string) error {
	name, terminal, _ := strings.Cut(event, " ")
	terminal, _, _ = strings.Cut(terminal, " ")
	switch {
	case name == "AP-STA-CONNECTED":
		return p.set(ctx, terminal)
	case name == "AP-STA-DISCONNECTED" && terminal == p.terminal():
		return p.set(ctx, "")
	case name == "CTRL-EVENT-EAP-SUCCESS2":
		p.change(func() { p.proofs++ })
	case name == "CTRL-EVENT-EAP-FAILURE2":
		p.change(func() { p.failures++ })
	}
	return nil
}

// set opens the port for a terminal, or closes it.
func (p *Port) set(ctx context.Context, terminal string) error {
	if err := p.filter(ctx, p.rules(terminal != "")); err != nil {
		return err
	}
	if err := p.endSession(ctx); err != nil {
		return err
	}
	p.change(func() { p.authorized, p.since = terminal, time.Now() })
	if terminal != "" {
		p.beginSession(terminal)
	}
	return nil
}

func (p *Port) terminal() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.authorized
}

// change changes the state, and wakes those who wait for it.
func (p *Port) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

// State returns the state.
func (p *Port) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return State{p.authorized != "", p.since, p.proofs, p.failures}
}

// Await waits until the state is as wanted.
func (p *Port) Await(ctx context.Context, what string, wanted func(State) bool) (State, error) {
	for {
		p.mu.Lock()
		changed, fault := p.changed, p.fault
		p.mu.Unlock()
		s := p.State()
		switch {
		case fault != nil:
			return s, fault
		case wanted(s):
			return s, nil
		}
		select {
		case <-changed:
		case <-p.process.Done():
			return s, fmt.Errorf("hostapd has ended: %w", p.process.Wait())
		case <-ctx.Done():
			return s, fmt.Errorf("the port of %s is not %s: %w", p.iface, what, ctx.Err())
		}
	}
}

// AwaitOpen waits until the port is open, and AwaitClosed until it is closed.
func (p *Port) AwaitOpen(ctx context.Context) (State, error) {
	return p.Await(ctx, "open", func(s State) bool { return s.Open })
}

// AwaitClosed waits until the port is closed.
func (p *Port) AwaitClosed(ctx context.Context) (State, error) {
	return p.Await(ctx, "closed", func(s State) bool { return !s.Open })
}

// Associate says that a terminal has come, as a radio notices: it is asked at once who it is. On a wire that has to
// wait until it speaks by itself, which wpa_supplicant does 2 s after its link is there, and 30 s after a logon.
func (p *Port) Associate(terminal string) error {
	return errors.Join(p.forget(), p.order("NEW_STA "+terminal))
}

// Reauthenticate has the terminal prove again who it is, while the port stays open.
func (p *Port) Reauthenticate() error { return p.order("EAPOL_REAUTH " + p.terminal()) }

// Lose says that the terminal is out of reach, as a radio notices: it has to come in anew.
func (p *Port) Lose(ctx context.Context) error {
	if err := p.forget(); err != nil {
		return err
	}
	_, err := p.AwaitClosed(ctx)
	return err
}

// forget has hostapd forget all terminals. A single one it would remember for five seconds, and not ask.
func (p *Port) forget() error { return p.order("DEAUTHENTICATE ff:ff:ff:ff:ff:ff") }

func (p *Port) order(what string) error {
	_, err := p.orders.Ask(what)
	return err
}
