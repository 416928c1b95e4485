// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/radius"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/peers/peerstest"
)

// dynamicNode reads requests for the node of [newAccountant].
func dynamicNode(t *testing.T) *dynamic {
	a := newAccountant(t)
	d := &dynamic{name: a.name, at: a.at}
	d.apns.Store(a.apns.Load())
	return d
}

// prefixesOf are prefixes of a link.
func prefixesOf(list ...netip.Prefix) func(*radius.Attributes) {
	return func(a *radius.Attributes) {
		for _, p := range list {
			a.Prefix(radius.FramedIPv6Prefix, p)
		}
	}
}

// TestDynamicNames has each attribute name the context that has it, and no other.
func TestDynamicNames(t *testing.T) {
	d, x := dynamicNode(t), told(ggsn.ContextUpdated, 0).Context
	further, former := netip.MustParsePrefix("2001:db8:6000:9::/64"), netip.MustParsePrefix("2001:db8:5000:1::/64")
	x.Further6, x.Former6 = []netip.Prefix{further}, []netip.Prefix{former}
	session := sessionID(d.at[0], x.ChargingID, x.Created)
	for what, one := range map[string]struct{ right, wrong func(*radius.Attributes) }{
		"Acct-Session-Id":        {text(radius.AcctSessionID, session), text(radius.AcctSessionID, session[:len(session)-1]+"F")},
		"User-Name":              {text(radius.UserName, "nemo"), text(radius.UserName, "Nemo")},
		"Calling-Station-Id":     {text(radius.CallingStationID, "15550100"), text(radius.CallingStationID, "15550101")},
		"Framed-IP-Address":      {ofHost(radius.FramedIPAddress, "10.45.0.1"), ofHost(radius.FramedIPAddress, "10.45.0.2")},
		"Framed-IPv6-Prefix":     {prefixesOf(x.Prefix6), prefixesOf(netip.MustParsePrefix("2001:db8:6000::/48"))},
		"the former one":         {prefixesOf(former), prefixesOf(netip.MustParsePrefix("2001:db8:5000:2::/64"))},
		"all Framed-IPv6-Prefix": {prefixesOf(x.Prefix6, further, former), prefixesOf(x.Prefix6, further, netip.MustParsePrefix("2001:db8:6000:99::/64"))},
		"Framed-IPv6-Address":    {ofHost(radius.FramedIPv6Address, "2001:db8:6000:1::7"), ofHost(radius.FramedIPv6Address, "2001:db8:6000:2::7")},
	} {
		for _, right := range []bool{true, false} {
			var a radius.Attributes
			if right {
				one.right(&a)
			} else {
				one.wrong(&a)
			}
			who, _, cause := d.read(radius.DisconnectRequest, &a)
			if cause != 0 || who.matches(&x, d.at[0], UserOfTerminal) != right {
				t.Errorf("%s, right %t: cause %v, %+v", what, right, cause, who)
			}
		}
	}
	var a radius.Attributes
	a.GPPText(gppIMSI, "240010000000003")
	a.GPPText(gppNSAPI, "A")
	a.Text(radius.CalledStationID, "internet")
	who, _, cause := d.read(radius.DisconnectRequest, &a)
	if cause != 0 || who.IMSI != x.IMSI || *who.NSAPI != 10 || who.APN != "internet" {
		t.Errorf("by 3GPP's: cause %v, %+v", cause, who)
	}
	if id := chargingIDOf(session); *id != x.ChargingID {
		t.Errorf("the Charging-ID of %s is %x", session, *id)
	}
}

func text(t radius.Type, s string) func(*radius.Attributes) {
	return func(a *radius.Attributes) { a.Text(t, s) }
}

func ofHost(t radius.Type, s string) func(*radius.Attributes) {
	return func(a *radius.Attributes) { a.Octets(t, netip.MustParseAddr(s).AsSlice()) }
}

func seconds(t radius.Type, n uint32) func(*radius.Attributes) {
	return func(a *radius.Attributes) { a.Integer(t, n) }
}

// TestDynamicRefused refuses requests by what is wrong with them.
func TestDynamicRefused(t *testing.T) {
	d := dynamicNode(t)
	of3GPP := func(t byte, s string) func(*radius.Attributes) { return func(a *radius.Attributes) { a.GPPText(t, s) } }
	other := func(a *radius.Attributes) { a.Octets(radius.VendorSpecific, []byte{0, 0, 0, 9, 1, 3, 'x'}) }
	short := func(a *radius.Attributes) {
		a.Octets(radius.VendorSpecific, append(binary.BigEndian.AppendUint32(nil, radius.Vendor3GPP), 1, 9, 'x'))
	}
	teardown := func(n byte) func(*radius.Attributes) {
		return func(a *radius.Attributes) { a.GPP(gppTeardown, []byte{n}) }
	}
	nemo := text(radius.UserName, "nemo")
	type attributes []func(*radius.Attributes)
	for what, one := range map[string]struct {
		code  radius.Code
		with  attributes
		cause radius.ErrorCause
	}{
		"nothing":               {radius.DisconnectRequest, nil, radius.MissingAttribute},
		"the node alone":        {radius.DisconnectRequest, attributes{text(radius.NASIdentifier, "ggsn"), ofHost(radius.NASIPAddress, "192.0.2.1"), ofHost(radius.NASIPv6Address, "2001:db8:9::1")}, radius.MissingAttribute},
		"an NSAPI alone":        {radius.DisconnectRequest, attributes{of3GPP(gppNSAPI, "5")}, radius.MissingAttribute},
		"another node":          {radius.DisconnectRequest, attributes{nemo, ofHost(radius.NASIPAddress, "192.0.2.2")}, radius.NASMismatch},
		"another node by IPv6":  {radius.DisconnectRequest, attributes{nemo, ofHost(radius.NASIPv6Address, "2001:db8:9::2")}, radius.NASMismatch},
		"another name":          {radius.CoARequest, attributes{nemo, text(radius.NASIdentifier, "nas")}, radius.NASMismatch},
		"two names":             {radius.DisconnectRequest, attributes{nemo, nemo}, radius.InvalidRequest},
		"two IMSIs":             {radius.DisconnectRequest, attributes{of3GPP(gppIMSI, "240010000000003"), of3GPP(gppIMSI, "240010000000004")}, radius.InvalidRequest},
		"no IMSI":               {radius.DisconnectRequest, attributes{of3GPP(gppIMSI, "nemo")}, radius.InvalidRequest},
		"no NSAPI":              {radius.DisconnectRequest, attributes{nemo, of3GPP(gppNSAPI, "16")}, radius.InvalidRequest},
		"no address":            {radius.DisconnectRequest, attributes{text(radius.FramedIPAddress, "123")}, radius.InvalidRequest},
		"no second prefix":      {radius.DisconnectRequest, attributes{prefixesOf(netip.MustParsePrefix("2001:db8:6000:1::/64")), text(radius.FramedIPv6Prefix, "1")}, radius.InvalidRequest},
		"no prefix":             {radius.DisconnectRequest, attributes{text(radius.FramedIPv6Prefix, "1")}, radius.InvalidRequest},
		"another vendor":        {radius.DisconnectRequest, attributes{nemo, other}, radius.UnsupportedAttribute},
		"a vendor's, cut short": {radius.DisconnectRequest, attributes{nemo, short}, radius.UnsupportedAttribute},
		"a port":                {radius.DisconnectRequest, attributes{nemo, seconds(5, 1)}, radius.UnsupportedAttribute},
		"a change":              {radius.DisconnectRequest, attributes{nemo, seconds(radius.SessionTimeout, 60)}, radius.UnsupportedAttribute},
		"a profile":             {radius.DisconnectRequest, attributes{nemo, of3GPP(gppQoS, "98-020B921F")}, radius.UnsupportedAttribute},
		"one context of more":   {radius.DisconnectRequest, attributes{nemo, teardown(0)}, radius.InvalidValue},
		"disconnected":          {radius.DisconnectRequest, attributes{nemo, teardown(1), text(radius.Class, "gold"), text(radius.ProxyState, "1"), text(radius.ProxyState, "1")}, 0},
		"no change":             {radius.CoARequest, attributes{nemo}, radius.MissingAttribute},
		"a filter":              {radius.CoARequest, attributes{nemo, seconds(radius.SessionTimeout, 60), text(11, "x")}, radius.UnsupportedAttribute},
		"Authorize Only":        {radius.CoARequest, attributes{nemo, seconds(radius.ServiceType, 17)}, radius.UnsupportedService},
		"no time":               {radius.CoARequest, attributes{nemo, text(radius.SessionTimeout, "60")}, radius.InvalidRequest},
		"a time of nothing":     {radius.CoARequest, attributes{nemo, seconds(radius.IdleTimeout, 0)}, radius.InvalidValue},
		"too often":             {radius.CoARequest, attributes{nemo, seconds(radius.AcctInterimInterval, 59)}, radius.InvalidValue},
		"no profile":            {radius.CoARequest, attributes{nemo, of3GPP(gppQoS, "98-02")}, radius.InvalidValue},
		"another release":       {radius.CoARequest, attributes{nemo, of3GPP(gppQoS, "99-020B921F")}, radius.InvalidValue},
		"too long a profile":    {radius.CoARequest, attributes{nemo, of3GPP(gppQoS, "05-"+strings.Repeat("00", 22))}, radius.InvalidValue},
	} {
		var a radius.Attributes
		for _, add := range one.with {
			add(&a)
		}
		if _, _, cause := d.read(one.code, &a); cause != one.cause {
			t.Errorf("%s: %v, want %v", what, cause, one.cause)
		}
	}
	for err, want := range map[error]radius.ErrorCause{
		nil: 0, ggsn.ErrGone: radius.SessionNotFound, ggsn.ErrProhibited: radius.Prohibited, ggsn.ErrValue: radius.InvalidValue,
		ggsn.ErrSeveral: radius.MultipleSessionsRefused, ggsn.ErrBusy: radius.ResourcesUnavailable, errNotRunning: radius.ResourcesUnavailable,
	} {
		if cause := causeOfError(err); cause != want {
			t.Errorf("%v: %v, want %v", err, cause, want)
		}
	}
}

// TestDynamicChange reads all that can change.
func TestDynamicChange(t *testing.T) {
	var a radius.Attributes
	a.Text(radius.UserName, "nemo")
	a.Integer(radius.SessionTimeout, 3600)
	a.Integer(radius.IdleTimeout, 60)
	a.Integer(radius.AcctInterimInterval, 600)
	a.Octets(radius.Class, []byte("gold"))
	a.GPPText(gppQoS, "98-020b921f")
	_, to, cause := dynamicNode(t).read(radius.CoARequest, &a)
	if cause != 0 || to.SessionLimit.Value != time.Hour || to.IdleLimit.Value != time.Minute || to.Interim.Value != 10*time.Minute ||
		!bytes.Equal(to.QoS.Value.Octets(), []byte{2, 0x0b, 0x92, 0x1f}) || len(to.Class) != 1 {
		t.Errorf("cause %v, %+v", cause, to)
	}
}

// radclient has FreeRADIUS's client send a request to the node, and returns what it prints.
func (c *core) radclient(t *testing.T, to netip.Addr, command, secret, attributes string) string {
	t.Helper()
	path, err := peerstest.Find(t).Program("radclient")
	if err != nil {
		testutil.Missing(t, err)
	}
	cmd := exec.Command(path, "-x", "-D", "/usr/share/freeradius", "-r", "1", "-t", "3", netip.AddrPortFrom(to, 3799).String(), command, secret)
	cmd.Stdin = strings.NewReader(attributes + "\n")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	c.ns.Do(t, cmd.Start)
	_ = cmd.Wait() // a refusal is an error to it
	return said.String()
}

// TestRadclient has radclient change and end sessions, by each family, of a server that must say when it asks and
// of one that need not, and FreeRADIUS told of the end. Another name for terminals counts from a reload on; the
// metrics have all answers, and what got none.
func TestRadclient(t *testing.T) {
	configtest.InEffect(t, "ggsn", "dynamic_port")
	configtest.InEffect(t, "ggsn.radius", "dynamic", "timestamp")
	for _, timestamp := range []bool{true, false} {
		at := nodeAddr[timestamp]
		t.Run(at.String(), func(t *testing.T) {
			c, node, apn := newDynamicCore(t, at, timestamp)
			file := filepath.Join(t.TempDir(), "detail")
			c.startAccounting(t, peers.FreeRADIUS{Listen: netip.AddrPortFrom(at, 1812), Secret: "xyzzy5461", Detail: file})
			p := c.serve(t)
			c.open(t, 1, false)
			c.attach(t, 2, withPAP("nemo", "arctangent"))
			await(t, func() bool { return len(detail(t, file)) == 3 })
			session := detail(t, file)[1]["Acct-Session-Id"]
			now := fmt.Sprintf(", Event-Timestamp = %d", time.Now().Unix())
			ask := func(command, secret, attributes, want string) {
				t.Helper()
				if said := c.radclient(t, at, command, secret, attributes); !strings.Contains(said, want) {
					t.Errorf("%s %s: want %s\n%s", command, attributes, want, said)
				}
			}
			undated := map[bool]string{true: "No reply", false: "Received CoA-ACK"}[timestamp]
			ask("coa", "xyzzy5461", "Acct-Session-Id = "+session+", Session-Timeout = 3600, Message-Authenticator = 0x00"+now, "Received CoA-ACK")
			ask("coa", "xyzzy5461", "User-Name = nobody, Session-Timeout = 3600"+now, "Error-Cause = Session-Context-Not-Found")
			ask("coa", "xyzzy5461", "User-Name = nemo, Session-Timeout = 3600"+now, "Received CoA-ACK")
			ask("coa", "xyzzy5461", "Acct-Session-Id = "+session+", Filter-Id = x"+now, "Error-Cause = Unsupported-Attribute")
			ask("coa", "xyzzy5461", "Acct-Session-Id = "+session+", Session-Timeout = 3600", undated)
			ask("disconnect", "xyzzy5461", "Acct-Session-Id = "+session+", NAS-Identifier = other"+now, "Error-Cause = NAS-Identification-Mismatch")
			ask("disconnect", "another", "Acct-Session-Id = "+session+now, "No reply")
			c.write(t, node, apn+"radius_user = \"imsi\"\n")
			p.Signal(t, syscall.SIGHUP)
			p.AwaitLog(t, "reload")
			// The same as before, with the same random identifier, would be answered as before.
			ask("coa", "xyzzy5461", "User-Name = nemo, Session-Timeout = 7200"+now, "Error-Cause = Session-Context-Not-Found")
			ask("coa", "xyzzy5461", "User-Name = 240010000000002, Session-Timeout = 3600"+now, "Received CoA-ACK")
			ask("disconnect", "xyzzy5461", "Acct-Session-Id = "+session+now, "Received Disconnect-ACK")
			c.answerDelete(t)
			await(t, func() bool { return len(detail(t, file)) == 4 })
			if stop := detail(t, file)[3]; stop["Acct-Status-Type"] != "Stop" || stop["Acct-Session-Id"] != session || stop["Acct-Terminate-Cause"] != "Admin-Reset" {
				t.Errorf("told %v", stop)
			}
			if n := c.status(t).Contexts; n != 1 {
				t.Errorf("%d contexts are left", n)
			}
			changed, dropped := 4, 0
			if timestamp {
				changed, dropped = 3, 1
			}
			const requests, drops = `isthmus_ggsn_dynamic_requests_total{instance="ggsn",`, `isthmus_ggsn_dynamic_dropped_total{instance="ggsn",`
			c.metrics(t,
				fmt.Sprint(requests, `reason="acknowledged",verdict="change"} `, changed), requests+`reason="session_not_found",verdict="change"} 2`,
				requests+`reason="unsupported_attribute",verdict="change"} 1`, requests+`reason="nas_mismatch",verdict="change"} 0`,
				requests+`reason="acknowledged",verdict="disconnect"} 1`, requests+`reason="nas_mismatch",verdict="disconnect"} 1`,
				fmt.Sprint(drops, `reason="undated"} `, dropped), drops+`reason="authenticator"} 1`, drops+`reason="stranger"} 0`)
		})
	}
}

// newDynamicCore is a core whose server for accounting may end and change sessions, with the keys of its node and
// of its access point.
func newDynamicCore(t *testing.T, server netip.Addr, timestamp bool) (c *core, node, apn string) {
	t.Helper()
	dir := t.TempDir()
	writePrivate(t, filepath.Join(dir, "secret"), "xyzzy5461\n")
	node = fmt.Sprintf("dynamic_port = 3799\naccounting_file = %q\n[[ggsn.radius]]\naddress = %q\nuse = \"accounting\"\ndynamic = true\ntimestamp = %t\nsecret_file = %q\n[metrics]\nlisten = \"127.0.0.1:9464\"\n",
		filepath.Join(dir, "spool"), server, timestamp, filepath.Join(dir, "secret"))
	apn = "pool4 = [\"10.45.0.0/16\"]\npool6 = [\"2001:db8:6000::/44\"]\naccounting = \"radius\"\n"
	return newCore(t, node, apn), node, apn
}

// metrics fails unless the program tells all of these.
func (c *core) metrics(t *testing.T, want ...string) {
	t.Helper()
	var conn net.Conn
	c.ns.Do(t, func() (err error) { conn, err = net.Dial("tcp", "127.0.0.1:9464"); return err })
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /metrics HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range want {
		if !strings.Contains(string(text), one+"\n") {
			t.Errorf("no %s in\n%s", one, text)
		}
	}
}

// answerDelete answers the Delete Request of the node.
func (c *core) answerDelete(t *testing.T) {
	t.Helper()
	conn, buf := c.control[false], make([]byte, 2048)
	_ = conn.SetReadDeadline(time.Now().Add(testutil.Patience))
	for {
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		h, err := gtp.ParseHeader(buf[:n])
		if err != nil || h.Type != gtp.TypeDeleteRequest {
			continue
		}
		b, err := c.codec.Append(nil, gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: h.Sequence}, &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.WriteToUDPAddrPort(b, netip.AddrPortFrom(nodeAddr[false], gtp.PortControl)); err != nil {
			t.Fatal(err)
		}
		return
	}
}
