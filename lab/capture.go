// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// captureBuffer is the receive buffer of a capture: a burst of a 10 Gbit/s
// link for some milliseconds.
const captureBuffer = 16 << 20

// Capture is a capture under way.
type Capture struct {
	socket *os.File
	file   *os.File // nil: someone sees each packet as it passes
	ended  chan error

	stop    sync.Once
	err     error
	packets int
	dropped int
}

// Capture records every packet of an interface, both directions, into a pcap
// file with nanosecond times, until Stop or until the lab is closed.
func (l *Lab) Capture(n *Node, iface, path string) (*Capture, error) {
	c, err := n.capture(iface, path)
	if err != nil {
		return nil, fmt.Errorf("cannot capture on %s of node %s: %w", iface, n.name, err)
	}
	if err := l.onClose(c.Stop); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Watch has every packet of an interface, both directions, seen as it passes, until Stop or until
// the lab is closed. Packets come one after the other, each with its time, as frames of the link;
// see must not keep them.
func (l *Lab) Watch(n *Node, iface string, see func(at time.Time, frame []byte)) (*Capture, error) {
	c, _, err := n.openCapture(iface)
	if err != nil {
		return nil, fmt.Errorf("cannot watch %s of node %s: %w", iface, n.name, err)
	}
	go func() {
		c.ended <- c.receive(func(at time.Time, frame []byte, _ int) error {
			see(at, frame)
			return nil
		})
	}()
	if err := l.onClose(c.Stop); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (n *Node) capture(iface, path string) (*Capture, error) {
	c, linkType, err := n.openCapture(iface)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.socket.Close()
		return nil, err
	}
	if c.file, err = os.Create(path); err != nil {
		c.socket.Close()
		return nil, err
	}
	go func() { c.ended <- c.record(linkType) }()
	return c, nil
}

// openCapture opens a socket that takes the packets of an interface, and says of what kind its frames are.
func (n *Node) openCapture(iface string) (c *Capture, linkType uint32, err error) {
	linkType = linkTypeEthernet
	c = &Capture{ended: make(chan error, 1)}
	err = n.Do(func() error {
		device, err := net.InterfaceByName(iface)
		if err != nil {
			return err
		}
		if len(device.HardwareAddr) == 0 && device.Flags&net.FlagLoopback == 0 {
			linkType = linkTypeRaw
		}
		fd, err := packetSocket(device.Index)
		if err != nil {
			return err
		}
		c.socket = os.NewFile(uintptr(fd), "packets of "+iface)
		return nil
	})
	return c, linkType, err
}

// packetSocket opens a non-blocking AF_PACKET socket on an interface of the
// calling thread's namespace, with receive times.
func packetSocket(index int) (fd int, err error) {
	// Protocol 0 receives nothing until bind names the interface, so that no
	// packet of another one slips in.
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		growReceiveBuffer(fd, captureBuffer),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: index}),
	)
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// growReceiveBuffer asks for a buffer beyond the system's limit, which only
// root of the machine gets, and else for as much as the limit allows.
func growReceiveBuffer(fd, size int) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) == nil {
		return nil
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size)
}

func networkOrder(v uint16) uint16 { return v>>8 | v<<8 }

// record writes packets to the file.
func (c *Capture) record(linkType uint32) error {
	w := bufio.NewWriterSize(c.file, 256<<10)
	scratch := make([]byte, 0, pcapFileHeader)
	if _, err := w.Write(appendPcapHeader(scratch, linkType)); err != nil {
		return err
	}
	err := c.receive(func(at time.Time, packet []byte, original int) error {
		return writePcapPacket(w, scratch, at, packet, original)
	})
	return errors.Join(err, w.Flush())
}

// receive takes packets, each with its time and the length that it had, until the read deadline
// that Stop sets; then it takes what is still queued.
func (c *Capture) receive(take func(at time.Time, packet []byte, original int) error) error {
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return err
	}
	buf, oob := make([]byte, pcapSnapLength), make([]byte, 128)
	var takeErr error
	drain := func(fd uintptr) bool {
		for takeErr == nil {
			n, oobn, _, _, err := unix.Recvmsg(int(fd), buf, oob, unix.MSG_TRUNC)
			if err != nil {
				return false
			}
			c.packets++
			takeErr = take(receiveTime(oob[:oobn]), buf[:min(n, len(buf))], n)
		}
		return true
	}
	for takeErr == nil && err == nil {
		err = raw.Read(drain)
	}
	_ = raw.Control(func(fd uintptr) {
		drain(fd)
		if stats, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			c.dropped = int(stats.Drops)
		}
	})
	return takeErr
}

// Stop ends the capture and flushes the file. Packets the capture could not
// take are an error: a capture with gaps proves nothing.
func (c *Capture) Stop() error {
	c.stop.Do(func() {
		_ = c.socket.SetReadDeadline(time.Unix(1, 0))
		name := c.socket.Name()
		c.err = errors.Join(<-c.ended, c.socket.Close())
		if c.file != nil {
			name = c.file.Name()
			c.err = errors.Join(c.err, c.file.Close())
		}
		if c.dropped > 0 {
			c.err = errors.Join(c.err, fmt.Errorf("the capture %s lacks %d packets: the machine was too slow", name, c.dropped))
		}
	})
	return c.err
}

// Packets is the number of packets that were seen, valid after Stop.
func (c *Capture) Packets() int { return c.packets }
