// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/port"
)

// ErrKernel is the error of raw sockets where the kernel speaks SCTP itself: it would answer what comes for this
// program with ABORT.
var ErrKernel = errors.New("the kernel's own SCTP is loaded and would abort associations: use a network that ends in +udp, or unload it with `modprobe -r sctp`, or set Config.BesideKernel where a firewall keeps it silent")

// kernelSCTP is there in the calling thread's network namespace if the kernel has SCTP loaded. To open a socket would
// load it.
var kernelSCTP = "/proc/thread-self/net/sctp"

// kernelSpeaks reports whether the kernel speaks SCTP.
func kernelSpeaks() bool {
	_, err := os.Stat(kernelSCTP)
	return err == nil
}

// openRaw opens raw sockets, at a port that no other endpoint of the network namespace has.
func (e *Endpoint) openRaw() error {
	if kernelSpeaks() && !e.config.BesideKernel {
		return ErrKernel
	}
	if err := e.claimPort(); err != nil {
		return err
	}
	err := e.openFamilies(func(at netip.Addr) (*port.Pairs, error) {
		return port.ListenPairs(port.PairsConfig{Addr: netip.AddrPortFrom(at, 0), Protocol: unix.IPPROTO_SCTP, Port: e.addr.Port, Small: e.transient})
	})
	if err != nil {
		_ = e.claim.Close()
	}
	return err
}

// portTries is how often a port is looked for that is free.
const portTries = 64

// claimPort has the endpoint's port to itself among those of this library in the network namespace. Raw sockets do not
// know of ports; an abstract Unix socket is of a namespace, too, and goes with its process.
func (e *Endpoint) claimPort() (err error) {
	for try := 1; ; try++ {
		candidate := e.addr.Port
		if candidate == 0 {
			candidate = anyPort()
		}
		e.claim, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: fmt.Sprintf("@isthmus-sctp-%d", candidate), Net: "unixgram"})
		switch {
		case err == nil:
			e.addr.Port = candidate
			return nil
		case !errors.Is(err, unix.EADDRINUSE):
			return fmt.Errorf("cannot claim a port of SCTP: %w", err)
		case e.addr.Port != 0 || try == portTries:
			return fmt.Errorf("port %d of SCTP is in use in this network namespace, by another endpoint of this program or of another: close it or choose another port: %w", candidate, unix.EADDRINUSE)
		}
	}
}
