// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf_test

import (
	"encoding/binary"
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/translatebpf/translatebpftest"
)

// translateAt gives a frame to the translating program of a hook.
func (w *natWorld) translateAt(t testing.TB, at runtest.Hook, frame []byte) (fastpath.Verdict, []byte) {
	t.Helper()
	return w.Run(t, at, w.fast.Programs(), frame)
}

// counted returns the reasons that were counted since the last call.
func (w *natWorld) counted(t testing.TB) map[string]uint64 {
	t.Helper()
	return w.Counted(t, w.fast)
}

// model is what the codec makes of a packet with a binding; nil when it drops it. id is
// the identification of what goes to IPv4.
func (w *natWorld) model(t testing.TB, ip []byte, b translate.Binding, id uint16) []byte {
	t.Helper()
	var out packet.Batch
	path := translate.Path{MTU4: 1500, MTU6: 1500, IDs: func(_, _ [4]byte) uint16 { return id }}
	var r translate.Result
	if ip[0]>>4 == 4 {
		r = w.trans.IPv4Bound(ip, &b, path, &out)
	} else {
		r = w.trans.IPv6Bound(ip, &b, path, &out)
	}
	if r.Verdict != translate.Translated || len(out.IP) != 1 {
		t.Logf("the codec says %s (%s), %d packets", r.Verdict, r.Reason, len(out.IP))
		return nil
	}
	return out.IP[0]
}

// equal fails unless a frame that left holds what the codec makes of the packet, from and
// to the right Ethernet addresses.
func (w *natWorld) equal(t testing.TB, got, ip []byte, b translate.Binding) {
	t.Helper()
	if len(got) < 34 {
		t.Fatalf("a frame of %d bytes left", len(got))
	}
	var id uint16
	device, gateway := w.Ports[2].MAC, translatebpftest.MAC(103)
	if ip[0]>>4 == 6 {
		id = binary.BigEndian.Uint16(got[18:])
		device, gateway = w.Ports[0].MAC, translatebpftest.MAC(101)
	}
	want := w.model(t, ip, b, id)
	if string(got[14:]) != string(want) {
		t.Errorf("of %x\nleft %x\nwant %x", ip, got[14:], want)
	}
	kind := map[byte]uint16{4: 0x0800, 6: 0x86dd}[got[14]>>4]
	header := binary.BigEndian.AppendUint16(append(append([]byte{}, gateway...), device...), kind)
	if string(got[:14]) != string(header) {
		t.Errorf("Ethernet header %x, want %x", got[:14], header)
	}
}
