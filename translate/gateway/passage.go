// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-net/isthmus/fastpath/bypass"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
)

// Passage says what this host does with the packets that go to a translator and come from
// it. Each finding is a sentence with its remedy.
type Passage struct {
	// Closed are settings with which no packet passes.
	Closed []string
	// Narrow are those with which some packets do not pass, or may not.
	Narrow []string
}

// Findings are those of an instance, as the program takes them.
func (p Passage) Findings(of, name string) []role.Finding {
	found := role.Warnings(of, name, p.Closed)
	for i := range found {
		found[i] = role.Finding{Text: found[i].Text + " (until then it will not work)"}
	}
	return append(found, role.Warnings(of, name, p.Narrow)...)
}

// PassageOf looks for a translator with a device: own are addresses of this host that it
// sends from, four and six tell the destinations of routes that it has a use for.
func PassageOf(device string, own []netip.Addr, four, six func(netip.Prefix) bool) (p Passage) {
	p.forwarding(device)
	p.reversePath(device, own)
	p.firewall()
	p.ways(device, four, six)
	return p
}

// setting reads a number that the kernel has for a family of addresses and an interface,
// or for all; false if there is none.
func setting(family, of, name string) (int, bool) {
	text, err := os.ReadFile("/proc/sys/net/" + family + "/conf/" + of + "/" + name)
	n, err2 := strconv.Atoi(strings.TrimSpace(string(text)))
	return n, err == nil && err2 == nil
}

// keyOf is a setting of IPv4 of an interface as sysctl takes it: with slashes where the name of
// the interface has a dot.
func keyOf(device, name string) string {
	if strings.Contains(device, ".") {
		return "net/ipv4/conf/" + device + "/" + name
	}
	return "net.ipv4.conf." + device + "." + name
}

// forwarding looks at the switches of forwarding. Each interface has one of IPv4; to write
// that of all sets every one.
func (p *Passage) forwarding(device string) {
	closed := func(family, key string) {
		p.Closed = append(p.Closed, fmt.Sprintf("this host does not forward %s: run sysctl -w %s=1", family, key))
	}
	all, known := setting("ipv4", "all", "forwarding")
	if known && all == 0 {
		closed("IPv4", "net.ipv4.ip_forward")
	} else if at, there := setting("ipv4", device, "forwarding"); there && at == 0 {
		closed("what the translator sends over IPv4", keyOf(device, "forwarding"))
	}
	if all, known = setting("ipv6", "all", "forwarding"); known && all == 0 {
		closed("IPv6", "net.ipv6.conf.all.forwarding")
	}
}

// reversePath looks at the reverse path filter (RFC 3704) that packets from the translator
// meet: the greater of the device's value and that of all. To the kernel an address of its
// own is at another interface, and one without an IPv4 address, as the device is, passes
// neither the strict nor the loose form.
func (p *Passage) reversePath(device string, own []netip.Addr) {
	key := "net.ipv4.conf.all.rp_filter"
	value, _ := setting("ipv4", "all", "rp_filter")
	if at, _ := setting("ipv4", device, "rp_filter"); at > value {
		key, value = keyOf(device, "rp_filter"), at
	}
	switch {
	case value == 0:
	case len(own) > 0:
		p.Closed = append(p.Closed, fmt.Sprintf("the kernel drops what the translator sends from %s, an address of this host, because %s is %d: run sysctl -w %[2]s=0, and set it per interface where you want it", own[0], key, value))
	default:
		p.Narrow = append(p.Narrow, fmt.Sprintf("the kernel drops ICMP errors that a translator sends from an address of this host, because %s is %d: set it to 0 there, and per interface where you want it", key, value))
	}
}

// firewall looks at chains that drop what is forwarded.
func (p *Passage) firewall() {
	barriers, _ := bypass.Barriers() // who may not read them hears of that from the fast path
	for _, b := range barriers {
		if b.All {
			p.Closed = append(p.Closed, fmt.Sprintf("the firewall drops all that this host forwards, in the %s: let the translator's packets pass there", b.Chain))
		} else {
			p.Narrow = append(p.Narrow, fmt.Sprintf("the firewall drops what this host forwards and no rule accepts, in the %s: see that it accepts the translator's packets, in both families", b.Chain))
		}
	}
}

// ways looks for routes to both sides, by interfaces that are up.
func (p *Passage) ways(device string, four, six func(netip.Prefix) bool) {
	links, err := net.Interfaces()
	if err != nil {
		return
	}
	host, err := port.OpenHost()
	if err != nil {
		return
	}
	defer host.Close()
	sides := [...]side{{name: "IPv4", wants: four}, {name: "IPv6", wants: six}}
	err = host.EachRoute(func(w port.RouteEntry) {
		s, a := &sides[w.Dst.Addr().BitLen()/128], w.Dst.Addr()
		if !w.Local && !w.Refused && !a.IsMulticast() && !a.IsLinkLocalUnicast() && s.wants(w.Dst) {
			s.add(w, links, device)
		}
	})
	if err != nil {
		return
	}
	for _, s := range sides {
		switch {
		case s.open:
		case len(s.down) > 0:
			p.Closed = append(p.Closed, fmt.Sprintf("every interface by which this host has routes to the %s side is down (%s): bring one up", s.name, strings.Join(s.down, ", ")))
		default:
			p.Closed = append(p.Closed, fmt.Sprintf("this host has no route to the %s side: give it one%s", s.name, orBringUp(links)))
		}
	}
}

// orBringUp names interfaces whose routes the kernel may have dropped, for they are down.
func orBringUp(links []net.Interface) string {
	var down []string
	for _, l := range links {
		if l.Flags&(net.FlagUp|net.FlagLoopback) == 0 {
			down = append(down, l.Name)
		}
	}
	if len(down) == 0 {
		return ""
	}
	return ", or bring up what is down (" + strings.Join(down, ", ") + ")"
}

// side is what is known of the ways to one side of a translator.
type side struct {
	name  string
	wants func(netip.Prefix) bool
	open  bool
	down  []string // interfaces with a way, that are down
}

// add takes a way into account, unless it is back to the translator.
func (s *side) add(w port.RouteEntry, links []net.Interface, device string) {
	i := slices.IndexFunc(links, func(l net.Interface) bool { return l.Index == w.Link })
	switch {
	case i < 0: // several, or gone meanwhile
		s.open = true
	case links[i].Name == device, links[i].Flags&net.FlagLoopback != 0:
	case links[i].Flags&net.FlagUp != 0 && links[i].Flags&net.FlagRunning != 0:
		s.open = true
	case !slices.Contains(s.down, links[i].Name):
		s.down = append(s.down, links[i].Name)
	}
}

// Advise warns of what keeps packets from passing.
func (p *Passage) Advise(log *slog.Logger) {
	for _, sentence := range p.Closed {
		log.Warn("nothing is translated: " + sentence)
	}
}
