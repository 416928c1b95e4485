// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
)

// A client that was heard just before the host slept is asked again.
func TestRelayAwakes(t *testing.T) {
	r := newRig(t, ModeHost)
	send(t, r.client, clientUDP("hello"), relayAt)
	r.hostReceives(t)
	r.hostSends(t, "one")
	wantText(t, "the client got", clientReceives(t, r.client), "one hop 64")
	r.relay.awake(port.Sleep{Slept: time.Hour})
	r.hostSends(t, "two")
	r.bubbleArrives(t)
	send(t, r.client, clientUDP("hello"), relayAt)
	wantText(t, "the client got", clientReceives(t, r.client), "two hop 64")
}
