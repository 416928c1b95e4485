// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/radius"
)

// newAccountant is one whose server answers if somebody does so for it.
func newAccountant(t testing.TB) *accountant {
	t.Helper()
	a := &accountant{more: make(chan struct{}, 1), under: map[uint64]bool{}, doubts: map[uint64]uint64{}, window: maxUnderWay}
	a.log, a.name, a.mnc, a.network = slog.New(slog.DiscardHandler), "ggsn", 2, "24001"
	a.at = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8:9::1")}
	a.apns.Store(&map[string]toldOf{"internet": {UserOfTerminal, true, true}})
	var err error
	if a.spool, err = kept.OpenSpool(filepath.Join(t.TempDir(), "spool"), 1<<20, sessionOf); err != nil {
		t.Fatal(err)
	}
	s := radius.Defaults()
	s.Servers = []radius.Server{{Address: accountingServer, Secret: []byte("xyzzy5461")}}
	if a.client, err = radius.NewClient(s, strings.NewReader(strings.Repeat("x", 32))); err != nil {
		t.Fatal(err)
	}
	return a
}

var accountingServer = netip.MustParseAddrPort("192.0.2.10:1813")

// told is an event of a context that has carried more than 4 GB.
func told(kind ggsn.EventKind, end ggsn.End) ggsn.Event {
	imsi, _ := gtp.ParseIMSI("240010000000003")
	msisdn, _ := gtp.ParseMSISDN("15550100")
	imei, _ := gtp.ParseIMEI("3520990017614823")
	qos, _ := gtp.ParseQoS([]byte{2, 0x0b, 0x92, 0x1f})
	sgsn, _ := gtp.MakePLMN("240", "02")
	began := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	return ggsn.Event{
		Kind: kind, Time: began.Add(90 * time.Second), Age: 90 * time.Second, End: end, Last: true,
		Context: ggsn.ContextInfo{
			IMSI: imsi, MSISDN: msisdn, NSAPI: 5, APN: "internet", Type: gtp.PDPTypeIPv4v6,
			Address4: netip.MustParseAddr("10.45.0.1"), Prefix6: netip.MustParsePrefix("2001:db8:6000:1::/64"), InterfaceID: [8]byte{7: 9},
			Delegated6: []netip.Prefix{netip.MustParsePrefix("2001:db8:6000:100::/56")}, PeerControl: netip.MustParseAddr("192.0.2.7"),
			ChargingID: 0xabcd, QoS: qos, Created: began,
			Up: ggsn.Traffic{Packets: 3, Octets: 1<<32 + 5}, Down: ggsn.Traffic{Packets: 2, Octets: 7},
			Account: &ggsn.Account{
				Origin: ggsn.Origin{
					User: []byte("nemo"), Selection: gtp.Some(gtp.SelectionVerified), Charging: gtp.Some(uint16(0x0800)), RAT: gtp.Some(gtp.RATUTRAN), IMEI: gtp.Some(imei),
					Network: gtp.Some(sgsn), Location: gtp.Some(gtp.Location{Kind: gtp.LocationCell, PLMN: sgsn, LAC: 0x1234, Code: 0x5678}),
					TimeZone: gtp.Some(gtp.TimeZone{Octet: 0x80, Summer: 1}), CAMEL: []byte{0x31, 0},
				},
				Class: [][]byte{{1, 2, 3}}, Servers: true,
			},
			Filters: []gtp.PacketFilter{{ID: 1, Direction: gtp.FilterUp, Precedence: 10, Protocol: gtp.Some(uint8(17))}},
		},
	}
}

// terminalAttributes are what each record of that context has, and stopAttributes what is behind them
// at its end: type, length and value of each.
var (
	terminalAttributes = []string{
		"3706 6b09711a", "0106 6e656d6f", // Event-Timestamp, User-Name
		"2006 6767736e", "0406 c0000201", "5f12 20010db8000900000000000000000001", // NAS-Identifier, its addresses
		"3d06 00000012", "0606 00000002", "0706 00000007", // Wireless-Other, Framed, GPRS
		"1e0a 696e7465726e6574", "1f0a 3135353530313030", // Called- and Calling-Station-Id
		"1a17 000028af 0111 323430303130303030303030303033", "1a0d 000028af 0807 3234303031", // IMSI, its operator
		"1a0c 000028af 0306 00000003", "1a13 000028af 050d 39382d3032304239323146", // IPv4v6, profile
		"1a0c 000028af 0606 c0000207", "1a0c 000028af 0706 c0000201", "1a18 000028af 1012 20010db8000900000000000000000001", // SGSN, GGSN
		"1a0d 000028af 0907 3234303031", "1a09 000028af 0a03 35", "1a09 000028af 0c03 30", "1a0c 000028af 0d06 30383030", // the GGSN's operator, NSAPI, selection, charging
		"1a18 000028af 1412 33353230393930303137363134383233", "1a09 000028af 1503 01", // IMEISV, UTRAN
		"1a0d 000028af 1207 3234303032", "1a10 000028af 160a 0042f02012345678", "1a0a 000028af 1704 8001", // the SGSN's operator, location, time zone
		"1a0c 000028af 0206 0000abcd", "2d06 00000001", "1905 010203", // Charging-ID, by RADIUS, Class
		"0806 0a2d0001", "610c 0040 20010db860000001", "600a 0000000000000009", "7b0b 0038 20010db8600001", // addresses
		"1a0e 000028af 1908 010a0201 3011", "1a09 000028af 1a03 0a", "1a0a 000028af 1804 3100", // a filter for UDP from the terminal, AF11, CAMEL
	}
	stopAttributes = []string{
		"2e06 0000005a", "2a06 00000005", "3406 00000001", "2b06 00000007", "2f06 00000003", "3006 00000002", // 90 s, octets, packets
		"3106 00000004", "1a09 000028af 0b03 ff", // idle, the last context
	}
)

// TestAccountingRequest has the octets of Start and Stop, with the authenticator of RFC 2866 section 3,
// and how long ago it happened.
func TestAccountingRequest(t *testing.T) {
	a := newAccountant(t)
	start, stop := told(ggsn.ContextCreated, 0), told(ggsn.ContextDeleted, ggsn.EndIdle)
	start.Context.DSCP, stop.Context.DSCP = 10, 10
	a.add([]ggsn.Event{start, stop, {Kind: ggsn.ContextDeleted}, {Kind: ggsn.PathDown}})
	var out radius.Output
	for range 2 { // each when that before it is answered
		a.send(start.Time.Add(3*time.Second), &out)
		for n := range a.under {
			a.judge([]radius.Answer{{Ticket: n, Code: radius.AccountingResponse}}, time.Now())
		}
	}
	if len(out.UDP) != 2 {
		t.Fatalf("%d requests", len(out.UDP))
	}
	id := "2c1b " + hex.EncodeToString([]byte("C00002010000ABCD-6B0970C0"))
	for i, want := range [][]string{
		slices.Concat([]string{"2806 00000001", id}, terminalAttributes, []string{"2906 00000003"}),
		slices.Concat([]string{"2806 00000002", id}, terminalAttributes, stopAttributes, []string{"2906 00000003"}),
	} {
		b := out.UDP[i].Payload
		wantHex := strings.ReplaceAll(strings.Join(want, ""), " ", "")
		if out.UDP[i].To != accountingServer || b[0] != 4 || int(b[2])<<8|int(b[3]) != len(b) {
			t.Errorf("to %v, header %x, %d octets", out.UDP[i].To, b[:4], len(b))
		}
		if got := hex.EncodeToString(b[20:]); got != wantHex {
			t.Errorf("request %d has\n%s, want\n%s", i, got, wantHex)
		}
		sum := md5.Sum(slices.Concat(b[:4], make([]byte, 16), b[20:], []byte("xyzzy5461")))
		if !bytes.Equal(b[4:20], sum[:]) {
			t.Errorf("request %d has the authenticator %x, want %x", i, b[4:20], sum)
		}
	}
}

// TestAccountingGigawords has what is beyond 32 bits of either direction in the attribute of that direction, and none
// where there is nothing beyond (RFC 2869 sections 5.1 and 5.2).
func TestAccountingGigawords(t *testing.T) {
	e := told(ggsn.ContextCounted, 0)
	e.Context.Up.Octets, e.Context.Down.Octets = 1<<32-1, 3<<32+7
	to := newAccountant(t).attributes(&e)
	for attribute, want := range map[radius.Type]uint32{radius.AcctInputOctets: 1<<32 - 1, radius.AcctOutputOctets: 7, radius.AcctOutputGigawords: 3} {
		if got, found := to.FindInteger(attribute); !found || got != want {
			t.Errorf("attribute %d is %d, want %d", attribute, got, want)
		}
	}
	if got, found := to.FindInteger(radius.AcctInputGigawords); found {
		t.Errorf("%d gigawords of less than one", got)
	}
}

// TestAccountingStatus has the status of each kind of record, by the numbers of RFC 2866 section 5.1; the end of a context
// alone has a cause, and that of the last one of its session 3GPP's indication.
func TestAccountingStatus(t *testing.T) {
	a := newAccountant(t)
	for _, one := range []struct {
		kind        ggsn.EventKind
		last        bool
		want        uint32
		time, cause bool
	}{
		{ggsn.ContextCreated, true, 1, false, false},
		{ggsn.ContextUpdated, true, 3, true, false},
		{ggsn.ContextCounted, true, 3, true, false},
		{ggsn.ContextDeleted, false, 2, true, true},
		{ggsn.ContextDeleted, true, 2, true, true},
	} {
		e := told(one.kind, ggsn.EndPeer)
		e.Last = one.last
		to := a.attributes(&e)
		status, _ := to.FindInteger(radius.AcctStatusType)
		_, lasted := to.Find(radius.AcctSessionTime)
		_, caused := to.Find(radius.AcctTerminateCause)
		_, stopped := to.Find3GPP(gppStop)
		if status != one.want || lasted != one.time || caused != one.cause || stopped != (one.cause && one.last) {
			t.Errorf("%+v: status %d, time %t, cause %t, indication %t", one, status, lasted, caused, stopped)
		}
	}
	for of, want := range map[uint32]uint32{radius.AcctOn: 7, radius.AcctOff: 8} {
		to := a.ofNode(of, time.Now())
		if status, _ := to.FindInteger(radius.AcctStatusType); status != want {
			t.Errorf("of the node: %d, want %d", status, want)
		}
	}
}

// TestSessionID: no two contexts have one name, neither those of two nodes nor those of one whose Charging-IDs have begun
// anew (RFC 2866 section 5.5).
func TestSessionID(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	four, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	seen := map[string]bool{}
	for _, id := range []string{
		sessionID(four, 1, began), sessionID(four, 1, began.Add(time.Second)), sessionID(four, 2, began), sessionID(four.Next(), 1, began), sessionID(six, 1, began),
	} {
		if seen[id] {
			t.Errorf("%s is there twice", id)
		}
		seen[id] = true
		if of := chargingIDOf(id); of == nil || *of != 1 && *of != 2 {
			t.Errorf("the Charging-ID of %s is %v", id, of)
		}
	}
}

// TestAccountingCauses has a cause for each end of a context, by the numbers of RFC 2866 section 5.10.
func TestAccountingCauses(t *testing.T) {
	want := [ggsn.NumEnds]uint32{
		ggsn.EndPeer: 1, ggsn.EndRecreated: 2, ggsn.EndPeerRestart: 3, ggsn.EndPath: 3, ggsn.EndIdle: 4, ggsn.EndSessionLimit: 5, ggsn.EndAdmin: 6,
		ggsn.EndStopped: 7, ggsn.EndErrorReport: 9, ggsn.EndPeerUnknown: 9, ggsn.EndRestart: 11, ggsn.EndSettings: 15,
	}
	a := newAccountant(t)
	for end := range ggsn.End(ggsn.NumEnds) {
		e := told(ggsn.ContextDeleted, end)
		to := a.attributes(&e)
		if cause, _ := to.FindInteger(radius.AcctTerminateCause); cause != want[end] || cause == 0 {
			t.Errorf("%v: %d, want %d", end, cause, want[end])
		}
	}
}

// TestAccountingOrder has one record of a session under way at a time, whatever is lost, and one of the whole node
// alone.
func TestAccountingOrder(t *testing.T) {
	a := newAccountant(t)
	for i := range 2 {
		for _, kind := range []ggsn.EventKind{ggsn.ContextCreated, ggsn.ContextDeleted} {
			e := told(kind, ggsn.EndPeer)
			e.Context.ChargingID = uint32(i)
			a.add([]ggsn.Event{e})
		}
	}
	a.whole(radius.AcctOn)
	now := time.Now()
	var sent []uint32
	for range 10 {
		var out radius.Output
		a.send(now, &out)
		var under []uint64
		for n := range a.under {
			under = append(under, n)
		}
		slices.Sort(under)
		for _, d := range out.UDP {
			attributes, err := radius.ParseAttributes(d.Payload[20:])
			if err != nil {
				t.Fatal(err)
			}
			status, _ := attributes.FindInteger(radius.AcctStatusType)
			sent = append(sent, status)
		}
		for _, n := range under { // all that was sent is answered
			a.judge([]radius.Answer{{Ticket: n, Code: radius.AccountingResponse}}, time.Now())
		}
		sent = append(sent, 0)
	}
	// Both Starts; each Stop waits for the answer; On waits for all.
	if want := []uint32{1, 1, 0, 2, 2, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0}; !slices.Equal(sent, want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
}

// TestAccountingRenumbered tells of all prefixes of a context, former ones last.
func TestAccountingRenumbered(t *testing.T) {
	x := told(ggsn.ContextUpdated, 0).Context
	x.Further6 = []netip.Prefix{netip.MustParsePrefix("2001:db8:6000:9::/64")}
	x.Former6 = []netip.Prefix{netip.MustParsePrefix("2001:db8:5000:1::/64"), netip.MustParsePrefix("2001:db8:4000:7::/64")}
	var to radius.Attributes
	addresses(&to, &x)
	var got []netip.Prefix
	for _, value := range to.All(radius.FramedIPv6Prefix) {
		p, _ := radius.ParsePrefix(value)
		got = append(got, p)
	}
	if !slices.Equal(got, slices.Concat([]netip.Prefix{x.Prefix6}, x.Further6, x.Former6)) {
		t.Errorf("told %v", got)
	}
}

// TestAccountingFiles says at the check which files cannot be written.
func TestAccountingFiles(t *testing.T) {
	folder := t.TempDir()
	for path, want := range map[string]string{"": "", folder + "/new": "", folder + "/none/new": "no folder", folder: "no file"} {
		if err := checkFile("charging_file", path); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
}

// TestAccountingSpool tells what nobody has answered again, in its order, and nothing twice that was;
// what a process has left its successor tells, with the time that has passed.
func TestAccountingSpool(t *testing.T) {
	a := newAccountant(t)
	e := told(ggsn.ContextCreated, 0)
	for i := range 3 {
		e.Context.ChargingID = uint32(i)
		a.add([]ggsn.Event{e})
	}
	now := e.Time
	var out radius.Output
	a.send(now, &out)
	if got := ids(out.UDP[0].Payload, out.UDP[1].Payload, out.UDP[2].Payload); got != "0 1 2" {
		t.Fatal(got)
	}
	for out.Reset(); len(out.Answers) < 3; now = now.Add(time.Second) {
		a.client.Tick(now, &out)
	}
	answers := slices.Clone(out.Answers)
	answers[1].Code = radius.AccountingResponse // that one was heard
	a.judge(answers, now)
	if a.window != 1 || len(a.under) != 0 {
		t.Errorf("%d of %d are under way while nobody answers", len(a.under), a.window)
	}
	if spool := a.spool.Info(); spool.Records != 2 {
		t.Errorf("%d records are left", spool.Records)
	}
	out.Reset()
	a.window = maxUnderWay
	a.send(now, &out)
	if len(out.UDP) != 2 || ids(out.UDP[0].Payload, out.UDP[1].Payload) != "0 2" {
		t.Errorf("%d requests follow", len(out.UDP))
	}
}

// serve has a server answer what the accountant sends, for a time, but a record of one session; it returns
// how often it was told of each.
func (a *accountant) serve(now *time.Time, d time.Duration, hates string) map[string]int {
	told := map[string]int{}
	for end := now.Add(d); now.Before(end); *now = now.Add(time.Second) {
		var out radius.Output
		a.send(*now, &out)
		for range 100 { // within this second
			a.client.Tick(*now, &out)
			sent := out
			out = radius.Output{}
			for _, d := range sent.UDP {
				if id := ids(d.Payload); id == hates {
					told[id]++
				} else {
					a.client.HandleUDP(d.Socket, accountingServer, answerTo(d.Payload), *now, &out)
					told[id]++
				}
			}
			a.judge(append(sent.Answers, out.Answers...), *now)
			out.Reset()
			if a.send(*now, &out); len(out.UDP) == 0 {
				break
			}
		}
	}
	return told
}

// answerTo is the Accounting-Response to a request (RFC 2866 section 3).
func answerTo(request []byte) []byte {
	b := slices.Concat([]byte{byte(radius.AccountingResponse), request[1], 0, 20}, request[4:20])
	sum := md5.Sum(append(slices.Clone(b), "xyzzy5461"...))
	return append(b[:4], sum[:]...)
}

// TestAccountingHated has one record that no server answers hold up none of other sessions: it stays, is
// set aside, and is tried again until it is taken; what follows it in its session waits for it.
func TestAccountingHated(t *testing.T) {
	for _, before := range []int{0, 3} { // other records that wait already
		a := newAccountant(t)
		now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
		put := func(id int, kind ggsn.EventKind) {
			e := told(kind, ggsn.EndPeer)
			e.Context.ChargingID = uint32(id)
			a.add([]ggsn.Event{e})
		}
		for i := range before {
			put(i+1, ggsn.ContextCreated)
		}
		put(15, ggsn.ContextCreated)
		put(15, ggsn.ContextDeleted)
		tries, others := 0, 0
		for i := range 600 {
			if i%10 == 0 {
				put(100+i, ggsn.ContextCreated)
			}
			got := a.serve(&now, time.Second, "F")
			tries += got["F"]
			delete(got, "F")
			others += len(got)
		}
		if waits := a.spool.Info().Records; others != before+60 || waits != 2 {
			t.Errorf("%d records of others were told, want %d, and %d wait", others, before+60, waits)
		}
		if len(a.aside) != 1 || tries < 4 || tries > 20 {
			t.Errorf("it was sent %d times, and %d records are set aside", tries, len(a.aside))
		}
		if got := a.serve(&now, asideTime+time.Minute, ""); got["F"] != 2 || a.spool.Info().Records != 0 || len(a.aside)+len(a.doubts) != 0 {
			t.Errorf("told %v, %+v", got, a.spool.Info())
		}
	}
}

// TestAccountingOutage has the last Interim-Update of a session wait alone, and its Stop in the place of that,
// however long servers are away.
func TestAccountingOutage(t *testing.T) {
	a := newAccountant(t)
	e := told(ggsn.ContextCreated, 0)
	a.add([]ggsn.Event{e})
	for e.Kind = ggsn.ContextCounted; e.Context.Up.Octets < 2<<32; e.Context.Up.Octets += 1 << 20 {
		a.add([]ggsn.Event{e})
	}
	if info := a.spool.Info(); info.Records != 2 || info.Refused != 0 {
		t.Errorf("%+v", info)
	}
	e.Kind = ggsn.ContextDeleted
	a.add([]ggsn.Event{e})
	if info := a.spool.Info(); info.Records != 2 || info.Refused != 0 {
		t.Errorf("%+v", info)
	}
	now := e.Time
	for _, want := range []uint32{radius.AcctStart, radius.AcctStop} {
		var out radius.Output
		a.send(now, &out)
		if len(out.UDP) != 1 {
			t.Fatalf("%d requests", len(out.UDP))
		}
		to, _ := radius.ParseAttributes(out.UDP[0].Payload[20:])
		if status, _ := to.FindInteger(radius.AcctStatusType); status != want {
			t.Errorf("told %d, want %d", status, want)
		}
		for n := range a.under {
			a.judge([]radius.Answer{{Ticket: n, Code: radius.AccountingResponse}}, now)
		}
	}
}

// ids are the Charging-IDs in names of sessions.
func ids(packets ...[]byte) string {
	var list []string
	for _, b := range packets {
		attributes, _ := radius.ParseAttributes(b[20:])
		id, _ := attributes.Find(radius.AcctSessionID)
		list = append(list, strings.TrimLeft(string(id[8:15]), "0")+string(id[15:16]))
	}
	return strings.Join(list, " ")
}

// TestAccountingKeys has what the keys of accounting say in the engine and the client.
func TestAccountingKeys(t *testing.T) {
	configtest.InEffect(t, "ggsn", "accounting_file", "accounting_size")
	configtest.InEffect(t, "ggsn.radius", "use", "accounting_port")
	configtest.InEffect(t, "ggsn.apn", "accounting", "accounting_interval")
	dir := t.TempDir()
	secret, spool := filepath.Join(dir, "secret"), filepath.Join(dir, "spool")
	writePrivate(t, secret, "xyzzy5461")
	cfg := written(t, "accounting_file = \""+spool+"\"\naccounting_size = 1048576\n"+
		"[[ggsn.radius]]\naddress = \"192.0.2.10\"\nuse = \"accounting\"\naccounting_port = 1646\nsecret_file = \""+secret+"\"\n"+
		"[[ggsn.radius]]\naddress = \"192.0.2.11\"\nuse = \"both\"\nsecret_file = \""+secret+"\"\n"+
		"[[ggsn.radius]]\naddress = \"192.0.2.12\"\nsecret_file = \""+secret+"\"\n",
		"accounting = \"radius\"\naccounting_interval = \"10m\"")
	for of, want := range map[Use]string{Accounting: "192.0.2.10:1646 192.0.2.11:1813", Authentication: "192.0.2.11:1812 192.0.2.12:1812"} {
		s, err := cfg.radiusSettings(of)
		var got []string
		for _, one := range s.Servers {
			got = append(got, one.Address.String())
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, %v", of, got, err)
		}
	}
	e, err := engineSettings(&cfg, nil, nil, 0)
	if err != nil || !e.APNs[0].Account || e.APNs[0].Interim != 10*time.Minute {
		t.Errorf("%+v, %v", e.APNs, err)
	}
	to, err := cfg.readServers()
	if err != nil {
		t.Fatal(err)
	}
	a, err := openAccountant(&cfg, to.accounting, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for range 3000 { // of about 400 octets
		a.add([]ggsn.Event{told(ggsn.ContextDeleted, 0)})
	}
	if full := a.spool.Info(); full.Refused == 0 || full.Octets > 1<<20 || full.Octets < 1<<20-1000 {
		t.Errorf("%+v", full)
	}
	a.close()
	if err := a.spool.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := kept.OpenSpool(spool, 1<<20, sessionOf)
	if err != nil || s.Info().Records == 0 {
		t.Errorf("nothing is in %s: %v", spool, err)
	}
}

// BenchmarkAccount is what a record costs the loop of the engine until it is in the file.
func BenchmarkAccount(b *testing.B) {
	a := newAccountant(b)
	events := []ggsn.Event{told(ggsn.ContextDeleted, ggsn.EndIdle)}
	b.ReportAllocs()
	for b.Loop() {
		a.add(events)
		n, _, _ := a.spool.Take()
		a.spool.Done(n)
	}
}
