// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// awaitRoom waits until so few packets are under way that each queue could hold them all:
// readers may get no time while a sender has it.
func awaitRoom(underWay func() int) {
	for underWay() > 200 {
		time.Sleep(time.Millisecond)
	}
}

func TestUDPGroup(t *testing.T) {
	group, err := ListenUDPGroup(UDPConfig{Addr: netip.MustParseAddrPort("127.0.0.1:0")}, 3)
	if err != nil {
		t.Fatal(err)
	}
	to := group[0].LocalAddr()
	const senders, each = 60, 20
	type arrival struct{ from, number int }
	arrived := make(chan []arrival, len(group))
	var readers sync.WaitGroup
	var mu sync.Mutex
	left := senders * each
	for _, u := range group {
		if u.LocalAddr() != to {
			t.Errorf("one socket is at %s, another at %s", to, u.LocalAddr())
		}
		readers.Go(func() {
			var mine []arrival
			msgs := make([]Message, MaxBatch)
			for {
				n, err := u.ReadBatch(msgs)
				if err != nil {
					break
				}
				for _, m := range msgs[:n] {
					mine = append(mine, arrival{int(m.Payload[0]), int(m.Payload[1])})
				}
				mu.Lock()
				left -= n
				if left == 0 {
					for _, u := range group {
						u.Close()
					}
				}
				mu.Unlock()
			}
			arrived <- mine
		})
	}
	for s := range senders {
		awaitRoom(func() int {
			mu.Lock()
			defer mu.Unlock()
			return (s-senders)*each + left
		})
		c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to))
		if err != nil {
			t.Fatal(err)
		}
		for i := range each {
			if _, err := c.Write([]byte{byte(s), byte(i)}); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
	}
	readers.Wait()
	close(arrived)
	used := 0
	for mine := range arrived {
		next := map[int]int{}
		for _, a := range mine {
			if a.number != next[a.from] {
				t.Fatalf("datagram %d of sender %d came when %d was due on this socket", a.number, a.from, next[a.from])
			}
			next[a.from]++
		}
		if len(mine) > 0 {
			used++
		}
	}
	if used != len(group) {
		t.Errorf("%d of %d sockets were used", used, len(group))
	}
}

func TestUDPGroupTakesNoAddressInUse(t *testing.T) {
	group, err := ListenUDPGroup(UDPConfig{Addr: netip.MustParseAddrPort("127.0.0.1:0")}, 2)
	if err != nil {
		t.Fatal(err)
	}
	again := UDPConfig{Addr: group[0].LocalAddr()}
	if _, err := ListenUDPGroup(again, 2); err == nil {
		t.Error("two groups on one address")
	}
	for _, u := range group {
		u.Close()
	}
	if group, err = ListenUDPGroup(again, 2); err != nil {
		t.Fatal(err)
	}
	for _, u := range group {
		u.Close()
	}
}

// Each flow of the host comes by one queue, in order; all flows come, and by more
// than one queue.
func TestTUNQueues(t *testing.T) {
	testutil.NeedRoot(t)
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error { return carryQueues(t) })
}

func carryQueues(t *testing.T) error {
	h, err := OpenHost()
	if err != nil {
		return err
	}
	defer h.Close()
	queues, err := OpenTUNQueues(TUNConfig{Name: "many", Offload: true}, 3)
	if err != nil {
		return err
	}
	if err := h.SetUp("many"); err != nil {
		return err
	}
	if err := h.AddAddr("many", tunHost); err != nil {
		return err
	}
	const flows, each = 60, 20
	var mu sync.Mutex
	seen := make([]map[int][]byte, len(queues)) // by queue: flow to numbers
	left := flows * each
	var readers sync.WaitGroup
	for i, q := range queues {
		seen[i] = map[int][]byte{}
		readers.Go(func() {
			pkts := make([][]byte, MaxBatch)
			for {
				n, err := q.ReadBatch(pkts)
				if err != nil {
					return
				}
				mu.Lock()
				for _, b := range pkts[:n] {
					if p, _, ok := packet.ParseIPv6(b); ok && p.NextHeader() == packet.ProtoUDP {
						data := p.Payload()[packet.UDPHeaderLen:]
						seen[i][int(data[0])] = append(seen[i][int(data[0])], data[1])
						left--
					}
				}
				if left == 0 {
					for _, q := range queues {
						q.Close()
					}
				}
				mu.Unlock()
			}
		})
	}
	for f := range flows {
		awaitRoom(func() int {
			mu.Lock()
			defer mu.Unlock()
			return (f-flows)*each + left
		})
		c, err := net.DialUDP("udp6", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(tunPeer, 9)))
		if err != nil {
			return err
		}
		for i := range each {
			if _, err := c.Write([]byte{byte(f), byte(i)}); err != nil {
				return err
			}
		}
		c.Close()
	}
	readers.Wait()
	used := 0
	for i := range seen {
		if len(seen[i]) > 0 {
			used++
		}
		for f, numbers := range seen[i] {
			for n, got := range numbers {
				if int(got) != n || len(numbers) != each {
					t.Errorf("flow %d came as %v by queue %d", f, numbers, i)
					break
				}
			}
		}
	}
	if used < 2 {
		t.Errorf("%d of %d queues were used", used, len(queues))
	}
	return nil
}

func TestMemory(t *testing.T) {
	for _, n := range []int{64, 4096, 2 << 20, 5 << 20} {
		m, free, err := Memory(n)
		if err != nil {
			t.Fatal(err)
		}
		if len(m) != n {
			t.Errorf("%d bytes, want %d", len(m), n)
		}
		for i := 0; i < n; i += 64 {
			if m[i] != 0 {
				t.Fatal("the memory is not zero")
			}
			m[i] = 1
		}
		free()
	}
	if _, _, err := Memory(1 << 60); err == nil {
		t.Error("an exbibyte was to be had")
	}
}
