// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// newAccountingCore is a core that tells a server at an address, with the lines of its access point, and
// the file of its charging records.
func newAccountingCore(t *testing.T, server, apn string) (c *core, charging string) {
	t.Helper()
	dir := t.TempDir()
	writePrivate(t, filepath.Join(dir, "secret"), "xyzzy5461\n")
	charging = filepath.Join(dir, "charging.jsonl")
	node := fmt.Sprintf("radius_timeout = \"200ms\"\nradius_tries = 2\nradius_dead_time = \"1s\"\naccounting_file = %q\ncharging_file = %q\n[[ggsn.radius]]\naddress = %q\nuse = \"both\"\nsecret_file = %q\n",
		filepath.Join(dir, "spool"), charging, server, filepath.Join(dir, "secret"))
	return newCore(t, node, "pool4 = [\"10.45.0.0/16\"]\npool6 = [\"2001:db8:6000::/44\"]\naccounting = \"radius\"\n"+apn), charging
}

// detail reads what a server has written down.
func detail(t *testing.T, path string) []peers.Accounting {
	t.Helper()
	list, err := peers.ReadDetail(path)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// remove ends a session.
func (c *core) remove(t *testing.T, r *gtp.CreateResponse) {
	t.Helper()
	var removed gtp.DeleteResponse
	c.ask(t, false, r.TEIDControl.Value, &gtp.DeleteRequest{NSAPI: 5, Teardown: gtp.Some(true)}, &removed)
	if !removed.Cause.Accepted() {
		t.Fatalf("it cannot be deleted: %v", removed.Cause)
	}
}

// TestFreeRADIUSAccounting has FreeRADIUS write down a session, by each family: what it has said of it
// itself, and as many octets and packets as were sent, the engine has counted, its counters say, and its charging record has.
func TestFreeRADIUSAccounting(t *testing.T) {
	for _, at := range []string{nodeAddr[false].String(), nodeAddr[true].String()} {
		t.Run(at, func(t *testing.T) {
			c, charging := newAccountingCore(t, at, "authenticate = \"radius\"\n")
			file := filepath.Join(t.TempDir(), "detail")
			c.startAccounting(t, peers.FreeRADIUS{Listen: netip.AddrPortFrom(netip.MustParseAddr(at), 1812), Secret: "xyzzy5461", Detail: file})
			c.serve(t)
			r := c.attach(t, 1, withPAP("nemo", "arctangent"))
			if !r.Cause.Accepted() {
				t.Fatal(r.Cause)
			}
			const packets = 5
			for range packets {
				if !c.carried(t, &r) {
					t.Fatal("nothing is carried")
				}
			}
			_, text := program.Call(t, "ggsn", "contexts", "--json", "--socket", c.socket)
			var all struct{ Contexts []Context }
			if err := json.Unmarshal([]byte(text), &all); err != nil || len(all.Contexts) != 1 {
				t.Fatalf("%v\n%s", err, text)
			}
			engine := &all.Contexts[0]
			c.remove(t, &r)
			await(t, func() bool { return len(detail(t, file)) == 3 })
			list := detail(t, file)
			for i, want := range []string{"Accounting-On", "Start", "Stop"} {
				if got := list[i]["Acct-Status-Type"]; got != want {
					t.Errorf("record %d is %s, want %s", i, got, want)
				}
			}
			stop := list[2]
			if up, down := stop.Octets("Input"), stop.Octets("Output"); up != engine.UpOctets || down != engine.DownOctets || up == 0 || down == 0 {
				t.Errorf("it has %d octets up and %d down, the engine %+v", up, down, engine)
			}
			if up, down := stop.Number("Acct-Input-Packets"), stop.Number("Acct-Output-Packets"); up != engine.UpPackets || down != engine.DownPackets {
				t.Errorf("it has %d packets up and %d down, the engine %+v", up, down, engine)
			}
			if up := stop.Octets("Input"); up != packets*carriedOctets {
				t.Errorf("it has %d octets up of %d", up, packets*carriedOctets)
			}
			values := c.values(t)
			for name, want := range map[string]uint64{
				"up_octets_total": stop.Octets("Input"), "down_octets_total": stop.Octets("Output"),
				"up_packets_total": stop.Number("Acct-Input-Packets"), "down_packets_total": stop.Number("Acct-Output-Packets"),
			} {
				if got := values[name]; uint64(got) != want {
					t.Errorf("%s is %v, the record has %d", name, got, want)
				}
			}
			if of := charges(t, charging); len(of) != 1 || of[0].Session != stop["Acct-Session-Id"] || of[0].UpOctets != engine.UpOctets || of[0].DownOctets != engine.DownOctets {
				t.Errorf("charging records %+v", of)
			}
			for name, want := range map[string]string{
				"User-Name": "nemo", "Framed-IP-Address": "10.45.7.7", "Framed-IPv6-Prefix": "2001:db8:6000:77::/64, 2001:db8:6000:99::/64", "Framed-Interface-Id": "0:0:0:9",
				"Class": "0x676f6c64", "Called-Station-Id": "internet", "Acct-Authentic": "RADIUS", "Acct-Terminate-Cause": "User-Request",
				"Acct-Session-Id": list[1]["Acct-Session-Id"], "3GPP-IMSI": "240010000000001", "3GPP-SGSN-Address": "192.0.2.7", "3GPP-GGSN-Address": "192.0.2.1",
				"3GPP-Session-Stop-Indicator": "255", "3GPP-PDP-Type": "3", "NAS-Identifier": "ggsn",
			} {
				if stop[name] != want {
					t.Errorf("%s is %q, want %q", name, stop[name], want)
				}
			}
			if t.Failed() {
				t.Logf("%v", stop)
			}
		})
	}
}

// TestAccountingKilled loses no record while the server is away and the process is killed, more than
// once: each context has its Start and, if it has ended, its Stop behind it.
func TestAccountingKilled(t *testing.T) {
	c, charging := newAccountingCore(t, nodeAddr[false].String(), "")
	file := filepath.Join(t.TempDir(), "detail")
	server := peers.FreeRADIUS{Listen: netip.AddrPortFrom(nodeAddr[false], 1812), Secret: "xyzzy5461", Detail: file}
	want := map[string]int{} // records of each IMSI
	const each = 20
	next := 0
	for round := range 4 {
		p := c.serve(t)
		if round == 2 { // meanwhile it is told of what there is
			stop := c.startAccounting(t, server)
			await(t, func() bool { return len(detail(t, file)) > 0 })
			stop()
		}
		for i := range each {
			next++
			r := c.open(t, next, false)
			imsi := fmt.Sprintf("24001%010d", next)
			if want[imsi] = 1; i%2 == 0 {
				c.remove(t, &r)
				want[imsi] = 2
			}
		}
		c.manager.End(t, p, syscall.SIGKILL)
	}
	c.startAccounting(t, server)
	p := c.serve(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.Log())
		}
	})
	whole := func() bool {
		told := map[string]int{}
		for _, one := range detail(t, file) {
			told[one["3GPP-IMSI"]]++
		}
		for imsi, n := range want {
			if told[imsi] < n {
				return false
			}
		}
		return told[""] >= 5
	}
	await(t, whole)
	began, ended := map[string]bool{}, map[string]bool{}
	for _, one := range detail(t, file) {
		id := one["Acct-Session-Id"]
		switch one["Acct-Status-Type"] {
		case "Start":
			began[id] = true
		case "Stop":
			ended[id] = true
			if one["Acct-Terminate-Cause"] != "User-Request" {
				t.Errorf("%v", one)
			}
		}
	}
	if len(began) != 4*each || len(ended) != 4*each/2 {
		t.Errorf("%d sessions began and %d ended, want %d and %d", len(began), len(ended), 4*each, 4*each/2)
	}
	if of := charges(t, charging); len(of) != len(ended) {
		t.Errorf("%d charging records, want %d", len(of), len(ended))
	}
	for id := range ended {
		if !began[id] {
			t.Errorf("%s has ended and never began", id)
		}
	}
}

// TestAccountingOff ends the contexts of a node that keeps none, with what they have carried, and tells
// that it is gone, when it is back at the latest; with what it keeps it goes on in silence.
func TestAccountingOff(t *testing.T) {
	for _, keep := range []bool{false, true} {
		c, _ := newAccountingCore(t, nodeAddr[false].String(), "")
		text, err := os.ReadFile(c.path)
		if err != nil {
			t.Fatal(err)
		}
		writePrivate(t, c.path, strings.Replace(string(text), "[[ggsn]]\n", fmt.Sprintf("[[ggsn]]\nkeep_state = %v\n", keep), 1))
		p := c.serve(t)
		r := c.open(t, 1, false)
		if !c.carried(t, &r) {
			t.Fatal("nothing is carried")
		}
		c.manager.End(t, p, syscall.SIGTERM)
		file := filepath.Join(t.TempDir(), "detail")
		c.startAccounting(t, peers.FreeRADIUS{Listen: netip.AddrPortFrom(nodeAddr[false], 1812), Secret: "xyzzy5461", Detail: file})
		p = c.serve(t)
		want := map[string]uint64{"Accounting-On": 2, "Start": 1, "Stop": 1, "Accounting-Off": 1}
		if keep { // the SGSN ends it, after the restart
			c.remove(t, &r)
			want = map[string]uint64{"Accounting-On": 1, "Start": 1, "Stop": 1}
		}
		n := 0
		for _, of := range want {
			n += int(of)
		}
		await(t, func() bool { return len(detail(t, file)) >= n })
		got, sessions := map[string]uint64{}, map[string]bool{}
		for _, one := range detail(t, file) {
			got[one["Acct-Status-Type"]]++
			if one["3GPP-IMSI"] != "" {
				sessions[one["Acct-Session-Id"]] = true
			}
			if cause := one["Acct-Terminate-Cause"]; one["Acct-Status-Type"] == "Stop" && (one.Octets("Input") == 0 || (cause == "Admin-Reboot") == keep) {
				t.Errorf("%v", one)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || len(sessions) != 1 {
			t.Errorf("kept %v: %v of sessions %v, want %v", keep, got, sessions, want)
		}
		c.manager.End(t, p, syscall.SIGTERM)
	}
}
