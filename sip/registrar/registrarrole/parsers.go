// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"net/netip"
	"strings"

	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/sip/message"
)

// Ports of SIP and of SIP over TLS.
const (
	sipPort  = 5060
	sipsPort = 5061
)

// endpoint parses an address with a port, or the usual one.
func endpoint(usual uint16) key.Parser[netip.AddrPort] {
	return key.Text("2001:db8::5", func(s string) (netip.AddrPort, *key.Fault) {
		a, err := netip.ParseAddrPort(s)
		if alone, bad := netip.ParseAddr(s); bad == nil {
			a, err = netip.AddrPortFrom(alone, usual), nil
		}
		switch ip := a.Addr().Unmap(); {
		case err != nil || a.Port() == 0:
			return a, key.Wrong("write it like 2001:db8::5, [2001:db8::5]:5070 or 192.0.2.5:5070", "%q is not an address, with a port or without", s)
		case ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "":
			return a, key.Wrong("name each address of this host, as ip address shows them", "%s is no address that messages could carry", ip)
		default:
			return netip.AddrPortFrom(ip, a.Port()), nil
		}
	})
}

var domainName = key.Text("example.net", func(s string) (string, *key.Fault) {
	if !key.IsHostName(s) {
		return "", key.Wrong("write it like example.net", "%q is not a domain name", s)
	}
	return strings.ToLower(strings.TrimSuffix(s, ".")), nil
})

// serverURI parses the URI of a server, without a user.
var serverURI = key.Text("sip:[2001:db8::6]:5060", func(s string) (string, *key.Fault) {
	u, err := message.ParseURI(s)
	if err != nil || !u.IsSIP() || u.User != "" || u.Headers != "" {
		return "", key.Wrong("write it like sip:[2001:db8::6]:5060, or sip:proxy.example.net;transport=tcp", "%q is not the SIP URI of a server", s)
	}
	return s, nil
})

// pathMTU parses an MTU that IP allows; 0 is none.
func pathMTU(raw any) (int, *key.Fault) {
	if raw == int64(0) {
		return 0, nil
	}
	n, f := key.Integer[int](576, 65535)(raw)
	if f != nil {
		f.Remedy += ", or 0"
	}
	return n, f
}
