// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/fastpath/probe"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/gateway"
	"github.com/isthmus-net/isthmus/translate/keys"
)

// examine does the same for a stateful translator.
func examine(cfg Settings) error {
	if _, err := engineSettings(&cfg, gateway.Own{}, nil); err != nil {
		return err
	}
	if err := sizesOf(&cfg).Check(); err != nil {
		return err
	}
	host, err := port.OpenHost()
	if err != nil {
		return err
	}
	defer host.Close()
	hosts, err := gateway.HostAddresses(host, cfg.Interface)
	if err != nil {
		return err
	}
	return errors.Join(gateway.Apart(host, cfg.Interface, cfg.Pool6), noBroadcast(host, &cfg), steerable(&cfg, hosts), portsApart(ownRanges(cfg.Pool4, hosts)), gateway.RoutesFree(&cfg.Translation, destinations(&cfg, hosts)))
}

// noBroadcast reports an address in the pool that a connected network keeps for packets to
// all of it: routers and hosts there would take no packet from it, nor send one to it.
func noBroadcast(host *port.Host, cfg *Settings) error {
	list, err := host.IPv4()
	for _, a := range list {
		network := a.Prefix.Masked()
		if a.Link == cfg.Interface || network.Bits() > 30 {
			continue
		}
		raw := network.Addr().As4()
		binary.BigEndian.PutUint32(raw[:], binary.BigEndian.Uint32(raw[:])|^uint32(0)>>network.Bits())
		for _, bad := range []netip.Addr{network.Addr(), netip.AddrFrom4(raw)} {
			if slices.ContainsFunc(cfg.Pool4, func(r PoolRange) bool { return r.Prefix == netip.PrefixFrom(bad, 32) }) {
				return fmt.Errorf("pool4 has %s, which stands for all hosts of %s at %s: choose the address of one host", bad, network, a.Link)
			}
		}
	}
	return err
}

// steerable reports that addresses of this host in the pool need a program that this machine
// cannot have.
func steerable(cfg *Settings, hosts []netip.Addr) error {
	list := ownInPool(cfg, hosts)
	if len(list) == 0 {
		return nil
	}
	if err := ownFit(cfg, hosts); err != nil {
		return err
	}
	if f := probe.Try(); !f.Programs || !f.MappedArrays {
		return fmt.Errorf("the pool has %s, an address of this host itself, whose packets only an eBPF program leads to the translator: use an address that is routed to this host. %s", list[0], strings.Join(f.Missing, " "))
	}
	return nil
}

// advise returns a sentence for each setting that works and that an RFC advises
// against, for what the configuration names that this host lacks yet, and for sessions that
// the next start will end.
func advise(cfg Settings) []string {
	settings, err := engineSettings(&cfg, gateway.Own{}, nil)
	if err != nil {
		return nil // told elsewhere
	}
	sentences := settings.Advice()
	for _, name := range cfg.AnnouncePREF64 {
		if _, err := net.InterfaceByName(name); err != nil {
			sentences = append(sentences, fmt.Sprintf("there is no network interface %s, so pool6 is not announced there until it comes: correct announce_pref64, or create it", name))
		}
	}
	host, err := port.OpenHost()
	if err != nil {
		return sentences
	}
	defer host.Close()
	hosts, err := gateway.HostAddresses(host, cfg.Interface)
	if err != nil {
		return sentences
	}
	return slices.Concat(sentences, adviseFit(&cfg, hosts), adviseKept(&cfg, host, hosts))
}

// passageOf looks at the calling thread's network namespace for a stateful translator.
// Its device need not be there yet.
func passageOf(cfg Settings) gateway.Passage {
	return gateway.PassageOf(cfg.Interface, ownInPool(&cfg, hostsHere(cfg.Interface)),
		func(p netip.Prefix) bool { return mayReach(&cfg.Translation, p) },
		func(p netip.Prefix) bool { return slices.ContainsFunc(cfg.Clients, p.Overlaps) })
}

// passage looks at the host of a running translator; n.mu is held.
func (n *NAT64) passage() (p gateway.Passage) {
	n.device.InNamespace(func() { p = passageOf(n.cfg) })
	return p
}

// mayReach reports whether any prefix of pool6 may carry a destination of a route (RFC 6052
// section 3.1).
func mayReach(cfg *keys.Translation, dst netip.Prefix) bool {
	return cfg.AllowNonGlobal || dst.Bits() == 0 || !translate.NonGlobal(dst.Addr()) ||
		len(cfg.Pool6) == 0 || slices.ContainsFunc(cfg.Pool6, func(p netip.Prefix) bool { return p != translate.WellKnownPrefix })
}

// hostsHere are this host's IPv4 addresses, as far as they can be read.
func hostsHere(but string) []netip.Addr {
	host, err := port.OpenHost()
	if err != nil {
		return nil
	}
	defer host.Close()
	hosts, _ := gateway.HostAddresses(host, but)
	return hosts
}
