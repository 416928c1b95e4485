// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/port"
)

// sockets are those of the node: of each number one, or one for each worker where the user
// plane alone comes. Numbers of a family that the node has no address of are empty.
type sockets [ggsn.NumSockets][]*port.UDP

// controlBuffer is what the kernel keeps of requests: those of a storm, some tens of
// milliseconds at 20,000 a second.
const controlBuffer = 4 << 20

// openSockets binds them, in the network namespace of the calling thread.
func openSockets(addresses []netip.Addr, workers int) (s sockets, err error) {
	for _, a := range addresses {
		for n := range ggsn.Socket(ggsn.NumSockets) {
			if n.IPv6() != a.Is6() {
				continue
			}
			cfg, many := port.UDPConfig{Addr: netip.AddrPortFrom(a, n.Port())}, 1
			switch n {
			case ggsn.SocketControl, ggsn.SocketControlIPv6:
				cfg.Small, cfg.Buffer = true, controlBuffer
			case ggsn.SocketUser, ggsn.SocketUserIPv6:
				cfg.Class, many = true, workers
			case ggsn.SocketV0, ggsn.SocketV0IPv6: // both planes
				cfg.Class = true
			}
			if s[n], err = port.ListenUDPGroup(cfg, many); err != nil {
				s.close()
				return sockets{}, err
			}
		}
	}
	return s, nil
}

// of are the sockets by their numbers as a worker sends by them.
func (s *sockets) of(worker int) []port.UDPConn {
	list := make([]port.UDPConn, ggsn.NumSockets)
	for n, group := range s {
		if len(group) > 0 {
			list[n] = group[min(worker, len(group)-1)]
		}
	}
	return list
}

// each calls f for all.
func (s *sockets) each(f func(n ggsn.Socket, worker int, conn *port.UDP)) {
	for n, group := range s {
		for w, conn := range group {
			f(ggsn.Socket(n), w, conn)
		}
	}
}

// stats are the counters of all.
func (s *sockets) stats() (sum port.Stats) {
	s.each(func(_ ggsn.Socket, _ int, conn *port.UDP) { sum = sum.Plus(conn.Stats()) })
	return sum
}

func (s *sockets) close() {
	s.each(func(_ ggsn.Socket, _ int, conn *port.UDP) { _ = conn.Close() })
}
