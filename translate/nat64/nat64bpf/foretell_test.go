// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// TestPortsAreNotForetold: a client of a NAT64 looks at ports of its own, takes them for the
// output of the kernel's generator for BPF, which is linear over GF(2), and solves for
// the state of that. Then it foretells the ports of another client.
func TestPortsAreNotForetold(t *testing.T) {
	const own, others = 40, 40
	sizes := someSizes
	sizes.BlockWords = 64
	r := newFlowRig(t, sizes)
	victim := netip.MustParseAddr("2001:db8:2::7")
	attacker := r.table.Blocks(ptr(r.client(flowHost, 0)), nil)[0]
	block := r.table.Blocks(ptr(r.client(victim, 0)), nil)[0]
	var seen, want []uint16 // where ports lie in their blocks
	r.ns.Do(t, func() error {
		free, err := onOneCore()
		if err != nil {
			return err
		}
		defer free()
		for i := range uint16(own) {
			seen = append(seen, r.bindOnce(flowHost, 2000+i)-attacker.First)
		}
		for i := range uint16(others) {
			want = append(want, r.bindOnce(victim, 2000+i)-block.First)
		}
		return nil
	})
	for _, second := range []bool{false, true} {
		foretold, fits := foretell(seen, others, second)
		right := 0
		for i := range want {
			if foretold[i] == want[i] {
				right++
			}
		}
		// 480 bits that do not come of 128 fit by chance with 2^-352; of 4096 ports each, 5
		// of 40 are right by chance with 10^-12.
		if fits || right >= 5 {
			t.Errorf("own ports fit the generator: %v; %d of %d ports of another client were foretold", fits, right, others)
		}
	}
}

func ptr(s state.Subscriber) *state.Subscriber { return &s }

// onOneCore keeps the calling thread on one core until free: each has a generator.
func onOneCore() (free func(), err error) {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, err
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	return func() { _ = unix.SchedSetaffinity(0, &all) }, unix.SchedSetaffinity(0, &one)
}

// bindOnce has the program bind a port for a connection of a client, and ends it again.
func (r *flowRig) bindOnce(host netip.Addr, x uint16) uint16 {
	p := outward(state.TCP, x, 80)
	p.host = host
	if _, err := r.xdp.Run(&ebpf.RunOptions{Data: p.frame(), DataOut: make([]byte, 256)}); err != nil {
		r.Fatal(err)
	}
	s := r.session(p)
	if o := r.table.End(&s); o != state.Made {
		r.Fatalf("the session does not end: %s", o)
	}
	return s.PoolPort
}

// form is a bit as a sum of the 128 unknown bits of the generator, one of its registers
// 32 of them.
type (
	form     [2]uint64
	register [32]form
)

func (f form) plus(g form) form { return form{f[0] ^ g[0], f[1] ^ g[1]} }

// at is the value of a form when the unknown bits are known.
func (f form) at(known form) uint16 {
	return uint16(bits.OnesCount64(f[0]&known[0])+bits.OnesCount64(f[1]&known[1])) & 1
}

func (r register) plus(q register) register {
	for i := range r {
		r[i] = r[i].plus(q[i])
	}
	return r
}

// shift moves bits up by n, or down by -n.
func (r register) shift(n int) (to register) {
	for i := range to {
		if from := i - n; from >= 0 && from < len(r) {
			to[i] = r[from]
		}
	}
	return to
}

// tausworthe is the kernel's generator (lib/random32.c) in forms.
type tausworthe [4]register

func newTausworthe() (g tausworthe) {
	for i := range 128 {
		g[i/32][i%32][i/64] = 1 << (i % 64)
	}
	return g
}

// next is what the generator returns.
func (g *tausworthe) next() (out register) {
	for i, by := range [4]struct{ a, b, low, d int }{{6, 13, 1, 18}, {2, 27, 3, 2}, {13, 21, 4, 7}, {3, 12, 7, 13}} {
		s := g[i]
		kept := s
		clear(kept[:by.low])
		g[i] = kept.shift(by.d).plus(s.shift(by.a).plus(s).shift(-by.b))
		out = out.plus(g[i])
	}
	return out
}

// port is where the generator lets a port lie in its block of 64 words: 6 bits of the word
// are the highest of one number, those of the bit the lowest of another.
func (g *tausworthe) port(second bool) (place [12]form) {
	word, bit := g.next(), register{}
	if second {
		bit, word = word, g.next()
	} else {
		bit = g.next()
	}
	copy(place[:6], bit[:6])
	copy(place[6:], word[26:])
	return place
}

// foretell solves for the generator's state by where ports were seen, and returns where
// the next ones will be. fits reports whether all that was seen is of one state. second tells
// that the word of a port is drawn second.
func foretell(seen []uint16, n int, second bool) (next []uint16, fits bool) {
	g, fits := newTausworthe(), true
	type equation struct {
		form  form
		value uint16
	}
	var solved [128]equation // by the lowest bit of their form
	lowest := func(f form) int {
		if f[0] != 0 {
			return bits.TrailingZeros64(f[0])
		}
		return 64 + bits.TrailingZeros64(f[1])
	}
	for _, place := range seen {
		for i, f := range g.port(second) {
			e := equation{f, place >> i & 1}
			for e.form != (form{}) && solved[lowest(e.form)].form != (form{}) {
				known := solved[lowest(e.form)]
				e.form, e.value = e.form.plus(known.form), e.value^known.value
			}
			if e.form != (form{}) {
				solved[lowest(e.form)] = e
			} else if e.value != 0 {
				fits = false
			}
		}
	}
	var state form // bits that nothing depends on are 0
	for i := 127; i >= 0; i-- {
		if e := solved[i]; e.form.at(state) != e.value {
			state[i/64] |= 1 << (i % 64)
		}
	}
	for range n {
		var place uint16
		for i, f := range g.port(second) {
			place |= f.at(state) << i
		}
		next = append(next, place)
	}
	return next, fits
}

// TestProgramsAndEngineShareIdentifications: the programs number packets to one host one by
// one, whichever client or transport they are of, and go on where the engine has been.
func TestProgramsAndEngineShareIdentifications(t *testing.T) {
	r := newFlowRig(t, someSizes)
	other := netip.MustParseAddr("2001:db8:2::7")
	r.client(flowHost, 0)
	r.client(other, 0)
	send := func(p flowPacket) uint16 {
		t.Helper()
		var out []byte
		r.ns.Do(t, func() (err error) {
			o := ebpf.RunOptions{Data: p.frame(), DataOut: make([]byte, 256)}
			_, err = r.xdp.Run(&o)
			out = o.DataOut
			return err
		})
		if len(out) < 34 || out[14] != 0x45 {
			t.Fatalf("left as %x", out)
		}
		return binary.BigEndian.Uint16(out[18:])
	}
	elsewhere := outward(state.UDP, 5000, 53)
	elsewhere.peer = netip.MustParseAddr("198.51.100.10")
	want, there := r.IDs().Next(flowPool4.As4(), flowPeer.As4()), r.IDs().Next(flowPool4.As4(), elsewhere.peer.As4())
	for i := range uint16(20) {
		for _, transport := range allTransports {
			for _, host := range []netip.Addr{flowHost, other} {
				p := outward(transport, 5000+i, 53)
				p.host = host
				want++
				if got := send(p); got != want {
					t.Fatalf("%s of %s has %d, want %d", transport, host, got, want)
				}
			}
		}
		there++
		if got := send(elsewhere); got != there {
			t.Fatalf("to another host: %d, want %d", got, there)
		}
		want++
		if got := r.IDs().Next(flowPool4.As4(), flowPeer.As4()); got != want {
			t.Fatalf("the engine has %d, want %d", got, want)
		}
	}
}
