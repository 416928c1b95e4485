// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/sgsn"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// carrying is the crossing of GGSNs: left is a server behind them, right an SGSN with one
// terminal at each, for which it has opened a PDP context of IPv6.
type carrying struct{ tunnelling }

// String names the programs.
func (carrying) String() string { return "the GGSNs of Osmocom and Isthmus" }

func (carrying) hosts() (left, right string) { return "server", "sgsn" }

func (carrying) lead(p *rigPath) {
	if p.way.runs() {
		// What is for a terminal comes from the kernel and goes back to it.
		p.router.Sysctl("net.ipv4.conf.all.send_redirects", "0").Sysctl("net.ipv4.conf.default.send_redirects", "0")
		p.rig.left.Route(p.terminals().String(), p.at6(1))
	}
}

// terminals is what the GGSN of the way gives prefixes of, and gsn its address.
func (p *rigPath) terminals() netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("2001:db8:6:%d000::/52", p.number))
}
func (p *rigPath) gsn() netip.Addr { return netip.MustParseAddr(p.at4(1)) }

func (carrying) start(ctx context.Context, p *rigPath) (*lab.Proc, error) {
	if p.way == wayOsmo {
		c, err := peersOf(p.rig.env).OsmoGGSN(p.rig.dir, peers.OsmoGGSN{Name: p.way.name, Bind: p.gsn(), APNs: []peers.OsmoAPN{
			{Name: coreAPN(true), Device: "tun6", Pool: p.terminals(), DNS: coreDNS6},
		}})
		if err != nil {
			return nil, err
		}
		process, err := p.router.Start(ctx, lab.Process{Name: "osmo-ggsn", Path: c.Path, Args: c.Args, Env: c.Env})
		if err != nil {
			return nil, err
		}
		return process, serving(ctx, p.router, process, gtpPort)
	}
	process, err := p.isthmus().run(ctx, fmt.Sprintf(
		"[[ggsn]]\ngsn_address4 = %q\npeers = [\"%s/32\"]\nfast_path = %q\nstate_file = %q\n[[ggsn.apn]]\nname = %q\npool6 = [%q]\n",
		p.gsn(), p.far, p.way.fast, filepath.Join(p.rig.dir, p.way.name+".state"), coreAPN(true), p.terminals()))
	if err != nil {
		return nil, err
	}
	return process, running(ctx, process)
}

// meet has plain forwarding resolve its neighbours, and GGSNs open a context.
func (carrying) meet(ctx context.Context, p *rigPath) error {
	if !p.way.runs() {
		return p.warm()
	}
	s, err := startSGSN(p.rig.right, p.far)
	if err != nil {
		return err
	}
	p.closers = append(p.closers, s)
	c, err := s.attach(ctx, p.gsn(), attachment{version: 1, v6: true})
	if err != nil {
		return err
	}
	p.target = c.IPv6[0].Address
	p.tunnel = tunnel{
		from: netip.AddrPortFrom(p.far, sgsn.PlaneUser.Port()), to: netip.AddrPortFrom(c.User, sgsn.PlaneUser.Port()),
		header: func(inner packet.IPv6) []byte { return gpduHeader(c.RemoteData, len(inner)) },
	}
	for _, d := range []direction{downlink, uplink} {
		if err := p.awaitFirst(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// gpduHeader is that of a G-PDU with n octets.
func gpduHeader(teid uint32, n int) []byte {
	h := gtp.Header{Version: gtp.V1, Type: gtp.TypeGPDU, TEID: teid}
	b, err := h.AppendTo(nil, n)
	if err != nil {
		panic(err) // no packet of a rig is too long
	}
	return b
}
