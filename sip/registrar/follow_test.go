// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

// mover is bob's telephone, which registers where it is now.
type mover struct {
	*rig
	*phone
}

func newMover(t *testing.T, change ...func(*Settings, *ProxySettings)) *mover {
	t.Helper()
	r := newRig(t, change...)
	return &mover{r, newPhone(t, r.p.Engine, "bob")}
}

// at registers contacts by the proxy.
func (m *mover) at(contacts ...string) {
	m.rig.t.Helper()
	for i, c := range contacts {
		contacts[i] = "Contact: " + c
	}
	c := m.challenged()
	register := m.request(contacts...)
	a := c.Answer("bob", c.Algorithm.HA1("bob", realm, "bob"), "REGISTER", register.URI, "cnonce", 1)
	register.Add("Authorization", a.String())
	m.rig.send(register, "[2001:db8::9]:5060")
}

// called has bob called, who is at :2, and returns what goes there.
func (m *mover) called() *message.Message {
	m.rig.t.Helper()
	m.at("<sip:bob@[2001:db8::2]>")
	m.inbox = nil
	m.rig.send(m.make("INVITE", bob, "call"), caller)
	return m.got("INVITE", "2001:db8::2")
}

const (
	gone = "<sip:bob@[2001:db8::2]>;expires=0"
	here = "<sip:bob@[2001:db8::3]>"
)

// TestFollow has a call that comes in while a terminal moves go where it registers.
func TestFollow(t *testing.T) {
	m := newMover(t)
	old := m.called()
	m.at(here, gone)
	invite := m.inbox[len(m.inbox)-1].Message
	m.expect("moved", "200 :9, INVITE :3")
	if invite.CallID() != old.CallID() || invite.URI != "sip:bob@[2001:db8::3]" {
		t.Errorf("it is called by\n%s", invite)
	}
	m.rig.send(message.Reply(invite, 200, "OK", "b"), "[2001:db8::3]:5060")
	m.expect("answered there", "200 :1")
	m.until(10 * time.Second)
	if told := m.told(); strings.Contains(told, ":1") || strings.Contains(told, ":3") {
		t.Errorf("then come %s", told)
	}
	m.empty()
}

// TestFollowNot leaves calls where they are that are answered, given up or not meant.
func TestFollowNot(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before func(*mover, *message.Message)
		now    []string
		want   string
	}{
		{"it rings", func(m *mover, i *message.Message) {
			m.rig.send(message.Reply(i, 180, "Ringing", "b"), "[2001:db8::2]:5060")
		}, []string{here, gone}, "200 :9"},
		{"it is answered", func(m *mover, i *message.Message) { m.rig.send(message.Reply(i, 200, "OK", "b"), "[2001:db8::2]:5060") }, []string{here, gone}, "200 :9"},
		{"it is refused", func(m *mover, i *message.Message) {
			m.rig.send(message.Reply(i, 486, "Busy Here", "b"), "[2001:db8::2]:5060")
		}, []string{here, gone}, "200 :9"},
		{"the caller gives up", func(m *mover, _ *message.Message) { m.rig.send(m.make("CANCEL", bob, "call"), caller) }, []string{here, gone}, "200 :9"},
		{"the contact stays", nil, []string{"<sip:bob@[2001:db8::2]>"}, "200 :9"},
		{"one is added", nil, []string{here}, "200 :9"},
		{"it goes", nil, []string{gone}, "200 :9"},
	} {
		m := newMover(t)
		invite := m.called()
		if tt.before != nil {
			tt.before(m, invite)
		}
		m.inbox = nil
		m.at(tt.now...)
		m.expect(tt.name, tt.want)
		m.empty()
	}
}

// TestFollowed tells what becomes of both branches: the old one is not waited for, and counts if it is answered.
func TestFollowed(t *testing.T) {
	m := newMover(t)
	old := m.called()
	m.at(here, gone)
	m.rig.send(message.Reply(m.got("INVITE", "2001:db8::3"), 486, "Busy Here", "b"), "[2001:db8::3]:5060")
	m.expect("busy there", "ACK :3, 486 :1")
	m.rig.send(message.Reply(old, 200, "OK", "b"), "[2001:db8::2]:5060")
	m.expect("and answered late, where it was", "200 :1")
	m.empty()

	m = newMover(t)
	old = m.called()
	m.at(here, gone)
	m.inbox = nil
	m.rig.send(message.Reply(old, 200, "OK", "b"), "[2001:db8::2]:5060")
	m.expect("answered where it was", "200 :1")
	m.empty()
}

// TestFollowBounded has who moves on and on not multiply what a caller sends.
func TestFollowBounded(t *testing.T) {
	m := newMover(t, func(_ *Settings, p *ProxySettings) { p.MaxForks = 4 })
	m.called()
	forks, last := 1, 2
	for i := range 10 {
		m.inbox = nil
		m.at(fmt.Sprintf("<sip:bob@[2001:db8::%x]>", i+10), fmt.Sprintf("<sip:bob@[2001:db8::%x]>;expires=0", last))
		last = i + 10
		forks += strings.Count(m.told(), "INVITE")
	}
	if forks != 4 {
		t.Errorf("%d branches", forks)
	}
	m.empty()

	m = newMover(t)
	m.called()
	for i := range 2 * maxFollowing {
		m.rig.send(m.make("INVITE", bob, fmt.Sprint("more", i)), caller)
	}
	m.inbox = nil
	m.at(here, gone)
	if n := strings.Count(m.told(), "INVITE :3"); n == 0 || n > maxFollowing {
		t.Errorf("%d calls follow", n)
	}
	m.empty()
}
