// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package porttest

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
)

func TestTun(t *testing.T) {
	tun := NewTun()
	tun.FromHost <- []byte("one")
	tun.FromHost <- []byte("two")
	pkts := make([][]byte, 4)
	if n, err := tun.ReadBatch(pkts); n != 2 || err != nil || string(pkts[1]) != "two" {
		t.Errorf("read %d, %v, %q", n, err, pkts)
	}
	p := []byte("out")
	if err := tun.WriteBatch([][]byte{p}); err != nil {
		t.Fatal(err)
	}
	p[0] = 'X' // the writer's buffer is its own again
	if got := <-tun.ToHost; string(got) != "out" {
		t.Errorf("wrote %q", got)
	}
}

func TestUDP(t *testing.T) {
	local, from := netip.MustParseAddrPort("192.0.2.1:3544"), netip.MustParseAddrPort("198.51.100.1:9")
	u := NewUDP(local)
	u.Deliver(from, []byte("in"))
	msgs := make([]port.Message, 4)
	n, err := u.ReadBatch(msgs)
	if n != 1 || err != nil || string(msgs[0].Payload) != "in" || msgs[0].From != from || msgs[0].To != local.Addr() {
		t.Errorf("read %d, %v, %+v", n, err, msgs[0])
	}
	if err := u.WriteBatch([]packet.Datagram{{To: from, Payload: []byte("out")}}); err != nil {
		t.Fatal(err)
	}
	if got := <-u.Out; string(got.Payload) != "out" || got.To != from {
		t.Errorf("wrote %+v", got)
	}
}

func TestCloseEndsReadsAndWrites(t *testing.T) {
	u := NewUDP(netip.MustParseAddrPort("192.0.2.1:3544"))
	done := make(chan error)
	go func() {
		_, err := u.ReadBatch(make([]port.Message, 1))
		done <- err
	}()
	u.Close()
	u.Close()
	if err := <-done; !errors.Is(err, port.ErrClosed) {
		t.Errorf("read: %v", err)
	}
	if err := u.WriteBatch([]packet.Datagram{{}}); !errors.Is(err, port.ErrClosed) {
		t.Errorf("write: %v", err)
	}
}
