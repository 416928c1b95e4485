// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"cmp"
	"time"

	"github.com/emiago/sipgo/sip"

	"github.com/isthmus-net/isthmus/sip/transaction"
)

// registration keeps one binding of the address of record: that of the path in use.
type registration struct {
	e        *Engine
	callID   string // the same for all, until the process ends (section 10.2)
	tag      string
	seq      uint32
	tx       *transaction.Client
	auth     credentials
	auths    int
	expires  time.Duration // as we ask
	path     *path         // of the request under way, or the last
	bound    string        // the contact that the registrar has
	old      []string      // those that it may have, and shall not
	leaving  bool          // the request under way removes the binding
	wanted   bool
	again    bool // something changed while a request was under way
	cleanups int
	failures int
	timer    *transaction.Timer

	serviceRoute []sip.Uri
	flow         flow
}

// maxOld bounds the contacts that one request removes, and maxCleanups how often the
// registrar is asked again for what it has kept.
const (
	maxOld      = 4
	maxCleanups = 2
)

func (r *registration) init(e *Engine) {
	r.e, r.callID, r.tag, r.expires = e, e.token(), e.token(), e.set.Register
	r.wanted = e.set.Register > 0
	r.timer = e.timer(r.begin)
	r.flow.init(e)
}

// Unregister removes the binding; [Engine.Register] makes it again.
func (e *Engine) Unregister(now time.Time, out *Output) {
	defer e.enter(now, out)()
	e.reg.wanted = false
	e.reg.begin()
}

// Register makes the binding, if Settings.Register asks for one.
func (e *Engine) Register(now time.Time, out *Output) {
	defer e.enter(now, out)()
	e.reg.wanted = e.set.Register > 0
	e.reg.begin()
}

// move registers the path that came into use.
func (r *registration) move() {
	r.failures, r.auths, r.cleanups = 0, 0, 0
	if r.wanted {
		r.begin()
	}
}

// begin sends a REGISTER, or notes that one is due when that under way has ended: there are
// never two (section 10.2). One on an address that is gone has ended as a transport error.
func (r *registration) begin() {
	if r.e.use == nil || !r.wanted && r.bound == "" {
		return
	}
	if r.tx != nil {
		r.again = true
		return
	}
	r.again = false
	r.send()
}

func (r *registration) send() {
	e := r.e
	e.layer.StopTimer(r.timer)
	r.path, r.leaving = e.use, !r.wanted
	r.seq++
	domain := sip.Uri{Scheme: cmp.Or(e.set.AOR.Scheme, "sip"), Host: e.set.AOR.Host, Port: e.set.AOR.Port}
	var route []sip.Uri
	if e.set.Proxy.Host != "" {
		route = []sip.Uri{looseRoute(e.set.Proxy)}
	}
	req := outgoing(sip.REGISTER, domain, route)
	aor := party{e.set.DisplayName, e.set.AOR}
	req.AppendHeader(aor.from(r.tag))
	req.AppendHeader(aor.to(""))
	id := sip.CallIDHeader(r.callID)
	req.AppendHeader(&id)
	req.AppendHeader(&sip.CSeqHeader{SeqNo: r.seq, MethodName: sip.REGISTER})
	r.contacts(req)
	set(req, "Supported", "path, outbound, gruu")
	set(req, "Allow", allowed)
	r.auth.apply(e, req)
	req.SetBody(nil)
	e.stats.Registrations++
	e.send(req, r.path, r.result, &r.tx)
}

// contacts adds the new contact, and after it those to be removed. With RFC 5626 the new one
// replaces the old by instance and reg-id alone; the old ones are named without these, for a
// registrar would take them for the same binding, and remove what it has just made.
func (r *registration) contacts(req *sip.Request) {
	e := r.e
	mine := e.contactHeader(r.path)
	uri := mine.Address.String()
	mine.Params = sip.HeaderParams{{K: "expires", V: inSeconds(r.expires)}}
	if r.leaving {
		mine.Params = sip.HeaderParams{{K: "expires", V: "0"}}
	}
	if e.set.Instance != "" {
		mine.Params = append(mine.Params, sip.HeaderKV{K: "reg-id", V: "1"}, sip.HeaderKV{K: "+sip.instance", V: "\"<" + e.set.Instance + ">\""})
	}
	r.supersede(uri)
	req.AppendHeader(mine)
	for _, old := range r.old {
		var u sip.Uri
		if sip.ParseUri(old, &u) == nil {
			req.AppendHeader(&sip.ContactHeader{Address: u, Params: sip.HeaderParams{{K: "expires", V: "0"}}})
		}
	}
	r.bound = uri
}

// supersede notes that a contact is ours from now on, and the one before is not.
func (r *registration) supersede(uri string) {
	kept := r.old[:0]
	for _, old := range append(r.old, r.bound) {
		if old != "" && old != uri && (len(kept) == 0 || kept[len(kept)-1] != old) {
			kept = append(kept, old)
		}
	}
	r.old = kept[max(0, len(kept)-maxOld):]
}

// result takes what becomes of a REGISTER.
func (r *registration) result(res *sip.Response, err error) {
	if res != nil && res.StatusCode < 200 {
		return
	}
	r.tx = nil
	status, why := outcome(res, err)
	switch {
	case err != nil && r.path.lost:
		r.begin() // by the path that is in use now, or when there is one
		return
	case status < 300:
		r.accepted(res)
	case res != nil && r.auth.challenged(r.e, res) && r.auths < maxChallenges:
		r.auths++
		r.send()
		return
	case status == 423 && r.raise(res):
		r.send()
		return
	default:
		r.failed(res, status, why)
	}
	if r.again {
		r.begin()
	}
}

// raise takes the least lifetime that a 423 names.
func (r *registration) raise(res *sip.Response) bool {
	min, ok := seconds(value(res, "Min-Expires"))
	if !ok || min <= r.expires || min > 24*time.Hour {
		return false
	}
	r.expires = min
	return true
}

// accepted takes a 2xx, which lists all bindings: ours has to be the only one of ours.
func (r *registration) accepted(res *sip.Response) {
	r.failures, r.auths = 0, 0
	if r.leaving {
		r.bound, r.old = "", nil
		r.flow.stop()
		r.e.tell(Event{Kind: Unregistered, Path: r.path.ID})
		return
	}
	granted, stale := r.bindings(res)
	r.old = stale
	r.serviceRoute = routes(res, "Service-Route")
	if len(stale) > 0 && r.cleanups < maxCleanups {
		r.cleanups++
		r.send()
		return
	}
	r.cleanups = 0
	r.e.after(r.timer, refreshAfter(granted))
	if r.e.set.KeepAlive || requires(res, "outbound") {
		r.flow.begin(r.path, res)
	}
	r.e.tell(Event{Kind: Registered, Path: r.path.ID, Took: granted})
}

// bindings returns the lifetime of ours, and those contacts in a 2xx that should not be there
// any more: what we wanted removed, or what has our instance and reg-id.
func (r *registration) bindings(res *sip.Response) (granted time.Duration, stale []string) {
	granted = r.expires
	if d, ok := seconds(value(res, "Expires")); ok {
		granted = d
	}
	for _, h := range res.GetHeaders("Contact") {
		c, ok := h.(*sip.ContactHeader)
		if !ok {
			continue
		}
		uri := c.Address.String()
		d, has := seconds(c.Params.GetOr("expires", ""))
		switch {
		case uri == r.bound && has:
			granted = d
		case uri == r.bound || has && d == 0:
		case r.removed(uri) || r.ours(c.Params):
			stale = append(stale, uri)
		}
	}
	return granted, stale[:min(len(stale), maxOld)]
}

func (r *registration) removed(uri string) bool {
	for _, old := range r.old {
		if old == uri {
			return true
		}
	}
	return false
}

func (r *registration) ours(p sip.HeaderParams) bool {
	instance := p.GetOr("+sip.instance", "")
	return r.e.set.Instance != "" && instance == "\"<"+r.e.set.Instance+">\"" && p.GetOr("reg-id", "") == "1"
}

// refreshAfter is when a registration is renewed: well before it ends, by more than the
// life of a transaction where that is possible.
func refreshAfter(granted time.Duration) time.Duration {
	if granted > 20*time.Minute {
		return granted - 10*time.Minute
	}
	return max(granted/2, time.Second)
}

// Times of RFC 5626 section 4.5. With one flow, all have failed if it has.
const (
	retryBase = 30 * time.Second
	retryMost = 1800 * time.Second
)

// failed has the next attempt wait: ever longer, and by chance, so that a registrar that
// comes back is not met by all at once. A Retry-After may ask for more.
func (r *registration) failed(res *sip.Response, status int, why string) {
	upper := min(retryMost, retryBase<<min(r.failures, 10))
	r.failures++
	r.auths = 0
	wait := r.e.between(upper/2, upper)
	if d, ok := seconds(value(res0(res), "Retry-After")); ok {
		wait = max(wait, min(d, retryMost))
	}
	r.e.after(r.timer, wait)
	r.e.tell(Event{Kind: RegistrationFailed, Path: r.path.ID, Status: status, Reason: why, Took: wait})
}

// unreachable takes the end of a connection or an ICMP error: the flow has failed.
func (r *registration) unreachable(hop transaction.Hop) {
	if r.flow.hop == hop && r.flow.on {
		r.flow.failed()
	}
}
