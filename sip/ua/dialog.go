// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"fmt"
	"slices"

	"github.com/isthmus-net/isthmus/sip/message"
)

// dialogKey finds a dialog by what a request or response in it carries: Call-ID and tags,
// never the source address (RFC 3261 section 12).
type dialogKey struct{ callID, local, remote string }

// dialog is what section 12 calls the state of a dialog, and the same of requests outside any.
type dialog struct {
	dialogKey
	local, remote       message.Address // without tags
	localSeq, remoteSeq uint32
	remoteSeqKnown      bool
	target              message.URI       // the remote target
	refreshed           int               // by requests of the peer
	routes              []message.Address // never changed by a target refresh (section 12.2)
	owner               bool              // of the Call-ID, which decides who waits longer (section 14.1)
	refused             bool              // by the peer, who does not know it
	updates             bool              // the peer's Allow has UPDATE
	timers              bool              // the peer knows session timers
	ackBody             []byte            // of the last ACK, for its repeats
	rseq                uint32            // of the last reliable provisional response of the peer
}

// party is From or To without its parameters.
func party(a message.Address, _ bool) message.Address {
	a.Params = nil
	return a
}

// tagged writes From or To, with a tag or without.
func tagged(a message.Address, tag string) string {
	if tag != "" {
		a.Params = a.Params.With("tag", tag)
	}
	return a.String()
}

// uacDialog makes the dialog that a response to a request of ours creates (section 12.1.2).
func uacDialog(res *message.Message, local, remote message.Address, seq uint32) *dialog {
	d := &dialog{dialogKey: dialogKey{res.CallID(), fromTag(res), toTag(res)}, local: local, remote: remote, localSeq: seq, target: remote.URI, owner: true}
	d.recompute(res)
	d.learn(res)
	d.retarget(res)
	return d
}

// recompute takes the route set of a response: that of a 2xx holds, whatever came before
// (section 13.2.2.4).
func (d *dialog) recompute(res *message.Message) {
	d.routes = res.Addresses("Record-Route")
	slices.Reverse(d.routes)
}

// uasDialog makes the dialog of a request that someone sent (section 12.1.1).
func uasDialog(req *message.Message, tag string) *dialog {
	d := &dialog{
		dialogKey: dialogKey{req.CallID(), tag, fromTag(req)},
		local:     party(req.To()), remote: party(req.From()),
		remoteSeq: number(req), remoteSeqKnown: true,
		routes: req.Addresses("Record-Route"),
	}
	d.target = d.remote.URI // if there is no Contact, as in RFC 2543
	d.learn(req)
	d.retarget(req)
	return d
}

// learn notes what the peer can do.
func (d *dialog) learn(m *message.Message) {
	if m.Has("Allow") {
		d.updates = m.HasToken("Allow", "UPDATE")
	}
	if m.Has("Supported") {
		d.timers = supports(m, "timer")
	}
}

// retarget takes the remote target of a message that may refresh it, and reports whether it
// changed. When that is, RFC 6141 sections 4.6 and 4.7 say: not on an error answer, and not
// by an unreliable provisional response.
func (d *dialog) retarget(m *message.Message) bool {
	contacts := m.Addresses("Contact")
	if len(contacts) == 0 || contacts[0].URI.Host == "" {
		return false
	}
	if m.IsRequest() {
		d.refreshed++
	}
	changed := d.target.String() != contacts[0].URI.String()
	d.target = contacts[0].URI
	return changed
}

// retargetUnless takes the remote target of a response, unless a request of the peer's has refreshed
// it since ours was sent: that is the later word.
func (d *dialog) retargetUnless(res *message.Message, since int) bool {
	return d.refreshed == since && d.retarget(res)
}

// request is a request of ours, and where it goes first.
type request struct {
	*message.Message
	next message.URI
}

// hop is where requests in the dialog go first.
func (d *dialog) hop() message.URI { return firstHop(d.routes, d.target) }

// request makes a request in the dialog; ACK and CANCEL have the number of their INVITE.
func (d *dialog) request(method string) request {
	d.localSeq++
	return d.numbered(method, d.localSeq)
}

// numbered makes a request with what every request has, but for Via, which comes when it is sent.
func (d *dialog) numbered(method string, seq uint32) request {
	to, routes := d.target, d.routes
	to.Headers = ""
	next := to
	if len(routes) > 0 {
		next = routes[0].URI
		// One without lr is a strict router: it gets the request as if for itself, and the
		// target as the last of the route (section 12.2.1.1).
		if !next.Params.Has("lr") {
			routes = append(slices.Clone(routes[1:]), message.Address{URI: to})
			to = next
		}
	}
	m := &message.Message{Method: method, URI: to.String()}
	for i := range routes {
		m.Add("Route", routes[i].String())
	}
	m.Add("Max-Forwards", "70")
	m.Add("From", tagged(d.local, d.dialogKey.local))
	m.Add("To", tagged(d.remote, d.dialogKey.remote))
	m.Add("Call-ID", d.callID)
	m.Add("CSeq", fmt.Sprintf("%d %s", seq, method))
	return request{m, next}
}

// accepts reports whether a request's number is in order (section 12.2.2), and notes it.
func (d *dialog) accepts(seq uint32) bool {
	if d.remoteSeqKnown && seq <= d.remoteSeq {
		return false
	}
	d.remoteSeq, d.remoteSeqKnown = seq, true
	return true
}
