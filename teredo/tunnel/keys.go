// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/teredo"
)

const (
	// MaxMTU is the largest IPv6 packet that fits into one UDP datagram over IPv4: 65535
	// without the headers of IPv4 (20) and UDP (8).
	MaxMTU = 65535 - 20 - 8
	// MaxWorkers bounds the sockets and TUN queues of an instance.
	MaxWorkers = 64
)

// ServicePrefixes declares the /32 prefixes of Teredo services.
func ServicePrefixes(field *[]netip.Prefix, reload key.Reload, help string) key.Key {
	return key.Of("prefixes", field, []string{teredo.Prefix.String()}, key.Filled("name at least one prefix, or leave the key out", key.List(servicePrefix)), reload, help)
}

// AllowPrivate declares the ranges that count as global.
func AllowPrivate(field *[]netip.Prefix, reload key.Reload) key.Key {
	return key.Of("allow_private", field, []string{}, key.List(PrivateRange), reload,
		`IPv4 ranges that count as global although they are not, for closed networks: ["10.0.0.0/8"]. RFC 4380, section 5.2.4: "global unicast address".`)
}

// QueueKeys declare what may wait while the way to a peer is being opened.
func QueueKeys(packets, bytes, total *int, all int, reload key.Reload) []key.Key {
	return []key.Key{
		// A window's worth of a young TCP connection.
		key.Of("queue_packets", packets, 16, key.Count(1), reload,
			`Packets that may wait for one peer while the way to it is being opened. RFC 4380, section 5.4.1: "MAY queue packets".`),
		key.Of("queue_bytes", bytes, 16*1280, key.Count(1), reload, "The same in bytes."),
		key.Of("queue_total_bytes", total, all, key.Count(1), reload, "The same for all peers together."),
	}
}

// CheckQueues checks that a queue can hold a packet and the total a queue.
func CheckQueues(c *config.Checker, mtu, each, total int) {
	if each < mtu && c.OK("queue_bytes", "mtu") {
		c.Fail("queue_bytes", fmt.Sprintf("%d bytes cannot hold one full packet", each), fmt.Sprintf("write %d or more", mtu))
	}
	if total < each && c.OK("queue_total_bytes", "queue_bytes") {
		c.Fail("queue_total_bytes", fmt.Sprintf("%d bytes in all are less than queue_bytes for one peer", total), fmt.Sprintf("write %d or more", each))
	}
}

// CheckReachable checks an address that clients must be able to send to (RFC 4380, section
// 5.2.4).
func CheckReachable(c *config.Checker, of string, a netip.Addr, allow []netip.Prefix, remedy string) {
	global := teredo.GlobalCheck{Allow: allow}
	name, _, _ := strings.Cut(of, "[")
	if a.IsValid() && c.OK(name) && !global.OK(a) {
		c.Fail(of, fmt.Sprintf("clients refuse %s, because it is not a global address", a), remedy)
	}
}

// servicePrefix parses a Teredo service prefix (RFC 4380, section 2.6): 32 bits
// long by the layout of the address.
var servicePrefix = key.Text("2001::/32", func(s string) (netip.Prefix, *key.Fault) {
	p, f := key.PrefixLike(s, "2001::/32")
	if f == nil && (!p.Addr().Is6() || p.Bits() != 32) {
		return p, key.Wrong("write one like 2001::/32", "a Teredo prefix is an IPv6 prefix of 32 bits, which %s is not", p)
	}
	return p, f
})

// PrivateRange parses an IPv4 range that is to count as global.
var PrivateRange = key.Text("10.0.0.0/8", func(s string) (netip.Prefix, *key.Fault) {
	p, f := key.PrefixLike(s, "10.0.0.0/8")
	if f != nil {
		return p, f
	}
	if !p.Addr().Is4() {
		return p, key.Wrong("write one like 10.0.0.0/8", "%s is not an IPv4 prefix", p)
	}
	open := teredo.GlobalCheck{Allow: []netip.Prefix{p}}
	if !open.OK(p.Addr()) {
		return p, key.Wrong("name a range of unicast addresses, like 10.0.0.0/8", "no host can be reached in %s", p)
	}
	return p, nil
})
