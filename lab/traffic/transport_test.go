// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// kept keeps all that comes, and says when the flow has ended.
type kept struct {
	records []Record
	sent    uint32
	ended   chan struct{}
}

func (k *kept) Got(r *Record) { k.records = append(k.records, *r) }

func (k *kept) Ended(_ uint32, _, _ netip.AddrPort, sent uint32) {
	if k.sent == 0 {
		k.sent = sent
		close(k.ended)
	}
}

func listen(t *testing.T, n *testutil.Netns, p Protocol, address string, o Options) (r *Receiver) {
	t.Helper()
	n.Do(t, func() (err error) {
		r, err = Listen(t.Context(), p, address, o)
		return err
	})
	return r
}

func dial(t *testing.T, n *testutil.Netns, p Protocol, address string, o Options) (c net.Conn) {
	t.Helper()
	n.Do(t, func() (err error) {
		c, err = Dial(t.Context(), p, address, o)
		return err
	})
	return c
}

// Each protocol carries a flow over both families: every message comes, in its order and size.
func TestProtocolsCarryFlows(t *testing.T) {
	n := testutil.NewNetns(t)
	for _, p := range []Protocol{UDP, TCP, SCTP, MPTCP} {
		for _, host := range []string{"[::1]", "127.0.0.1"} {
			t.Run(string(p)+" "+host, func(t *testing.T) {
				o := Options{Congestion: "reno"}
				r := listen(t, n, p, host+":0", o)
				k := &kept{ended: make(chan struct{})}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- r.Run(ctx, k) }()
				c := dial(t, n, p, r.Addr.String(), o)
				if name := Congestion(c); name != map[bool]string{true: "reno"}[p == TCP || p == MPTCP] {
					t.Errorf("congestion control %q", name)
				}
				f := Flow{ID: 3, Rate: 2000, Count: 100, Size: Size{Kind: Uniform, Min: 30, Max: 3000}, Poisson: true}
				s, err := f.Send(ctx, c)
				if err != nil {
					t.Fatal(err)
				}
				select {
				case <-k.ended:
				case <-time.After(testutil.Patience):
					t.Fatal("the flow did not end")
				}
				_ = c.Close()
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				if len(k.records) != 100 || k.sent != 100 || s.Messages != 100 || s.Unsent != 0 {
					t.Fatalf("%d came, %d are said to be sent, %+v", len(k.records), k.sent, s)
				}
				for i, schedule := 0, f.Schedule(); i < 100; i++ {
					d, _ := schedule.Next()
					if r := k.records[i]; r.Flow != 3 || int(r.Number) != i+1 || r.Size != d.Size || r.Delay() < 0 {
						t.Errorf("message %d is %+v, want %+v", i, r, d)
					}
				}
			})
		}
	}
}

func TestStrangersAreCounted(t *testing.T) {
	n := testutil.NewNetns(t)
	r := listen(t, n, UDP, "[::1]:0", Options{})
	ctx, cancel := context.WithCancel(t.Context())
	k := &kept{ended: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, k) }()
	c := dial(t, n, UDP, r.Addr.String(), Options{})
	defer c.Close()
	if _, err := c.Write([]byte("what is this")); err != nil {
		t.Fatal(err)
	}
	f := Flow{ID: 1, Rate: 1000, Count: 1, Size: Size{Kind: Constant, Mean: HeaderSize}}
	if _, err := f.Send(ctx, c); err != nil {
		t.Fatal(err)
	}
	<-k.ended
	if r.Strange() != 1 || len(k.records) != 1 {
		t.Errorf("%d strangers, %d messages", r.Strange(), len(k.records))
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
