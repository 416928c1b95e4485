// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// What ends a request without a response.
var (
	errTimeout   = errors.New("no answer in time")
	errTransport = errors.New("transport error")
	errPending   = errors.New("there is one already")
)

// handler takes what becomes of a request: each response that is new to its transaction, 2xx of an
// INVITE whenever they come, or the error that ended it.
type handler func(res *message.Message, err error)

// servers are those that requests to a URI go to, the best first, and whether the URI itself has chosen
// the transport.
func (e *Engine) servers(u *message.URI) (list []transaction.Target, fixed bool) {
	transport, fixed := u.Params.Get("transport")
	transport = cmp.Or(strings.ToUpper(transport), "UDP")
	if u.Scheme == "sips" {
		transport, fixed = "TLS", true
	}
	if !slices.Contains([]string{"UDP", "TCP", "TLS"}, transport) {
		return nil, fixed
	}
	host := u.Host
	if m, has := u.Params.Get("maddr"); has {
		host = m
	}
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && a.Zone() == "" {
		return []transaction.Target{{Transport: transport, Remote: netip.AddrPortFrom(a.Unmap(), u.ServicePort())}}, fixed
	}
	if e.set.Lookup == nil {
		return nil, fixed
	}
	if !fixed {
		transport = ""
	}
	return e.set.Lookup(host, u.Port, transport), fixed
}

// firstHop is the URI that a request goes to: its first route, else its target (section 8.1.2).
func firstHop(routes []message.Address, target message.URI) message.URI {
	if len(routes) > 0 {
		return routes[0].URI
	}
	return target
}

// maxServers is how many servers a request is sent to, one after the other.
const maxServers = 8

// ways are the servers of a URI that a path leads to.
func (e *Engine) ways(u *message.URI, p *path) (ways []transaction.Target, fixed bool) {
	if p == nil || p.lost {
		return nil, false
	}
	list, fixed := e.servers(u)
	for _, to := range list {
		if to.Remote.Addr().Is4() == p.Local.Addr().Is4() && len(ways) < maxServers {
			to.Local = p.Local
			ways = append(ways, to)
		}
	}
	return e.layer.Order(ways, e.now), fixed
}

// sign adds the Via of a request to a server, and says how it goes there: by TCP if it has more octets
// than go by UDP, and may (RFC 3261 section 18.1.1).
func (e *Engine) sign(m *message.Message, to transaction.Target, fixed bool, p *path, byUDP int) transaction.Target {
	via := message.Via{Transport: to.Transport, Host: p.Local.Addr().String(), Port: p.Local.Port()}
	via.Params = via.Params.With("branch", message.Cookie+e.token()).WithBare("rport")
	m.Prepend("Via", via.String())
	if to.Transport == "UDP" && !fixed && len(p.write(m)) > byUDP {
		to.Transport, via.Transport = "TCP", "TCP"
		m.Set("Via", via.String())
		e.stats.ByTCP++
	}
	return to
}

// attempt is a request under way to one of its servers.
type attempt struct {
	request
	path   *path
	left   []transaction.Target // servers not tried yet
	fixed  bool                 // the transport is
	handle handler
	tx     **transaction.Client // who has sent it finds the transaction there, if it is not nil
}

// send sends a request on a path, and has handle told what becomes of it. The transaction is
// in tx, unless that is nil, before handle is called. A request that cannot leave is a
// transport error, which handle is told before send returns.
func (e *Engine) send(req request, p *path, handle handler, tx **transaction.Client) {
	if e.set.UserAgent != "" {
		req.Add("User-Agent", e.set.UserAgent)
	}
	ways, fixed := e.ways(&req.next, p)
	if len(ways) == 0 {
		e.stats.Unsent++
		handle(nil, errTransport)
		return
	}
	e.launch(&attempt{req, p, ways, fixed, handle, tx})
}

// launch sends a request to the next server.
func (e *Engine) launch(a *attempt) {
	m := a.Message.Clone()
	wanted, _ := a.path.limits()
	to := e.sign(m, a.left[0], a.fixed, a.path, wanted)
	a.left = a.left[1:]
	c, err := e.layer.Start(m, to, e.set.FirstRepeat, e.now, &e.tx)
	if err != nil {
		a.handle(nil, err)
		return
	}
	c.User = a
	if a.tx != nil {
		*a.tx = c
	}
	if to.Transport == "TCP" {
		e.watchTCP(c, a.path)
	}
}

// nextServer goes on to the next server of a request where one has failed, and reports whether there
// is one (RFC 3263 section 4.3). Where the path has failed, or who has sent the request does not wait
// for it any more, there is none.
func (e *Engine) nextServer(a *attempt, v *transaction.Event) bool {
	if a.path.lost || a.tx != nil && *a.tx != v.Client {
		return false
	}
	others := e.layer.Others(v, a.left, e.now)
	if len(others) == 0 {
		return false
	}
	a.left = others
	e.launch(a)
	return true
}

// tcpPatience is how long a request by TCP may be unanswered before it goes by UDP, if it
// fits: no rule of RFC 3261, but a middlebox that swallows TCP shall not hold up a move.
const tcpPatience = time.Second

// watchTCP has a request go by UDP if no one answers it by TCP.
func (e *Engine) watchTCP(c *transaction.Client, p *path) {
	e.after(e.timer(func() { e.rerouteUDP(c, p) }), tcpPatience)
}

// rerouteUDP sends a request by UDP that no one has answered by TCP, if UDP carries it whole.
func (e *Engine) rerouteUDP(c *transaction.Client, p *path) {
	if !c.Unanswered() || p.lost || c.To.Transport != "TCP" {
		return
	}
	if _, most := p.limits(); len(p.write(c.Request)) > most {
		return
	}
	to := c.To
	to.Transport = "UDP"
	e.stats.BackToUDP++
	c.Reroute(to, e.now, &e.tx)
}

// backToUDP sends by UDP what a broken TCP connection has not delivered.
func (e *Engine) backToUDP(to transaction.Target) {
	p := e.pathAt(to.Local)
	if to.Transport != "TCP" || p == nil {
		return
	}
	for _, c := range e.layer.Matching(func(c *transaction.Client) bool { return c.Unanswered() && c.To == to }) {
		e.rerouteUDP(c, p)
	}
}

// sendAck sends the ACK of a 2xx, which has no transaction that would try UDP where TCP fails: it goes by
// UDP as far as its INVITE shows that to work, and it is whole.
func (e *Engine) sendAck(ack request, p *path, invite string) {
	ways, fixed := e.ways(&ack.next, p)
	if len(ways) == 0 {
		e.stats.Unsent++
		return
	}
	wanted, most := p.limits()
	if invite == "UDP" {
		wanted = most
	}
	to := e.sign(ack.Message, ways[0], fixed, p, wanted)
	e.tx.Sends = append(e.tx.Sends, transaction.Send{To: to, Message: ack.Message})
}

// put puts out what the layer sends.
func (e *Engine) put() {
	for _, s := range e.tx.Sends {
		e.out.Packets = append(e.out.Packets, Packet{s.To, e.pathAt(s.To.Local).write(s.Message), fallback(&s)})
	}
	clear(e.tx.Sends)
	e.tx.Sends = e.tx.Sends[:0]
}

// fallback is where a response goes whose connection is gone: to the address that its request came from,
// at the port that the sender has named (RFC 3261 section 18.2.2).
func fallback(s *transaction.Send) netip.AddrPort {
	if s.Message.IsRequest() || !s.To.Reliable() {
		return netip.AddrPort{}
	}
	via, _ := s.Message.Via()
	return netip.AddrPortFrom(s.To.Remote.Addr(), cmp.Or(via.Port, 5060))
}

// respond answers a request.
func (e *Engine) respond(s *transaction.Server, res *message.Message) {
	if e.set.UserAgent != "" {
		res.Add("Server", e.set.UserAgent)
	}
	s.Respond(res, e.now, &e.tx)
}

// refuse answers a request by a status and nothing else.
func (e *Engine) refuse(s *transaction.Server, status int, headers ...string) {
	res := e.response(s, status)
	for i := 0; i+1 < len(headers); i += 2 {
		res.Add(headers[i], headers[i+1])
	}
	e.respond(s, res)
}

// response begins a response, with a tag of its own for a request outside a dialog.
func (e *Engine) response(s *transaction.Server, status int) *message.Message {
	return message.Reply(s.Request, status, reason(status), e.token())
}

// reasons are phrases of statuses that this user agent sends or stands in for.
var reasons = map[int]string{
	180: "Ringing", 200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 406: "Not Acceptable",
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
func outcome(res *message.Message, err error) (int, string) {
	switch {
	case res != nil:
		return res.Status, res.Reason
	case errors.Is(err, errTimeout):
		return 408, reason(408)
	}
	return 503, err.Error()
}
