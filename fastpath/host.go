// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
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
type Host struct{ parts hostParts }

// hostParts are what of the object is used after it was loaded.
type hostParts struct {
	Clients   *ebpf.Map     `ebpf:"clients"`
	Endpoints *ebpf.Map     `ebpf:"endpoints"`
	Counters  *ebpf.Map     `ebpf:"counters"`
	Sampled   *ebpf.Map     `ebpf:"samples"`
	Settings  *ebpf.Map     `ebpf:".data.settings"`
	Egress    *ebpf.Program `ebpf:"isthmus_egress"`
	Ingress   *ebpf.Program `ebpf:"isthmus_host_ingress"`
}

// LoadHost loads the programs, which pass everything until clients and endpoints
// are told.
func LoadHost(cfg HostConfig) (*Host, error) {
	spec, err := loadHost()
	if err != nil {
		return nil, err
	}
	if err := cfg.shape(spec); err != nil {
		return nil, fmt.Errorf("cannot set up the fast path of the client: %w", err)
	}
	dropUnused(spec)
	h := new(Host)
	if err := spec.LoadAndAssign(&h.parts, nil); err != nil {
		return nil, loadError(err)
	}
	return h, nil
}

// loadError says in words why programs cannot be loaded.
func loadError(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("no permission to load the fast path: run as root or with CAP_BPF and CAP_NET_ADMIN: %w", err)
	}
	return fmt.Errorf("the kernel does not take the fast path: %w", err)
}

// shape puts the configuration into the programs.
func (cfg *HostConfig) shape(spec *ebpf.CollectionSpec) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		cpus = runtime.NumCPU()
	}
	spec.Maps["endpoints"].MaxEntries = uint32(max(cfg.Endpoints, 1))
	limits := hostHostLimits{
		Send: uint64(cfg.Send), Receive: uint64(cfg.Receive), Contact: uint64(cfg.Contact),
		Tun: uint32(cfg.Tunnel), Mtu: uint32(cfg.MTU), IdRange: uint32(max(1<<16/max(cpus, 1), 1)),
	}
	var fixed teredoFeatures
	if !cfg.old && tryDecapFlag() == nil {
		fixed.DecapFlag = 1
	}
	return errors.Join(spec.Variables["limits"].Set(limits), spec.Variables["fixed"].Set(fixed))
}

// dropUnused leaves out the tables of other roles, which the common headers declare.
func dropUnused(spec *ebpf.CollectionSpec) {
	used := map[string]bool{}
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			used[p.Instructions[i].Reference()] = true
		}
	}
	for name := range spec.Maps {
		if !used[name] {
			delete(spec.Maps, name)
		}
	}
	for name, v := range spec.Variables {
		if !used[v.SectionName] {
			delete(spec.Variables, name)
		}
	}
}

// Programs returns the programs, for [Attach].
func (h *Host) Programs() Programs {
	return Programs{Egress: h.parts.Egress, HostIngress: h.parts.Ingress}
}

// Counters returns the counters by reason; those of forwarded packets begin with
// "host". Punts of this host's programs are packets that the engine got.
func (h *Host) Counters() ([]Counter, error) { return readCounters(h.parts.Counters) }

// Samples returns a reader of the sampled packets; [ParseSample] takes its records
// apart.
func (h *Host) Samples() (*ringbuf.Reader, error) { return sampleReader(h.parts.Sampled) }

// Trace samples one packet in so many, 0 none, and no more than rate a second, 0
// as many as there are.
func (h *Host) Trace(every, rate int) error {
	var s teredoRelaySettings
	s.TraceEvery, s.TraceLimit = uint32(every), uint32(rate)
	if err := h.parts.Settings.Put(uint32(0), s); err != nil {
		return fmt.Errorf("cannot have packets of the fast path sampled: %w", err)
	}
	return nil
}

// Close forgets everything. Programs that are attached still pass everything.
func (h *Host) Close() error {
	var errs []error
	for _, m := range []*ebpf.Map{h.parts.Clients, h.parts.Endpoints, h.parts.Counters, h.parts.Sampled, h.parts.Settings} {
		errs = append(errs, m.Close())
	}
	for _, p := range []*ebpf.Program{h.parts.Egress, h.parts.Ingress} {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

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
	return h.parts.Clients.Put(own.As16(), value)
}

// RemoveClient leaves packets from and to a Teredo address to the engine.
func (h *Host) RemoveClient(own netip.Addr) error {
	return ignoreMissing(h.parts.Clients.Delete(own.As16()))
}

// Traffic returns when packets from and to any peer of a client were carried last,
// on CLOCK_MONOTONIC; zero is never.
func (h *Host) Traffic(own netip.Addr) (heard, sent time.Duration) {
	var c hostHostClient
	if h.parts.Clients.Lookup(own.As16(), &c) != nil {
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

// address4 and port16 are as they lie in a packet.
func address4(a netip.Addr) uint32 {
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}

func port16(p uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, p))
}

// Put sets the endpoint of a peer of a client.
func (h *Host) Put(client uint32, peer *[16]byte, e Endpoint) error {
	value := hostEndpoint{
		Ip: address4(e.Mapping.Addr()), Port: port16(e.Mapping.Port()),
		OwnIp: address4(e.Own.Addr()), OwnPort: port16(e.Own.Port()),
		Ifindex: uint32(e.Device), Heard: uint64(e.Heard), Sent: uint64(e.Sent),
	}
	if e.Tested {
		value.Flags = hostEndpointFlagTested
	}
	return h.parts.Endpoints.Put(endpointKey(client, peer), value)
}

// Delete leaves a peer of a client to the engine.
func (h *Host) Delete(client uint32, peer *[16]byte) error {
	return ignoreMissing(h.parts.Endpoints.Delete(endpointKey(client, peer)))
}

// walkBatch is how many endpoints one system call reads.
const walkBatch = 512

// Walk calls f for each endpoint, with the times of the last packets from and to
// it, to a second. What changes meanwhile may be missing or come twice.
func (h *Host) Walk(f func(client uint32, peer [16]byte, heard, sent time.Duration)) error {
	keys, values := make([]hostEndpointKey, walkBatch), make([]hostEndpoint, walkBatch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := h.parts.Endpoints.BatchLookup(&cursor, keys, values, nil)
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
