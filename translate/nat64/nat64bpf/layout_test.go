// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf

import (
	"encoding/binary"
	"os"
	"regexp"
	"strconv"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// TestNAT64Layout lets Go write a state, and reads it as the programs do.
func TestNAT64Layout(t *testing.T) {
	z := state.Sizes{Sessions: 64, Subscribers: 4, Addresses: 2, BlockWords: 8, SubscriberLength: 64}
	m := state.HeapMemory(z)
	table, _, err := state.Open(z, m, [state.Seeds]uint64{11, 12, 13, 14, 15, 16, 17, 18})
	if err != nil {
		t.Fatal(err)
	}
	pool := [4]byte{192, 0, 2, 1}
	ports := []state.PortRange{{Transport: state.UDP, First: 1024, Last: 65535}}
	if err := table.SetPool([]state.PoolAddress{{Address: [4]byte{192, 0, 2, 9}}, {Address: pool, Ports: ports}}); err != nil {
		t.Fatal(err)
	}
	client := [16]byte{0x20, 1, 0xd, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	var s state.Subscriber
	var block state.Block
	var b state.Binding
	var one, two state.Session
	for what, o := range map[string]state.Outcome{
		"client":  table.MakeSubscriber(&client, pool, 77, &s),
		"block":   table.LeaseAt(&s, 5000, &block),
		"binding": table.NewBinding(&s, state.Inside{Client: client, Port: 0x1234, Transport: state.UDP}, state.Wish{}, 5001%64<<56|6<<32, &b),
		"one":     table.NewSession(&b, state.Fresh{Peer: [4]byte{198, 51, 100, 1}, PeerPort: 0x5678, Prefix: 3, Status: state.Opened, Flags: state.Slow, Stamp: 99}, &one),
		"two":     table.NewSession(&b, state.Fresh{Peer: [4]byte{198, 51, 100, 2}, PeerPort: 0x5679, Prefix: 3, Status: state.Trans, Flags: state.Expected, Stamp: 98}, &two),
	} {
		if o != state.Made {
			t.Fatalf("%s: %s", what, o)
		}
	}
	table.SetIdle(&s, 66)
	address := [4]uint32{word(client[0:]), word(client[4:]), word(client[8:]), word(client[12:])}
	t4, x, port := word(pool[:]), uint16(0x3412), uint16(0x8913) // 5001 is 0x1389

	compare(t, m[state.SlabSessions], one.Index, nat64Session{
		Word: 1<<48 | 1<<40 | uint64(nat64SessionStateSESSION_OPEN)<<32 | 99, Address6: address, Pool: t4, Peer: word([]byte{198, 51, 100, 1}),
		Port6: x, PoolPort: port, PeerPort: 0x7856, Transport: uint8(nat64TransportTRANSPORT_UDP), Prefix: 3,
		Binding: b.Index, Previous: two.Index + 1,
	})
	compare(t, m[state.SlabSessions], two.Index, nat64Session{
		Word: 1<<48 | 2<<40 | uint64(nat64SessionStateSESSION_TRANS)<<32 | 98, Address6: address, Pool: t4, Peer: word([]byte{198, 51, 100, 2}),
		Port6: x, PoolPort: port, PeerPort: 0x7956, Transport: uint8(nat64TransportTRANSPORT_UDP), Prefix: 3,
		Binding: b.Index, Next: one.Index + 1,
	})
	compare(t, m[state.SlabBindings], b.Index, nat64Binding{
		Address6: address, Pool: t4, Port6: x, PoolPort: port, Word: 1<<16 | uint32(nat64TransportTRANSPORT_UDP)<<8 | 1,
		Sessions: two.Index + 1, Subscriber: s.Index + 1,
	})
	first := [16]uint32{3*1024 + 5000/512*8}
	compare(t, m[state.SlabSubscribers], s.Index, nat64Subscriber{
		Prefix: [2]uint64{uint64(address[1])<<32 | uint64(address[0])}, Pool: t4, Word: 1<<16 | 1,
		Sessions: 2, SessionLimit: 77, Bindings: 1, Blocks: 1, IdleSince: 66, First: first,
	})
	compare(t, m[state.SlabAddresses], 1, nat64PoolAddress{Address: t4})
	compare(t, m[state.SlabHead], 0, nat64Nat64Head{
		Version: headerNumber(t, "NAT64_LAYOUT_VERSION"), Seed: [8]uint64{11, 12, 13, 14, 15, 16, 17, 18},
		Sessions: 64, Bindings: 64, Subscribers: 4, Addresses: 2, BlockWords: 8, SubscriberLength: 64,
		SessionBuckets: buckets(z, state.SlabSessions6), BindingBuckets: buckets(z, state.SlabBindings4),
		SubscriberBuckets: buckets(z, state.SlabSubscribers6),
	})
	if size := int(unsafe.Sizeof(nat64IndexBucket{})); size != slab(z, state.SlabSessions6).RecordSize {
		t.Errorf("a bucket has %d bytes here, %d there", size, slab(z, state.SlabSessions6).RecordSize)
	}
	if words := headerNumber(t, "PORT_WORDS"); slab(z, state.SlabPortsUsed).Records != 2*3*int(words) {
		t.Errorf("an address has %d words of ports in each transport", words)
	}
	// The word of the port, and its bit.
	used := m[state.SlabPortsUsed][8*(first[0]+uint32(state.UDP)*1024+5001/64%8):]
	if w := binary.NativeEndian.Uint64(used); w != 1<<(5001%64) {
		t.Errorf("the port's word is %x", w)
	}
}

// TestNAT64Words compares what the words of a session can say.
func TestNAT64Words(t *testing.T) {
	statuses := map[state.Status]nat64SessionState{
		state.Free: nat64SessionStateSESSION_FREE, state.Opened: nat64SessionStateSESSION_OPEN,
		state.V4Init: nat64SessionStateSESSION_V4INIT, state.V6Init: nat64SessionStateSESSION_V6INIT,
		state.Established: nat64SessionStateSESSION_ESTABLISHED,
		state.V4Fin:       nat64SessionStateSESSION_V4FIN, state.V6Fin: nat64SessionStateSESSION_V6FIN,
		state.BothFin: nat64SessionStateSESSION_BOTH_FIN, state.Trans: nat64SessionStateSESSION_TRANS,
		state.Statuses: nat64SessionStateSESSION_STATES,
	}
	for here, there := range statuses {
		if uint32(here) != uint32(there) {
			t.Errorf("state %s is %d here, %d there", here, here, there)
		}
	}
	transports := map[state.Transport]nat64Transport{
		state.TCP: nat64TransportTRANSPORT_TCP, state.UDP: nat64TransportTRANSPORT_UDP,
		state.ICMP: nat64TransportTRANSPORT_ICMP, state.Transports: nat64TransportTRANSPORTS,
	}
	for here, there := range transports {
		if uint32(here) != uint32(there) {
			t.Errorf("transport %s is %d here, %d there", here, here, there)
		}
	}
	if headerNumber(t, "NAT64_LAYOUT_VERSION") != state.LayoutVersion {
		t.Errorf("the header is of another version than %d", state.LayoutVersion)
	}
	for name, here := range map[string]uint32{
		"SESSION_SLOW": uint32(state.Slow), "SESSION_EXPECTED": uint32(state.Expected),
		"SESSION_DETOURED":  uint32(state.Detoured),
		"NAT64_STAMP_EVERY": state.StampEvery, "SUBSCRIBER_BLOCKS": state.MaxBlocks, "NAT64_SEEDS": state.Seeds,
	} {
		if there := headerNumber(t, name); here != there {
			t.Errorf("%s is %d here, %d there", name, here, there)
		}
	}
}

// compare compares a record with what it should be.
func compare[R any](t *testing.T, slab []byte, index uint32, want R) {
	t.Helper()
	got := *(*R)(unsafe.Pointer(&slab[uintptr(index)*unsafe.Sizeof(want)]))
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(want)); diff != "" {
		t.Errorf("%T (-want +got):\n%s", want, diff)
	}
}

func word(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }

func slab(z state.Sizes, name string) state.Slab {
	for _, s := range z.Slabs() {
		if s.Name == name {
			return s
		}
	}
	return state.Slab{}
}

func buckets(z state.Sizes, name string) uint32 { return uint32(slab(z, name).Records) }

// headerNumber returns a constant of the header.
func headerNumber(t *testing.T, name string) uint32 {
	t.Helper()
	text, err := os.ReadFile("bpf/nat64_layout.h")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^#define ` + name + ` (\d+)[ \t]*(/\*.*)?$`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("the header does not define %s", name)
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}
