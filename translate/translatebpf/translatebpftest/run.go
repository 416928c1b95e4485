// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translatebpftest

import (
	"encoding/binary"
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
)

// Run gives a frame to the program of a hook.
func (h *Host) Run(t testing.TB, at runtest.Hook, of fastpath.Programs, frame []byte) (verdict fastpath.Verdict, out []byte) {
	t.Helper()
	h.NS.Do(t, func() error {
		r, err := runtest.NewRunner(at, of, h.Ports[0].Index, 4096).Run(frame)
		verdict, out = r.Verdict, r.Out
		return err
	})
	return verdict, out
}

// Counted returns the packets that programs have counted since the last call, by reason.
func (h *Host) Counted(t testing.TB, by runtest.Source) map[string]uint64 {
	t.Helper()
	news, err := h.counts.Packets(by)
	if err != nil {
		t.Fatal(err)
	}
	return news
}

// Frame puts an Ethernet header for the host in front of a packet.
func (h *Host) Frame(ip []byte) []byte {
	f := append(append([]byte{}, h.Ports[0].MAC...), MAC(200)...)
	kind := uint16(0x86dd)
	if ip[0]>>4 == 4 {
		kind = 0x0800
	}
	return append(binary.BigEndian.AppendUint16(f, kind), ip...)
}
