// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/ua/agent"
	"github.com/isthmus-net/isthmus/teredo"
)

// Of what is shown.
const (
	callTick   = 100 * time.Millisecond // how often something new is looked for
	callSettle = 50 * time.Millisecond  // what happens at about the same time is brought in order by then
	callLine   = 2 * time.Second        // how often the call has a line where there is no terminal
)

// callTale is what a tour tells: lines of what happens, and of the call.
type callTale struct {
	begin time.Time
	shown time.Time // the last line of the call

	mu      sync.Mutex
	lines   []callSaid // that wait to be shown
	tests   connectivityTests
	address netip.Addr             // that Teredo gave last
	media   map[[2]netip.Addr]bool // that were seen in this call, from and to
	ended   time.Time              // the call before it
}

// callSaid is a line.
type callSaid struct {
	at   time.Time
	text string
}

func newCallTale() callTale {
	return callTale{begin: time.Now(), tests: connectivityTests{}, media: map[[2]netip.Addr]bool{}}
}

// say tells that something happens. Without a guide no one does.
func (g *callGuide) say(format string, args ...any) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.add(time.Now(), format, args...)
}

// add puts a line among those that wait.
func (t *callTale) add(at time.Time, format string, args ...any) {
	t.lines = append(t.lines, callSaid{at, fmt.Sprintf(format, args...)})
}

// tell does something, and tells meanwhile what passes the terminal's links and how the call is.
func (g *callGuide) tell(ctx context.Context, do func() error) (err error) {
	var watches []*lab.Capture
	for _, link := range []string{handoffUMTS, handoffGPRS} {
		w, failed := g.net.lab.Watch(g.net.node, link, g.see)
		if failed != nil {
			err = failed
			break
		}
		watches = append(watches, w)
	}
	over, shown := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(shown)
		g.follow(ctx, over)
	}()
	if err == nil {
		err = do()
	}
	for _, w := range watches {
		err = errors.Join(err, w.Stop())
	}
	close(over)
	<-shown
	return err
}

// follow shows what there is to show until it is over.
func (g *callGuide) follow(ctx context.Context, over chan struct{}) {
	every := time.NewTicker(callTick)
	defer every.Stop()
	for {
		select {
		case <-over:
			g.show(time.Now())
			g.env.Status("")
			return
		case now := <-every.C:
			g.show(now.Add(-callSettle))
			g.showCall(ctx, now)
		}
	}
}

// show shows the lines of what has happened until a time, in its order.
func (g *callGuide) show(until time.Time) {
	g.mu.Lock()
	slices.SortStableFunc(g.lines, func(a, b callSaid) int { return a.at.Compare(b.at) })
	n := 0
	for n < len(g.lines) && !g.lines[n].at.After(until) {
		n++
	}
	lines := slices.Clone(g.lines[:n])
	g.lines = slices.Delete(g.lines, 0, n)
	g.mu.Unlock()
	for _, l := range lines {
		g.env.Step("  %6.3f s  %s", l.at.Sub(g.begin).Seconds(), l.text)
	}
}

// showCall shows the call: in the last line of a terminal, elsewhere in a line now and then.
func (g *callGuide) showCall(ctx context.Context, now time.Time) {
	terminal, err := g.net.ue.State(ctx)
	host, failed := g.net.ch.State(ctx)
	if err != nil || failed != nil || len(terminal.Calls) == 0 || len(host.Calls) == 0 {
		g.env.Status("")
		return
	}
	text := callText(terminal, host)
	g.env.Status(text)
	if !g.env.Live && now.Sub(g.shown) >= callLine {
		g.shown = now
		g.say("%s", text)
	}
}

// callText is the call in a line: what either end has heard, and by which address.
func callText(terminal, host agent.State) string {
	by := "no address"
	if terminal.Path.IsValid() {
		by = fmt.Sprintf("%s %v", terminal.Link, terminal.Path.Addr())
	}
	down, up := terminal.Calls[0].Media, host.Calls[0].Media
	return fmt.Sprintf("=== down %d heard, %d lost; up %d heard, %d lost; %s", down.Received, down.Lost, up.Received, up.Lost, by)
}

// see tells of a frame on a link of the terminal, if it is of interest.
func (g *callGuide) see(at time.Time, frame []byte) {
	d, ok := datagram(frame)
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if own := ownTeredo(d); own.IsValid() && own != g.address {
		g.address = own
		g.add(at, "Teredo: the terminal is qualified, and has IPv6 again: %v.", own)
	}
	inside := unwrapped([]seen{d})[0]
	carried := inside.from != d.from
	text := g.about(at, inside)
	if text == "" {
		return
	}
	if carried {
		text += ", by Teredo"
	}
	g.add(at, "  %-7s > %-7s  %s", g.net.nameOf(inside.from), g.net.nameOf(inside.to), text)
}

// about says what a datagram is; "" if that is not of interest.
func (g *callGuide) about(at time.Time, d seen) string {
	switch {
	case d.to.Port() == dhcpServer:
		return "DHCP: discover"
	case d.to.Port() == dhcpClient:
		return "DHCP: acknowledgement"
	case d.to.Addr().Is4():
		return g.teredoText(d)
	}
	if _, ok := rtpNumber(d.payload); ok {
		ends := [2]netip.Addr{d.from.Addr(), d.to.Addr()}
		if g.media[ends] || at.Before(g.ended) { // what a link that went down held back is of the call before
			return ""
		}
		g.media[ends] = true
		return "first media this way"
	}
	text := sipText(d.payload)
	if strings.HasPrefix(text, "BYE") {
		clear(g.media) // the next call has media of its own
		g.ended = at
	}
	return text
}

// teredoText says what a Teredo datagram is; "" if it is of no interest, as errors are: media may come
// when their call is over.
func (g *callGuide) teredoText(d seen) string {
	p, err := teredo.Parse(d.payload)
	if err != nil {
		return ""
	}
	if m, ok := p.IPv6.ICMPv6(); ok && m[0] < packet.ICMPv6EchoRequest {
		return ""
	}
	return describe(d.payload) + g.tests.remark(d)
}

// ownTeredo is the address that Teredo has given to the terminal, if a datagram has it.
func ownTeredo(d seen) (own netip.Addr) {
	p, err := teredo.Parse(d.payload)
	if err != nil || !d.to.Addr().Is4() || !teredo.Prefix.Contains(p.IPv6.Src()) {
		return own
	}
	return p.IPv6.Src()
}

// sipText says in a few words what a SIP message is; "" if it is none, or one that changes nothing.
func sipText(payload []byte) string {
	m, fault := message.Parse(payload)
	if fault != nil {
		return ""
	}
	_, method, _ := m.CSeq()
	switch {
	case method == "ACK" || m.Status > 0 && m.Status < 200:
		return ""
	case !m.IsRequest():
		return fmt.Sprintf("%d to %s", m.Status, method)
	case method == "INVITE":
		if to, ok := m.To(); ok && to.Tag() != "" {
			return "re-INVITE"
		}
	}
	return method
}
