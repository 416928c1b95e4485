// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/ipv6"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/attach"
	"github.com/isthmus-net/isthmus/fastpath/probe"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/teredobpf"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

// by makes the mode of a fast path.
func by(mode fastpath.Mode) func(*Settings) {
	return func(c *Settings) { c.FastPath = mode }
}

// newFastRig is a relay with a fast path, whose neighbours receive redirected
// frames.
func newFastRig(t *testing.T, change ...func(*Settings)) *rig {
	t.Helper()
	r := newRig(t, ModeRelay, append(change, func(c *Settings) { c.Name = "fast." + string(c.FastPath) })...)
	return r
}

// tcHook is where this kernel takes tc programs.
func tcHook() string {
	if probe.Try().TCX {
		return string(attach.HookTCX)
	}
	return string(attach.HookClassic)
}

// establish makes the client a trusted peer.
func (r *rig) establish(t *testing.T) {
	t.Helper()
	r.hostSends(t, "first")
	b := r.bubbleArrives(t)
	send(t, r.client, teredo.AppendBubble(nil, relayClientIP, b.Src()), relayAt)
	wantText(t, "the client got", clientReceives(t, r.client), "first hop 63")
}

// forwarded counts what the programs have forwarded.
func (r *rig) forwarded(reason string) uint64 { return r.fastPath().Packets["forward"][reason] }

// warm sends packets both ways until the programs forward those that they should: the
// engine gives a new peer away a moment after it has sent it the first packets. It
// returns how many went each way.
func (r *rig) warm(t *testing.T, client *net.UDPConn, encap, decap bool) (toClient, toHost int) {
	t.Helper()
	for deadline := time.Now().Add(testutil.Patience); encap && r.forwarded("encap_forwarded") == 0; toClient++ {
		if time.Now().After(deadline) {
			t.Fatalf("packets to the client take the engine: %+v", r.fastPath())
		}
		r.hostSends(t, "warm")
		wantText(t, "the client got", clientReceives(t, client), "warm hop 63")
	}
	for deadline := time.Now().Add(testutil.Patience); decap && r.forwarded("decap_forwarded") == 0; toHost++ {
		if time.Now().After(deadline) {
			t.Fatalf("packets of the client take the engine: %+v", r.fastPath())
		}
		send(t, client, clientUDP("warm"), relayAt)
		wantText(t, "the host got", r.hostReceives(t), fmt.Sprintf("warm from [%s]:%d hop 63", relayClientIP, relayClientPort))
	}
	return toClient, toHost
}

// fastPath is the relay's state of that.
func (r *rig) fastPath() driver.Status { return r.relay.Status().(Status).FastPath }

// awaitPath waits until packets take a path.
func (r *rig) awaitPath(t *testing.T, want string) driver.Status {
	t.Helper()
	for deadline := time.Now().Add(testutil.Patience); ; time.Sleep(5 * time.Millisecond) {
		f := r.fastPath()
		if f.Path == want {
			return f
		}
		if time.Now().After(deadline) {
			t.Fatalf("the path is %s, want %s: %s", f.Path, want, f.Why)
		}
	}
}

// hostSendsWith is hostSends with another hop limit.
func (r *rig) hostSendsWith(t *testing.T, text string, hops int) {
	t.Helper()
	to := &net.UDPAddr{IP: relayClientIP.AsSlice(), Port: relayClientPort}
	if _, err := r.host.WriteTo([]byte(text), &ipv6.ControlMessage{HopLimit: hops}, to); err != nil {
		t.Fatal(err)
	}
}

// clientUDPWith is clientUDP with another hop limit.
func clientUDPWith(text string, hops byte) []byte {
	b := clientUDP(text)
	b[7] = hops
	return b
}

// clientReceivesSummed is clientReceives of a packet that has its UDP checksum, or
// has not.
func clientReceivesSummed(t *testing.T, client *net.UDPConn, want bool) string {
	t.Helper()
	p, _ := teredotest.Receive(t, client)
	ip := p.IPv6
	if is := packet.Checksum(ip.SrcBytes(), ip.DstBytes(), ip.NextHeader(), ip.Payload()) == 0; is != want {
		t.Errorf("the packet's checksum is right: %v, want %v", is, want)
	}
	return fmt.Sprintf("%s hop %d", ip.Payload()[8:], ip.HopLimit())
}

// The same packets come out of every path, hop limits included. The host leaves the
// checksums of its packets to hardware, which a veth has not: only where the operator
// asks for tc they stay unfinished, for whoever is behind the client's veth.
func TestFastPathModes(t *testing.T) {
	configtest.InEffect(t, "teredo_relay", "fast_path")
	for _, tt := range []struct {
		mode       fastpath.Mode
		path       string
		hook       string
		unfinished bool
		encap      bool
	}{
		{mode: fastpath.ModeOff, path: "engine"},
		{mode: fastpath.ModeAuto, path: "tc", hook: tcHook()}, // by veth packets come as packets
		{mode: fastpath.ModeTC, path: "tc", hook: tcHook(), unfinished: true, encap: true},
		{mode: fastpath.ModeXDP, path: "xdp", hook: "xdp", encap: true},
	} {
		t.Run(string(tt.mode), func(t *testing.T) {
			r := newFastRig(t, by(tt.mode), func(c *Settings) { c.FastPathDevices = nil })
			f := r.awaitPath(t, tt.path)
			for _, d := range f.Devices {
				if d.Hook != tt.hook || !d.Target {
					t.Errorf("%+v", d)
				}
			}
			if n := len(f.Devices); tt.hook != "" && n != 2 {
				t.Errorf("%d devices", n)
			}
			r.establish(t)
			toClient, toHost := r.warm(t, r.client, tt.encap, tt.path != "engine")
			for _, hops := range []int{2, 64, 255} {
				r.hostSendsWith(t, "to client", hops)
				got := clientReceivesSummed(t, r.client, !tt.unfinished)
				wantText(t, "the client got", got, fmt.Sprintf("to client hop %d", hops-1))
				send(t, r.client, clientUDPWith("to host", byte(hops)), relayAt)
				wantText(t, "the host got", r.hostReceives(t), fmt.Sprintf("to host from [%s]:%d hop %d", relayClientIP, relayClientPort, hops-1))
			}
			r.hostSendsWith(t, "too far", 1)
			send(t, r.client, clientUDPWith("too far", 1), relayAt)
			if p := timeExceeded(t, r.client); p.Dst() != relayClientIP {
				t.Errorf("the answer went to %s", p.Dst())
			}
			r.hostSends(t, "last")
			wantText(t, "the client got", clientReceives(t, r.client), "last hop 63")

			// Of those that warmed up the last was forwarded.
			if n := r.forwarded("encap_forwarded"); (n == 5) != tt.encap || !tt.encap && n != 0 {
				t.Errorf("%d packets to the client were forwarded", n)
			}
			if n := r.forwarded("decap_forwarded"); (n == 4) != (tt.path != "engine") || tt.path == "engine" && n != 0 {
				t.Errorf("%d packets of the client were forwarded", n)
			}
			checkTotals(t, r.relay, tt.path, float64(5+toClient), float64(3+toHost))
		})
	}
}

// checkTotals checks that each packet was counted by one path, and that the metrics
// name the hook.
func checkTotals(t *testing.T, relay *Relay, path string, toClient, toHost float64) {
	t.Helper()
	values := map[string]float64{}
	relay.Collect(func(m role.Metric) {
		values[m.Name+" "+m.Verdict+" "+m.Reason+" "+m.Path] = m.Value
	})
	forwarded := func(reason string) float64 { return values["fastpath_packets_total forward "+reason+" "] }
	if n := values["to_clients_total   "] + forwarded("encap_forwarded"); n != toClient {
		t.Errorf("both paths counted %v packets to the client, want %v", n, toClient)
	}
	if n := values["to_ipv6_total   "] + forwarded("decap_forwarded"); n != toHost {
		t.Errorf("both paths counted %v packets to the host, want %v", n, toHost)
	}
	for _, hook := range []string{"xdp", "tc"} {
		if on := values["fastpath_"+hook+"   "] == 1; on != (path == hook) {
			t.Errorf("the metric of %s says %v, and the path is %s", hook, on, path)
		}
	}
	if _, ok := values["dropped_total  no_peer fast"]; ok != (path != driver.EnginePath) {
		t.Errorf("drops of the fast path are reported: %v", ok)
	}
}

// timeExceeded returns the ICMPv6 error that the client receives.
func timeExceeded(t *testing.T, client *net.UDPConn) packet.IPv6 {
	t.Helper()
	p, _ := teredotest.Receive(t, client)
	if p.IPv6.NextHeader() != packet.ProtoICMPv6 || p.IPv6.Payload()[0] != packet.ICMPv6TimeExceeded {
		t.Fatalf("the client got %x", []byte(p.IPv6))
	}
	return p.IPv6
}

// A client behind a symmetric NAT is in the fast path like any other.
func TestFastPathCarriesForeignPeers(t *testing.T) {
	for _, mode := range []fastpath.Mode{fastpath.ModeTC, fastpath.ModeXDP} {
		t.Run(string(mode), func(t *testing.T) {
			r := newFastRig(t, by(mode))
			r.awaitPath(t, string(mode))
			r.hostSends(t, "one")
			b := r.bubbleArrives(t)
			send(t, r.foreign, teredo.AppendBubble(nil, relayClientIP, b.Src()), relayAt)
			wantText(t, "the client got", clientReceives(t, r.foreign), "one hop 63")
			r.warm(t, r.foreign, true, true)
			for range 3 {
				r.hostSends(t, "more")
				wantText(t, "the client got", clientReceives(t, r.foreign), "more hop 63")
				send(t, r.foreign, clientUDP("hello"), relayAt)
				wantText(t, "the host got", r.hostReceives(t), fmt.Sprintf("hello from [%s]:%d hop 63", relayClientIP, relayClientPort))
			}
			if to, from := r.forwarded("encap_forwarded"), r.forwarded("decap_forwarded"); to != 4 || from != 4 {
				t.Errorf("%d to the client and %d from it were forwarded, want 4", to, from)
			}
		})
	}
}

// A reload moves the fast path, narrows what is served at once, and ends it.
func TestFastPathReload(t *testing.T) {
	r := newFastRig(t, by(fastpath.ModeTC))
	r.awaitPath(t, "tc")
	r.establish(t)
	hello := fmt.Sprintf("hello from [%s]:%d hop 63", relayClientIP, relayClientPort)
	send(t, r.client, clientUDP("hello"), relayAt)
	wantText(t, "the host got", r.hostReceives(t), hello)
	change := func(change func(*Settings)) {
		t.Helper()
		cfg := r.config(ModeRelay)
		change(&cfg)
		waits, err := roletest.Reload(Role, r.relay, r.relay.cfg, cfg)
		if err != nil || len(waits) > 0 {
			t.Fatalf("keys that wait: %v, %v", waits, err)
		}
	}
	change(func(c *Settings) { c.FastPath = fastpath.ModeXDP })
	r.awaitPath(t, "xdp")
	send(t, r.client, clientUDP("hello"), relayAt)
	wantText(t, "the host got", r.hostReceives(t), hello)

	change(func(c *Settings) {
		c.FastPath, c.Serve = fastpath.ModeXDP, []netip.Prefix{netip.MustParsePrefix("2001:db8:2::/48")}
	})
	for deadline := time.Now().Add(testutil.Patience); r.fastPath().Packets["drop"]["not_served"] == 0; {
		if time.Now().After(deadline) {
			t.Fatal("what is no longer served still passes")
		}
		send(t, r.client, clientUDP("hello"), relayAt)
	}
	change(func(c *Settings) { c.FastPath = fastpath.ModeOff })
	r.awaitPath(t, "engine")
	r.hostSends(t, "by the engine")
	wantText(t, "the client got", clientReceives(t, r.client), "by the engine hop 63")
	change(func(c *Settings) { c.FastPath = fastpath.ModeTC })
	r.awaitPath(t, "tc")
}

// Rates are of packets by the way they took.
func TestFastPathMeasures(t *testing.T) {
	got := measured([]fastpath.Counter{
		{Verdict: fastpath.Forward, Reason: teredobpf.EncapForwarded.String(), Packets: 10},
		{Verdict: fastpath.Forward, Reason: teredobpf.HostEncapForwarded.String(), Packets: 1},
		{Verdict: fastpath.Forward, Reason: teredobpf.DecapForwarded.String(), Packets: 20},
		{Verdict: fastpath.Forward, Reason: teredobpf.HostDecapForwarded.String(), Packets: 2},
		{Verdict: fastpath.Punt, Reason: "bubble", Packets: 3},
		{Verdict: fastpath.Drop, Reason: teredobpf.PuntLimit.String(), Packets: 4},
	}, [2]uint64{5, 6})
	want := map[string]uint64{
		"fast_to_clients": 11, "fast_to_ipv6": 22, "punted": 3, "dropped": 4, "engine_to_clients": 5, "engine_to_ipv6": 6,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
