// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package radius

import (
	"crypto/hmac"
	"crypto/md5"
	"errors"
	"time"

	"layeh.com/radius"
)

// Request is what a server is asked, or told.
type Request struct {
	Code       Code
	Attributes Attributes
	// Password is hidden by the secret of the server (RFC 2865 section 5.2); nil: there is none.
	Password []byte
	// Time is when it happened, of an Accounting-Request: the server is told how long ago.
	Time time.Time
}

// MaxPassword is the longest password that a request can have (RFC 2865 section 5.2).
const MaxPassword = 128

// headerLen is what comes before the attributes: code, identifier, length, authenticator.
const headerLen = 20

// AccountingRoom is how many octets of attributes an Accounting-Request has room for, beside the
// Acct-Delay-Time that is added to them.
const AccountingRoom = radius.MaxPacketLength - headerLen - 6

// signatureLen is the length of a Message-Authenticator with its header.
const signatureLen = 2 + md5.Size

// encode writes a request for one server. authenticator is that of an Access-Request.
func (r *Request) encode(id byte, authenticator [16]byte, secret []byte, now time.Time) ([]byte, error) {
	p := radius.Packet{Code: r.Code, Identifier: id, Authenticator: authenticator, Secret: secret}
	p.Attributes = make(radius.Attributes, 0, len(r.Attributes.list)+2)
	if r.Code == AccessRequest { // before all else, against CVE-2024-3596
		p.Add(MessageAuthenticator, make(radius.Attribute, md5.Size))
	}
	p.Attributes = append(p.Attributes, r.Attributes.list...)
	if r.Password != nil {
		hidden, err := radius.NewUserPassword(r.Password, secret, authenticator[:])
		if err != nil {
			return nil, err
		}
		p.Add(UserPassword, hidden)
	}
	if r.Code == AccountingRequest {
		p.Add(AcctDelayTime, radius.NewInteger(uint32(max(0, now.Sub(r.Time)/time.Second))))
	}
	b, err := p.Encode()
	if err == nil && r.Code == AccessRequest {
		sign(b, headerLen, secret)
	}
	return b, err
}

// sign fills the Message-Authenticator at a place (RFC 3579 section 3.2), with the authenticator
// of the request in the header.
func sign(b []byte, at int, secret []byte) {
	copy(b[at+2:], signature(b, at, b[4:headerLen], secret))
}

// signature is the Message-Authenticator at a place, where an authenticator is in the header, or was.
func signature(b []byte, at int, authenticator, secret []byte) []byte {
	h := hmac.New(md5.New, secret)
	h.Write(b[:4])
	h.Write(authenticator)
	h.Write(b[headerLen : at+2])
	var none [md5.Size]byte
	h.Write(none[:])
	h.Write(b[at+signatureLen:])
	return h.Sum(nil)
}

var errSignature = errors.New("a Message-Authenticator has another length, or is there twice")

// findSignature returns where the Message-Authenticator of a packet is; 0: there is none.
func findSignature(b []byte) (at int, err error) {
	for i := headerLen; i+2 <= len(b) && b[i+1] >= 2 && i+int(b[i+1]) <= len(b); i += int(b[i+1]) {
		if Type(b[i]) == MessageAuthenticator {
			if at != 0 || b[i+1] != signatureLen {
				return 0, errSignature
			}
			at = i
		}
	}
	return at, nil
}

// signedBy reports whether the Message-Authenticator at a place is right for the authenticator
// that was in the header when it was made.
func signedBy(b []byte, at int, authenticator, secret []byte) bool {
	return hmac.Equal(signature(b, at, authenticator, secret), b[at+2:at+signatureLen])
}
