// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"

	"github.com/isthmus-net/isthmus/sip/transaction"
)

// outgoing makes a request with what every request has, but for Via, which comes when it is
// sent.
func outgoing(method sip.RequestMethod, to sip.Uri, route []sip.Uri) *sip.Request {
	// A first route without lr is a strict router: it gets the request as if for itself,
	// and the target as the last of the route (section 12.2.1.1).
	strict := len(route) > 0 && !route[0].UriParams.Has("lr")
	if strict {
		to, route = route[0], append(slices.Clone(route[1:]), to)
	}
	req := sip.NewRequest(method, *to.Clone())
	req.Recipient.Headers = nil
	if strict {
		req.SetDestination(to.String())
	}
	for _, r := range route {
		req.AppendHeader(&sip.RouteHeader{Address: *r.Clone()})
	}
	forwards := sip.MaxForwardsHeader(70)
	req.AppendHeader(&forwards)
	return req
}

// nextHop is where a request goes first: its first Route, else its Request-URI, which is also
// where it goes if that is a strict router's.
func (e *Engine) nextHop(req *sip.Request) (remote netip.AddrPort, t transaction.Transport, fixed, ok bool) {
	u := req.Recipient
	if r := req.Route(); r != nil && req.MessageData.Destination() == "" {
		u = r.Address
	}
	name, named := u.UriParams.Get("transport")
	t, ok = transaction.ParseTransport(name)
	if named && !ok {
		return remote, t, true, false
	}
	port := u.Port
	if u.IsEncrypted() {
		t, named = transaction.TLS, true
	}
	if port == 0 {
		port = 5060
		if t == transaction.TLS {
			port = 5061
		}
	}
	hostname := u.Host
	if m, has := u.UriParams.Get("maddr"); has {
		hostname = m
	}
	if a, err := netip.ParseAddr(strings.Trim(hostname, "[]")); err == nil && a.Zone() == "" && port < 1<<16 {
		return netip.AddrPortFrom(a.Unmap(), uint16(port)), t, named, true
	}
	if e.set.Lookup == nil {
		return remote, t, named, false
	}
	remote, ok = e.set.Lookup(hostname, u.Port, t)
	return remote, t, named, ok
}

// address chooses how a request leaves on a path and adds its Via. It goes by TCP if it is
// too large for UDP (RFC 3261 section 18.1.1).
func (e *Engine) address(req *sip.Request, p *path) (transaction.Hop, bool) {
	remote, t, fixed, ok := e.nextHop(req)
	if !ok || p == nil || p.lost || remote.Addr().Is4() != p.Local.Addr().Is4() {
		return transaction.Hop{}, false
	}
	req.CompactHeaders = p.compact()
	via := &sip.ViaHeader{
		ProtocolName: "SIP", ProtocolVersion: "2.0", Transport: t.String(), Host: host(p.Local.Addr()), Port: int(p.Local.Port()),
		Params: sip.HeaderParams{{K: "branch", V: transaction.Cookie + e.token()}, {K: "rport"}},
	}
	req.PrependHeader(via)
	if wanted, _ := p.limits(); t == transaction.UDP && !fixed && len(req.String()) > wanted {
		t = transaction.TCP
		via.Transport = t.String()
		e.stats.ByTCP++
	}
	return transaction.Hop{Socket: p.ID, Transport: t, Remote: remote}, true
}

// send sends a request on a path, and has handle told what becomes of it. The transaction is
// in tx, unless that is nil, before handle is called. A request that cannot leave is a
// transport error, which handle is told before send returns.
func (e *Engine) send(req *sip.Request, p *path, handle func(res *sip.Response, err error), tx **transaction.Client) {
	if e.set.UserAgent != "" {
		set(req, "User-Agent", e.set.UserAgent)
	}
	hop, ok := e.address(req, p)
	if !ok {
		e.stats.Unsent++
		handle(nil, transaction.ErrTransport)
		return
	}
	c, err := e.layer.Send(req, hop, func(res *sip.Response, err error, _ time.Time, _ *transaction.Output) {
		handle(res, err)
	}, e.now, &e.out.Output)
	if err != nil {
		handle(nil, err)
		return
	}
	if tx != nil {
		*tx = c
	}
	if hop.Transport == transaction.TCP {
		e.watchTCP(c, p)
	}
}

// sendOn sends by a hop a request that has its Via, and does not care what becomes of it.
func (e *Engine) sendOn(req *sip.Request, hop transaction.Hop) {
	_, _ = e.layer.Send(req, hop, func(*sip.Response, error, time.Time, *transaction.Output) {}, e.now, &e.out.Output)
}

// tcpPatience is how long a request by TCP may be unanswered before it goes by UDP, if it
// fits: no rule of RFC 3261, but a middlebox that swallows TCP shall not hold up a move.
const tcpPatience = time.Second

// watchTCP has a request go by UDP if no one answers it by TCP.
func (e *Engine) watchTCP(c *transaction.Client, p *path) {
	t := e.timer(func() { e.rerouteUDP(c, p) })
	e.after(t, tcpPatience)
}

// rerouteUDP sends a request by UDP that no one has answered by TCP, if UDP carries it whole.
func (e *Engine) rerouteUDP(c *transaction.Client, p *path) bool {
	if c.Answered() || !c.Waiting() || p.lost || c.Hop.Transport != transaction.TCP {
		return false
	}
	if _, most := p.limits(); len(c.Request.String()) > most {
		return false
	}
	hop := c.Hop
	hop.Transport = transaction.UDP
	e.stats.BackToUDP++
	e.layer.Reroute(c, hop, e.now, &e.out.Output)
	return true
}

// backToUDP sends by UDP what a broken TCP connection has not delivered.
func (e *Engine) backToUDP(hop transaction.Hop) {
	p := e.paths[hop.Socket]
	if hop.Transport != transaction.TCP || p == nil {
		return
	}
	for _, c := range e.layer.Unanswered(hop) {
		e.rerouteUDP(c, p)
	}
}

// sendAck sends the ACK of a 2xx, which has no transaction.
func (e *Engine) sendAck(ack *sip.Request, p *path) {
	for ack.RemoveHeader("Via") {
	}
	hop, ok := e.address(ack, p)
	if !ok {
		e.stats.Unsent++
		return
	}
	e.out.Send(hop, []byte(ack.String()))
}

// respond answers a request.
func (e *Engine) respond(s *transaction.Server, res *sip.Response) {
	if e.set.UserAgent != "" {
		set(res, "Server", e.set.UserAgent)
	}
	p := e.paths[s.Hop.Socket]
	res.CompactHeaders = p != nil && p.compact()
	e.layer.Respond(s, res, e.now, &e.out.Output)
}

// refuse answers a request by a status and nothing else.
func (e *Engine) refuse(s *transaction.Server, status int, headers ...string) {
	res := e.response(s, status)
	for i := 0; i+1 < len(headers); i += 2 {
		set(res, headers[i], headers[i+1])
	}
	e.respond(s, res)
}

// response begins a response, with a tag of its own for a request outside a dialog.
func (e *Engine) response(s *transaction.Server, status int) *sip.Response {
	return transaction.Response(s.Request, status, reason(status), e.token())
}

// reasons are phrases of statuses that this user agent sends or stands in for.
var reasons = map[int]string{
	180: "Ringing", 200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
	408: "Request Timeout", 415: "Unsupported Media Type", 416: "Unsupported URI Scheme", 420: "Bad Extension",
	422: "Session Interval Too Small", 480: "Temporarily Unavailable", 481: "Call/Transaction Does Not Exist",
	482: "Loop Detected", 486: "Busy Here", 487: "Request Terminated", 488: "Not Acceptable Here",
	491: "Request Pending", 500: "Server Internal Error", 501: "Not Implemented", 503: "Service Unavailable",
	504: "Server Time-out", 505: "Version Not Supported", 603: "Decline",
}

func reason(status int) string {
	if r, ok := reasons[status]; ok {
		return r
	}
	return "Status " + strconv.Itoa(status)
}

// outcome is the status that a response has or an error stands for (section 8.1.3.1).
func outcome(res *sip.Response, err error) (int, string) {
	switch {
	case res != nil:
		return res.StatusCode, res.Reason
	case err == transaction.ErrTimeout:
		return 408, reason(408)
	}
	return 503, err.Error()
}
