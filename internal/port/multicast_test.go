// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Two programs of one host hear a group on the link that each has joined, and
// nothing that is sent to the port but not to the group.
func TestMulticast(t *testing.T) {
	h := inNamespace(t)
	link := func(name, address string) int {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-end"}
		if err := netlink.LinkAdd(veth); err != nil {
			t.Fatal(err)
		}
		for _, end := range []string{name, name + "-end"} {
			if err := h.SetUp(end); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.AddAddr(name, netip.MustParsePrefix(address)); err != nil {
			t.Fatal(err)
		}
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return l.Attrs().Index
	}
	near, far := link("near", "192.168.1.2/24"), link("far", "192.168.2.2/24")
	const group = "224.0.0.253:3544"
	one, two, sender := listen(t, group), listen(t, group), listen(t, "0.0.0.0:0")
	if err := one.JoinMulticast(near); err != nil {
		t.Fatal(err)
	}
	if err := two.JoinMulticast(far); err != nil {
		t.Fatal(err)
	}
	say := func(to, text string) {
		t.Helper()
		d := packet.Datagram{To: netip.MustParseAddrPort(to), Payload: []byte(text)}
		if err := sender.WriteBatch([]packet.Datagram{d}); err != nil {
			t.Fatal(err)
		}
	}
	sendBy := func(link int) {
		t.Helper()
		if err := sender.SendMulticastBy(link); err != nil {
			t.Fatal(err)
		}
	}
	sendBy(near)
	say("192.168.1.2:3544", "not to the group")
	say(group, "near")
	sendBy(far)
	say(group, "far")
	if err := two.LeaveMulticast(far); err != nil {
		t.Fatal(err)
	}
	say(group, "nobody")
	if err := two.JoinMulticast(near); err != nil {
		t.Fatal(err)
	}
	sendBy(near)
	say(group, "both")
	for _, want := range []struct {
		conn  *UDP
		texts []string
	}{{one, []string{"near", "both"}}, {two, []string{"far", "both"}}} {
		for _, text := range want.texts {
			if got, _ := receive(t, want.conn, 1, 1); string(got[0]) != text {
				t.Errorf("heard %q, want %q", got[0], text)
			}
		}
	}
	if err := one.JoinMulticast(99); err == nil {
		t.Error("joined on an interface that does not exist")
	}
}
