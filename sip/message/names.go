// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package message

import "strings"

// known are fields as they are written, by their names in small letters; compact forms are names
// as well (RFC 3261 section 7.3.3 and the registry of IANA).
var known = func() map[string]string {
	all := map[string]string{
		"a": "Accept-Contact", "b": "Referred-By", "c": "Content-Type", "d": "Request-Disposition", "e": "Content-Encoding",
		"f": "From", "i": "Call-ID", "j": "Reject-Contact", "k": "Supported", "l": "Content-Length", "m": "Contact",
		"n": "Identity-Info", "o": "Event", "r": "Refer-To", "s": "Subject", "t": "To", "u": "Allow-Events", "v": "Via",
		"x": "Session-Expires", "y": "Identity",
	}
	for _, name := range strings.Fields(`Accept Accept-Contact Allow Allow-Events Authentication-Info Authorization Call-ID
		Contact Content-Encoding Content-Length Content-Type CSeq Date Event Expires Flow-Timer From Max-Forwards Min-Expires Min-SE
		Path Proxy-Authenticate Proxy-Authorization Proxy-Require RAck Record-Route Refer-To Referred-By Replaces Require Retry-After
		Route RSeq Server Service-Route Session-Expires Subject Supported To Unsupported User-Agent Via WWW-Authenticate`) {
		all[strings.ToLower(name)] = name
	}
	return all
}()

// canonical is the name of a field as it is written here.
func canonical(name string) string {
	if full, ok := known[strings.ToLower(name)]; ok {
		return full
	}
	return name
}

// compact are the short forms of the fields that most messages have.
var compact = map[string]string{
	"Via": "v", "From": "f", "To": "t", "Call-ID": "i", "Contact": "m", "Content-Type": "c", "Supported": "k",
	"Session-Expires": "x", "Refer-To": "r", "Event": "o",
}

// Compact gives fields their short names, for messages that shall fit into one datagram.
func (m *Message) Compact() {
	for i := range m.Headers {
		if short, ok := compact[m.Headers[i].Name]; ok {
			m.Headers[i].Name = short
		}
	}
}

// parted are lists whose values have a field each.
var parted = map[string]bool{"Via": true, "Route": true, "Record-Route": true, "Path": true, "Service-Route": true, "Contact": true}
