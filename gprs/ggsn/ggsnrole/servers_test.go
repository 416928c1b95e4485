// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/radius"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// TestServersReload has servers come, go and change their secrets by reloads, each another FreeRADIUS, from none
// to one of IPv4, to one of IPv6 and back to none: terminals come in, and no record is lost on the way.
func TestServersReload(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	const pools = "pool4 = [\"10.45.0.0/16\"]\npool6 = [\"2001:db8:6000::/44\"]\n"
	node := fmt.Sprintf("accounting_file = %q\n", filepath.Join(dir, "spool"))
	c := newCore(t, node, pools)
	c.serve(t)
	reload := func(server, by string) {
		t.Helper()
		if server != "" {
			server = fmt.Sprintf("[[ggsn.radius]]\naddress = %q\nuse = \"both\"\ndynamic = true\nsecret_file = %q\n", server, secret)
		}
		c.write(t, node+"radius_timeout = \"500ms\"\nradius_dead_time = \"1s\"\n"+server, pools+fmt.Sprintf("authenticate = %q\naccounting = %q\n", by, by))
		if status, said := program.Call(t, "reload", "--socket", c.socket); status != 0 || strings.Contains(said, "next start") {
			t.Fatalf("%d: %s", status, said)
		}
	}
	began := map[string]string{} // IMSIs of sessions that began, by their names
	ended := map[string]string{}
	on, files := 0, 0
	serve := func(at netip.Addr) (stop func(), told func(imsi, status string)) {
		t.Helper()
		files++
		file := filepath.Join(dir, fmt.Sprint("detail", files))
		end := c.startAccounting(t, peers.FreeRADIUS{Listen: netip.AddrPortFrom(at, 1812), Secret: fmt.Sprint("secret", files), Detail: file})
		writePrivate(t, secret, fmt.Sprint("secret", files))
		stop = func() {
			end()
			for _, one := range detail(t, file) {
				switch id := one["Acct-Session-Id"]; one["Acct-Status-Type"] {
				case "Accounting-On":
					on++
				case "Start":
					began[id] = one["3GPP-IMSI"]
				case "Stop":
					ended[id] = one["3GPP-IMSI"]
				}
			}
		}
		return stop, func(imsi, status string) {
			t.Helper()
			await(t, func() bool {
				for _, one := range detail(t, file) {
					if one["3GPP-IMSI"] == imsi && one["Acct-Status-Type"] == status {
						return true
					}
				}
				return false
			})
		}
	}
	in := func(n int, change func(*gtp.CreateRequest)) (r gtp.CreateResponse) {
		t.Helper()
		if r = c.attach(t, n, change); !r.Cause.Accepted() {
			t.Fatal(r.Cause)
		}
		return r
	}
	imsi := func(n int) string { return fmt.Sprintf("24001%010d", n) }

	untold := in(9, nil) // nobody is told of this one
	stop, told := serve(nodeAddr[false])
	reload(nodeAddr[false].String(), "radius")
	first := in(1, withPAP("nemo", "arctangent"))
	told(imsi(1), "Start")
	stop()
	c.remove(t, &first)
	c.remove(t, &untold)

	stop, told = serve(nodeAddr[true])
	reload(nodeAddr[true].String(), "radius")
	told(imsi(1), "Stop")
	in(2, withPAP("nemo", "arctangent"))
	now := fmt.Sprintf("User-Name = ghost, Event-Timestamp = %d", time.Now().Unix())
	if said := c.radclient(t, nodeAddr[true], "disconnect", "secret2", now); !strings.Contains(said, "Session-Context-Not-Found") {
		t.Error(said)
	}
	told(imsi(2), "Start")
	stop()

	stop, _ = serve(nodeAddr[true]) // with another secret
	reload(nodeAddr[true].String(), "radius")
	third := in(3, nil)
	stop()
	reload("", "none")
	c.remove(t, &third)
	in(4, nil)
	c.ns.Do(t, func() error {
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(nodeAddr[true], radius.DynamicPort)))
		if err != nil {
			return fmt.Errorf("requests to end sessions are taken without a server: %w", err)
		}
		return conn.Close()
	})

	stop, told = serve(nodeAddr[false])
	reload(nodeAddr[false].String(), "radius")
	told(imsi(3), "Stop")
	stop()
	if len(began) != 3 || len(ended) != 2 || on != 1 {
		t.Errorf("began %v, ended %v, %d times Accounting-On", began, ended, on)
	}
	for id := range ended {
		if began[id] != ended[id] {
			t.Errorf("%s has ended and never began", id)
		}
	}
}

// TestAccountingReload has all that waits, with what is on its way to a server that does not answer, told to
// the server that takes its place, in the order of each session.
func TestAccountingReload(t *testing.T) {
	a := newAccountant(t)
	const sessions = 2 * maxUnderWay
	for _, kind := range []ggsn.EventKind{ggsn.ContextCreated, ggsn.ContextDeleted} {
		for i := range sessions {
			e := told(kind, ggsn.EndPeer)
			e.Context.ChargingID = uint32(i)
			a.add([]ggsn.Event{e})
		}
	}
	now := told(0, 0).Time
	var out radius.Output
	if a.send(now, &out); len(a.under) != maxUnderWay {
		t.Fatalf("%d are under way", len(a.under))
	}
	s := radius.Defaults()
	other := netip.MustParseAddrPort("[2001:db8::10]:1813")
	if err := a.client.Reconfigure(s, now, &out); err != nil { // meanwhile there is none
		t.Fatal(err)
	}
	pass := func(until func() bool) map[string][]uint32 {
		got := map[string][]uint32{}
		for end := now.Add(time.Hour); !until() && now.Before(end); now = now.Add(100 * time.Millisecond) {
			a.client.Tick(now, &out)
			for sent := out; len(sent.UDP)+len(sent.Answers) > 0; {
				out = radius.Output{}
				for _, d := range sent.UDP {
					if d.To == other {
						b := d.Payload
						to, _ := radius.ParseAttributes(b[20:])
						status, _ := to.FindInteger(radius.AcctStatusType)
						got[ids(b)] = append(got[ids(b)], status)
						a.client.HandleUDP(d.Socket, other, answerTo(b), now, &out)
					}
				}
				a.judge(append(sent.Answers, out.Answers...), now)
				out.Answers = nil
				a.send(now, &out)
				sent = out
			}
			out.Reset()
		}
		return got
	}
	if got := pass(func() bool { return len(a.under) == 0 }); len(got) != 0 || a.spool.Info().Records != 2*sessions {
		t.Fatalf("told %v, %d records wait", got, a.spool.Info().Records)
	}
	s.Servers = []radius.Server{{Address: other, Secret: []byte("xyzzy5461")}}
	if err := a.client.Reconfigure(s, now, &out); err != nil {
		t.Fatal(err)
	}
	a.send(now, &out)
	got := pass(func() bool { return a.spool.Info().Records == 0 })
	for id, list := range got {
		if fmt.Sprint(list) != "[1 2]" {
			t.Errorf("of %s it was told %v", id, list)
		}
	}
	if len(got) != sessions {
		t.Errorf("it was told of %d sessions, want %d", len(got), sessions)
	}
}

// TestToldOverReload has what is left of sessions told as it was, where their access point has gone.
func TestToldOverReload(t *testing.T) {
	var k knownAPNs
	k.follow(&Settings{APNs: []APN{{Name: "internet", RADIUSUser: UserOfIMSI}}})
	if k.follow(&Settings{}); k.toldOf("internet").user != UserOfIMSI {
		t.Errorf("as %+v", k.toldOf("internet"))
	}
}
