// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
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

// startTranslator runs what the way is named after.
func (p *naptPath) startTranslator(ctx context.Context, n *naptPaths) (err error) {
	if !p.way.runs() {
		return nil
	}
	t := translator{
		way: p.way, name: p.way.name, router: p.router,
		prefix: naptPrefix(p.number), client: p.source, mapped: p.mapped,
		stateless: n.plan.Stateless,
		more:      "lowest_ipv6_mtu = 1500\n" + n.plan.More, // as all cables have: answers to large pings stay whole
	}
	if n.plan.Static {
		t.more += fmt.Sprintf("static = [\"udp [%s]:%d %s:%d\"]\n", p.source, load.DiscardPort, p.mapped, load.DiscardPort)
	}
	if n.plan.Crowd {
		t.clients, t.pool = crowdAll, crowdPool(p.number).String()
	}
	p.process, err = t.start(ctx, n.env, n.dir)
	return err
}

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
	file := filepath.Join(dir, t.name+".toml")
	text := fmt.Sprintf("[control]\nsocket = %q\n\n%sname = %q\npool6 = [%q]\nfast_path = %q\n%s",
		t.socket(dir), section, t.name, t.prefix, t.way.fast, t.more)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return nil, fmt.Errorf("the configuration of %s cannot be written: %w", t.name, err)
	}
	if err := t.router.SetControl(t.socket(dir)); err != nil {
		return nil, err
	}
	return t.router.Start(ctx, lab.Process{Name: "isthmus", Path: e.Binary, Args: []string{"run", "-c", file}})
}

// stateful begins the section of a NAT64.
func (t *translator) stateful() string {
	clients, pool := t.clients, t.pool
	if pool == "" {
		clients, pool = netip.PrefixFrom(t.client, 64).Masked(), t.mapped.String()+" 1-65535"
	}
	return fmt.Sprintf("[[nat64]]\nclients = [%q]\npool4 = [%q]\nkeep_state = false\n", clients, pool)
}

// socket is the control socket of an Isthmus translator.
func (t *translator) socket(dir string) string { return filepath.Join(dir, t.name+".sock") }

// values are the counters of the way's Isthmus.
func (p *naptPath) values(ctx context.Context, n *naptPaths) (map[string]float64, error) {
	instance, err := p.status(ctx, n)
	if err != nil {
		return nil, err
	}
	return instance.Values, nil
}

// status is what the way's Isthmus says of its translator.
func (p *naptPath) status(ctx context.Context, n *naptPaths) (s control.Instance, err error) {
	t := translator{name: p.way.name}
	status, err := control.NewClient(t.socket(n.dir)).Status(ctx)
	if err != nil {
		return s, err
	}
	if len(status.Instances) != 1 {
		return s, errors.New("the translator is not in its own status")
	}
	return status.Instances[0], nil
}
