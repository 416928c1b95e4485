// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath_test

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
)

// hook is a place where programs run.
type hook string

const (
	inXDP hook = "xdp"
	inTC  hook = "tc"
)

var hooks = []hook{inXDP, inTC}

// skb is the part of struct __sk_buff that a test run takes.
type skb struct {
	Len, PktType, Mark, QueueMapping, Protocol uint32
	VlanPresent, VlanTci, VlanProto, Priority  uint32
	IngressIfindex, Ifindex, TcIndex           uint32
	Cb                                         [5]uint32
	Hash, TcClassid, Data, DataEnd, NapiID     uint32
	Family, RemoteIP4, LocalIP4                uint32
	RemoteIP6, LocalIP6                        [4]uint32
	RemotePort, LocalPort, DataMeta            uint32
	_                                          uint32
	FlowKeys, Tstamp                           uint64
	WireLen, GsoSegs                           uint32
	Sk                                         uint64
	GsoSize, TstampType                        uint32
	Hwtstamp                                   uint64
}

// run gives a frame to a program.
func (h *natHost) run(t testing.TB, at hook, program *ebpf.Program, frame []byte) (fastpath.Verdict, []byte) {
	t.Helper()
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, 4096)}
	var codes [3]uint32
	if at == inXDP {
		codes = [3]uint32{4, 2, 1}
	} else {
		codes = [3]uint32{7, 0xffffffff, 2}
		o.Context = skb{Ifindex: uint32(h.ports[0].index)}
	}
	var code uint32
	h.ns.Do(t, func() (err error) {
		code, err = program.Run(&o)
		return err
	})
	for verdict, c := range codes {
		if code == c {
			return fastpath.Verdict(verdict), o.DataOut
		}
	}
	t.Fatalf("the program at %s returned %d for %x", at, int32(code), frame)
	return 0, nil
}

// translateAt gives a frame to the translating program of a hook.
func (w *natWorld) translateAt(t testing.TB, at hook, frame []byte) (fastpath.Verdict, []byte) {
	t.Helper()
	p := w.fast.Programs().XDP
	if at == inTC {
		p = w.fast.Programs().Ingress
	}
	return w.run(t, at, p, frame)
}

// counted returns the reasons that were counted since the last call.
func (w *natWorld) counted(t testing.TB) map[string]uint64 {
	t.Helper()
	list, err := w.fast.Counters()
	if err != nil {
		t.Fatal(err)
	}
	news := make(map[string]uint64)
	for i, c := range list {
		if n := c.Packets - w.last[i].Packets; n > 0 {
			news[c.Reason] = n
		}
	}
	w.last = list
	return news
}

// frame puts an Ethernet header for the host in front of a packet.
func (h *natHost) frame(ip []byte) []byte {
	f := append(append([]byte{}, h.ports[0].mac...), natMAC(200)...)
	kind := uint16(0x86dd)
	if ip[0]>>4 == 4 {
		kind = 0x0800
	}
	return append(binary.BigEndian.AppendUint16(f, kind), ip...)
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
	device, gateway := w.ports[2].mac, natMAC(103)
	if ip[0]>>4 == 6 {
		id = binary.BigEndian.Uint16(got[18:])
		device, gateway = w.ports[0].mac, natMAC(101)
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
