// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// response takes a response to a branch (RFC 3261 section 16.7).
func (p *Proxy) response(e *transaction.Event, now time.Time, out *Output) {
	f := forkOf(e.Client)
	if f == nil { // of a CANCEL of ours
		return
	}
	m := e.Message.Clone()
	m.RemoveFirst("Via")
	c := f.call
	if !m.Has("Via") { // for nobody (number 3), and yet the last that is heard of this branch
		if m.Status < 200 {
			return
		}
		m = message.Reply(c.server.Request, 502, "Bad Gateway", "")
	}
	p.disown(m, e.From.Remote.Addr())
	p.withhold(m, c.server.From.Remote.Addr())
	p.waiting.remove(f)
	switch {
	case m.Status < 200:
		if f.client.Waiting() {
			p.layer.SetTimer(&f.rings, now.Add(p.settings.TimerC))
		}
		if m.Status > 100 && !c.answered && f.mayRing(m, now) {
			c.server.Respond(m, now, &out.Output)
		}
		return
	case m.Status < 300 && f.request.Method == "INVITE":
		p.accept(c, f, m, now, out)
		return
	case p.nextServer(f, e, now, out):
		return
	}
	p.end(f, m)
	if m.Status == 430 {
		p.otherFlow(f, now, out)
	}
	if m.Status/100 == 6 || m.Status/100 == 2 {
		c.cancelled = true
		if m.Status/100 == 2 && !c.answered {
			c.answered = true
			c.server.Respond(m, now, &out.Output)
		}
		p.cancelForks(c, now, out)
	}
	p.advance(c, now, out)
}

// What goes at once to a sender who is spared, of each callee: provisional responses, and 2xx, which a callee repeats
// until there is an ACK. One more goes each T2, which is how a 2xx is repeated in the end (RFC 3261 section 13.3.1.4):
// who had no network for some seconds must still get it.
const (
	sparedRings   = 16
	sparedAccepts = 4
)

// sparedCallees is how many behind one branch, where another proxy forks, have a pace of their own: what one of them
// repeats must not keep back the only word of another. All further ones share one.
const sparedCallees = 4

// callee is what has gone back of one who answers.
type callee struct {
	tag   string // of To
	rung  pace   // provisional responses
	rseq  string // of the last reliable one
	taken pace   // 2xx
}

// callee finds the one whom a response is of.
func (f *fork) callee(m *message.Message) *callee {
	to, _ := m.To()
	tag := to.Tag()
	i := slices.IndexFunc(f.callees, func(c callee) bool { return c.tag == tag })
	switch {
	case i >= 0:
		return &f.callees[i]
	case len(f.callees) > sparedCallees:
		return &f.callees[sparedCallees]
	}
	f.callees = append(f.callees, callee{tag: tag})
	return &f.callees[len(f.callees)-1]
}

// pace bounds what is sent: some at once, and then one each interval.
type pace struct {
	free time.Time // when as many may be sent at once again
}

// allows reports whether one more may be sent now, and counts it.
func (p *pace) allows(atOnce int, interval time.Duration, now time.Time) bool {
	if p.free.Before(now) {
		p.free = now
	}
	if p.free.Sub(now) > time.Duration(atOnce-1)*interval {
		return false
	}
	p.free = p.free.Add(interval)
	return true
}

// spared reports whether responses of a branch are bounded: by UDP, whoever proves nothing may have forged his source,
// and gets what a caller needs, and little more.
func (c *call) spared() bool { return c.server.Spared() && !c.server.From.Reliable() }

// mayRing reports whether a provisional response goes back. A reliable one is followed by the next when there has been
// a PRACK for it (RFC 3262 section 3), so its caller is there.
func (f *fork) mayRing(m *message.Message, now time.Time) bool {
	if !f.call.spared() {
		return true
	}
	c := f.callee(m)
	if number := m.Get("RSeq"); number != "" && number != c.rseq {
		c.rseq = number
		return true
	}
	return c.rung.allows(sparedRings, f.call.repeats, now)
}

// accept sends a 2xx to INVITE back at once, each that a callee repeats as he should, and cancels what is still open.
func (p *Proxy) accept(c *call, f *fork, m *message.Message, now time.Time, out *Output) {
	p.end(f, m)
	if c.spared() && !f.callee(m).taken.allows(sparedAccepts, c.repeats, now) {
		return
	}
	if refused := c.answered && !c.accepted; refused { // the transaction would send nothing more
		out.Sends = append(out.Sends, transaction.Send{To: c.server.From, Message: m})
		return
	}
	c.answered, c.accepted = true, true
	c.server.Respond(m, now, &out.Output)
	p.cancelForks(c, now, out)
}

// failed ends a branch that could not be sent or was not answered (sections 16.8 and 16.9).
func (p *Proxy) failed(f *fork, e *transaction.Event, now time.Time, out *Output) {
	p.waiting.remove(f)
	p.layer.StopTimer(&f.rings)
	if f.final != nil || p.nextServer(f, e, now, out) {
		return
	}
	status, reason := 503, "Service Unavailable"
	if e.Kind == transaction.Timeout {
		status, reason = 408, "Request Timeout"
	}
	p.end(f, message.Reply(f.call.server.Request, status, reason, ""))
	if e.Kind == transaction.Unreachable {
		p.otherFlow(f, now, out)
	}
	p.advance(f.call, now, out)
}

// nextServer has a branch go to the next of its servers where one has failed, and reports whether there
// is one (RFC 3263 section 4.3, RFC 3261 sections 16.6, number 7, and 18.1.1). By the time that a
// request has no answer, but for INVITE, its caller has given up as well.
func (p *Proxy) nextServer(f *fork, e *transaction.Event, now time.Time, out *Output) bool {
	others := p.layer.Others(e, f.ways, now)
	late := e.Kind == transaction.Timeout && f.request.Method != "INVITE"
	if len(others) == 0 || late || f.call.cancelled || f.call.answered {
		return false
	}
	f.ways = others
	p.launch(f, now, out)
	p.advance(f.call, now, out)
	return true
}

// otherFlow takes another flow of a terminal whose flow has failed, and forgets that one (RFC 5626
// sections 5.3 and 7).
func (p *Proxy) otherFlow(f *fork, now time.Time, out *Output) {
	g := &f.goal
	if g.binding.RegID == 0 {
		return
	}
	p.end(f, message.Reply(f.call.server.Request, 480, "Temporarily Unavailable", ""))
	p.table.Remove(g.aor, func(b *location.Binding) bool {
		return b.Instance == g.binding.Instance && b.RegID == g.binding.RegID && b.Updated.Equal(g.binding.Updated)
	})
	if len(g.others) > 0 && !f.call.cancelled && !f.call.answered {
		next := g.others[0]
		next.others = g.others[1:]
		p.fork(f.call, &next, now, out)
	}
}

// finish sends the best of all responses back (RFC 3261 section 16.7, number 6).
func (p *Proxy) finish(c *call, now time.Time, out *Output) {
	c.answered = true
	best := c.best()
	if best.Status == 401 || best.Status == 407 {
		best = best.Clone()
		c.collectChallenges(best)
	}
	if best.Status == 503 { // it would be of this proxy, and it is not
		best = best.Clone()
		best.Status, best.Reason = 500, "Server Internal Error"
	}
	if to, ok := best.To(); ok && to.Tag() == "" { // one of our own making
		best = best.Clone()
		best.Set("To", p.reply(c.server.Request, best.Status, best.Reason).Get("To"))
	}
	c.server.Respond(best, now, &out.Output)
}

// best chooses: a refusal of all, else one of the lowest class, and of these one that tells how to go
// on.
func (c *call) best() *message.Message {
	telling := []int{401, 407, 415, 420, 484}
	rank := func(m *message.Message) int {
		class := m.Status / 100
		switch {
		case class == 6:
			return 0
		case slices.Contains(telling, m.Status):
			return class * 10
		case m.Status == 408 || m.Status == 503: // the proxy's own, as a rule
			return class*10 + 2
		}
		return class*10 + 1
	}
	var best *message.Message
	for _, f := range c.forks {
		if best == nil || rank(f.final) < rank(best) {
			best = f.final
		}
	}
	if best == nil {
		return message.Reply(c.server.Request, 487, "Request Terminated", "")
	}
	return best
}

// collectChallenges adds those of all other branches (number 7, RFC 8760 section 2.5).
func (c *call) collectChallenges(to *message.Message) {
	for _, name := range []string{"WWW-Authenticate", "Proxy-Authenticate"} {
		there := to.All(name)
		for _, f := range c.forks {
			if f.final.Status != 401 && f.final.Status != 407 {
				continue
			}
			for _, value := range f.final.All(name) {
				if !slices.ContainsFunc(there, func(s string) bool { return strings.EqualFold(s, value) }) {
					to.Add(name, value)
					there = append(there, value)
				}
			}
		}
	}
}
