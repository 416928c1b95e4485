// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
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
	bound    message.URI   // the contact that the registrar has
	old      []message.URI // those that it may have, and shall not
	leaving  bool          // the request under way removes the binding
	wanted   bool
	again    bool // something changed while a request was under way
	looking  bool // it is not known yet where the next one goes
	cleanups int
	failures int
	raised   int // expires, since it was accepted
	timer    *transaction.Timer

	serviceRoute []message.Address
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
	switch {
	case r.looking || !r.mayAsk():
	case r.tx != nil:
		r.again = true
	default:
		r.again, r.looking = false, true
		r.e.locate(firstHop(r.e.proxyRoute(), r.domain()), func() {
			if r.looking = false; r.mayAsk() {
				r.send()
			}
		})
	}
}

// mayAsk reports whether there is something to ask for, and a path.
func (r *registration) mayAsk() bool { return r.e.use != nil && (r.wanted || r.bound.Host != "") }

// domain is what a REGISTER is for.
func (r *registration) domain() message.URI {
	aor := &r.e.set.AOR
	return message.URI{Scheme: aor.Scheme, Host: aor.Host, Port: aor.Port}
}

func (r *registration) send() {
	e := r.e
	e.layer.StopTimer(r.timer)
	r.path, r.leaving = e.use, !r.wanted
	r.seq++
	outside := dialog{dialogKey: dialogKey{callID: r.callID, local: r.tag}, local: e.self(), remote: e.self(), target: r.domain(), routes: e.proxyRoute()}
	req := outside.numbered("REGISTER", r.seq)
	r.contacts(req.Message)
	req.Add("Supported", "path, outbound, gruu")
	req.Add("Allow", allowed)
	r.auth.apply(e, req)
	e.stats.Registrations++
	e.send(req, r.path, func(res *message.Message, err error) { r.result(req, res, err) }, &r.tx)
}

// contacts adds the new contact, and after it those to be removed. With RFC 5626 the new one
// replaces the old by instance and reg-id alone; the old ones are named without these, for a
// registrar would take them for the same binding, and remove what it has just made.
func (r *registration) contacts(req *message.Message) {
	e := r.e
	mine := e.contact(r.path)
	r.supersede(mine.URI)
	r.bound = mine.URI
	mine.Params = mine.Params.With("expires", inSeconds(r.expires))
	if r.leaving {
		mine.Params = mine.Params.With("expires", "0")
	}
	if e.set.Instance != "" {
		mine.Params = mine.Params.With("reg-id", "1").With("+sip.instance", message.Quote("<"+e.set.Instance+">"))
	}
	req.Add("Contact", mine.String())
	for _, old := range r.old {
		req.Add("Contact", "<"+old.String()+">;expires=0")
	}
}

// supersede notes that a contact is ours from now on, and the one before is not.
func (r *registration) supersede(uri message.URI) {
	if r.bound.Host != "" && !has(r.old, r.bound) {
		r.old = append(r.old, r.bound)
	}
	r.old = slices.DeleteFunc(r.old, func(old message.URI) bool { return old.Equal(&uri) })
	r.old = r.old[max(0, len(r.old)-maxOld):]
}

func has(list []message.URI, uri message.URI) bool {
	return slices.ContainsFunc(list, func(u message.URI) bool { return u.Equal(&uri) })
}

// result takes what becomes of a REGISTER.
func (r *registration) result(req request, res *message.Message, err error) {
	if res != nil && res.Status < 200 {
		return
	}
	tx := r.tx
	r.tx = nil
	status, why := outcome(res, err)
	switch {
	case err != nil && r.path.lost:
		r.begin() // by the path that is in use now, or when there is one
		return
	case status < 300:
		r.accepted(res, tx.To)
	case res != nil && r.auth.challenged(r.e, req, res) && r.auths < maxChallenges:
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
func (r *registration) raise(res *message.Message) bool {
	min, ok := seconds(res.Get("Min-Expires"))
	if !ok || min <= r.expires || min > 24*time.Hour || r.raised >= maxRaises {
		return false
	}
	r.expires, r.raised = min, r.raised+1
	return true
}

// accepted takes a 2xx of a server, which lists all bindings: ours has to be the only one of ours.
func (r *registration) accepted(res *message.Message, from transaction.Target) {
	r.failures, r.auths, r.raised = 0, 0, 0
	if r.leaving {
		r.bound, r.old = message.URI{}, nil
		r.flow.stop()
		r.e.tell(Event{Kind: Unregistered, Path: r.path.ID})
		return
	}
	granted, stale := r.bindings(res)
	r.old = stale
	r.serviceRoute = res.Addresses("Service-Route")
	if len(stale) > 0 && r.cleanups < maxCleanups {
		r.cleanups++
		r.send()
		return
	}
	r.cleanups = 0
	r.e.after(r.timer, refreshAfter(granted))
	if r.e.set.KeepAlive || requires(res, "outbound") {
		r.flow.begin(from, res)
	}
	r.e.tell(Event{Kind: Registered, Path: r.path.ID, Took: granted})
}

// bindings returns the lifetime of ours, and those contacts in a 2xx that should not be there
// any more: what we wanted removed, or what has our instance and reg-id.
func (r *registration) bindings(res *message.Message) (granted time.Duration, stale []message.URI) {
	granted = r.expires
	if d, ok := seconds(res.Get("Expires")); ok {
		granted = d
	}
	for _, c := range res.Addresses("Contact") {
		expires, _ := c.Params.Get("expires")
		d, named := seconds(expires)
		switch mine := c.URI.Equal(&r.bound); {
		case mine && named:
			granted = d
		case mine || named && d == 0:
		case has(r.old, c.URI) || r.ours(c.Params):
			stale = append(stale, c.URI)
		}
	}
	return granted, stale[:min(len(stale), maxOld)]
}

func (r *registration) ours(p message.Params) bool {
	instance, _ := p.Get("+sip.instance")
	id, _ := p.Get("reg-id")
	return r.e.set.Instance != "" && instance == "<"+r.e.set.Instance+">" && id == "1"
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
func (r *registration) failed(res *message.Message, status int, why string) {
	upper := min(retryMost, retryBase<<min(r.failures, 10))
	r.failures++
	r.auths = 0
	wait := r.e.between(upper/2, upper)
	if d, ok := seconds(res0(res).Get("Retry-After")); ok {
		wait = max(wait, min(d, retryMost))
	}
	r.e.after(r.timer, wait)
	r.e.tell(Event{Kind: RegistrationFailed, Path: r.path.ID, Status: status, Reason: why, Took: wait})
}

// unreachable takes the end of a connection or an ICMP error: the flow has failed.
func (r *registration) unreachable(to transaction.Target) {
	if r.flow.hop == to && r.flow.on {
		r.flow.failed()
	}
}
