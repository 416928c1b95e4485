// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/traffic"
)

// mptcpKinds are the kinds of handovers that MPTCP makes, too.
var mptcpKinds = []seamlessKind{seamlessAnnounced, seamlessSilent}

// mptcpHandovers makes handovers with connections of MPTCP, each with a new one: UMTS is a backup subflow (RFC 8684
// section 3.3.8). why is that there is no MPTCP.
func (n *testbedNet) mptcpHandovers(ctx context.Context, runs int) (moves map[seamlessKind][]seamlessMove, why string, err error) {
	for _, node := range []*lab.Node{n.ue, n.media} {
		if _, err := node.Run(ctx, "ip", "mptcp", "limits", "set", "subflows", "2", "add_addr_accepted", "2"); err != nil {
			return nil, "this kernel has no MPTCP, or there is no ip of iproute2", ctx.Err()
		}
	}
	if _, err := n.ue.Run(ctx, "ip", "mptcp", "endpoint", "add", n.addresses[1].String(), "dev", handoffUMTS, "subflow", "backup"); err != nil {
		return nil, "", err
	}
	moves = map[seamlessKind][]seamlessMove{}
	for _, kind := range mptcpKinds {
		for range runs {
			m, err := n.mptcpHandover(ctx, kind)
			if errors.Is(err, traffic.ErrNoMPTCP) {
				return nil, "this kernel has no MPTCP", nil
			}
			if err != nil {
				return nil, "", fmt.Errorf("MPTCP, %v: %w", kind, err)
			}
			n.daemons.env.Step("MPTCP, %v: nothing came to the terminal for %v", kind, rounded(m.down))
			moves[kind] = append(moves[kind], m)
		}
	}
	return moves, "", nil
}

// mptcpHandover makes one. Who announces deletes the address, as a daemon on the terminal would: the kernel's path manager
// takes no notice of links.
func (n *testbedNet) mptcpHandover(ctx context.Context, kind seamlessKind) (m seamlessMove, err error) {
	if m.trip, err = n.trip(ctx, 1); err != nil {
		return m, err
	}
	server, ue, listener, err := n.dialMPTCP(ctx)
	if err != nil {
		return m, err
	}
	end := &cutEnd{read: make(chan struct{})}
	go end.receiveEach(ue)
	stop := make(chan struct{})
	go sendEach(server, stop)
	defer func() {
		close(stop)
		err = errors.Join(err, server.Close(), ue.Close(), listener.Close())
		<-end.read
	}()
	if err := n.settle(ctx); err != nil { // the other subflow is there
		return m, err
	}
	end.mu.Lock()
	end.longest = 0
	end.mu.Unlock()
	n.wlan.Cut()
	if kind == seamlessAnnounced {
		if _, err := n.ue.Run(ctx, "ip", "mptcp", "endpoint", "delete", "id", "0", n.addresses[0].String()); err != nil {
			return m, err
		}
	}
	if err := n.settle(ctx); err != nil {
		return m, err
	}
	m.down = end.gap()
	n.wlan.Restore()
	return m, nil
}

// dialMPTCP has the terminal connect to the media server, by WLAN. Subflows join by the listener.
func (n *testbedNet) dialMPTCP(ctx context.Context) (server, ue net.Conn, l net.Listener, err error) {
	err = n.media.Do(func() (err error) {
		var c net.ListenConfig
		c.SetMultipathTCP(true)
		l, err = c.Listen(ctx, "tcp", netip.AddrPortFrom(testbedMedia, 0).String())
		return err
	})
	if err != nil {
		return nil, nil, nil, err
	}
	err = n.ue.Do(func() (err error) {
		ue, err = traffic.Dial(ctx, traffic.MPTCP, l.Addr().String(), traffic.Options{NoDelay: true})
		return err
	})
	if err == nil {
		server, err = l.Accept()
	}
	if err != nil {
		return nil, nil, nil, errors.Join(err, l.Close())
	}
	return server, ue, l, server.(*net.TCPConn).SetNoDelay(true)
}

// sendEach sends as many octets as associations do in as many messages.
func sendEach(c net.Conn, stop <-chan struct{}) {
	tick := time.NewTicker(cutEvery)
	defer tick.Stop()
	for message := make([]byte, cutSize); ; {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if _, err := c.Write(message); err != nil {
			return
		}
	}
}

// receiveEach reads message by message until the connection ends.
func (s *cutEnd) receiveEach(c net.Conn) {
	defer close(s.read)
	for b := make([]byte, cutSize); ; {
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		s.delivered(true)
	}
}
