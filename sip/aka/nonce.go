// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package aka

import "encoding/base64"

// Algorithm is how a challenge and its answer name themselves (RFC 3310 section 3.1).
const Algorithm = "AKAv1-MD5"

// Nonce is the challenge inside a digest's nonce (RFC 3310 section 3.2).
type Nonce struct {
	RAND, AUTN [16]byte
	// Data is the server's own.
	Data []byte
}

// String returns the nonce as it stands in a challenge.
func (n Nonce) String() string {
	b := make([]byte, 0, 32+len(n.Data))
	b = append(append(append(b, n.RAND[:]...), n.AUTN[:]...), n.Data...)
	return base64.StdEncoding.EncodeToString(b)
}

// ParseNonce reads a nonce. Not ok: a challenge is not inside, which a terminal ignores (RFC
// 3310 section 3.2).
func ParseNonce(s string) (n Nonce, ok bool) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(b) < 32 {
		return n, false
	}
	return Nonce{RAND: [16]byte(b), AUTN: [16]byte(b[16:]), Data: b[32:]}, true
}

// String returns AUTS as the parameter auts of an answer (RFC 3310 section 3.4).
func (a AUTS) String() string { return base64.StdEncoding.EncodeToString(a[:]) }

// ParseAUTS reads the parameter auts.
func ParseAUTS(s string) (a AUTS, ok bool) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(b) != len(a) {
		return a, false
	}
	return AUTS(b), true
}

// Password is RES as the password of a digest (RFC 3310 section 3.3). To an answer with AUTS
// it is empty (section 3.4).
func (a Answer) Password() string { return string(a.RES[:]) }

// Password is the expected RES as the password of a digest.
func (v Vector) Password() string { return string(v.XRES[:]) }
