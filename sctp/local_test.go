// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/sctp/assoc"
)

func TestBroadcastOfPrefixes(t *testing.T) {
	for prefix, want := range map[string]string{
		"192.0.2.1/24": "192.0.2.255", "192.0.2.129/26": "192.0.2.191", "10.0.0.1/8": "10.255.255.255", "192.0.2.1/30": "192.0.2.3",
		"192.0.2.1/31": "", "192.0.2.1/32": "", "2001:db8::1/64": "", "127.0.0.1/8": "127.255.255.255",
	} {
		got, ok := broadcast(netip.MustParsePrefix(prefix))
		if ok != (want != "") || ok && got != netip.MustParseAddr(want) {
			t.Errorf("%s: %v, %t", prefix, got, ok)
		}
	}
}

// TestDialToBroadcast is refused at once, and sends nothing.
func TestDialToBroadcast(t *testing.T) {
	for _, from := range []string{":0", "127.0.0.1:0"} {
		e, err := onLoopback().Open(context.Background(), "sctp+udp", from)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Dial(context.Background(), "127.255.255.255:5000"); !errors.Is(err, assoc.ErrNoPath) || e.Stats().Sent > 0 {
			t.Errorf("from %s: %v", from, err)
		}
		e.Close()
	}
}
