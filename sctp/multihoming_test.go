// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// quick are parameters for tests that wait for timeouts.
func quick() *Parameters {
	p := Defaults()
	p.RTOInitial, p.RTOMin, p.RTOMax = 100*time.Millisecond, 100*time.Millisecond, time.Second
	p.HeartbeatInterval = 200 * time.Millisecond
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
	for range 500 {
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

// TestCut drops all of one network, silently, while data flows: the association moves to the other one, to a server
// that has one address, and nothing is lost.
func TestCut(t *testing.T) {
	for _, network := range []string{"sctp", "sctp+udp"} {
		for family, to := range map[string]string{"IPv4": server4 + ":5000", "IPv6": "[" + server6 + "]:5000"} {
			t.Run(network+" "+family, func(t *testing.T) {
				n := newTestNetwork(t)
				name := map[string]string{"IPv4": "4", "IPv6": "6"}[family]
				client, server := n.connect(&Config{Parameters: quick()}, "sctp"+name+network[4:], to)
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
				heard := false
				for _, p := range server.Status().Paths {
					heard = heard || p.Remote == b && p.Confirmed && p.SRTT > 0
				}
				if !heard {
					t.Errorf("the server has not heard of %v: %+v", b, server.Status())
				}
			})
		}
	}
}

// TestBothFamilies has one association use IPv4 and IPv6 at once.
func TestBothFamilies(t *testing.T) {
	for _, network := range []string{"sctp", "sctp+udp"} {
		t.Run(network, func(t *testing.T) {
			n := newTestNetwork(t)
			client, server := n.connect(&Config{Parameters: quick()}, network, server4+":5000")
			confirmed(t, client, 4)
			confirmed(t, server, 4)
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
	for _, network := range []string{"sctp6", "sctp6+udp"} {
		t.Run(network, func(t *testing.T) {
			n := newTestNetwork(t)
			b := clientB6 + "/64"
			n.client.Do(t, func() error { return address("b", b, netlink.AddrDel) })
			client, server := n.connect(&Config{Parameters: quick()}, network, "["+server6+"]:5000")
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
		})
	}
}

// expectEvent waits for an event that is about one of our addresses, passing over others.
func expectEvent(t testing.TB, c *Conn, kind EventKind, local string) {
	t.Helper()
	late := time.After(10 * time.Second)
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

// TestLinkDown takes the client's link down while data flows: the other one is used at once, long before a timeout.
func TestLinkDown(t *testing.T) {
	for _, network := range []string{"sctp4", "sctp6+udp"} {
		t.Run(network, func(t *testing.T) {
			n := newTestNetwork(t)
			par := Defaults()
			par.RTOInitial, par.RTOMin, par.RTOMax, par.EarlyProbe = 20*time.Second, 20*time.Second, 20*time.Second, false
			to, b := server4+":5000", clientB4
			if network == "sctp6+udp" {
				to, b = "["+server6+"]:5000", clientB6
			}
			client, server := n.connect(&Config{Parameters: &par}, network, to)
			confirmed(t, client, 1)
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
			if s := client.Status(); s.Current.Local != netip.MustParseAddr(b) {
				t.Errorf("the client sends from %v", s.Current.Local)
			}
		})
	}
}
