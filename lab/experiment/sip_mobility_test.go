// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

// A call moves between links, softly and hard, and its figures are measured.
func TestSIPMoves(t *testing.T) {
	t.Parallel()
	x := sipMobility
	x.Needs = []string{"kamailio", "kamcmd"} // what adds a column
	runShort(t, x)
}

// Calls and registrations through each server, and calls that move at once.
func TestSIPLoad(t *testing.T) {
	t.Parallel()
	runShort(t, sipLoad)
}

// TestSIPMoveFigures reads moves at 100 ms from captures that were made up.
func TestSIPMoveFigures(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	from, to, peer := netip.MustParseAddr("10.0.1.2"), netip.MustParseAddr("10.0.2.2"), netip.MustParseAddr("10.0.16.2")
	sent := func(ms int, source, destination netip.Addr, payload []byte) seen {
		return seen{at(ms), netip.AddrPortFrom(source, 1), netip.AddrPortFrom(destination, 1), payload}
	}
	rtp := func(ms int, source, destination netip.Addr, number uint16) seen {
		return sent(ms, source, destination, append(binary.BigEndian.AppendUint16([]byte{0x80, 0}, number), make([]byte, 8)...))
	}
	sip := func(ms int, source, destination netip.Addr, line, cseq string) seen {
		return sent(ms, source, destination, fmt.Appendf(nil, "%s\r\nVia: SIP/2.0/UDP 10.0.2.2;branch=z9hG4bKx\r\nFrom: <sip:a@example.net>;tag=1\r\n"+
			"To: <sip:b@example.net>;tag=2\r\nCall-ID: x\r\nCSeq: %s\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n", line, cseq))
	}
	const invite, answer, bye = "INVITE sip:b@10.0.16.2 SIP/2.0", "SIP/2.0 200 OK", "BYE sip:a@10.0.2.2 SIP/2.0"
	signals := []seen{
		sip(20, to, peer, invite, "3 INVITE"), sip(30, peer, to, answer, "3 INVITE"),
		sip(101, to, peer, invite, "4 INVITE"), sip(120, peer, to, answer, "5 REGISTER"),
		sip(151, peer, to, answer, "4 INVITE"), sip(400, peer, to, bye, "1 BYE"),
	}
	up := []seen{rtp(90, from, peer, 65535), rtp(112, to, peer, 0), rtp(133, to, peer, 1), rtp(420, to, peer, 9)}
	for _, tt := range []struct {
		name    string
		ue      []seen
		kind    sipKind
		want    sipMove
		problem bool
	}{
		{
			"hard: what comes to the address that is gone does not count",
			append([]seen{rtp(95, peer, from, 7), rtp(115, peer, from, 8), rtp(135, peer, from, 9), rtp(165, peer, to, 10)}, signals...), sipHard,
			sipMove{invite: time.Millisecond, answer: 50 * time.Millisecond, down: sipGap{70 * time.Millisecond, 2, []uint16{8, 9}}, byeReceived: true}, false,
		},
		{
			"soft: it does, and once",
			append([]seen{rtp(95, peer, from, 7), rtp(115, peer, from, 8), rtp(135, peer, to, 9), rtp(136, peer, from, 9)}, signals...), sipSoft,
			sipMove{invite: time.Millisecond, answer: 50 * time.Millisecond, down: sipGap{longest: 20 * time.Millisecond}, byeReceived: true}, false,
		},
		{
			"the BYE goes to the old address",
			append([]seen{rtp(95, peer, from, 7), rtp(115, peer, to, 8), sip(400, peer, from, bye, "1 BYE")}, signals[:5]...), sipSoft,
			sipMove{invite: time.Millisecond, answer: 50 * time.Millisecond, down: sipGap{longest: 20 * time.Millisecond}}, false,
		},
		{"no media come any more", append([]seen{rtp(95, peer, from, 7)}, signals...), sipSoft, sipMove{}, true},
		{"no answer", append([]seen{rtp(95, peer, from, 7), rtp(115, peer, to, 8)}, signals[:4]...), sipSoft, sipMove{}, true},
		{"no re-INVITE", append([]seen{rtp(95, peer, from, 7), rtp(115, peer, to, 8)}, signals[:2]...), sipSoft, sipMove{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := sipTrace{ue: tt.ue, host: up, from: from, to: to, peer: peer, kind: tt.kind, change: at(100), settled: at(300)}.read()
			if (err != nil) != tt.problem {
				t.Fatal(err)
			}
			if !tt.problem {
				tt.want.up = sipGap{longest: 22 * time.Millisecond}
				if !reflect.DeepEqual(m, tt.want) {
					t.Errorf("%+v, want %+v", m, tt.want)
				}
			}
		})
	}
}

// TestSIPTheory says what theory allows a gap, in milliseconds.
func TestSIPTheory(t *testing.T) {
	const trip = 50 * time.Millisecond
	near := sipWorld{}
	for _, tt := range []struct {
		name        string
		c           sipCase
		least, most int64
	}{
		{"soft", sipCase{near, &sipHost{trip: trip}, sipSoft, nil}, 20, 20},
		{"hard", sipCase{near, &sipHost{trip: trip}, sipHard, nil}, 60, 80},
		{"the link has the round trip", sipCase{sipWorld{access: trip}, &sipHost{}, sipHard, nil}, 60, 80},
		{"and its router is not known", sipCase{sipWorld{access: trip}, &sipHost{}, sipCold, nil}, 120, 120},
		{"duplicate address detection", sipCase{near, &sipHost{trip: trip}, sipDuplicate, nil}, 1060, 2080},
		{"a lost carrier", sipCase{near, &sipHost{trip: trip}, sipCarrier, nil}, 60, 100},
		{"1 in 20 re-INVITEs is lost, which 95 % of moves do not see", sipCase{near, &sipHost{trip: trip, loss: 0.05}, sipHard, nil}, 60, 80},
		{"1 in 5", sipCase{near, &sipHost{trip: trip, loss: 0.2}, sipHard, nil}, 60, 580},
		{"1 in 2: four in a row", sipCase{near, &sipHost{trip: trip, loss: 0.5}, sipHard, nil}, 60, 7580},
		{"1 in 5, repeated sooner", sipCase{sipWorld{repeat: 80 * time.Millisecond}, &sipHost{trip: trip, loss: 0.2}, sipHard, nil}, 60, 160},
		{"1 in 5, latching", sipCase{near, &sipHost{trip: trip, loss: 0.2, latch: true}, sipHard, nil}, 60, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if least, most := tt.c.theory(); least.Milliseconds() != tt.least || most.Milliseconds() != tt.most {
				t.Errorf("%v to %v", least, most)
			}
		})
	}
}

func TestWithin(t *testing.T) {
	var values []float64
	for i := range 60 {
		values = append(values, float64(60-i))
	}
	if a, b, c := within(values, 95), within(values, 99), within(values[:1], 95); a != 57 || b != 60 || c != 60 {
		t.Errorf("95 %% of 60 are within %v, 99 %% within %v, of one %v", a, b, c)
	}
}
