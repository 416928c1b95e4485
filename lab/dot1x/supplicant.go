// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dot1x

import (
	"context"
	"strings"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// Supplicant is wpa_supplicant on a terminal.
type Supplicant struct {
	Process *lab.Proc
	orders  *peers.ControlSocket
}

// Start has a node prove who it is at an interface, by one of the certificates. It ends with the lab, or with
// [Supplicant.Stop].
func (c *Certificates) Start(ctx context.Context, node *lab.Node, p *peers.Peers, dir, iface string, kind Kind) (*Supplicant, error) {
	name := "wpa-" + node.Name() + "-" + string(kind)
	pair := c.Terminals[kind]
	command, err := p.WPASupplicant(dir, peers.WPASupplicant{
		Name: name, Interface: iface, Identity: kind.Identity(), CA: c.CA, Certificate: pair.Certificate, Key: pair.Key, ServerName: ServerName,
	})
	if err != nil {
		return nil, err
	}
	s := &Supplicant{}
	if s.Process, err = node.Start(ctx, lab.Process{Name: "wpa_supplicant", Path: command.Path, Args: command.Args}); err != nil {
		return nil, err
	}
	s.orders, err = dial(ctx, s.Process, peers.Control(dir, name, iface), "orders")
	return s, err
}

// Logoff has the terminal say that it goes (IEEE 802.1X EAPOL-Logoff), and Logon that it is back.
func (s *Supplicant) Logoff() error { return s.order("LOGOFF") }

// Logon undoes Logoff.
func (s *Supplicant) Logon() error { return s.order("LOGON") }

// Reassociate has the terminal begin anew at once, in place of waiting as after a failure.
func (s *Supplicant) Reassociate() error { return s.order("REASSOCIATE") }

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
	if err := s.orders.Close(); err != nil {
		return err
	}
	return s.Process.Stop()
}
