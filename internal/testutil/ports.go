// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"net"
	"os"
	"sync/atomic"
)

// Ports that the kernel gives to no one who does not ask for one: what is free stays so
// until it is used. Each process of tests begins elsewhere.
const firstPort, ports = 10000, 20000

var lastPort atomic.Uint32

// FreePort returns a port that no one on this host has, by UDP or TCP, and which is not
// returned again. Tests that run outside of a namespace have no port of their own choice:
// the same tests may run beside them, under the race detector.
func FreePort() uint16 {
	for range ports {
		port := firstPort + int((uint32(os.Getpid())*97+lastPort.Add(1))%ports)
		udp, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
		if err != nil {
			continue
		}
		tcp, err := net.ListenTCP("tcp", &net.TCPAddr{Port: port})
		_ = udp.Close()
		if err == nil {
			_ = tcp.Close()
			return uint16(port)
		}
	}
	panic("no port is free")
}
