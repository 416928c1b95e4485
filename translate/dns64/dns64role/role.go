// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate/dns64"
	"github.com/isthmus-net/isthmus/translate/keys"
	"github.com/isthmus-net/isthmus/translate/pref64"
)

const name = "dns64"

// Role is the DNS64 as the program knows it.
var Role = role.Of[Settings]{
	Section: config.SectionOf[Settings]{
		Name: name,
		Help: "DNS64 (RFC 6147): a name server that makes AAAA records of A records, for hosts behind a NAT64.",
		Keys: (*Settings).keys, Check: (*Settings).check, Claims: (*Settings).claims, Take: (*Settings).take,
	},
	Summary: (*Settings).summary,
	Examine: func(s *Settings) []role.Finding { return role.Problems(Examine(*s)) },
	New:     func(s Settings, log *slog.Logger) (role.Instance, error) { return New(s, log) },
}.Role()

// Settings are one [[dns64]] section; what each means stands where its key is declared.
type Settings struct {
	Name                          string
	Listen, Upstreams, Trusted    []netip.AddrPort
	Clients                       []netip.Prefix
	Open                          bool
	ClientLength                  int
	Prefixes                      []netip.Prefix // empty: the well-known one
	Ranges                        []dns64.Range
	Exclude, NoSynthesisFor       []netip.Prefix
	PTRName                       string
	CacheEntries, CacheBytes      int
	CacheMaxTTL, CacheNegativeTTL time.Duration
	UpstreamTimeout, QueryTimeout time.Duration
	MixedCase                     bool
	UDPSize                       int
	RatePerClient, Burst          int
	MaxQueries, MaxConnections    int
	IdleTimeout                   time.Duration
}

const maxQueries = 1 << 16 // There are no more ports.

func (s *Settings) keys() []key.Key {
	const day = 24 * time.Hour
	return []key.Key{
		key.Of("name", &s.Name, name, key.InstanceName, key.Identity,
			"Unique over all instances. Small letters, digits, dots and hyphens."),
		key.Of("listen", &s.Listen, []string{"::"}, key.Filled("name at least one address, or leave the key out", key.List(keys.NameServer)), key.Restart,
			`Addresses to listen on, UDP and TCP each; port 53 unless written ("[::1]:5353").`),
		key.Of("upstreams", &s.Upstreams, key.MustSet([]string{"2001:db8::53"}), key.Filled("name at least one recursive name server", key.List(keys.NameServer)), key.Live,
			"Recursive name servers, in the order in which they are asked."),
		key.Of("trusted", &s.Trusted, []string{}, key.List(keys.NameServer), key.Live,
			"Those of upstreams that validate by DNSSEC and whose word counts: AD is passed on, and data that they find forged is refused."),
		key.Of("clients", &s.Clients, key.MustSet([]string{"2001:db8::/32"}), key.Filled("name at least one prefix", key.List(key.Prefix)), key.Live,
			`Who is answered. All the world, ["::/0"], only with open = true.`),
		key.Of("open", &s.Open, false, key.Bool, key.Live,
			"Everybody may ask: such a name server serves those who forge sources."),
		key.Of("client_length", &s.ClientLength, 64, key.Integer[int](1, 128), key.Live,
			"How many bits of an IPv6 address tell one client from another: a host can take any address of its /64. Of IPv4, each address is a client."),
		key.Of("prefixes", &s.Prefixes, []string{}, key.List(keys.Prefix), key.Live,
			"Prefixes that AAAA records are made with. Empty: those of the [[nat64]] sections, or 64:ff9b::/96 without any."),
		key.Of("ranges", &s.Ranges, []string{}, key.List(rangeWithPrefix), key.Live,
			"IPv4 ranges with prefixes of their own, or with none:\n"+`["10.0.0.0/8 2001:db8:10::/96", "172.16.0.0/12 none"].`),
		key.Of("exclude", &s.Exclude, []string{"::ffff:0:0/96"}, key.List(key.Prefix6), key.Live,
			"AAAA records that count as no answer."),
		key.Of("no_synthesis_for", &s.NoSynthesisFor, []string{}, key.List(key.Prefix), key.Live,
			"Clients that get what the upstream says: hosts with IPv4 of their own."),
		key.Of("ptr_name", &s.PTRName, "", key.Optional(domainName), key.Live,
			"What reverse queries below the prefixes are answered with. Empty: the name of the IPv4 address, by a CNAME."),
		// The names that a few thousand users look up in an hour.
		key.Of("cache_entries", &s.CacheEntries, 100_000, key.Count(0), key.Live,
			"Answers that the cache holds; 0 is no cache."),
		key.Of("cache_bytes", &s.CacheBytes, 64<<20, key.Count(0), key.Live,
			"Memory that the cache takes, in bytes."),
		// RFC 8767, section 4, advises a cap of days; a day is kinder to those who err.
		key.Of("cache_max_ttl", &s.CacheMaxTTL, "24h", key.Duration(time.Second, 7*day), key.Live,
			"Longest time to keep answers with data."),
		// RFC 2308, section 5: one to three hours at most are sensible.
		key.Of("cache_negative_ttl", &s.CacheNegativeTTL, "15m", key.Duration(time.Second, day), key.Live,
			"Longest time to keep answers without data."),
		// A resolver that has to ask around takes a second or so.
		key.Of("upstream_timeout", &s.UpstreamTimeout, "2s", key.Duration(100*time.Millisecond, 30*time.Second), key.Live,
			"How long one upstream may take."),
		// Stub resolvers ask again after five seconds, and give up after ten or fifteen.
		key.Of("query_timeout", &s.QueryTimeout, "8s", key.Duration(100*time.Millisecond, time.Minute), key.Live,
			"How long all upstreams may take together."),
		key.Of("mixed_case", &s.MixedCase, false, key.Bool, key.Live,
			"Send names in capitals and small letters at random, which makes answers harder to forge; a few old name servers fail on it."),
		// The bounds: RFC 1035, section 4.2.1, and RFC 6891, section 6.2.5. The default
		// fits into IPv6's minimum MTU.
		key.Of("udp_size", &s.UDPSize, 1232, key.Integer[int](512, 4096), key.Live,
			"Largest answer over UDP, 512 to 4096 bytes; clients may ask for less."),
		// A page asks for tens of names.
		key.Of("rate_per_client", &s.RatePerClient, 200, key.Count(0), key.Live,
			"Queries a second of one client; 0 is no limit."),
		// A resolver of a small office.
		key.Of("burst", &s.Burst, 1000, key.Count(1), key.Live,
			"Queries of one client that may come at once before rate_per_client applies."),
		// Each takes a socket or two while it waits.
		key.Of("max_queries", &s.MaxQueries, 4096, key.Integer[int](1, maxQueries), key.Live,
			"Queries that wait for upstreams. One client may have an eighth; when all are taken, the client with most gives one up to a client with fewer."),
		// Each takes a socket, too.
		key.Of("max_connections", &s.MaxConnections, 512, key.Integer[int](1, maxQueries), key.Live,
			"Connections over TCP, shared among clients as queries are."),
		// RFC 7766, section 6.2.3: a few seconds.
		key.Of("idle_timeout", &s.IdleTimeout, "10s", key.Duration(time.Second, 10*time.Minute), key.Live,
			"How long a connection may be silent."),
	}
}

// rangeWithPrefix parses an IPv4 range with its prefix, or with the word that it has none.
var rangeWithPrefix = key.Text("10.0.0.0/8 2001:db8:10::/96", func(s string) (dns64.Range, *key.Fault) {
	const example = `write it like "10.0.0.0/8 2001:db8:10::/96", or "10.0.0.0/8 none"`
	words := strings.Fields(s)
	if len(words) != 2 {
		return dns64.Range{}, key.Wrong(example, "%q is not an IPv4 range with its prefix", s)
	}
	range4, f := key.PrefixLike(words[0], "10.0.0.0/8")
	if f == nil && !range4.Addr().Is4() {
		f = key.Wrong(example, "%s is not an IPv4 range", range4)
	}
	if f != nil || words[1] == "none" {
		return dns64.Range{IPv4: range4}, f
	}
	made, f := keys.Prefix(words[1])
	return dns64.Range{IPv4: range4, Prefix: made}, f
})

var domainName = key.Text("nat64.example.net", func(s string) (string, *key.Fault) {
	if !key.IsHostName(s) {
		return "", key.Wrong("write it like nat64.example.net", "%q is not a domain name", s)
	}
	return s, nil
})

func (s *Settings) check(c *config.Checker) {
	s.checkClients(c)
	s.checkUpstreams(c)
	if n := len(s.Prefixes); n > dns64.MaxPrefixes && c.OK("prefixes") {
		c.Fail("prefixes", fmt.Sprintf("%d prefixes make %d AAAA records of each A record", n, n), fmt.Sprintf("name at most %d", dns64.MaxPrefixes))
	}
	if c.OK("query_timeout", "upstream_timeout") {
		s.checkTimes(c)
	}
}

// checkTimes wants time for one upstream, and for another one behind a silent one.
func (s *Settings) checkTimes(c *config.Checker) {
	switch several := len(s.Upstreams) > 1; {
	case several && s.QueryTimeout <= s.UpstreamTimeout:
		c.Fail("query_timeout", fmt.Sprintf("%v in all leave no time for a second upstream where the first is silent for %v", s.QueryTimeout, s.UpstreamTimeout),
			fmt.Sprintf("write %v or more, or a shorter upstream_timeout", 2*s.UpstreamTimeout))
	case s.QueryTimeout < s.UpstreamTimeout:
		c.Fail("query_timeout", fmt.Sprintf("%v in all are less than upstream_timeout for one upstream", s.QueryTimeout), fmt.Sprintf("write %v or more", s.UpstreamTimeout))
	}
}

// checkClients wants it written who may ask: a name server for everybody serves those
// who forge sources.
func (s *Settings) checkClients(c *config.Checker) {
	if !c.OK("clients") {
		return
	}
	if len(s.Clients) == 0 {
		c.Fail("", "no one may use this DNS64", `add clients = ["2001:db8:1::/48"] with the prefixes of your hosts`)
	}
	for i, p := range s.Clients {
		if p.Bits() == 0 && !s.Open {
			c.Fail(fmt.Sprintf("clients[%d]", i), fmt.Sprintf("%s is all the world", p), "name the prefixes of your hosts, or add open = true if everybody may ask")
		}
	}
}

func (s *Settings) checkUpstreams(c *config.Checker) {
	if !c.OK("upstreams") {
		return
	}
	if len(s.Upstreams) == 0 {
		c.Fail("", "this DNS64 has no one to ask", `add upstreams = ["2001:db8::53"] with the addresses of recursive name servers`)
	}
	for i, u := range s.Upstreams {
		path := fmt.Sprintf("upstreams[%d]", i)
		switch {
		case u.Addr().IsUnspecified() || u.Addr().IsMulticast():
			c.Fail(path, fmt.Sprintf("%s is not the address of a host", u.Addr()), "write that of a recursive name server, like 2001:db8::53")
		case s.reaches(u, netip.Addr.IsLoopback):
			c.Fail(path, fmt.Sprintf("%s is this DNS64 itself", u), "name a recursive name server")
		case slices.Contains(s.Upstreams[:i], u):
			c.Fail(path, fmt.Sprintf("%s is listed twice", u), "name each upstream once")
		}
	}
	for i, u := range s.Trusted {
		if !slices.Contains(s.Upstreams, u) && c.OK("trusted") {
			c.Fail(fmt.Sprintf("trusted[%d]", i), fmt.Sprintf("%s is not among the upstreams", u), "list it under upstreams too")
		}
	}
}

// reaches reports whether queries to an address come to this DNS64 itself: it listens there, or
// at all addresses of the host, of which own knows that it is one.
func (s *Settings) reaches(to netip.AddrPort, own func(netip.Addr) bool) bool {
	return slices.ContainsFunc(s.Listen, func(at netip.AddrPort) bool {
		all := at.Addr().IsUnspecified() && (at.Addr().Is6() || to.Addr().Unmap().Is4())
		return at == to || all && at.Port() == to.Port() && own(to.Addr())
	})
}

func (s *Settings) claims() (claims []config.Claim) {
	for _, at := range s.Listen {
		claims = append(claims, config.Socket{Key: "listen", Protocol: "UDP", At: at}, config.Socket{Key: "listen", Protocol: "TCP", At: at})
	}
	return claims
}

// take gives a DNS64 without prefixes those of the NAT64s beside it.
func (s *Settings) take(offers []any) {
	if len(s.Prefixes) > 0 {
		return
	}
	for _, p := range slices.Concat(config.Offered[pref64.Local](offers)...) {
		if !slices.Contains(s.Prefixes, p) && len(s.Prefixes) < dns64.MaxPrefixes {
			s.Prefixes = append(s.Prefixes, p)
		}
	}
}

func (s *Settings) summary() string {
	return fmt.Sprintf("listens on UDP and TCP %s, asks %s, answers %s", role.Join(s.Listen), role.Join(s.Upstreams), role.Join(s.Clients))
}
