// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/sip/digest"
	"github.com/isthmus-net/isthmus/sip/registrar"
)

const name = "registrar"

// Role is the registrar as the program knows it.
var Role = role.Of[Settings]{
	Section: config.SectionOf[Settings]{
		Name: name,
		Help: "SIP registrar with a proxy or redirect server (RFC 3261): terminals register here, and are called by their addresses. docs/sip.md begins at nothing.",
		Keys: (*Settings).keys, Check: (*Settings).check, Claims: (*Settings).claims,
	},
	Summary: (*Settings).summary,
	Examine: examine, Files: examineFiles,
	New: func(s Settings, log *slog.Logger) (role.Instance, error) { return New(s, log) },

	Questions: questions,
	Command:   role.Command{Help: "Look into a running registrar, and remove bindings.", Flags: func() any { return new(commands) }},
}.Role()

// Settings are one [[registrar]] section; what each means stands where its key is declared.
type Settings struct {
	Name                                   string
	Domains, Hosts                         []string
	Listen, ListenTLS                      []netip.AddrPort
	CertificateFile, KeyFile, RootsFile    string
	SubscribersFile                        string
	Mode                                   string
	ProveCallers, RecordRoute              bool
	Trusted                                []netip.Prefix
	NextHop, ICSCF                         string
	ServiceRoute                           []string
	Algorithms                             []digest.Algorithm
	NonceLife                              time.Duration
	ExpiresMin, ExpiresDefault, ExpiresMax time.Duration
	RingTimeout                            time.Duration
	MaxForks, MTU                          int
	MaxBindings, BindingsPerAddress        int
	MaxTransactions, TransactionsPerSource int
	MaxConnections, ConnectionsPerSource   int
	RatePerSource, Burst                   int
	IdleTimeout                            time.Duration
	MessageTimeout, ConnectTimeout         time.Duration
	KeepState                              bool
	StateFile                              string // empty: one named after the instance
}

// Modes.
const (
	Proxy    = "proxy"
	Redirect = "redirect"
)

const (
	maxTable       = 1 << 24
	maxConnections = 1 << 20
	day            = 24 * time.Hour
)

func (s *Settings) keys() []key.Key {
	std, proxy := registrar.Defaults(), registrar.ProxyDefaults()
	return append(append(append(s.whereKeys(), s.whoKeys()...), s.timeKeys()...), []key.Key{
		key.Of("max_forks", &s.MaxForks, proxy.MaxForks, key.Integer[int](1, 60), key.Live,
			"Contacts of one address that a request goes to at most."),
		key.Of("max_bindings", &s.MaxBindings, std.Limits.Bindings, key.Integer[int](1, maxTable), key.Live,
			"Bindings at a time; a further one is refused with 503."),
		key.Of("bindings_per_address", &s.BindingsPerAddress, std.Limits.PerAOR, key.Integer[int](1, 60), key.Live,
			"The same of one address of record; a further one is refused with 403."),
		key.Of("max_transactions", &s.MaxTransactions, proxy.Transactions.Servers, key.Integer[int](1, maxTable), key.Live,
			"Requests that are open at a time, and as many that the proxy has sent; a further one is answered with 503."),
		key.Of("transactions_per_source", &s.TransactionsPerSource, proxy.Transactions.PerSource, key.Integer[int](1, maxTable), key.Live,
			"The same of one source, an IPv4 address or an IPv6 /64."),
		key.Of("max_connections", &s.MaxConnections, 10_000, key.Integer[int](1, maxConnections), key.Live,
			"Connections over TCP and TLS, shared among sources: when all are taken, the source with most gives up the one that was idle longest."),
		key.Of("connections_per_source", &s.ConnectionsPerSource, 200, key.Integer[int](1, maxConnections), key.Live,
			"The same of one source."),
		// A busy proxy beside this one sends some thousands.
		key.Of("rate_per_source", &s.RatePerSource, 5000, key.Count(0), key.Live,
			"Messages a second of one source; 0 is no limit. Datagrams above it are dropped, connections read later."),
		key.Of("burst", &s.Burst, 10_000, key.Count(1), key.Live,
			"Messages of one source that may come at once before rate_per_source applies."),
		key.Of("keep_state", &s.KeepState, true, key.Bool, key.Restart,
			"Keep bindings and the sequence numbers of SIMs over a restart, a crash too."),
		key.Of("state_file", &s.StateFile, "", key.Optional(key.File), key.Restart,
			"File of these. Empty: /var/lib/isthmus/NAME.registrar.state."),
	}...)
}

// whereKeys declare where the server is.
func (s *Settings) whereKeys() []key.Key {
	return []key.Key{
		key.Of("name", &s.Name, name, key.InstanceName, key.Identity,
			"Unique over all instances. Small letters, digits, dots and hyphens."),
		key.Of("domains", &s.Domains, key.MustSet([]string{"example.net"}), key.Filled("name the domain of your addresses", key.List(domainName)), key.Live,
			"Domains whose addresses are registered here. The first is the realm of passwords."),
		key.Of("hosts", &s.Hosts, []string{}, key.List(domainName), key.Live,
			`Other names by which this server is reached: ["sip.example.net"].`),
		key.Of("listen", &s.Listen, key.MustSet([]string{"2001:db8::5", "192.0.2.5"}), key.Filled("name an address of this host", key.List(endpoint(sipPort))), key.Restart,
			`Addresses of this host to listen on, UDP and TCP each; port 5060 unless written ("[2001:db8::5]:5070"). Messages carry them, so they are addresses, not ::.`),
		key.Of("listen_tls", &s.ListenTLS, []string{}, key.List(endpoint(sipsPort)), key.Restart,
			"The same for TLS; port 5061 unless written."),
		key.Of("certificate_file", &s.CertificateFile, "", key.Optional(key.File), key.Live,
			"Certificate of TLS with those that vouch for it, in PEM. A reload reads it again.").Unless("listen_tls"),
		key.Of("key_file", &s.KeyFile, "", key.Optional(key.File), key.Live, "Its private key, which others may not read.").Unless("listen_tls"),
		key.Of("roots_file", &s.RootsFile, "", key.Optional(key.File), key.Live,
			"Certificates that vouch for servers that are called by TLS. Empty: those of this host."),
		key.Of("mtu", &s.MTU, 0, pathMTU, key.Live,
			"MTU of the paths to terminals, 1280 over Teredo: larger requests than 200 octets less go by TCP. 0: not known, and from 1300 octets on."),
	}
}

// whoKeys declare who registers, and who calls whom.
func (s *Settings) whoKeys() []key.Key {
	return []key.Key{
		key.Of("subscribers_file", &s.SubscribersFile, key.Example("/etc/isthmus/subscribers.toml"), key.Optional(key.File), key.Live,
			"File with those who may register; without a next_hop it must be set. It holds secrets, so others may not read it. A reload reads it again."),
		key.Of("mode", &s.Mode, Proxy, key.OneOf(Proxy, Redirect), key.Live,
			`Pass requests on, "proxy", or answer with the contacts, "redirect".`),
		key.Of("prove_callers", &s.ProveCallers, true, key.Bool, key.Live,
			"Callers of the own domains prove who they are. Who calls elsewhere does so in any case."),
		key.Of("record_route", &s.RecordRoute, true, key.Bool, key.Live, "Stay in the path of calls until they end."),
		key.Of("trusted", &s.Trusted, []string{}, key.List(key.Network), key.Live,
			"Proxies beside this one, which have proved who calls. No one else may be able to send in their name."),
		key.Of("next_hop", &s.NextHop, "", key.Optional(serverURI), key.Live,
			`Proxy to which everything from terminals goes, "sip:[2001:db8::6]:5060": this one is a P-CSCF then, and registers nobody itself.`),
		key.Of("icscf", &s.ICSCF, "", key.Optional(serverURI), key.Live,
			`I-CSCF by which calls for those go whom another registrar serves, "sip:[2001:db8::4]:5060". Empty: straight there.`),
		key.Of("service_route", &s.ServiceRoute, []string{}, key.List(serverURI), key.Live,
			`Route that terminals are told to send by (RFC 3608): ["sip:[2001:db8::5]:5060"].`),
		key.Of("algorithms", &s.Algorithms, []string{"SHA-256", "MD5"}, key.Filled("name one at least", key.List(key.OneOf(digest.SHA256, digest.SHA512256, digest.MD5))), key.Live,
			"Digests of passwords, the preferred one first."),
	}
}

// timeKeys declare how long things last.
func (s *Settings) timeKeys() []key.Key {
	return []key.Key{
		key.Of("nonce_life", &s.NonceLife, "5m", key.Duration(time.Second, day), key.Live, "How long a challenge can be answered."),
		key.Of("expires_min", &s.ExpiresMin, "1m", key.Duration(time.Second, day), key.Live,
			"Least lifetime of a binding; a briefer one is refused with 423, unless it is an hour or more (RFC 3261, section 10.3)."),
		key.Of("expires_default", &s.ExpiresDefault, "1h", key.Duration(time.Second, 7*day), key.Live, "Lifetime where none is asked for."),
		key.Of("expires_max", &s.ExpiresMax, "24h", key.Duration(time.Second, 30*day), key.Live, "Longest lifetime."),
		key.Of("ring_timeout", &s.RingTimeout, "185s", key.Duration(3*time.Minute, day), key.Live,
			"How long a call may ring. RFC 3261, section 16.6: Timer C, above three minutes."),
		// A terminal without keep-alives registers each hour.
		key.Of("idle_timeout", &s.IdleTimeout, "65m", key.Duration(time.Second, 7*day), key.Live, "How long a connection may be silent."),
		key.Of("message_timeout", &s.MessageTimeout, "10s", key.Duration(100*time.Millisecond, 10*time.Minute), key.Live,
			"How long a message may take from its first octet to its last, and TLS to begin."),
		key.Of("connect_timeout", &s.ConnectTimeout, "4s", key.Duration(100*time.Millisecond, 32*time.Second), key.Live,
			"How long a connection to somebody else may take to open."),
	}
}

func (s *Settings) summary() string {
	words := []string{"listens on UDP and TCP " + role.Join(s.Listen)}
	if len(s.ListenTLS) > 0 {
		words = append(words, "TLS "+role.Join(s.ListenTLS))
	}
	what := "registers for " + strings.Join(s.Domains, ", ")
	if s.NextHop != "" {
		what = fmt.Sprintf("passes %s on to %s", strings.Join(s.Domains, ", "), s.NextHop)
	}
	return strings.Join(append(words, what, "mode "+s.Mode), ", ")
}
