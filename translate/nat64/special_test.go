// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/special"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate"
)

// TestSpecialAddresses: each row of the registries (RFC 6890), by its first and last address,
// as an IPv4 host on either side, as an IPv6 client, and as who is told to an FTP server.
func TestSpecialAddresses(t *testing.T) {
	everybody := func(s *Settings) { s.Clients = []netip.Prefix{netip.MustParsePrefix("::/0")} }
	for _, row := range special.IPv4 {
		for _, a := range testutil.Ends(row.Prefix) {
			b := engine(t, everybody)
			if err := b.AddStatic(static(t, "udp", "["+clientA+"]:80", poolIP+":8080")); err != nil {
				t.Fatal(err)
			}
			source, destination := none, none
			if !special.Forwarded4(a.As4()) {
				source, destination = Reason(translate.ReasonIllegalSource), Reason(translate.ReasonIllegalDestination)
			}
			b.judged(row.Name+", to "+a.String(), pkt{src: clientA, dst: "2001:db8:64::" + a.String(), proto: udpProto, payload: udpMsg(1, 2, 4)}, destination)
			b.judged(row.Name+", from "+a.String(), pkt{src: a.String(), dst: poolIP, proto: udpProto, payload: udpMsg(9, 8080, 4)}, source)
			if _, err := b.Expect(netip.MustParseAddrPort("["+clientA+"]:1500"), a, b.now, &b.out); (err == nil) != (source == none) {
				t.Errorf("%s, an FTP server at %s: %v", row.Name, a, err)
			}
		}
	}
	for _, row := range special.IPv6 {
		for _, a := range testutil.Ends(row.Prefix) {
			want := none
			if raw := a.As16(); !special.Forwarded6(&raw) {
				want = Reason(translate.ReasonIllegalSource)
			}
			b := engine(t, everybody)
			b.judged(row.Name+", from "+a.String(), pkt{src: a.String(), dst: server6, proto: udpProto, payload: udpMsg(1, 2, 4)}, want)
		}
	}
}

// judged checks what one packet is dropped for; none: it passes.
func (b *bench) judged(name string, p pkt, want Reason) {
	b.t.Helper()
	before := b.stats.Dropped
	out := b.in(p)
	b.now = b.now.Add(time.Second)
	if want != none && (b.stats.Dropped[want] != before[want]+1 || len(out) != 0) || want == none && len(out) != 1 {
		b.t.Errorf("%s: %d packets came out; dropped %v, want %v", name, len(out), b.drops(), want)
	}
}
