// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package offer

import (
	"errors"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/sip/media/sdes"
)

func secure(s *Settings) { s.Secure = true }

var crypto = regexp.MustCompile(`a=crypto:(\d+) (\S+) inline:(\S+)\r\n`)

func TestKeys(t *testing.T) {
	us, them := side(t, first, secure), side(t, far, nil)
	o, a, ours, theirs := exchange(t, us, them, both(first), both(far))
	offered, answered := crypto.FindAllStringSubmatch(o, -1), crypto.FindAllStringSubmatch(a, -1)
	if len(offered) != 2 || offered[0][2] != "AES_CM_128_HMAC_SHA1_80" || offered[1][2] != "AES_CM_128_HMAC_SHA1_32" || offered[0][3] == offered[1][3] || !strings.Contains(o, "m=audio 49170 RTP/SAVP 0 8 101\r\n") {
		t.Fatalf("the offer is\n%s", o)
	}
	if len(answered) != 1 || answered[0][1] != "1" || answered[0][2] != offered[0][2] || answered[0][3] == offered[0][3] {
		t.Fatalf("the answer is\n%s", a)
	}
	if !ours.Secure || !theirs.Secure || !ours.Sending.Equal(theirs.Receiving) || !ours.Receiving.Equal(theirs.Sending) || ours.Sending.Equal(ours.Receiving) {
		t.Errorf("ours %+v\ntheirs %+v", ours, theirs)
	}

	// A refresh and a hold change no key.
	_, _, held, theirHeld := exchange(t, us, them, Local{RTP: first}, both(far))
	if !held.Sending.Equal(ours.Sending) || !held.Receiving.Equal(ours.Receiving) || !theirHeld.Sending.Equal(theirs.Sending) {
		t.Error("a hold changes keys")
	}
	// Whoever moves has a new key, the other keeps its own (RFC 4568 section 7.1.4).
	_, _, moved, theirMoved := exchange(t, us, them, both(second), both(far))
	if moved.Sending.Equal(ours.Sending) || !moved.Receiving.Equal(ours.Receiving) || !theirMoved.Receiving.Equal(moved.Sending) {
		t.Error("the keys after a move are not as they should be")
	}
	// The answerer moves in its answer.
	_, _, last, _ := exchange(t, us, them, both(second), both(netip.AddrPortFrom(far.Addr(), 7100)))
	if !last.Sending.Equal(moved.Sending) || last.Receiving.Equal(moved.Receiving) {
		t.Error("the keys after a move of who answers are not as they should be")
	}
}

func TestKeysKept(t *testing.T) {
	us := side(t, first, func(s *Settings) { s.Secure, s.KeepKeys = true, true })
	them := side(t, far, nil)
	_, _, ours, _ := exchange(t, us, them, both(first), both(far))
	_, _, moved, _ := exchange(t, us, them, both(second), both(far))
	if !moved.Sending.Equal(ours.Sending) || !moved.Receiving.Equal(ours.Receiving) {
		t.Error("keys changed")
	}
}

// TestKeysAfterARefusal has the old ones remain in place (RFC 4568 section 7.1.4).
func TestKeysAfterARefusal(t *testing.T) {
	us, them := side(t, first, secure), side(t, far, nil)
	_, _, ours, _ := exchange(t, us, them, both(first), both(far))
	if _, err := us.Offer(both(second)); err != nil {
		t.Fatal(err)
	}
	us.Withdraw()
	_, _, again, _ := exchange(t, us, them, both(first), both(far))
	if !again.Sending.Equal(ours.Sending) {
		t.Error("the key of a refused offer is in use")
	}
}

func TestSecureAloneWhereWanted(t *testing.T) {
	us, plain := side(t, first, secure), side(t, far, nil)
	o, _ := plain.Offer(both(far))
	if _, err := us.Offered(o); !errors.Is(err, ErrNotAcceptable) {
		t.Errorf("RTP without keys: %v", err)
	}
}

// TestFirstKeyThatCanBeUsed chooses by the peer's preference (RFC 4568 section 5.1.2).
func TestFirstKeyThatCanBeUsed(t *testing.T) {
	s := side(t, first, nil)
	const key = "PS1uQCVeeCFCanVmcjkpPywjNWhcYD0mXXtxaVBR"
	offer := head + text("c=IN IP6 2001:db8:f::9", "t=0 0", "m=audio 7000 RTP/SAVP 0",
		"a=crypto:3 F8_128_HMAC_SHA1_80 inline:"+key, "a=crypto:4 AES_CM_128_HMAC_SHA1_32 inline:"+key, "a=crypto:5 AES_CM_128_HMAC_SHA1_80 inline:"+key)
	if _, err := s.Offered([]byte(offer)); err != nil {
		t.Fatal(err)
	}
	body, a, err := s.Answer(both(first))
	lines := crypto.FindAllStringSubmatch(string(body), -1)
	if err != nil || len(lines) != 1 || lines[0][1] != "4" || a.Receiving.Suite != sdes.AES32 || a.Sending.Suite != sdes.AES32 {
		t.Errorf("the answer is\n%s%v", body, err)
	}
}

// TestAnswersWithWrongKeys makes the negotiation fail (RFC 4568 sections 5.1.3 and 7.1.2).
func TestAnswersWithWrongKeys(t *testing.T) {
	const key = "PS1uQCVeeCFCanVmcjkpPywjNWhcYD0mXXtxaVBR"
	tests := []struct {
		name string
		line func(ours []string) []string
	}{
		{"none", func([]string) []string { return nil }},
		{"a tag that was not offered", func([]string) []string { return []string{"a=crypto:9 AES_CM_128_HMAC_SHA1_80 inline:" + key} }},
		{"the suite of another tag", func([]string) []string { return []string{"a=crypto:1 AES_CM_128_HMAC_SHA1_32 inline:" + key} }},
		{"two", func([]string) []string {
			return []string{"a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:" + key, "a=crypto:2 AES_CM_128_HMAC_SHA1_32 inline:" + key}
		}},
		{"our own", func(ours []string) []string { return []string{"a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:" + ours[3]} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			us := side(t, first, secure)
			o, err := us.Offer(both(first))
			if err != nil {
				t.Fatal(err)
			}
			answer := append([]string{"c=IN IP6 2001:db8:f::9", "t=0 0", "m=audio 7000 RTP/SAVP 0"}, tt.line(crypto.FindStringSubmatch(string(o)))...)
			if _, err := us.Answered([]byte(head + text(answer...))); !errors.Is(err, ErrNotAcceptable) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
