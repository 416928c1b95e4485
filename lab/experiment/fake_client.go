// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"errors"
	"net"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/teredo"
)

// fakeClient plays a Teredo client with an open mapping, and its server.
type fakeClient struct {
	address netip.Addr
	service *net.UDPConn // the client's service port
	server  *net.UDPConn // port 3544
	relay   chan bubbleOrigin
	last    bubbleOrigin
}

// bubbleOrigin is who asked for a direct bubble.
type bubbleOrigin struct {
	relay  netip.AddrPort
	source netip.Addr
}

func newFakeClient(client *lab.Node, ip4, address netip.Addr) (*fakeClient, error) {
	f := &fakeClient{address: address, relay: make(chan bubbleOrigin, 1)}
	err := client.Do(func() (err error) {
		if f.service, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip4, fakeClientPort))); err != nil {
			return err
		}
		f.server, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip4, teredo.Port)))
		return err
	})
	if err != nil {
		return nil, err
	}
	go f.serve()
	return f, nil
}

// serve answers each bubble that reaches the server with a direct one from the
// client, as RFC 4380 section 5.2.3 wants of clients, until the sockets close.
func (f *fakeClient) serve() {
	buf := make([]byte, 2048)
	for {
		n, from, err := f.server.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		p, err := teredo.Parse(buf[:n])
		if err != nil || !teredo.IsBubble(p.IPv6) {
			continue
		}
		origin := bubbleOrigin{relay: netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), source: p.IPv6.Src()}
		select {
		case <-f.relay:
		default:
		}
		f.relay <- origin
		_ = f.send(origin)
	}
}

// bubble sends the relay one more direct bubble.
func (f *fakeClient) bubble() error {
	select {
	case f.last = <-f.relay:
	default:
	}
	if !f.last.relay.IsValid() {
		return errors.New("the relay has not asked for a bubble")
	}
	return f.send(f.last)
}

func (f *fakeClient) send(to bubbleOrigin) error {
	b := teredo.AppendBubble(make([]byte, 0, packet.IPv6HeaderLen), f.address, to.source)
	_, err := f.service.WriteToUDPAddrPort(b, to.relay)
	return err
}
