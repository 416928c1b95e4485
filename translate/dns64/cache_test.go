// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"
)

var start = time.Unix(1_700_000_000, 0)

func key(name string, qtype uint16) Ask {
	return Ask{Name: name, Type: qtype, Class: dns.ClassINET}
}

func roomy() Limits {
	return Limits{Entries: 1000, Bytes: 1 << 20, MaxTTL: time.Hour, MaxNegativeTTL: 10 * time.Minute}
}

// TestCacheLife has answers kept as long as they are good and no longer.
func TestCacheLife(t *testing.T) {
	for _, tt := range []struct {
		name string
		said string
		life time.Duration // 0: not kept
	}{
		{"data, by the least TTL of all sections", v4 + "\n" + "host.example.net. 300 IN A 198.51.100.8\n" + glue, 100 * time.Second},
		{"data of a TTL beyond the limit", "host.example.net. 86400 IN A 198.51.100.7", time.Hour},
		{"data of no TTL", "host.example.net. 0 IN A 198.51.100.7", 0},
		{"a TTL with its highest bit set", "host.example.net. 2147483648 IN A 198.51.100.7", 0},
		{"no data, by the least of SOA and minimum", soa300, 120 * time.Second},
		{"no such name", "NXDOMAIN\n" + soa300, 120 * time.Second},
		{"no data for longer than the limit", "authority\nexample.net. 7200 IN SOA ns.example.net. h.example.net. 1 2 3 4 7200", 10 * time.Minute},
		{"no data without an SOA", "ok", 0},
		{"a chain that leads to no data", "host.example.net. 50 IN CNAME a.example.net.\n" + soa300, 50 * time.Second},
		{"data cut off", "truncated\n" + v4, 0},
		{"a cut answer without data", "truncated\n" + soa300, 0},
		{"a cut failure", "truncated\nSERVFAIL", 0},
		{"a failure", "SERVFAIL", failureTime},
		{"silence", "", failureTime},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := NewCache(roomy())
			k := key("host.example.net.", dns.TypeA)
			c.Put(k, netip.Addr{}, said(t, tt.said), start)
			if tt.life == 0 {
				if c.Len() != 0 || c.Bytes() != 0 {
					t.Error("kept")
				}
				return
			}
			if _, ok := c.Get(k, netip.Addr{}, start.Add(tt.life-time.Millisecond)); !ok {
				t.Error("gone too early")
			}
			if _, ok := c.Get(k, netip.Addr{}, start.Add(tt.life)); ok || c.Len() != 0 || c.Bytes() != 0 {
				t.Error("not gone in time")
			}
		})
	}
}

// TestCacheFits has clients told of no longer life than the cache allows, and of nothing that
// was not asked.
func TestCacheFits(t *testing.T) {
	short := Limits{Entries: 10, Bytes: 1 << 20, MaxTTL: time.Minute, MaxNegativeTTL: 10 * time.Second}
	k := key("host.example.net.", dns.TypeA)
	for _, tt := range []struct {
		name string
		said string
		want []uint32 // the TTLs of all sections
	}{
		{"data", "host.example.net. 86400 IN A 198.51.100.7\nhost.example.net. 30 IN A 198.51.100.8\n" + glue, []uint32{60, 30, 60}},
		{"a TTL with its highest bit set", "host.example.net. 2147483648 IN A 198.51.100.7", []uint32{0}},
		{"no data", soa300, []uint32{10}},
		{"no such name", "NXDOMAIN\n" + soa300, []uint32{10}},
		{"a chain that leads to no data", "host.example.net. 50 IN CNAME a.example.net.\n" + soa300, []uint32{10, 10}},
		{"no data but that of another name", "bank.example. 50 IN A 198.51.100.7\n" + soa300, []uint32{10}},
		{"an error with records", "REFUSED\n" + v4, []uint32{60}},
		{"silence", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ttls := func(r Result) (found []uint32) {
				if r.Msg != nil {
					eachHeader(r.Msg, func(h *dns.RR_Header) { found = append(found, h.Ttl) })
				}
				return found
			}
			if got := ttls(NewCache(short).Fit(k, said(t, tt.said))); !slices.Equal(got, tt.want) {
				t.Errorf("TTLs %v, want %v", got, tt.want)
			}
			// The same where the limits were others once.
			c := NewCache(roomy())
			c.Put(k, netip.Addr{}, c.Fit(k, said(t, tt.said)), start)
			c.SetLimits(short)
			if r, ok := c.Get(k, netip.Addr{}, start); ok && !slices.Equal(ttls(r), tt.want) {
				t.Errorf("TTLs from the cache %v, want %v", ttls(r), tt.want)
			}
		})
	}
}

func TestCacheAges(t *testing.T) {
	c := NewCache(roomy())
	k := key("host.example.net.", dns.TypeA)
	r := said(t, "trusted\nauthentic\n"+v4+"\n"+glue)
	c.Put(k, netip.Addr{}, r, start)
	got, ok := c.Get(k, netip.Addr{}, start.Add(90*time.Second+time.Millisecond))
	if !ok || !got.Trusted || !got.Msg.AuthenticatedData {
		t.Fatalf("got %+v, %v", got, ok)
	}
	if a, g := got.Msg.Answer[0].Header().Ttl, got.Msg.Extra[0].Header().Ttl; a != 410 || g != 10 {
		t.Errorf("TTLs %d and %d", a, g)
	}
	if r.Msg.Answer[0].Header().Ttl != 500 {
		t.Error("the cache changed what it was given")
	}
	got.Msg.Answer[0].Header().Ttl = 1
	if again, _ := c.Get(k, netip.Addr{}, start); again.Msg.Answer[0].Header().Ttl != 500 {
		t.Error("readers share records")
	}
	if _, ok := c.Get(k, netip.Addr{}, start.Add(-time.Second)); ok {
		t.Error("an answer from the future")
	}
}

// TestCacheKeys has questions that differ in one thing kept apart.
func TestCacheKeys(t *testing.T) {
	c := NewCache(roomy())
	base := key("host.example.net.", dns.TypeA)
	c.Put(base, netip.Addr{}, said(t, v4), start)
	for _, other := range []Ask{
		{Name: base.Name, Type: dns.TypeA, Class: dns.ClassCHAOS},
		{Name: base.Name, Type: dns.TypeA, Class: dns.ClassINET, CD: true},
		{Name: base.Name, Type: dns.TypeA, Class: dns.ClassINET, DO: true},
		{Name: base.Name, Type: dns.TypeMX, Class: dns.ClassINET},
		{Name: "other.example.net.", Type: dns.TypeA, Class: dns.ClassINET},
	} {
		if _, ok := c.Get(other, netip.Addr{}, start); ok {
			t.Errorf("%+v is answered by %+v", other, base)
		}
	}
}

// TestCacheBounds fills a cache beyond its bounds: what was used least recently goes.
func TestCacheBounds(t *testing.T) {
	put := func(c *Cache, i int) {
		c.Put(key(fmt.Sprintf("h%d.example.net.", i), dns.TypeA), netip.Addr{}, said(t, v4), start)
	}
	has := func(c *Cache, i int) bool {
		_, ok := c.Get(key(fmt.Sprintf("h%d.example.net.", i), dns.TypeA), netip.Addr{}, start)
		return ok
	}
	l := roomy()
	l.Entries = 3
	c := NewCache(l)
	for i := range 3 {
		put(c, i)
	}
	has(c, 0) // now 1 is the oldest
	put(c, 3)
	if has(c, 1) || !has(c, 0) || !has(c, 2) || !has(c, 3) || c.Len() != 3 {
		t.Error("the wrong one went")
	}
	each := c.Bytes() / 3
	l.Bytes = 2*each + each/2
	c.SetLimits(l)
	if c.Len() != 2 || c.Bytes() > l.Bytes {
		t.Errorf("%d entries of %d bytes in %d", c.Len(), c.Bytes(), l.Bytes)
	}
	put(c, 3) // again: no second one
	if c.Len() != 2 {
		t.Error("one question twice")
	}
	l.Bytes = each - 1
	c.SetLimits(l)
	if put(c, 4); c.Len() != 0 || c.Bytes() != 0 {
		t.Error("an answer larger than the cache")
	}
	l.Entries = 0
	c.SetLimits(l)
	if put(c, 5); c.Len() != 0 {
		t.Error("a cache that is switched off")
	}
}

// TestCacheCleared: a cache that has forgotten all counts nothing of it.
func TestCacheCleared(t *testing.T) {
	l := roomy()
	l.Entries = 2
	c := NewCache(l)
	fill := func() {
		for i := range 3 {
			c.Put(key(fmt.Sprintf("h%d.example.net.", i), dns.TypeA), network(i), said(t, v4), start)
		}
	}
	fill()
	full := c.Bytes()
	if c.Clear(); c.Len() != 0 || c.Bytes() != 0 || len(c.owners) != 0 {
		t.Errorf("%d entries, %d bytes, %d owners", c.Len(), c.Bytes(), len(c.owners))
	}
	if fill(); c.Len() != 2 || c.Bytes() != full || c.used.Len() != 2 {
		t.Errorf("then %d entries, %d bytes, %d in the list", c.Len(), c.Bytes(), c.used.Len())
	}
}

// TestCacheOwners: who fills the cache pushes out his own, and not what others ask for too.
func TestCacheOwners(t *testing.T) {
	a, b := network(1), network(2)
	at := func(i int) Ask { return key(fmt.Sprintf("h%d.example.net.", i), dns.TypeA) }
	l := roomy()
	l.Entries = 80
	c := NewCache(l)
	put := func(from netip.Addr, numbers ...int) {
		for _, i := range numbers {
			c.Put(at(i), from, said(t, v4), start)
		}
	}
	has := func(i int) bool { return c.entries[at(i)] != nil }
	put(b, 0, 1, 2)
	put(a, 3)
	if _, ok := c.Get(at(3), b, start); !ok || c.owners[a] != nil {
		t.Error("what two ask for is one's own")
	}
	put(netip.Addr{}, 4)
	for i := range 1000 {
		put(a, 100+i)
	}
	if c.Len() != 80 {
		t.Errorf("%d entries", c.Len())
	}
	for i := range 5 {
		if !has(i) {
			t.Errorf("%d has gone", i)
		}
	}
	if _, ok := c.Get(at(1099), a, start); !ok {
		t.Error("what came last is not there")
	}
	// Of its own, the least recently used goes.
	if _, ok := c.Get(at(1025), a, start); !ok || !has(1026) || c.entries[at(1025)].owner == nil {
		t.Fatal("gone already")
	}
	put(a, 2000)
	if !has(1025) || has(1026) {
		t.Error("the wrong one went")
	}
	// A client within its share has room: the oldest of all goes.
	if put(b, 3000); !has(3000) || has(0) {
		t.Error("the oldest stays")
	}
	// The same by bytes.
	l.Entries, l.Bytes = 1000, c.Bytes()
	c.SetLimits(l)
	put(a, 4000, 4001, 4002)
	if !has(1) || !has(2) || !has(3) || !has(4) || !has(3000) {
		t.Error("bytes of one pushed out those of others")
	}
	for i := range 5000 { // all are too old
		c.Get(at(i), a, start.Add(time.Hour))
	}
	if c.Len() != 0 || c.Bytes() != 0 || len(c.owners) != 0 || c.used.Len() != 0 {
		t.Errorf("%d entries, %d bytes, %d owners are left", c.Len(), c.Bytes(), len(c.owners))
	}
}

func TestHealth(t *testing.T) {
	h := NewHealth(3)
	order := func(want ...int) {
		t.Helper()
		if got := h.Order(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("order %v, want %v", got, want)
		}
	}
	order(0, 1, 2)
	if h.Report(0, false, start) {
		t.Error("one lost packet makes no news")
	}
	order(0, 1, 2)
	if !h.Report(0, false, start) || h.Well(0) {
		t.Error("two in a row do")
	}
	order(1, 2, 0)
	if h.Report(0, false, start) {
		t.Error("news twice")
	}
	h.Report(1, false, start)
	h.Report(1, false, start)
	order(2, 0, 1)
	if due := h.Probes(start.Add(probeInterval - time.Millisecond)); len(due) != 0 {
		t.Errorf("probed too early: %v", due)
	}
	if due := h.Probes(start.Add(probeInterval)); fmt.Sprint(due) != "[0 1]" {
		t.Errorf("probed %v", due)
	}
	if due := h.Probes(start.Add(probeInterval)); len(due) != 0 {
		t.Errorf("probed twice: %v", due)
	}
	if !h.Report(0, true, start) || h.Report(0, true, start) {
		t.Error("back is news, once")
	}
	order(0, 2, 1)
}

// network is one of many clients.
func network(n int) netip.Addr {
	return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, byte(n >> 8), byte(n)})
}
