// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"container/list"
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

const (
	// failureTime is how long no one is asked again after a failure (RFC 9520 section
	// 3.2: a second at least).
	failureTime = 2 * time.Second
	// entryCost is what an entry takes beside its name and message, in bytes: the
	// record itself, its places in map and lists, and what the allocator adds.
	entryCost = 320
)

// Limits bound a [Cache].
type Limits struct {
	// Entries and Bytes bound the memory. 0 entries: nothing is kept.
	Entries, Bytes int
	// MaxTTL and MaxNegativeTTL bound how long answers are kept, with data and
	// without.
	MaxTTL, MaxNegativeTTL time.Duration
}

// Cache keeps the answers of upstreams until their time is over, the least recently
// used going first when it is full. What one client alone has asked for is its own: with
// more than an eighth of a full cache, it loses that before anybody else's. The cache is not
// safe for concurrent use.
type Cache struct {
	limits  Limits
	entries map[Ask]*entry
	owners  map[netip.Addr]*owner
	bytes   int
	used    list.List // of entries, the most recently used in front
}

// owner is a client with answers that no other has asked for.
type owner struct {
	client netip.Addr
	bytes  int
	used   list.List // as that of the cache
}

// entry is one answer. It is kept packed, which takes little memory, bounds it
// exactly, and gives each reader records of its own.
type entry struct {
	ask     Ask
	wire    []byte // nil: no upstream answered
	trusted bool
	stored  time.Time
	expires time.Time
	used    *list.Element // of the cache
	owner   *owner        // nil: several clients asked
	owned   *list.Element // of the owner
}

func (e *entry) cost() int { return entryCost + len(e.ask.Name) + cap(e.wire) }

// NewCache makes an empty cache.
func NewCache(l Limits) *Cache {
	c := &Cache{limits: l}
	c.Clear()
	return c
}

// Clear forgets everything.
func (c *Cache) Clear() {
	c.entries, c.owners = make(map[Ask]*entry), make(map[netip.Addr]*owner)
	c.bytes = 0
	c.used.Init()
}

// SetLimits changes the limits; what is too much goes at once.
func (c *Cache) SetLimits(l Limits) {
	c.limits = l
	c.shrink(nil)
}

// Len and Bytes are what the cache holds and takes.
func (c *Cache) Len() int { return len(c.entries) }

// Bytes is the memory that the entries take.
func (c *Cache) Bytes() int { return c.bytes }

// Get returns an answer that is still good, with its TTLs less the time since (RFC
// 1035 section 7.4), to a client, as [Policy.Client] has it.
func (c *Cache) Get(a Ask, client netip.Addr, now time.Time) (Result, bool) {
	e := c.entries[a]
	if e == nil {
		return Result{}, false
	}
	age := now.Sub(e.stored)
	if !now.Before(e.expires) || age < 0 {
		c.remove(e)
		return Result{}, false
	}
	c.used.MoveToFront(e.used)
	switch o := e.owner; {
	case o == nil:
	case o.client == client:
		o.used.MoveToFront(e.owned)
	default:
		c.disown(e)
	}
	if e.wire == nil {
		return Result{Trusted: e.trusted}, true
	}
	m := new(dns.Msg)
	if err := m.Unpack(e.wire); err != nil {
		c.remove(e)
		return Result{}, false
	}
	grow(m, uint32(age/time.Second))
	bound(m, c.longest(a, m)) // which may be less than it was
	return Result{Msg: m, Trusted: e.trusted}, true
}

// grow makes all records older by some seconds.
func grow(m *dns.Msg, seconds uint32) {
	eachHeader(m, func(h *dns.RR_Header) { h.Ttl -= min(h.Ttl, seconds) })
}

// eachHeader calls f for every record with a TTL.
func eachHeader(m *dns.Msg, f func(*dns.RR_Header)) {
	for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			if h := rr.Header(); h.Rrtype != dns.TypeOPT {
				f(h)
			}
		}
	}
}

// Put keeps an answer as long as it is good, for the client that asked, or for several if
// that is not valid.
func (c *Cache) Put(a Ask, client netip.Addr, r Result, now time.Time) {
	life := c.life(a, r.Msg)
	if life <= 0 || c.limits.Entries <= 0 {
		return
	}
	e := &entry{ask: a, trusted: r.Trusted, stored: now, expires: now.Add(life)}
	if r.Msg != nil {
		kept := *r.Msg
		kept.Compress = true
		wire, err := kept.Pack()
		if err != nil {
			return
		}
		e.wire = append(make([]byte, 0, len(wire)), wire...) // without the room that packing leaves
	}
	if e.cost() > c.limits.Bytes {
		return
	}
	if old := c.entries[a]; old != nil {
		c.remove(old)
	}
	c.entries[a] = e
	c.bytes += e.cost()
	e.used = c.used.PushFront(e)
	if client.IsValid() {
		c.own(e, client)
	}
	c.shrink(e.owner)
}

func (c *Cache) own(e *entry, client netip.Addr) {
	o := c.owners[client]
	if o == nil {
		o = &owner{client: client}
		c.owners[client] = o
	}
	o.bytes += e.cost()
	e.owner, e.owned = o, o.used.PushFront(e)
}

// disown has an entry belong to all.
func (c *Cache) disown(e *entry) {
	o := e.owner
	if o == nil {
		return
	}
	o.bytes -= e.cost()
	o.used.Remove(e.owned)
	e.owner, e.owned = nil, nil
	if o.used.Len() == 0 {
		delete(c.owners, o.client)
	}
}

// Fit leaves of an answer what is about the question, and of its TTLs no more than the limits:
// clients have caches, too.
func (c *Cache) Fit(a Ask, r Result) Result {
	r = r.about(a)
	if r.Msg != nil {
		bound(r.Msg, c.longest(a, r.Msg))
	}
	return r
}

// bound leaves of the TTLs of a message no more than that.
func bound(m *dns.Msg, most time.Duration) {
	eachHeader(m, func(h *dns.RR_Header) { h.Ttl = min(lifeOf(h.Ttl), uint32(most/time.Second)) })
}

// longest is how long an answer may be kept at most.
func (c *Cache) longest(a Ask, m *dns.Msg) time.Duration {
	if hasData(a, m) || m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		return c.limits.MaxTTL
	}
	return min(c.limits.MaxNegativeTTL, c.limits.MaxTTL)
}

// life is how long an answer may be kept.
func (c *Cache) life(a Ask, m *dns.Msg) time.Duration {
	switch {
	case m == nil:
		return failureTime
	case m.Truncated:
		return 0
	case hasData(a, m):
		return min(c.longest(a, m), shortest(m))
	case m.Rcode == dns.RcodeSuccess, m.Rcode == dns.RcodeNameError:
		return min(c.longest(a, m), negative(m))
	}
	return failureTime
}

// hasData reports whether a message has records of the type that was asked for.
func hasData(a Ask, m *dns.Msg) bool {
	return m.Rcode == dns.RcodeSuccess && len(m.Answer) > 0 && (a.Type == dns.TypeANY || holds(m.Answer, a.Type))
}

func holds(section []dns.RR, qtype uint16) bool {
	for _, rr := range section {
		if rr.Header().Rrtype == qtype {
			return true
		}
	}
	return false
}

// shortest is the least TTL of a message. One with its highest bit set counts as 0
// (RFC 2181 section 8).
func shortest(m *dns.Msg) time.Duration {
	least := uint32(1<<31 - 1)
	eachHeader(m, func(h *dns.RR_Header) { least = min(least, lifeOf(h.Ttl)) })
	return time.Duration(least) * time.Second
}

// negative is how long an answer without data is good: by its SOA, without which it is
// not kept (RFC 2308 section 5).
func negative(m *dns.Msg) time.Duration {
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return min(shortest(m), time.Duration(soa.Minttl)*time.Second)
		}
	}
	return 0
}

// shrink removes the least recently used entries until the limits hold: those of the client
// that has brought something, while it has more than its share.
func (c *Cache) shrink(o *owner) {
	for len(c.entries) > 0 && (len(c.entries) > c.limits.Entries || c.bytes > c.limits.Bytes) {
		from := &c.used
		if o != nil && o.used.Len() > 1 && (o.used.Len() > c.limits.Entries/ShareOfClient || o.bytes > c.limits.Bytes/ShareOfClient) {
			from = &o.used
		}
		c.remove(from.Back().Value.(*entry))
	}
}

func (c *Cache) remove(e *entry) {
	delete(c.entries, e.ask)
	c.bytes -= e.cost()
	c.used.Remove(e.used)
	c.disown(e)
}
