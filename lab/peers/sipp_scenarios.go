// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import "strings"

// SippRegistration is a scenario in which each of the users of [Sipp] registers at a domain, challenged
// first. The contact has the port, "" for that of sipp.
func SippRegistration(domain, port string) string {
	if port == "" {
		port = "[local_port]"
	}
	request := func(number, proof string) string {
		return sippSend(true, "REGISTER sip:"+domain+" SIP/2.0", sippVia, "From: <sip:[field0]@"+domain+">;tag=[pid]-[call_number]", "To: <sip:[field0]@"+domain+">",
			"Call-ID: [call_id]", "CSeq: "+number+" REGISTER", "Contact: <sip:[field0]@[local_ip]:"+port+";transport=[transport]>", proof, "Max-Forwards: 70", "Expires: 600")
	}
	return sippScenario("register", request("1", ""), `<recv response="401" auth="true"/>`, request("2", "[field1]"),
		`<recv response="401" optional="true"/><recv response="200"/>`) // a late one is the answer to a repetition
}

// SippCalling is a scenario of a stranger to a domain who calls somebody of it, and hangs up: that of
// sipp's own caller, but by the route that proxies have recorded.
func SippCalling(domain, callee string) string {
	const caller = "From: <sip:caller@elsewhere.example.com>;tag=[pid]-[call_number]"
	uri := "sip:" + callee + "@" + domain
	within := func(method, number string) string {
		return sippSend(method != "ACK", method+" [next_url] SIP/2.0", sippVia, "[routes]", caller, "To: <"+uri+">[peer_tag_param]",
			"Call-ID: [call_id]", "CSeq: "+number+" "+method, "Max-Forwards: 70")
	}
	return sippScenario("call",
		sippSend(true, "INVITE "+uri+" SIP/2.0", sippVia, caller, "To: <"+uri+">", "Call-ID: [call_id]", "CSeq: 1 INVITE",
			"Contact: <sip:caller@[local_ip]:[local_port];transport=[transport]>", "Max-Forwards: 70"),
		`<recv response="100" optional="true"/><recv response="180" optional="true"/><recv response="200" rrs="true"/>`,
		within("ACK", "1"), sippPause, within("BYE", "2"),
		`<recv response="200"/>`)
}

// SippAnswering is a scenario of the one who is called: that of sipp's own, with the route that proxies
// have recorded.
func SippAnswering(callee string) string {
	const last = "[last_Via:]\n[last_Record-Route:]\n[last_From:]\n[last_To:]"
	tagged := last + ";tag=[pid]-[call_number]\n[last_Call-ID:]\n[last_CSeq:]"
	contact := "Contact: <sip:" + callee + "@[local_ip]:[local_port];transport=[transport]>"
	return sippScenario("answer", `<recv request="INVITE"/>`,
		sippSend(false, "SIP/2.0 180 Ringing", tagged, contact), sippPause, sippSend(true, "SIP/2.0 200 OK", tagged, contact),
		`<recv request="ACK"/><recv request="BYE"/>`,
		sippSend(false, "SIP/2.0 200 OK", "[last_Via:]\n[last_From:]\n[last_To:]\n[last_Call-ID:]\n[last_CSeq:]"))
}

// sippPause is between two messages in one direction: a proxy of several processes may have the second
// overtake the first, which no scenario expects.
const sippPause = `<pause milliseconds="50"/>`

const sippVia = "Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch];rport"

// sippSend is a step that sends a message, by its lines; empty ones are left out.
func sippSend(repeated bool, lines ...string) string {
	attribute := ""
	if repeated {
		attribute = ` retrans="500"`
	}
	var b strings.Builder
	for _, l := range lines {
		if l != "" {
			b.WriteString(l + "\n")
		}
	}
	return "<send" + attribute + "><![CDATA[\n\n" + b.String() + "Content-Length: 0\n\n]]></send>"
}

func sippScenario(name string, steps ...string) string {
	return `<?xml version="1.0" encoding="ISO-8859-1" ?>` + "\n<scenario name=\"" + name + "\">\n" + strings.Join(steps, "\n") + "\n</scenario>\n"
}
