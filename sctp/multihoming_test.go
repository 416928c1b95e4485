// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// quick are parameters for tests that wait for timeouts.
func quick() *Parameters {
	p := Defaults()
	p.RTOInitial, p.RTOMin, p.RTOMax = 100*time.Millisecond, 100*time.Millisecond, time.Second
	p.HeartbeatInterval = 200 * time.Millisecond
	p.MaxInitRetrans = 30 // a busy machine takes its time to set a network up
	return &p
}

// inOrder reads messages until it has read so many, and checks their numbers.
func inOrder(t testing.TB, c *Conn, from, to uint32) {
	t.Helper()
	buffer := make([]byte, 2048)
	for want := from; want < to; want++ {
		n, info, err := c.ReadMessage(buffer)
		if err != nil {
			t.Fatalf("message %d: %v", want, err)
		}
		if got := binary.BigEndian.Uint32(buffer); n != 1000 || got != want || info.PPID != 46 || !info.First || !info.Last {
			t.Fatalf("message %d has number %d and %d octets: %+v", want, got, n, info)
		}
	}
}

// sendNumbered sends messages with numbers, one each few milliseconds.
func sendNumbered(t testing.TB, c *Conn, from, to uint32, done chan<- error) {
	message := make([]byte, 1000)
	for i := from; i < to; i++ {
		binary.BigEndian.PutUint32(message, i)
		if err := c.WriteMessage(message, Message{PPID: 46}); err != nil {
			done <- err
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	done <- nil
}

// confirmed waits until all paths of an association are.
func confirmed(t testing.TB, c *Conn, paths int) Status {
	t.Helper()
	for range 6000 {
		s, n := c.Status(), 0
		for _, p := range s.Paths {
			if p.Confirmed && p.SRTT > 0 {
				n++
			}
		}
		if n >= paths {
			return s
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("not all of %d paths are confirmed: %+v", paths, c.Status())
	return Status{}
}

// confirmedBoth waits until so many paths of both ends are.
func confirmedBoth(t testing.TB, paths int, ends ...*Conn) {
	t.Helper()
	for _, c := range ends {
		confirmed(t, c, paths)
	}
}

// TestCut drops all of one network, silently, while data flows: the association moves to the other one, to a server
// that has one address, and nothing is lost. So it does behind a NAT, where the other one is added after the set-up.
func TestCut(t *testing.T) {
	for _, network := range []string{"sctp", "sctp+udp", "sctp+udp hidden"} {
		for family, to := range map[string]string{"IPv4": server4 + ":5000", "IPv6": "[" + server6 + "]:5000"} {
			t.Run(network+" "+family, func(t *testing.T) {
				t.Parallel()
				n := newTestNetwork(t)
				name := map[string]string{"IPv4": "4", "IPv6": "6"}[family]
				encapsulation, hidden := strings.CutSuffix(network[4:], " hidden")
				client, server := n.connect(&Config{Parameters: quick(), HideAddresses: hidden}, "sctp"+name+encapsulation, to)
				confirmed(t, client, 2)
				done := make(chan error, 1)
				go sendNumbered(t, client, 0, 600, done)
				inOrder(t, server, 0, 200)
				n.cut()
				inOrder(t, server, 200, 600)
				if err := <-done; err != nil {
					t.Error(err)
				}
				b := netip.MustParseAddr(map[string]string{"IPv4": clientB4, "IPv6": clientB6}[family])
				if s := client.Status(); s.Current.Local != b {
					t.Errorf("the client sends from %v, not from the network that is left", s.Current.Local)
				}
				if !heardFrom(server, b) {
					t.Errorf("the server has not heard of %v: %+v", b, server.Status())
				}
			})
		}
	}
}

// TestNetworkComesLate has a network of a client behind a NAT carry nothing until it has been given up for the association: that
// uses it all the same when it works, though nothing changes on the host.
func TestNetworkComesLate(t *testing.T) {
	t.Parallel()
	n := newTestNetwork(t)
	n.cut()
	client, _ := n.connect(&Config{Parameters: quick(), HideAddresses: true}, "sctp6+udp", "["+server6+"]:5000")
	expectEvent(t, client, ChangeRefused, clientA6)
	n.mend()
	confirmed(t, client, 2)
}

// TestBothFamilies has one association use IPv4 and IPv6 at once.
func TestBothFamilies(t *testing.T) {
	for _, network := range []string{"sctp", "sctp+udp"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			n := newTestNetwork(t)
			client, server := n.connect(&Config{Parameters: quick()}, network, server4+":5000")
			confirmedBoth(t, 4, client, server)
			done := make(chan error, 1)
			go sendNumbered(t, client, 0, 100, done)
			inOrder(t, server, 0, 100)
			<-done
			six := Pair{Local: netip.MustParseAddr(clientB6), Remote: netip.MustParseAddr(server6)}
			if err := client.SetPrimary(six); err != nil {
				t.Fatal(err)
			}
			go sendNumbered(t, client, 100, 200, done)
			inOrder(t, server, 100, 200)
			<-done
			if got := client.Status().Current; got != six {
				t.Errorf("data goes by %v", got)
			}
		})
	}
}

// TestAddressComesAndGoes gives the client an address of another network while data flows, and takes the first away:
// the endpoint follows, and the peer has the new address in place of the old one.
func TestAddressComesAndGoes(t *testing.T) {
	for name, hidden := range map[string]bool{"sctp6": false, "sctp6+udp": false, "sctp6+udp hidden": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newTestNetwork(t)
			b := clientB6 + "/64"
			n.client.Do(t, func() error { return address("b", b, netlink.AddrDel) })
			network, _, _ := strings.Cut(name, " ")
			client, server := n.connect(&Config{Parameters: quick(), HideAddresses: hidden}, network, "["+server6+"]:5000")
			confirmed(t, client, 1)
			done := make(chan error, 1)
			go sendNumbered(t, client, 0, 600, done)
			inOrder(t, server, 0, 100)
			n.client.Do(t, func() error { return address("b", b, netlink.AddrAdd) })
			expectEvent(t, client, ChangeDone, clientB6)
			inOrder(t, server, 100, 300)
			n.client.Do(t, func() error { return address("a", clientA6+"/64", netlink.AddrDel) })
			expectEvent(t, client, ChangeDone, clientA6)
			inOrder(t, server, 300, 600)
			if err := <-done; err != nil {
				t.Error(err)
			}
			want := []netip.Addr{netip.MustParseAddr(clientB6)}
			if got := server.RemoteAddr().(*Addr).Hosts; !slices.Equal(got, want) {
				t.Errorf("the server knows the client by %v", got)
			}
			if got := client.LocalAddr().(*Addr).Hosts; !slices.Equal(got, want) {
				t.Errorf("the client has %v", got)
			}
		})
	}
}

// TestFamilyComesLater gives two hosts that began with IPv4 alone an address of IPv6 each: whoever has it first, the association
// uses both.
func TestFamilyComesLater(t *testing.T) {
	for name, clientFirst := range map[string]bool{"client first": true, "server first": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newTestNetwork(t)
			client, server := func() error { return address("a", clientA6+"/64", netlink.AddrAdd) }, func() error { return address("s", server6+"/64", netlink.AddrAdd) }
			n.client.Do(t, func() error {
				return errors.Join(address("a", clientA6+"/64", netlink.AddrDel), address("b", clientB6+"/64", netlink.AddrDel))
			})
			n.server.Do(t, func() error { return address("s", server6+"/64", netlink.AddrDel) })
			here, there := n.connect(&Config{Parameters: quick()}, "sctp+udp", server4+":5000")
			confirmedBoth(t, 2, here, there)
			if clientFirst {
				n.client.Do(t, client)
				expectEvent(t, here, ChangeDone, clientA6)
				n.server.Do(t, server)
			} else {
				n.server.Do(t, server)
				expectEvent(t, there, ChangeDone, server6)
				n.client.Do(t, client)
			}
			confirmedBoth(t, 3, here, there)
		})
	}
}

// TestRemovedByHand takes an address out of an association that the host keeps: it stays out when another comes.
func TestRemovedByHand(t *testing.T) {
	t.Parallel()
	n := newTestNetwork(t)
	const comes = "2001:db8:a::2"
	client, server := n.connect(&Config{Parameters: quick()}, "sctp6+udp", "["+server6+"]:5000")
	confirmedBoth(t, 2, client, server)
	if err := client.RemoveAddress(netip.MustParseAddr(clientB6)); err != nil {
		t.Fatal(err)
	}
	expectEvent(t, client, ChangeDone, clientB6)
	n.client.Do(t, func() error { return address("a", comes+"/64", netlink.AddrAdd) })
	expectEvent(t, client, ChangeDone, comes)
	want := []netip.Addr{netip.MustParseAddr(clientA6), netip.MustParseAddr(comes)}
	if got := client.LocalAddr().(*Addr).Hosts; !slices.Equal(got, want) {
		t.Errorf("the client has %v", got)
	}
}

// expectEvent waits for an event that is about one of our addresses, passing over others.
func expectEvent(t testing.TB, c *Conn, kind EventKind, local string) {
	t.Helper()
	late := time.After(testutil.Patience)
	for {
		select {
		case e, open := <-c.Events():
			if !open {
				t.Fatalf("the association has ended before %v of %s", kind, local)
			}
			if e.Kind == kind && e.Pair.Local == netip.MustParseAddr(local) {
				return
			}
		case <-late:
			t.Fatalf("no %v of %s", kind, local)
		}
	}
}

// TestLinkDownAndUp takes the client's link down while data flows: the other one is used at once, long before a
// timeout. When the link is there again, so is the data.
func TestLinkDownAndUp(t *testing.T) {
	for _, network := range []string{"sctp4", "sctp4+udp"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			n := newTestNetwork(t)
			par := Defaults()
			par.RTOInitial, par.RTOMin, par.RTOMax, par.EarlyProbe = 20*time.Second, 20*time.Second, 20*time.Second, false
			client, server := n.connect(&Config{Parameters: &par}, network, server4+":5000")
			confirmedBoth(t, 2, client, server)
			sendsBy(t, client, clientA4)
			done := make(chan error, 1)
			go sendNumbered(t, client, 0, 600, done)
			inOrder(t, server, 0, 300)
			if err := server.SetDeadline(time.Now().Add(15 * time.Second)); err != nil { // below an RTO
				t.Fatal(err)
			}
			n.link("a", false)
			inOrder(t, server, 300, 600)
			if err := <-done; err != nil {
				t.Error(err)
			}
			sendsBy(t, client, clientB4)
			n.link("a", true)
			n.client.Do(t, func() error { return routes("a", 101, "192.0.2.254") })
			for range 1000 { // the first heartbeat may be sent before there is a route
				if err := client.Probe(Pair{Local: netip.MustParseAddr(clientA4), Remote: netip.MustParseAddr(server4)}); err != nil {
					t.Fatal(err)
				}
				if client.Status().Current.Local == netip.MustParseAddr(clientA4) {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			go sendNumbered(t, client, 600, 700, done)
			inOrder(t, server, 600, 700)
			<-done
			sendsBy(t, client, clientA4)
		})
	}
}

// TestNoLinkEvents has an association that goes by the RFCs alone stay on a link that is down, until timeouts tell; a program
// may have it leave.
func TestNoLinkEvents(t *testing.T) {
	t.Parallel()
	n := newTestNetwork(t)
	par := Defaults()
	par.RTOInitial, par.RTOMin, par.RTOMax, par.EarlyProbe, par.LinkEvents = 20*time.Second, 20*time.Second, 20*time.Second, false, false
	client, server := n.connect(&Config{Parameters: &par}, "sctp4+udp", server4+":5000")
	confirmedBoth(t, 2, client, server)
	n.link("a", false)
	local, e := netip.MustParseAddr(clientA4), client.endpoint
	for up := true; up; time.Sleep(time.Millisecond) {
		turn := e.begin()
		up = e.present[local]
		e.finish(turn)
	}
	sendsBy(t, client, clientA4)
	if err := client.LinkDown(local); err != nil {
		t.Error(err)
	}
	sendsBy(t, client, clientB4)
}

// sendsBy fails the test unless the association sends from an address.
func sendsBy(t testing.TB, c *Conn, local string) {
	t.Helper()
	if s := c.Status(); s.Current.Local != netip.MustParseAddr(local) {
		t.Errorf("data is sent from %v, not from %s", s.Current.Local, local)
	}
}

// TestDeprecatedAddress deprecates an address of the client: who uses it may go on, new associations do not begin with
// it.
func TestDeprecatedAddress(t *testing.T) {
	t.Parallel()
	n := newTestNetwork(t)
	config := &Config{Parameters: quick()}
	client, server := n.connect(config, "sctp6+udp", "["+server6+"]:5000")
	confirmed(t, client, 2)
	n.client.Do(t, func() error {
		link, err := netlink.LinkByName("b")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(clientB6 + "/64")
		if err != nil {
			return err
		}
		addr.Flags, addr.ValidLft, addr.PreferedLft = unix.IFA_F_NODAD, 3600, 0
		return netlink.AddrReplace(link, addr)
	})
	locals := func(c *Conn) (list []string) {
		for _, p := range c.Status().Paths {
			list = append(list, p.Local.String())
		}
		return list
	}
	n.client.Do(t, func() error {
		for range 1000 { // until the kernel has done it
			second, err := config.Dial(context.Background(), "sctp6+udp", "["+server6+"]:5000")
			if err != nil {
				return err
			}
			list := locals(second)
			second.Abort("test")
			if slices.Equal(list, []string{clientA6}) {
				return nil
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Error("new associations have the deprecated address")
		return nil
	})
	done := make(chan error, 1)
	go sendNumbered(t, client, 0, 50, done)
	inOrder(t, server, 0, 50)
	<-done
	if list := locals(client); !slices.Contains(list, clientB6) {
		t.Errorf("the first association has %v", list)
	}
}

// TestPeerTakesNoChanges takes an address away whose deletion the peer does not take: the association goes on by the
// other one.
func TestPeerTakesNoChanges(t *testing.T) {
	t.Parallel()
	n := newTestNetwork(t)
	par := quick()
	par.AddressChanges = false
	client, server := n.connect(&Config{Parameters: par}, "sctp6", "["+server6+"]:5000")
	confirmed(t, client, 2)
	done := make(chan error, 1)
	go sendNumbered(t, client, 0, 300, done)
	inOrder(t, server, 0, 100)
	n.client.Do(t, func() error { return address("a", clientA6+"/64", netlink.AddrDel) })
	inOrder(t, server, 100, 300)
	if err := <-done; err != nil {
		t.Error(err)
	}
	sendsBy(t, client, clientB6)
	if err := client.AddAddress(netip.MustParseAddr(clientA6)); !errors.Is(err, ErrNoChanges) {
		t.Errorf("an address is added: %v", err)
	}
}

// TestPathMTU has a link on the way carry less than those of the hosts: what the router says of it is the size that is
// used, and large messages arrive.
func TestPathMTU(t *testing.T) {
	const mtu = 1433
	for _, network := range []string{"sctp4", "sctp6", "sctp4+udp", "sctp6+udp"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			n := newTestNetwork(t)
			for _, host := range []*testutil.Netns{n.router, n.server} {
				host.Do(t, func() error {
					link, err := netlink.LinkByName("s")
					if err != nil {
						return err
					}
					return netlink.LinkSetMTU(link, mtu)
				})
			}
			to := server4 + ":5000"
			if strings.HasPrefix(network, "sctp6") {
				to = "[" + server6 + "]:5000"
			}
			client, server := n.connect(&Config{Parameters: quick()}, network, to)
			found := 0
			for range 6000 {
				if found = client.Status().Paths[0].MTU; found == mtu {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if found != mtu {
				t.Errorf("packets of %d octets are sent, not of %d", found, mtu)
			}
			sent := make([]byte, 100<<10)
			for i := range sent {
				sent[i] = byte(i % 253)
			}
			go client.Write(sent)
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("what has come is not what was sent: %v", err)
			}
		})
	}
}

// TestSeveralPrefixes gives one interface of the client a second prefix, and sends from each address: packets come from
// where they should.
func TestSeveralPrefixes(t *testing.T) {
	for _, network := range []string{"sctp6", "sctp6+udp"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			n := newTestNetwork(t)
			const second = "2001:db8:a2::1"
			n.router.Do(t, func() error { return address("a", "2001:db8:a2::fe/64", netlink.AddrAdd) })
			n.client.Do(t, func() error {
				return errors.Join(address("a", second+"/64", netlink.AddrAdd),
					sourceRoutes(103, "2001:db8:a2::/64"), routes("a", 103, "2001:db8:a2::fe"))
			})
			client, server := n.connect(&Config{Parameters: quick()}, network, "["+server6+"]:5000")
			confirmedBoth(t, 3, client, server)
			done, from := make(chan error, 1), uint32(0)
			for _, local := range []string{second, clientB6, clientA6} {
				path := Pair{Local: netip.MustParseAddr(local), Remote: netip.MustParseAddr(server6)}
				if err := client.SetPrimary(path); err != nil {
					t.Fatal(err)
				}
				if !heardFrom(server, path.Local) {
					t.Errorf("the server has not heard from %s", local)
				}
				go sendNumbered(t, client, from, from+20, done)
				inOrder(t, server, from, from+20)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				sendsBy(t, client, local)
				from += 20
			}
		})
	}
}

// heardFrom reports whether an address of the peer has answered.
func heardFrom(c *Conn, remote netip.Addr) bool {
	return slices.ContainsFunc(c.Status().Paths, func(p PathStatus) bool { return p.Remote == remote && p.SRTT > 0 })
}
