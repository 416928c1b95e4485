// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/sip/registrar"
)

// TestAllAddressesOfEachFamily: 0.0.0.0 and :: take no port from each other.
func TestAllAddressesOfEachFamily(t *testing.T) {
	for _, transport := range []string{"UDP", "TCP"} {
		one, err := openSockets([]registrar.Listener{{Transport: transport, Address: netip.MustParseAddrPort("[::]:0")}})
		if err != nil {
			t.Fatal(err)
		}
		defer one.close()
		var at netip.AddrPort
		if transport == "UDP" {
			at = one.udp[0].LocalAddr()
		} else {
			at = one.streams[0].Addr().(*net.TCPAddr).AddrPort()
		}
		other, err := openSockets([]registrar.Listener{{Transport: transport, Address: netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port())}})
		if err != nil {
			t.Errorf("%s: %v", transport, err)
		}
		other.close()
	}
}

// TestAddressComesAndGoes: an address of the registrar that leaves the host stands in the status
// until it is back.
func TestAddressComesAndGoes(t *testing.T) {
	w := newWorld(t)
	s := w.serve("")
	for _, step := range []struct {
		change func(netlink.Link, *netlink.Addr) error
		state  string
		gone   []netip.Addr
	}{{netlink.AddrDel, "address_missing", []netip.Addr{netip.MustParseAddr(server4)}}, {netlink.AddrAdd, "serving", nil}} {
		w.ns.Do(t, func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			a, err := netlink.ParseAddr(server4 + "/32")
			if err != nil {
				return err
			}
			return step.change(lo, a)
		})
		for end := time.Now().Add(testutil.Patience); ; time.Sleep(time.Millisecond) {
			st := s.Status().(Status)
			if st.State == step.state && slices.Equal(st.MissingAddresses, step.gone) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("status %+v, want %s and %v", st, step.state, step.gone)
			}
		}
	}
}
