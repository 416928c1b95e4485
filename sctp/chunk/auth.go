// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package chunk

import "encoding/binary"

// HMACs by their identifiers (RFC 4895 section 8), and the sizes of their codes in octets.
const (
	HMACSHA1   uint16 = 1
	HMACSHA256 uint16 = 3

	SizeSHA1   = 20
	SizeSHA256 = 32
)

// Auth authenticates what follows it in its packet (RFC 4895 section 4.1):
//
//	| shared key (2) | HMAC (2) | code |
type Auth struct {
	Key, HMAC uint16
	Code      []byte
}

// ParseAuth reads an AUTH.
func ParseAuth(body []byte) (a Auth, err error) {
	if len(body) < 4 {
		return a, ErrLength
	}
	return Auth{binary.BigEndian.Uint16(body), binary.BigEndian.Uint16(body[2:]), body[4:]}, nil
}

// KeyVector is an end's share of the keys: the parameters that it has sent, one behind the other, without their
// padding (RFC 4895 section 6.1).
func (o *Options) KeyVector() (b []byte) {
	for _, p := range []struct {
		t     ParameterType
		sent  bool
		value []byte
	}{
		{ParamRandom, o.Random != nil, o.Random}, {ParamChunks, o.Chunks != nil, typeOctets(o.Chunks)},
		{ParamHMACs, o.HMACs != nil, octets(o.HMACs)},
	} {
		if p.sent {
			b = binary.BigEndian.AppendUint16(b, uint16(p.t))
			b = binary.BigEndian.AppendUint16(b, uint16(parameterHeader+len(p.value)))
			b = append(b, p.value...)
		}
	}
	return b
}

// AppendAuth writes an AUTH whose code is zeros, over which the code is computed (RFC 4895 section 6.2). code is
// its place in the buffer.
func AppendAuth(b []byte, key, hmac uint16, size int) (with, code []byte) {
	b, at := open(b, TypeAuth, 0)
	b = binary.BigEndian.AppendUint16(b, key)
	b = binary.BigEndian.AppendUint16(b, hmac)
	for range size {
		b = append(b, 0)
	}
	end := len(b)
	b = closeChunk(b, at)
	return b, b[end-size : end]
}
