// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-net/isthmus/translate/dns64"
)

const (
	// askedSize is what upstreams may send over UDP: more would come in fragments,
	// which can be forged.
	askedSize = 1232
	// strangersAllowed bounds the wrong answers that are read while waiting for the
	// right one.
	strangersAllowed = 100
)

var (
	errWrongAnswer = errors.New("the upstream answered another question")
	errUnreadable  = errors.New("the answer cannot be read")
)

// exchange asks one upstream over UDP, and over TCP if the answer is too long for that or
// cannot be read. Port, identifier and, if wanted, the case of the name are new for each
// question, so that no one can forge an answer without guessing them.
func exchange(ctx context.Context, to netip.AddrPort, a dns64.Ask, mixedCase bool) (*dns.Msg, error) {
	q := question(a, mixedCase)
	m, err := overEither(ctx, to, q)
	if err == nil && dns64.DislikesEDNS(m.Rcode) {
		q = question(a, mixedCase) // what was guessed for the first does not serve for this
		q.Extra = nil
		m, err = overEither(ctx, to, q)
	}
	return m, err
}

func overEither(ctx context.Context, to netip.AddrPort, q *dns.Msg) (*dns.Msg, error) {
	m, err := over(ctx, "udp", to, q)
	unreadable := errors.Is(err, errUnreadable)
	if err == nil && m.Truncated || unreadable {
		m, err = over(ctx, "tcp", to, q)
	}
	if err != nil && unreadable {
		// It has answered, if not in a way that leads anywhere.
		return new(dns.Msg).SetRcodeFormatError(q), nil
	}
	return m, err
}

// question is the message for an upstream.
func question(a dns64.Ask, mixedCase bool) *dns.Msg {
	m := new(dns.Msg)
	m.Id = dns.Id()
	m.RecursionDesired, m.CheckingDisabled = true, a.CD
	m.AuthenticatedData = !a.CD // whether the data was found valid is of interest (RFC 6840 section 5.7)
	name := a.Name
	if mixedCase {
		name = mixed(name)
	}
	m.Question = []dns.Question{{Name: name, Qtype: a.Type, Qclass: a.Class}}
	m.SetEdns0(askedSize, a.DO)
	return m
}

// mixed makes letters of a name capitals at random. Escapes hold digits alone, which
// stay.
func mixed(name string) string {
	var coins [256]byte
	_, _ = rand.Read(coins[:]) // never fails
	out := []byte(name)
	for i, b := range out {
		if b >= 'a' && b <= 'z' && coins[i%len(coins)]&1 == 1 {
			out[i] = b - 'a' + 'A'
		}
	}
	return string(out)
}

// over sends a message by a socket of its own and waits for the answer.
func over(ctx context.Context, network string, to netip.AddrPort, q *dns.Msg) (*dns.Msg, error) {
	wire, err := q.Pack()
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, to.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// A cancelled context ends the wait at once.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if network == "tcp" {
		return overStream(conn, q, wire)
	}
	return overDatagram(conn, q, wire)
}

func overDatagram(conn net.Conn, q *dns.Msg, wire []byte) (*dns.Msg, error) {
	if _, err := conn.Write(wire); err != nil {
		return nil, err
	}
	buffer := make([]byte, dns64.MaxUDP)
	for range strangersAllowed {
		n, err := conn.Read(buffer)
		if err != nil {
			return nil, err
		}
		m, err := read(buffer[:n])
		switch {
		case err == nil && answers(q, m):
			return m, nil
		case err != nil && m.Id == q.Id && m.Response:
			return nil, err // there will be no other
		}
	}
	return nil, errWrongAnswer
}

func overStream(conn net.Conn, q *dns.Msg, wire []byte) (*dns.Msg, error) {
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...)); err != nil {
		return nil, err
	}
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil, err
	}
	m, err := read(answer)
	if err != nil {
		return nil, err
	}
	if !answers(q, m) || m.Truncated {
		return nil, errWrongAnswer
	}
	return m, nil
}

// read unpacks a message. Of one that cannot be read, or names no question although it is no
// error, the header alone counts.
func read(b []byte) (*dns.Msg, error) {
	m := new(dns.Msg)
	if err := m.Unpack(b); err != nil || len(m.Question) == 0 && !failure(m.Rcode) {
		return m, errUnreadable
	}
	return m, nil
}

// failure reports whether an answer of that code says nothing about the name.
func failure(rcode int) bool { return rcode != dns.RcodeSuccess && rcode != dns.RcodeNameError }

// answers reports whether m is the answer to q: of its identifier, and about its question
// to the letter.
func answers(q, m *dns.Msg) bool {
	if m.Id != q.Id || !m.Response || m.Opcode != dns.OpcodeQuery {
		return false
	}
	return len(m.Question) == 0 && failure(m.Rcode) || // it did not read the question
		len(m.Question) == 1 && m.Question[0] == q.Question[0]
}

// lower brings the names of a mixed question back to small letters.
func lower(m *dns.Msg, asked string) {
	for _, section := range [][]dns.RR{m.Answer, m.Ns} {
		for _, rr := range section {
			if h := rr.Header(); strings.EqualFold(h.Name, asked) {
				h.Name = asked
			}
		}
	}
	for i := range m.Question {
		m.Question[i].Name = asked
	}
}
