// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var farEnd = netip.MustParseAddr("2001:db8::2")

func newWiredPair(t *testing.T, c WireConfig) (a, b *Node, w *Wire) {
	t.Helper()
	l, _ := newLab(t)
	a, b = l.Node("a"), l.Node("b")
	w, err := l.Wire(a, "eth0", b, "eth0", c)
	if err != nil {
		t.Fatal(err)
	}
	a.Addr("eth0", "2001:db8::1/64")
	b.Addr("eth0", "2001:db8::2/64")
	mustDraw(t, l)
	return a, b, w
}

func TestWireDelaysBothWays(t *testing.T) {
	a, _, w := newWiredPair(t, WireConfig{AtoB: LaneConfig{Delay: 20 * time.Millisecond}, BtoA: LaneConfig{Delay: 10 * time.Millisecond}})
	r, err := a.Ping(t.Context(), Ping{To: farEnd, Count: 5, Interval: 10 * time.Millisecond, Timeout: mustArrive})
	if err != nil || r.Lost() != 0 {
		t.Fatalf("%d lost, %v", r.Lost(), err)
	}
	for i, rtt := range r.RTT {
		// A write may take less than the last ones did, by which it begins earlier.
		if rtt < 30*time.Millisecond-2*time.Duration(maxCost) {
			t.Errorf("ping %d took %v, less than the delay", i, rtt)
		}
	}
	if c := w.Counters(BtoA); c.Sent < 5 || c.Packets < c.Sent {
		t.Errorf("counters are %+v", c)
	}
}

// However unevenly a busy machine sends, a wire carries no more than its rate
// allows, and in order. The published loss is tested on the lane, in virtual
// time.
func TestWireKeepsRateAndOrder(t *testing.T) {
	const rate, queue, size, headers = 384e3, 8 << 10, 1000, 48
	a, b, w := newWiredPair(t, WireConfig{AtoB: LaneConfig{Rate: rate, Queue: queue, Delay: 20 * time.Millisecond, Jitter: 15 * time.Millisecond}})
	start := time.Now()
	r, err := Datagrams(t.Context(), DatagramConfig{From: a, To: b, Addr: farEnd, Size: size, Rate: 140, Count: 210, Timeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	most := rate/8*time.Since(start).Seconds() + queue
	if carried := float64(r.Received * (size + headers)); carried > most || r.Received == 0 {
		t.Errorf("%.0f bytes came through, at most %.0f can", carried, most)
	}
	if w.Counters(AtoB).QueueFull == 0 {
		t.Error("three times the rate fills no queue")
	}
	if r.Reordered != 0 {
		t.Errorf("%d datagrams out of order", r.Reordered)
	}
}

func TestWireCarriesTCPUnchanged(t *testing.T) {
	a, b, _ := newWiredPair(t, WireConfig{AtoB: LaneConfig{Rate: 50e6, Loss: 0.001}, BtoA: LaneConfig{Rate: 50e6}, Seed: 7})
	r, err := Transfer(t.Context(), TransferConfig{Server: b, Addr: farEnd, Client: a, Bytes: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	// From the start: what comes while this process sleeps behind the connection has
	// no duration.
	r.Duration += r.Connect
	if !r.Intact || r.Goodput() > 50e6 {
		t.Errorf("unexpected result %+v, goodput %.1f Mbit/s", r, r.Goodput()/1e6)
	}
}

func TestWireCutAndRestore(t *testing.T) {
	a, b, w := newWiredPair(t, WireConfig{})
	lost := func(from *Node, to string, want int) int {
		t.Helper()
		p := Ping{To: netip.MustParseAddr(to), Count: 2, Interval: time.Millisecond, Timeout: mustArrive}
		if want > 0 {
			p.Timeout = 300 * time.Millisecond
		}
		r, err := from.Ping(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		return r.Lost()
	}
	if n := lost(a, "2001:db8::2", 0); n != 0 {
		t.Fatalf("%d lost before the cut; %+v %+v", n, w.Counters(AtoB), w.Counters(BtoA))
	}
	w.Cut()
	if n := lost(a, "2001:db8::2", 2); n != 2 {
		t.Errorf("%d of 2 lost while cut", n)
	}
	w.Restore()
	if n := lost(a, "2001:db8::2", 0); n != 0 {
		t.Errorf("%d lost after restore", n)
	}
	w.Cut(BtoA)
	before := w.Counters(AtoB).Sent
	if n := lost(a, "2001:db8::2", 2); n != 2 {
		t.Errorf("%d of 2 lost with the way back cut", n)
	}
	for end := time.Now().Add(mustArrive); w.Counters(AtoB).Sent < before+2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the way there is cut too")
		}
	}
	w.Restore(BtoA)
	if n := lost(b, "2001:db8::1", 0); n != 0 {
		t.Errorf("%d lost after the second restore", n)
	}
}

// A cut drops what is under way: it does not come out after the restore.
func TestWireCutDropsWhatIsUnderWay(t *testing.T) {
	const delay = 500 * time.Millisecond
	a, _, w := newWiredPair(t, WireConfig{AtoB: LaneConfig{Delay: delay}})
	if r, err := a.Ping(t.Context(), Ping{To: farEnd, Timeout: mustArrive}); err != nil || r.Lost() != 0 {
		t.Fatalf("warm-up: %v, %d lost", err, r.Lost())
	}
	// A test that sleeps too long cuts behind the ping's arrival, and tries again.
	for range 20 {
		if cut, received := cutUnderWay(t, a, w, 2*delay); cut {
			if received != 0 {
				t.Error("a packet under way survived the cut")
			}
			return
		}
	}
	t.Error("no cut found a packet under way")
}

// cutUnderWay cuts a wire while a ping is under way, and restores it. It tells
// whether the cut found a packet, and how many answers came.
func cutUnderWay(t *testing.T, a *Node, w *Wire, wait time.Duration) (cut bool, received int) {
	t.Helper()
	// A large ping tells itself from neighbour discovery in the counters.
	const size = 1000
	before := w.Counters(AtoB)
	done := make(chan PingResult, 1)
	go func() {
		r, _ := a.Ping(t.Context(), Ping{To: farEnd, Size: size, Timeout: wait})
		done <- r
	}()
	for w.Counters(AtoB).Bytes < before.Bytes+size {
		time.Sleep(time.Millisecond)
	}
	w.Cut()
	sent := w.Counters(AtoB).Sent
	w.Restore()
	r := <-done
	return sent == before.Sent, r.Received()
}

// A wire carries whatever a cable does, such as 802.1X to the group address that bridges keep,
// or with a VLAN's tag.
func TestWireCarriesAnyFrame(t *testing.T) {
	a, b, w := newWiredPair(t, WireConfig{})
	open := func(n *Node) (fd int) {
		t.Helper()
		err := n.Do(func() error {
			device, err := net.InterfaceByName("eth0")
			if err != nil {
				return err
			}
			if fd, err = packetSocket(device.Index); err != nil {
				return err
			}
			if err := errors.Join(unix.SetNonblock(fd, false), unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1)); err != nil {
				return err
			}
			return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(mustArrive.Seconds())})
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	from, to := open(a), open(b)
	for name, header := range map[string]string{
		"EAPOL":     "\x01\x80\xc2\x00\x00\x03\x02\x00\x00\x00\x00\x01\x88\x8e",
		"unknown":   "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xb5",
		"of a VLAN": "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x81\x00\x0f\xfe\x88\xb5",
		"of two":    "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xa8\x00\x07\x81\x00\x0f\xfe\x88\xb5",
	} {
		oob := make([]byte, 128)
		want := append([]byte(header), make([]byte, 1000)...)
		if _, err := unix.Write(from, want); err != nil {
			t.Fatal(err)
		}
		for got := make([]byte, maxFrame); ; {
			n, oobn, _, _, err := unix.Recvmsg(to, got[vlanTag:], oob, 0)
			if err != nil {
				t.Fatalf("%s: %v; %+v", name, err, w.Counters(AtoB))
			}
			if bytes.Equal(withTag(got, n, oob[:oobn]), want) {
				break
			}
		}
	}
}
