// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredobpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"net/netip"
	"runtime"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/probe"
)

// HostConfig says what the programs of a host's own clients are to do.
type HostConfig struct {
	// Endpoints bounds the peers of all clients.
	Endpoints int
	// Tunnel is the interface index of the TUN device.
	Tunnel int
	// MTU is the size of the largest IPv6 packet, in bytes.
	MTU int
	// Send and Receive are how long after its last packet a peer is sent to and
	// received from; Contact is how long after the last packet to it a peer is
	// received from, where the client says so.
	Send, Receive, Contact time.Duration

	old bool // the kernel is taken for one before 6.3
}

// Host is the fast path of Teredo clients on this host: programs that encapsulate
// what leaves by the TUN device, and decapsulate what comes in by Ethernet devices,
// and the tables of clients and their peers. It is safe for concurrent use.
type Host struct {
	object *fastpath.Object // no next hops are followed for it, and it does not go on alone
}

// Tables of the object.
const (
	clientsTable  = "clients"
	endpointsSlab = "endpoints"
)

// LoadHost loads the programs, which pass everything until clients and endpoints
// are told.
func LoadHost(cfg HostConfig) (*Host, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		cpus = runtime.NumCPU()
	}
	o, err := fastpath.Load(fastpath.Build{
		Spec: loadHost, Reasons: &teredoReasons, Controls: teredoControls,
		Constants: map[string]any{
			"limits": hostHostLimits{
				Send: uint64(cfg.Send), Receive: uint64(cfg.Receive), Contact: uint64(cfg.Contact),
				Tun: uint32(cfg.Tunnel), Mtu: uint32(cfg.MTU), IdRange: uint32(max(1<<16/max(cpus, 1), 1)),
			},
			"fixed": teredoFeatures{DecapFlag: fastpath.Byte(!cfg.old && probe.DecapFlag())},
		},
		Slabs: []fastpath.Slab{{Name: endpointsSlab, RecordSize: int(unsafe.Sizeof(hostEndpoint{})), Records: max(cfg.Endpoints, 1)}},
	})
	if err != nil {
		return nil, err
	}
	return &Host{o}, nil
}

func (h *Host) clients() *ebpf.Map   { return h.object.Map(clientsTable) }
func (h *Host) endpoints() *ebpf.Map { return h.object.Map(endpointsSlab) }

// Programs returns the programs, for [Attach].
func (h *Host) Programs() fastpath.Programs {
	return fastpath.Programs{Egress: h.object.Program("isthmus_egress"), HostIngress: h.object.Program("isthmus_host_ingress")}
}

// Counters are those of the programs, as [fastpath.Object.Counters]. What they punt is for
// the engine.
func (h *Host) Counters() ([]fastpath.Counter, error) { return h.object.Counters() }

// Trace has packets sampled for Samples, as [fastpath.Object.Trace].
func (h *Host) Trace(every, rate int) { h.object.Trace(every, rate) }

// Samples returns a reader of the sampled packets.
func (h *Host) Samples() (*ringbuf.Reader, error) { return h.object.Samples() }

// Reason returns the word of a reason.
func (h *Host) Reason(reason uint8) string { return h.object.Reason(reason) }

// Close forgets everything. Programs that are attached still pass everything.
func (h *Host) Close() error { return h.object.Close() }

// HostClient is one client.
type HostClient struct {
	// Number tells the endpoints of this client from those of others.
	Number uint32
	// Established lets in only peers that the host has sent to lately.
	Established bool
}

// SetClient has packets from and to a Teredo address carried.
func (h *Host) SetClient(own netip.Addr, c HostClient) error {
	value := hostHostClient{Number: c.Number}
	if c.Established {
		value.Flags = hostClientEstablished
	}
	return h.clients().Put(own.As16(), value)
}

// RemoveClient leaves packets from and to a Teredo address to the engine.
func (h *Host) RemoveClient(own netip.Addr) error {
	return ignoreMissing(h.clients().Delete(own.As16()))
}

// Traffic returns when packets from and to any peer of a client were carried last,
// on CLOCK_MONOTONIC; zero is never.
func (h *Host) Traffic(own netip.Addr) (heard, sent time.Duration) {
	var c hostHostClient
	if h.clients().Lookup(own.As16(), &c) != nil {
		return 0, 0
	}
	return time.Duration(c.Heard), time.Duration(c.Sent)
}

// Endpoint is a proved peer and the way to it.
type Endpoint struct {
	Mapping netip.AddrPort // where it is sent to, and where its packets come from
	Own     netip.AddrPort // our address and port towards it
	Device  int            // interface index of the Ethernet device that leads there
	// Tested leaves what is ICMPv6 to the engine.
	Tested bool
	// Heard and Sent are the times of the last packets from and to the peer, on
	// CLOCK_MONOTONIC. They may lie before its zero.
	Heard, Sent time.Duration
}

// Flags of bpf/host.c.
const (
	hostClientEstablished  = 1
	hostEndpointFlagTested = 1
)

func endpointKey(client uint32, peer *[16]byte) hostEndpointKey {
	k := hostEndpointKey{Client: client}
	k.Peer.Word[0], k.Peer.Word[1] = binary.NativeEndian.Uint64(peer[:8]), binary.NativeEndian.Uint64(peer[8:])
	return k
}

// Put sets the endpoint of a peer of a client.
func (h *Host) Put(client uint32, peer *[16]byte, e Endpoint) error {
	value := hostEndpoint{
		Ip: fastpath.IPv4Word(e.Mapping.Addr()), Port: bits.ReverseBytes16(e.Mapping.Port()),
		OwnIp: fastpath.IPv4Word(e.Own.Addr()), OwnPort: bits.ReverseBytes16(e.Own.Port()),
		Ifindex: uint32(e.Device), Heard: uint64(e.Heard), Sent: uint64(e.Sent),
	}
	if e.Tested {
		value.Flags = hostEndpointFlagTested
	}
	return h.endpoints().Put(endpointKey(client, peer), value)
}

// Delete leaves a peer of a client to the engine.
func (h *Host) Delete(client uint32, peer *[16]byte) error {
	return ignoreMissing(h.endpoints().Delete(endpointKey(client, peer)))
}

// DeleteAll leaves peers of a client to the engine, those that are there.
func (h *Host) DeleteAll(client uint32, peers iter.Seq[[16]byte]) error {
	var keys []hostEndpointKey
	for peer := range peers {
		keys = append(keys, endpointKey(client, &peer))
	}
	for len(keys) > 0 {
		n, err := h.endpoints().BatchDelete(keys, nil)
		if !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		keys = keys[n+1:] // the kernel stops at one that is not there
	}
	return nil
}

// walkBatch is how many endpoints one system call reads.
const walkBatch = 512

// Walk calls f for each endpoint, with the times of the last packets from and to
// it, to a second. What changes meanwhile may be missing or come twice.
func (h *Host) Walk(f func(client uint32, peer [16]byte, heard, sent time.Duration)) error {
	keys, values := make([]hostEndpointKey, walkBatch), make([]hostEndpoint, walkBatch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := h.endpoints().BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			var peer [16]byte
			binary.NativeEndian.PutUint64(peer[:8], keys[i].Peer.Word[0])
			binary.NativeEndian.PutUint64(peer[8:], keys[i].Peer.Word[1])
			f(keys[i].Client, peer, time.Duration(values[i].Heard), time.Duration(values[i].Sent))
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read the peers of the fast path: %w", err)
		}
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}
