// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/sip/registrar"
)

// sockets are those of an instance, by the numbers of its listeners: those of UDP come first.
type sockets struct {
	udp     []*port.UDP
	streams []*net.TCPListener
}

// udpBuffer is what the kernel keeps of requests: those of a storm, some hundred milliseconds.
const udpBuffer = 4 << 20

// openSockets binds all of them, or none, in the network namespace of the calling thread.
func openSockets(list []registrar.Listener) (s sockets, err error) {
	for _, l := range list {
		if err = s.open(l); err != nil {
			s.close()
			return sockets{}, err
		}
	}
	return s, nil
}

func (s *sockets) open(l registrar.Listener) error {
	if l.Transport == "UDP" {
		conn, err := port.ListenUDP(port.UDPConfig{Addr: l.Address, Buffer: udpBuffer})
		if err == nil {
			s.udp = append(s.udp, conn)
		}
		return explain(l, err)
	}
	network := "tcp6"
	if l.Address.Addr().Is4() { // or 0.0.0.0 would stand for IPv6, too
		network = "tcp4"
	}
	conn, err := net.ListenTCP(network, net.TCPAddrFromAddrPort(l.Address))
	if err == nil {
		s.streams = append(s.streams, conn)
	}
	return explain(l, err)
}

func (s *sockets) close() {
	for _, conn := range s.udp {
		_ = conn.Close()
	}
	for _, conn := range s.streams {
		_ = conn.Close()
	}
}

// stats are the counters of the sockets of UDP.
func (s *sockets) stats() (sum port.Stats) {
	for _, conn := range s.udp {
		sum = sum.Plus(conn.Stats())
	}
	return sum
}

// explain says in one sentence why an address cannot be listened on.
func explain(l registrar.Listener, err error) error {
	protocol, option := "TCP", "-t"
	if l.Transport == "UDP" {
		protocol, option = "UDP", "-u"
	}
	at := l.Address
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s port %d on %s is in use by another program: stop it (ss -lnp %s shows it), or choose another port", protocol, at.Port(), at.Addr(), option)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s is not an address of this host: write one that ip address shows, or add it to an interface", at.Addr())
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("this user may not use %s port %d: run isthmus as root (sudo), or choose a port above 1023", protocol, at.Port())
	}
	return fmt.Errorf("cannot use %s %s: %w", protocol, at, err)
}

// examineFiles tells what is wrong with the files of subscribers and certificates, or may be.
func examineFiles(s *Settings) (found []role.Finding) {
	p, err := prepare(s)
	warn := func(text string) { found = append(found, role.Warnings(name, s.Name, []string{text})...) }
	if err == nil && s.NextHop == "" && len(p.engine.Accounts) == 0 {
		warn("no one can register, because no subscriber in " + s.SubscribersFile + " has a private_id")
	}
	for _, a := range p.engine.Accounts {
		if len(a.Public) == 0 {
			warn(fmt.Sprintf("%s has no address to register: add public_ids to the subscriber", a.Username))
		}
	}
	return append(found, role.Problems(err)...)
}

// examine tells what of this host is in the way of a registrar. Sockets are open for a moment.
func examine(s *Settings) []role.Finding {
	var err error
	told := map[string]bool{} // of an address once, not by each transport
	for _, l := range listeners(s) {
		one, failed := openSockets([]registrar.Listener{l})
		one.close()
		if failed != nil && !told[failed.Error()] {
			told[failed.Error()] = true
			err = errors.Join(err, fmt.Errorf("%s %s: %w", name, s.Name, failed))
		}
	}
	return role.Problems(err)
}

// shortage is how long no one is let in when the host has no room for connections.
const shortage = 50 * time.Millisecond

// accept takes connections until the socket is closed.
func (r *Registrar) accept(ctx context.Context, l registrar.Listener, listener *net.TCPListener) error {
	for {
		conn, err := listener.AcceptTCP()
		switch {
		case err == nil:
			from := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
			r.streams.accepted(l, conn, source(from))
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		case errors.Is(err, syscall.ECONNABORTED):
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.ENOMEM):
			r.streams.counters.refused.Add(1)
			time.Sleep(shortage)
		default:
			return fmt.Errorf("cannot take connections on %s: %w", l.Address, err)
		}
	}
}
