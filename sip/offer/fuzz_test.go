// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package offer

import (
	"bytes"
	"testing"
)

// FuzzOffered has a stranger's text offered, and answers it: the answer can be read, has as
// many lines, and the session goes on.
func FuzzOffered(f *testing.F) {
	f.Add([]byte(goldenOffer), []byte(goldenOffer))
	f.Add([]byte(head+text("c=IN IP4 0.0.0.0", "t=1 2", "a=inactive", "m=video 1 RTP/AVP 31", "m=audio 7000 RTP/SAVP 96 0", "a=rtpmap:96 telephone-event/8000", "a=fmtp:96 0-15,66", "a=rtcp:7 IN IP4 192.0.2.1", "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:PS1uQCVeeCFCanVmcjkpPywjNWhcYD0mXXtxaVBR|2^20|1:4")), []byte(head+text("c=IN IP4 192.0.2.1", "t=1 2", "m=video 0 RTP/AVP 31", "m=audio 7000 RTP/SAVP 0", "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:PS1uQCVeeCFCanVmcjkpPywjNWhcYD0mXXtxaVBR")))
	f.Fuzz(func(t *testing.T, offer, answer []byte) {
		s := side(t, first, nil)
		if rtp, err := s.Offered(offer); err == nil {
			local := both(first)
			if rtp.Addr().Is4() {
				local.RTP = firstIPv4
			}
			body, a, err := s.Answer(local)
			if err != nil {
				t.Fatal("no answer:", err)
			}
			asked, _ := parse(offer)
			told, err := parse(body)
			if err != nil || len(told.lines) != len(asked.lines) {
				t.Fatalf("the answer cannot be read: %v\n%s", err, body)
			}
			if a.Send && !a.RTP.IsValid() || a.Secure != a.Sending.Key.Valid() {
				t.Fatalf("agreed on %+v", a)
			}
		}
		before := bytes.Clone(s.last)
		if _, err := s.Offer(both(first)); err != nil {
			t.Fatal("no offer:", err)
		}
		if _, err := s.Answered(answer); err == nil && before == nil && s.audio != 0 {
			t.Fatal("the stream is not where it was offered")
		}
		if _, err := s.Offer(both(second)); err != nil {
			t.Fatal("no second offer:", err)
		}
	})
}
