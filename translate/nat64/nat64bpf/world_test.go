// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/nat64bpf"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
	"github.com/isthmus-net/isthmus/translate/translatebpf/translatebpftest"
)

// natWorld is a NAT64 on such a host.
type natWorld struct {
	translatebpftest.Host
	fast    *nat64bpf.Path
	table   *state.Table
	trans   *translate.Translator
	prefix  []translate.Prefix
	setting nat64bpf.Settings
}

// newNATWorld makes the host. change sees the settings before they are set.
func newNATWorld(t testing.TB, change ...func(*nat64bpf.Settings, *translate.Settings)) *natWorld {
	t.Helper()
	w := &natWorld{Host: translatebpftest.NewHost(t)}
	sizes := state.Sizes{Sessions: 1 << 12, Subscribers: 64, Addresses: 4, BlockWords: 16, SubscriberLength: 64}
	fast, err := nat64bpf.Load(nat64bpf.Config{Name: "test", Sizes: sizes})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	w.fast = fast
	t.Cleanup(func() {
		if err := fast.Close(); err != nil {
			t.Error(err)
		}
	})
	if w.table, _, err = state.Open(sizes, fast.Memory(), [state.Seeds]uint64{1, 3, 5, 7, 11, 13, 17, 19}); err != nil {
		t.Fatal(err)
	}
	w.configure(t, change)
	for _, p := range w.Ports[:4] {
		d := fastpath.Device{Index: p.Index, MAC: p.MAC, Frames: true, Packets: true}
		if err := fast.SetDevice(d); err != nil {
			t.Fatal(err)
		}
	}
	// Test runs of XDP come in by the loopback device.
	w.arriveBy(t, false)
	fast.Beat(time.Hour)
	w.counted(t)
	return w
}

// arriveBy says whether frames of XDP come by a device whose senders leave checksums
// unfinished.
func (w *natWorld) arriveBy(t testing.TB, partial bool) {
	t.Helper()
	if err := w.fast.SetDevice(fastpath.Device{Index: 1, MAC: w.Ports[0].MAC, Partial: partial}); err != nil {
		t.Fatal(err)
	}
}

// configure sets the programs, the table's pool and the codec to be the same.
func (w *natWorld) configure(t testing.TB, change []func(*nat64bpf.Settings, *translate.Settings)) {
	t.Helper()
	s := nat64bpf.Settings{ExternalTCP: true, Tunnel: w.Ports[4].Index}
	codec := translate.Settings{UDPZeroChecksum: translate.ZeroChecksumCompute}
	for _, p := range translatebpftest.Pool6 {
		prefix, err := translate.NewPrefix(p)
		if err != nil {
			t.Fatal(err)
		}
		w.prefix = append(w.prefix, prefix)
		s.Pool6 = append(s.Pool6, translatebpf.Prefix{Prefix: p, Strict: p == translate.WellKnownPrefix})
	}
	all := nat64bpf.PortRange{First: 1024, Last: 65535}
	some := nat64bpf.PortRange{First: 20000, Last: 29999}
	s.Pool4 = []nat64bpf.Range{
		{Prefix: netip.MustParsePrefix("192.0.2.128/28"), Ports: [state.Transports]nat64bpf.PortRange{all, all, all}},
		{Prefix: netip.PrefixFrom(translatebpftest.OwnAddr, 32), Ports: [state.Transports]nat64bpf.PortRange{some, some, some}, Own: true},
	}
	for transport := range s.Lifetimes {
		for status := range s.Lifetimes[transport] {
			s.Lifetimes[transport][status] = time.Hour
		}
	}
	codec.Prefixes = w.prefix
	for _, f := range change {
		f(&s, &codec)
	}
	s.Unsummed = codec.UDPZeroChecksum != translate.ZeroChecksumDrop
	pool := []state.PoolAddress{{Address: translatebpftest.PoolAddr.As4()}, {Address: translatebpftest.OwnAddr.As4()}}
	for transport := range state.Transports {
		pool[0].Ports = append(pool[0].Ports, state.PortRange{Transport: transport, First: all.First, Last: all.Last})
		pool[1].Ports = append(pool[1].Ports, state.PortRange{Transport: transport, First: some.First, Last: some.Last})
	}
	var err error
	if err = w.table.SetPool(pool); err != nil {
		t.Fatal(err)
	}
	if w.trans, err = translate.New(codec); err != nil {
		t.Fatal(err)
	}
	if err = w.fast.Set(s); err != nil {
		t.Fatal(err)
	}
	w.setting = s
}

// bind makes a binding, if it is not there, and a session of it.
func (w *natWorld) bind(t testing.TB, in state.Inside, out state.Outside, f state.Fresh) state.Session {
	t.Helper()
	var b state.Binding
	if !w.table.FindBinding6(&in, &b) {
		if o := w.table.NewStatic(in, out, &b); !o.OK() {
			t.Fatalf("binding of %v to %v: %s", in, out, o)
		}
	}
	f.Stamp = state.Stamp(fastpath.Monotonic())
	var s state.Session
	if o := w.table.NewSession(&b, f, &s); o != state.Made && o != state.Found {
		t.Fatalf("session with %v: %s", f.Peer, o)
	}
	return s
}

// flow is a session as a test knows it.
type flow struct {
	transport  state.Transport
	client     netip.Addr // X'
	pool, peer netip.Addr // T, Z
	prefix     int        // of pool6
	poolPort   uint16     // t
}

// open makes the session of a flow.
func (w *natWorld) open(t testing.TB, f flow) {
	t.Helper()
	fresh := state.Fresh{Peer: f.peer.As4(), PeerPort: translatebpftest.ServerPort, Prefix: uint8(f.prefix), Status: state.Opened}
	switch f.transport {
	case state.TCP:
		fresh.Status = state.Established
	case state.ICMP:
		fresh.PeerPort = 0
	}
	w.bind(t, state.Inside{Client: f.client.As16(), Port: translatebpftest.ClientPort, Transport: f.transport},
		state.Outside{Pool: f.pool.As4(), Port: f.poolPort, Transport: f.transport}, fresh)
}

// peer6 is the IPv6 form of the flow's Z.
func (w *natWorld) peer6(f flow) netip.Addr { return w.prefix[f.prefix].Embed(f.peer) }

// to4 and to6 are what a packet of the flow becomes.
func (w *natWorld) to4(f flow) translate.Endpoints {
	return translate.Endpoints{Src: f.pool, Dst: f.peer, Ports: true, SrcPort: f.poolPort, DstPort: translatebpftest.ServerPort}
}

func (w *natWorld) to6(f flow) translate.Endpoints {
	e := translate.Endpoints{Src: w.peer6(f), Dst: f.client, Ports: true, SrcPort: translatebpftest.ServerPort, DstPort: translatebpftest.ClientPort}
	if f.transport == state.ICMP {
		e.SrcPort = translatebpftest.ClientPort
	}
	return e
}
