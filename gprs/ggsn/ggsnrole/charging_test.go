// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// closed is the charging record of the context of told, which had no other, with more prefixes of its link.
func closed(end ggsn.End) ggsn.Record {
	e := told(ggsn.ContextDeleted, end)
	x := e.Context
	x.Further6 = []netip.Prefix{netip.MustParsePrefix("2001:db8:6000:2::/64"), netip.MustParsePrefix("2001:db8:6000:3::/64")}
	is := ggsn.Conditions{QoS: x.QoS, SGSN: x.PeerControl, Place: ggsn.Place{RAT: x.Account.RAT}}
	return ggsn.Record{
		Context: x, Conditions: is, Number: 1, Opened: x.Created, Closed: e.Time, Duration: e.Age, Cause: ggsn.CloseNormal, Ended: true, End: end, Last: true,
		SGSNs: []netip.Addr{x.PeerControl}, Containers: []ggsn.Container{{Conditions: is, Up: x.Up, Down: x.Down, Why: ggsn.ChangeClosure, Time: e.Time}},
	}
}

// partial is one of a context that goes on, which has moved; its address is its own.
func partial() ggsn.Record {
	r := closed(0)
	moved := r.Conditions
	moved.SGSN, moved.RAT = netip.MustParseAddr("192.0.2.8"), gtp.Some(gtp.RATGERAN)
	moved.Location, moved.TimeZone = gtp.Some(ggsn.Location{0, 0x42, 0xf0, 0x10, 0x12, 0x34, 0x56, 0x78}), gtp.Some(gtp.TimeZone{Octet: 0x40, Summer: 1})
	r.Context.Static, r.Conditions, r.Number, r.Cause, r.Ended, r.Last = ggsn.TypeIPv4, moved, 2, ggsn.CloseVolume, false, false
	r.SGSNs = append(r.SGSNs, moved.SGSN)
	r.Containers[0].Why, r.Containers[0].Time = ggsn.ChangeSGSN|ggsn.ChangeRAT|ggsn.ChangeLocation|ggsn.ChangeTimeZone, r.Opened.Add(30*time.Second)
	r.Containers = append(r.Containers, ggsn.Container{Conditions: moved, Why: ggsn.ChangeClosure, Time: r.Closed})
	return r
}

// closedLine and partialLine are these as they are written, but for the number before them.
const (
	chargedContext = `"session":"C00002010000ABCD-6B0970C0","node":"ggsn","ggsn":["192.0.2.1"],"network_initiated":false,"imsi":"240010000000003","nsapi":5,"msisdn":"15550100",` +
		`"gtp_version":0,"apn":"internet","type":"IPv4v6","address4":"10.45.0.1","prefix6":"2001:db8:6000:1::/64","further6":["2001:db8:6000:2::/64","2001:db8:6000:3::/64"],"delegated6":["2001:db8:6000:100::/56"],`
	chargedCounts = `"sgsn_user_plane":"","teid_control":0,"teid_data":0,"sgsn_teid_control":0,"sgsn_teid_data":0,"charging_id":43981,` +
		`"up_packets":3,"up_octets":4294967301,"down_packets":2,"down_octets":7,"dscp":0,"up_dropped":0,"down_dropped":0,` +
		`"created":"2026-11-27T12:00:00Z","last_seen":"0001-01-01T00:00:00Z",`
	closedLine = `,"record_sequence_number":1,` + chargedContext + `"sgsn":"192.0.2.7",` + chargedCounts + `"sgsn_addresses":["192.0.2.7"],"dynamic_address4":true,"dynamic_address6":true,` +
		`"user":"nemo","imeisv":"3520990017614823","selection_mode":0,"charging_characteristics":"0800","qos":"98-020B921F","rat":1,` +
		`"traffic_volumes":[{"qos":"98-020B921F","rat":1,"sgsn":"192.0.2.7","up_packets":3,"up_octets":4294967301,"down_packets":2,"down_octets":7,"change_conditions":["record_closure"],"change_time":"2026-11-27T12:01:30Z"}],` +
		`"opened":"2026-11-27T12:00:00Z","closed":"2026-11-27T12:01:30Z","duration":90,"cause_for_closing":"normal_release","diagnostics":"idle","last":true}` + "\n"
	partialLine = `,"record_sequence_number":2,` + chargedContext + `"sgsn":"192.0.2.8",` + chargedCounts + `"sgsn_addresses":["192.0.2.7","192.0.2.8"],"dynamic_address4":false,"dynamic_address6":true,` +
		`"user":"nemo","imeisv":"3520990017614823","selection_mode":0,"charging_characteristics":"0800","qos":"98-020B921F","rat":2,"user_location":"0042f01012345678","ms_time_zone":"4001",` +
		`"traffic_volumes":[{"qos":"98-020B921F","rat":1,"sgsn":"192.0.2.7","up_packets":3,"up_octets":4294967301,"down_packets":2,"down_octets":7,` +
		`"change_conditions":["sgsn_change","rat_change","user_location_change","ms_time_zone_change"],"change_time":"2026-11-27T12:00:30Z"},` +
		`{"qos":"98-020B921F","rat":2,"user_location":"0042f01012345678","ms_time_zone":"4001","sgsn":"192.0.2.8","up_packets":0,"up_octets":0,"down_packets":0,"down_octets":0,"change_conditions":["record_closure"],"change_time":"2026-11-27T12:01:30Z"}],` +
		`"opened":"2026-11-27T12:00:00Z","closed":"2026-11-27T12:01:30Z","duration":90,"cause_for_closing":"volume_limit","last":false}` + "\n"
)

// line is a record as it is written, with its number.
func line(number int, rest string) string {
	return fmt.Sprintf(`{"record_type":"ggsnPDPRecord","local_sequence_number":%d`, number) + rest
}

// newTestCharger is one that writes a file.
func newTestCharger(path string) *charger {
	return &charger{log: slog.New(slog.DiscardHandler), path: path, name: "ggsn", at: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
}

// TestCharging writes a line for each record, into another file when that was moved away, numbers them on over a
// restart, and counts those that it could not write, whose numbers are missing.
func TestCharging(t *testing.T) {
	configtest.InEffect(t, "ggsn", "charging_file")
	path := filepath.Join(t.TempDir(), "charging.jsonl")
	cfg := written(t, "gsn_address4 = \"192.0.2.1\"\ncharging_file = \""+path+"\"\n", "accounting = \"file\"")
	if e, err := engineSettings(&cfg, nil, nil, 0); err != nil || !e.APNs[0].Account || !e.Records {
		t.Fatalf("no account: %v", err)
	}
	c := newCharger(&cfg, slog.New(slog.DiscardHandler))
	c.at = c.at[:1]
	reads := func(want string) {
		t.Helper()
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%v\n%swant\n%s", err, text, want)
		}
	}
	stop := closed(ggsn.EndIdle)
	c.add([]ggsn.Record{partial(), stop})
	c.add([]ggsn.Record{stop})
	reads(line(1, partialLine) + line(2, closedLine) + line(3, closedLine))
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	c.add([]ggsn.Record{stop})
	reads(line(4, closedLine))
	c.path = t.TempDir() // no file
	if c.add([]ggsn.Record{stop, stop}); c.written.Load() != 4 || c.lost.Load() != 2 {
		t.Errorf("%d written, %d lost", c.written.Load(), c.lost.Load())
	}
	c.path = path
	c.add([]ggsn.Record{stop})
	if c = newTestCharger(path); c.open() != nil || c.number != 7 {
		t.Errorf("the number is %d", c.number)
	}
	if err := newTestCharger(path).open(); err == nil || !strings.Contains(err.Error(), "another node writes to "+path) {
		t.Errorf("a second node: %v", err)
	}
	c.add([]ggsn.Record{stop})
	reads(line(4, closedLine) + line(7, closedLine) + line(8, closedLine))
}

// TestChargingTorn keeps each line whole beside what a crash has left of one, and leaves nothing of those that a
// full disk has no room for.
func TestChargingTorn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "charging.jsonl")
	torn := `{"session":"` + strings.Repeat("C", 1<<20) // longer than what package testing writes meanwhile
	if err := os.WriteFile(path, []byte(torn), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newTestCharger(path)
	stop := closed(ggsn.EndIdle)
	c.add([]ggsn.Record{stop})
	testutil.FullDisk(t, len(torn)+3*len(line(1, closedLine)), func() { c.add([]ggsn.Record{stop, stop, stop}) })
	c.add([]ggsn.Record{stop})
	if text, err := os.ReadFile(path); err != nil || string(text) != torn+"\n"+line(1, closedLine)+line(5, closedLine) {
		t.Errorf("%v\n%s", err, text[min(len(text), len(torn)):])
	}
	if c.written.Load() != 2 || c.lost.Load() != 3 {
		t.Errorf("%d written, %d lost", c.written.Load(), c.lost.Load())
	}
}

// TestChargingNumber reads what it has written, and nothing else: then numbers begin again.
func TestChargingNumber(t *testing.T) {
	path := filepath.Join(t.TempDir(), "charging.jsonl")
	for text, want := range map[string]uint64{
		"00000000000000000042\n": 42, "18446744073709551615\n": 1<<64 - 1, "": 0, "42\n": 0, "00000000000000000042": 0, "00000000000000000042\n\n": 0,
		"0000000000000000004x\n": 0, "99999999999999999999\n": 0, "-0000000000000000042\n": 0,
	} {
		if err := os.WriteFile(path+".number", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c := newTestCharger(path); c.open() != nil || c.number != want {
			t.Errorf("%q is read as %d, want %d", text, c.number, want)
		} else if err := c.close(); err != nil {
			t.Error(err)
		}
	}
	if c := newTestCharger(filepath.Join(t.TempDir(), "none", "charging.jsonl")); c.open() == nil {
		t.Error("a file in no folder can be written")
	}
}

// TestChargingKeys closes the records of a context by the limits that are set, and has of nothing else one of its own.
func TestChargingKeys(t *testing.T) {
	change := func(b *bench, r *gtp.CreateResponse, from netip.Addr, rat gtp.RATType) {
		b.hand(ggsn.SocketControl, from, gtp.Header{Version: gtp.V1, TEID: r.TEIDControl.Value}, &gtp.UpdateRequest{
			NSAPI: 5, TEIDData: gtp.Some(uint32(7)), TEIDControl: gtp.Some(uint32(8)), AddressControl: gtp.Some(from), AddressUser: gtp.Some(from),
			QoS: gtp.Some(r.QoS.Value), RATType: gtp.Some(rat),
		})
	}
	for _, tt := range []struct {
		key, line string
		play      func(*bench, *gtp.CreateResponse)
		want      ggsn.Closing
	}{
		{configtest.InEffect(t, "ggsn.apn", "charging_volume"), "charging_volume = 1000", func(b *bench, r *gtp.CreateResponse) {
			b.up(r, sgsn, udp(r.EndUserAddress.Value.IPv4, host4, 64, 1000-28))
		}, ggsn.CloseVolume},
		{configtest.InEffect(t, "ggsn.apn", "charging_time"), `charging_time = "1h"`, func(b *bench, _ *gtp.CreateResponse) { b.pass(time.Hour) }, ggsn.CloseTime},
		{configtest.InEffect(t, "ggsn.apn", "charging_changes"), "charging_changes = 1", func(b *bench, r *gtp.CreateResponse) { change(b, r, sgsn, 2) }, ggsn.CloseChanges},
		{configtest.InEffect(t, "ggsn.apn", "charging_sgsns"), "charging_sgsns = 1", func(b *bench, r *gtp.CreateResponse) { change(b, r, other, 2) }, ggsn.CloseSGSNs},
		{configtest.InEffect(t, "ggsn.apn", "tariff_times"), "charging_changes = 1\ntariff_times = [\"00:00\", \"12:00\"]", func(b *bench, _ *gtp.CreateResponse) { b.pass(12 * time.Hour) }, ggsn.CloseChanges},
	} {
		t.Run(tt.key, func(t *testing.T) {
			for _, line := range []string{tt.line, ""} {
				b := benchOf(t, `charging_file = "/charging.jsonl"`, "accounting = \"file\"\n"+line)
				r := b.create(sgsn, request(1, sgsn, gtp.PDPTypeIPv4))
				tt.play(b, &r)
				want := [ggsn.NumClosings]uint64{}
				if line != "" {
					want[tt.want] = 1
				}
				if got := b.Stats().Records; got != want {
					t.Errorf("with %q %v were closed, want %v", line, got, want)
				}
			}
		})
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
