// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"slices"

	"github.com/emiago/sipgo/sip"
)

// dialogKey finds a dialog by what a request or response in it carries: Call-ID and tags,
// never the source address (RFC 3261 section 12).
type dialogKey struct{ callID, local, remote string }

// dialog is what section 12 calls the state of a dialog.
type dialog struct {
	dialogKey
	local, remote       party
	localSeq, remoteSeq uint32
	remoteSeqKnown      bool
	target              sip.Uri   // the remote target
	routes              []sip.Uri // never changed by a target refresh (section 12.2)
	updates             bool      // the peer's Allow has UPDATE
	timers              bool      // the peer knows session timers
	ackBody             []byte    // of the last ACK, for its repeats
	rseq                uint32    // of the last reliable provisional response of the peer
}

// party is From or To without its tag.
type party struct {
	name string
	uri  sip.Uri
}

// from and to make the headers of a request, with the tag or without.
func (p party) from(tag string) *sip.FromHeader {
	return &sip.FromHeader{DisplayName: p.name, Address: *p.uri.Clone(), Params: tagged(tag)}
}

func (p party) to(tag string) *sip.ToHeader {
	return &sip.ToHeader{DisplayName: p.name, Address: *p.uri.Clone(), Params: tagged(tag)}
}

func tagged(tag string) sip.HeaderParams {
	if tag == "" {
		return nil
	}
	return sip.HeaderParams{{K: "tag", V: tag}}
}

// uacDialog makes the dialog that a response to a request of ours creates (section 12.1.2).
func uacDialog(res *sip.Response, local, remote party, seq uint32) *dialog {
	d := &dialog{
		dialogKey: dialogKey{string(*res.CallID()), tagOf(res.From().Params), tagOf(res.To().Params)},
		local:     local, remote: remote, localSeq: seq,
	}
	d.recompute(res)
	d.learn(res)
	d.retarget(res)
	return d
}

// recompute takes the route set of a response: that of a 2xx holds, whatever came before
// (section 13.2.2.4).
func (d *dialog) recompute(res *sip.Response) {
	d.routes = routes(res, "Record-Route")
	slices.Reverse(d.routes)
}

// uasDialog makes the dialog of a request that someone sent (section 12.1.1).
func uasDialog(req *sip.Request, tag string) *dialog {
	d := &dialog{
		dialogKey: dialogKey{string(*req.CallID()), tag, tagOf(req.From().Params)},
		local:     party{req.To().DisplayName, req.To().Address},
		remote:    party{req.From().DisplayName, req.From().Address},
		remoteSeq: req.CSeq().SeqNo, remoteSeqKnown: true,
		routes: routes(req, "Record-Route"),
	}
	d.learn(req)
	d.retarget(req)
	return d
}

// learn notes what the peer can do.
func (d *dialog) learn(m sip.Message) {
	if allow := tokens(m, "Allow"); len(allow) > 0 {
		d.updates = slices.Contains(allow, "update")
	}
	if len(m.GetHeaders("Supported"))+len(m.GetHeaders("k")) > 0 {
		d.timers = supports(m, "timer")
	}
}

// retarget takes the remote target of a message that may refresh it, and reports whether it
// changed. When that is, RFC 6141 sections 4.6 and 4.7 say: not on an error answer, and not
// by an unreliable provisional response.
func (d *dialog) retarget(m sip.Message) bool {
	var c *sip.ContactHeader
	switch m := m.(type) {
	case *sip.Request:
		c = m.Contact()
	case *sip.Response:
		c = m.Contact()
	}
	if c == nil || c.Address.Wildcard || c.Address.Host == "" {
		return false
	}
	changed := d.target.String() != c.Address.String()
	d.target = *c.Address.Clone()
	return changed
}

// request makes a request in the dialog; ACK and CANCEL have the number of their INVITE.
func (d *dialog) request(method sip.RequestMethod) *sip.Request {
	d.localSeq++
	return d.numbered(method, d.localSeq)
}

func (d *dialog) numbered(method sip.RequestMethod, seq uint32) *sip.Request {
	req := outgoing(method, d.target, d.routes)
	req.AppendHeader(d.local.from(d.dialogKey.local))
	req.AppendHeader(d.remote.to(d.dialogKey.remote))
	id := sip.CallIDHeader(d.callID)
	req.AppendHeader(&id)
	req.AppendHeader(&sip.CSeqHeader{SeqNo: seq, MethodName: method})
	return req
}

// accepts reports whether a request's number is in order (section 12.2.2), and notes it.
func (d *dialog) accepts(seq uint32) bool {
	if d.remoteSeqKnown && seq <= d.remoteSeq {
		return false
	}
	d.remoteSeq, d.remoteSeqKnown = seq, true
	return true
}
