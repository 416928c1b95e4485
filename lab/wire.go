// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// WireConfig describes a wire from node A to node B.
type WireConfig struct {
	AtoB, BtoA LaneConfig
	// Seed of loss and jitter: the same seed gives the same draws.
	Seed uint64
}

// Direction of a wire.
type Direction int

// The directions of a wire.
const (
	AtoB Direction = iota
	BtoA
)

// Wire is a link with a rate, a queue, delay, jitter and loss. It carries any
// frame, to whatever address. It is emulated by this process, in a namespace
// between the nodes.
type Wire struct {
	pumps [2]*pump
	stop  sync.Once
	err   error
}

// Wire joins two nodes as Link does, through an emulated line.
func (l *Lab) Wire(a *Node, ifaceA string, b *Node, ifaceB string, c WireConfig) (*Wire, error) {
	if err := l.Err(); err != nil {
		return nil, err
	}
	w, err := l.wire(a, ifaceA, b, ifaceB, c)
	if err != nil {
		err = fmt.Errorf("wire from node %s to node %s: %w", a.name, b.name, err)
		l.fail(err)
		return nil, err
	}
	if err := l.onClose(w.Close); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (l *Lab) wire(a *Node, ifaceA string, b *Node, ifaceB string, c WireConfig) (*Wire, error) {
	var err error
	if c.AtoB, err = c.AtoB.complete(); err != nil {
		return nil, err
	}
	if c.BtoA, err = c.BtoA.complete(); err != nil {
		return nil, err
	}
	ifaceA, ifaceB = a.portName(ifaceA), b.portName(ifaceB)
	l.mu.Lock()
	l.wires++
	name := "wire-" + strconv.Itoa(l.wires)
	l.mu.Unlock()
	middle := l.node(name, true)
	// The namespace between must not speak by itself.
	middle.Sysctl("net.ipv6.conf.default.disable_ipv6", "1").Sysctl("net.ipv6.conf.all.disable_ipv6", "1")
	l.Link(a, ifaceA, middle, "a")
	l.Link(b, ifaceB, middle, "b")
	for _, end := range []struct {
		node  *Node
		iface string
	}{{a, ifaceA}, {b, ifaceB}, {middle, "a"}, {middle, "b"}} {
		if err := end.node.DisableOffloads(end.iface); err != nil {
			return nil, err
		}
	}
	ports := [2]int{-1, -1}
	err = middle.Do(func() error { return openPorts(&ports, "a", "b") })
	if err != nil {
		closePorts(ports)
		return nil, err
	}
	w, err := startWire(ports, c)
	if err != nil {
		closePorts(ports)
	}
	return w, err
}

// openPorts opens the packet sockets of the two ends.
func openPorts(ports *[2]int, names ...string) error {
	for i, name := range names {
		device, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		ports[i], err = packetSocket(device.Index)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(ports[i], unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
			return err
		}
		// Without this, what one direction sends, the other would take in.
		if err := unix.SetsockoptInt(ports[i], unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
			return fmt.Errorf("this kernel is too old for wires, which need Linux 4.20: %w", err)
		}
	}
	return nil
}

func closePorts(ports [2]int) {
	for _, fd := range ports {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

func startWire(ports [2]int, c WireConfig) (*Wire, error) {
	w := &Wire{}
	for i, lane := range []*lane{newLane(c.AtoB, c.Seed, uint64(AtoB)), newLane(c.BtoA, c.Seed, uint64(BtoA))} {
		p, err := newPump(ports[i], ports[1-i], lane)
		if err != nil {
			return nil, err
		}
		w.pumps[i] = p
	}
	for _, p := range w.pumps {
		p.start()
	}
	return w, nil
}

// Cut makes directions drop everything, what is under way included; both if
// none is named. The ends do not notice: their carrier stays.
func (w *Wire) Cut(directions ...Direction) { w.set(true, directions) }

// Restore undoes Cut.
func (w *Wire) Restore(directions ...Direction) { w.set(false, directions) }

func (w *Wire) set(cut bool, directions []Direction) {
	if len(directions) == 0 {
		directions = []Direction{AtoB, BtoA}
	}
	for _, d := range directions {
		w.pumps[d].setCut(cut)
	}
}

// Lose makes a direction lose the next n frames, at least 1, that the filter chooses, and no
// others.
func (w *Wire) Lose(d Direction, n int, of Filter) { w.pumps[d].lose(n, of) }

// Counters gives the counters of a direction.
func (w *Wire) Counters(d Direction) LaneCounters { return w.pumps[d].counters() }

// Close stops the emulation; nothing crosses the wire any more.
func (w *Wire) Close() error {
	w.stop.Do(func() {
		for _, p := range w.pumps {
			w.err = errors.Join(w.err, p.end())
		}
		for _, p := range w.pumps {
			w.err = errors.Join(w.err, unix.Close(p.in))
		}
	})
	return w.err
}
