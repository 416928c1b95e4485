// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dot1x

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// Supplicant is wpa_supplicant on a terminal. Until it has proved who it is, the terminal's link is dormant, as that of
// a radio is: the terminal's programs send nothing by it.
type Supplicant struct {
	Process *lab.Proc
	port    *Port
	node    *lab.Node
	iface   string
	orders  *peers.ControlSocket
	events  *peers.ControlSocket
	proved  atomic.Pointer[time.Time]
	// associated has room for one: the radio has begun anew.
	associated chan struct{}
}

// Start has a node prove at an interface who it is, to the port at its far end, by one of the certificates. It ends with
// the lab, or with [Supplicant.Stop].
func (c *Certificates) Start(ctx context.Context, node *lab.Node, p *peers.Peers, dir, iface string, port *Port, kind Kind) (*Supplicant, error) {
	name := "wpa-" + node.Name() + "-" + string(kind)
	pair := c.Terminals[kind]
	command, err := p.WPASupplicant(dir, peers.WPASupplicant{
		Name: name, Interface: iface, Identity: kind.Identity(), CA: c.CA, Certificate: pair.Certificate, Key: pair.Key, ServerName: ServerName,
	})
	if err != nil {
		return nil, err
	}
	s := &Supplicant{port: port, node: node, iface: iface, associated: make(chan struct{}, 1)}
	if err := node.Dormant(iface, true); err != nil {
		return nil, err
	}
	if s.Process, err = node.Start(ctx, lab.Process{Name: "wpa_supplicant", Path: command.Path, Args: command.Args}); err != nil {
		return nil, err
	}
	socket := peers.Control(dir, name, iface)
	if s.events, err = dial(ctx, s.Process, socket, "events"); err != nil {
		return nil, err
	}
	if err := s.events.Attach(); err != nil {
		return nil, err
	}
	if s.orders, err = dial(ctx, s.Process, socket, "orders"); err != nil {
		return nil, err
	}
	go s.follow(ctx)
	return s, s.Reassociate(ctx)
}

// follow has the link work once the terminal has proved who it is, until the program ends. hostapd tells the terminal
// before it tells us, who open the port; on a radio a last handshake is between.
func (s *Supplicant) follow(ctx context.Context) {
	for {
		event, err := s.events.Event()
		if err != nil {
			return
		}
		switch {
		case strings.HasPrefix(event, "Associated with"):
			select {
			case s.associated <- struct{}{}:
			default:
			}
		case strings.HasPrefix(event, "CTRL-EVENT-CONNECTED"):
			if _, err := s.port.AwaitOpen(ctx); err != nil {
				return
			}
			if now := time.Now(); s.node.Dormant(s.iface, false) == nil {
				s.proved.Store(&now)
			}
		}
	}
}

// Proved is when the terminal has last proved who it is, and its link has begun to work; zero while it does not.
func (s *Supplicant) Proved() time.Time {
	if at := s.proved.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Lose says that the radio is lost: the link is dormant at once.
func (s *Supplicant) Lose() error {
	s.proved.Store(nil)
	return s.node.Dormant(s.iface, true)
}

// Logoff has the terminal say that it goes (IEEE 802.1X EAPOL-Logoff), and Logon that it is back.
func (s *Supplicant) Logoff() error { return s.order("LOGOFF") }

// Logon undoes Logoff.
func (s *Supplicant) Logon() error { return s.order("LOGON") }

// Reassociate has the terminal begin anew at once, in place of waiting as after a failure, and waits until it can be
// asked who it is.
func (s *Supplicant) Reassociate(ctx context.Context) error {
	select {
	case <-s.associated:
	default:
	}
	if err := s.order("REASSOCIATE"); err != nil {
		return err
	}
	select {
	case <-s.associated:
		return nil
	case <-s.Process.Done():
		return s.Process.Wait()
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(startWait):
		return errors.New("wpa_supplicant does not begin anew")
	}
}

func (s *Supplicant) order(what string) error {
	_, err := s.orders.Ask(what)
	return err
}

// State is what the supplicant says of itself, by the names of wpa_cli status.
func (s *Supplicant) State() (map[string]string, error) {
	text, err := s.orders.Ask("STATUS")
	state := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			state[name] = value
		}
	}
	return state, err
}

// Stop ends the program.
func (s *Supplicant) Stop() error {
	return errors.Join(s.orders.Close(), s.events.Close(), s.Process.Stop())
}
