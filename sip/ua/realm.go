// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/sip/message"
)

// The password is for the servers of our own domain (RFC 3261 section 22.2). A peer chooses by Contact and
// Record-Route where requests in a call go and what URI they name, so one that had them signed could guess
// the password from the answers, or place calls by them.

// mayChallenge reports whether a challenge is one of our own servers: the request went to them. A 401 is of
// who is called (section 22.2), not of the proxies on the way, so that has to be a URI of theirs.
func (c *credentials) mayChallenge(e *Engine, req request, status int) bool {
	switch {
	case status != 401 && status != 407 || !c.home(e, &req.next):
		return false
	case status == 407:
		return true
	}
	u, fault := message.ParseURI(req.URI)
	return fault == nil && c.home(e, &u)
}

// home reports whether a URI leads to our own servers and nowhere else: to those of now, or those with which the call
// began, whose Record-Route stays though names lead elsewhere meanwhile.
func (c *credentials) home(e *Engine, u *message.URI) bool {
	if !u.Params.Has("maddr") && slices.ContainsFunc(e.domains(), func(host string) bool { return strings.EqualFold(u.Host, host) }) {
		return true
	}
	own := append(e.homes(), c.homes...)
	list, _ := e.servers(u)
	for _, to := range list {
		if !slices.Contains(own, to.Remote.Addr()) {
			return false
		}
	}
	return len(list) > 0
}

// domains are the hosts of our own settings.
func (e *Engine) domains() []string {
	if e.set.Proxy.Host == "" {
		return []string{e.set.AOR.Host}
	}
	return []string{e.set.AOR.Host, e.set.Proxy.Host}
}

// homes are the addresses of our own servers, on any port: the proxy's, those of the domain, and those by
// which the registrar has requests go (RFC 3608). A Record-Route may name them otherwise than our settings.
func (e *Engine) homes() (list []netip.Addr) {
	domain := e.reg.domain()
	uris := []*message.URI{&domain}
	for _, route := range e.firstRoute() {
		uris = append(uris, &route.URI)
	}
	for _, u := range uris {
		servers, _ := e.servers(u)
		for _, to := range servers {
			list = append(list, to.Remote.Addr())
		}
	}
	return list
}

// maxRealms is how many realms of the registrar's are remembered, and how many of a call are answered.
const maxRealms = 8

// inRealm reports whether the password is one of a realm: of those in which the registrar has asked for it,
// which a REGISTER adds to, and of those with the names of our servers. While the registrar has asked in
// none, as of who does not register, it is what our servers say.
func (e *Engine) inRealm(realm, method string) bool {
	known := slices.Contains(e.realms, realm)
	switch {
	case method != "REGISTER":
		return known || len(e.realms) == 0 || slices.ContainsFunc(e.domains(), func(host string) bool { return strings.EqualFold(realm, host) })
	case !known:
		e.realms = append(e.realms[max(0, len(e.realms)+1-maxRealms):], realm)
	}
	return true
}
