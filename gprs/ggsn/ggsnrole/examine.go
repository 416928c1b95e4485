// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/port"
)

// examine tells what of this host is in the way of a node. It changes nothing.
func examine(s *Settings) error {
	_, err := engineSettings(s, nil, nil, 0)
	host, hostErr := port.OpenHost()
	if hostErr != nil {
		return errors.Join(err, hostErr)
	}
	defer host.Close()
	if a := s.GSNAddress6; a.IsValid() && !host.Takes(a) { // those of IPv4 are bound to see
		err = errors.Join(err, fmt.Errorf("%s is not an address of this host: write one that ip address shows, or add it to an interface", a))
	}
	err = errors.Join(err, kept.CheckSaved(kept.SavedPath(s.StateFile, s.Name, name)))
	err = errors.Join(err, checkFile("accounting_file", s.AccountingFile), checkFile("charging_file", s.ChargingFile))
	wrong := map[string]bool{}
	for _, vrf := range s.vrfs(s.interfaces()) {
		if vrf != "" {
			at := host.VRF(vrf)
			wrong[vrf], err = at != nil, errors.Join(err, at)
		}
	}
	if accept := "net.ipv4.udp_l3mdev_accept"; s.apart() && setting(accept) == "1" {
		err = errors.Join(err, fmt.Errorf("hosts in VRFs could speak to the node as SGSNs do, since %s is 1: run sysctl -w %s=0", accept, accept))
	}
	links, linksErr := ownPrefixes(host)
	err = errors.Join(err, linksErr)
	var routes []port.Route
	for _, p := range s.allPools() {
		if why := s.taken(p, links); why != "" {
			err = errors.Join(err, fmt.Errorf("%s of access point %s %s", p.prefix, p.apn, why))
		} else if !wrong[p.vrf] && s.Route {
			routes = append(routes, port.Route{Dst: p.prefix, Link: p.device, VRF: p.vrf})
		}
	}
	return errors.Join(err, port.RoutesFree(routes, routeTaken))
}

// ownPrefixes are the networks of this host's interfaces outside of VRFs, with their names.
func ownPrefixes(host *port.Host) (map[netip.Prefix]string, error) {
	links := map[netip.Prefix]string{}
	add := func(p netip.Prefix, link string) {
		if host.Local(p.Addr()) {
			links[p] = link
		}
	}
	four, err := host.IPv4()
	for _, a := range four {
		add(a.Prefix, a.Link)
	}
	six, err6 := host.IPv6()
	for _, a := range six {
		add(a.Prefix, a.Link)
	}
	return links, errors.Join(err, err6)
}

// taken says what of this host's own stands where a pool's terminals would; empty: nothing. An address
// without a network may stand there if the node is told of it, since that one is not leased.
func (s *Settings) taken(p pool, links map[netip.Prefix]string) string {
	whole := p.prefix.IsSingleIP() || p.prefix.Addr().Is6() && p.prefix.Bits() == 64
	for at, link := range links {
		leftOut := at.IsSingleIP() && !whole && (at.Addr() == s.Address4 || at.Addr() == s.Address6)
		switch {
		case p.vrf != "" || link == p.device:
		case at.Masked() == p.prefix:
			return fmt.Sprintf("is the network of the interface %s: choose a prefix that no network uses", link)
		case p.prefix.Contains(at.Addr()) && !leftOut:
			return fmt.Sprintf("has the address %s of the interface %s in it: choose a prefix that no network uses", at.Addr(), link)
		}
	}
	return ""
}

// hidden says in sentences which pools are a part of a network of this host whose other hosts do not
// find terminals, nor terminals them.
func (s *Settings) hidden() (list []string) {
	host, err := port.OpenHost()
	if err != nil {
		return nil // examine tells of that
	}
	defer host.Close()
	links, _ := ownPrefixes(host)
	for _, p := range s.allPools() {
		for at, link := range links {
			proxy := "net/ipv4/conf/" + link + "/proxy_arp"
			if p.vrf != "" || link == p.device || at.Bits() >= p.prefix.Bits() || !at.Contains(p.prefix.Addr()) || p.prefix.Addr().Is4() && setting(proxy) == "1" {
				continue
			}
			remedy := "choose a prefix that no network uses"
			if p.prefix.Addr().Is4() {
				remedy += ", or run sysctl -w " + proxy + "=1"
			}
			list = append(list, fmt.Sprintf("%s of access point %s is a part of the network of the interface %s, whose hosts do not find terminals: %s", p.prefix, p.apn, link, remedy))
		}
	}
	return list
}

// lacking says in sentences which addresses this host lacks that the node is to have.
func lacking(s *Settings) (list []string) {
	host, err := port.OpenHost()
	if err != nil {
		return nil // examine tells of that
	}
	defer host.Close()
	for _, a := range s.addresses() {
		if problem, remedy := host.Lacks(a); problem != "" {
			list = append(list, fmt.Sprintf("SGSNs do not reach %s, for it %s: %s", a, problem, remedy))
		}
	}
	for _, a := range []netip.Addr{s.Address4, s.Address6} {
		if a.IsValid() && !s.apart() && !host.Local(a) { // in a VRF it may be one
			list = append(list, fmt.Sprintf("ICMP errors come from %s, which is no address of this host: write one that ip address shows, or leave the key out", a))
		}
	}
	return list
}

// blocked says in sentences what keeps packets of terminals from passing this host.
func blocked(s *Settings) (list []string) {
	var types ggsn.Types
	for i := range s.APNs {
		types |= s.APNs[i].types()
	}
	for _, of := range []struct {
		types      ggsn.Types
		family, at string
	}{
		{ggsn.TypeIPv4 | ggsn.TypeIPv4v6, "IPv4", "net.ipv4.ip_forward"},
		{ggsn.TypeIPv6 | ggsn.TypeIPv4v6, "IPv6", "net.ipv6.conf.all.forwarding"},
	} {
		if types&of.types != 0 && setting(of.at) == "0" {
			list = append(list, fmt.Sprintf("this host does not forward %s: run sysctl -w %s=1", of.family, of.at))
		}
	}
	// The kernel takes the looser of the device's value and that of all.
	external := slices.ContainsFunc(s.APNs, func(a APN) bool { return a.UEToUE == External })
	if const4 := "net.ipv4.conf.all.send_redirects"; external && setting(const4) == "1" {
		list = append(list, fmt.Sprintf("this host redirects terminals to each other, where ue_to_ue is %q: run sysctl -w %s=0", External, const4))
	}
	return append(list, s.hidden()...)
}

// setting is a value that the kernel has, by its name with dots or slashes; empty if it does not say.
func setting(key string) string {
	if !strings.Contains(key, "/") {
		key = strings.ReplaceAll(key, ".", "/")
	}
	text, _ := os.ReadFile("/proc/sys/" + key)
	return strings.TrimSpace(string(text))
}

// checkFile returns why a file that a key names cannot be made, or is none; an empty path is the node's choice.
func checkFile(key, path string) error {
	if path == "" {
		return nil
	}
	folder := filepath.Dir(path)
	if is, err := os.Stat(folder); err != nil || !is.IsDir() {
		return fmt.Errorf("%s %s: there is no folder %s: make it, or name another file", key, path, folder)
	}
	if is, err := os.Lstat(path); err == nil && !is.Mode().IsRegular() {
		return fmt.Errorf("%s %s: this is no file: name another one", key, path)
	}
	return nil
}
