// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/aka"
	"github.com/isthmus-net/isthmus/sip/digest"
	"github.com/isthmus-net/isthmus/sip/message"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

const realm = "example.com"

// source is a repeatable source of random numbers.
func source(seed byte) io.Reader { return rand.NewChaCha8([32]byte{seed}) }

// testKey is that of set 1 of TS 35.207.
func testKey(t testing.TB) *aka.Milenage {
	t.Helper()
	k, err := hex.DecodeString("465b5ce8b199b49faa5f0a2ee238a6bc")
	opc, errOPc := hex.DecodeString("cd63cb71954a9f4e48a5994e37a02baf")
	if err != nil || errOPc != nil {
		t.Fatal(err, errOPc)
	}
	return aka.NewMilenage(aka.Key(k), aka.Key(opc))
}

// settings have alice and bob with passwords, and sim with AKA.
func settings(t testing.TB) Settings {
	s := Defaults()
	s.Domains = []string{realm, "other.example.com"}
	s.Hosts = []string{"2001:db8::5"}
	for _, name := range []string{"alice", "bob", "user"} {
		s.Accounts = append(s.Accounts, Account{Username: name, Public: []string{"sip:" + name + "@" + realm}, HA1: map[digest.Algorithm]string{
			digest.MD5: digest.MD5.HA1(name, realm, name), digest.SHA256: digest.SHA256.HA1(name, realm, name),
		}})
	}
	s.Accounts = append(s.Accounts, Account{Username: "sim@" + realm, Public: []string{"sip:sim@" + realm, "tel:+15550100"}, Milenage: testKey(t), SQN: 0x20})
	return s
}

func engine(t testing.TB, change ...func(*Settings)) *Engine {
	t.Helper()
	s := settings(t)
	for _, f := range change {
		f(&s)
	}
	e, err := New(s, source(1))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// phone is a user agent of an account.
type phone struct {
	t    testing.TB
	e    *Engine
	name string // its password is the same
	call string
	cseq uint32
	now  time.Time
	flow string
	// change changes the request before it is answered for, and credentials what is answered.
	change      func(*message.Message)
	credentials func(*digest.Credentials)
	algorithm   digest.Algorithm
}

func newPhone(t testing.TB, e *Engine, name string) *phone {
	return &phone{t: t, e: e, name: name, call: "call-of-" + name, now: start, algorithm: digest.SHA256}
}

// request makes a REGISTER with fields, each as it stands in a message.
func (p *phone) request(fields ...string) *message.Message {
	p.t.Helper()
	p.cseq++
	text := fmt.Sprintf("REGISTER sip:%[1]s SIP/2.0\r\nVia: SIP/2.0/UDP [2001:db8::1];branch=z9hG4bK%[4]d;rport\r\nFrom: <sip:%[2]s@%[1]s>;tag=1\r\nTo: <sip:%[2]s@%[1]s>\r\n"+
		"Call-ID: %[3]s\r\nCSeq: %[4]d REGISTER\r\nMax-Forwards: 70\r\n", realm, strings.TrimSuffix(p.name, "@"+realm), p.call, p.cseq)
	for _, f := range fields {
		text += f + "\r\n"
	}
	m, f := message.Parse([]byte(text + "\r\n"))
	if f != nil {
		p.t.Fatalf("%v:\n%s", f, text)
	}
	if p.change != nil {
		p.change(m)
	}
	return m
}

// send has the engine answer, whose answer can be read.
func (p *phone) send(m *message.Message) *message.Message {
	p.t.Helper()
	r := p.e.Register(m, Source{Flow: p.flow}, p.now)
	again, f := message.Parse(r.Append(nil))
	if f != nil {
		p.t.Fatalf("the response cannot be read, %v:\n%s", f, r)
	}
	return again
}

// challenged sends a request without credentials and returns the challenge for the phone's
// algorithm.
func (p *phone) challenged(fields ...string) digest.Challenge {
	p.t.Helper()
	r := p.send(p.request(fields...))
	if r.Status != 401 {
		p.t.Fatalf("the answer is\n%s", r)
	}
	for _, header := range r.All("WWW-Authenticate") {
		if c, err := digest.ParseChallenge(header); err == nil && c.Algorithm == p.algorithm {
			return c
		}
	}
	p.t.Fatalf("no challenge of %s in\n%s", p.algorithm, r)
	return digest.Challenge{}
}

// answer sends a request with credentials for a challenge, with the count of its nonce.
func (p *phone) answer(c *digest.Challenge, count uint32, fields ...string) *message.Message {
	p.t.Helper()
	m := p.request(fields...)
	a := c.Answer(p.name, c.Algorithm.HA1(p.name, c.Realm, p.name), m.Method, m.URI, "cnonce", count)
	if p.credentials != nil {
		p.credentials(&a)
	}
	m.Add("Authorization", a.String())
	return p.send(m)
}

// register sends a request, and again with credentials.
func (p *phone) register(fields ...string) *message.Message {
	p.t.Helper()
	c := p.challenged(fields...)
	return p.answer(&c, 1, fields...)
}

func refused(e *Engine) string {
	var words []string
	for i, n := range e.Stats().Refused {
		if n > 0 && Reason(i) != Challenged {
			words = append(words, fmt.Sprintf("%s %d", Reason(i), n))
		}
	}
	return strings.Join(words, ", ")
}
