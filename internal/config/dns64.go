// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// RoleDNS64 is the name of the role in the file, in status and in metrics.
const RoleDNS64 = "dns64"

// DNS64 is one name server for hosts behind a NAT64 (RFC 6147): it asks its upstreams,
// and makes AAAA records of A records where there are none.
type DNS64 struct {
	// Name is unique over all instances.
	Name string `key:"name"`
	// Listen are the addresses and ports, UDP and TCP each.
	Listen []netip.AddrPort `key:"listen"`
	// Upstreams are recursive name servers, in the order in which they are asked.
	Upstreams []netip.AddrPort `key:"upstreams"`
	// Trusted are those of Upstreams that validate by DNSSEC and whose word counts.
	Trusted []netip.AddrPort `key:"trusted"`
	// Clients are those who are answered. All the world only with Open.
	Clients []netip.Prefix `key:"clients"`
	Open    bool           `key:"open"`
	// ClientLength is how many bits of an IPv6 address tell one client from another. Of IPv4,
	// each address is one.
	ClientLength int `key:"client_length"`
	// Prefixes are those that AAAA records are made with. Empty: the well-known one.
	Prefixes []netip.Prefix `key:"prefixes"`
	// Ranges have the addresses of IPv4 ranges made with prefixes of their own.
	Ranges []DNS64Range `key:"ranges"`
	// Exclude are prefixes of AAAA records that count as no answer.
	Exclude []netip.Prefix `key:"exclude"`
	// NoSynthesisFor are clients that get what the upstream says.
	NoSynthesisFor []netip.Prefix `key:"no_synthesis_for"`
	// PTRName is what reverse queries below the prefixes are answered with. Empty: with
	// the name of the IPv4 address.
	PTRName string `key:"ptr_name"`
	// CacheEntries and CacheBytes bound the cache, CacheMaxTTL and CacheNegativeTTL how
	// long an answer is kept.
	CacheEntries     int           `key:"cache_entries"`
	CacheBytes       int           `key:"cache_bytes"`
	CacheMaxTTL      time.Duration `key:"cache_max_ttl"`
	CacheNegativeTTL time.Duration `key:"cache_negative_ttl"`
	// UpstreamTimeout is how long one upstream may take, QueryTimeout all together.
	UpstreamTimeout time.Duration `key:"upstream_timeout"`
	QueryTimeout    time.Duration `key:"query_timeout"`
	// MixedCase sends names in capitals and small letters at random.
	MixedCase bool `key:"mixed_case"`
	// UDPSize bounds answers over UDP, in bytes.
	UDPSize int `key:"udp_size"`
	// RatePerClient is how many queries a second one client may ask, with Burst at
	// once; 0 is no limit.
	RatePerClient int `key:"rate_per_client"`
	Burst         int `key:"burst"`
	// MaxQueries bounds those that wait for upstreams, MaxConnections those over TCP. One
	// client has an eighth at most.
	MaxQueries     int `key:"max_queries"`
	MaxConnections int `key:"max_connections"`
	// IdleTimeout is how long a TCP connection may be silent.
	IdleTimeout time.Duration `key:"idle_timeout"`
}

// DNS64Range has an IPv4 range made with a prefix of its own.
type DNS64Range struct {
	IPv4 netip.Prefix
	// Prefix is not valid if no AAAA is to be made of these addresses.
	Prefix netip.Prefix
}

// DNS64 returns the DNS64 instance of that name.
func (c *Config) DNS64(name string) (DNS64, bool) {
	return find(c.DNS64s, func(d DNS64) bool { return d.Name == name })
}

type rawDNS64 struct {
	Name             any `toml:"name"`
	Listen           any `toml:"listen"`
	Upstreams        any `toml:"upstreams"`
	Trusted          any `toml:"trusted"`
	Clients          any `toml:"clients"`
	Open             any `toml:"open"`
	ClientLength     any `toml:"client_length"`
	Prefixes         any `toml:"prefixes"`
	Ranges           any `toml:"ranges"`
	Exclude          any `toml:"exclude"`
	NoSynthesisFor   any `toml:"no_synthesis_for"`
	PTRName          any `toml:"ptr_name"`
	CacheEntries     any `toml:"cache_entries"`
	CacheBytes       any `toml:"cache_bytes"`
	CacheMaxTTL      any `toml:"cache_max_ttl"`
	CacheNegativeTTL any `toml:"cache_negative_ttl"`
	UpstreamTimeout  any `toml:"upstream_timeout"`
	QueryTimeout     any `toml:"query_timeout"`
	MixedCase        any `toml:"mixed_case"`
	UDPSize          any `toml:"udp_size"`
	RatePerClient    any `toml:"rate_per_client"`
	Burst            any `toml:"burst"`
	MaxQueries       any `toml:"max_queries"`
	MaxConnections   any `toml:"max_connections"`
	IdleTimeout      any `toml:"idle_timeout"`
}

const (
	dnsPort = 53

	// The bounds of answers over UDP: RFC 1035, section 4.2.1, and RFC 6891, section
	// 6.2.5. The default fits into IPv6's minimum MTU.
	minDNSSize     = 512
	maxDNSSize     = 4096
	defaultDNSSize = 1232

	dnsCacheEntries = 100_000          // The names that a few thousand users look up in an hour.
	dnsCacheBytes   = 64 << 20         // Ample for as many.
	dnsMaxTTL       = 24 * time.Hour   // RFC 8767, section 4, advises a cap of days; a day is kinder to those who err.
	dnsNegativeTTL  = 15 * time.Minute // RFC 2308, section 5: one to three hours at most are sensible.
	dnsUpstreamTime = 2 * time.Second  // A resolver that has to ask around takes a second or so.
	dnsQueryTime    = 8 * time.Second  // Stub resolvers ask again after five seconds, and give up after ten or fifteen.
	dnsRate         = 200              // A page asks for tens of names.
	dnsBurst        = 1000             // A resolver of a small office.
	dnsQueries      = 4096             // Each takes a socket or two while it waits.
	dnsConnections  = 512              // Each takes one, too.
	dnsIdle         = 10 * time.Second // RFC 7766, section 6.2.3: a few seconds.
	maxDNSPrefixes  = 8                // Each A record becomes as many AAAA records.
	maxDNSQueries   = 1 << 16          // There are no more ports.
)

// DefaultDNS64 returns a DNS64 as it is where the file says nothing; its clients and
// upstreams must still be set.
func DefaultDNS64() DNS64 {
	return DNS64{
		Name:             RoleDNS64,
		Listen:           []netip.AddrPort{netip.AddrPortFrom(netip.IPv6Unspecified(), dnsPort)},
		ClientLength:     64,
		Exclude:          []netip.Prefix{netip.MustParsePrefix("::ffff:0:0/96")},
		CacheEntries:     dnsCacheEntries,
		CacheBytes:       dnsCacheBytes,
		CacheMaxTTL:      dnsMaxTTL,
		CacheNegativeTTL: dnsNegativeTTL,
		UpstreamTimeout:  dnsUpstreamTime,
		QueryTimeout:     dnsQueryTime,
		UDPSize:          defaultDNSSize,
		RatePerClient:    dnsRate,
		Burst:            dnsBurst,
		MaxQueries:       dnsQueries,
		MaxConnections:   dnsConnections,
		IdleTimeout:      dnsIdle,
	}
}

func (c *checker) dns64(at string, raw rawDNS64) DNS64 {
	d := DefaultDNS64()
	set(c, at, "name", raw.Name, &d.Name, instanceName)
	set(c, at, "listen", raw.Listen, &d.Listen, filled("name at least one address, or leave the key out", listOf(dnsAddress)))
	set(c, at, "upstreams", raw.Upstreams, &d.Upstreams, filled("name at least one recursive name server", listOf(dnsAddress)))
	set(c, at, "trusted", raw.Trusted, &d.Trusted, listOf(dnsAddress))
	set(c, at, "clients", raw.Clients, &d.Clients, filled("name at least one prefix", listOf(anyPrefix)))
	set(c, at, "open", raw.Open, &d.Open, boolean)
	set(c, at, "client_length", raw.ClientLength, &d.ClientLength, integer[int](1, 128))
	set(c, at, "prefixes", raw.Prefixes, &d.Prefixes, listOf(translationPrefix))
	set(c, at, "ranges", raw.Ranges, &d.Ranges, listOf(dns64Range))
	set(c, at, "exclude", raw.Exclude, &d.Exclude, listOf(prefix6))
	set(c, at, "no_synthesis_for", raw.NoSynthesisFor, &d.NoSynthesisFor, listOf(anyPrefix))
	set(c, at, "ptr_name", raw.PTRName, &d.PTRName, optional(domainName))
	set(c, at, "cache_entries", raw.CacheEntries, &d.CacheEntries, count(0))
	set(c, at, "cache_bytes", raw.CacheBytes, &d.CacheBytes, count(0))
	set(c, at, "cache_max_ttl", raw.CacheMaxTTL, &d.CacheMaxTTL, duration(time.Second, 7*24*time.Hour))
	set(c, at, "cache_negative_ttl", raw.CacheNegativeTTL, &d.CacheNegativeTTL, duration(time.Second, 24*time.Hour))
	set(c, at, "upstream_timeout", raw.UpstreamTimeout, &d.UpstreamTimeout, duration(100*time.Millisecond, 30*time.Second))
	set(c, at, "query_timeout", raw.QueryTimeout, &d.QueryTimeout, duration(100*time.Millisecond, time.Minute))
	set(c, at, "mixed_case", raw.MixedCase, &d.MixedCase, boolean)
	set(c, at, "udp_size", raw.UDPSize, &d.UDPSize, integer[int](minDNSSize, maxDNSSize))
	set(c, at, "rate_per_client", raw.RatePerClient, &d.RatePerClient, count(0))
	set(c, at, "burst", raw.Burst, &d.Burst, count(1))
	set(c, at, "max_queries", raw.MaxQueries, &d.MaxQueries, integer[int](1, maxDNSQueries))
	set(c, at, "max_connections", raw.MaxConnections, &d.MaxConnections, integer[int](1, maxDNSQueries))
	set(c, at, "idle_timeout", raw.IdleTimeout, &d.IdleTimeout, duration(time.Second, 10*time.Minute))
	c.dns64Clients(at, &d)
	c.dns64Upstreams(at, &d)
	if len(d.Prefixes) > maxDNSPrefixes && !c.failed[at+".prefixes"] {
		c.fail(at+".prefixes", fmt.Sprintf("%d prefixes make %d AAAA records of each A record", len(d.Prefixes), len(d.Prefixes)), fmt.Sprintf("name at most %d", maxDNSPrefixes))
	}
	if d.QueryTimeout < d.UpstreamTimeout && !c.failed[at+".query_timeout"] && !c.failed[at+".upstream_timeout"] {
		c.fail(at+".query_timeout", fmt.Sprintf("%v in all are less than upstream_timeout for one upstream", d.QueryTimeout), fmt.Sprintf("write %v or more", d.UpstreamTimeout))
	}
	return d
}

// dns64Prefixes gives each DNS64 without prefixes those of the NAT64 instances beside it.
func dns64Prefixes(config *Config) {
	var beside []netip.Prefix
	for _, n := range config.NAT64s {
		for _, p := range n.Pool6 {
			if !slices.Contains(beside, p) && len(beside) < maxDNSPrefixes {
				beside = append(beside, p)
			}
		}
	}
	for i := range config.DNS64s {
		if d := &config.DNS64s[i]; len(d.Prefixes) == 0 {
			d.Prefixes = slices.Clone(beside)
		}
	}
}

// dns64Clients checks that it is written who may ask: a name server for everybody
// serves those who forge sources.
func (c *checker) dns64Clients(at string, d *DNS64) {
	if c.failed[at+".clients"] {
		return
	}
	if len(d.Clients) == 0 {
		c.fail(at, "nobody may use this DNS64", `add clients = ["2001:db8:1::/48"] with the prefixes of your hosts`)
		return
	}
	for i, p := range d.Clients {
		if p.Bits() == 0 && !d.Open {
			c.fail(fmt.Sprintf("%s.clients[%d]", at, i), fmt.Sprintf("%s is all the world", p), "name the prefixes of your hosts, or add open = true if everybody may ask")
		}
	}
}

func (c *checker) dns64Upstreams(at string, d *DNS64) {
	if len(d.Upstreams) == 0 && !c.failed[at+".upstreams"] {
		c.fail(at, "this DNS64 has nobody to ask", `add upstreams = ["2001:db8::53"] with the addresses of recursive name servers`)
	}
	for i, u := range d.Upstreams {
		path := fmt.Sprintf("%s.upstreams[%d]", at, i)
		switch {
		case c.failed[at+".upstreams"]:
		case u.Addr().IsUnspecified() || u.Addr().IsMulticast():
			c.fail(path, fmt.Sprintf("%s is not the address of a host", u.Addr()), "write that of a recursive name server, like 2001:db8::53")
		case slices.Contains(d.Listen, u):
			c.fail(path, fmt.Sprintf("%s is this DNS64 itself", u), "name a recursive name server")
		case slices.Contains(d.Upstreams[:i], u):
			c.fail(path, fmt.Sprintf("%s is listed twice", u), "name each upstream once")
		}
	}
	for i, u := range d.Trusted {
		if !slices.Contains(d.Upstreams, u) && !c.failed[at+".trusted"] && !c.failed[at+".upstreams"] {
			c.fail(fmt.Sprintf("%s.trusted[%d]", at, i), fmt.Sprintf("%s is not among the upstreams", u), "list it under upstreams too")
		}
	}
}

// dnsAddress parses the address of a name server; port 53 need not be written.
var dnsAddress = text("2001:db8::53", func(s string) (netip.AddrPort, *fault) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(a.Unmap(), dnsPort), nil
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Port() == 0 {
		return a, wrong("write it like 2001:db8::53, [2001:db8::53]:5353 or 192.0.2.53:53", "%q is not an address, with a port or without", s)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
})

// anyPrefix parses a prefix of either family.
var anyPrefix = text("2001:db8:1::/48", func(s string) (netip.Prefix, *fault) { return prefix(s, "2001:db8:1::/48") })

// dns64Range parses an IPv4 range with its prefix, or with the word that it has none.
var dns64Range = text("10.0.0.0/8 2001:db8:10::/96", func(s string) (DNS64Range, *fault) {
	const example = `write it like "10.0.0.0/8 2001:db8:10::/96", or "10.0.0.0/8 none"`
	words := strings.Fields(s)
	if len(words) != 2 {
		return DNS64Range{}, wrong(example, "%q is not an IPv4 range with its prefix", s)
	}
	range4, f := prefix(words[0], "10.0.0.0/8")
	if f == nil && !range4.Addr().Is4() {
		f = wrong(example, "%s is not an IPv4 range", range4)
	}
	if f != nil || words[1] == "none" {
		return DNS64Range{IPv4: range4}, f
	}
	made, f := translationPrefix(words[1])
	return DNS64Range{IPv4: range4, Prefix: made}, f
})

var domainName = text("nat64.example.net", func(s string) (string, *fault) {
	if len(s) > 253 || !hostName.MatchString(s) {
		return "", wrong("write it like nat64.example.net", "%q is not a domain name", s)
	}
	return s, nil
})
