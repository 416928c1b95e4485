// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"encoding/hex"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The table of the peers in short form: every client must be met and stay, and
// every part must measure something.
func TestTeredoPeers(t *testing.T) {
	ctx, e := testEnvOf(t, teredoPeers)
	e.Runs = 1
	var out strings.Builder
	e.Out = &out
	if err := teredoPeers.Run(ctx, e); err != nil {
		t.Error(err)
	}
	for _, name := range []string{figurePeersMemory, figureLookup, figurePause, figureFloodLost + ", beside " + string(newClients)} {
		if !strings.Contains(out.String(), name) {
			t.Errorf("the figure %q is missing", name)
		}
	}
	t.Log(out.String())
}

// A frame that was made another client's is as if it had been made for him.
func TestScatter(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	c := &crowd{internetMAC: mac, out4MAC: mac}
	const clients = 1000
	first, mapped := clientOf(7)
	frames := [][]byte{c.toHost(first, mapped), c.toHost(first, mapped)}
	const round = 5
	scatter(frames, clients, round)
	for i, got := range frames {
		n := uint32(round*peerBatch + i)
		client, mapped := clientOf(int(n * scatterStep % clients))
		want := c.toHost(client, mapped)
		// The inner checksum is not made again: no one on the way looks at it.
		copy(want[frameInner+46:frameInner+48], got[frameInner+46:frameInner+48])
		if diff := cmp.Diff(hex.Dump(want), hex.Dump(got)); diff != "" {
			t.Errorf("frame %d (-want +got):\n%s", i, diff)
		}
	}
}

// Clients of a crowd are all different.
func TestClientsDiffer(t *testing.T) {
	seen := map[[16]byte]bool{}
	for i := range 300_000 {
		client, _ := clientOf(i)
		if seen[client] {
			t.Fatalf("client %d has the address of another", i)
		}
		seen[client] = true
	}
}
