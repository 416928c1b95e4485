// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// pairsIn opens a socket in a namespace that is closed with the test.
func pairsIn(t *testing.T, n *testutil.Netns, cfg PairsConfig) (p *Pairs) {
	t.Helper()
	n.Do(t, func() (err error) {
		p, err = ListenPairs(cfg)
		return err
	})
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// TestPairsNameTheirSource sends from several addresses of a host, in trains and alone, in UDP and in IP.
func TestPairsNameTheirSource(t *testing.T) {
	for name, c := range map[string]struct {
		any, to  string
		from     []string
		protocol int
	}{
		"UDP over IPv4": {"0.0.0.0", "127.0.0.9", []string{"127.0.0.1", "127.0.0.2"}, 0},
		"UDP over IPv6": {"::", "2001:db8::9", []string{"2001:db8::1", "2001:db8::2"}, 0},
		"SCTP in IPv4":  {"0.0.0.0", "127.0.0.9", []string{"127.0.0.1", "127.0.0.2"}, unix.IPPROTO_SCTP},
		"SCTP in IPv6":  {"::", "2001:db8::9", []string{"2001:db8::1", "2001:db8::2"}, unix.IPPROTO_SCTP},
	} {
		t.Run(name, func(t *testing.T) {
			n := testutil.NewNetns(t)
			n.Do(t, func() error { return localAddresses("2001:db8::1", "2001:db8::2", "2001:db8::9") })
			any := netip.MustParseAddr(c.any)
			sender := pairsIn(t, n, PairsConfig{Addr: netip.AddrPortFrom(any, 0), Protocol: c.protocol, Port: 1})
			reader := pairsIn(t, n, PairsConfig{Addr: netip.AddrPortFrom(any, 0), Protocol: c.protocol, Port: 5000})
			to := netip.AddrPortFrom(netip.MustParseAddr(c.to), reader.LocalAddr().Port())
			if c.protocol != 0 {
				to = netip.AddrPortFrom(to.Addr(), 0)
			}
			var sent []Paired
			for i := range 8 {
				payload := append([]byte{0, 1, 5000 >> 8, 5000 & 0xff, byte(i)}, make([]byte, 500)...)
				if i == 7 && c.protocol != 0 { // not for the reader's port
					payload[2] = 0
				}
				sent = append(sent, Paired{Local: netip.MustParseAddr(c.from[i/2%2]), Remote: to, Payload: payload})
			}
			if err := sender.WriteBatch(sent); err != nil {
				t.Fatal(err)
			}
			if c.protocol != 0 {
				sent = sent[:7]
			}
			got, msgs := 0, make([]Message, 4)
			for got < len(sent) {
				k, err := reader.ReadBatch(msgs)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range msgs[:k] {
					want := sent[got]
					if m.From.Addr() != want.Local || m.To != to.Addr() || !bytes.Equal(m.Payload, want.Payload) {
						t.Errorf("packet %d has come from %v to %v, with %d octets", got, m.From, m.To, len(m.Payload))
					}
					got++
				}
			}
			if c.protocol == 0 && sender.Stats().WriteCalls != 1 {
				t.Errorf("%d system calls for one batch", sender.Stats().WriteCalls)
			}
		})
	}
}

// localAddresses gives the loopback addresses of IPv6, and waits until they work.
func localAddresses(list ...string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	host, err := OpenHost()
	if err != nil {
		return err
	}
	defer host.Close()
	for _, one := range list {
		addr, err := netlink.ParseAddr(one + "/128")
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(lo, addr); err != nil {
			return err
		}
		host.awaitLocal(netip.MustParseAddr(one), 0)
	}
	return nil
}

// TestPairsDoNotFragment sends packets that the link does not carry: they are refused, unless they may be fragmented.
func TestPairsDoNotFragment(t *testing.T) {
	for name, c := range map[string]struct{ any, at string }{
		"IPv4": {"0.0.0.0", "127.0.0.1"}, "IPv6": {"::", "2001:db8::1"},
	} {
		t.Run(name, func(t *testing.T) {
			n := testutil.NewNetns(t)
			n.Do(t, func() error {
				if err := localAddresses("2001:db8::1"); err != nil {
					return err
				}
				lo, err := netlink.LinkByName("lo")
				if err != nil {
					return err
				}
				return netlink.LinkSetMTU(lo, 1400)
			})
			p := pairsIn(t, n, PairsConfig{Addr: netip.AddrPortFrom(netip.MustParseAddr(c.any), 0)})
			at := netip.MustParseAddr(c.at)
			packet := func(size int, fragment bool) Paired {
				return Paired{Local: at, Remote: netip.AddrPortFrom(at, p.LocalAddr().Port()), Payload: make([]byte, size), Fragment: fragment}
			}
			batch := []Paired{packet(1401, false), packet(1402, true), packet(1403, false), packet(1000, false)}
			if err := p.WriteBatch(batch); err != nil {
				t.Fatal(err)
			}
			if s := p.Stats(); s.WriteTooBig != 2 || s.WritePackets != 2 {
				t.Errorf("%d packets are sent and %d too big", s.WritePackets, s.WriteTooBig)
			}
			msgs, sizes := make([]Message, 4), []int{}
			for len(sizes) < 2 {
				k, err := p.ReadBatch(msgs)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range msgs[:k] {
					sizes = append(sizes, len(m.Payload))
				}
			}
			if sizes[0] != 1402 || sizes[1] != 1000 {
				t.Errorf("packets of %v octets have come", sizes)
			}
		})
	}
}

// TestPairsReportErrors sends to a port that no program has: the ICMP message comes with what it quotes.
func TestPairsReportErrors(t *testing.T) {
	for name, c := range map[string]struct{ any, at string }{
		"IPv4": {"0.0.0.0", "127.0.0.1"}, "IPv6": {"::", "::1"},
	} {
		t.Run(name, func(t *testing.T) {
			n := testutil.NewNetns(t)
			p := pairsIn(t, n, PairsConfig{Addr: netip.AddrPortFrom(netip.MustParseAddr(c.any), 0)})
			errs := make(chan PairError, 10)
			if err := p.OnError(func(e PairError) {
				e.Quoted = bytes.Clone(e.Quoted)
				errs <- e
			}); err != nil {
				t.Fatal(err)
			}
			at := netip.MustParseAddr(c.at)
			to := netip.AddrPortFrom(at, 9)
			go func() { _, _ = p.ReadBatch(make([]Message, 1)) }()
			if err := p.WriteBatch([]Paired{{Local: at, Remote: to, Payload: []byte("what is quoted")}}); err != nil {
				t.Fatal(err)
			}
			e := <-errs
			if e.Kind != PairNoPort || e.Local != at || e.Remote != to || string(e.Quoted) != "what is quoted" {
				t.Errorf("%+v, quoting %q", e, e.Quoted)
			}
		})
	}
}

// TestPairsWaitForRoom sends faster than a device does, by a socket with a small buffer: packets wait for room.
func TestPairsWaitForRoom(t *testing.T) {
	n := testutil.NewNetns(t)
	n.Do(t, func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "slow"}, PeerName: "far"}); err != nil {
			return err
		}
		for _, name := range []string{"slow", "far"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return err
			}
		}
		slow, err := netlink.LinkByName("slow")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr("192.0.2.1/24")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(slow, addr); err != nil {
			return err
		}
		neighbour := &netlink.Neigh{LinkIndex: slow.Attrs().Index, State: netlink.NUD_PERMANENT, IP: []byte{192, 0, 2, 2}, HardwareAddr: []byte{2, 0, 0, 0, 0, 2}}
		if err := netlink.NeighAdd(neighbour); err != nil {
			return err
		}
		const rate = 1 << 20 // octets a second
		return netlink.QdiscAdd(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: slow.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			Rate:       rate, Buffer: netlink.Xmittime(rate, 2000), Limit: 1 << 20,
		})
	})
	from := netip.MustParseAddr("192.0.2.1")
	p := pairsIn(t, n, PairsConfig{Addr: netip.AddrPortFrom(from, 0), Buffer: 1})
	var batch []Paired
	for i := range 50 {
		batch = append(batch, Paired{Local: from, Remote: netip.MustParseAddrPort("192.0.2.2:9"), Payload: make([]byte, 1000+i)})
	}
	if err := p.WriteBatch(batch); err != nil {
		t.Fatal(err)
	}
	// Without a wait the buffer takes two. How long one lasts depends on what else the machine does.
	if s := p.Stats(); s.WritePackets+s.WriteFull != 50 || s.WriteFull > 10 {
		t.Errorf("%d packets are sent, %d had no room", s.WritePackets, s.WriteFull)
	}
}

// TestPairsRest has a packet not wake who rests, and come all the same when the rest is over; the next one wakes again. Behind a
// rest nobody waits. To close the socket ends a rest, but for a small one.
func TestPairsRest(t *testing.T) {
	at := netip.MustParseAddr("127.0.0.1")
	open := func(small bool) *Pairs {
		p, err := ListenPairs(PairsConfig{Addr: netip.AddrPortFrom(at, 0), Small: small})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	p := open(false)
	send := func() {
		if err := p.WriteBatch([]Paired{{Local: at, Remote: p.LocalAddr(), Payload: []byte("x")}}); err != nil {
			t.Error(err)
		}
	}
	msgs := make([]Message, MaxBatch)
	for range 3 {
		send()
		send()
		const rest = 10 * time.Millisecond
		begin := time.Now()
		if p.Rest(rest); time.Since(begin) < rest {
			t.Error("what has come ends the rest")
		}
		if n, err := p.ReadBatch(msgs); n != 2 || err != nil {
			t.Errorf("%d packets, %v", n, err)
		}
		go send()
		if n, err := p.ReadBatch(msgs); n != 1 || err != nil {
			t.Errorf("%d packets, %v", n, err)
		}
		for _, d := range []time.Duration{rest, 0} {
			p.Rest(d)
			if n, err := p.ReadBatch(msgs); n != 0 || err != nil {
				t.Errorf("%d packets have come, %v", n, err)
			}
		}
	}
	rested := make(chan struct{})
	go func() {
		p.Rest(time.Hour)
		close(rested)
	}()
	_ = p.Close()
	<-rested
	if _, err := p.ReadBatch(msgs); err != ErrClosed {
		t.Errorf("a closed socket: %v", err)
	}
	small := open(true)
	small.Rest(time.Millisecond)
	if n, err := small.ReadBatch(msgs); n != 0 || err != nil {
		t.Errorf("%d packets have come to a small socket, %v", n, err)
	}
}

// TestPairsRestInVain has come nothing that is a message while the socket rests: an empty datagram, one that is too large for its
// buffer, or an ICMP error before a message. Who reads does not wait for another one, and is told if there may be more.
func TestPairsRestInVain(t *testing.T) {
	at := netip.MustParseAddr("127.0.0.1")
	n := testutil.NewNetns(t)
	for name, c := range map[string]struct {
		small   bool
		payload []byte
		more    bool // there is an error, too, which comes first
	}{"empty": {}, "too large": {small: true, payload: make([]byte, 3000)}, "an error": {payload: []byte("x"), more: true}} {
		t.Run(name, func(t *testing.T) {
			p := pairsIn(t, n, PairsConfig{Addr: netip.AddrPortFrom(at, 0), Small: c.small})
			if err := p.OnError(func(PairError) {}); err != nil {
				t.Fatal(err)
			}
			send := func(to netip.AddrPort, payload []byte) {
				if err := p.WriteBatch([]Paired{{Local: at, Remote: to, Payload: payload}}); err != nil {
					t.Fatal(err)
				}
			}
			send(p.LocalAddr(), c.payload)
			if c.more {
				send(netip.AddrPortFrom(at, 9), nil)
			}
			msgs := make([]Message, MaxBatch)
			p.Rest(time.Millisecond)
			if n, err := p.ReadBatch(msgs); n != 0 || err != nil {
				t.Fatalf("%d packets have come, %v", n, err)
			}
			if p.Drained() == c.more {
				t.Errorf("drained is %v", p.Drained())
			}
		})
	}
}

// TestPairsRestWithoutDescriptor has no descriptor be free for the poller behind a rest: packets are read all the same.
func TestPairsRestWithoutDescriptor(t *testing.T) {
	at := netip.MustParseAddr("127.0.0.1")
	p, err := ListenPairs(PairsConfig{Addr: netip.AddrPortFrom(at, 0)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	msgs := make([]Message, MaxBatch)
	p.Rest(time.Millisecond)
	if n, err := p.ReadBatch(msgs); n != 0 || err != nil {
		t.Fatalf("%d packets have come, %v", n, err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) })
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.WriteBatch([]Paired{{Local: at, Remote: p.LocalAddr(), Payload: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
		if n, err := p.ReadBatch(msgs); n != 1 || err != nil {
			t.Errorf("%d packets have come, %v", n, err)
		}
	}
}

// TestPairsRestClosed has one who rests too late, when the number of its socket may already be another's: that one hears all the
// same.
func TestPairsRestClosed(t *testing.T) {
	at := netip.MustParseAddr("127.0.0.1")
	open := func() *Pairs {
		p, err := ListenPairs(PairsConfig{Addr: netip.AddrPortFrom(at, 0)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	closed := open()
	_ = closed.Close()
	p := open()
	closed.Rest(time.Hour)
	heard := make(chan error)
	go func() {
		_, err := p.ReadBatch(make([]Message, MaxBatch))
		heard <- err
	}()
	time.Sleep(10 * time.Millisecond) // it waits by now, most often
	if err := p.WriteBatch([]Paired{{Local: at, Remote: p.LocalAddr(), Payload: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	if err := <-heard; err != nil {
		t.Error(err)
	}
}

// TestPairsDrained reads what has come in several batches: after the last of them there is no more.
func TestPairsDrained(t *testing.T) {
	at := netip.MustParseAddr("127.0.0.1")
	p, err := ListenPairs(PairsConfig{Addr: netip.AddrPortFrom(at, 0)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	for name, c := range map[string]struct {
		packets, longer int // each than the one before, so that none are merged
		room            int
	}{"full batches": {2*pairBuffers + 1, 1, MaxBatch}, "a train that has no room": {10, 0, 4}} {
		t.Run(name, func(t *testing.T) {
			var batch []Paired
			for i := range c.packets {
				batch = append(batch, Paired{Local: at, Remote: p.LocalAddr(), Payload: make([]byte, 100+i*c.longer)})
			}
			if err := p.WriteBatch(batch); err != nil {
				t.Fatal(err)
			}
			msgs := make([]Message, c.room)
			for got := 0; got < c.packets; {
				n, err := p.ReadBatch(msgs)
				if err != nil {
					t.Fatal(err)
				}
				if got += n; p.Drained() != (got == c.packets) {
					t.Errorf("%d of %d packets are read, and drained is %v", got, c.packets, p.Drained())
				}
			}
		})
	}
}

// TestSmallPairsGrow has more come to a small socket than it has room for at first, and a packet that is too large for that:
// it receives as others do from then on.
func TestSmallPairsGrow(t *testing.T) {
	for name, c := range map[string]struct {
		sizes []int // of packets before it grows, the last of which is small
		lost  int   // of them
	}{"many": {slices.Repeat([]int{500}, 4), 0}, "large": {[]int{3000, 500}, 1}} {
		t.Run(name, func(t *testing.T) {
			n, at := testutil.NewNetns(t), netip.MustParseAddr("127.0.0.1")
			sender := pairsIn(t, n, PairsConfig{Addr: netip.AddrPortFrom(at, 0)})
			reader := pairsIn(t, n, PairsConfig{Addr: netip.AddrPortFrom(at, 0), Small: true})
			to := reader.LocalAddr()
			send := func(sizes ...int) {
				for _, size := range sizes {
					if err := sender.WriteBatch([]Paired{{Local: at, Remote: to, Payload: make([]byte, size)}}); err != nil {
						t.Fatal(err)
					}
				}
			}
			if small := cap(reader.udp.in.bufs[0]); small > 4096 {
				t.Errorf("a buffer has %d octets at first", small)
			}
			msgs := make([]Message, MaxBatch)
			read := func(packets int) (last int) {
				for packets > 0 {
					k, err := reader.ReadBatch(msgs)
					if err != nil {
						t.Fatal(err)
					}
					last = len(msgs[k-1].Payload)
					packets -= k
				}
				return last
			}
			send(c.sizes...)
			read(len(c.sizes) - c.lost)
			send(9000)
			if got := read(1); got != 9000 || reader.Stats().ReadTruncated != uint64(c.lost) {
				t.Errorf("of a packet of 9000 octets %d have come, %d were cut", got, reader.Stats().ReadTruncated)
			}
		})
	}
}
