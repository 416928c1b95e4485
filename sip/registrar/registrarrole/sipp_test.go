// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/peers/peerstest"
)

// registration registers alice, who is challenged.
const registration = `<?xml version="1.0" encoding="ISO-8859-1" ?>
<scenario name="register">
<send retrans="500"><![CDATA[

REGISTER sip:example.net SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch];rport
From: <sip:alice@example.net>;tag=[call_number]
To: <sip:alice@example.net>
Call-ID: [call_id]
CSeq: 1 REGISTER
Contact: <sip:alice@[local_ip]:[local_port]>
Max-Forwards: 70
Expires: 600
Content-Length: 0

]]></send>
<recv response="401" auth="true"/>
<send retrans="500"><![CDATA[

REGISTER sip:example.net SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch];rport
From: <sip:alice@example.net>;tag=[call_number]
To: <sip:alice@example.net>
Call-ID: [call_id]
CSeq: 2 REGISTER
Contact: <sip:alice@[local_ip]:[local_port]>
[authentication username=alice password=alice]
Max-Forwards: 70
Expires: 600
Content-Length: 0

]]></send>
<recv response="200"/>
</scenario>
`

// calling calls bob, and hangs up.
const calling = `<?xml version="1.0" encoding="ISO-8859-1" ?>
<scenario name="call">
<send retrans="500"><![CDATA[

INVITE sip:bob@example.net SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch];rport
From: <sip:carol@elsewhere.example.com>;tag=[call_number]
To: <sip:bob@example.net>
Call-ID: [call_id]
CSeq: 1 INVITE
Contact: <sip:carol@[local_ip]:[local_port];transport=[transport]>
Max-Forwards: 70
Content-Length: 0

]]></send>
<recv response="100" optional="true"/>
<recv response="180" optional="true"/>
<recv response="200" rrs="true"/>
<send><![CDATA[

ACK [next_url] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch];rport
[routes]
From: <sip:carol@elsewhere.example.com>;tag=[call_number]
To: <sip:bob@example.net>[peer_tag_param]
Call-ID: [call_id]
CSeq: 1 ACK
Max-Forwards: 70
Content-Length: 0

]]></send>
<send retrans="500"><![CDATA[

BYE [next_url] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch];rport
[routes]
From: <sip:carol@elsewhere.example.com>;tag=[call_number]
To: <sip:bob@example.net>[peer_tag_param]
Call-ID: [call_id]
CSeq: 2 BYE
Max-Forwards: 70
Content-Length: 0

]]></send>
<recv response="200"/>
</scenario>
`

// answering answers calls until the caller hangs up.
const answering = `<?xml version="1.0" encoding="ISO-8859-1" ?>
<scenario name="answer">
<recv request="INVITE"/>
<send><![CDATA[

SIP/2.0 180 Ringing
[last_Via:]
[last_Record-Route:]
[last_From:]
[last_To:];tag=[call_number]
[last_Call-ID:]
[last_CSeq:]
Contact: <sip:bob@[local_ip]:[local_port];transport=[transport]>
Content-Length: 0

]]></send>
<send retrans="500"><![CDATA[

SIP/2.0 200 OK
[last_Via:]
[last_Record-Route:]
[last_From:]
[last_To:];tag=[call_number]
[last_Call-ID:]
[last_CSeq:]
Contact: <sip:bob@[local_ip]:[local_port];transport=[transport]>
Content-Length: 0

]]></send>
<recv request="ACK"/>
<recv request="BYE"/>
<send><![CDATA[

SIP/2.0 200 OK
[last_Via:]
[last_From:]
[last_To:]
[last_Call-ID:]
[last_CSeq:]
Content-Length: 0

]]></send>
</scenario>
`

// sippCalls is how many of each kind there are, and sippRate how many a second.
const sippCalls, sippRate = 300, 200

// TestSippRegisters has sipp register some hundred times, by UDP and by TCP.
func TestSippRegisters(t *testing.T) {
	w := newWorld(t)
	all := peerstest.Find(t)
	ns, server, terminal := w.home(1)
	s := w.serve(fmt.Sprintf("listen = [%q]\nlisten_tls = []\nalgorithms = [\"MD5\"]", server))
	for i, tcp := range []bool{false, true} {
		command, err := all.Sipp(w.dir, peers.Sipp{
			Name: fmt.Sprint("sipp", tcp), Scenario: registration, Domain: domain, Local: netip.AddrPortFrom(terminal, uint16(5080+i)), Remote: netip.AddrPortFrom(server, sipPort),
			TCP: tcp, Calls: sippCalls, Rate: sippRate,
		})
		cmd, out := start(t, ns, command, err)
		if err := cmd.Wait(); err != nil {
			t.Errorf("by TCP %t: %v\n%s", tcp, err, out)
		}
		if n := s.value("registrations_total", ""); n < float64((i+1)*sippCalls) {
			t.Errorf("by TCP %t: %v registrations", tcp, n)
		}
	}
	if n := len(s.has(t, "alice@example.net")); n != 2 {
		t.Errorf("%d bindings", n)
	}
}

// TestSippCalls has sipp call sipp some hundred times through the proxy, from UDP to TCP and from TCP
// to UDP. None fails.
func TestSippCalls(t *testing.T) {
	w := newWorld(t)
	all := peerstest.Find(t)
	callers, callerSide, caller := w.home(1)
	callees, calleeSide, callee := w.home(2)
	s := w.serve(fmt.Sprintf("listen = [%q, %q, %q]\nlisten_tls = []", callerSide, calleeSide, server6))
	bob := w.phone("bob", "UDP", server6, 2)
	for i, tt := range []struct{ from, to bool }{{false, true}, {true, false}} {
		port := uint16(5080 + i)
		transport := "udp"
		if tt.to {
			transport = "tcp"
		}
		bob.ask("REGISTER", "sip:"+domain, "Contact: *", "Expires: 0")
		if _, r := bob.ask("REGISTER", "sip:"+domain, fmt.Sprintf("Contact: <sip:bob@[%s]:%d;transport=%s>", callee, port, transport)); r.Status != 200 {
			t.Fatal(r)
		}
		run := func(scenario, name string, of netip.Addr, side netip.Addr, tcp bool) (*peers.Command, error) {
			return all.Sipp(w.dir, peers.Sipp{
				Name: fmt.Sprint(name, i), Scenario: scenario, Domain: domain, Local: netip.AddrPortFrom(of, port), Remote: netip.AddrPortFrom(side, sipPort),
				TCP: tcp, Calls: sippCalls, Rate: sippRate,
			})
		}
		command, err := run(answering, "callee", callee, calleeSide, tt.to)
		answers, answered := start(t, callees, command, err)
		command, err = run(calling, "caller", caller, callerSide, tt.from)
		calls, called := start(t, callers, command, err)
		if err := calls.Wait(); err != nil {
			t.Errorf("from TCP %t to TCP %t: %v\n%s", tt.from, tt.to, err, called)
		}
		if err := answers.Wait(); err != nil {
			t.Errorf("from TCP %t to TCP %t, the callee: %v\n%s", tt.from, tt.to, err, answered)
		}
	}
	if n := s.value("requests_total", "unproved"); n != 0 {
		t.Errorf("%v were not proved", n)
	}
}
