// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/translate/nat64/nat64bpf"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
	"github.com/isthmus-net/isthmus/translate/translatebpf/translatebpftest"
)

// liveWorld is one of a NAT64.
type liveWorld struct {
	translatebpftest.Net
	fast  *nat64bpf.Path
	table *state.Table
}

// newLiveWorld makes the hosts and attaches the programs at a hook.
func newLiveWorld(t *testing.T, at runtest.Hook) *liveWorld {
	t.Helper()
	w := &liveWorld{Net: translatebpftest.NewNet(t)}
	w.load(t)
	w.Attach(t, at, w.fast.Programs())
	return w
}

// load loads the programs, with a client that has ports.
func (w *liveWorld) load(t *testing.T) {
	t.Helper()
	sizes := state.Sizes{Sessions: 1 << 12, Subscribers: 64, Addresses: 4, BlockWords: 16, SubscriberLength: 64}
	var err error
	if w.fast, err = nat64bpf.Load(nat64bpf.Config{Name: "live", Sizes: sizes}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.fast.Close() })
	if w.table, _, err = state.Open(sizes, w.fast.Memory(), [state.Seeds]uint64{1, 3, 5, 7, 11, 13, 17, 19}); err != nil {
		t.Fatal(err)
	}
	all := nat64bpf.PortRange{First: 1024, Last: 65535}
	s := nat64bpf.Settings{
		Tunnel: w.TUN, Pool6: []translatebpf.Prefix{{Prefix: translatebpftest.Pool6[0]}},
		Pool4: []nat64bpf.Range{{Prefix: netip.MustParsePrefix("192.0.2.128/28"), Ports: [state.Transports]nat64bpf.PortRange{all, all, all}}},
	}
	pool := state.PoolAddress{Address: translatebpftest.PoolAddr.As4()}
	for transport := range s.Lifetimes {
		pool.Ports = append(pool.Ports, state.PortRange{Transport: state.Transport(transport), First: all.First, Last: all.Last})
		for status := range s.Lifetimes[transport] {
			s.Lifetimes[transport][status] = time.Hour
		}
	}
	client := translatebpftest.Host6.As16()
	var subscriber state.Subscriber
	var block state.Block
	if err := errors.Join(w.table.SetPool([]state.PoolAddress{pool}), w.fast.Set(s)); err != nil {
		t.Fatal(err)
	}
	if o := w.table.MakeSubscriber(&client, translatebpftest.PoolAddr.As4(), 0, &subscriber); o != state.Made {
		t.Fatal(o)
	}
	if o := w.table.Lease(&subscriber, state.TCP, 1, 1, &block); o != state.Made {
		t.Fatal(o)
	}
	w.Serve(t, w.fast.SetDevice)
	w.fast.Beat(time.Hour)
	w.counted(t)
}

// counted returns the reasons that were counted since the last call.
func (w *liveWorld) counted(t *testing.T) map[string]fastpath.Counter {
	t.Helper()
	return w.Counted(t, w.fast)
}
