// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/port/porttest"
	"github.com/isthmus-net/isthmus/internal/trace"
)

// TestTraceShowsVerdicts has each kind of verdict of an engine, of both its ports,
// and the packet as it came, although the engine rewrites it.
func TestTraceShowsVerdicts(t *testing.T) {
	l, _, tun := newMirrorLoop()
	var refused uint64
	l.EachDropped = func(f func(string, uint64)) { f("other", 7); f("refused", refused) }
	udp := porttest.NewUDP(loopLocal)
	l.SetSocket(0, udp)
	handle := func(p []byte, out *packet.Batch) {
		switch p[0] {
		case 'd':
			refused++
		case 'f':
			out.SendUDP(0, loopPeer, p)
		}
		p[0] = 'x'
	}
	var loops sync.WaitGroup
	loops.Go(func() {
		_ = l.ReadUDP(udp, func(m *port.Message, _ time.Time, out *packet.Batch) { handle(m.Payload, out) })
	})
	loops.Go(func() { _ = l.ReadTun(tun, func(ip []byte, _ time.Time, out *packet.Batch) { handle(ip, out) }) })

	seen := make(chan trace.Sample)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- l.Trace(ctx, "r", trace.Sampling{Every: 1, PerSecond: 100}, func(s *trace.Sample) {
			copied := *s
			copied.Data = append([]byte(nil), s.Data...)
			seen <- copied
		})
	}()
	for l.tap.Load() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := l.Trace(ctx, "r", trace.Sampling{Every: 1, PerSecond: 1}, func(*trace.Sample) {}); !errors.Is(err, trace.ErrBusy) {
		t.Errorf("a second trace: error %v, want %v", err, trace.ErrBusy)
	}
	for _, c := range []struct {
		send    func()
		hook    string
		verdict trace.Verdict
		reason  string
		last    string // bytes of the packet
	}{
		{func() { udp.Deliver(loopPeer, []byte("drop")) }, "udp", trace.Drop, "refused", "drop"},
		{func() { udp.Deliver(loopPeer, []byte("forward")) }, "udp", trace.Forward, "", "forward"},
		{func() { tun.FromHost <- []byte("keep") }, "tun", trace.Keep, "", "keep"},
		{func() { tun.FromHost <- make([]byte, 2*trace.Snap) }, "tun", trace.Keep, "", "\x00"},
	} {
		go c.send()
		s := <-seen
		if s.Hook != c.hook || s.Verdict != c.verdict || s.Reason != c.reason || s.Path != trace.Engine || s.Instance != "r" {
			t.Errorf("sample %+v, want %+v", s, c)
		}
		if len(s.Data) > trace.Snap || string(s.Data[len(s.Data)-len(c.last):]) != c.last {
			t.Errorf("data %q, want it to end with %q and to be no longer than %d", s.Data, c.last, trace.Snap)
		}
		if s.Verdict == trace.Forward {
			<-udp.Out
		}
		if c.hook == "udp" {
			if got, want := s.Text(), "198.51.100.7:40000 > 192.0.2.3:3545 udp"; !strings.Contains(got, want) {
				t.Errorf("text %q lacks %q", got, want)
			}
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the trace ended with %v", err)
	}
	udp.Deliver(loopPeer, []byte("unseen"))
	udp.Close()
	tun.Close()
	loops.Wait()
}

// A datagram over IPv6 is shown behind headers of that family.
func TestTraceShowsIPv6(t *testing.T) {
	from, to := netip.MustParseAddrPort("[2001:db8::7]:2152"), netip.MustParseAddrPort("[2001:db8::1]:2152")
	v := udpView(porttest.NewUDP(to))
	b, whole := v.append(&port.Message{Payload: []byte("payload"), From: from, To: to.Addr()}, nil)
	if _, rest, ok := packet.ParseIPv6(b); !ok || len(rest) > 0 || whole != len(b) {
		t.Fatalf("%x of %d octets is no IPv6 packet", b, whole)
	}
	s := trace.Sample{Link: trace.IP, Data: b, Length: whole}
	if got, want := s.Text(), "[2001:db8::7]:2152 > [2001:db8::1]:2152 udp"; !strings.Contains(got, want) {
		t.Errorf("text %q lacks %q", got, want)
	}
}
