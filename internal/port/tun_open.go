// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
)

const tunDevice = "/dev/net/tun"

// TUNConfig says how to open a TUN device.
type TUNConfig struct {
	// Name of the device. Empty or with %d: the kernel chooses.
	Name string
	// MTU in bytes; 0 means 1280, the Teredo MTU (RFC 4380 section 5.1.2). It
	// sizes the buffers and is set on the device.
	MTU int
	// Forwarding is for roles whose packets the kernel forwards between the
	// network and the TUN. The kernel takes one hop off on the way in and one
	// on the way out, and the engine takes its own. An engine sees the packet
	// as it was on the wire: so one hop is added on each read and write, never
	// beyond 255.
	Forwarding bool
	// Offload lets the host's stack hand over many packets of a TCP or UDP
	// flow in one piece, and hands them to it in one piece. Packets are the
	// same either way; the cost per packet of a bulk transfer is less.
	Offload bool
	// Persistent makes the device outlive the process, with its routes, until
	// [TUN.Discard]: the next process goes on with it. It does not change a device
	// that someone else has made. For a device with a given name.
	Persistent bool
	// Lasting makes readers wait when someone deletes the device, until [ReopenTUN] makes
	// it again. Otherwise to read is an error then.
	Lasting bool
}

// OpenTUN creates the device in the calling thread's network namespace and
// sets its MTU. It is left down; see [Host.SetUp].
func OpenTUN(cfg TUNConfig) (*TUN, error) { return newTUN(cfg, false) }

// OpenTUNQueues is OpenTUN for a device with n queues, among which the kernel
// divides what the host sends by flow. Each queue is used as a device of its own;
// the device goes with the last.
func OpenTUNQueues(cfg TUNConfig, n int) (queues []*TUN, err error) {
	defer func() {
		if err != nil {
			for _, t := range queues {
				_ = t.Close()
			}
			queues = nil
		}
	}()
	before, err := lookBefore(&cfg)
	if err != nil {
		return nil, err
	}
	for len(queues) < max(n, 1) {
		// The next process may want more queues than this one.
		t, err := newTUN(cfg, n > 1 || cfg.Persistent)
		if err != nil {
			return queues, err
		}
		cfg.Name = t.name
		queues = append(queues, t)
	}
	if before == nobodys && cfg.Persistent {
		if err := queues[0].persist(); err != nil {
			return queues, err
		}
	}
	for _, t := range queues {
		t.persistent = cfg.Persistent && before != elsewhere
	}
	return queues, nil
}

func newTUN(cfg TUNConfig, queues bool) (*TUN, error) {
	if cfg.MTU == 0 {
		cfg.MTU = 1280
	}
	if cfg.MTU < 1280 || cfg.MTU > 65535 {
		return nil, fmt.Errorf("MTU %d for the TUN device is out of range; IPv6 needs 1280 to 65535", cfg.MTU)
	}
	if len(cfg.Name) >= unix.IFNAMSIZ {
		return nil, fmt.Errorf("TUN device name %q is too long; use at most 15 characters", cfg.Name)
	}
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, tunError(cfg.Name, err)
	}
	t := &TUN{guard: guard{fd: fd}, mtu: cfg.MTU, forwarding: cfg.Forwarding, offload: cfg.Offload, lasting: cfg.Lasting, queues: queues}
	t.out.make = func() *tunWriter { return new(tunWriter) }
	if err := t.setUp(cfg.Name); err != nil {
		t.guard.release()
		return nil, err
	}
	return t, nil
}

// setUp makes the device and prepares the buffers.
func (t *TUN) setUp(name string) (err error) {
	if t.name, t.index, err = t.attach(t.guard.fd, name); err != nil {
		return err
	}
	if t.guard.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("cannot create an event descriptor: %w", err)
	}
	t.poll = [2]unix.PollFd{
		{Fd: int32(t.guard.fd), Events: unix.POLLIN},
		{Fd: int32(t.guard.event), Events: unix.POLLIN},
	}
	if t.offload {
		t.raw = make([]byte, vnetHdrLen+packet.IPv6HeaderLen+maxTrain)
	}
	// One byte over the MTU shows a packet that was cut short.
	size := t.mtu + 1
	stride := (size + 127) &^ 63
	slab := make([]byte, MaxBatch*stride)
	for i := range t.bufs {
		t.bufs[i] = slab[i*stride : i*stride+size : i*stride+size]
	}
	return nil
}

// attach makes the device by a descriptor, sets its MTU and switches off its link-local
// address and its queueing discipline.
func (t *TUN) attach(fd int, as string) (name string, index int, err error) {
	ifr, err := unix.NewIfreq(as)
	if err != nil {
		return "", 0, fmt.Errorf("TUN device name %q cannot be used: %w", as, err)
	}
	flags := uint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if t.offload {
		flags |= unix.IFF_VNET_HDR
	}
	if t.queues {
		flags |= unix.IFF_MULTI_QUEUE
	}
	ifr.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return "", 0, tunError(as, err)
	}
	if t.offload {
		if err := t.setOffload(fd); err != nil {
			return "", 0, tunError(as, err)
		}
	}
	name = ifr.Name()
	if index, err = configureDevice(name, t.mtu); err != nil {
		return "", 0, fmt.Errorf("cannot configure TUN device %s: %w", name, err)
	}
	if err := noLinkLocal(index); err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EAFNOSUPPORT) {
		return "", 0, fmt.Errorf("cannot switch off link-local addresses on %s: %w", name, err)
	}
	if err := noQdisc(index); err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EOPNOTSUPP) {
		return "", 0, fmt.Errorf("cannot switch off the queueing discipline of %s: %w", name, err)
	}
	return name, index, nil
}

// setOffload says what the reader can split: TCP, and UDP where the kernel
// (6.2 or later) segments it for a TUN.
func (t *TUN) setOffload(fd int) error {
	const tcp = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	if unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tcp|unix.TUN_F_USO4|unix.TUN_F_USO6) == nil {
		return nil
	}
	t.noUDP.Store(true)
	return unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tcp)
}

// txQueueLen is how many packets may wait for each reader: as a UDP socket's
// buffer, what some 60 ms of 300,000 packets a second bring while a busy machine
// lets the reader wait. The kernel's own choice for a TUN device is 500.
const txQueueLen = 16384

// configureDevice sets MTU and queue length by ioctl, since that needs no netlink
// socket, and returns the interface index.
func configureDevice(name string, mtu int) (int, error) {
	s, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	ifr.SetUint32(uint32(mtu))
	if err := unix.IoctlIfreq(s, unix.SIOCSIFMTU, ifr); err != nil {
		return 0, err
	}
	ifr.SetUint32(txQueueLen)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFTXQLEN, ifr); err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFINDEX, ifr); err != nil {
		return 0, err
	}
	return int(ifr.Uint32()), nil
}

// addrGenModeNone is IN6_ADDR_GEN_MODE_NONE of <linux/if_link.h>.
const addrGenModeNone = 1

// noLinkLocal keeps the kernel from giving the device a link-local address, and
// so from sending router solicitations that no one on a TUN answers.
func noLinkLocal(index int) error {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	spec.AddRtAttr(unix.AF_INET6, nil).AddRtAttr(unix.IFLA_INET6_ADDR_GEN_MODE, []byte{addrGenModeNone})
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	req.AddData(msg)
	req.AddData(spec)
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// noQdisc has the kernel make no queueing discipline when the device is set up, unless
// someone has chosen one (EEXIST). A TUN device takes each packet at once, so nothing waits
// in front of the readers' queues; yet the default is one for each of the 256 queues that a
// device with several may get, with room for three times txQueueLen packets: 100 MB of
// memory, and as long to start as it takes to clear it.
func noQdisc(index int) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	// With a handle of its own: without one, later kernels replace what is there.
	req.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(index), Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)})
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("noqueue")))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// tunError says in words why a TUN device cannot be had.
func tunError(name string, err error) error {
	if name == "" {
		name = "tun"
	}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%s is missing: load the module with `modprobe tun`, or give the container this device: %w", tunDevice, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("no permission to create TUN device %s: run as root or with CAP_NET_ADMIN: %w", name, err)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("TUN device %s is in use by another program: stop it or choose another name: %w", name, err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EEXIST):
		return fmt.Errorf("the name %s belongs to an interface of another kind: choose another name: %w", name, err)
	}
	return fmt.Errorf("cannot create TUN device %s: %w", name, err)
}
