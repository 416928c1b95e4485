// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Numbers of <linux/if_link.h> and <linux/ip.h>.
const (
	inetConf        = 1 // IFLA_INET_CONF
	confForwarding  = 1 // IPV4_DEVCONF_FORWARDING
	confRedirects   = 6
	confRPFilter    = 8
	confAcceptLocal = 23
)

// ForwardIPv4 has the kernel route IPv4 packets that come in by a link, and by no
// other: a fast path looks routes up as if its packets came from there.
func (h *Host) ForwardIPv4(link string) error {
	return h.configureIPv4("switch on the forwarding of IPv4 on", link, confForwarding, 1)
}

// GatewayIPv4 prepares the TUN device of a gateway: the kernel routes what comes
// in by it, also from an address of this host, which a gateway has as the source
// of errors, and a translator as its pool; and sends no redirects for what leaves
// by it again.
func (h *Host) GatewayIPv4(link string) error {
	return h.configureIPv4("prepare IPv4 on", link, confForwarding, 1, confRedirects, 0, confRPFilter, 0, confAcceptLocal, 1)
}

// configureIPv4 sets pairs of a setting and its value. It asks by netlink, since a
// service may not write below /proc/sys.
func (h *Host) configureIPv4(what, link string, pairs ...uint32) error {
	l, err := h.link(link)
	if err != nil {
		return err
	}
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(l.Attrs().Index)
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	conf := spec.AddRtAttr(unix.AF_INET, nil).AddRtAttr(inetConf, nil)
	for i := 0; i < len(pairs); i += 2 {
		conf.AddRtAttr(int(pairs[i]), nl.Uint32Attr(pairs[i+1]))
	}
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	req.AddData(msg)
	req.AddData(spec)
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return h.problem(what, link, err)
	}
	return nil
}
