// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"net/netip"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// kamailioServer is Kamailio as the SIP server on a node. Its files lie in a folder.
type kamailioServer struct {
	peers.Kamailio
	env  *lab.Env
	dir  string
	node *lab.Node
}

// kamailioAt is its configuration at an address, at which the terminal may register.
func kamailioAt(at netip.Addr) peers.Kamailio {
	return peers.Kamailio{Name: "kamailio", Listen: []netip.AddrPort{netip.AddrPortFrom(at, sipPort)}, Domain: "example.net", Password: sipSecret}
}

// start starts it, and waits until it serves.
func (k kamailioServer) start(ctx context.Context) (*lab.Proc, error) {
	command, err := peersOf(k.env).Kamailio(k.dir, k.Kamailio)
	if err != nil {
		return nil, err
	}
	p, err := k.node.Start(ctx, lab.Process{Name: k.Name, Path: command.Path, Args: command.Args})
	if err != nil {
		return nil, err
	}
	return p, serving(ctx, k.node, p, k.Listen[0].Port())
}

// bindings are the contacts that it has, of everybody.
func (k kamailioServer) bindings(ctx context.Context) ([]string, error) {
	command, err := peersOf(k.env).KamailioBindings(k.dir, k.Kamailio)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, programLimit)
	defer cancel()
	printed, err := k.node.Run(ctx, append([]string{command.Path}, command.Args...)...)
	return peers.KamailioContacts(string(printed)), err
}
