// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"crypto/md5" // what RFC 1994 section 4 asks for
	"encoding/binary"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// Auth is how a terminal proves who it is.
type Auth uint8

// Ways to do so.
const (
	AuthPAP  Auth = iota // by the password itself (RFC 1334)
	AuthCHAP             // by what it makes of the password and a challenge of its own (RFC 1994)
)

// AuthResult is what the network says to that.
type AuthResult uint8

// Results.
const (
	AuthUnanswered AuthResult = iota // it was not asked, or has not answered
	AuthAccepted
	AuthRefused
)

// String returns the result in words; of no answer it is empty.
func (r AuthResult) String() string { return [...]string{"", "accepted", "refused", ""}[r&3] }

// proof is what one context has said of who it is.
type proof struct {
	identifier uint8
	challenge  [16]byte
	result     AuthResult
	message    string
}

// said is what the network has said to the proof of a context, and with what words.
func (c *PDPContext) said() (AuthResult, string) {
	if c.linked { // it proves nothing
		return AuthUnanswered, ""
	}
	return c.session.given.proof.result, c.session.given.proof.message
}

// chapName is who challenges: on the terminal's side of the network it is not known who will.
const chapName = "isthmus"

// prove draws what a proof needs. There is one request for each context.
func (e *Engine) prove(how Auth) proof {
	p := proof{identifier: 1}
	if how == AuthCHAP {
		binary.BigEndian.PutUint64(p.challenge[:], e.random.Uint64())
		binary.BigEndian.PutUint64(p.challenge[8:], e.random.Uint64())
	}
	return p
}

// add adds the containers of a proof: of CHAP challenge and response, since the terminal has made
// both (TS 24.008 section 10.5.6.3, TS 27.060 section 9).
func (p *proof) add(a *Attachment, add func(c gtp.Container, value []byte)) {
	ppp := func(code gtp.PPPCode, data []byte) []byte {
		return gtp.PPP{Code: code, Identifier: p.identifier, Data: data}.Append(nil)
	}
	if a.Auth == AuthPAP {
		data := append([]byte{byte(len(a.User))}, a.User...)
		data = append(append(data, byte(len(a.Password))), a.Password...)
		add(gtp.ContainerPAP, ppp(gtp.PAPRequest, data))
		return
	}
	value := func(v [16]byte, name string) []byte {
		return append(append([]byte{byte(len(v))}, v[:]...), name...)
	}
	hashed := append(append([]byte{p.identifier}, a.Password...), p.challenge[:]...)
	add(gtp.ContainerCHAP, ppp(gtp.CHAPChallenge, value(p.challenge, chapName)))
	add(gtp.ContainerCHAP, ppp(gtp.CHAPResponse, value(md5.Sum(hashed), a.User)))
}

// read takes what the network says (RFC 1334 section 2.2.2, RFC 1994 section 4.2). An answer to
// another request is none.
func (p *proof) read(c gtp.Container, v []byte) {
	answer, ok := gtp.ParsePPP(v)
	if !ok || answer.Identifier != p.identifier {
		return
	}
	said := answer.Data
	yes, no := gtp.CHAPSuccess, gtp.CHAPFailure
	if c == gtp.ContainerPAP {
		yes, no = gtp.PAPAck, gtp.PAPNak
		if len(said) > 0 && len(said) > int(said[0]) {
			said = said[1 : 1+int(said[0])]
		} else {
			said = nil
		}
	}
	switch answer.Code {
	case yes:
		p.result = AuthAccepted
	case no:
		p.result = AuthRefused
	default:
		return
	}
	p.message = string(said)
}
