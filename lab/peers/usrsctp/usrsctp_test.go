// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package usrsctp_test

import (
	"bytes"
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers/usrsctp"
)

// hosts are two with two addresses each, and the program:
//
//	a ── 2001:db8:1::/64 ── b
//	  ── 2001:db8:2::/64 ──
func hosts(t *testing.T) (ctx context.Context, a, b *lab.Node, program string) {
	t.Helper()
	testutil.NeedRoot(t)
	program, err := usrsctp.Build(t.TempDir())
	if err != nil {
		testutil.Missing(t, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*testutil.Patience)
	t.Cleanup(cancel)
	l, err := lab.New(ctx, lab.Options{Name: "usrsctp"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	a, b = l.Node("a"), l.Node("b")
	l.Link(a, "e1", b, "e1")
	l.Link(a, "e2", b, "e2")
	a.Addr("e1", "2001:db8:1::a/64").Addr("e2", "2001:db8:2::a/64")
	b.Addr("e1", "2001:db8:1::b/64").Addr("e2", "2001:db8:2::b/64")
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	return ctx, a, b, program
}

var (
	ours   = []netip.Addr{netip.MustParseAddr("2001:db8:1::a"), netip.MustParseAddr("2001:db8:2::a")}
	theirs = []netip.Addr{netip.MustParseAddr("2001:db8:1::b"), netip.MustParseAddr("2001:db8:2::b")}
)

// TestTwoEnds has one end send to another by both of its kinds of transport.
func TestTwoEnds(t *testing.T) {
	ctx, a, b, program := hosts(t)
	for name, udp := range map[string][]string{"UDP": {"udp=9899", "peer-udp=9899"}, "IP": nil} {
		t.Run(name, func(t *testing.T) {
			settings := append([]string{"hash=1", "rto-min=200", "rto-initial=200"}, udp...)
			server, err := usrsctp.Start(ctx, b, program, usrsctp.Config{Name: "server-" + name, Local: theirs, Settings: settings})
			if err != nil {
				t.Fatal(err)
			}
			defer server.Stop()
			client, err := usrsctp.Start(ctx, a, program, usrsctp.Config{
				Name: "client-" + name, Local: ours, Remote: theirs, Settings: append(settings, "source=1", "count=100", "largest=50000"),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Stop()
			defer func() {
				if t.Failed() {
					t.Logf("client:\n%s\nserver:\n%s", client.Log(), server.Log())
				}
			}()
			if _, err := client.WaitFor(ctx, "^done$"); err != nil {
				t.Fatal(err)
			}
			if err := client.Order("shutdown"); err != nil {
				t.Fatal(err)
			}
			for _, end := range []*usrsctp.Peer{client, server} {
				if _, err := end.WaitFor(ctx, "^closed$"); err != nil {
					t.Fatal(err)
				}
			}
			sent, err := client.Read("sent")
			if err != nil {
				t.Fatal(err)
			}
			received, err := server.Read("received")
			if err != nil {
				t.Fatal(err)
			}
			if sent.Messages != 100 || len(sent.Streams) != 4 {
				t.Errorf("sent %+v", sent)
			}
			if diff := cmp.Diff(sent, received); diff != "" {
				t.Errorf("received is not what was sent (-sent +received):\n%s", diff)
			}
		})
	}
}

// TestMessages has a message go through by one stream and an answer come back by another, as they are.
func TestMessages(t *testing.T) {
	ctx, a, b, program := hosts(t)
	server, err := usrsctp.Start(ctx, b, program, usrsctp.Config{Name: "server", Local: theirs, Messages: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	client, err := usrsctp.Start(ctx, a, program, usrsctp.Config{Name: "client", Local: ours, Remote: theirs, Messages: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Stop()
	got := make([]byte, 100_000)
	for i, way := range [][2]*usrsctp.Peer{{client, server}, {server, client}} {
		if _, err := way[0].WaitFor(ctx, "^up "); err != nil {
			t.Fatal(err)
		}
		said := bytes.Repeat([]byte("by usrsctp"), 500)
		if err := way[0].Messages.WriteMessage(uint16(i+1), said); err != nil {
			t.Fatal(err)
		}
		if n, err := way[1].Messages.Read(got); err != nil || !bytes.Equal(got[:n], said) {
			t.Errorf("%d octets have come, not what was sent: %v", n, err)
		}
	}
	if err := client.Messages.Close(); err != nil {
		t.Fatal(err)
	}
	if line, err := client.WaitFor(ctx, "^data out "); err != nil || !strings.HasSuffix(line, " twice 0") {
		t.Errorf("the end was summed up as %q: %v", line, err)
	}
}

func TestHash(t *testing.T) {
	// FNV-1a of "foobar", whose published value is 0x85944171f73967e8, and of its length in four octets.
	h := usrsctp.NewHash()
	h.Add([]byte("foobar"))
	if want := usrsctp.Hash(0x3ad96025a2da449a); h != want {
		t.Errorf("%#x, want %#x", uint64(h), uint64(want))
	}
}
