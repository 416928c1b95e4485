// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitbpf_test

import (
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/siit"
	"github.com/isthmus-net/isthmus/translate/siit/siitbpf"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
	"github.com/isthmus-net/isthmus/translate/translatebpf/translatebpftest"
)

// siitMappings are of lengths that put the suffix at all kinds of places of an address.
var siitMappings = []translate.Mapping{
	siitMapping("192.0.2.130", "2001:db8:1::5"),
	siitMapping("192.0.2.131", "2001:db8:2::5"),          // behind a link of 1280
	siitMapping("192.0.2.136/29", "2001:db8:1:20::/125"), // at the end
	siitMapping("192.0.2.144/28", "2001:db8:1:1::/120"),  // in the lower half
	siitMapping("192.0.2.152/29", "2001:db8:1:18::/61"),  // at the end of the upper half; within another
	siitMapping("192.0.2.160/29", "2001:db8:1:30::/60"),  // further up
	siitMapping("192.0.2.168/29", "2001:db8:1:10::/62"),  // across both halves
	siitMapping("198.51.100.128/25", "2001:db8:3::/64"),  // of the other side, too
	siitMapping("198.51.100.200", "2001:db8:64:1::c8/128"),
	siitMapping("192.0.2.132", "2001:db8:64::cb00:7109"), // inside of a prefix
	siitMapping("192.0.2.180", "::ffff:0:c000:2b4"),      // of the first addresses; without a route
}

// siitPool4 are addresses of hosts whose addresses are made by the first prefix.
var siitPool4 = netip.MustParsePrefix("192.0.2.176/28")

func siitMapping(ipv4, ipv6 string) translate.Mapping {
	m, err := translate.ParseMapping(ipv4, ipv6)
	if err != nil {
		panic(err)
	}
	return m
}

// siitChoice is a configuration of engine and programs.
type siitChoice struct {
	engine   siit.Settings
	pool4    []netip.Prefix
	mappings []translate.Mapping
	overlap  bool
	rate     int
}

// siitWorld is a stateless translator on a host with routes.
type siitWorld struct {
	translatebpftest.Host
	fast   *siitbpf.Path
	engine *siit.Engine
	choice siitChoice
}

// newSIITWorld makes the translator. change sees the configuration before it is set.
func newSIITWorld(t testing.TB, change ...func(*siitChoice)) *siitWorld {
	t.Helper()
	w := &siitWorld{Host: translatebpftest.NewHost(t)}
	var err error
	if w.fast, err = siitbpf.Load(siitbpf.Config{Name: "test"}); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := w.fast.Close(); err != nil {
			t.Error(err)
		}
	})
	c := siitChoice{pool4: []netip.Prefix{siitPool4}, mappings: siitMappings, overlap: true}
	for _, p := range translatebpftest.Pool6 {
		prefix, err := translate.NewPrefix(p)
		if err != nil {
			t.Fatal(err)
		}
		c.engine.Translate.Prefixes = append(c.engine.Translate.Prefixes, prefix)
	}
	for _, f := range change {
		f(&c)
	}
	w.set(t, c)
	for _, p := range w.Ports[:4] {
		if err := w.fast.SetDevice(fastpath.Device{Index: p.Index, MAC: p.MAC, Frames: true, Packets: true}); err != nil {
			t.Fatal(err)
		}
	}
	w.arriveBy(t, false)
	w.fast.Beat(time.Hour)
	w.counted(t)
	return w
}

// arriveBy says whether frames of XDP, which come in by the loopback device, come from
// senders that leave checksums unfinished.
func (w *siitWorld) arriveBy(t testing.TB, partial bool) {
	t.Helper()
	if err := w.fast.SetDevice(fastpath.Device{Index: 1, MAC: w.Ports[0].MAC, Partial: partial}); err != nil {
		t.Fatal(err)
	}
}

// set gives programs and engine the same configuration.
func (w *siitWorld) set(t testing.TB, c siitChoice) {
	t.Helper()
	var err error
	if c.engine.Translate.Mappings, err = translate.NewTable(c.mappings, c.overlap); err != nil {
		t.Fatal(err)
	}
	if w.engine, err = siit.New(c.engine, rand.Reader); err != nil {
		t.Fatal(err)
	}
	if err := w.fast.Set(c.programs(w.Ports[4].Index)); err != nil {
		t.Fatal(err)
	}
	w.choice = c
}

// programs is the configuration in the programs' words.
func (c *siitChoice) programs(tunnel int) siitbpf.Settings {
	t := &c.engine.Translate
	s := siitbpf.Settings{
		Pool4: c.pool4, Mappings: c.mappings, SimpleHairpin: t.Hairpin == translate.HairpinSimple,
		MTU4: c.engine.MTU4, MTU6: c.engine.MTU6, LowestMTU: t.LowestIPv6MTU,
		ZeroClass: t.ZeroTrafficClass, FixedTOS: t.FixedTOS, TOS: t.TOS, Unsummed: t.UDPZeroChecksum != translate.ZeroChecksumDrop,
		Tunnel: tunnel, PuntRate: c.rate, PuntShare: c.rate,
	}
	for _, p := range t.Prefixes {
		s.Pool6 = append(s.Pool6, translatebpf.Prefix{Prefix: p.Prefix(), Strict: p.WellKnown() && !t.NonGlobal})
	}
	return s
}

// siitFlow is who speaks to whom: a host of ours, by its IPv4 address, and another.
type siitFlow struct {
	proto6 byte
	prefix int // the other's
	ours   netip.Addr
	other  netip.Addr
}

// siitUsual is the usual flow of a protocol.
func siitUsual(proto6 byte) siitFlow {
	return siitFlow{proto6: proto6, ours: netip.MustParseAddr("192.0.2.130"), other: translatebpftest.ServerAddr}
}

func (f siitFlow) proto4() byte {
	if f.proto6 == packet.ProtoICMPv6 {
		return 1
	}
	return f.proto6
}

// address6 is the IPv6 address of an IPv4 one, by mappings first.
func (w *siitWorld) address6(a netip.Addr, prefix int) netip.Addr {
	if six, ok := w.choice.engine.Translate.Mappings.To6(a); ok {
		return six
	}
	return w.choice.engine.Translate.Prefixes[prefix].Embed(a)
}

// packet6 makes a packet of our host with a message of n bytes.
func (w *siitWorld) packet6(f siitFlow, n int) []byte {
	to := w.choice.engine.Translate.Prefixes[f.prefix].Embed(f.other)
	ip := packet.AppendIPv6Header(nil, f.proto6, 64, n, w.address6(f.ours, 0), to)
	return translatebpftest.Seal(append(ip, translatebpftest.Message(f.proto6, n, translatebpftest.ClientPort, translatebpftest.ServerPort)...))
}

// packet4 makes a packet to our host, with DF.
func (w *siitWorld) packet4(f siitFlow, n int) []byte {
	ip := []byte{0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, f.proto4(), 0, 0}
	binary.BigEndian.PutUint16(ip[2:], uint16(20+n))
	ip = append(append(ip, f.other.AsSlice()...), f.ours.AsSlice()...)
	return translatebpftest.Seal4(translatebpftest.Seal(append(ip, translatebpftest.Message(f.proto4(), n, translatebpftest.ServerPort, translatebpftest.ClientPort)...)))
}

// translateAt gives a frame to the translating program of a hook.
func (w *siitWorld) translateAt(t testing.TB, at runtest.Hook, frame []byte) (fastpath.Verdict, []byte) {
	t.Helper()
	return w.Run(t, at, w.fast.Programs(), frame)
}

// counted returns the reasons that were counted since the last call.
func (w *siitWorld) counted(t testing.TB) map[string]uint64 {
	t.Helper()
	return w.Counted(t, w.fast)
}

// model is what the engine makes of a packet, with the identification that was chosen.
func (w *siitWorld) model(t testing.TB, ip []byte, id []byte) []byte {
	t.Helper()
	var out packet.Batch
	w.engine.Handle(ip, time.Now(), &out)
	if len(out.IP) != 1 {
		t.Fatalf("the engine makes %d packets of %x: %+v", len(out.IP), ip, w.engine.Stats())
	}
	if got := out.IP[0]; got[0]>>4 == 4 {
		copy(got[4:6], id)
		translatebpftest.Seal4(got)
	}
	return out.IP[0]
}

// equal fails unless a frame that left holds what the engine makes of the packet, to the
// gateway that the routes name.
func (w *siitWorld) equal(t testing.TB, got, ip []byte) {
	t.Helper()
	if len(got) < 34 {
		t.Fatalf("a frame of %d bytes left", len(got))
	}
	kind, to := uint16(0x0800), netip.AddrFrom4([4]byte(got[30:]))
	if got[14]>>4 == 6 {
		kind, to = 0x86dd, netip.AddrFrom16([16]byte(got[38:]))
	}
	if want := w.model(t, ip, got[18:20]); string(got[14:]) != string(want) {
		t.Errorf("of %x\nleft %x\nwant %x", ip, got[14:], want)
	}
	var best translatebpftest.Way
	for _, way := range translatebpftest.Ways {
		if p := netip.MustParsePrefix(way.To); p.Contains(to) {
			best = way
		}
	}
	if best.To == "" {
		t.Fatalf("there is no route to %s", to)
	}
	header := append(append([]byte{}, best.MAC...), w.Ports[best.Port].MAC...)
	if header = binary.BigEndian.AppendUint16(header, kind); string(got[:14]) != string(header) {
		t.Errorf("Ethernet header %x, want %x", got[:14], header)
	}
}

// forwards fails unless a packet leaves as the engine makes it, padded or not.
func (w *siitWorld) forwards(t *testing.T, at runtest.Hook, ip []byte, reason string) {
	t.Helper()
	for _, padding := range []int{0, 7} {
		verdict, out := w.translateAt(t, at, append(w.Frame(ip), make([]byte, padding)...))
		if diff := cmp.Diff(map[string]uint64{reason: 1}, w.counted(t)); diff != "" || verdict != fastpath.Forward {
			t.Fatalf("%s; counters (-want +got):\n%s", verdict, diff)
		}
		w.equal(t, out, ip)
	}
}

// leaves fails unless a packet passes as it came, counted by a reason; "": not at all.
func (w *siitWorld) leaves(t *testing.T, at runtest.Hook, ip []byte, reason string) {
	t.Helper()
	w.Leaves(t, at, w.fast, ip, reason)
}
