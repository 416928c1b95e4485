// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"
)

// What this user agent can do.
const (
	allowed   = "INVITE, ACK, CANCEL, BYE, OPTIONS, UPDATE, PRACK"
	supported = "timer, 100rel, replaces, path, outbound"
	sdpType   = "application/sdp"
)

// value is the first value of a header by its name or short form, "" if there is none.
func value(m sip.Message, names ...string) string {
	for _, name := range names {
		if h := m.GetHeaders(name); len(h) > 0 {
			return strings.TrimSpace(h[0].Value())
		}
	}
	return ""
}

// tokens are the elements of a list over all headers of its name, without parameters.
func tokens(m sip.Message, names ...string) []string {
	var list []string
	for _, name := range names {
		for _, h := range m.GetHeaders(name) {
			for element := range strings.SplitSeq(h.Value(), ",") {
				element, _, _ = strings.Cut(element, ";")
				if element = strings.TrimSpace(element); element != "" {
					list = append(list, strings.ToLower(element))
				}
			}
		}
	}
	return list
}

// supports reports whether the sender of a message knows an extension.
func supports(m sip.Message, tag string) bool {
	return slices.Contains(tokens(m, "Supported", "k"), tag) || requires(m, tag)
}

// requires reports whether a message demands an extension.
func requires(m sip.Message, tag string) bool { return slices.Contains(tokens(m, "Require"), tag) }

// seconds reads delta-seconds, which parameters or a comment may follow.
func seconds(text string) (time.Duration, bool) {
	if i := strings.IndexAny(text, ";( \t"); i >= 0 {
		text = text[:i]
	}
	n, err := strconv.ParseUint(text, 10, 32)
	return time.Duration(n) * time.Second, err == nil
}

// parameter is one after the value of a header that the parser leaves as text.
func parameter(text, name string) string {
	parts := strings.Split(text, ";")
	for _, p := range parts[1:] {
		k, v, _ := strings.Cut(p, "=")
		if strings.EqualFold(strings.TrimSpace(k), name) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// inSeconds writes delta-seconds.
func inSeconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// set adds a header of a name that the message has not.
func set(m sip.Message, name, text string) { m.AppendHeader(sip.NewHeader(name, text)) }

// setBody adds a body and says what it is; nil is none.
func setBody(m sip.Message, body []byte) {
	if len(body) > 0 {
		kind := sip.ContentTypeHeader(sdpType)
		m.AppendHeader(&kind)
	}
	m.SetBody(body)
}

// tagOf is the tag of From or To, whose parameters these are.
func tagOf(p sip.HeaderParams) string { return p.GetOr("tag", "") }

// wellFormed reports whether a message has what every message must have (section 8.1.1), so
// that all that follow may rely on it.
func wellFormed(m sip.Message) bool {
	cseq := m.CSeq()
	if m.Via() == nil || m.From() == nil || m.To() == nil || m.CallID() == nil || cseq == nil {
		return false
	}
	if r, ok := m.(*sip.Request); ok {
		return strings.TrimSpace(string(cseq.MethodName)) == string(r.Method) && tagOf(m.From().Params) != ""
	}
	return true
}

// routes are the URIs of a header that Record-Route or Route have, in their order.
func routes(m sip.Message, name string) []sip.Uri {
	var list []sip.Uri
	for _, h := range m.GetHeaders(name) {
		switch h := h.(type) {
		case *sip.RecordRouteHeader:
			list = append(list, h.Address)
		case *sip.RouteHeader:
			list = append(list, h.Address)
		default: // one that the parser leaves as text, such as Service-Route
			for element := range strings.SplitSeq(h.Value(), ",") {
				var u sip.Uri
				if _, err := sip.ParseAddressValue(strings.TrimSpace(element), &u, &sip.HeaderParams{}); err == nil {
					list = append(list, u)
				}
			}
		}
	}
	return list
}

// mediaType is a Content-Type without parameters, in lower case.
func mediaType(text string) string {
	text, _, _ = strings.Cut(text, ";")
	return strings.ToLower(strings.TrimSpace(text))
}
