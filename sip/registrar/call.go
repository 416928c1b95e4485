// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// call is the response context of a request that was passed on (RFC 3261 section 16.2).
type call struct {
	server    *transaction.Server
	request   *message.Message   // as it goes on
	origin    transaction.Target // of the request
	flow      []byte             // to the caller
	goals     []goal             // not tried yet
	forks     []*fork
	answered  bool          // a final response has gone back
	accepted  bool          // and it was a 2xx
	cancelled bool          // no further target is tried
	known     bool          // of a dialog, by a route of this proxy's
	repeats   time.Duration // T2, between responses to a sender who is spared
}

// fork is one branch of a call.
type fork struct {
	call    *call
	request *message.Message
	client  *transaction.Client
	final   *message.Message     // nil: it is still open
	large   bool                 // TCP was chosen for the size
	ways    []transaction.Target // not tried yet, best first
	flow    []byte               // to the terminal
	goal    goal
	left    bool // by the callee, who is called elsewhere instead
	loop    string
	rings   transaction.Timer // Timer C
	callees []callee          // who have answered, where the caller is spared
}

func forkOf(c *transaction.Client) *fork {
	if c == nil {
		return nil
	}
	f, _ := c.User.(*fork)
	return f
}

// advance tries the next targets, all of the same preference at once, and ends the call when there
// are none.
func (p *Proxy) advance(c *call, now time.Time, out *Output) {
	for !c.answered && !c.open() {
		if len(c.goals) == 0 || c.cancelled {
			p.finish(c, now, out)
			return
		}
		q := c.goals[0].q
		for len(c.goals) > 0 && c.goals[0].q == q {
			g := c.goals[0]
			c.goals = c.goals[1:]
			p.fork(c, &g, now, out)
		}
	}
}

// open reports whether a branch has no final response.
func (c *call) open() bool {
	return slices.ContainsFunc(c.forks, func(f *fork) bool { return f.final == nil })
}

// fork begins a branch.
func (p *Proxy) fork(c *call, g *goal, now time.Time, out *Output) {
	m, hop := p.forward(c.request, g)
	f := &fork{call: c, request: m, loop: p.loopCode(c.request), goal: *g}
	c.forks = append(c.forks, f)
	const signature = 300 // Via and two Record-Routes
	size := len(m.Append(nil)) + signature
	if flow, ok := ParseFlow(g.flow); ok && len(g.path) == 0 {
		target, _ := message.ParseURI(m.URI)
		f.ways, f.flow = byTLS(m.URI, g, p.flowWays(g, flow, &target, size)), p.packFlow(flow, &target)
		if len(f.ways) == 0 {
			p.noWay(f)
		} else {
			p.launch(f, now, out)
		}
		return
	}
	ways, transport := p.ways(&hop, size)
	f.large = transport == "TCP" && !hop.Params.Has("transport")
	switch {
	case len(ways) > 0:
		f.ways = ways
		p.launch(f, now, out)
	case !p.lookUp(hop, transport, out, func(to []transaction.Target, now time.Time, out *Output) { p.found(f, to, now, out) }):
		p.noWay(f)
	}
}

// flowWays are the ways to a terminal that is reached by a flow. What is too large for UDP, whose fragments
// would not reach a terminal with a narrower link, goes by TCP first to one whose contact is where it is
// (RFC 3261 section 18.1.1), unless it has asked for flows alone (RFC 5626).
func (p *Proxy) flowWays(g *goal, flow transaction.Target, contact *message.URI, size int) []transaction.Target {
	host, err := netip.ParseAddr(contact.Host)
	if err == nil && host.Unmap() == flow.Remote.Addr() && flow.Transport == "UDP" && g.binding.RegID == 0 {
		if ways, transport := p.ways(contact, size); transport == "TCP" && len(ways) > 1 {
			return []transaction.Target{ways[0], flow}
		}
	}
	return []transaction.Target{flow}
}

// noWay ends a branch that no listener reaches.
func (p *Proxy) noWay(f *fork) {
	p.relayed[NoWay]++
	p.end(f, message.Reply(f.call.server.Request, 503, "Service Unavailable", ""))
}

// isName reports whether a host is a name, not an address.
func isName(host string) bool {
	_, err := netip.ParseAddr(host)
	return err != nil
}

// foundFunc goes on with the ways to a name that has been looked up.
type foundFunc func(ways []transaction.Target, now time.Time, out *Output)

// lookUp has the host of a URI looked up, if it is a name, and reports whether what is to be done then
// will be.
func (p *Proxy) lookUp(hop message.URI, transport string, out *Output, then foundFunc) bool {
	if !isName(hop.Host) || len(p.lookups) >= p.settings.Transactions.Clients {
		return false
	}
	p.lookup++
	p.lookups[p.lookup] = p.noting(hop.Host, transport, then)
	out.Lookups = append(out.Lookups, Lookup{p.lookup, hop, transport})
	return true
}

// Resolved goes on with what waits for a name that has been looked up.
func (p *Proxy) Resolved(id uint64, to []transaction.Target, now time.Time, out *Output) {
	then := p.lookups[id]
	if then == nil {
		return
	}
	delete(p.lookups, id)
	then(p.reached(to, now), now, out)
	p.settle(now, out)
}

// maxWays bounds the addresses of a name that are tried.
const maxWays = 8

// reached are the ways to the addresses of a name that a listener reaches, in their order.
func (p *Proxy) reached(to []transaction.Target, now time.Time) (ways []transaction.Target) {
	for _, t := range to {
		if way, ok := p.via(t.Transport, t.Remote); ok && len(ways) < maxWays {
			way.Name = t.Name
			ways = append(ways, way)
		}
	}
	return p.layer.Order(ways, now)
}

// orUDP adds UDP behind the ways of what leaves it for its size alone (RFC 3261 section 18.1.1).
func (p *Proxy) orUDP(ways []transaction.Target) []transaction.Target {
	all := slices.Clone(ways)
	for _, t := range ways {
		if way, ok := p.via("UDP", t.Remote); ok {
			all = append(all, way)
		}
	}
	return all
}

// found goes on with a branch whose name has been looked up; without an address it has failed.
func (p *Proxy) found(f *fork, ways []transaction.Target, now time.Time, out *Output) {
	if f.final == nil {
		f.ways = ways
		if f.large {
			f.ways = p.orUDP(ways)
		}
		if len(f.ways) == 0 {
			p.noWay(f)
		} else {
			p.launch(f, now, out)
		}
	}
	p.advance(f.call, now, out)
}

// launch sends the request of a branch on the next way.
func (p *Proxy) launch(f *fork, now time.Time, out *Output) {
	to, m := f.ways[0], f.request.Clone()
	f.ways = f.ways[1:]
	p.withhold(m, to.Remote.Addr())
	p.sign(m, f.loop, side{f.call.origin, f.call.flow}, side{to, f.flow}, now)
	var client *transaction.Client
	err := transaction.ErrFull
	if p.room(f.call) {
		client, err = p.layer.Start(m, to, 0, now, &out.Output)
	}
	if err != nil {
		p.relayed[Overloaded]++
		p.end(f, message.Reply(f.call.server.Request, 503, "Service Unavailable", ""))
		return
	}
	client.User, f.client = f, client
	if f.request.Method == "INVITE" {
		if f.goal.aor != "" {
			p.waiting.add(f)
		}
		// What rings for too long is cancelled (section 16.8). What does not end then, its transaction gives up.
		f.rings.Fire = func(now time.Time, out *transaction.Output) { client.Cancel(client.To, now, out) }
		p.layer.SetTimer(&f.rings, now.Add(p.settings.TimerC))
	}
}

// room reports whether a branch may begin: the last quarter of what the proxy may send at a time is for dialogs and
// CANCEL, and none of the second half for strangers, whose calls have several branches.
func (p *Proxy) room(c *call) bool {
	_, clients := p.layer.Len()
	most := p.settings.Transactions.Clients
	switch {
	case c.known:
		return true
	case c.server.Spared() && p.rations():
		return clients < most-most/2
	}
	return clients < transaction.AllButQuarter(most)
}

// end notes what has become of a branch.
func (p *Proxy) end(f *fork, final *message.Message) {
	f.final = final
	p.layer.StopTimer(&f.rings)
}

// cancel ends the call that a CANCEL is about (section 16.10).
func (p *Proxy) cancel(s *transaction.Server, now time.Time, out *Output) {
	invite := p.layer.Cancelled(s.Request)
	if invite == nil {
		p.answer(s, Unmatched, 481, "Call/Transaction Does Not Exist", out)
		return
	}
	s.Respond(p.reply(s.Request, 200, "OK"), now, &out.Output)
	if c, ok := invite.User.(*call); ok && !c.answered {
		c.cancelled = true
		p.cancelForks(c, now, out)
		p.advance(c, now, out)
	}
}

// cancelForks cancels all branches that have no final response.
func (p *Proxy) cancelForks(c *call, now time.Time, out *Output) {
	for _, f := range c.forks {
		switch {
		case f.final != nil && !f.left:
		case f.client == nil: // its name is still being resolved
			p.end(f, message.Reply(c.server.Request, 487, "Request Terminated", ""))
		default:
			f.client.Cancel(f.client.To, now, &out.Output)
		}
	}
}

// ack passes the ACK of a 2xx on, without state (section 16.6): within dialogs of this proxy's alone. Nothing repeats
// it but its sender, so it goes where others have arrived: by UDP if the other end has just refused TCP.
func (p *Proxy) ack(m *message.Message, now time.Time, out *Output) {
	m = m.Clone()
	p.disown(m, p.origin.Remote.Addr())
	by := p.preprocess(m)
	if hops, there := m.MaxForwards(); !by.known || by.failed(m) || there && hops == 0 || p.loops(m) {
		p.relayed[Unmatched]++
		return
	}
	g := p.ackGoal(m, &by, now)
	copied, hop := p.forward(m, &g)
	large := false
	pass := func(ways []transaction.Target, now time.Time, out *Output) {
		if len(ways) == 0 {
			p.relayed[NoWay]++
			return
		}
		if large {
			ways = p.layer.Order(p.orUDP(ways[:1]), now)
		}
		p.withhold(copied, ways[0].Remote.Addr())
		p.sign(copied, p.loopCode(m), side{}, side{Target: ways[0]}, now)
		out.Sends = append(out.Sends, transaction.Send{To: ways[0], Message: copied})
	}
	if by.flow.Transport != "" && !m.Has("Route") { // there is no other way, whatever its name
		pass(byTLS(copied.URI, &g, []transaction.Target{by.flow}), now, out)
		return
	}
	ways, transport := p.ways(&hop, len(copied.Append(nil)))
	large = transport == "TCP" && !hop.Params.Has("transport")
	if len(ways) > 0 || !p.lookUp(hop, transport, out, pass) {
		pass(ways, now, out)
	}
}
