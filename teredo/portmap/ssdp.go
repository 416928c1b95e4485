// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package portmap

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"golang.org/x/net/ipv4"
)

// Specification constants (UPnP Device Architecture 1.1 section 1).
const (
	ssdpPort = 1900
	// ssdpHops is the TTL of searches.
	ssdpHops = 2
	// searchWait is MX: how long a device may take to answer a multicast search.
	searchWait = time.Second
)

var ssdpGroup = netip.MustParseAddr("239.255.255.250")

// gatewayDevice is what is searched for: version 1 is answered by all later ones.
const gatewayDevice = "urn:schemas-upnp-org:device:InternetGatewayDevice:1"

// maxSSDP bounds an answer, in bytes; all fit into one Ethernet frame.
const maxSSDP = 1472

// search finds the description of the gateway's device. The search goes to the
// group on the network of the local address, and to the gateway alone, which
// must answer that at once; only the gateway's answer counts.
func search(ctx context.Context, t Target) (*url.URL, error) {
	ctx, cancel := context.WithTimeout(ctx, t.limits().search)
	defer cancel()
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(t.Local.Addr(), 0)))
	if err != nil {
		return nil, fmt.Errorf("cannot search for the gateway: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	multicast(conn, t.Local.Addr())
	send := func() {
		for _, to := range []netip.Addr{t.Gateway, ssdpGroup} {
			// One of the two is enough, and without either the time ends the wait.
			_, _ = conn.WriteToUDPAddrPort(searchMessage(to), netip.AddrPortFrom(to, ssdpPort))
		}
	}
	send()
	again := time.AfterFunc(t.limits().repeat, send)
	defer again.Stop()
	buf := make([]byte, maxSSDP+1)
	none := ErrNoGateway
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return nil, fmt.Errorf("%w (%s)", none, UPnP)
		}
		if from.Addr().Unmap() == t.Gateway && n <= maxSSDP {
			if location, ok := parseSearchAnswer(buf[:n], t.Gateway); ok {
				return location, nil
			}
		}
		none = errStranger
	}
}

// multicast sends to groups by the interface of the local address; the kernel's
// choice otherwise.
func multicast(conn *net.UDPConn, local netip.Addr) {
	p := ipv4.NewPacketConn(conn)
	_ = p.SetMulticastTTL(ssdpHops)
	links, _ := net.Interfaces()
	for i := range links {
		addrs, _ := links[i].Addrs()
		for _, a := range addrs {
			if ip, ok := a.(*net.IPNet); ok && ip.IP.Equal(local.AsSlice()) {
				_ = p.SetMulticastInterface(&links[i])
			}
		}
	}
}

func searchMessage(to netip.Addr) []byte {
	return fmt.Appendf(nil, "M-SEARCH * HTTP/1.1\r\nHOST: %s:%d\r\nMAN: \"ssdp:discover\"\r\nMX: %d\r\nST: %s\r\n\r\n",
		to, ssdpPort, int(searchWait/time.Second), gatewayDevice)
}

// parseSearchAnswer returns where the description is: at the gateway itself, or
// the answer is refused.
func parseSearchAnswer(b []byte, gateway netip.Addr) (*url.URL, bool) {
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), nil)
	if err != nil {
		return nil, false
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK || answer.Header.Get("ST") != gatewayDevice {
		return nil, false
	}
	location, err := url.Parse(answer.Header.Get("LOCATION"))
	if err != nil || !at(location, gateway) {
		return nil, false
	}
	return location, true
}

// at reports whether a URL names a place at the gateway: plain HTTP, which is all
// that UPnP knows, to its address.
func at(u *url.URL, gateway netip.Addr) bool {
	host, err := netip.ParseAddr(u.Hostname())
	return err == nil && host == gateway && u.Scheme == "http" && u.User == nil
}
