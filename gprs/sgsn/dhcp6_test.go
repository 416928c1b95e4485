// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/packet"
)

const otherRA = 0x40 // the O flag

// informing opens a context whose router says that there is more by DHCP.
func informing(t *testing.T, v gtp.Version) (w *world, key gtp.TID) {
	t.Helper()
	w = newWorld(t, Settings{})
	key = w.attach(v, gtp.PDPTypeIPv6)
	r := defaultRA()
	r.bitsOfRouter, r.servers = otherRA, nil
	w.advertise(key, r)
	w.clear()
	return w, key
}

// due lets time pass until something is sent.
func (w *world) due() {
	w.t.Helper()
	for w.clear(); len(w.out.UDP) == 0; w.e.Tick(w.now, &w.out) {
		if w.now = w.e.Next(); w.now.IsZero() {
			w.t.Fatal("nothing is due")
		}
	}
}

// question returns the next question of the terminal, checked, with how long it says to have
// asked.
func (w *world) question() (q packet.IPv6, elapsed time.Duration) {
	w.t.Helper()
	_, h := w.next()
	q, _, ok := packet.ParseIPv6(slices.Clone(h.Payload))
	m := q.Payload()
	if !ok || q.NextHeader() != packet.ProtoUDP || q.Src() != linkLocal || q.Dst() != netip.MustParseAddr("ff02::1:2") ||
		packet.Checksum(q.SrcBytes(), q.DstBytes(), packet.ProtoUDP, m) != 0 || binary.BigEndian.Uint32(m) != 546<<16|547 || m[8] != 11 {
		w.t.Fatalf("no question: %x", h.Payload)
	}
	const want = "0001 0012 0004 42000121436580008087f90000000000" + "0008 0002 0000" + "0006 0008 0017 0018 0020 0053"
	b, _ := hex.DecodeString(strings.ReplaceAll(want, " ", ""))
	got := slices.Clone(m[12:])
	elapsed = time.Duration(binary.BigEndian.Uint16(got[26:])) * 10 * time.Millisecond
	clear(got[26:28])
	if !slices.Equal(got, b) {
		w.t.Errorf("options %x", got)
	}
	return q, elapsed
}

// TestInformation asks the router of this project, which answers, and asks again when that is due
// (RFC 8415 sections 18.2.6, 18.2.10.4 and 21.23).
func TestInformation(t *testing.T) {
	for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
		w, key := informing(t, v)
		w.none()
		server := netip.MustParseAddr("2001:db8::53")
		r, err := link.New(link.Settings{MTU: 1400, DNS: []netip.Addr{server}, Domains: []string{"lab.example", "example.com"}, DHCP: true, Refresh: 2 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			w.due()
			q, elapsed := w.question()
			id := linkLocal.As16()
			answer, verdict := r.Answer(nil, link.Link{ID: binary.BigEndian.Uint64(id[8:])}, new(link.State), q, w.now)
			if verdict != link.DHCPReplied || elapsed != 0 {
				t.Fatalf("%v, asked for %v", verdict, elapsed)
			}
			w.down(key, answer)
			if i := w.info(key); !slices.Equal(i.DNS, []netip.Addr{server}) || !slices.Equal(i.Domains, []string{"lab.example", "example.com"}) {
				t.Errorf("%+v", i)
			}
			w.clear()
			w.wait(2*time.Hour - 1)
			w.none()
		}
		ra := defaultRA()
		ra.bitsOfRouter, ra.servers = otherRA, []netip.Addr{netip.MustParseAddr("2001:db8::54"), server}
		w.advertise(key, ra)
		if i := w.info(key); !slices.Equal(i.DNS, []netip.Addr{server, ra.servers[0]}) {
			t.Errorf("name servers %v", i.DNS)
		}
		if w.e.stats.InformationRequests != 3 || w.e.stats.InformationReplies != 3 {
			t.Errorf("%+v", w.e.stats)
		}
		w.e.Abandon(w.now, &w.out)
		w.empty()
	}
}

// TestInformationRepeated asks again, each time after about twice as long, up to the longest
// interval (RFC 8415 section 15), as the same exchange.
func TestInformationRepeated(t *testing.T) {
	w, _ := informing(t, gtp.V1)
	var first []byte
	began, last, want := time.Time{}, time.Time{}, time.Duration(0)
	for n := range 20 {
		w.due()
		q, elapsed := w.question()
		switch m := q.Payload()[8:12]; n {
		case 0:
			first, began = slices.Clone(m), w.now
		default:
			if !slices.Equal(m, first) {
				t.Errorf("%d: transaction %x, was %x", n, m, first)
			}
			waited := w.now.Sub(last)
			if low, high := max(want-want/10-1, 0), want+want/10+1; waited < low || waited > high {
				t.Errorf("%d: after %v, not %v", n, waited, want)
			}
			if told := min(w.now.Sub(began), longestElapsed); told-elapsed < 0 || told-elapsed >= 10*time.Millisecond {
				t.Errorf("%d: says %v of %v", n, elapsed, told)
			}
		}
		want = infTimeout
		if n > 0 {
			// The jitter of earlier intervals is part of the next.
			want = min(2*w.now.Sub(last), time.Hour)
		}
		last = w.now
	}
}

// replied is an answer that a test varies: octets behind the header.
func (w *world) replied(q packet.IPv6, kind byte, options string) packet.IPv6 {
	w.t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(options, " ", ""))
	if err != nil {
		w.t.Fatal(err)
	}
	p := packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, 0, router, q.Src())
	p = append(p, 547>>8, 547&0xff, 546>>8, 546&0xff, 0, 0, 0, 0, kind)
	p = append(append(p, q.Payload()[9:12]...), b...)
	packet.FillUDP(p)
	return p
}

// TestInformationReplies takes those that are right, and goes on asking after others (RFC 8415
// sections 16.10 and 18.2.10).
func TestInformationReplies(t *testing.T) {
	const (
		server  = "0002 0003 000301"
		dns     = "0017 0010 20010db8000000000000000000000053"
		domains = "0018 0009 07 6578616d706c65 00"
	)
	for _, row := range []struct {
		name    string
		options string // CLIENT stands for the client's
		change  func(p packet.IPv6)
		taken   bool
		again   time.Duration // when it is asked again, if it was taken
		dropped bool
		passed  bool // to the stack behind the link
	}{
		{"all of it", "CLIENT" + server + dns + domains, nil, true, 24 * time.Hour, false, false},
		{"with a time to ask again", "CLIENT" + server + dns + "0020 0004 00000e10", nil, true, time.Hour, false, false},
		{"too soon", "CLIENT" + server + dns + "0020 0004 00000001", nil, true, 10 * time.Minute, false, false},
		{"never again", "CLIENT" + server + dns + "0020 0004 ffffffff", nil, true, 0, false, false},
		{"unknown options", "CLIENT" + server + "ffff 0001 00" + dns, nil, true, 24 * time.Hour, false, false},
		{"no server", "CLIENT" + dns, nil, false, 0, true, false},
		{"no client", server + dns, nil, false, 0, true, false},
		{"for another client", "0001 0003 000301" + server + dns, nil, false, 0, true, false},
		{"an option beyond the end", "CLIENT" + server + "0017 0020 20010db8", nil, false, 0, true, false},
		{"half an address", "CLIENT" + server + "0017 0008 20010db800000000", nil, false, 0, true, false},
		{"a name beyond its option", "CLIENT" + server + "0018 0003 07 6578", nil, false, 0, true, false},
		{"a compressed name", "CLIENT" + server + "0018 0002 c00c", nil, false, 0, true, false},
		{"a failure", "CLIENT" + server + "000d 0002 0001" + dns, nil, false, 0, true, false},
		{"another checksum", "CLIENT" + server + dns, func(p packet.IPv6) { p[46] ^= 1 }, false, 0, true, false},
		{"no checksum", "CLIENT" + server + dns, func(p packet.IPv6) { p[46], p[47] = 0, 0 }, false, 0, true, false},
		{"of another transaction", "CLIENT" + server + dns, func(p packet.IPv6) { p[49] ^= 1 }, false, 0, false, true},
		{"an advertise", "CLIENT" + server + dns, func(p packet.IPv6) { p[48] = 2 }, false, 0, false, true},
		{"to another port", "CLIENT" + server + dns, func(p packet.IPv6) { p[43]++ }, false, 0, false, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, key := informing(t, gtp.V1)
			w.due()
			q, _ := w.question()
			client := hex.EncodeToString(q.Payload()[12 : 12+22])
			p := w.replied(q, 7, strings.ReplaceAll(row.options, "CLIENT", client))
			if row.change != nil {
				row.change(p)
			}
			w.clear()
			w.down(key, p)
			if taken := w.e.stats.InformationReplies == 1; taken != row.taken || len(w.info(key).DNS) > 0 != row.taken {
				t.Errorf("taken %t: %+v", taken, w.info(key))
			}
			passed := len(w.out.IP) == 1 && string(w.out.IP[0]) == string(p)
			if (w.drops("bad_dhcp_reply") == 1) != row.dropped || passed != row.passed {
				t.Errorf("dropped %d, passed %t", w.drops("bad_dhcp_reply"), passed)
			}
			if row.taken { // programs on the terminal's device hear of it
				w.hears(0)
			}
			due := &w.e.contexts[key].session.six.dhcp.timer
			switch next := due.At().Sub(w.now); {
			case !row.taken && (!due.IsSet() || next <= 0 || next > 2*infTimeout):
				t.Errorf("repeats after %v", next)
			case row.taken && row.again == 0 && due.IsSet(), row.taken && row.again != 0 && (!due.IsSet() || next != row.again):
				t.Errorf("asks again after %v", next)
			}
		})
	}
}

// TestInformationMaxRepeat: a server may bound the interval, also with an answer that says nothing
// else, within what makes sense (RFC 8415 sections 18.2.10 and 21.25).
func TestInformationMaxRepeat(t *testing.T) {
	for _, row := range []struct {
		seconds string
		want    time.Duration
	}{{"00000078", 2 * time.Minute}, {"0000003b", time.Hour}, {"00015181", time.Hour}} {
		w, key := informing(t, gtp.V1)
		w.due()
		q, _ := w.question()
		client := hex.EncodeToString(q.Payload()[12 : 12+22])
		w.down(key, w.replied(q, 7, client+"0002 0003 000301 000d 0002 0001 0053 0004"+row.seconds))
		w.wait(20 * time.Hour)
		w.due()
		if next := w.e.Next().Sub(w.now); next < row.want-row.want/10 || next > row.want+row.want/10 {
			t.Errorf("%s: repeats after %v", row.seconds, next)
		}
	}
}

// TestInformationManaged: that addresses are to be had by DHCP makes a terminal ask for information alone (RFC 6459 section
// 5.2, RFC 4861 section 4.2).
func TestInformationManaged(t *testing.T) {
	w := newWorld(t, Settings{})
	key := w.attach(gtp.V1, gtp.PDPTypeIPv6)
	r := defaultRA()
	r.bitsOfRouter = 0x80
	w.advertise(key, r)
	w.clear()
	w.due()
	w.question()
	w.none()
	if i := w.info(key); len(i.IPv6) != 1 || i.IPv6[0].Address != six {
		t.Errorf("addresses %v", i.IPv6)
	}
}

// TestInformationUnasked: without a flag nothing is asked, and what nobody asked for goes to the
// stack behind the link.
func TestInformationUnasked(t *testing.T) {
	w := newWorld(t, Settings{})
	key := w.online(gtp.V1)
	if w.e.contexts[key].session.six.dhcp.timer.IsSet() {
		t.Error("a question is due")
	}
	asked := append(packet.AppendIPv6Header(nil, packet.ProtoUDP, 1, 0, linkLocal, router), make([]byte, 12)...)
	w.down(key, w.replied(asked, 7, ""))
	if w.none(); len(w.out.IP) != 1 {
		t.Errorf("%d packets came", len(w.out.IP))
	}
}

// TestSearchList takes names of advertisements, too, behind those of DHCP, and none that would be
// more than a name in a file (RFC 8106 sections 5.2 and 5.3.1).
func TestSearchList(t *testing.T) {
	w := newWorld(t, Settings{})
	key := w.attach(gtp.V1, gtp.PDPTypeIPv6)
	r := defaultRA()
	r.more = append([]byte{31, 4, 0, 0, 0, 0, 2, 88}, "\x03lab\x07example\x00\x05a\nb c\x00\x00\x00\x00\x00"...)
	w.advertise(key, r)
	if got := w.info(key).Domains; !slices.Equal(got, []string{"lab.example"}) {
		t.Errorf("%q", got)
	}
	r.more = []byte{31, 2, 0, 0, 0, 0, 0, 0, 1, 'a', 0, 0, 0, 0, 0, 0}
	if w.advertise(key, r); len(w.info(key).Domains) > 0 {
		t.Errorf("%q are left", w.info(key).Domains)
	}
}
