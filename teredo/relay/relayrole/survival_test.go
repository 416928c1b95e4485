// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/fastpath/probe"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/teredo"
)

// remembered is how long the rig's relay remembers a silent peer.
const remembered = 300 * time.Second

// kill ends the relay such that it leaves its file as it was, with what spoil makes of it.
func (r *rig) kill(t *testing.T, spoil func(b []byte)) {
	t.Helper()
	b, err := os.ReadFile(r.stateFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if spoil != nil {
		spoil(b)
	}
	if err := os.WriteFile(r.stateFile, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// establishForeign makes the client a trusted peer at the mapping of a symmetric NAT.
func (r *rig) establishForeign(t *testing.T) {
	t.Helper()
	r.hostSends(t, "first")
	b := r.bubbleArrives(t)
	send(t, r.foreign, teredo.AppendBubble(nil, relayClientIP, b.Src()), relayAt)
	wantText(t, "the client got", clientReceives(t, r.foreign), "first hop 63")
}

// TestPeersSurviveARestart has a client speak first to a relay that has started again, and is
// heard and answered without a bubble.
func TestPeersSurviveARestart(t *testing.T) {
	end := func(r *rig, t *testing.T) {
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	}
	killed := func(r *rig, t *testing.T) { r.kill(t, nil) }
	left := func(r *rig, t *testing.T) {
		if err := r.leave(); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name          string
		before, after fastpath.Mode
		end           func(*rig, *testing.T)
		foreign       bool
	}{
		{"ended", fastpath.ModeOff, fastpath.ModeOff, end, false},
		{"killed", fastpath.ModeOff, fastpath.ModeOff, killed, false},
		{"killed, symmetric NAT", fastpath.ModeOff, fastpath.ModeOff, killed, true},
		{"ended, with tc", fastpath.ModeTC, fastpath.ModeTC, end, false},
		{"ended, with tc, symmetric NAT", fastpath.ModeTC, fastpath.ModeTC, end, true},
		{"ended, with XDP", fastpath.ModeXDP, fastpath.ModeXDP, end, false},
		{"killed, then with tc", fastpath.ModeOff, fastpath.ModeTC, killed, true},
		{"ended, then without tc", fastpath.ModeTC, fastpath.ModeOff, end, true},
		{"left to a successor without tc", fastpath.ModeTC, fastpath.ModeOff, left, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mode := tt.before
			r := newRig(t, ModeRelay, func(c *Settings) { c.Name, c.FastPath = "kept", mode })
			client := r.client
			if tt.foreign {
				client = r.foreign
				r.establishForeign(t)
			} else {
				r.establish(t)
			}
			tt.end(r, t)
			mode = tt.after
			r.start(t, ModeRelay)
			if adopted := r.fastPath().Adopted; adopted != 1 {
				t.Fatalf("%d peers are taken over", adopted)
			}
			send(t, client, clientUDP("called"), relayAt)
			if got := r.hostReceives(t); got[:6] != "called" {
				t.Errorf("the host got %q", got)
			}
			r.hostSends(t, "answered")
			wantText(t, "the client got", clientReceives(t, client), "answered hop 63")
			if n := r.bubblesSent(); n != 0 {
				t.Errorf("%v bubbles were sent", n)
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestPeersAreForgotten starts where what an earlier relay has left must not be believed: it
// serves, and knows no one.
func TestPeersAreForgotten(t *testing.T) {
	configtest.InEffect(t, "teredo_relay", "keep_state")
	const header = 4096
	for _, tt := range []struct {
		name   string
		change func(*Settings)
		spoil  func(b []byte)
	}{
		{"no file is wanted", func(c *Settings) { c.KeepState = false }, nil},
		{"another prefix", func(c *Settings) {
			c.Prefixes = append([]netip.Prefix{netip.MustParsePrefix("3fff:9::/32")}, c.Prefixes...)
		}, nil},
		{"another table", func(c *Settings) { c.MaxPeers = 1000 }, nil},
		{"another mode", func(c *Settings) { c.Mode = ModeHost }, nil},
		{"another port", func(c *Settings) {
			c.Bind = netip.AddrPortFrom(c.Bind.Addr(), relayAt.Port()+1)
		}, nil},
		{"an address that has gone", nil, func(b []byte) {
			copy(b[bytes.Index(b, []byte(relayAt.Addr().String())):], "192.0.2.4")
		}},
		{"silence for too long", nil, func(b []byte) {
			at := b[header+5*8:]
			binary.NativeEndian.PutUint64(at, binary.NativeEndian.Uint64(at)-uint64(remembered+time.Second))
		}},
		{"another boot", nil, func(b []byte) { b[header/2-1]++ }},
		{"another version", nil, func(b []byte) { b[bytes.Index(b, []byte("version 1"))+8]++ }},
		{"garbage", nil, func(b []byte) {
			for i := range b[header:] {
				b[header+i] = byte(i*167 + i>>8)
			}
		}},
		{"another hash", nil, func(b []byte) { b[header]++ }},
		{"nothing", nil, func(b []byte) { clear(b) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changed := false
			r := newRig(t, ModeRelay, func(c *Settings) {
				c.Name, c.FastPath, c.MaxPeers = "forgets", fastpath.ModeOff, 10000
				if changed && tt.change != nil {
					tt.change(c)
				}
			})
			r.establish(t)
			r.kill(t, tt.spoil)
			changed = true
			r.start(t, ModeRelay)
			if s := r.relay.Status().(Status); s.Trusted != 0 || s.FastPath.Adopted != 0 {
				t.Errorf("%d peers are trusted, %d taken over", s.Trusted, s.FastPath.Adopted)
			}
		})
	}
}

// TestRelayKilledWhileStarting has a process killed between making its tables and telling the
// programs of the peers that it has moved there from the file: the next one moves them.
func TestRelayKilledWhileStarting(t *testing.T) {
	for _, tt := range []struct {
		name   string
		killed func(f *fast, file *peersFile)
	}{
		{"before anything is copied", func(*fast, *peersFile) {}},
		{"while it is copied", func(f *fast, file *peersFile) { copy(f.table.Peers()[:len(file.hot)/2], file.hot) }},
		{"before the programs know", func(f *fast, file *peersFile) { f.copyFrom(file) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, ModeRelay, func(c *Settings) {
				c.Name, c.FastPath, c.MaxPeers = "starts", fastpath.ModeTC, 10000
			})
			r.establishForeign(t)
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			r.relayNS.Do(t, func() error {
				cfg := r.config(ModeRelay)
				pins, err := pinned.Open(driver.PinName(cfg.Name))
				if err != nil {
					return err
				}
				f := newFast(&cfg, r.log)
				if _, err := f.load(pins, probe.Features{}); err != nil {
					return err
				}
				file, err := openPeers(&cfg, false)
				if err != nil {
					return err
				}
				tt.killed(f, file)
				return errors.Join(file.Close(), f.table.Close(), pins.Close())
			})
			r.start(t, ModeRelay)
			if adopted := r.fastPath().Adopted; adopted != 1 {
				t.Errorf("%d peers are taken over", adopted)
			}
			r.hostSends(t, "hello")
			wantText(t, "the client got", clientReceives(t, r.foreign), "hello hop 63")
		})
	}
}

// TestTablesNeedNoFile starts a relay whose peers lie in the tables of its programs: it makes
// no file, of tens of megabytes, only to remove it.
func TestTablesNeedNoFile(t *testing.T) {
	configtest.InEffect(t, "teredo_relay", "state_file")
	for mode, want := range map[fastpath.Mode]bool{fastpath.ModeTC: false, fastpath.ModeOff: true} {
		t.Run(string(mode), func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "made")
			newRig(t, ModeRelay, func(c *Settings) {
				c.Name, c.FastPath, c.StateFile = "fileless", mode, filepath.Join(folder, "state")
			})
			if _, err := os.Stat(folder); (err == nil) != want {
				t.Errorf("there is a place for the file: %t, want %t", err == nil, want)
			}
		})
	}
}

// TestTablesAreForgotten starts over the tables of a fast path whose peers' NATs no longer know
// the relay.
func TestTablesAreForgotten(t *testing.T) {
	port := func(c *Settings) { c.Bind = netip.AddrPortFrom(c.Bind.Addr(), relayAt.Port()+1) }
	for _, tt := range []struct {
		name          string
		before, after func(*Settings)
		want          int
	}{
		{name: "as it was", want: 1},
		{name: "another port", after: port},
		{name: "silence for too long", before: func(c *Settings) { c.FastPathLinger = -remembered - time.Minute }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			change := tt.before
			r := newRig(t, ModeRelay, func(c *Settings) {
				c.Name, c.FastPath = "tables", fastpath.ModeTC
				if change != nil {
					change(c)
				}
			})
			r.establish(t)
			if err := r.leave(); err != nil {
				t.Fatal(err)
			}
			change = tt.after
			r.start(t, ModeRelay)
			if s := r.relay.Status().(Status); s.Trusted != tt.want || s.FastPath.Adopted != tt.want {
				t.Errorf("%d peers are trusted, %d taken over", s.Trusted, s.FastPath.Adopted)
			}
		})
	}
}

// TestEndpoint says where clients know a relay, and whether it is there.
func TestEndpoint(t *testing.T) {
	a, b, loopback := netip.MustParseAddr("192.0.2.3"), netip.MustParseAddr("198.51.100.3"), netip.MustParseAddr("127.0.0.1")
	at := func(bind string, port uint16, own ...netip.Addr) string {
		r := &Relay{cfg: Settings{Bind: netip.MustParseAddrPort(bind)}, local: local{own: own, port: port}}
		return r.endpoint()
	}
	both := at("0.0.0.0:0", 3545, b, loopback, a)
	if both != "3545 192.0.2.3 198.51.100.3" {
		t.Errorf("the endpoint is %q", both)
	}
	for _, tt := range []struct {
		name, before, now string
		want              bool
	}{
		{"the same", both, at("0.0.0.0:0", 3545, a, b), true},
		{"one more", at("0.0.0.0:0", 3545, a), both, true},
		{"one less", both, at("0.0.0.0:0", 3545, a), false},
		{"another port", both, at("0.0.0.0:0", 3546, a, b), false},
		{"bound to one of them", at("0.0.0.0:0", 3545, a), at("192.0.2.3:0", 3545, b), true},
		{"bound to another", at("0.0.0.0:0", 3545, a), at("198.51.100.3:0", 3545, a), false},
		{"not known", "", both, false},
		{"one less that no client knows", at("0.0.0.0:0", 3545, a, netip.MustParseAddr("172.17.0.1")), at("0.0.0.0:0", 3545, a), true},
	} {
		if got := sameEndpoint(tt.before, tt.now); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
	many := &Relay{cfg: Settings{Bind: netip.MustParseAddrPort("0.0.0.0:0")}}
	for i := range 200 {
		many.local.own = append(many.local.own, netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}))
	}
	if n := len(many.endpoint()); n > 1100 {
		t.Errorf("the endpoint of many addresses has %d octets", n)
	}
	if !sameEndpoint(many.endpoint(), many.endpoint()) {
		t.Error("a host of many addresses is never the same")
	}
}
