// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// Options of servers and of the terminal, in hexadecimal.
const (
	server1 = "0002 0003 000301"
	server2 = "0002 0003 000302"
	server3 = "0002 0003 000303"
	wants   = "0006 0004 0052 0043"

	whole     = "20010db8600001000000000000000000" // 2001:db8:6000:100::
	other56   = "20010db8600002000000000000000000"
	noIA      = "0019 000c 00000001 00000000 00000000"
	leavesOut = "0043 0002 40 00" // the first /64
)

var (
	lan      = netip.MustParsePrefix("2001:db8:6000:100::/56")
	otherLAN = netip.MustParsePrefix("2001:db8:6000:200::/56")
	lanLink  = netip.MustParsePrefix("2001:db8:6000:100::/64")
)

// leaseOf is the option of a prefix of 56 bits, with lifetimes in seconds and options within.
func leaseOf(prefix string, preferred, valid uint32, more string) string {
	more = strings.ReplaceAll(more, " ", "")
	return fmt.Sprintf("001a%04x%08x%08x38%s%s", 25+len(more)/2, preferred, valid, prefix, more)
}

// leases is an IA_PD of the terminal with options, and T1 and T2 in seconds.
func leases(t1, t2 uint32, options string) string {
	options = strings.ReplaceAll(options, " ", "")
	return fmt.Sprintf("0019%04x00000001%08x%08x%s", 12+len(options)/2, t1, t2, options)
}

// grant is what tests are mostly delegated.
func grant() string { return leases(500, 800, leaseOf(whole, 1000, 2000, "")) }

// asked6 is a message of the terminal.
type asked6 struct {
	kind    byte
	packet  packet.IPv6
	id      string // of the transaction
	elapsed time.Duration
	options string // without those of the terminal's name and the time
}

// asks returns the next message of the terminal, checked.
func (w *world) asks(kind byte) (a asked6) {
	w.t.Helper()
	_, h := w.next()
	q, _, ok := packet.ParseIPv6(slices.Clone(h.Payload))
	m := q.Payload()
	if !ok || q.NextHeader() != packet.ProtoUDP || q.Src() != linkLocal || q.Dst() != netip.MustParseAddr("ff02::1:2") ||
		packet.Checksum(q.SrcBytes(), q.DstBytes(), packet.ProtoUDP, m) != 0 || binary.BigEndian.Uint32(m) != 546<<16|547 || m[8] != kind {
		w.t.Fatalf("no message %d: %x", kind, h.Payload)
	}
	a = asked6{kind: m[8], packet: q, id: hex.EncodeToString(m[9:12])}
	eachDHCP6(m[12:], func(code uint16, v []byte) {
		switch code {
		case link.OptionClientID:
			if !slices.Equal(v, duid(attachment(gtp.V1, gtp.PDPTypeIPv6).IMSI)) {
				w.t.Errorf("it calls itself %x", v)
			}
		case link.OptionElapsed:
			a.elapsed = time.Duration(binary.BigEndian.Uint16(v)) * 10 * time.Millisecond
		default:
			a.options += fmt.Sprintf("%04x%04x%x", code, len(v), v)
		}
	})
	return a
}

// dueAsks lets time pass until the terminal sends that.
func (w *world) dueAsks(kind byte) asked6 {
	w.t.Helper()
	w.due()
	return w.asks(kind)
}

// replies answers a message of the terminal.
func (w *world) replies(key gtp.TID, to asked6, kind byte, options string) {
	w.t.Helper()
	w.clear()
	client := "00010012" + hex.EncodeToString(duid(attachment(gtp.V1, gtp.PDPTypeIPv6).IMSI))
	w.down(key, w.replied(to.packet, kind, client+strings.ReplaceAll(options, " ", "")))
}

// delegating opens a context whose terminal asks for a prefix.
func delegating(t *testing.T, v gtp.Version) (w *world, key gtp.TID) {
	t.Helper()
	w = newWorld(t, Settings{})
	a := attachment(v, gtp.PDPTypeIPv6)
	a.Delegate = true
	key, err := w.e.Attach(a, w.now, &w.out)
	w.order(err)
	w.accept(nil)
	w.advertise(key, defaultRA())
	w.clear()
	return w, key
}

// bound opens one whose terminal has one.
func bound(t *testing.T) (w *world, key gtp.TID) {
	t.Helper()
	w, key = delegating(t, gtp.V1)
	q := w.dueAsks(1)
	w.replies(key, q, 2, server1+"0007 0001 ff"+grant())
	w.replies(key, w.asks(3), 7, server1+grant())
	w.wantPrefixes(key, lan)
	w.clear()
	return w, key
}

// wantPrefixes checks what the terminal has.
func (w *world) wantPrefixes(key gtp.TID, want ...netip.Prefix) {
	w.t.Helper()
	var got []netip.Prefix
	for _, d := range w.info(key).Delegated {
		got = append(got, d.Prefix)
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("the terminal has %v, want %v", got, want)
	}
}

// wantOptions checks what a message has beside who asks since when.
func (w *world) wantOptions(a asked6, want string) {
	w.t.Helper()
	if want = strings.ReplaceAll(want, " ", ""); a.options != want {
		w.t.Errorf("message %d has\n%s, want\n%s", a.kind, a.options, want)
	}
}

// oneLAN is what our own router delegates.
type oneLAN struct{ steps []link.Step }

func (d *oneLAN) Delegate(s link.Step, a link.Association) (link.Delegated, bool) {
	d.steps = append(d.steps, s)
	return link.Delegated{Prefix: lan, Excluded: lanLink, Lifetime: 1000 * time.Second}, a.Exclude || s >= link.Release
}

// TestPrefix asks the router of this project for a prefix, extends it, and gives it back; packets from it and to it
// are the context's meanwhile.
func TestPrefix(t *testing.T) {
	for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
		w, key := delegating(t, v)
		r, err := link.New(link.Settings{MTU: 1400, DHCP: true, Delegate: true, Refresh: 2 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		d, id := new(oneLAN), linkLocal.As16()
		ask := func(kind byte) {
			t.Helper()
			a := w.asks(kind)
			b, verdict := r.Answer(nil, link.Link{ID: binary.BigEndian.Uint64(id[8:]), Delegations: d}, new(link.State), a.packet, w.now)
			if verdict != link.DHCPDelegated {
				t.Fatalf("message %d: %v", kind, verdict)
			}
			w.clear()
			w.down(key, b)
		}
		w.due()
		ask(1)
		ask(3) // at once: there is no other server
		w.event(Configured)
		has := w.info(key).Delegated
		if want := (Delegated{lan, lanLink, w.now.Add(1000 * time.Second), w.now.Add(1000 * time.Second)}); len(has) != 1 || has[0] != want {
			t.Fatalf("it has %+v, want %+v", has, want)
		}
		w.clear()
		behind := netip.MustParseAddr("2001:db8:6000:1ff::7")
		w.e.HandleUE(1, udp6(behind, host, 20), w.now, &w.out)
		w.down(key, udp6(host, behind, 20))
		if len(w.out.UDP) != 1 || len(w.out.IP) != 1 {
			t.Errorf("%d packets went and %d came", len(w.out.UDP), len(w.out.IP))
		}
		began := w.now
		for range 3 {
			w.due()
			if waited := w.now.Sub(began); waited != 500*time.Second {
				t.Errorf("renewed after %v", waited)
			}
			began = w.now
			ask(5)
			w.none()
		}
		w.order(w.e.Undelegate(key, w.now, &w.out))
		w.wantPrefixes(key)
		ask(8)
		w.clear()
		if w.wait(24 * time.Hour); len(w.out.UDP) > 0 {
			t.Error("it asks on")
		}
		w.e.HandleUE(1, udp6(behind, host, 20), w.now, &w.out)
		if w.none(); w.drops("foreign_source") != 1 {
			t.Error("a packet of what was given back passed")
		}
		want := []link.Step{link.Offer, link.Commit, link.Extend, link.Extend, link.Extend, link.Look, link.Release}
		if !slices.Equal(d.steps, want) || w.e.stats.PrefixRequests != 6 || w.e.stats.PrefixReplies != 6 {
			t.Errorf("steps %v, %+v", d.steps, w.e.stats)
		}
		if err := w.e.Undelegate(key, w.now, &w.out); err != ErrNoPrefix {
			t.Errorf("given back twice: %v", err)
		}
		w.e.Abandon(w.now, &w.out)
		w.empty()
	}
}

// TestPrefixMessages shows each message by its options (RFC 8415 sections 18.2.1 to 18.2.7, RFC 6603 sections 5.1 and
// 6.1).
func TestPrefixMessages(t *testing.T) {
	w, key := delegating(t, gtp.V1)
	a := w.dueAsks(1)
	w.wantOptions(a, wants+noIA)
	told := leaseOf(whole, 1000, 2000, leavesOut)
	w.replies(key, a, 2, server1+"0007 0001 ff"+leases(500, 800, told))
	a = w.asks(3)
	held := leases(0, 0, leaseOf(whole, 0, 0, leavesOut))
	w.wantOptions(a, server1+wants+held)
	w.replies(key, a, 7, server1+leases(500, 800, told))
	if has := w.info(key).Delegated; len(has) != 1 || has[0].Excluded != lanLink {
		t.Errorf("it has %+v", has)
	}
	w.wantOptions(w.dueAsks(5), server1+wants+held)
	w.wait(299 * time.Second)
	w.wantOptions(w.dueAsks(6), wants+held)
	w.clear()
	w.order(w.e.Undelegate(key, w.now, &w.out))
	w.wantOptions(w.asks(8), server1+held)
}

// TestPrefixRepeated repeats each message until its exchange is over, each time after about twice as long (RFC 8415
// sections 7.6, 15 and 18.2), as the same exchange.
func TestPrefixRepeated(t *testing.T) {
	for _, row := range []struct {
		name        string
		kind        byte
		first, most time.Duration
		sent        int           // how often at most; 0: no bound
		within      time.Duration // from the first; 0: no bound
		then        byte          // what follows; 0: nothing
		gone        bool          // the prefix
	}{
		{"solicit", 1, time.Second, time.Hour, 0, 0, 0, true},
		{"request", 3, time.Second, 30 * time.Second, 10, 0, 1, true},
		{"renew", 5, 10 * time.Second, 10 * time.Minute, 0, 300 * time.Second, 6, false},
		{"rebind", 6, 10 * time.Second, 10 * time.Minute, 0, 1200 * time.Second, 1, true},
		{"release", 8, time.Second, 0, 4, 0, 0, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, key := bound(t)
			switch row.kind {
			case 1, 3:
				w, key = delegating(t, gtp.V1)
			case 6:
				w.wait(799 * time.Second)
			case 8:
				w.order(w.e.Undelegate(key, w.now, &w.out))
			}
			if row.kind == 3 {
				w.replies(key, w.dueAsks(1), 2, server1+"0007 0001 ff"+grant())
			} else if row.kind != 8 {
				w.due()
			}
			began, last, sent, wait := w.now, w.now, 0, time.Duration(0)
			var id string
			for kind := row.kind; kind == row.kind && sent < 30; {
				a := w.asks(kind)
				waited := w.now.Sub(last)
				low, high := wait-wait/10-1, wait+wait/10+1
				if sent == 0 {
					id, low, high = a.id, 0, 0
				} else if sent == 1 && kind == 1 {
					low = wait // strictly more, section 18.2.1
				}
				if waited < low || waited > high || a.id != id {
					t.Errorf("%d: after %v, not %v; transaction %s of %s", sent, waited, wait, a.id, id)
				}
				if told := min(w.now.Sub(began), longestElapsed); told-a.elapsed < 0 || told-a.elapsed >= 10*time.Millisecond {
					t.Errorf("%d: says %v of %v", sent, a.elapsed, told)
				}
				wait = row.first
				if sent++; sent > 1 {
					wait = 2 * waited
				}
				if row.most > 0 {
					wait = min(wait, row.most)
				}
				last = w.now
				next := w.e.Next()
				if w.clear(); next.IsZero() {
					break
				}
				for len(w.out.UDP) == 0 && !w.e.Next().IsZero() {
					w.now = w.e.Next()
					w.e.Tick(w.now, &w.out)
				}
				if len(w.out.UDP) == 0 {
					kind = 0
				} else {
					_, h := w.next()
					w.seen--
					kind = h.Payload[packet.IPv6HeaderLen+packet.UDPHeaderLen]
				}
				if kind != row.kind && kind != row.then {
					t.Errorf("message %d follows, want %d", kind, row.then)
				}
			}
			switch over := w.now.Sub(began); {
			case row.sent > 0 && sent != row.sent, row.sent == 0 && row.within == 0 && sent != 30:
				t.Errorf("sent %d times", sent)
			case row.within > 0 && (over < row.within || over > row.within+solMaxDelay):
				t.Errorf("over after %v, want %v", over, row.within)
			}
			if gone := len(w.info(key).Delegated) == 0; gone != row.gone {
				t.Errorf("the prefix is gone: %t", gone)
			}
			w.e.Abandon(w.now, &w.out)
			w.empty()
		})
	}
}

// TestPrefixOffers chooses among servers: the most preferred of the first wait, at once whom all prefer; later the first;
// and the next one if that does not delegate (RFC 8415 sections 18.2.1, 18.2.2 and 18.2.9).
func TestPrefixOffers(t *testing.T) {
	const (
		some = "0007 0001 07"
		most = "0007 0001 ff"
		none = "0019 0012 00000001 00000000 00000000 000d 0002 0006" // NoPrefixAvail
	)
	w, key := delegating(t, gtp.V1)
	a := w.dueAsks(1)
	began := w.now
	w.replies(key, a, 2, server1+grant())
	w.replies(key, a, 2, server2+some+grant())
	w.replies(key, a, 2, server3+most+none) // nothing, however much it is preferred
	w.replies(key, a, 7, server3+grant())   // not asked for: without Rapid Commit
	w.none()
	a = w.dueAsks(3)
	if waited := w.now.Sub(began); waited <= time.Second || waited > 1100*time.Millisecond || !strings.HasPrefix(a.options, "00020003000302") {
		t.Errorf("requested of %s after %v", a.options, waited)
	}
	w.replies(key, a, 7, server2+none)
	a = w.asks(3)
	if !strings.HasPrefix(a.options, "00020003000301") {
		t.Errorf("then requested of %s", a.options)
	}
	w.replies(key, a, 7, server1+none)
	w.none() // from the beginning, after a while
	a = w.dueAsks(1)
	w.replies(key, a, 2, server1+grant())
	w.replies(key, a, 2, server3+most+grant())
	if a = w.asks(3); !strings.HasPrefix(a.options, "00020003000303") {
		t.Errorf("not at once of whom all prefer: %s", a.options)
	}

	w, key = delegating(t, gtp.V1)
	first := w.dueAsks(1)
	due := w.e.Next()
	w.replies(key, first, 2, server1+none)
	if w.e.Next() != due {
		t.Error("an offer of nothing has set the timer")
	}
	a = w.dueAsks(1)
	w.replies(key, a, 2, server1+grant())
	if a = w.asks(3); a.id == first.id {
		t.Error("a Request in the Solicit's exchange")
	}
	for range 5 {
		w.replies(key, a, 2, server2+most+grant()) // late
	}
	w.replies(key, a, 7, server1+grant())
	w.wantPrefixes(key, lan)
}

// TestPrefixReplies takes what a server says to a Renew (RFC 8415 sections 16.10, 18.2.10 and 21.22).
func TestPrefixReplies(t *testing.T) {
	const (
		asBefore = 500 * time.Second
		again    = 11 * time.Second // at most, of the first repetition
	)
	more := leaseOf(other56, 1000, 2000, "")
	for _, row := range []struct {
		name    string
		options string
		has     []netip.Prefix
		next    byte          // what the terminal sends then
		after   time.Duration // 0: at once
		dropped bool
	}{
		{"as long again", server1 + grant(), []netip.Prefix{lan}, 5, asBefore, false},
		{"for longer", server1 + leases(1000, 1600, leaseOf(whole, 2000, 3000, "")), []netip.Prefix{lan}, 5, 1000 * time.Second, false},
		{"times left open", server1 + leases(0, 0, leaseOf(whole, 3000, 9000, "")), []netip.Prefix{lan}, 5, 1500 * time.Second, false},
		{"times left open, and none preferred", server1 + leases(0, 0, leaseOf(whole, 0, 9000, "")), []netip.Prefix{lan}, 5, 4500 * time.Second, false},
		{"for ever", server1 + leases(1<<32-1, 1<<32-1, leaseOf(whole, 1<<32-1, 1<<32-1, "")), []netip.Prefix{lan}, 0, 0, false},
		{"for ever, times left open", server1 + leases(0, 0, leaseOf(whole, 1<<32-1, 1<<32-1, "")), []netip.Prefix{lan}, 0, 0, false},
		{"never renewed", server1 + leases(1<<32-1, 1<<32-1, leaseOf(whole, 100, 200, "")), []netip.Prefix{lan}, 1, 200 * time.Second, false},
		{"another in its place", server1 + leases(500, 800, leaseOf(whole, 0, 0, "")+more), []netip.Prefix{otherLAN}, 5, asBefore, false},
		{"another beside it", server1 + leases(500, 800, more), []netip.Prefix{lan, otherLAN}, 5, asBefore, false},
		{"more than there may be", server1 + leases(500, 800, strings.Repeat(leaseOf(other56, 1000, 2000, ""), 9)), []netip.Prefix{lan, otherLAN}, 5, asBefore, false},
		{"no more", server1 + leases(500, 800, leaseOf(whole, 0, 0, "")), nil, 1, time.Second, false},
		{"no binding", server2 + leases(0, 0, "000d 0002 0003"), []netip.Prefix{lan}, 3, 0, false},
		{"no prefix", server1 + leases(0, 0, "000d 0002 0006"), []netip.Prefix{lan}, 5, again, true},
		{"a failure", server1 + "000d 0002 0001" + grant(), []netip.Prefix{lan}, 5, again, true},
		{"no association", server1, []netip.Prefix{lan}, 5, again, true},
		{"one of another's", server1 + strings.Replace(grant(), "00000001", "00000002", 1), []netip.Prefix{lan}, 5, again, true},
		{"T1 after T2", server1 + leases(801, 800, leaseOf(other56, 1000, 2000, "")), []netip.Prefix{lan}, 5, again, true},
		{"preferred for longer than valid", server1 + leases(500, 800, leaseOf(whole, 1000, 2000, "")+leaseOf(other56, 2001, 2000, "")), []netip.Prefix{lan}, 5, asBefore, false},
		{"of the link", server1 + leases(500, 800, leaseOf(whole, 1000, 2000, "")+leaseOf("fe800000000000000000000000000000", 1000, 2000, "")), []netip.Prefix{lan}, 5, asBefore, false},
		{"a prefix cut short", server1 + leases(500, 800, "001a 0018 000003e8 000007d0 38 20010db86000010000000000000000"), []netip.Prefix{lan}, 5, again, true},
		{"left out what is not of it", server1 + leases(500, 800, leaseOf(whole, 1000, 2000, "0043 0002 38 00")), []netip.Prefix{lan}, 5, again, true},
		{"an association cut short", server1 + "0019 000b 00000001 00000000 000000", []netip.Prefix{lan}, 5, again, true},
		{"half a preference", server1 + "0007 0000" + grant(), []netip.Prefix{lan}, 5, again, true},
		{"no server", grant(), []netip.Prefix{lan}, 5, again, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, key := bound(t)
			a := w.dueAsks(5)
			drops := w.drops("bad_dhcp_reply")
			w.replies(key, a, 7, row.options)
			if dropped := w.drops("bad_dhcp_reply") > drops; dropped != row.dropped {
				t.Errorf("dropped: %t", dropped)
			}
			w.wantPrefixes(key, row.has...)
			began := w.now
			switch {
			case row.next == 0:
				if w.wait(10 * 365 * 24 * time.Hour); len(w.out.UDP) > 0 {
					t.Error("something is sent")
				}
				return
			case row.after > 0:
				w.none()
				w.due()
			}
			w.asks(row.next)
			waited, least := w.now.Sub(began), row.after
			if row.after == again {
				least = 9 * time.Second
			} else if row.next == 1 {
				least = max(row.after-solMaxDelay, 0)
				row.after += solMaxDelay
			}
			if waited < least || waited > row.after {
				t.Errorf("sent after %v, want %v", waited, row.after)
			}
		})
	}
}

// TestPrefixExpires is without a prefix when that has ended, though others last.
func TestPrefixExpires(t *testing.T) {
	w, key := bound(t)
	w.replies(key, w.dueAsks(5), 7, server1+leases(1<<32-1, 1<<32-1, leaseOf(whole, 100, 200, "")+leaseOf(other56, 1000, 2000, "")))
	w.wantPrefixes(key, lan, otherLAN)
	w.clear()
	w.wait(200 * time.Second)
	w.wantPrefixes(key, otherLAN)
	w.event(Configured)
	w.wait(1800*time.Second + solMaxDelay)
	w.wantPrefixes(key)
	w.asks(1)
}

// TestPrefixMaxRepeat: a server may bound the interval of a Solicit, also with one that offers nothing, within what makes
// sense (RFC 8415 sections 18.2.9 and 21.24); that of an Information-request, too.
func TestPrefixMaxRepeat(t *testing.T) {
	for _, row := range []struct {
		seconds string
		want    time.Duration
	}{{"00000078", 2 * time.Minute}, {"0000003b", time.Hour}, {"00015181", time.Hour}} {
		w, key := delegating(t, gtp.V1)
		w.replies(key, w.dueAsks(1), 2, server1+"000d 0002 0006 0052 0004"+row.seconds+"0053 0004"+row.seconds)
		w.wait(20 * time.Hour)
		w.due()
		if next := w.e.Next().Sub(w.now); next < row.want-row.want/10 || next > row.want+row.want/10 {
			t.Errorf("%s: repeats after %v", row.seconds, next)
		}
		if got := w.e.contexts[key].session.six.dhcp.longest; got != 0 && got != row.want {
			t.Errorf("%s: INF_MAX_RT is %v", row.seconds, got)
		}
	}
}

// TestPrefixLimited: a server that offers to all and delegates to no one is asked 20 times at once, and once in a second
// (RFC 8415 section 14.1).
func TestPrefixLimited(t *testing.T) {
	w, key := delegating(t, gtp.V1)
	began := w.now
	for w.now.Sub(began) < 100*time.Second {
		w.due()
		_, h := w.next()
		q, _, _ := packet.ParseIPv6(slices.Clone(h.Payload))
		if m := q.Payload(); m[8] == 1 {
			w.replies(key, asked6{packet: q}, 2, server1+"0007 0001 ff"+grant())
			if len(w.out.UDP) == 0 {
				continue
			}
			a := w.asks(3)
			w.replies(key, a, 7, server1+leases(0, 0, "000d 0002 0006"))
		}
	}
	if n := w.e.stats.PrefixRequests; n < 20 || n > 121 {
		t.Errorf("%d messages in 100 s", n)
	}
}

// TestPrefixUnwanted asks for nothing that nobody wants, or by a context of IPv4.
func TestPrefixUnwanted(t *testing.T) {
	w := newWorld(t, Settings{})
	a := attachment(gtp.V1, gtp.PDPTypeIPv4)
	a.Delegate = true
	key, err := w.e.Attach(a, w.now, &w.out)
	w.order(err)
	w.accept(nil)
	if err := w.e.Undelegate(key, w.now, &w.out); err != ErrNoPrefix {
		t.Errorf("gives back: %v", err)
	}
	w.e.Abandon(w.now, &w.out)
	w.clear()
	key = w.online(gtp.V1)
	if w.wait(time.Hour); len(w.out.UDP) > 0 {
		t.Error("something is asked")
	}
	if err := w.e.Undelegate(gtp.TID{}, w.now, &w.out); err != ErrUnknown {
		t.Errorf("%v", err)
	}
	w.wantPrefixes(key)
}
