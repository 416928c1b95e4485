// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package offer

import (
	"bytes"
	"errors"
	"testing"

	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/media/g711"
)

// TestAnswerBeyondTheOffer has a call that was begun with one codec be offered again with that one. An answer may name
// others beside it, which are not used, but not these alone (RFC 3264 section 6.1).
func TestAnswerBeyondTheOffer(t *testing.T) {
	with := func(line string) []byte { return []byte(head + text("c=IN IP6 2001:db8:f::9", "t=0 0", line)) }
	us := side(t, first, nil)
	if _, err := us.Offered(with("m=audio 7000 RTP/AVP 0")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := us.Answer(both(first)); err != nil {
		t.Fatal(err)
	}
	for answer, want := range map[string]error{"m=audio 7000 RTP/AVP 8": ErrNotAcceptable, "m=audio 7000 RTP/AVP 8 0": nil} {
		o, err := us.Offer(both(second))
		if err != nil || !bytes.Contains(o, []byte("RTP/AVP 0\r\n")) {
			t.Fatalf("%v: the offer is\n%s", err, o)
		}
		if a, err := us.Answered(with(answer)); !errors.Is(err, want) || err == nil && a.Format.Law != g711.PCMU {
			t.Errorf("%s: agreed on %+v, %v", answer, a.Format, err)
		}
	}
}

func TestAnswerChoosesNumbersAndOrder(t *testing.T) {
	us := side(t, first, nil)
	if _, err := us.Offer(both(first)); err != nil {
		t.Fatal(err)
	}
	a, err := us.Answered([]byte(head + text("c=IN IP6 2001:db8:f::9", "t=0 0", "m=audio 7000 RTP/AVP 8 96", "a=rtpmap:96 telephone-event/8000", "a=fmtp:96 0-9")))
	want := media.Format{Law: g711.PCMA, Send: media.Types{PCMU: media.None, PCMA: 8, Events: 96}, Receive: media.DefaultTypes, Digits: 0x3ff}
	if err != nil || a.Format != want {
		t.Errorf("agreed on %+v, %v", a.Format, err)
	}
}
