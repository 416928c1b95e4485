// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// chargeLine is the record of the context of told.
const chargeLine = `{"session":"C00002010000ABCD-6B0970C0","node":"ggsn","ggsn":["192.0.2.1"],"imsi":"240010000000003","nsapi":5,"msisdn":"15550100",` +
	`"gtp_version":0,"apn":"internet","type":"IPv4v6","address4":"10.45.0.1","prefix6":"2001:db8:6000:1::/64","delegated6":"2001:db8:6000:100::/56",` +
	`"sgsn":"192.0.2.7","sgsn_user_plane":"","teid_control":0,"teid_data":0,"sgsn_teid_control":0,"sgsn_teid_data":0,"charging_id":43981,` +
	`"up_packets":3,"up_octets":4294967301,"down_packets":2,"down_octets":7,"dscp":0,"up_dropped":0,"down_dropped":0,` +
	`"created":"2026-11-27T12:00:00Z","last_seen":"0001-01-01T00:00:00Z","user":"nemo","imeisv":"3520990017614823","selection_mode":0,` +
	`"charging_characteristics":"0800","rat":1,"qos":"98-020B921F","closed":"2026-11-27T12:01:30Z","duration":90,"cause":"idle","last":true}` + "\n"

// TestCharging writes a line for each context that has ended and has an account, into another file
// when that was moved away, and counts those that it could not write.
func TestCharging(t *testing.T) {
	configtest.InEffect(t, "ggsn", "charging_file")
	path := filepath.Join(t.TempDir(), "charging.jsonl")
	cfg := written(t, "gsn_address4 = \"192.0.2.1\"\ncharging_file = \""+path+"\"\n", "accounting = \"file\"")
	if e, err := engineSettings(&cfg, nil, nil, 0); err != nil || !e.APNs[0].Account {
		t.Fatalf("no account: %v", err)
	}
	c := newCharger(&cfg, slog.New(slog.DiscardHandler))
	c.at = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	stop := told(ggsn.ContextDeleted, ggsn.EndIdle)
	without := stop
	without.Context.Account = nil
	c.add([]ggsn.Event{told(ggsn.ContextCreated, 0), stop, without})
	c.add([]ggsn.Event{stop})
	if text, err := os.ReadFile(path); err != nil || string(text) != chargeLine+chargeLine {
		t.Errorf("%v\n%swant\n%s", err, text, chargeLine+chargeLine)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	c.add([]ggsn.Event{stop})
	if text, err := os.ReadFile(path); err != nil || string(text) != chargeLine {
		t.Errorf("%v\n%s", err, text)
	}
	c.path = t.TempDir() // no file
	if c.add([]ggsn.Event{stop, stop}); c.written.Load() != 3 || c.lost.Load() != 2 {
		t.Errorf("%d written, %d lost", c.written.Load(), c.lost.Load())
	}
}

// TestChargingTorn keeps each line whole beside what a crash has left of one, and leaves nothing of those that a
// full disk has no room for.
func TestChargingTorn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "charging.jsonl")
	const torn = `{"session":"C0`
	if err := os.WriteFile(path, []byte(torn), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &charger{log: slog.New(slog.DiscardHandler), path: path, name: "ggsn", at: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	stop := told(ggsn.ContextDeleted, ggsn.EndIdle)
	c.add([]ggsn.Event{stop})
	testutil.FullDisk(t, len(torn)+3*len(chargeLine), func() { c.add([]ggsn.Event{stop, stop, stop}) })
	c.add([]ggsn.Event{stop})
	if text, err := os.ReadFile(path); err != nil || string(text) != torn+"\n"+chargeLine+chargeLine {
		t.Errorf("%v\n%s", err, text)
	}
	if c.written.Load() != 2 || c.lost.Load() != 3 {
		t.Errorf("%d written, %d lost", c.written.Load(), c.lost.Load())
	}
}

// charges reads charging records.
func charges(t *testing.T, path string) (list []Charge) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var one Charge
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v\n%s", err, line)
		}
		list = append(list, one)
	}
	return list
}
