// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/radius"
)

// names are attributes, each of which names a context alone.
func names(d *dynamic, x *ggsn.ContextInfo) []attributeOf {
	return []attributeOf{
		{"Acct-Session-Id", text(radius.AcctSessionID, sessionID(d.at[0], x.ChargingID, x.Created)), true},
		{"Framed-IP-Address", ofHost(radius.FramedIPAddress, x.Address4.String()), true},
		{"Framed-IPv6-Prefix", func(a *radius.Attributes) { a.Prefix(radius.FramedIPv6Prefix, x.Prefix6) }, true},
		{"Framed-IPv6-Address", ofHost(radius.FramedIPv6Address, x.Prefix6.Addr().Next().String()), true},
		{"3GPP-IMSI", func(a *radius.Attributes) { a.GPPText(gppIMSI, x.IMSI.String()) }, true},
		{"Calling-Station-Id", text(radius.CallingStationID, x.MSISDN.String()), false},
		{"User-Name", text(radius.UserName, string(x.Account.User)), false},
	}
}

// attributeOf names a context.
type attributeOf struct {
	name   string
	add    func(*radius.Attributes)
	direct bool // there is an index for it
}

// BenchmarkDynamicFind finds one of 100,000 contexts by each attribute, and none by the name of nobody.
func BenchmarkDynamicFind(b *testing.B) {
	d, x := crowded(b, 100_000)
	for _, by := range append(names(d, &x), attributeOf{"nobody", text(radius.UserName, "nemo"), false}) {
		b.Run(by.name, func(b *testing.B) {
			var a radius.Attributes
			by.add(&a)
			for b.Loop() {
				who, _, cause := d.read(radius.DisconnectRequest, &a)
				if found, _ := d.find(who); cause != 0 || (len(found) == 1) == (by.name == "nobody") {
					b.Fatalf("cause %v, %d found", cause, len(found))
				}
			}
		})
	}
}

// TestDynamicFind finds one of many contexts by each attribute alone, and bounds how often all are looked at.
func TestDynamicFind(t *testing.T) {
	d, x := crowded(t, 20)
	now := x.Created
	disconnect := func(add func(*radius.Attributes)) radius.ErrorCause {
		var a radius.Attributes
		add(&a)
		return d.apply(radius.DisconnectRequest, &a, now)
	}
	for _, by := range names(d, &x) {
		var a radius.Attributes
		by.add(&a)
		who, _, cause := d.read(radius.DisconnectRequest, &a)
		if found, _ := d.find(who); cause != 0 || len(found) != 1 || found[0].ChargingID != x.ChargingID {
			t.Errorf("by %s: cause %v, %v", by.name, cause, found)
		}
		if who.Direct() != by.direct {
			t.Errorf("by %s: direct %t", by.name, who.Direct())
		}
	}
	nobody := text(radius.UserName, "nemo")
	for range 100 {
		if cause := disconnect(nobody); cause != radius.SessionNotFound {
			t.Fatal(cause)
		}
	}
	for _, by := range names(d, &x) {
		if cause := disconnect(by.add); (cause == radius.ResourcesUnavailable) == by.direct {
			t.Errorf("by %s, after too many that take long: %v", by.name, cause)
		}
	}
	now = now.Add(100 * time.Millisecond)
	for _, want := range []radius.ErrorCause{radius.SessionNotFound, radius.ResourcesUnavailable} {
		if cause := disconnect(nobody); cause != want {
			t.Errorf("a tenth of a second later: %v, want %v", cause, want)
		}
	}
}

// TestDynamicOfTwoNetworks: a server that names an address ends no session of a network that it does not mean.
func TestDynamicOfTwoNetworks(t *testing.T) {
	d := &dynamic{node: nodeOfTwo(t), name: "ggsn", at: []netip.Addr{source.v4, source.v6}}
	d.apns.Store(&map[string]toldOf{"red": {user: UserOfTerminal}, "blue": {user: UserOfTerminal}})
	for _, tt := range []struct {
		name string
		apn  string
		want radius.ErrorCause
	}{
		{"of any network", "", radius.MultipleSessionsRefused},
		{"of another", "main", radius.SessionNotFound},
		{"of one", "red", 0},
	} {
		var a radius.Attributes
		ofHost(radius.FramedIPAddress, "10.45.0.9")(&a)
		if tt.apn != "" {
			a.Text(radius.CalledStationID, tt.apn)
		}
		if cause := d.apply(radius.DisconnectRequest, &a, time.Unix(1_800_000_000, 0)); cause != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, cause, tt.want)
		}
	}
}

// crowded is a node with so many contexts, of terminals that say by PAP who they are, and one of them.
func crowded(t testing.TB, n int) (d *dynamic, x ggsn.ContextInfo) {
	b := benchOf(t, "max_contexts = 200000\nrequest_rate = 100000000\ncharging_file = \"/charging.jsonl\"",
		"pool4 = [\"10.64.0.0/12\"]\npool6 = [\"2001:db8:8000::/34\"]\naccounting = \"file\"")
	for i := range n {
		m := request(i, sgsn, gtp.PDPTypeIPv4v6)
		number, err := gtp.ParseMSISDN(fmt.Sprint(15550000000 + i))
		if err != nil {
			t.Fatal(err)
		}
		user := fmt.Appendf(nil, "user-%d", i)
		pap := gtp.PPP{Code: gtp.PAPRequest, Data: append(append([]byte{byte(len(user))}, user...), 0)}
		o, _ := gtp.NewPCO(nil).Add(gtp.ContainerPAP, pap.Append(nil))
		m.MSISDN, m.PCO = gtp.Some(number), gtp.Some(o)
		if i%1000 == 0 {
			b.now = b.now.Add(time.Second)
		}
		if r := b.create(sgsn, m); !r.Cause.Accepted() {
			t.Fatal(r.Cause)
		}
	}
	g := &GGSN{}
	g.loop.Engine, g.loop.NewOutput = b.Engine, func() *ggsn.Output { return new(ggsn.Output) }
	g.engine.Store(b.Engine)
	d = &dynamic{node: g, name: "ggsn", at: []netip.Addr{source.v4, source.v6}}
	d.apns.Store(&map[string]toldOf{"internet": {user: UserOfTerminal}})
	b.Contexts(ggsn.Selection{}, uint32(n/2), 1, func(one ggsn.ContextInfo) bool { x = one; return true })
	return d, x
}
