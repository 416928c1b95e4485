// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitbpf_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/siit/siitbpf"
	"github.com/isthmus-net/isthmus/translate/translatebpf/translatebpftest"
)

// Programs pass all packets while they are paused, and while no daemon is there.
func TestSIITAsleep(t *testing.T) {
	w := newSIITWorld(t)
	f := siitUsual(packet.ProtoUDP)
	both := func(at runtest.Hook, six, four string) {
		t.Helper()
		for _, one := range []struct {
			ip   []byte
			want string
		}{{w.packet6(f, 40), six}, {w.packet4(f, 40), four}} {
			if one.want == "asleep" {
				w.leaves(t, at, one.ip, one.want)
			} else {
				w.forwards(t, at, one.ip, one.want)
			}
		}
	}
	for _, at := range runtest.Hooks {
		both(at, "to4_forwarded", "to6_forwarded")
		w.fast.Pause()
		w.fast.Pause()
		both(at, "asleep", "asleep")
		w.fast.Beat(time.Hour) // the daemon lives, which is not what they wait for
		both(at, "asleep", "asleep")
		bad := w.choice.programs(w.Ports[4].Index)
		bad.LowestMTU = 1
		if err := w.fast.Set(bad); err == nil {
			t.Fatal("settings that cannot be were taken")
		}
		both(at, "asleep", "asleep")
		w.set(t, w.choice)
		both(at, "to4_forwarded", "to6_forwarded")
		w.fast.Beat(time.Second - fastpath.Monotonic()) // long ago, for any clock
		both(at, "asleep", "asleep")
		w.fast.Beat(time.Hour)
	}
}

// Mappings that come, go and move are those of the next packet.
func TestSIITMappingsMove(t *testing.T) {
	w := newSIITWorld(t, func(c *siitChoice) { c.mappings, c.pool4 = nil, nil })
	first, second := siitMapping("192.0.2.130", "2001:db8:1::5"), siitMapping("192.0.2.130", "2001:db8:1::6")
	wide := siitMapping("192.0.2.128/28", "2001:db8:1:7::/124")
	f := siitUsual(packet.ProtoTCP)
	out6 := func(from string) []byte {
		to := w.choice.engine.Translate.Prefixes[0].Embed(translatebpftest.ServerAddr)
		ip := packet.AppendIPv6Header(nil, packet.ProtoTCP, 64, 40, netip.MustParseAddr(from), to)
		return translatebpftest.Seal(append(ip, translatebpftest.Message(packet.ProtoTCP, 40, translatebpftest.ClientPort, translatebpftest.ServerPort)...))
	}
	for _, tt := range []struct {
		name     string
		mappings []translate.Mapping
		four     string
		six      map[string]string
	}{
		{"none", nil, "", map[string]string{"2001:db8:1::5": "source_unmapped"}},
		{"one", []translate.Mapping{first}, "to6_forwarded", map[string]string{"2001:db8:1::5": "to4_forwarded", "2001:db8:1::6": "source_unmapped"}},
		{"another", []translate.Mapping{second}, "to6_forwarded", map[string]string{"2001:db8:1::6": "to4_forwarded", "2001:db8:1::5": "source_unmapped"}},
		{"a wider one beside it", []translate.Mapping{second, wide}, "to6_forwarded", map[string]string{"2001:db8:1::6": "to4_forwarded", "2001:db8:1:7::2": "to4_forwarded"}},
		{"the wider one alone", []translate.Mapping{wide}, "to6_forwarded", map[string]string{"2001:db8:1::6": "source_unmapped", "2001:db8:1:7::2": "to4_forwarded"}},
		{"none again", nil, "", map[string]string{"2001:db8:1:7::2": "source_unmapped"}},
	} {
		for _, at := range runtest.Hooks {
			t.Run(string(at)+"/"+tt.name, func(t *testing.T) {
				c := w.choice
				c.mappings = tt.mappings
				w.set(t, c)
				if tt.four == "" {
					w.leaves(t, at, w.packet4(f, 40), "")
				} else {
					w.forwards(t, at, w.packet4(f, 40), tt.four)
				}
				for from, want := range tt.six {
					if want == "to4_forwarded" {
						w.forwards(t, at, out6(from), want)
					} else {
						w.leaves(t, at, out6(from), want)
					}
				}
			})
		}
	}
}

// Mappings of all lengths that there can be: the longest one counts.
func TestSIITLengths(t *testing.T) {
	var all []translate.Mapping
	base4, base6 := netip.MustParseAddr("192.0.2.130"), netip.MustParseAddr("2001:db8:1::82")
	for n := 32; n > 0; n-- {
		six, err := base6.Prefix(96 + n)
		if err != nil {
			t.Fatal(err)
		}
		four, err := base4.Prefix(n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, translate.Mapping{IPv4: four, IPv6: six})
	}
	w := newSIITWorld(t, func(c *siitChoice) { c.mappings, c.pool4 = all, nil })
	f := siitUsual(packet.ProtoUDP)
	for n := len(all); n > 0; n-- {
		c := w.choice
		c.mappings = slices.Clone(all[len(all)-n:])
		w.set(t, c)
		for _, at := range runtest.Hooks {
			// From an address without a mapping: sources of 0.0.0.0/1 have one.
			w.forwards(t, at, w.packet4(f, 40), "to6_forwarded")
			_, six := w.translateAt(t, at, w.Frame(w.packet6(f, 40)))
			w.equalOrPunt(t, six, w.packet6(f, 40))
		}
	}
	// And the shortest, that everything has.
	c := w.choice
	c.mappings = append(slices.Clone(all), siitMapping("0.0.0.0/0", "2001:db8:1::/96"))
	w.set(t, c)
	for _, at := range runtest.Hooks {
		w.forwards(t, at, translatebpftest.From4("10.1.1.1")(w.packet4(f, 40)), "to6_forwarded")
	}
}

// equalOrPunt is equal of a packet that was forwarded, and nothing of one that was not
// because its destination has a mapping, too.
func (w *siitWorld) equalOrPunt(t *testing.T, out, ip []byte) {
	t.Helper()
	news := w.counted(t)
	switch {
	case news["to4_forwarded"] == 1:
		w.equal(t, out, ip)
	case news["hairpin"] != 1:
		t.Errorf("counted: %v", news)
	}
}

// A flood of what the programs leave does not reach the engine whole. Traffic that is like any
// other does: so what is to be cut, and without a checksum where the engine translates that.
func TestSIITPuntLimit(t *testing.T) {
	for _, mode := range []translate.ZeroChecksum{translate.ZeroChecksumDrop, translate.ZeroChecksumCompute} {
		w := newSIITWorld(t, func(c *siitChoice) { c.rate, c.engine.Translate.UDPZeroChecksum = 1, mode }) // one in 67 ms
		f := siitUsual(packet.ProtoUDP)
		for _, tt := range []struct {
			ip     []byte
			reason string
			all    bool
		}{
			{translatebpftest.Put(6, 132)(w.packet6(f, 40)), "next_header", true},
			{translatebpftest.Header(6, 0x20)(w.packet4(f, 40)), "fragment", true},
			{translatebpftest.Put(7, 1)(w.packet6(f, 40)), "hop_limit_exceeded", false},
			{translatebpftest.Header(8, 1)(w.packet4(f, 40)), "hop_limit_exceeded", false},
			{translatebpftest.To6("2001:db8:64::192.0.2.147")(w.packet6(f, 40)), "hairpin", true},
			{translatebpftest.Header(6, 0)(w.packet4(f, 1300)), "to_be_cut", true},
			{translatebpftest.Header(6, 0x40)(w.packet4(f, 1470)), "too_big", false},
			{translatebpftest.Put(26, 0, 0)(w.packet4(f, 40)), "udp_zero_checksum", mode == translate.ZeroChecksumCompute},
		} {
			for _, at := range runtest.Hooks {
				w.flood(t, at, tt.ip, tt.reason, tt.all)
			}
		}
	}
}

// flood has programs leave a packet many times, all of them or not.
func (w *siitWorld) flood(t *testing.T, at runtest.Hook, ip []byte, reason string, all bool) {
	t.Helper()
	const n = 300
	dropped := 0
	for range n {
		if verdict, _ := w.translateAt(t, at, w.Frame(ip)); verdict == fastpath.Drop {
			dropped++
		}
	}
	news := w.counted(t)
	if news[reason]+news["punt_limit"] != n || news["punt_limit"] != uint64(dropped) {
		t.Errorf("%s: %v, %d dropped", at, news, dropped)
	}
	if all != (dropped == 0) {
		t.Errorf("%s of %s: %d of %d were dropped", at, reason, dropped, n)
	}
}

// A sample reports what was seen.
func TestSIITSamples(t *testing.T) {
	w := newSIITWorld(t)
	r, err := w.fast.Samples()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.SetDeadline(time.Now().Add(time.Minute))
	w.fast.Trace(1, 0)
	f := siitUsual(packet.ProtoUDP)
	for _, at := range runtest.Hooks {
		for _, tt := range []struct {
			ip   []byte
			want siitbpf.Reason
		}{{w.packet6(f, 40), siitbpf.To4Forwarded}, {w.packet4(f, 40), siitbpf.To6Forwarded}} {
			frame := w.Frame(tt.ip)
			w.translateAt(t, at, frame)
			record, err := r.Read()
			if err != nil {
				t.Fatal(err)
			}
			s, err := fastpath.ParseSample(record.RawSample)
			if err != nil {
				t.Fatal(err)
			}
			if siitbpf.Reason(s.Reason) != tt.want || s.Verdict != fastpath.Forward || s.Length != len(frame) {
				t.Errorf("at %s: %+v", at, s)
			}
			if diff := cmp.Diff(frame, s.Data); diff != "" {
				t.Errorf("at %s (-want +got):\n%s", at, diff)
			}
		}
	}
}
