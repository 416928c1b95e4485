// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// rig is a proxy between hosts, whose messages wait in inboxes.
//
//	caller 2001:db8::1, callees 2001:db8::2 and following, 192.0.2.x -- proxy 2001:db8::5, 192.0.2.5
type rig struct {
	t     *testing.T
	p     *Proxy
	now   time.Time
	out   Output
	inbox []transaction.Send // in the order in which they were sent
	named []Lookup
}

func newRig(t *testing.T, change ...func(*Settings, *ProxySettings)) *rig {
	t.Helper()
	s, ps := settings(t), ProxyDefaults()
	ps.Listeners = []Listener{
		{"UDP", netip.MustParseAddrPort("[2001:db8::5]:5060")}, {"TCP", netip.MustParseAddrPort("[2001:db8::5]:5060")}, {"UDP", netip.MustParseAddrPort("192.0.2.5:5060")},
	}
	for _, f := range change {
		f(&s, &ps)
	}
	p, err := NewProxy(s, ps, source(1))
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, p: p, now: start}
}

// bind binds an address of record to contacts, without a REGISTER.
func (r *rig) bind(aor string, contacts ...string) {
	r.t.Helper()
	registration := location.Registration{CallID: aor, CSeq: uint32(r.now.Sub(start))}
	for _, one := range contacts {
		c, reg, ok := r.p.contact(one, &message.Message{}, Source{})
		if !ok {
			r.t.Fatal(one)
		}
		c.RegID = reg
		registration.Contacts = append(registration.Contacts, c)
	}
	if err := r.p.Table().Register("sip:"+aor+"@"+realm, &registration, r.now); err != nil {
		r.t.Fatal(err)
	}
}

// target is a host as the proxy sees it by UDP.
func target(remote string) transaction.Target {
	to := netip.MustParseAddrPort(remote)
	local := "[2001:db8::5]:5060"
	if to.Addr().Is4() {
		local = "192.0.2.5:5060"
	}
	return transaction.Target{Transport: "UDP", Local: netip.MustParseAddrPort(local), Remote: to}
}

const caller = "[2001:db8::1]:5060"

// make makes a request of the caller, who is a stranger, with fields.
func (r *rig) make(method, uri, branch string, fields ...string) *message.Message {
	r.t.Helper()
	text := fmt.Sprintf("%s %s SIP/2.0\r\nVia: SIP/2.0/UDP [2001:db8::1];branch=%s%s\r\nFrom: <sip:carol@elsewhere.example.net>;tag=c\r\nTo: <%s>\r\nCall-ID: call\r\nCSeq: 1 %s\r\n",
		method, uri, message.Cookie, branch, uri, method)
	for _, f := range fields {
		text += f + "\r\n"
	}
	m, f := message.Parse([]byte(text + "\r\n"))
	if f != nil {
		r.t.Fatalf("%v:\n%s", f, text)
	}
	return m
}

// send has the proxy take a message.
func (r *rig) send(m *message.Message, from string) {
	r.t.Helper()
	r.p.Handle(m, target(from), r.now, &r.out)
	r.take()
}

func (r *rig) take() {
	r.t.Helper()
	for _, s := range r.out.Sends {
		m, f := message.Parse(s.Message.Append(nil))
		if f != nil {
			r.t.Fatalf("the proxy sends what is refused as %v:\n%s", f, s.Message)
		}
		r.inbox = append(r.inbox, transaction.Send{To: s.To, Message: m})
	}
	r.named = append(r.named, r.out.Lookups...)
	r.out.Lookups = nil
	r.out.Reset()
}

// until lets time pass.
func (r *rig) until(d time.Duration) {
	r.t.Helper()
	end := start.Add(d)
	for next := r.p.Next(); !next.IsZero() && !next.After(end); next = r.p.Next() {
		r.now = next
		r.p.Tick(r.now, &r.out)
		r.take()
	}
	r.now = end
}

// told says what was sent where, and forgets it.
func (r *rig) told() string {
	var words []string
	for _, s := range r.inbox {
		what := s.Message.Method
		if what == "" {
			what = fmt.Sprint(s.Message.Status)
		}
		words = append(words, what+" "+s.To.Remote.Addr().String())
	}
	r.inbox = nil
	return strings.ReplaceAll(strings.Join(words, ", "), "2001:db8::", ":")
}

func (r *rig) expect(name, want string) {
	r.t.Helper()
	if got := r.told(); got != want {
		r.t.Errorf("%s: %s\nwant %s", name, got, want)
	}
}

// got returns the last message that was sent to a host, and forgets all.
func (r *rig) got(what, host string) *message.Message {
	r.t.Helper()
	all := r.inbox
	r.inbox = nil
	for i := len(all) - 1; i >= 0; i-- {
		if m := all[i].Message; all[i].To.Remote.Addr().String() == host && (m.Method == what || fmt.Sprint(m.Status) == what) {
			return m
		}
	}
	r.t.Fatalf("no %s went to %s", what, host)
	return nil
}

// empty lets everything end, and wants nothing left.
func (r *rig) empty() {
	r.t.Helper()
	r.until(r.now.Sub(start) + 20*time.Minute)
	if servers, clients := r.p.layer.Len(); servers != 0 || clients != 0 || !r.p.layer.Next().IsZero() || len(r.p.lookups) != 0 || len(r.p.waiting) != 0 {
		r.t.Errorf("%d servers, %d clients, %d lookups, %d waiting are left, and something at %v", servers, clients, len(r.p.lookups), len(r.p.waiting), r.p.layer.Next())
	}
}
