// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/teredo"
)

// startRelayPaths starts a lab with the relay topology; done ends it.
func startRelayPaths(ctx context.Context, e *lab.Env, name string, ways []way) (r *relayPaths, done func(), err error) {
	l, err := e.New(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	e.Step("starting the relays of Miredo and Isthmus beside a plain router")
	r, err = newRelayPaths(ctx, e, l, ways)
	if err != nil {
		_ = l.Close()
		return nil, nil, err
	}
	return r, func() { r.close(); _ = l.Close() }, nil
}

// startRelay runs the relay that the path is named after.
func (p *relayPath) startRelay(ctx context.Context, e *lab.Env, dir string) (err error) {
	if p.way == wayMiredo {
		c, err := peersOf(e).MiredoRelay(dir, peers.MiredoRelay{Name: "relay", Bind: p.router4})
		if err != nil {
			return err
		}
		p.process, err = p.router.Start(ctx, lab.Process{Name: "miredo", Path: c.Path, Args: c.Args, Env: c.Env})
		return err
	}
	file := filepath.Join(dir, p.way.name+".toml")
	text := fmt.Sprintf("[control]\nsocket = %q\n\n[[teredo_relay]]\nname = %q\nbind = %q\nfast_path = %q\nstate_file = %q\n",
		p.socket(dir), p.way.name, p.router4, p.way.fast, filepath.Join(dir, p.way.name+".state"))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	if err := p.router.SetControl(p.socket(dir)); err != nil {
		return err
	}
	p.process, err = p.router.Start(ctx, lab.Process{Name: "isthmus", Path: e.Binary, Args: []string{"run", "-c", file}})
	return err
}

// socket is the control socket of the path's Isthmus.
func (p *relayPath) socket(dir string) string { return filepath.Join(dir, p.way.name+".sock") }

// befriend makes the relay trust the client: the host's packets make the relay
// send a bubble to the client's server, which is the fake client too, and it
// answers until a packet of the host comes through.
func (p *relayPath) befriend(ctx context.Context, client *lab.Node) error {
	fake, err := newFakeClient(client, p.client4, p.client6)
	if err != nil {
		return err
	}
	p.teredo = fake
	p.closers = append(p.closers, fake.service, fake.server)
	frame := p.frame(toIPv4, load.MinTaggedSize)
	for deadline := time.Now().Add(daemonStart); time.Now().Before(deadline); {
		if err := ctx.Err(); err != nil {
			return err
		}
		p.toClient.Forget(0, 1)
		if _, err := p.fromHost.Stream(frame, 0, 1, 0); err != nil {
			return err
		}
		if p.toClient.Await(ctx, 0, 1, 200*time.Millisecond) == 1 {
			return nil
		}
	}
	return fmt.Errorf("the relay did not come to trust its client within %v", daemonStart)
}

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
