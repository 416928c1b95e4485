// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/sip/message"
)

func (s *Settings) check(c *config.Checker) {
	s.checkListen(c)
	s.checkWho(c)
	if c.OK("expires_min", "expires_default", "expires_max") && (s.ExpiresDefault < s.ExpiresMin || s.ExpiresDefault > s.ExpiresMax) {
		c.Fail("expires_default", fmt.Sprintf("%v is not between expires_min, %v, and expires_max, %v", s.ExpiresDefault, s.ExpiresMin, s.ExpiresMax), "write a time between them")
	}
	for _, of := range []struct {
		key, all    string
		value, most int
	}{
		{"bindings_per_address", "max_bindings", s.BindingsPerAddress, s.MaxBindings},
		{"transactions_per_source", "max_transactions", s.TransactionsPerSource, s.MaxTransactions},
		{"connections_per_source", "max_connections", s.ConnectionsPerSource, s.MaxConnections},
	} {
		if of.value > of.most && c.OK(of.key, of.all) {
			c.Fail(of.key, fmt.Sprintf("%d are more than %s, %d", of.value, of.all, of.most), fmt.Sprintf("write %d or less", of.most))
		}
	}
}

// checkListen wants sockets apart, and a certificate where TLS is spoken.
func (s *Settings) checkListen(c *config.Checker) {
	if len(s.Listen) == 0 && c.OK("listen") {
		c.Fail("", "no one reaches this registrar", `add listen = ["2001:db8::5"] with addresses of this host`)
	}
	for i, at := range s.Listen {
		if slices.Contains(s.Listen[:i], at) && c.OK("listen") {
			c.Fail(fmt.Sprintf("listen[%d]", i), fmt.Sprintf("%s is there twice", at), "name each address once")
		}
	}
	for i, at := range s.ListenTLS {
		switch {
		case !c.OK("listen", "listen_tls"):
		case slices.Contains(s.ListenTLS[:i], at):
			c.Fail(fmt.Sprintf("listen_tls[%d]", i), fmt.Sprintf("%s is there twice", at), "name each address once")
		case slices.Contains(s.Listen, at):
			c.Fail(fmt.Sprintf("listen_tls[%d]", i), fmt.Sprintf("TCP has %s already", at), "choose another port for TLS, as a rule 5061")
		}
	}
	if n := len(s.Listen)*2 + len(s.ListenTLS); n > maxListeners && c.OK("listen", "listen_tls") {
		c.Fail("listen", fmt.Sprintf("%d sockets are too many", n), fmt.Sprintf("name addresses for %d at most", maxListeners))
	}
	both := s.CertificateFile != "" && s.KeyFile != ""
	switch {
	case !c.OK("listen_tls", "certificate_file", "key_file"):
	case len(s.ListenTLS) > 0 && !both:
		c.Fail("listen_tls", "TLS needs a certificate and its key", "add certificate_file and key_file, or leave listen_tls out")
	case (s.CertificateFile != "") != (s.KeyFile != ""):
		c.Fail("", "a certificate and its key belong together", "name both, or none")
	}
}

// maxListeners is how many sockets one instance has.
const maxListeners = 64

// checkWho wants somebody to serve.
func (s *Settings) checkWho(c *config.Checker) {
	if len(s.Domains) == 0 && c.OK("domains") {
		c.Fail("", "this registrar has no domain", `add domains = ["example.net"] with that of your addresses`)
	}
	for i, d := range s.Domains {
		if slices.Contains(s.Domains[:i], d) && c.OK("domains") {
			c.Fail(fmt.Sprintf("domains[%d]", i), d+" is there twice", "name each domain once")
		}
	}
	if s.SubscribersFile == "" && s.NextHop == "" && c.OK("subscribers_file", "next_hop") {
		c.Fail("", "no one can register, because there are no subscribers", `add subscribers_file = "/etc/isthmus/subscribers.toml", or a next_hop that knows them`)
	}
	if s.NextHop != "" {
		s.checkNextHop(c)
	}
}

// checkNextHop wants somebody else behind a server that passes all on.
func (s *Settings) checkNextHop(c *config.Checker) {
	if s.Mode == Redirect && c.OK("mode", "next_hop") {
		c.Fail("mode", "a server before a next_hop passes requests on", `write mode = "proxy", or leave next_hop out`)
	}
	u, _ := message.ParseURI(s.NextHop)
	a, err := netip.ParseAddr(u.Host)
	port := u.Port
	if port == 0 {
		port = sipPort
	}
	if err == nil && slices.Contains(slices.Concat(s.Listen, s.ListenTLS), netip.AddrPortFrom(a, port)) && c.OK("next_hop", "listen", "listen_tls") {
		c.Fail("next_hop", s.NextHop+" is this server itself", "name the proxy behind it")
	}
}

func (s *Settings) claims() (claims []config.Claim) {
	for _, at := range s.Listen {
		claims = append(claims, config.Socket{Key: "listen", Protocol: "UDP", At: at}, config.Socket{Key: "listen", Protocol: "TCP", At: at})
	}
	for _, at := range s.ListenTLS {
		claims = append(claims, config.Socket{Key: "listen_tls", Protocol: "TCP", At: at})
	}
	return claims
}
