// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
)

// radio is the link to the terminal, by the same name at both ends.
const radio = "radio"

// wire lays the link between the SGSN's namespace and the terminal's.
func (w *world) wire(t *testing.T) {
	t.Helper()
	w.ue.AddressesAtOnce(t)
	w.core.Do(t, func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: radio}, PeerName: radio, PeerNamespace: netlink.NsFd(w.ue.Handle()),
		})
	})
	w.ue.Do(t, func() error {
		l, err := netlink.LinkByName(radio)
		if err != nil {
			return err
		}
		return errors.Join(os.WriteFile("/proc/sys/net/ipv6/conf/"+radio+"/accept_ra", []byte("2"), 0), netlink.LinkSetUp(l))
	})
}

// TestWire has the kernel's own stack be the terminal, at the far end of a link: it gets what it
// needs from advertisements and by DHCP, and large pieces pass that it leaves to the device to cut.
func TestWire(t *testing.T) {
	configtest.InEffect(t, "sgsn", "link")
	t.Parallel()
	w := newWorld(t)
	w.wire(t)
	lines := fmt.Sprintf("[[sgsn]]\nlocal = %q\nggsn = %q\nlink = %q\nrestart_counter = \"clock\"\n", ours, theirs, radio)
	w.start(t, *configtest.One(t, Role.Section, lines+ue(1, "v4v6")).(*Settings))
	w.echoes(t, w.autoconfigured(t), site6, 1200)
	mine, router := w.dhcp(t)
	if mine != ue4 {
		t.Errorf("DHCP gives %s", mine)
	}
	w.ue.Do(t, func() error {
		l, err := netlink.LinkByName(radio)
		if err != nil {
			return err
		}
		return errors.Join(
			netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: mine.AsSlice(), Mask: net.CIDRMask(30, 32)}}),
			netlink.RouteAdd(&netlink.Route{Gw: router.AsSlice()}))
	})
	w.echoes(t, mine, site4, 1200)
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	w.core.Do(t, func() error {
		_, err := netlink.LinkByName(radio)
		return err
	})
}

// autoconfigured waits for the address that the stack makes of an advertisement.
func (w *world) autoconfigured(t *testing.T) (a netip.Addr) {
	t.Helper()
	network := netip.MustParsePrefix("2001:db8:6:1::/64")
	for end := time.Now().Add(patience); !a.IsValid(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the stack makes no address")
		}
		w.ue.Do(t, func() error {
			l, err := netlink.LinkByName(radio)
			if err != nil {
				return err
			}
			list, err := netlink.AddrList(l, netlink.FAMILY_V6)
			for _, one := range list {
				if got, _ := netip.AddrFromSlice(one.IP); network.Contains(got) && one.Flags&unix.IFA_F_TENTATIVE == 0 {
					a = got
				}
			}
			return err
		})
	}
	return a
}

// dhcp asks for an address, and returns it with the router.
func (w *world) dhcp(t *testing.T) (mine, router netip.Addr) {
	t.Helper()
	w.ue.Do(t, func() error {
		listen := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			failed := c.Control(func(fd uintptr) {
				err = errors.Join(unix.BindToDevice(int(fd), radio), unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1))
			})
			return errors.Join(failed, err)
		}}
		conn, err := listen.ListenPacket(context.Background(), "udp4", "0.0.0.0:68")
		if err != nil {
			return err
		}
		defer conn.Close()
		ask := func(kind byte, wanted []byte) ([]byte, error) {
			b := make([]byte, 240, 300)
			b[0], b[1], b[2] = 1, 1, 6
			copy(b[4:], "isth")
			b[10] = 0x80 // answer to all
			binary.BigEndian.PutUint32(b[236:], 0x63825363)
			b = append(append(append(b, 53, 1, kind), wanted...), 255)
			if _, err := conn.WriteTo(b, &net.UDPAddr{IP: net.IPv4bcast, Port: 67}); err != nil {
				return nil, err
			}
			answer := make([]byte, 1500)
			if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
				return nil, err
			}
			n, _, err := conn.ReadFrom(answer)
			return answer[:max(n, 0)], err
		}
		offer, err := ask(1, nil)
		if err != nil {
			return err
		}
		ack, err := ask(3, append([]byte{50, 4}, offer[16:20]...))
		if err != nil {
			return err
		}
		mine = netip.AddrFrom4([4]byte(ack[16:20]))
		for b := ack[240:]; len(b) > 2 && b[0] != 255; b = b[2+b[1]:] {
			if b[0] == 3 {
				router = netip.AddrFrom4([4]byte(b[2:6]))
			}
		}
		return nil
	})
	return mine, router
}
