// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Frames takes all Ethernet frames that come by a link, whoever they are for, beside the host's own
// stack. What is written leaves by the same link.
type Frames struct{ packetSocket }

// OpenFrames opens a link in the calling thread's network namespace.
func OpenFrames(h *Host, name string) (*Frames, error) {
	link, err := h.link(name)
	if err != nil {
		return nil, err
	}
	if len(link.Attrs().HardwareAddr) != 6 {
		return nil, fmt.Errorf("%s is no Ethernet link: take one whose far end is the terminal's, such as one of a veth pair", name)
	}
	f := &Frames{packetSocket{front: ethernetLen, keep: true}}
	if err := f.open(link.Attrs().MTU); err != nil {
		return nil, err
	}
	if err := f.setUp(link.Attrs().Index); err != nil {
		f.guard.release()
		return nil, fmt.Errorf("cannot receive the frames of %s: %w", name, err)
	}
	return f, nil
}

// setUp receives frames for other addresses, too, but not those that this host sends.
func (f *Frames) setUp(link int) error {
	if err := unix.SetsockoptInt(f.guard.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return err
	}
	if err := f.bind(link, unix.ETH_P_ALL); err != nil {
		return err
	}
	return unix.SetsockoptPacketMreq(f.guard.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &unix.PacketMreq{Ifindex: int32(link), Type: unix.PACKET_MR_PROMISC})
}

// WriteBatch sends frames. What the kernel refuses is counted.
func (f *Frames) WriteBatch(frames [][]byte) error {
	if !f.guard.enter() {
		return ErrClosed
	}
	defer f.guard.leave()
	var nothing [vnetHdrLen]byte // nothing is left to the device
	for _, b := range frames {
		if len(b) == 0 {
			continue
		}
		pieces := []unix.Iovec{{Base: &nothing[0]}, {Base: &b[0]}}
		pieces[0].SetLen(len(nothing))
		pieces[1].SetLen(len(b))
		f.writeCalls.Add(1)
		if errno := writevNow(f.guard.fd, pieces); errno != 0 {
			f.refused(1, errno)
			continue
		}
		f.sent(1, len(b))
	}
	return nil
}

// Close makes a waiting ReadBatch return [ErrClosed].
func (f *Frames) Close() error {
	f.guard.close(f.wake)
	return nil
}
