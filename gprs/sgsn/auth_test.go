// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"bytes"
	"crypto/md5"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// proofs returns the containers of a create request that say who the terminal is.
func proofs(t *testing.T, m *gtp.CreateRequest) (list []gtp.PPP) {
	t.Helper()
	for c, v := range m.PCO.Value.All() {
		if c == gtp.ContainerPAP || c == gtp.ContainerCHAP {
			p, ok := gtp.ParsePPP(v)
			if !ok {
				t.Fatalf("%x", v)
			}
			list = append(list, p)
		}
	}
	return list
}

// TestCHAP tells a challenge and the response to it, both of the terminal (RFC 1994 section 4.1),
// with another challenge for each context and the same for a request that is repeated.
func TestCHAP(t *testing.T) {
	const user, password = "mig", "hemmelig"
	challenges := map[string]bool{}
	for range 3 {
		w := newWorld(t, Settings{})
		for n := range uint8(3) {
			a := attachment(gtp.V1, gtp.PDPTypeIPv4)
			a.NSAPI, a.User, a.Password, a.Auth = 5+n, user, password, AuthCHAP
			_, err := w.e.Attach(a, w.now, &w.out)
			w.order(err)
			w.wait(5 * time.Second)
			first, _ := w.next()
			if again, _ := w.next(); !bytes.Equal(first.Payload, again.Payload) {
				t.Error("repeated otherwise")
			}
			w.seen--
			_, m := w.accept(nil)
			list := proofs(t, &m)
			if len(list) != 2 || list[0].Code != gtp.CHAPChallenge || list[1].Code != gtp.CHAPResponse || list[0].Identifier != list[1].Identifier {
				t.Fatalf("%+v", list)
			}
			challenge, _, ok := list[0].CHAPValue()
			response, name, ok2 := list[1].CHAPValue()
			want := md5.Sum(append(append([]byte{list[0].Identifier}, password...), challenge...))
			if !ok || !ok2 || string(name) != user || !bytes.Equal(response, want[:]) || len(challenge) != 16 {
				t.Errorf("challenge %x, response %x of %q", challenge, response, name)
			}
			if bytes.Contains(m.PCO.Value, []byte(password)) {
				t.Error("the password is told")
			}
			challenges[string(challenge)] = true
		}
	}
	if len(challenges) != 3 { // each world draws the same
		t.Errorf("%d challenges of 3", len(challenges))
	}
}

// authAnswer is what a network says to a user's proof, and what is told of that.
type authAnswer struct {
	name    string
	auth    Auth
	code    gtp.PPPCode // 0 for nothing
	other   uint8       // what the identifier differs by
	data    string
	result  AuthResult
	message string
}

// to has a user attach, and gives the answer in what change makes of a Create Response.
func (a *authAnswer) to(w *world, v gtp.Version, change func(*gtp.CreateResponse)) gtp.TID {
	w.t.Helper()
	request := attachment(v, gtp.PDPTypeIPv4)
	request.User, request.Password, request.Auth = "mig", "hemmelig", a.auth
	key, err := w.e.Attach(request, w.now, &w.out)
	w.order(err)
	container := gtp.ContainerPAP
	if a.auth == AuthCHAP {
		container = gtp.ContainerCHAP
	}
	identifier := w.e.contexts[key].session.given.proof.identifier + a.other
	w.accept(func(m *gtp.CreateResponse) {
		change(m)
		if a.code != 0 {
			p, _ := gtp.NewPCO(nil).Add(container, gtp.PPP{Code: a.code, Identifier: identifier, Data: []byte(a.data)}.Append(nil))
			m.PCO = gtp.Some(p)
		}
	})
	return key
}

// TestAuthAnswers takes what is said to the own request.
func TestAuthAnswers(t *testing.T) {
	for _, row := range []authAnswer{
		{"PAP, accepted", AuthPAP, gtp.PAPAck, 0, "\x07Welcome", AuthAccepted, "Welcome"},
		{"PAP, refused", AuthPAP, gtp.PAPNak, 0, "\x02no", AuthRefused, "no"},
		{"PAP, with a message cut short", AuthPAP, gtp.PAPAck, 0, "\x09Welcome", AuthAccepted, ""},
		{"PAP, without a message", AuthPAP, gtp.PAPAck, 0, "", AuthAccepted, ""},
		{"PAP, to another request", AuthPAP, gtp.PAPAck, 1, "\x07Welcome", AuthUnanswered, ""},
		{"PAP, neither", AuthPAP, 9, 0, "\x07Welcome", AuthUnanswered, ""},
		{"CHAP, accepted", AuthCHAP, gtp.CHAPSuccess, 0, "Welcome", AuthAccepted, "Welcome"},
		{"CHAP, accepted without a message", AuthCHAP, gtp.CHAPSuccess, 0, "", AuthAccepted, ""},
		{"CHAP, refused", AuthCHAP, gtp.CHAPFailure, 0, "no", AuthRefused, "no"},
		{"CHAP, to another request", AuthCHAP, gtp.CHAPFailure, 1, "no", AuthUnanswered, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, Settings{})
			key := row.to(w, gtp.V1, func(*gtp.CreateResponse) {})
			if i := w.info(key); i.Auth != row.result || i.AuthMessage != row.message {
				t.Errorf("%s, %q", i.Auth, i.AuthMessage)
			}
		})
	}
}

// TestAuthRefused tells what a terminal that is not let in has been told by the options of the refusal (TS 29.060 section
// 7.3.2), as far as it answers its own proof.
func TestAuthRefused(t *testing.T) {
	for _, row := range []authAnswer{
		{"PAP", AuthPAP, gtp.PAPNak, 0, "\x05go on", AuthRefused, "go on"},
		{"CHAP", AuthCHAP, gtp.CHAPFailure, 0, "go on", AuthRefused, "go on"},
		{"CHAP, to another proof", AuthCHAP, gtp.CHAPFailure, 1, "go on", AuthUnanswered, ""},
		{"accepted, but for the address", AuthCHAP, gtp.CHAPSuccess, 0, "hello", AuthAccepted, "hello"},
		{"without a word", AuthCHAP, 0, 0, "", AuthUnanswered, ""},
	} {
		for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
			w := newWorld(t, Settings{})
			row.to(w, v, func(m *gtp.CreateResponse) { *m = gtp.CreateResponse{Cause: gtp.CauseUserAuthentication} })
			if about := w.event(Refused); about.Auth != row.result || about.AuthMessage != row.message || about.Cause != gtp.CauseUserAuthentication {
				t.Errorf("GTPv%d, %s: %+v", v, row.name, about)
			}
			w.empty()
		}
	}
}

// TestAuthOfSecondary: a secondary context that is refused says nothing of the proof of its primary one.
func TestAuthOfSecondary(t *testing.T) {
	w := newWorld(t, Settings{})
	a := attachment(gtp.V1, gtp.PDPTypeIPv4)
	a.User, a.Password = "mig", "hemmelig"
	key, err := w.e.Attach(a, w.now, &w.out)
	w.order(err)
	w.accept(func(m *gtp.CreateResponse) {
		p, _ := gtp.NewPCO(nil).Add(gtp.ContainerPAP, gtp.PPP{Code: gtp.PAPAck, Identifier: 1, Data: []byte{0}}.Append(nil))
		m.PCO = gtp.Some(p)
	})
	_, err = w.e.AttachSecondary(key, 6, template(gtp.PacketFilter{Direction: gtp.FilterBoth, Precedence: 1, Protocol: gtp.Some(uint8(17))}), gtp.QoS{}, w.now, &w.out)
	w.order(err)
	var m gtp.CreateRequest
	d, h := w.request(&m)
	w.say(d.Socket, reply(h, w.info(key).TEIDControl), &gtp.CreateResponse{Cause: gtp.CauseNoResources})
	if about := w.event(Refused); about.Auth != AuthUnanswered || w.info(key).Auth != AuthAccepted {
		t.Errorf("%+v", about)
	}
}

// TestAuthOfBoth: the GGSN of this project, which keeps no users, acknowledges either.
func TestAuthOfBoth(t *testing.T) {
	for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
		for _, auth := range []Auth{AuthPAP, AuthCHAP} {
			c := newCore(t, nil)
			a := attachment(v, gtp.PDPTypeIPv4)
			a.User, a.Password, a.Auth = "mig", "hemmelig", auth
			key, err := c.s.Attach(a, c.now, &c.sOut)
			c.order(err)
			if i := c.info(key); i.Auth != AuthAccepted {
				t.Errorf("GTPv%d, way %d: %q", v, auth, i.Auth)
			}
		}
	}
}
