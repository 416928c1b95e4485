// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// translator is one to be started on a router.
type translator struct {
	way    way
	name   string // of its files
	router *lab.Node
	prefix netip.Prefix // of translated IPv4 addresses
	client netip.Addr   // the IPv6 host
	mapped netip.Addr   // the IPv4 address that stands for it
	more   string       // lines of Isthmus's section
	// Of Isthmus: without sessions,
	stateless bool
	// or with them, if they are not the client's network and the address mapped:
	clients netip.Prefix
	pool    string
}

// taygaDevice is tayga's TUN device.
const taygaDevice = "nat64"

// start runs the translator with its files in dir.
func (t *translator) start(ctx context.Context, e *lab.Env, dir string) (*lab.Proc, error) {
	if t.way == wayTayga {
		return t.startTayga(ctx, e, dir)
	}
	return t.startIsthmus(ctx, e, dir)
}

func (t *translator) startTayga(ctx context.Context, e *lab.Env, dir string) (*lab.Proc, error) {
	// Tayga's own addresses are routed nowhere: only its errors come from them.
	device, run, err := peersOf(e).Tayga(dir, peers.Tayga{
		Name: t.name, Device: taygaDevice, IPv4: taygaOwn4, IPv6: netip.MustParseAddr("2001:db8:64:ffff::1"),
		Prefix: t.prefix, Map: []peers.TaygaMap{{IPv6: t.client, IPv4: t.mapped}},
	})
	if err != nil {
		return nil, err
	}
	if _, err := t.router.Run(ctx, append([]string{device.Path}, device.Args...)...); err != nil {
		return nil, err
	}
	t.router.Up(taygaDevice).Addr(taygaDevice, "203.0.113.253/32").
		Route(t.prefix.String(), taygaDevice).Route(t.mapped.String()+"/32", taygaDevice).
		Route(taygaOwn4.String()+"/32", taygaDevice).Route("2001:db8:64:ffff::1/128", taygaDevice)
	if err := t.router.Lab().Err(); err != nil {
		return nil, err
	}
	return t.router.Start(ctx, lab.Process{Name: "tayga", Path: run.Path, Args: run.Args, Env: run.Env})
}

// startIsthmus runs a translator of Isthmus.
func (t *translator) startIsthmus(ctx context.Context, e *lab.Env, dir string) (*lab.Proc, error) {
	section := t.stateful()
	if t.stateless {
		section = fmt.Sprintf("[[siit]]\neam = [\"%s %s\"]\n", t.mapped, t.client)
	}
	return instance{t.router, e.Binary, dir, t.name}.run(ctx, fmt.Sprintf("%sname = %q\npool6 = [%q]\nfast_path = %q\n%s", section, t.name, t.prefix, t.way.fast, t.more))
}

// stateful begins the section of a NAT64.
func (t *translator) stateful() string {
	clients, pool := t.clients, t.pool
	if pool == "" {
		clients, pool = netip.PrefixFrom(t.client, 64).Masked(), t.mapped.String()+" 1-65535"
	}
	return fmt.Sprintf("[[nat64]]\nclients = [%q]\npool4 = [%q]\nkeep_state = false\n", clients, pool)
}
