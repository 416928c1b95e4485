// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/sip/media"
)

// TestMediaOfTheOtherFamily has a call by IPv6 be offered media at an IPv4 address alone (RFC 6157 section 4). It is
// answered by the address from which the routes lead there, not by those of a bridge and its guest beside it, and refused while none
// does:
//
//	mobile (a: IPv6, then IPv4, too; bridge and guest: IPv4) ── router ── peer
func TestMediaOfTheOtherFamily(t *testing.T) {
	t.Parallel()
	n := newNet3(t, plan6)
	n.mobile.Do(t, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "bridge"}, PeerName: "guest"})
	})
	n.mobile.Do(t, func() error { return errors.Join(address("bridge", "172.17.0.1"), address("guest", "172.18.0.1")) })
	mobile := start(t, n.mobile, "alice", new(media.Tally))
	awaitPaths(t, mobile, mobileA, 4)
	if answer := invite(t, n.peer, "1"); !strings.HasPrefix(answer, "SIP/2.0 488 ") {
		t.Errorf("without a route to the media:\n%s", answer)
	}
	n.mobile.Do(t, func() error { return errors.Join(address("a", plan4.mobileA), route("a", plan4.routerA, 100)) })
	awaitPaths(t, mobile, mobileA, 5)
	if answer := invite(t, n.peer, "2"); !strings.HasPrefix(answer, "SIP/2.0 200 ") || !strings.Contains(answer, "c=IN IP4 "+plan4.mobileA+"\r\n") {
		t.Errorf("with one:\n%s", answer)
	}
}

// invite calls the mobile host by IPv6 with media at IPv4, and returns the final response.
func invite(t *testing.T, from *testutil.Netns, id string) string {
	t.Helper()
	var conn net.Conn
	from.Do(t, func() (err error) {
		conn, err = net.Dial("udp", net.JoinHostPort(mobileA, "5060"))
		return err
	})
	defer conn.Close()
	body := "v=0\r\no=- 1 1 IN IP4 203.0.113.2\r\ns=-\r\nc=IN IP4 203.0.113.2\r\nt=0 0\r\nm=audio 7000 RTP/AVP 0\r\n"
	_, err := conn.Write([]byte("INVITE sip:alice@example.com SIP/2.0\r\nVia: SIP/2.0/UDP " + conn.LocalAddr().String() + ";branch=z9hG4bK" + id +
		"\r\nMax-Forwards: 70\r\nFrom: <sip:bob@example.com>;tag=1\r\nTo: <sip:alice@example.com>\r\nCall-ID: " + id +
		"\r\nCSeq: 1 INVITE\r\nContact: <sip:bob@" + conn.LocalAddr().String() + ">\r\nContent-Type: application/sdp\r\n\r\n" + body))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(testutil.Patience))
	b := make([]byte, 1<<16)
	for {
		size, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(b[:size]); !strings.HasPrefix(text, "SIP/2.0 1") {
			return text
		}
	}
}
