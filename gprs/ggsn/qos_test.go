// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"cmp"
	"encoding/hex"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// TestNegotiate lowers profiles of each release, at the length they came in.
func TestNegotiate(t *testing.T) {
	for _, tt := range []struct {
		name, asked string
		most        Rates
		want        string // empty: as it is asked for
		upgraded    string // if that may be; empty: as else
	}{
		{"release 97, within", "01 0b3211", Rates{2048, 2048}, "01 0b3211", "01 0b9211"},
		{"release 97, lowered", "01 0b9211", Rates{100, 200}, "01 0b5211", ""},
		{"release 97, subscribed", "01 0b0211", Rates{4, 4}, "01 0b1211", ""},
		{"release 97, one direction free", "01 0b9211", Rates{100, 0}, "01 0b9211", ""},
		{"release 99, subscribed", "01 0b921f 71960000 7404 0000", Rates{64, 128}, "01 0b921f 71964048 7404 0000", ""},
		{"release 99, guaranteed too", "01 0b921f 51966868 7404 6868", Rates{64, 0}, "01 0b921f 51964068 7404 4068", ""},
		{"release 5, extended down", "01 0b921f 7196fefe 7404 0000 00 4a00", Rates{0, 10_000}, "01 0b921f 7196fefe 7404 0000 00 0e00", ""},
		{"release 7, extended both ways", "01 0b921f 7196fefe 7404 0000 00 fa00 fa00", Rates{8640, 100_000}, "01 0b921f 7196fefe 7404 0000 00 9e00 0000", ""},
		{"release 9, extended twice", "01 0b921f 7196fefe 7404 0000 00 fa00 fa00 f600 f600", Rates{1_000_000, 300_000}, "01 0b921f 7196fefe 7404 0000 00 fa00 fa00 0b00 6f00", ""},
		{"release 99, within", "01 0b921f 71961010 7404 0000", Rates{64, 128}, "", "01 0b921f 71964048 7404 0000"},
		{"no traffic stays none", "01 0b921f 7196ff10 7404 0000", Rates{64, 0}, "", ""},
		{"guaranteed rates are as asked for", "01 0b921f 51961010 7404 1010", Rates{64, 128}, "", ""},
		{"what the length has no octets for", "01 0b921f 71961010 7404 0000", Rates{20_000, 10}, "01 0b921f 7196100a 7404 0000", "01 0b921f 7196fe0a 7404 0000"},
		{"longer than release 97", "01 0b921f 71", Rates{100, 200}, "01 0b521f 71", ""},
		{"one octet short of release 99", "01 0b921f 7196fefe 740400", Rates{100, 200}, "01 0b521f 7196fefe 740400", ""},
		{"half an extension down", "01 0b921f 7196fefe 7404 0000 00 fa", Rates{0, 20_000}, "01 0b921f 7196fefe 7404 0000 00 4e", ""},
		{"half an extension up", "01 0b921f 7196fefe 7404 0000 00 fa00 fa", Rates{20_000, 0}, "01 0b921f 7196fefe 7404 0000 00 fa00 4e", ""},
		{"the first octet of the second extension", "01 0b921f 7196fefe 7404 0000 00 fa00 fa00 3d", Rates{0, 300_000}, "01 0b921f 7196fefe 7404 0000 00 fa00 fa00 0b", ""},
		{"two octets", "01 0b921f 7196fefe 7404 0000 00 fa00 fa00 3d00", Rates{0, 300_000}, "01 0b921f 7196fefe 7404 0000 00 fa00 fa00 0b00", ""},
		{"three octets", "01 0b921f 7196fefe 7404 0000 00 fa00 fa00 3d00 3d", Rates{300_000, 300_000}, "01 0b921f 7196fefe 7404 0000 00 fa00 fa00 0b00 0b", ""},
	} {
		q, want := mustQoS(t, tt.asked), cmp.Or(tt.want, tt.asked)
		if got := negotiate(q, tt.most, false); got != mustQoS(t, want) {
			t.Errorf("%s: %x, want %s", tt.name, got.Octets(), want)
		}
		if got, want := negotiate(q, tt.most, true), cmp.Or(tt.upgraded, want); got != mustQoS(t, want) {
			t.Errorf("%s, upgraded: %x, want %s", tt.name, got.Octets(), want)
		}
	}
}

func mustQoS(t *testing.T, text string) gtp.QoS {
	t.Helper()
	var octets []byte
	for _, c := range text {
		if c != ' ' {
			octets = append(octets, byte(c))
		}
	}
	b, err := hex.DecodeString(string(octets))
	if err != nil {
		t.Fatal(err)
	}
	return qosOf(b...)
}

// limited is a world whose access points have limits.
func limited(t *testing.T, change func(*APN)) *world {
	return newWorld(t, func(s *Settings) {
		for i := range s.APNs {
			s.APNs[i].Marks = DefaultMarks
			change(&s.APNs[i])
		}
	})
}

// second offers packets of 1000 octets each millisecond, 8000 kbit/s, for a second, and returns
// how many passed.
func (w *world) second(c context, down bool) (passed int) {
	for range 1000 {
		w.now = w.now.Add(time.Millisecond)
		if down {
			w.down(udp4(server, c.four(), 64, 1000-28))
			passed += len(w.out.UDP)
		} else {
			w.up(c, udp4(c.four(), server, 64, 1000-28))
			passed += len(w.out.IP)
		}
	}
	return passed
}

func profile(class gtp.TrafficClass, up, down gtp.BitRate) gtp.QoS {
	return gtp.Profile{Class: class, HandlingPriority: 1, MaxUp: up, MaxDown: down}.QoS(12)
}

// openAs makes a context with a profile.
func (w *world) openAs(n int, q gtp.QoS, change func(*gtp.CreateRequest)) context {
	w.Helper()
	m := w.createRequest(testIMSI(n), "internet", gtp.PDPTypeIPv4)
	m.TEIDData, m.TEIDControl, m.QoS = 0x1000+uint32(n), gtp.Some(0x2000+uint32(n)), q
	if change != nil {
		change(m)
	}
	c := w.create(m)
	if !c.Cause.Accepted() {
		w.Fatalf("create refused: %v", c.Cause)
	}
	return c
}

// TestUpgraded: an SGSN that can have more than it asks for gets it where the access point says so, at once, by a
// later request and after a change of the settings, and is held to it; others get what they ask for.
func TestUpgraded(t *testing.T) {
	for _, tt := range []struct {
		name  string
		may   bool
		flags gtp.CommonFlags
		want  gtp.BitRate
	}{
		{"both", true, gtp.FlagUpgradeQoS, 1600},
		{"the SGSN cannot", true, gtp.FlagDualAddressBearer, 768},
		{"the access point does not", false, gtp.FlagUpgradeQoS, 768},
		{"what must not be negotiated", true, gtp.FlagUpgradeQoS | gtp.FlagNoQoSNegotiation, 768},
	} {
		w := limited(t, func(a *APN) { a.MaxUp, a.MaxDown, a.UpgradeQoS = 1600, 1600, tt.may })
		asked := profile(gtp.ClassBackground, 768, 768)
		c := w.openAs(1, asked, func(m *gtp.CreateRequest) { m.CommonFlags = gtp.Some(tt.flags) })
		if got := c.QoS.Value.Profile().MaxUp; got != tt.want {
			t.Errorf("%s: granted %d, want %d", tt.name, got, tt.want)
		}
		if got, want := w.second(c, false), int(tt.want)*12/80; got < want-2 || got > want+2 {
			t.Errorf("%s: %d passed, want %d", tt.name, got, want)
		}
		e, lost, err := resume(t, w.e.settings, w.e.AppendState(nil), w.now, rand.NewChaCha8([32]byte{2}))
		if err != nil || lost != 0 {
			t.Fatal(lost, err)
		}
		w.e = e
		s := w.e.settings
		s.APNs = append([]APN(nil), s.APNs...)
		s.APNs[0].MaxUp, s.APNs[0].MaxDown = 3200, 3200
		if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
			t.Fatal(err)
		}
		if n := len(ofType(w.tick(time.Second), gtp.TypeUpdateRequest)); n != 0 != (tt.want == 1600) {
			t.Errorf("%s: %d requests after a change", tt.name, n)
		}
		m, r := w.updateRequest(0x7000), gtp.UpdateResponse{}
		m.QoS, m.CommonFlags = gtp.Some(asked), gtp.Some(tt.flags)
		w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, m, &r)
		if got := r.QoS.Value.Profile().MaxUp; got != 2*tt.want && tt.want == 1600 || tt.want == 768 && got != 768 {
			t.Errorf("%s: an update is granted %d", tt.name, got)
		}
	}
}

// TestPoliced: what is granted passes and a fifth of a second more at once, if there is a limit.
func TestPoliced(t *testing.T) {
	background := func(up, down gtp.BitRate) gtp.QoS { return profile(gtp.ClassBackground, up, down) }
	for _, tt := range []struct {
		name     string
		apn      APN
		asked    gtp.QoS
		change   func(*gtp.CreateRequest)
		up, down int // of 1000 packets of 8 kbit in a second
	}{
		{"no limit", APN{}, background(64, 64), nil, 1000, 1000},
		{"a limit", APN{MaxUp: 1600, MaxDown: 4000}, background(8640, 8640), nil, 240, 595}, // 3968 kbit/s is what a profile can say
		{"less is granted", APN{MaxUp: 4000, MaxDown: 4000}, background(800, 1600), nil, 115, 240},
		{"what must not be negotiated is held to the limit", APN{MaxUp: 1600, MaxDown: 1600}, background(8640, 8640), func(m *gtp.CreateRequest) {
			m.CommonFlags = gtp.Some(gtp.FlagNoQoSNegotiation)
		}, 240, 240},
		{"nothing at all is granted", APN{MaxUp: 1600, MaxDown: 1600}, background(gtp.RateZero, 1600), nil, 0, 240},
		{"peak throughput of release 97", APN{MaxUp: 2000, MaxDown: 10_000}, mustQoS(t, "01 0b8211"), nil, 153, 153},
		{"all together", APN{AMBRUp: 1600, AMBRDown: 4000}, background(8640, 8640), nil, 240, 600},
		{"all together, less is asked for", APN{AMBRUp: 1600, AMBRDown: 4000}, background(8640, 8640), func(m *gtp.CreateRequest) {
			m.AMBR = gtp.Some(gtp.AMBR{Up: 800, Down: 8000})
		}, 120, 600},
		{"guaranteed traffic is apart", APN{AMBRUp: 1600, AMBRDown: 1600}, profile(gtp.ClassStreaming, 8640, 8640), nil, 1000, 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := limited(t, func(a *APN) {
				a.MaxUp, a.MaxDown, a.AMBRUp, a.AMBRDown = tt.apn.MaxUp, tt.apn.MaxDown, tt.apn.AMBRUp, tt.apn.AMBRDown
			})
			c := w.openAs(1, tt.asked, tt.change)
			for _, dir := range []struct {
				down bool
				want int
			}{{false, tt.up}, {true, tt.down}} {
				if got := w.second(c, dir.down); got < dir.want-2 || got > dir.want+2 {
					t.Errorf("down %v: %d passed, want %d", dir.down, got, dir.want)
				}
			}
			dropped := uint64(2000 - tt.up - tt.down)
			if n := w.e.stats.Dropped[OverRate]; n+4 < dropped || n > dropped+4 {
				t.Errorf("%d dropped, want %d", n, dropped)
			}
			w.e.Contexts(Selection{}, 0, 10, func(x ContextInfo) bool {
				if x.OverUp+x.OverDown != w.e.stats.Dropped[OverRate] {
					t.Errorf("the context counts %d and %d", x.OverUp, x.OverDown)
				}
				return true
			})
		})
	}
}

// TestSubscriberPoliced holds a subscriber to rates of its own, where these are lower than those of the access
// point, and another one to what the access point has.
func TestSubscriberPoliced(t *testing.T) {
	w := newWorld(t, func(s *Settings) {
		s.APNs[0].MaxUp, s.APNs[0].MaxDown = 3200, 1600
		own := Service{APN: "internet", Rates: Rates{Up: 1600, Down: 3200}}
		s.Subscribers = subscribersOf(map[gtp.IMSI]Subscription{testIMSI(1): {APNs: []Service{own}}, testIMSI(2): {}})
	})
	for n, want := range map[int]struct{ granted, up, down int }{1: {1600, 240, 240}, 2: {3200, 480, 240}} {
		before := w.e.stats.Dropped[OverRate]
		c := w.openAs(n, profile(gtp.ClassBackground, 8640, 8640), nil)
		w.tick(time.Second)
		up, down := w.second(c, false), w.second(c, true)
		if up < want.up-3 || up > want.up+3 || down < want.down-3 || down > want.down+3 {
			t.Errorf("subscriber %d: %d up and %d down passed, want %d and %d", n, up, down, want.up, want.down)
		}
		if over := w.e.stats.Dropped[OverRate] - before; over != uint64(2000-up-down) {
			t.Errorf("subscriber %d: %d dropped over the rate, %d and %d passed", n, over, up, down)
		}
	}
}

// TestAMBRAnswered: who asks for rates of all contexts is told what they are.
func TestAMBRAnswered(t *testing.T) {
	w := limited(t, func(a *APN) { a.AMBRUp = 1600 })
	c := w.openAs(1, profile(gtp.ClassBackground, 64, 64), func(m *gtp.CreateRequest) {
		m.AMBR, m.EvolvedARP = gtp.Some(gtp.AMBR{Up: 5000, Down: 7000}), gtp.Some(gtp.MakeEvolvedARP(3, true, false))
	})
	if c.AMBR != gtp.Some(gtp.AMBR{Up: 1600, Down: 7000}) || c.EvolvedARP != gtp.Some(gtp.MakeEvolvedARP(3, true, false)) {
		t.Errorf("answered %+v, %+v", c.AMBR, c.EvolvedARP)
	}
	m := w.updateRequest(0x7000)
	m.AMBR = gtp.Some(gtp.AMBR{Up: 800, Down: 100})
	var r gtp.UpdateResponse
	w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, m, &r)
	if r.AMBR != m.AMBR {
		t.Errorf("answered %+v to an update", r.AMBR)
	}
	if got := w.second(c, false); got < 118 || got > 122 {
		t.Errorf("%d passed", got)
	}
}

// TestLimitsReloaded: SGSNs are asked for the profiles of other limits, which count at once, and of
// higher ones for no more than they once wanted.
func TestLimitsReloaded(t *testing.T) {
	w := limited(t, func(a *APN) { a.MaxUp, a.MaxDown = 4000, 4000 })
	c := w.openAs(1, profile(gtp.ClassBackground, 2000, 8640), nil)
	for _, tt := range []struct {
		limit    uint32
		up, down gtp.BitRate // asked for
		passed   int
	}{
		{1600, 1600, 1600, 240}, {3200, 1984, 3200, 297}, {0, 1984, 8640, 1000},
	} {
		s := w.e.settings
		s.APNs = append([]APN(nil), s.APNs...)
		s.APNs[0].MaxUp, s.APNs[0].MaxDown = tt.limit, tt.limit
		if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
			t.Fatal(err)
		}
		asked := ofType(w.tick(time.Second), gtp.TypeUpdateRequest)
		if len(asked) != 1 {
			t.Fatalf("%d kbit/s: %d requests", tt.limit, len(asked))
		}
		h, _ := gtp.ParseHeader(asked[0].Payload)
		var m gtp.UpdateRequest
		if _, err := w.codec.Parse(&h, &m); err != nil {
			t.Fatal(err)
		}
		if p := m.QoS.Value.Profile(); p.MaxUp != tt.up || p.MaxDown != tt.down {
			t.Errorf("%d kbit/s: asked for %d up, %d down", tt.limit, p.MaxUp, p.MaxDown)
		}
		w.raw(pathControl, w.encode(gtp.Header{Version: gtp.V1, TEID: c.TEIDControl.Value, HasSequence: true, Sequence: h.Sequence}, &gtp.UpdateResponse{Cause: gtp.CauseAccepted, QoS: m.QoS}))
		if got := w.second(c, false); got < tt.passed-3 || got > tt.passed+3 {
			t.Errorf("%d kbit/s: %d passed, want %d", tt.limit, got, tt.passed)
		}
		w.now = w.now.Add(time.Second)
		if more := ofType(w.tick(time.Minute), gtp.TypeUpdateRequest); len(more) != 0 {
			t.Errorf("%d kbit/s: %d more requests", tt.limit, len(more))
		}
	}
}

// TestRatesResumed: a restart gives no one a rate twice.
func TestRatesResumed(t *testing.T) {
	set := func(a *APN) { a.MaxUp, a.MaxDown, a.AMBRUp, a.AMBRDown = 1600, 1600, 8000, 8000 }
	w := limited(t, set)
	c := w.openAs(1, profile(gtp.ClassBackground, 8640, 8640), nil)
	w.second(c, false)
	w.second(c, true)
	e, lost, err := resume(t, w.e.settings, w.e.AppendState(nil), w.now, rand.NewChaCha8([32]byte{2}))
	if err != nil || lost != 0 {
		t.Fatal(lost, err)
	}
	w.e = e
	for _, down := range []bool{true, false} {
		if got := w.second(c, down); down && (got < 198 || got > 202) || !down && (got < 238 || got > 242) {
			t.Errorf("down %v: %d passed", down, got)
		}
	}
	if n := len(ofType(w.tick(time.Second), gtp.TypeUpdateRequest)); n != 0 {
		t.Errorf("%d requests for what has not changed", n)
	}
}

// TestMarks sees the code points of each class, outside and inside.
func TestMarks(t *testing.T) {
	interactive := func(priority uint8) gtp.QoS {
		return gtp.Profile{Class: gtp.ClassInteractive, HandlingPriority: priority}.QoS(12)
	}
	for _, tt := range []struct {
		name string
		qos  gtp.QoS
		want uint8
	}{
		{"conversational", profile(gtp.ClassConversational, 64, 64), 46},
		{"streaming", profile(gtp.ClassStreaming, 64, 64), 34},
		{"interactive 1", interactive(1), 26},
		{"interactive 2", interactive(2), 18},
		{"interactive 3", interactive(3), 10},
		{"interactive, priority subscribed", interactive(0), 10},
		{"background", profile(gtp.ClassBackground, 64, 64), 0},
		{"subscribed", profile(gtp.ClassSubscribed, 64, 64), 0},
		{"release 97, delay 1", mustQoS(t, "01 0b9211"), 26},
		{"release 97, delay 4", mustQoS(t, "01 239211"), 0},
	} {
		for _, inner := range []bool{false, true} {
			w := limited(t, func(a *APN) { a.MarkInner = inner })
			c := w.openAs(1, tt.qos, nil)
			p := udp4(server, c.four(), 64, 100)
			packet.SetDSCP(p, 40)
			want := uint8(40)
			if inner {
				want = tt.want
			}
			w.down(p)
			if _, ip := w.tunnelled(); w.out.UDP[0].Class>>2 != tt.want || ip[1]>>2 != want || packet.Fold(packet.Sum(0, ip[:20])) != 0xffff {
				t.Errorf("%s, inner %v: outside %d, inside %d", tt.name, inner, w.out.UDP[0].Class>>2, ip[1]>>2)
			}
			p = udp4(c.four(), server, 64, 100)
			packet.SetDSCP(p, 40)
			w.up(c, p)
			if got := w.out.IP[0][1] >> 2; got != want {
				t.Errorf("%s, inner %v: to the network %d", tt.name, inner, got)
			}
		}
	}
}

// TestUniform has one code point inside and outside, in both directions.
func TestUniform(t *testing.T) {
	w := limited(t, func(a *APN) { a.Uniform = true })
	c := w.openAs(1, profile(gtp.ClassConversational, 64, 64), nil)
	p := udp4(server, c.four(), 64, 100)
	packet.SetTrafficClass(p, 40<<2|packet.ECT1)
	w.down(p)
	if _, ip := w.tunnelled(); w.out.UDP[0].Class != 40<<2|packet.ECT1 || ip[1] != 40<<2|packet.ECT1 {
		t.Errorf("outside %#x, inside %#x", w.out.UDP[0].Class, ip[1])
	}
	w.class = 18<<2 | packet.NotECT
	p = udp4(c.four(), server, 64, 100)
	packet.SetTrafficClass(p, 40<<2|packet.ECT1)
	w.up(c, p)
	if got := w.out.IP[0]; got[1] != 18<<2|packet.ECT1 || !right4(got) {
		t.Errorf("to the network %#x", got[1])
	}
}

// TestECN: fields go outside and come back inside, by the tables of RFC 6040 sections 4.1 and 4.2, the second
// of which TestEmerge has whole.
func TestECN(t *testing.T) {
	for _, clear := range []bool{false, true} {
		w := newWorld(t, func(s *Settings) {
			for i := range s.APNs {
				s.APNs[i].Marks, s.APNs[i].ClearECN = DefaultMarks, clear
			}
		})
		four, six := w.openAs(1, profile(gtp.ClassConversational, 64, 64), nil), w.open(2, "inet6", gtp.PDPTypeIPv6)
		for field := range packet.ECN + 1 {
			want := field
			if clear {
				want = packet.NotECT
			}
			p, q := udp4(server, four.four(), 64, 8), udp6(host6, six.six(), 64, 8)
			packet.SetTrafficClass(p, field)
			packet.SetTrafficClass(q, field)
			w.down(p)
			if _, ip := w.tunnelled(); w.out.UDP[0].Class != 46<<2|want || ip[1] != field {
				t.Errorf("IPv4, clear %v: outside %#x, inside %#x", clear, w.out.UDP[0].Class, ip[1])
			}
			w.down(q)
			if _, ip := w.tunnelled(); w.out.UDP[0].Class&packet.ECN != want || packet.TrafficClass(ip) != field {
				t.Errorf("IPv6, clear %v: outside %#x, inside %#x", clear, w.out.UDP[0].Class, packet.TrafficClass(ip))
			}
		}
		for _, tt := range []struct{ inner, outer, want uint8 }{
			{packet.NotECT, packet.NotECT, packet.NotECT}, {packet.ECT0, packet.NotECT, packet.ECT0},
			{packet.ECT0, packet.CE, packet.CE}, {packet.ECT0, packet.ECT1, packet.ECT1}, {packet.CE, packet.ECT0, packet.CE},
		} {
			w.class = 63<<2 | tt.outer
			for _, one := range []struct {
				c context
				p []byte
			}{{four, udp4(four.four(), server, 64, 8)}, {six, udp6(six.six(), host6, 64, 8)}} {
				packet.SetTrafficClass(one.p, 10<<2|tt.inner)
				w.up(one.c, one.p)
				if len(w.out.IP) != 1 || packet.TrafficClass(w.out.IP[0]) != 10<<2|tt.want {
					t.Errorf("inside %02b, outside %02b: %x", tt.inner, tt.outer, w.out.IP)
				}
			}
		}
	}
}

// TestECNLost: congestion that a transport knows by loss alone is a loss, which no account counts; pairs that no
// tunnel makes are counted, and pass.
func TestECNLost(t *testing.T) {
	w := newWorld(t, nil)
	four, six := w.open(1, "internet", gtp.PDPTypeIPv4), w.open(2, "inet6", gtp.PDPTypeIPv6)
	w.class = packet.CE
	w.up(four, udp4(four.four(), server, 64, 8))
	w.up(six, udp6(six.six(), host6, 64, 8))
	if len(w.out.IP) != 0 || w.e.stats.Dropped[Congestion] != 2 || w.e.stats.Up.Packets != 0 {
		t.Errorf("%d packets, %d dropped, %d counted", len(w.out.IP), w.e.stats.Dropped[Congestion], w.e.stats.Up.Packets)
	}
	w.class = packet.ECT0
	w.up(four, udp4(four.four(), server, 64, 8))
	if len(w.out.IP) != 1 || packet.TrafficClass(w.out.IP[0]) != packet.NotECT || w.e.stats.ECNOdd != 1 {
		t.Errorf("%x, %d odd", w.out.IP, w.e.stats.ECNOdd)
	}
}

// TestECNBetweenTerminals: what one G-PDU has met the next one tells.
func TestECNBetweenTerminals(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.APNs[0].UserToUser = UserAllow })
	one, two := w.open(1, "internet", gtp.PDPTypeIPv4), w.open(2, "internet", gtp.PDPTypeIPv4)
	p := udp4(one.four(), two.four(), 64, 8)
	packet.SetTrafficClass(p, packet.ECT0)
	w.class = packet.CE
	w.up(one, p)
	if _, ip := w.tunnelled(); len(w.out.UDP) != 1 || w.out.UDP[0].Class != packet.CE || packet.TrafficClass(ip) != packet.CE {
		t.Errorf("%+v", w.out.UDP)
	}
}
