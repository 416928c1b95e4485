// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/peers/peerstest"
	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/ua"
	"github.com/isthmus-net/isthmus/sip/ua/agent"
)

// scenario is one of sipp's by its steps.
func scenario(steps ...string) string {
	return `<?xml version="1.0" encoding="ISO-8859-1" ?><scenario name="own">` + strings.Join(steps, "\n") + `</scenario>`
}

// session is a description with a format of sound.
func session(format string) string {
	return "v=0\no=user1 1 1 IN IP[media_ip_type] [media_ip]\ns=-\nc=IN IP[media_ip_type] [media_ip]\nt=0 0\nm=audio [media_port] RTP/AVP " + format + "\n"
}

// sends is a step that sends one, with a body or "".
func sends(repeated bool, start, headers, body string) string {
	attribute := ""
	if repeated {
		attribute = ` retrans="500"`
	}
	if body != "" {
		headers += "Content-Type: application/sdp\n"
	}
	return "<send" + attribute + "><![CDATA[\n\n" + start + "\n" + headers + "Contact: <sip:sipp@[local_ip]:[local_port]>\nContent-Length: [len]\n\n" + body + "\n]]></send>"
}

// asks is a request of a caller, as is the ACK.
func asks(method, number, body string) string {
	return sends(method != "ACK", method+" sip:alice@[remote_ip]:[remote_port] SIP/2.0",
		"Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\nFrom: <sip:sipp@[local_ip]>;tag=[call_number]\n"+
			"To: <sip:alice@[remote_ip]>[peer_tag_param]\nCall-ID: [call_id]\nCSeq: "+number+" "+method+"\nMax-Forwards: 70\n", body)
}

// says is a response to the last request; the first in a dialog has a tag to add.
func says(status, tag, body string) string {
	return sends(strings.HasPrefix(status, "200") && body != "", "SIP/2.0 "+status, "[last_Via:]\n[last_From:]\n[last_To:]"+tag+"\n[last_Call-ID:]\n[last_CSeq:]\n", body)
}

const (
	tag    = ";tag=[call_number]"
	pause  = `<pause milliseconds="700"/>`
	taken  = `<recv response="100" optional="true"/><recv response="180" optional="true"/><recv response="200"/>`
	refuse = `<recv response="100" optional="true"/><recv response="488"/>`
)

func comes(method string) string { return `<recv request="` + method + `"/>` }

// answered is a call that a server of sipp's takes.
func answered() string {
	return `<recv request="INVITE"><action><ereg regexp=" .*" search_in="hdr" header="From:" assign_to="caller"/></action></recv><Reference variables="caller"/>` +
		says("200 OK", tag, session("0")) + comes("ACK")
}

// TestSippCalls has sipp call: it is content if all of a scenario comes about.
func TestSippCalls(t *testing.T) {
	t.Parallel()
	all := peerstest.Find(t)
	called := asks("INVITE", "1", session("0")) + taken + asks("ACK", "1", "")
	for _, row := range []struct {
		name     string
		scenario string // "": sipp's own
		plan
	}{
		{"sipp's own", "", plan4},
		{"sipp's own by IPv6", "", plan6},
		{"a re-INVITE without offer", scenario(called, asks("INVITE", "2", ""),
			`<recv response="100" optional="true"/><recv response="200"><action><ereg regexp="m=audio [1-9]" search_in="body" check_it="true" assign_to="offer"/></action></recv>`,
			asks("ACK", "2", session("0")), asks("BYE", "3", ""), taken, `<Reference variables="offer"/>`), plan6},
		{"a re-INVITE without a codec of ours is refused, and the call goes on", scenario(called, asks("INVITE", "2", session("18")),
			refuse, asks("ACK", "2", ""), asks("INVITE", "3", session("8")), taken, asks("ACK", "3", ""), asks("BYE", "4", ""), taken), plan4},
		{"the first 200, or its ACK, is lost", scenario(asks("INVITE", "1", session("0")), taken, pause, asks("ACK", "1", ""), asks("BYE", "2", ""), taken), plan6},
		{"the 200 of a re-INVITE, or its ACK, is lost", scenario(called, asks("INVITE", "2", session("0")), taken, pause, asks("ACK", "2", ""), asks("BYE", "3", ""), taken), plan4},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNet3(t, row.plan)
			alice := start(t, n.mobile, "alice", new(media.Tally))
			awaitPaths(t, alice, row.mobileA, 2)
			c := peers.Sipp{
				Name: "sipp", Scenario: row.scenario, User: "alice", Calls: 3, Rate: 100,
				Local: netip.AddrPortFrom(netip.MustParseAddr(row.peer), 5080), Remote: netip.AddrPortFrom(netip.MustParseAddr(row.mobileA), 5060),
			}
			if row.scenario == "" {
				c.Standard = "uac"
			}
			command, err := all.Sipp(t.TempDir(), c)
			p := startProgram(t, n.peer, command, err)
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
			s, err := alice.State(t.Context())
			if err != nil || len(s.Calls) > 0 {
				t.Errorf("%d calls are left, %v", len(s.Calls), err)
			}
		})
	}
}

// TestSippIsCalled has us call sipp, which is content if all of its scenario comes about.
func TestSippIsCalled(t *testing.T) {
	t.Parallel()
	all := peerstest.Find(t)
	held := func(t *testing.T, a *agent.Agent, id ua.CallID, outcome ua.Kind) {
		if err := a.Hold(t.Context(), id, true); err != nil {
			t.Fatal(err)
		}
		await(t, a, outcome)
	}
	hangUp := func(t *testing.T, a *agent.Agent, id ua.CallID) {
		if err := a.HangUp(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	ended := comes("BYE") + says("200 OK", "", "")
	for _, row := range []struct {
		name     string
		scenario string // "": sipp's own
		plan
		during func(*testing.T, *net3, *agent.Agent, ua.CallID)
	}{
		{"sipp's own", "", plan4, func(t *testing.T, _ *net3, a *agent.Agent, id ua.CallID) { hangUp(t, a, id) }},
		{"sipp's own by IPv6", "", plan6, func(t *testing.T, _ *net3, a *agent.Agent, id ua.CallID) { hangUp(t, a, id) }},
		{"a re-INVITE is refused", scenario(answered(), comes("INVITE"), says("488 Not Acceptable Here", "", ""), comes("ACK"), ended), plan6,
			func(t *testing.T, _ *net3, a *agent.Agent, id ua.CallID) {
				held(t, a, id, ua.HoldFailed)
				hangUp(t, a, id)
			}},
		{"both ask at once", scenario(answered(), comes("INVITE"), says("491 Request Pending", "", ""), comes("ACK"),
			comes("INVITE"), says("200 OK", "", session("0")), comes("ACK"), ended), plan4,
			func(t *testing.T, _ *net3, a *agent.Agent, id ua.CallID) {
				held(t, a, id, ua.Held)
				hangUp(t, a, id)
			}},
		{"a re-INVITE, or its 200, is lost", scenario(answered(), comes("INVITE"), pause, says("200 OK", "", session("0")), comes("ACK"), ended), plan6,
			func(t *testing.T, _ *net3, a *agent.Agent, id ua.CallID) {
				held(t, a, id, ua.Held)
				hangUp(t, a, id)
			}},
		{"BYE after a move", scenario(answered(), `<recv request="INVITE" rrs="true"><action><setdest host="`+mobileB+`" port="5060" protocol="UDP"/></action></recv>`, says("200 OK", "", session("0")), comes("ACK"),
			sends(true, "BYE [next_url] SIP/2.0", "Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\nFrom: <sip:bob@[local_ip]>"+tag+
				"\nTo:[$caller]\nCall-ID: [call_id]\nCSeq: 1 BYE\nMax-Forwards: 70\n", ""), `<recv response="200"/>`), plan6,
			func(t *testing.T, n *net3, a *agent.Agent, _ ua.CallID) {
				n.remove(t, plan6.mobileA)
				await(t, a, ua.Moved)
			}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNet3(t, row.plan)
			alice := start(t, n.mobile, "alice", new(media.Tally))
			awaitPaths(t, alice, row.mobileA, 2)
			c := peers.Sipp{Name: "sipp", Scenario: row.scenario, Calls: 1, Rate: 1, Local: netip.AddrPortFrom(netip.MustParseAddr(row.peer), 5080)}
			if row.scenario == "" {
				c.Standard = "uas"
			}
			command, err := all.Sipp(t.TempDir(), c)
			p := startProgram(t, n.peer, command, err)
			id, err := alice.Call(t.Context(), strings.Replace(uri(row.peer), "sip:", "sip:bob@", 1)+":5080")
			if err != nil {
				t.Fatal(err)
			}
			await(t, alice, ua.Established)
			row.during(t, n, alice, id)
			await(t, alice, ua.Ended)
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}
