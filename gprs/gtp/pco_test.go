// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"bytes"
	"testing"
)

// TestHidePassword leaves of a request all but passwords, also of one that is cut short.
func TestHidePassword(t *testing.T) {
	const user, word = "mig", "hemmelig"
	data := append([]byte{byte(len(user))}, user...)
	data = append(append(data, byte(len(word))), word...)
	p, _ := NewPCO(nil).Add(ContainerDNS4, nil)
	p, _ = p.Add(ContainerPAP, PPP{Code: PAPRequest, Identifier: 1, Data: data}.Append(nil))
	p, _ = p.Add(ContainerDNS6, nil)
	for n := range len(p) + 1 {
		whole, got := []byte(p[:n]), bytes.Clone(p[:n])
		HidePassword(got)
		for i := range whole {
			secret := i >= len(p)-3-len(word) && i < len(p)-3
			if secret && got[i] != 0 || !secret && got[i] != whole[i] {
				t.Fatalf("%d octets: %x of %x", n, got, whole)
			}
		}
	}
	ack, _ := NewPCO(nil).Add(ContainerPAP, PPP{Code: PAPAck, Identifier: 1, Data: []byte("\x07Welcome")}.Append(nil))
	got := bytes.Clone(ack)
	if HidePassword(got); !bytes.Equal(got, ack) {
		t.Errorf("%x of %x", got, ack)
	}
}
