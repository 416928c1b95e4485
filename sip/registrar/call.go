// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"container/heap"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// call is the response context of a request that was passed on (RFC 3261 section 16.2).
type call struct {
	server    *transaction.Server
	request   *message.Message // as it goes on
	goals     []goal           // not tried yet
	forks     []*fork
	answered  bool // a final response has gone back
	accepted  bool // and it was a 2xx
	cancelled bool // no further target is tried
}

// fork is one branch of a call.
type fork struct {
	call    *call
	request *message.Message
	client  *transaction.Client
	final   *message.Message // nil: it is still open
	lookup  uint64           // the name that is being resolved
	loop    string
	cancel  bool      // wanted, once there is a provisional response
	sent    bool      // a CANCEL was sent
	rings   time.Time // until when (Timer C)
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
	f := &fork{call: c, request: m, loop: p.loopCode(c.request)}
	c.forks = append(c.forks, f)
	if flow, ok := ParseFlow(g.flow); ok && len(g.path) == 0 {
		p.launch(f, flow, now, out)
		return
	}
	const signature = 300 // Via and two Record-Routes
	to, transport, ok := p.way(&hop, len(m.Append(nil))+signature)
	switch {
	case ok:
		p.launch(f, to, now, out)
	case isName(hop.Host) && len(p.lookups) < p.settings.Transactions.Clients:
		p.lookup++
		f.lookup = p.lookup
		p.lookups[f.lookup] = f
		out.Lookups = append(out.Lookups, Lookup{f.lookup, hop, transport})
	default:
		p.relayed[NoWay]++
		f.final = message.Reply(c.server.Request, 503, "Service Unavailable", "")
	}
}

// isName reports whether a host is a name, not an address.
func isName(host string) bool {
	_, err := netip.ParseAddr(host)
	return err != nil
}

// Resolved goes on with a branch whose name has been looked up; without an address it has failed.
func (p *Proxy) Resolved(id uint64, to []transaction.Target, now time.Time, out *Output) {
	f := p.lookups[id]
	if f == nil {
		return
	}
	delete(p.lookups, id)
	f.lookup = 0
	if f.final == nil {
		launched := false
		for _, t := range to {
			if way, _, ok := p.via(t.Transport, t.Remote); ok {
				p.launch(f, way, now, out)
				launched = true
				break
			}
		}
		if !launched {
			p.relayed[NoWay]++
			f.final = message.Reply(f.call.server.Request, 503, "Service Unavailable", "")
		}
	}
	p.advance(f.call, now, out)
	p.settle(now, out)
}

// launch sends the request of a branch.
func (p *Proxy) launch(f *fork, to transaction.Target, now time.Time, out *Output) {
	p.sign(f.request, f.loop, f.call.server.From, to, now)
	client, err := p.layer.Start(f.request, to, 0, now, &out.Output)
	if err != nil {
		p.relayed[Overloaded]++
		f.final = message.Reply(f.call.server.Request, 503, "Service Unavailable", "")
		return
	}
	client.User, f.client = f, client
	if f.request.Method == "INVITE" {
		f.rings = now.Add(p.settings.TimerC)
		heap.Push(&p.rings, ring{f.rings, f})
	}
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
		case f.final != nil:
		case f.client == nil: // its name is still being resolved
			delete(p.lookups, f.lookup)
			f.final = message.Reply(c.server.Request, 487, "Request Terminated", "")
		default:
			f.cancel = true
			p.cancelFork(f, now, out)
		}
	}
}

// cancelGrace is how long a branch that was cancelled may take to end.
const cancelGrace = 32 * time.Second

// cancelFork sends CANCEL where that may be done already (section 9.1).
func (p *Proxy) cancelFork(f *fork, now time.Time, out *Output) {
	if f.request.Method != "INVITE" || f.sent || !f.client.Provisional() {
		return
	}
	f.sent = true
	f.rings = now.Add(cancelGrace)
	heap.Push(&p.rings, ring{f.rings, f})
	_, _ = p.layer.Start(transaction.Cancel(f.request), f.client.To, 0, now, &out.Output) // without room the branch ends by its time
}

// ack passes the ACK of a 2xx on, without state (section 16.6): within dialogs of this proxy's alone.
func (p *Proxy) ack(m *message.Message, now time.Time, out *Output) {
	m = m.Clone()
	if hops, there := m.MaxForwards(); !p.preprocess(m) || there && hops == 0 || p.loops(m) {
		p.relayed[Unmatched]++
		return
	}
	copied, hop := p.forward(m, &goal{uri: m.URI})
	to, _, ok := p.way(&hop, len(copied.Append(nil)))
	if !ok {
		p.relayed[NoWay]++
		return
	}
	p.sign(copied, p.loopCode(m), to, to, now)
	out.Sends = append(out.Sends, transaction.Send{To: to, Message: copied})
}

// ring is when a branch has rung for too long; if the branch has got more time meanwhile, it is
// looked at again then.
type ring struct {
	at   time.Time
	fork *fork
}

// rings is a heap.
type rings []ring

func (r rings) next() time.Time {
	if len(r) == 0 {
		return time.Time{}
	}
	return r[0].at
}
func (r rings) Len() int           { return len(r) }
func (r rings) Less(i, j int) bool { return r[i].at.Before(r[j].at) }
func (r rings) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }

// Push implements [heap.Interface].
func (r *rings) Push(x any) { *r = append(*r, x.(ring)) }

// Pop implements [heap.Interface].
func (r *rings) Pop() any {
	last := len(*r) - 1
	one := (*r)[last]
	(*r)[last] = ring{}
	*r = (*r)[:last]
	return one
}
