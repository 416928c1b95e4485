// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
)

// echoes is a socket that hears what it is told to, after each request.
type echoes struct {
	net.PacketConn
	answers [][]echoReply // to each request
	heard   []echoReply
	sent    []*icmp.Echo
}

// echoReply says of whom it is, and whether its identifier is that of the request.
type echoReply struct {
	from  string
	right bool
}

func (e *echoes) SetReadDeadline(time.Time) error { return nil }

func (e *echoes) WriteTo(b []byte, _ net.Addr) (int, error) {
	m, err := icmp.ParseMessage(58, b)
	if err != nil {
		return 0, err
	}
	e.sent = append(e.sent, m.Body.(*icmp.Echo))
	if n := len(e.sent); n <= len(e.answers) {
		e.heard = e.answers[n-1]
	}
	return len(b), nil
}

func (e *echoes) ReadFrom(b []byte) (int, net.Addr, error) {
	if len(e.heard) == 0 {
		return 0, nil, os.ErrDeadlineExceeded
	}
	a := e.heard[0]
	e.heard = e.heard[1:]
	reply := icmp.Message{Type: ipv6.ICMPTypeEchoReply, Body: &icmp.Echo{ID: e.sent[0].ID, Seq: 1}}
	if !a.right {
		reply.Body = &icmp.Echo{ID: e.sent[0].ID ^ 1, Seq: 1}
	}
	raw, err := reply.Marshal(nil)
	return copy(b, raw), &net.IPAddr{IP: net.ParseIP(a.from)}, err
}

// TestConnectivityCheck: echo requests at 0, 1 and 3 s, given up 3 s later; only the reply
// of who was asked counts (RFC 7050 section 3.2).
func TestConnectivityCheck(t *testing.T) {
	if want := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}; !slices.Equal(checkTimes, want) {
		t.Errorf("waits %v, want %v", checkTimes, want)
	}
	server, other := "64:ff9b::c000:201", "64:ff9b::c000:202"
	for _, tt := range []struct {
		name    string
		answers [][]echoReply
		sent    int
		works   bool
	}{
		{"an answer", [][]echoReply{{{server, true}}}, 1, true},
		{"an answer to the last", [][]echoReply{nil, nil, {{server, true}}}, 3, true},
		{"silence", nil, 3, false},
		{"somebody else", [][]echoReply{{{other, true}}, {{other, true}}}, 3, false},
		{"an answer to somebody else's question", [][]echoReply{{{server, false}}}, 3, false},
		{"others before the right one", [][]echoReply{nil, {{other, true}, {server, false}, {server, true}}}, 2, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := &echoes{answers: tt.answers}
			if err := ping(t.Context(), conn, netip.MustParseAddr(server)); (err == nil) != tt.works {
				t.Errorf("error %v", err)
			}
			if len(conn.sent) != tt.sent {
				t.Errorf("%d requests, want %d", len(conn.sent), tt.sent)
			}
		})
	}
}
