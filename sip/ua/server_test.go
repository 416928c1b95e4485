// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

// server is a registrar, and a proxy without state that goes by its bindings.
type server struct {
	w         *world
	at        netip.AddrPort
	bindings  map[string][]message.Address // by user
	nonce     string                       // "" asks for no credentials
	min       time.Duration                // of expiry
	status    int                          // answers REGISTER by it, if not 0
	redirect  bool
	elsewhere int                // refuses by it what is not for its users; 302 leads back to where it was to go
	requests  []*message.Message // REGISTERs
	mute      bool
	algorithm string
	stubborn  bool // takes no credentials
}

func (w *world) addServer(at string) *server {
	w.server = &server{w: w, at: netip.MustParseAddrPort(at), bindings: map[string][]message.Address{}}
	return w.server
}

func (s *server) reply(f flight, res *message.Message) {
	s.w.send(s.at, f.from, f.transport, res.Append(nil), nil)
}

func (s *server) handle(f flight) {
	if s.mute {
		return
	}
	switch f.data[0] {
	case 0:
		s.stun(f)
		return
	case '\r':
		s.w.send(s.at, f.from, f.transport, []byte("\r\n"), nil)
		return
	}
	m, fault := message.Parse(f.data)
	switch {
	case fault != nil:
		s.w.t.Errorf("the server cannot read %q: %v", f.data, fault)
	case !m.IsRequest():
		m.RemoveFirst("Via")
		v, _ := m.Via()
		s.w.send(s.at, netip.MustParseAddrPort(v.SentBy()), f.transport, m.Append(nil), nil)
	case m.Method == "REGISTER":
		s.register(f, m)
	default:
		s.forward(f, m)
	}
}

func (s *server) stun(f flight) {
	b := append([]byte{1, 1, 0, 24}, f.data[4:20]...)
	b = append(b, 0, 0x20, 0, 20, 0, 2, byte(f.from.Port()>>8)^0x21, byte(f.from.Port())^0x12)
	a := f.from.Addr().As16()
	for i := range a {
		b = append(b, a[i]^f.data[4+i])
	}
	s.w.send(s.at, f.from, f.transport, b, nil)
}

func (s *server) forward(f flight, m *message.Message) {
	m.RemoveFirst("Route")
	u, _ := message.ParseURI(m.URI)
	if u.Host == "example.com" {
		list := s.bindings[u.User]
		if len(list) == 0 {
			s.reply(f, message.Reply(m, 480, "Temporarily Unavailable", "s"))
			return
		}
		if s.redirect {
			res := message.Reply(m, 302, "Moved Temporarily", "s")
			for _, c := range list {
				res.Add("Contact", "<"+c.URI.String()+">")
			}
			if m.Method == "INVITE" {
				s.reply(f, res)
			}
			return
		}
		u = list[len(list)-1].URI
		m.URI = u.String()
	} else if s.elsewhere != 0 {
		if m.Method == "INVITE" {
			res := message.Reply(m, s.elsewhere, "Elsewhere", "s")
			res.Add("Contact", "<"+m.URI+">")
			s.reply(f, res)
		}
		return
	}
	v, _ := m.Via()
	m.Prepend("Via", "SIP/2.0/UDP "+s.at.String()+";branch="+v.Branch()+"p")
	s.w.send(s.at, netip.MustParseAddrPort(u.HostPort()), f.transport, m.Append(nil), nil)
}

func (s *server) register(f flight, m *message.Message) {
	s.requests = append(s.requests, m)
	if s.status != 0 {
		s.reply(f, message.Reply(m, s.status, "No", "s"))
		return
	}
	if s.nonce != "" && !strings.Contains(m.Get("Authorization"), `nonce="`+s.nonce+`"`) {
		res := message.Reply(m, 401, "Unauthorized", "s")
		stale := !s.stubborn && strings.Contains(m.Get("Authorization"), "nonce=")
		res.Add("WWW-Authenticate", fmt.Sprintf(`Digest realm="example.com", nonce="%s", qop="auth", algorithm=%s, stale=%t`, s.nonce, cmp.Or(s.algorithm, "MD5"), stale))
		s.reply(f, res)
		return
	}
	to, _ := m.To()
	user := to.URI.User
	for _, c := range m.Addresses("Contact") {
		expires, _ := c.Params.Get("expires")
		d, _ := seconds(expires)
		if d > 0 && d < s.min {
			res := message.Reply(m, 423, "Interval Too Brief", "s")
			res.Add("Min-Expires", inSeconds(s.min))
			s.reply(f, res)
			return
		}
		s.bindings[user] = slices.DeleteFunc(s.bindings[user], func(b message.Address) bool { return b.URI.Equal(&c.URI) })
		if d > 0 {
			s.bindings[user] = append(s.bindings[user], c)
		}
	}
	res := message.Reply(m, 200, "OK", "s")
	for _, b := range s.bindings[user] {
		res.Add("Contact", b.String())
	}
	s.reply(f, res)
}
