// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

// TestOthers says when a request goes to another server, and to which (RFC 3263 section 4.3).
func TestOthers(t *testing.T) {
	other := udp
	other.Remote = netip.MustParseAddrPort("[2001:db8::3]:5060")
	silence := func(w *world, c *Client) {
		for !c.Done() {
			w.now = w.layer.Next()
			w.layer.Tick(w.now, &w.out)
		}
	}
	unreachable := func(w *world, c *Client) { c.Fail(&w.out) }
	respond := func(status int) func(w *world, c *Client) {
		return func(w *world, c *Client) {
			w.layer.Handle(message.Reply(c.Request, status, "Reason", "tag"), udp, w.now, &w.out)
		}
	}
	cancel := func(w *world, c *Client) { c.Cancel(udp, w.now, &w.out) }
	for _, tt := range []struct {
		name, method string
		play         []func(*world, *Client)
		want         []Target
	}{
		{"no response", "INVITE", []func(*world, *Client){silence}, []Target{other}},
		{"no response, no INVITE", "BYE", []func(*world, *Client){silence}, []Target{other}},
		{"unreachable: another transport may do", "INVITE", []func(*world, *Client){unreachable}, []Target{tcp, other}},
		{"unavailable", "INVITE", []func(*world, *Client){respond(503)}, []Target{other}},
		{"it tries, and is unavailable", "INVITE", []func(*world, *Client){respond(100), respond(503)}, []Target{other}},
		{"it tries, and is unreachable", "INVITE", []func(*world, *Client){respond(100), unreachable}, []Target{tcp, other}},
		{"it tries, and nothing comes", "BYE", []func(*world, *Client){respond(100), silence}, nil},
		{"it rings, and who rings is unavailable", "INVITE", []func(*world, *Client){respond(180), respond(503)}, nil},
		{"it rings, and is unreachable", "INVITE", []func(*world, *Client){respond(180), unreachable}, nil},
		{"refused", "INVITE", []func(*world, *Client){respond(500)}, nil},
		{"given up", "INVITE", []func(*world, *Client){cancel, silence}, nil},
		{"given up, unavailable", "INVITE", []func(*world, *Client){cancel, respond(503)}, nil},
	} {
		w := newWorld(t, Defaults())
		c := w.start(request(t, tt.method, branch), udp)
		for _, play := range tt.play {
			play(w, c)
		}
		last := w.out.Events[len(w.out.Events)-1]
		if got := w.layer.Others(&last, []Target{tcp, other}, w.now); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v\nwant %v", tt.name, got, tt.want)
		}
		// For a while it is asked last, if another was asked.
		want := []Target{udp, other}
		if tt.want != nil {
			want = []Target{other, udp}
		}
		if got := w.layer.Order([]Target{udp, other}, w.now.Add(59*time.Second)); !slices.Equal(got, want) {
			t.Errorf("%s: then in the order %v\nwant %v", tt.name, got, want)
		}
		if got := w.layer.Order([]Target{udp, other}, w.now.Add(time.Minute)); !slices.Equal(got, []Target{udp, other}) {
			t.Errorf("%s: later in the order %v", tt.name, got)
		}
	}
}

// TestAvoidedAreBounded remembers no more servers than it may, and new ones when old ones are forgotten.
func TestAvoidedAreBounded(t *testing.T) {
	w := newWorld(t, Defaults())
	to := udp
	for range 2 * maxAvoided {
		to.Remote = netip.AddrPortFrom(to.Remote.Addr().Next(), 5060)
		w.layer.Avoid(to, w.now)
	}
	if n := len(w.layer.avoided); n != maxAvoided {
		t.Errorf("%d are remembered", n)
	}
	w.now = w.now.Add(avoidFor)
	w.layer.Avoid(to, w.now)
	if n := len(w.layer.avoided); n != 1 {
		t.Errorf("%d are remembered a minute later", n)
	}
}
