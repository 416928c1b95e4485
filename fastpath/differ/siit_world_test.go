// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/siit"
	"github.com/isthmus-net/isthmus/translate/siit/siitbpf"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
)

// siitWays are the routes of a stateless translator's host: those of a NAT64, and one to
// hosts whose addresses are made by a prefix.
var siitWays = append(slices.Clone(natWays), way{"2001:db8:64::c000:280/121", "2001:db8:f:1::2", mac(103), 2})

// siitWorld is one host whose programs and engine have the same configuration.
type siitWorld struct {
	t        testing.TB
	ns       *testutil.Netns
	ports    []*port
	fast     *siitbpf.Path
	settings siit.Settings
	engine   *siit.Engine
	partial  bool // frames of XDP may have checksums that are left to hardware
	out      packet.Batch
	counts   runtest.Counts
	count    int // of packets
}

func newSIITWorld(t testing.TB) *siitWorld {
	t.Helper()
	w := &siitWorld{t: t, ns: testutil.NewNetns(t), ports: natPorts()}
	w.ns.Do(t, func() error { return makeHost(w.ports, siitWays) })
	fast, err := siitbpf.Load(siitbpf.Config{Name: "differ"})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	w.fast = fast
	t.Cleanup(func() { fast.Close() })
	for _, p := range w.ports[:4] {
		if err := fast.SetDevice(fastpath.Device{Index: p.index, MAC: p.mac, Frames: true, Packets: true}); err != nil {
			t.Fatal(err)
		}
	}
	fast.Beat(time.Hour)
	return w
}

// settle gives engine and programs the same settings.
func (w *siitWorld) settle(c siitChoice) {
	w.t.Helper()
	var err error
	if c.settings.Translate.Mappings, err = translate.NewTable(c.mappings, true); err != nil {
		w.t.Fatal(err)
	}
	if w.engine, err = siit.New(c.settings, testRand()); err != nil {
		w.t.Fatal(err)
	}
	w.engine.SetIDs(w.fast.IDs())
	w.settings, w.partial = c.settings, c.partial
	if err := w.fast.Set(c.programs(w.ports[4].index)); err != nil {
		w.t.Fatal(err)
	}
	// Test runs of XDP come in by the loopback device.
	if err := w.fast.SetDevice(fastpath.Device{Index: 1, MAC: w.ports[0].mac, Partial: c.partial}); err != nil {
		w.t.Fatal(err)
	}
}

// siitChoice is a configuration.
type siitChoice struct {
	settings siit.Settings
	pool4    []netip.Prefix
	mappings []translate.Mapping
	partial  bool
	rate     int
}

// programs is what the programs must know of it.
func (c *siitChoice) programs(tunnel int) siitbpf.Settings {
	t := &c.settings.Translate
	s := siitbpf.Settings{
		Pool4: c.pool4, Mappings: c.mappings, SimpleHairpin: t.Hairpin == translate.HairpinSimple,
		MTU4: c.settings.MTU4, MTU6: c.settings.MTU6, LowestMTU: t.LowestIPv6MTU,
		ZeroClass: t.ZeroTrafficClass, FixedTOS: t.FixedTOS, TOS: t.TOS, Unsummed: t.UDPZeroChecksum != translate.ZeroChecksumDrop,
		Tunnel: tunnel, PuntRate: c.rate, PuntShare: c.rate / 2,
	}
	for _, p := range t.Prefixes {
		s.Pool6 = append(s.Pool6, translatebpf.Prefix{Prefix: p.Prefix(), Strict: p.WellKnown() && !t.NonGlobal})
	}
	return s
}

// runner runs the program of a hook.
func (w *siitWorld) runner(at runtest.Hook) *runtest.Runner {
	return runtest.NewRunner(at, w.fast.Programs(), w.ports[0].index, 1<<14)
}

// counted returns the reasons that were counted since the last call.
func (w *siitWorld) counted() (map[string]uint64, error) { return w.counts.Packets(w.fast) }

// check gives a frame to the programs and then to the engine.
func (w *siitWorld) check(r *runtest.Runner, frame []byte) (fastpath.Verdict, error) {
	given := slices.Clone(frame)
	// Counters cost more than a run: of one packet in eight it is told why it was punted.
	w.count++
	asked := w.count%8 == 0
	if asked {
		if _, err := w.counted(); err != nil {
			return 0, err
		}
	}
	res, err := r.Run(given)
	switch {
	case err != nil:
		return 0, err
	case !bytes.Equal(frame, given):
		return 0, fmt.Errorf("the test run changed its input")
	case res.Verdict == fastpath.Forward:
		return res.Verdict, w.forwarded(r.Hook, frame, res.Out)
	case res.Verdict == fastpath.Punt:
		return res.Verdict, w.punted(frame, res.Out, asked)
	}
	return res.Verdict, w.dropped(frame)
}

// feed gives a packet to the engine and returns what it sends, and whether it translated.
func (w *siitWorld) feed(ip []byte) (out [][]byte, translated bool) {
	w.out.Reset()
	before := w.engine.Stats()
	w.engine.Handle(ip, time.Now(), &w.out)
	after := w.engine.Stats()
	return w.out.IP, after.ToIPv4 != before.ToIPv4 || after.ToIPv6 != before.ToIPv6
}

// forwarded holds what left against what the engine sends.
func (w *siitWorld) forwarded(at runtest.Hook, frame, left []byte) error {
	if len(left) < ethLen+ip4Len {
		return fmt.Errorf("a frame of %d bytes left", len(left))
	}
	ip := slices.Clone(frame[ethLen:])
	if at == runtest.InXDP && w.partial {
		finishTransport(ip)
	}
	sent, translated := w.feed(ip)
	if len(sent) != 1 || !translated {
		return fmt.Errorf("forwarded as %x, but the engine sends %x: %v", left, sent, w.why())
	}
	kind, to, err := samePacket(left[ethLen:], sent[0])
	if err != nil {
		return err
	}
	for _, r := range siitWays {
		if netip.MustParsePrefix(r.to).Contains(to) || netip.MustParseAddr(r.gateway) == to {
			if header := link(r, kind, nil); !bytes.Equal(left[:ethLen], header) {
				return fmt.Errorf("Ethernet header %x, want %x", left[:ethLen], header)
			}
			if mtu := w.ports[r.port].mtu; len(sent[0]) > mtu {
				return fmt.Errorf("%d bytes left by a link of %d", len(sent[0]), mtu)
			}
			return nil
		}
	}
	return fmt.Errorf("forwarded to %s, where no route leads", to)
}

// untranslatable are reasons of punts for which the engine drops, whatever else it sees.
var untranslatable = map[string]bool{
	"illegal_address": true, "source_unmapped": true, "destination_unmapped": true,
	"well_known_prefix_non_global": true, "hop_limit_exceeded": true, "icmp_type": true,
}

// punted checks that a frame is untouched, and if it is asked that the engine does not
// translate what it cannot.
func (w *siitWorld) punted(frame, left []byte, asked bool) error {
	if !bytes.Equal(frame, left) {
		return fmt.Errorf("a punted frame was changed to %x", left)
	}
	if !asked {
		return nil
	}
	news, err := w.counted()
	for why := range news {
		if !untranslatable[why] {
			continue
		}
		sent, translated := w.feed(frame[ethLen:])
		if why == "illegal_address" && slices.ContainsFunc(append(sent, frame[ethLen:]), hasAssignment) {
			continue
		}
		if translated {
			return fmt.Errorf("punted for %s, but the engine sends %x", why, sent)
		}
	}
	return err
}

// hasAssignment reports whether an IPv4 packet has an address of 192.0.0.0/24, of which the
// engine alone knows what is forwarded.
func hasAssignment(ip []byte) bool {
	assignments := [3]byte{192}
	return ip[0]>>4 == 4 && ([3]byte(ip[12:]) == assignments || [3]byte(ip[16:]) == assignments)
}

// dropped checks that the engine drops a packet too.
func (w *siitWorld) dropped(frame []byte) error {
	news, err := w.counted()
	if err != nil || news["punt_limit"] > 0 {
		return err
	}
	ip := frame[ethLen:]
	if news["bad_header_checksum"] == 0 || packet.Fold(packet.Sum(0, ip[:ip4Len])) == 0xffff {
		return fmt.Errorf("dropped for %v", news)
	}
	if sent, _ := w.feed(ip); len(sent) != 0 {
		return fmt.Errorf("dropped, but the engine sends %x", sent)
	}
	return nil
}

// why lists the engine's drops so far.
func (w *siitWorld) why() (list []string) {
	stats := w.engine.Stats()
	stats.EachDropped(func(reason string, n uint64) {
		if n > 0 {
			list = append(list, fmt.Sprintf("%s %d", reason, n))
		}
	})
	return list
}

// kindOf is the EtherType of a packet.
func kindOf(ip []byte) uint16 {
	if ip[0]>>4 == 4 {
		return etherIPv4
	}
	return etherIPv6
}

// samePacket compares a packet that the programs send with the engine's, whose
// identification is the next one. It returns EtherType and destination.
func samePacket(left, sent []byte) (kind uint16, to netip.Addr, err error) {
	got, want := slices.Clone(left), slices.Clone(sent)
	kind = kindOf(got)
	if kind == etherIPv4 {
		if packet.Fold(packet.Sum(0, got[:ip4Len])) != 0xffff {
			return kind, to, fmt.Errorf("wrong header checksum: %x", got)
		}
		to = netip.AddrFrom4([4]byte(got[16:]))
		if err := maskIDs(got, want, 1); err != nil {
			return kind, to, err
		}
	} else {
		to = netip.AddrFrom16([16]byte(got[24:]))
	}
	if !bytes.Equal(got, want) {
		return kind, to, fmt.Errorf("packets differ:\n got %x\nwant %x", got, want)
	}
	return kind, to, nil
}
