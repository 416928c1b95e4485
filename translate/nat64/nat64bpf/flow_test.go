// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
)

var allTransports = []state.Transport{state.TCP, state.UDP, state.ICMP}

// What a program makes is what Go would have made, and Go finds it.
func TestFlowsAreMade(t *testing.T) {
	r := newFlowRig(t, someSizes)
	r.client(flowHost, 0)
	for i, transport := range allTransports {
		p, start := outward(transport, 5000, 53), stampNow()
		r.expect(p, To4Forwarded)
		s := r.session(p)
		if s.Client != flowHost.As16() || s.Pool != flowPool4.As4() || s.Peer != flowPeer.As4() || s.ClientPort != 5000 ||
			s.PeerPort != p.key6().PeerPort || s.Transport != transport || s.PoolPort < 1024 || s.Word.Generation() != 1 || s.Word.Flags() != 0 {
			t.Errorf("%s: the session is %+v", transport, s)
		}
		if !isStampOf(s.Word, start) {
			t.Errorf("%s: a session made at stamp %d or later has %d", transport, start, s.Word.Stamp())
		}
		want := state.Opened
		if transport == state.TCP {
			want = state.V6Init
		}
		if s.Word.Status() != want {
			t.Errorf("%s: the session is in state %s, want %s", transport, s.Word.Status(), want)
		}
		var by4 state.Session
		if k := s.Key4(); !r.table.Find4(&k, &by4) || by4.Index != s.Index {
			t.Errorf("%s: the IPv4 side finds %+v", transport, by4)
		}
		r.checkBinding(p, &s)
		back := inward(transport, s.PoolPort, 53)
		back.flags, back.reply = 18, true
		r.expect(back, To6Forwarded)
		if c := r.table.Counts(); c.Sessions != i+1 || c.Bindings != i+1 {
			t.Errorf("the state counts %+v", c)
		}
	}
	var told [10]state.Change
	if n := r.table.Feed().Changes(told[:]); n != 3 {
		t.Errorf("the feed tells of %d changes: %+v", n, told[:n])
	}
}

// checkBinding compares the binding of a packet's source with its session.
func (r *flowRig) checkBinding(p flowPacket, s *state.Session) {
	r.Helper()
	var b, by4 state.Binding
	in := p.inside()
	if !r.table.FindBinding6(&in, &b) || b.Index != s.Binding || b.Pool != s.Pool || b.PoolPort != s.PoolPort || b.Static {
		r.Errorf("%s: the binding is %+v of session %+v", p.transport, b, s)
	}
	if out := b.Outside(); !r.table.FindBinding4(&out, &by4) || by4.Index != b.Index {
		r.Errorf("%s: the IPv4 side finds %+v", p.transport, by4)
	}
	host := p.host.As16()
	var c state.Subscriber
	if !r.table.FindSubscriber(&host, &c) || b.Subscriber != c.Index+1 {
		r.Errorf("%s: the binding belongs to %d, not to %d", p.transport, b.Subscriber, c.Index+1)
	}
	found := false
	for _, block := range r.table.Blocks(&c, nil) {
		found = found || b.PoolPort >= block.First && b.PoolPort <= block.Last
	}
	if !found {
		r.Errorf("%s: port %d is in no block of the client", p.transport, b.PoolPort)
	}
}

// What Go makes the programs find, both ways.
func TestFlowsOfGoAreFound(t *testing.T) {
	r := newFlowRig(t, someSizes)
	r.client(flowHost, 0)
	for _, transport := range allTransports {
		p := outward(transport, 5001, 80)
		status := state.Opened
		if transport == state.TCP {
			status = state.Established
		}
		_, s := r.make(p, state.Fresh{Status: status, Stamp: stampNow()})
		p.flags, p.reply = 16, true
		r.expect(p, To4Forwarded)
		back := inward(transport, s.PoolPort, 80)
		back.flags, back.reply = 16, true
		r.expect(back, To6Forwarded)
		if again := r.session(p); again.Index != s.Index || again.Word.Generation() != s.Word.Generation() {
			t.Errorf("%s: another session was made: %+v, was %+v", transport, again, s)
		}
	}
}

// Keys of one hash, which an attacker might search for, are distinguished by the keys: each
// packet that differs from a session's in one part is of another one.
func TestFlowsOfOneHash(t *testing.T) {
	r := newFlowRig(t, someSizes)
	clear(r.Memory()[state.SlabHead])
	r.openSeeded(someSizes, [state.Seeds]uint64{rand.Uint64()})
	r.client(flowHost, 0)
	stranger, neighbour := netip.MustParseAddr("2001:db8:2::7"), netip.MustParseAddr("2001:db8:1::8")
	p := outward(state.UDP, 5000, 53)
	r.expect(p, To4Forwarded)
	first := r.session(p)
	back := inward(state.UDP, first.PoolPort, 53)
	for name, change := range map[string]func(p *flowPacket){
		"other peer port": func(p *flowPacket) { p.z++ },
		"other peer":      func(p *flowPacket) { p.peer = netip.MustParseAddr("198.51.100.10") },
		"other port":      func(p *flowPacket) { p.x++ },
		"other transport": func(p *flowPacket) { p.transport = state.TCP },
		"other host":      func(p *flowPacket) { p.host = neighbour },
	} {
		other := p
		change(&other)
		r.expect(other, To4Forwarded)
		s := r.session(other)
		if s.Index == first.Index || s.Key4() == first.Key4() {
			t.Errorf("%s: is sent by %+v", name, s)
		}
		oneBinding := other.inside() == p.inside()
		if (s.Binding == first.Binding) != oneBinding || (s.PoolPort == first.PoolPort) != oneBinding {
			t.Errorf("%s: has the binding of %+v", name, s)
		}
		theirs := inward(s.Transport, s.PoolPort, s.PeerPort)
		theirs.peer, theirs.flags = other.peer, 18
		r.expect(theirs, To6Forwarded)
		// Someone new, by the binding alone.
		theirs.z, theirs.flags = 4000, 2
		r.expect(theirs, To6Forwarded)
		k := s.Key4()
		k.PeerPort = theirs.z
		if by4 := (state.Session{}); !r.table.Find4(&k, &by4) || by4.Binding != s.Binding {
			t.Errorf("%s: a newcomer from IPv4 gets %+v", name, by4)
		}
	}
	other := p
	other.host = stranger
	r.expect(other, Reason(nat64ReasonREASON_NO_CLIENT))
	r.expect(back, To6Forwarded)
	for out, b := back.outside(), (state.Binding{}); r.table.FindBinding4(&out, &b); out = back.outside() {
		back.t++
	}
	if got := r.send(back); got == To6Forwarded {
		t.Errorf("a packet for port %d, which nobody has, was forwarded", back.t)
	}
}

// One source has one binding, whomever it sends to (RFC 6146 section 3.5.1).
func TestOneBindingForOneSource(t *testing.T) {
	r := newFlowRig(t, someSizes)
	r.client(flowHost, 0)
	for _, transport := range allTransports {
		var bound state.Session
		for i := range 20 {
			p := outward(transport, 6000, uint16(100+i))
			p.peer = netip.AddrFrom4([4]byte{198, 51, 100, byte(1 + i)})
			r.expect(p, To4Forwarded)
			s := r.session(p)
			if i == 0 {
				bound = s
			}
			if s.Binding != bound.Binding || s.PoolPort != bound.PoolPort {
				t.Fatalf("%s: the source is bound twice: %+v and %+v", transport, bound, s)
			}
		}
		var b state.Binding
		in := outward(transport, 6000, 0).inside()
		r.table.FindBinding6(&in, &b)
		chained := 0
		r.table.WalkChain(&b, 100, func(s *state.Session) bool { chained++; return true })
		if chained != 20 {
			t.Errorf("%s: the chain has %d sessions", transport, chained)
		}
		// Ends one in the middle, by links to both sides.
		middle := outward(transport, 6000, 110)
		middle.peer = netip.AddrFrom4([4]byte{198, 51, 100, 11})
		s := r.session(middle)
		if o := r.table.End(&s); o != state.Made {
			t.Fatalf("%s: End: %s", transport, o)
		}
		chained = 0
		r.table.WalkChain(&b, 100, func(*state.Session) bool { chained++; return true })
		if chained != 19 {
			t.Errorf("%s: the chain has %d sessions after one has ended", transport, chained)
		}
	}
	if o := r.table.Counts(); o.Sessions != 57 || o.Bindings != 3 {
		t.Errorf("the state counts %+v", o)
	}
}

// UDP keeps the parity of ports while there are any (RFC 4787 REQ-4), then takes others;
// ports are not in order, and all are used before there are none.
func TestPortsOfBlocks(t *testing.T) {
	z := someSizes
	z.BlockWords = 1
	r := newFlowRig(t, z)
	r.client(flowHost, 0)
	seen, ordered := make(map[uint16]bool), 0
	last := uint16(0)
	for i := range 64 {
		p := outward(state.UDP, uint16(2000+2*i), 53) // even
		r.expect(p, To4Forwarded)
		s := r.session(p)
		if seen[s.PoolPort] {
			t.Fatalf("port %d is used twice", s.PoolPort)
		}
		seen[s.PoolPort] = true
		if odd := s.PoolPort%2 != 0; odd != (i >= 32) {
			t.Errorf("binding %d has port %d", i, s.PoolPort)
		}
		if s.PoolPort == last+2 {
			ordered++
		}
		last = s.PoolPort
	}
	if ordered > 20 {
		t.Errorf("%d ports of 64 follow the one before", ordered)
	}
	r.expect(outward(state.UDP, 9999, 53), Reason(nat64ReasonREASON_NO_PORT))
	r.expect(outward(state.TCP, 9999, 53), To4Forwarded) // has ports of its own
}

func TestFlowsThatAreLeftToTheEngine(t *testing.T) {
	stranger := netip.MustParseAddr("2001:db8:9::1")
	from := func(p flowPacket, host netip.Addr) flowPacket { p.host = host; return p }
	flagged := func(p flowPacket, flags byte) flowPacket { p.flags = flags; return p }
	reply := func(p flowPacket) flowPacket { p.reply = true; return p }
	rig := newFlowRig(t, someSizes)
	for _, tt := range []struct {
		name   string
		change func(*Settings)
		packet flowPacket
		want   nat64Reason
	}{
		{"of a client that Go has not met", nil, from(outward(state.UDP, 5000, 53), stranger), nat64ReasonREASON_NO_CLIENT},
		{"of a system port", nil, outward(state.UDP, 1023, 53), nat64ReasonREASON_SYSTEM_PORT},
		{"of the first other port", nil, outward(state.UDP, 1024, 53), nat64ReasonREASON_TO4FORWARDED},
		{"of a small ICMP identifier", nil, outward(state.ICMP, 1, 0), nat64ReasonREASON_TO4FORWARDED},
		{"TCP without SYN", nil, flagged(outward(state.TCP, 5000, 80), 16), nat64ReasonREASON_NO_SESSION},
		{"TCP with SYN and FIN", nil, flagged(outward(state.TCP, 5000, 80), 3), nat64ReasonREASON_NO_SESSION},
		{"TCP with SYN and RST", nil, flagged(outward(state.TCP, 5000, 80), 6), nat64ReasonREASON_NO_SESSION},
		{"TCP with SYN and ACK", nil, flagged(outward(state.TCP, 5000, 80), 18), nat64ReasonREASON_TO4FORWARDED},
		{"an echo reply", nil, reply(outward(state.ICMP, 5000, 0)), nat64ReasonREASON_NO_SESSION},
		{"an echo that is not wanted", func(s *Settings) { s.NoICMPInfo = true }, outward(state.ICMP, 5000, 0), nat64ReasonREASON_ICMP_INFO},

		{"to a port that is not bound", nil, inward(state.UDP, 5000, 53), nat64ReasonREASON_NO_BINDING},
		{"TCP to a port that is not bound", nil, inward(state.TCP, 5000, 53), nat64ReasonREASON_NO_BINDING},
		{"to a bound port", nil, inward(state.UDP, 0, 53), nat64ReasonREASON_TO6FORWARDED},
		{"TCP to a bound port", nil, inward(state.TCP, 0, 53), nat64ReasonREASON_TO6FORWARDED},
		{"TCP without SYN to a bound port", nil, flagged(inward(state.TCP, 0, 53), 16), nat64ReasonREASON_NO_SESSION},
		{"an echo to a bound identifier", nil, inward(state.ICMP, 0, 0), nat64ReasonREASON_TO6FORWARDED},
		{"an echo reply to a bound identifier", nil, reply(inward(state.ICMP, 0, 0)), nat64ReasonREASON_NO_SESSION},
		{"TCP from outside, which is not wanted", func(s *Settings) { s.ExternalTCP = false }, inward(state.TCP, 0, 53), nat64ReasonREASON_EXTERNAL_TCP},
		{"UDP from outside, where TCP is not wanted", func(s *Settings) { s.ExternalTCP = false }, inward(state.UDP, 0, 53), nat64ReasonREASON_TO6FORWARDED},
		{"TCP where the engine filters", func(s *Settings) { s.AddressDependent[state.TCP] = true }, inward(state.TCP, 0, 53), nat64ReasonREASON_FILTERED},
		{"UDP where the engine filters", func(s *Settings) { s.AddressDependent[state.UDP] = true }, inward(state.UDP, 0, 53), nat64ReasonREASON_FILTERED},
		{"UDP where the engine filters TCP", func(s *Settings) { s.AddressDependent[state.TCP] = true }, inward(state.UDP, 0, 53), nat64ReasonREASON_TO6FORWARDED},
		{"an echo where the engine filters", func(s *Settings) { s.AddressDependent[state.ICMP] = true }, inward(state.ICMP, 0, 0), nat64ReasonREASON_FILTERED},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var changes []func(*Settings)
			if tt.change != nil {
				changes = append(changes, tt.change)
			}
			r := rig.renewed(t, changes...)
			r.client(flowHost, 0)
			p := tt.packet
			if p.from4 && p.t == 0 {
				// Bound by another session of Go's.
				b, _ := r.make(outward(p.transport, 7000, 7), state.Fresh{Status: state.Opened, Stamp: stampNow()})
				p.t, p.peer = b.PoolPort, netip.MustParseAddr("198.51.100.200")
			}
			before := r.table.Counts()
			r.expect(p, Reason(tt.want))
			after := r.table.Counts()
			if made := after.Sessions != before.Sessions; made != (Reason(tt.want).Verdict() == fastpath.Forward) {
				t.Errorf("counts were %+v and are %+v", before, after)
			}
		})
	}
}

// What was begun by the IPv4 side goes on from the other, and is in the right state.
func TestFlowsFromIPv4(t *testing.T) {
	r := newFlowRig(t, someSizes)
	r.client(flowHost, 0)
	for _, transport := range allTransports {
		b, _ := r.make(outward(transport, 7000, 7), state.Fresh{Status: state.Opened, Stamp: stampNow()})
		in := inward(transport, b.PoolPort, 99)
		in.peer = netip.MustParseAddr("198.51.100.200")
		r.expect(in, To6Forwarded)
		back := outward(transport, 7000, 99)
		back.peer, back.flags, back.reply = in.peer, 18, true
		s := r.session(back)
		want := state.Opened
		if transport == state.TCP {
			want = state.V4Init
		}
		if s.Word.Status() != want || s.Binding != b.Index || s.PoolPort != b.PoolPort {
			t.Errorf("%s: the session is %+v", transport, s)
		}
		r.expect(back, To4Forwarded)
		if s = r.session(back); transport == state.TCP && s.Word.Status() != state.Established {
			t.Errorf("the answer of the IPv6 side leads to %s", s.Word.Status())
		}
	}
}

// The IPv4 side's sessions take the prefix that the client uses, and two prefixes do not
// share a session of the IPv4 side.
func TestPrefixesOfFlows(t *testing.T) {
	second := netip.MustParsePrefix("2001:db8:65::/96")
	r := newFlowRig(t, someSizes, func(s *Settings) { s.Pool6 = append(s.Pool6, translatebpf.Prefix{Prefix: second}) })
	r.client(flowHost, 0)
	p := outward(state.UDP, 5000, 53)
	p.pool6 = second
	r.expect(p, To4Forwarded)
	k := p.key6()
	k.Prefix = 1
	var s state.Session
	if !r.table.Find6(&k, &s) {
		t.Fatal("no session by the second prefix")
	}
	in := inward(state.UDP, s.PoolPort, 1000)
	r.expect(in, To6Forwarded)
	k.PeerPort = 1000
	if !r.table.Find6(&k, &s) {
		t.Error("the IPv4 side's session does not have the client's prefix")
	}
	p.pool6 = flowPool6
	r.expect(p, Reason(nat64ReasonREASON_OTHER_PREFIX))
}

// A prefix that is leaving serves the sessions that it has, both ways, and begins none: the
// engine says what becomes of others.
func TestLeavingPrefix(t *testing.T) {
	r := newFlowRig(t, someSizes)
	r.client(flowHost, 0)
	p := outward(state.UDP, 5000, 53)
	r.expect(p, To4Forwarded)
	back := inward(state.UDP, r.session(p).PoolPort, 53)
	s := r.Settings()
	s.Pool6 = slices.Clone(s.Pool6)
	for i := range s.Pool6 {
		s.Pool6[i].Leaving = true
	}
	if err := r.Set(s); err != nil {
		t.Fatal(err)
	}
	r.expect(p, To4Forwarded)
	r.expect(back, To6Forwarded)
	r.expect(outward(state.UDP, 5000, 54), Reason(nat64ReasonREASON_OTHER_PREFIX))
	r.expect(outward(state.UDP, 5001, 53), Reason(nat64ReasonREASON_OTHER_PREFIX))
	if c := r.table.Counts(); c.Sessions != 1 || c.Bindings != 1 {
		t.Errorf("%+v", c)
	}
}
