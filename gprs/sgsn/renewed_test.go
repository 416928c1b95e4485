// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// TestServersWithdrawn: a name server that an advertisement ends is used no more, also where
// protocol configuration options or DHCPv6 have told it; those told anew by an update take the
// place of those before, in their family.
func TestServersWithdrawn(t *testing.T) {
	four, gone, stays, anew := netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("2001:db8::53"), netip.MustParseAddr("2001:db8::54"), netip.MustParseAddr("2001:db8::55")
	w := newWorld(t, Settings{})
	key, err := w.e.Attach(attachment(gtp.V1, gtp.PDPTypeIPv4v6), w.now, &w.out)
	w.order(err)
	told := func(servers ...netip.Addr) gtp.Optional[gtp.PCO] {
		p := gtp.NewPCO(nil)
		for _, a := range servers {
			kind := gtp.ContainerDNS6
			if a.Is4() {
				kind = gtp.ContainerDNS4
			}
			p, _ = p.Add(kind, a.AsSlice())
		}
		return gtp.Some(p)
	}
	w.accept(func(m *gtp.CreateResponse) { m.PCO = told(four, gone, stays) })
	w.e.contexts[key].session.six.dhcp.servers = []netip.Addr{gone, anew}
	want := func(what string, list ...netip.Addr) {
		t.Helper()
		if got := w.info(key).DNS; !slices.Equal(got, list) {
			t.Errorf("%s: %v", what, got)
		}
	}
	r := defaultRA()
	r.servers = []netip.Addr{stays}
	raw := gone.As16()
	r.more = append(binary.BigEndian.AppendUint32([]byte{packet.NDResolvers, 3, 0, 0}, 0), raw[:]...)
	w.advertise(key, r)
	w.event(Configured)
	want("withdrawn", four, stays, anew)
	w.clear()
	w.advertise(key, r)
	if len(w.out.Events) != 0 {
		t.Errorf("told twice: %+v", w.out.Events)
	}

	i := w.info(key)
	h := gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: 5, TEID: i.TEIDControl}
	w.say(Socket(0, PlaneControl), h, &gtp.UpdateRequest{NSAPI: 5, PCO: told(anew)})
	w.event(Changed)
	want("told anew", anew, four, stays) // this one by the advertisement
}
