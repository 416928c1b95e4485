// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// peerAt is the n-th of many IPv4 hosts.
func peerAt(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18 + byte(n>>16&1), byte(n >> 8), byte(n)})
}

// hostAt is the n-th of many IPv6 hosts of one client.
func hostAt(n int) netip.Addr {
	a := flowHost.As16()
	binary.BigEndian.PutUint32(a[12:], uint32(n))
	return netip.AddrFrom16(a)
}

// A table that is full gives no more sessions, and all that it has are found; among so
// many there are some that lie in the other bucket.
func TestTablesThatAreFull(t *testing.T) {
	z := someSizes
	z.BlockWords = 128
	r := newFlowRig(t, z)
	r.client(flowHost, 0)
	made, refused := 0, 0
	for i := range z.Sessions {
		p := outward(state.UDP, uint16(2000+i%60), 53)
		p.host, p.peer = hostAt(1+i/60), peerAt(i)
		switch got := r.send(p); got {
		case To4Forwarded:
			made++
		case Reason(nat64ReasonREASON_SESSIONS_FULL), Reason(nat64ReasonREASON_BINDINGS_FULL):
			refused++
			b, _ := r.make(p, state.Fresh{Status: state.Opened, Stamp: stampNow()}) // makes room
			if b.Subscriber == 0 {
				t.Fatalf("%+v", b)
			}
		default:
			t.Fatalf("session %d: %s", i, got)
		}
	}
	if c := r.table.Counts(); c.Sessions != z.Sessions || refused > z.Sessions/10 {
		t.Errorf("%d sessions were made and %d refused; the state counts %+v", made, refused, c)
	}
	spilled := 0
	for i := range len(r.Memory()[state.SlabSessions6]) / 64 {
		spilled += int(recordAt[nat64IndexBucket](r.Memory()[state.SlabSessions6], uint32(i)).Spilled)
	}
	if spilled < 10 {
		t.Errorf("%d entries lie in their other bucket: too few to tell", spilled)
	}
	before := r.counts()
	for i := range z.Sessions {
		p := outward(state.UDP, uint16(2000+i%60), 53)
		p.host, p.peer = hostAt(1+i/60), peerAt(i)
		s := r.session(p)
		back := inward(state.UDP, s.PoolPort, 53)
		back.peer = p.peer
		r.run(p, 1)
		r.run(back, 1)
	}
	after := r.counts()
	for i, want := range map[Reason]uint64{To4Forwarded: uint64(z.Sessions), To6Forwarded: uint64(z.Sessions)} {
		if got := after[i] - before[i]; got != want {
			t.Errorf("%s: %d of %d", i, got, want)
		}
	}
	last := outward(state.UDP, 2000, 54)
	last.host = hostAt(1)
	r.expect(last, Reason(nat64ReasonREASON_SESSIONS_FULL))
	last.host = hostAt(70000)
	r.expect(last, Reason(nat64ReasonREASON_BINDINGS_FULL))
}

// However many make the same flows at once, each source is bound once and each flow has
// one session; and what one side ends is not half there.
func TestFlowsMadeAtOnce(t *testing.T) {
	z := someSizes
	z.BlockWords = 64
	r := newFlowRig(t, z)
	c := r.client(flowHost, 0)
	const sources, peers, rounds = 40, 4, 6
	for round := range rounds {
		packets := func() (list []flowPacket) {
			for i := range sources * peers {
				p := outward(allTransports[round%3], uint16(3000+i%sources), uint16(100+i/sources))
				list = append(list, p)
			}
			rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			return list
		}
		var work sync.WaitGroup
		for range 2 {
			list := packets()
			work.Go(func() {
				r.ns.Do(r, func() error {
					for _, p := range list {
						if _, err := r.xdp.Run(&ebpf.RunOptions{Data: p.frame(), DataOut: make([]byte, 256), Repeat: 1}); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
		for _, p := range packets() {
			status := state.Opened
			if p.transport == state.TCP {
				status = state.V6Init
			}
			var b state.Binding
			var s state.Session
			bind := func() state.Outcome { return r.table.NewBinding(&c, p.inside(), state.Wish{}, rand.Uint64(), &b) }
			if o := untilFree(bind); !o.OK() {
				t.Errorf("no binding: %s", o)
				continue
			}
			n := state.Fresh{Status: status, Stamp: stampNow(), Peer: p.peer.As4(), PeerPort: p.key6().PeerPort}
			if o := untilFree(func() state.Outcome { return r.table.NewSession(&b, n, &s) }); !o.OK() {
				t.Errorf("no session: %s", o)
			}
		}
		work.Wait()
		r.checkWhole(t, round)
		ends := 0
		r.table.WalkSessions(0, z.Sessions, func(s *state.Session) {
			if o := r.table.End(s); o != state.Made {
				t.Errorf("End: %s", o)
			}
			ends++
		})
		want := sources * peers
		if allTransports[round%3] == state.ICMP {
			want = sources // an identifier is all there is
		}
		if ends != want {
			t.Errorf("round %d: %d sessions, want %d", round, ends, want)
		}
		if n := r.table.Counts(); n.Sessions != 0 || n.Bindings != 0 {
			t.Errorf("round %d: %+v are left", round, n)
		}
		for _, name := range []string{state.SlabSessions6, state.SlabSessions4, state.SlabBindings6, state.SlabBindings4} {
			for i, b := range r.Memory()[name] {
				if b != 0 {
					t.Fatalf("round %d: byte %d of %s is %d", round, i, name, b)
				}
			}
		}
		r.table.ViewSubscriber(c.Index, &c)
		if c.Sessions != 0 || c.Bindings != 0 {
			t.Errorf("round %d: the client is %+v", round, c)
		}
	}
}

// untilFree makes something, again while a lock is held: a test run, unlike a program that
// meets packets, may be put aside in the middle.
func untilFree(make func() state.Outcome) (o state.Outcome) {
	for end := time.Now().Add(testutil.Patience); ; time.Sleep(time.Millisecond) {
		if o = make(); o != state.Busy || time.Now().After(end) {
			return o
		}
	}
}

// checkWhole compares bindings and sessions with each other.
func (r *flowRig) checkWhole(t *testing.T, round int) {
	inside, outside := make(map[state.Inside]bool), make(map[state.Outside]bool)
	chained := 0
	r.table.WalkBindings(0, r.table.Sizes().Sessions, func(b *state.Binding) {
		if inside[b.Inside()] || outside[b.Outside()] {
			t.Errorf("round %d: %+v is bound twice", round, b)
		}
		inside[b.Inside()], outside[b.Outside()] = true, true
		r.table.WalkChain(b, 1000, func(s *state.Session) bool {
			if s.Binding != b.Index || s.PoolPort != b.PoolPort || s.ClientPort != b.ClientPort {
				t.Errorf("round %d: session %+v is in the chain of %+v", round, s, b)
			}
			chained++
			return true
		})
	})
	keys := make(map[state.Key6]bool)
	r.table.WalkSessions(0, r.table.Sizes().Sessions, func(s *state.Session) {
		if keys[s.Key6()] {
			t.Errorf("round %d: %+v is there twice", round, s)
		}
		keys[s.Key6()] = true
	})
	if chained != len(keys) {
		t.Errorf("round %d: %d sessions, %d in chains", round, len(keys), chained)
	}
}
