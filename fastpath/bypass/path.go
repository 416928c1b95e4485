// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"slices"

	"golang.org/x/sys/unix"
)

// hook is a place in the kernel's path of packets where netfilter calls others.
type hook struct {
	family uint8 // NFPROTO_IPV4, NFPROTO_IPV6 or NFPROTO_NETDEV
	number uint32
}

// Netfilter's hooks of devices, which ztypes of package unix count apart for
// tables of the family inet.
const inetIngress = 5 // NF_INET_INGRESS

// hookNames are the words of nftables for the hooks of IPv4 and IPv6.
var hookNames = [...]string{"prerouting", "input", "forward", "output", "postrouting"}

// directions are what of a relay's traffic would pass a hook.
const (
	toClients   = "packets to clients"
	fromClients = "packets from clients"
	bothWays    = "packets of both directions"
)

// met reports which packets of the role come by a hook of IPv4 or IPv6 that would
// not if they were redirected. IPv4 datagrams of a relay start and end on the
// host, so rules about forwarded ones never concern it, while those of a translator are
// forwarded; and the IPv6 packets of a
// host's own client pass its hooks before and after the fast path.
func (q *Query) met(h hook) (direction string, ok bool) {
	switch h.family {
	case unix.NFPROTO_IPV4:
		if q.Forward4 {
			return bothWays, forwards(h.number) || q.Local4 && (h.number == unix.NF_INET_LOCAL_IN || h.number == unix.NF_INET_LOCAL_OUT)
		}
		switch h.number {
		case unix.NF_INET_PRE_ROUTING, unix.NF_INET_LOCAL_IN:
			return fromClients, true
		case unix.NF_INET_LOCAL_OUT, unix.NF_INET_POST_ROUTING:
			return toClients, true
		}
	case unix.NFPROTO_IPV6:
		if forwards(h.number) {
			return bothWays, !q.Host
		}
	}
	return "", false
}

// forwards reports whether forwarded packets pass a hook.
func forwards(number uint32) bool {
	return number == unix.NF_INET_PRE_ROUTING || number == unix.NF_INET_FORWARD || number == unix.NF_INET_POST_ROUTING
}

// metDevice tells the same of a hook of network devices.
func (q *Query) metDevice(number uint32, devices []deviceName) (direction string, ok bool) {
	if !slices.ContainsFunc(q.Devices, func(name string) bool {
		return slices.ContainsFunc(devices, func(d deviceName) bool { return d.matches(name) })
	}) {
		return "", false
	}
	// Packets of both directions come in by one device and leave by one.
	return bothWays, number == unix.NF_NETDEV_INGRESS || number == unix.NF_NETDEV_EGRESS && q.XDP
}

// netfilterHooks lists the hooks of IPv4 and IPv6 that concern the role.
func (q *Query) netfilterHooks() []hook {
	var hooks []hook
	for _, family := range []uint8{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6} {
		for number := range uint32(unix.NF_INET_NUMHOOKS) {
			if h := (hook{family, number}); q.concerns(h) {
				hooks = append(hooks, h)
			}
		}
	}
	return hooks
}

func (q *Query) concerns(h hook) bool {
	_, ok := q.met(h)
	return ok
}

// choose is the end of a remedy: whoever knows better may insist.
const choose = "or name the hook in fast_path (xdp or tc) if these packets need not meet it"
