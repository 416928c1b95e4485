// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/role"
)

// Finding is something about this machine that stands in the way of a configuration.
type Finding = role.Finding

// machine is what the checks look at; tests bend it.
type machine struct {
	tun    string                                     // the TUN device node
	proc   string                                     // where sysctl values are
	caps   func() (uint64, error)                     // effective capabilities, as bits
	driver func(name string) (driver string, ok bool) // of an interface; false if there is none
	active func(name string) bool                     // of a TUN device: a program holds it open
}

// Examine looks whether this machine can run the configuration, and changes
// nothing. Sockets are bound for a moment to see whether they are free.
func Examine(roles role.List, c *config.Config) []Finding { return thisMachine().examine(roles, c) }

// ExamineFiles looks at the files that keys name.
func ExamineFiles(roles role.List, c *config.Config) (found []Finding) {
	for _, i := range c.Instances {
		found = append(found, roles.Files(i)...)
	}
	return found
}

// ExamineWay looks whether packets pass through this machine. It keeps nothing from starting:
// links, routes and switches may come later, and go while it runs.
func ExamineWay(roles role.List, c *config.Config) (found []Finding) {
	for _, i := range c.Instances {
		found = append(found, roles.Way(i)...)
	}
	return found
}

func thisMachine() machine {
	return machine{
		tun: "/dev/net/tun", proc: "/proc/sys", caps: capabilities, driver: deviceDriver, active: host.DeviceOpen,
	}
}

func (m machine) examine(roles role.List, c *config.Config) []Finding {
	var found []Finding
	report := func(err error) {
		for _, one := range role.Problems(err) {
			if !slices.Contains(found, one) { // of an address that several sockets have
				found = append(found, one)
			}
		}
	}
	claims := claimsOf(c)
	if len(claims.devices) > 0 {
		err := m.privilege(unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "create network devices and routes")
		if err == nil {
			// Who lacks the right would read of the same lack twice.
			err = m.tunDevice()
		}
		report(err)
	}
	for _, r := range claims.rights {
		report(m.privilege(r.Capability, r.Name, r.Purpose))
	}
	if len(c.Instances) > 0 {
		report(m.ipv6())
	}
	for _, name := range claims.devices {
		report(m.device(name))
	}
	for _, at := range claims.sockets {
		report(udpFree(at))
	}
	for _, i := range c.Instances {
		found = append(found, roles.Examine(i)...)
	}
	report(m.announce(c))
	if at := c.Control; at.Socket != "" {
		report(control.Usable(at.Socket, at.Group))
	}
	if at := c.Metrics.Listen; at.IsValid() {
		listener, err := listenMetrics(at)
		report(err)
		if err == nil {
			_ = listener.Close()
		}
	}
	return found
}

// claimed is what instances need of the machine.
type claimed struct {
	devices []string
	rights  []config.Right  // each once
	sockets []config.Socket // of UDP, over IPv4
}

func claimsOf(c *config.Config) (all claimed) {
	for _, i := range c.Instances {
		for _, claim := range i.Claims() {
			switch claim := claim.(type) {
			case config.Device:
				all.devices = append(all.devices, claim.Name)
			case config.Right:
				if !slices.Contains(all.rights, claim) {
					all.rights = append(all.rights, claim)
				}
			case config.Socket:
				if claim.Protocol == "UDP" && claim.At.Addr().Is4() && claim.At.Port() != 0 {
					all.sockets = append(all.sockets, claim)
				}
			}
		}
	}
	return all
}

// privilege checks that this process has a capability.
func (m machine) privilege(capability uint, name, purpose string) error {
	caps, err := m.caps()
	if err != nil {
		return fmt.Errorf("cannot read the capabilities of this process: %w", err)
	}
	if caps&(1<<capability) == 0 {
		return fmt.Errorf("this user may not %s: run isthmus as root (sudo), or give it the capability %s", purpose, name)
	}
	return nil
}

// capabilities returns the effective capabilities of this process as bits.
func capabilities() (uint64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, err
	}
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), nil
}

// tunDevice opens the TUN device node, which by itself creates nothing.
func (m machine) tunDevice() error {
	file, err := os.OpenFile(m.tun, os.O_RDWR, 0)
	switch {
	case err == nil:
		return file.Close()
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO):
		return fmt.Errorf("there is no %s on this machine: load the kernel module (modprobe tun), or hand the device to the container", m.tun)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("this user may not open %s: run isthmus as root (sudo), or allow the device in the container", m.tun)
	}
	return fmt.Errorf("cannot open %s: %w", m.tun, err)
}

// ipv6 checks that new devices get IPv6.
func (m machine) ipv6() error {
	for _, scope := range []string{"all", "default"} {
		switch m.read("net/ipv6/conf/" + scope + "/disable_ipv6") {
		case "1":
			return fmt.Errorf("IPv6 is switched off on this host: run sysctl -w net.ipv6.conf.%s.disable_ipv6=0", scope)
		case "":
			return errors.New("the kernel of this host has no IPv6: load the module (modprobe ipv6), or start it without ipv6.disable=1")
		}
	}
	return nil
}

// read returns a kernel setting, empty if there is none.
func (m machine) read(name string) string {
	text, err := os.ReadFile(filepath.Join(m.proc, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// device checks that the name of a TUN device is free, or is that of a TUN
// device that someone made for us.
func (m machine) device(name string) error {
	switch driver, exists := m.driver(name); {
	case exists && driver != "tun":
		return fmt.Errorf("the interface %s exists already and is no TUN device: choose another interface = \"…\"", name)
	case exists && m.active(name):
		return fmt.Errorf("the TUN device %s is in use by another program: stop it, or choose another interface = \"…\"", name)
	}
	return nil
}

// deviceDriver asks the kernel who drives an interface. It asks by a socket, since
// /sys may show the interfaces of another network namespace.
func deviceDriver(name string) (string, bool) {
	if _, err := net.InterfaceByName(name); err != nil {
		return "", false
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", true
	}
	defer unix.Close(socket)
	info, err := unix.IoctlGetEthtoolDrvinfo(socket, name)
	if err != nil {
		return "", true
	}
	return unix.ByteSliceToString(info.Driver[:]), true
}

// udpFree binds an IPv4 UDP socket for a moment.
func udpFree(claim config.Socket) error {
	socket, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(claim.At))
	if err == nil {
		return socket.Close()
	}
	return explainBind("UDP", "-u", claim.At, claim.Fixed, err)
}

// tcpFree listens on a TCP socket for a moment. One of IPv6 is of that family alone, as a BGP
// speaker has it.
func tcpFree(claim config.Socket) error {
	network := "tcp6"
	if claim.At.Addr().Is4() {
		network = "tcp4"
	}
	listener, err := net.Listen(network, claim.At.String())
	if err == nil {
		return listener.Close()
	}
	return explainBind("TCP", "-t", claim.At, claim.Fixed, err)
}

// listenMetrics opens the metrics endpoint.
func listenMetrics(at netip.AddrPort) (net.Listener, error) {
	network := "tcp"
	if at.Addr().Is4() { // or 0.0.0.0 would stand for IPv6, too
		network = "tcp4"
	}
	var settings net.ListenConfig
	listener, err := settings.Listen(context.Background(), network, at.String())
	if err != nil {
		return nil, explainBind("TCP", "-t", at, false, err)
	}
	return netutil.LimitListener(listener, maxScrapes), nil
}

// maxScrapes bounds the connections to the metrics at once, each of which takes memory; more
// wait for one to end.
const maxScrapes = 64

// explainBind says in one sentence why an address and port cannot be bound;
// option makes ss show the sockets of the protocol. No key changes a fixed port.
func explainBind(protocol, option string, at netip.AddrPort, fixed bool, err error) error {
	another := "port"
	if fixed {
		another = "address"
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s port %d on %s is in use by another program: stop it (ss -lnp %s shows it), or choose another %s",
			protocol, at.Port(), at.Addr(), option, another)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s is not an address of this host: write one that ip address shows, or add it to an interface", at.Addr())
	case errors.Is(err, fs.ErrPermission) && fixed:
		return fmt.Errorf("this user may not use %s port %d: run isthmus as root (sudo), or give it the capability CAP_NET_BIND_SERVICE", protocol, at.Port())
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("this user may not use %s port %d: run isthmus as root (sudo), or choose a port above 1023", protocol, at.Port())
	}
	return fmt.Errorf("cannot use %s %s: %w", protocol, at, err)
}
