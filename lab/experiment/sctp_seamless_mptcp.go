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

// noMPTCP is why there are none.
const noMPTCP = "this kernel has no MPTCP"

// mptcpHandovers makes handovers with connections of MPTCP, each with a new one. why is that there is no MPTCP.
func (n *testbedNet) mptcpHandovers(ctx context.Context, runs int) (moves map[seamlessKind][]seamlessMove, why string, err error) {
	if why, err = allowMPTCP(ctx, n.media, n.ue, n.addresses[1], handoffUMTS); err != nil || why != "" {
		return nil, why, err
	}
	moves = map[seamlessKind][]seamlessMove{}
	for _, kind := range mptcpKinds {
		for range runs {
			m, err := n.mptcpHandover(ctx, kind)
			if errors.Is(err, traffic.ErrNoMPTCP) {
				return nil, noMPTCP, nil
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

// allowMPTCP has connections of a terminal to a server get a backup subflow by another of the terminal's addresses
// (RFC 8684 section 3.3.8). why is that there is no MPTCP.
func allowMPTCP(ctx context.Context, server, ue *lab.Node, backup netip.Addr, device string) (why string, err error) {
	for _, node := range []*lab.Node{ue, server} {
		if _, err := node.Run(ctx, "ip", "mptcp", "limits", "set", "subflows", "2", "add_addr_accepted", "2"); err != nil {
			return noMPTCP + ", or there is no ip of iproute2", ctx.Err()
		}
	}
	_, err = ue.Run(ctx, "ip", "mptcp", "endpoint", "add", backup.String(), "dev", device, "subflow", "backup")
	return "", err
}

// mptcpHandover makes one. Who announces deletes the address, as a daemon on the terminal would: the kernel's path manager
// takes no notice of links.
func (n *testbedNet) mptcpHandover(ctx context.Context, kind seamlessKind) (m seamlessMove, err error) {
	if m.trip, err = n.trip(ctx, 1); err != nil {
		return m, err
	}
	f, err := startMPTCP(ctx, n.media, n.ue, testbedMedia)
	if err != nil {
		return m, err
	}
	defer closing(&err, f.stop)
	if err := n.settle(ctx); err != nil { // the other subflow is there
		return m, err
	}
	f.end.reset()
	n.wlan.Cut()
	if kind == seamlessAnnounced {
		if _, err := n.ue.Run(ctx, "ip", "mptcp", "endpoint", "delete", "id", "0", n.addresses[0].String()); err != nil {
			return m, err
		}
	}
	if err := n.settle(ctx); err != nil {
		return m, err
	}
	m.down = f.end.gap()
	n.wlan.Restore()
	return m, nil
}

// mptcpFlow is a connection by which a server sends what associations do.
type mptcpFlow struct {
	server, ue net.Conn
	listener   net.Listener
	end        *cutEnd // the terminal's
	done       chan struct{}
}

// startMPTCP has a terminal connect to a server, which sends.
func startMPTCP(ctx context.Context, server, ue *lab.Node, to netip.Addr) (*mptcpFlow, error) {
	f := &mptcpFlow{end: &cutEnd{read: make(chan struct{})}, done: make(chan struct{})}
	if err := f.dial(ctx, server, ue, to); err != nil {
		return nil, err
	}
	go f.end.receiveEach(f.ue)
	go sendEach(f.server, f.done)
	return f, nil
}

// dial connects. Subflows join by the listener.
func (f *mptcpFlow) dial(ctx context.Context, server, ue *lab.Node, to netip.Addr) error {
	err := server.Do(func() (err error) {
		var c net.ListenConfig
		c.SetMultipathTCP(true)
		f.listener, err = c.Listen(ctx, "tcp", netip.AddrPortFrom(to, 0).String())
		return err
	})
	if err != nil {
		return err
	}
	err = ue.Do(func() (err error) {
		f.ue, err = traffic.Dial(ctx, traffic.MPTCP, f.listener.Addr().String(), traffic.Options{NoDelay: true})
		return err
	})
	if err == nil {
		f.server, err = f.listener.Accept()
	}
	if err != nil {
		return errors.Join(err, f.listener.Close())
	}
	return f.server.(*net.TCPConn).SetNoDelay(true)
}

// stop ends it.
func (f *mptcpFlow) stop() error {
	close(f.done)
	err := errors.Join(f.server.Close(), f.ue.Close(), f.listener.Close())
	<-f.end.read
	return err
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
