// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

// What this user agent can do.
const (
	allowed   = "INVITE, ACK, CANCEL, BYE, OPTIONS, UPDATE, PRACK"
	supported = "timer, 100rel, replaces, path, outbound"
	sdpType   = "application/sdp"
)

// supports reports whether the sender of a message knows an extension.
func supports(m *message.Message, tag string) bool {
	return m.HasToken("Supported", tag) || requires(m, tag)
}

// requires reports whether a message demands an extension.
func requires(m *message.Message, tag string) bool { return m.HasToken("Require", tag) }

// seconds reads delta-seconds, which parameters or a comment may follow.
func seconds(text string) (time.Duration, bool) {
	if i := strings.IndexAny(text, ";( \t"); i >= 0 {
		text = text[:i]
	}
	n, err := strconv.ParseUint(text, 10, 32)
	return time.Duration(n) * time.Second, err == nil
}

// inSeconds writes delta-seconds.
func inSeconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// setBody adds a body and says what it is; nil is none.
func setBody(m *message.Message, body []byte) {
	if len(body) > 0 {
		m.Add("Content-Type", sdpType)
	}
	m.Body = body
}

// isSDP reports whether that is what a message says of its body.
func isSDP(m *message.Message) bool {
	kind, _ := message.Parameters(m.Get("Content-Type"))
	return strings.EqualFold(kind, sdpType)
}

// fromTag, toTag and number are what dialogs go by.
func fromTag(m *message.Message) string {
	a, _ := m.From()
	return a.Tag()
}

func toTag(m *message.Message) string {
	a, _ := m.To()
	return a.Tag()
}

func number(m *message.Message) uint32 {
	n, _, _ := m.CSeq()
	return n
}
