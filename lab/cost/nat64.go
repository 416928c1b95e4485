// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netns"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate/nat64/nat64bpf"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
)

// The translator that is measured, and the first of its hosts on either side.
var (
	natPrefix = netip.MustParsePrefix("2001:db8:64::/96")
	natPool   = netip.MustParseAddr("203.0.113.0")
	natServer = netip.MustParseAddr("198.51.100.0")
	natClient = netip.MustParseAddr("2001:db8:1::")
)

// Shape of the translator's hosts. Each client has a network and a block of ports of
// its own.
const (
	natPoolAddresses = 64
	natBlockWords    = 8   // of 64 ports
	natOfClient      = 256 // sessions
	natServers       = 256
	natServerPort    = 9
	natFlowPort      = 1024 // the lowest of clients
)

// MeasureNAT64 runs the translator's program over so many UDP sessions. It needs root
// and makes a network namespace of its own.
func MeasureNAT64(ctx context.Context, o Options) ([]Row, error) {
	return measure(ctx, o, func(sessions int) (bencher, error) {
		b := newNATBench(sessions, sessions, false)
		return b, b.open()
	})
}

// natBench is a translator's tables in a namespace, and the programs over them.
type natBench struct {
	flowBench
	records int // for sessions
	fast    *nat64bpf.Path
	table   *state.Table
	objects natProgramsObjects
}

func newNATBench(sessions, records int, oneCPU bool) *natBench {
	return &natBench{records: records, flowBench: flowBench{flows: sessions, rig: rig{ns: netns.None(), oneCPU: oneCPU}}}
}

// flowBench are programs of a translator, and the frames of its flows.
type flowBench struct {
	rig
	flows          int // sessions or mappings
	frame6, frame4 *ebpf.Variable
	to4, to6       struct{ harness, program *ebpf.Program }
	parts          []natProgramsPart // what depends on the flow
	from6, from4   []byte            // frames of the size that is measured
}

// measure is that of a translator.
func (b *flowBench) measure(ctx context.Context, o Options, size int) ([]Row, error) {
	b.prepare(size)
	if err := b.setFrames(); err != nil {
		return nil, err
	}
	return b.rounds(ctx, o, b.flows, size, []candidate{
		{"to IPv4", b.to4.harness, b.to4.program, b.from6},
		{"to IPv6", b.to6.harness, b.to6.program, b.from4},
	})
}

// setFrames tells the programs how frames begin.
func (b *flowBench) setFrames() error {
	return errors.Join(b.frame6.Set([64]byte(b.from6[:64])), b.frame4.Set([48]byte(b.from4[:48])))
}

func (b *natBench) open() error {
	device, tunnel, err := b.enter()
	if err != nil {
		return err
	}
	sizes := state.Sizes{
		Sessions: b.records, Subscribers: max(b.flows/natOfClient, 1) + 1, Addresses: natPoolAddresses,
		BlockWords: natBlockWords, SubscriberLength: 64,
	}
	if b.fast, err = nat64bpf.Load(nat64bpf.Config{Name: "cost", Sizes: sizes}); err != nil {
		return err
	}
	b.tables = b.fast.Object
	if err := b.set(device, tunnel); err != nil {
		return err
	}
	if err := b.loadBoth(); err != nil {
		return err
	}
	return b.fill(sizes)
}

// set tells the programs of the translator.
func (b *natBench) set(device, tunnel int) error {
	s := nat64bpf.Settings{
		Pool6: []translatebpf.Prefix{{Prefix: natPrefix}}, ExternalTCP: true, Tunnel: tunnel,
		Pool4: []nat64bpf.Range{{Prefix: netip.PrefixFrom(natPool, 26)}},
	}
	for transport := range s.Lifetimes {
		s.Pool4[0].Ports[transport] = nat64bpf.PortRange{First: 1024, Last: 65535}
		for status := range s.Lifetimes[transport] {
			s.Lifetimes[transport][status] = time.Hour
		}
	}
	if err := b.fast.Set(s); err != nil {
		return err
	}
	b.fast.Beat(time.Hour)
	return serve(b.fast.SetDevice, device)
}

// loadBoth loads the programs that are measured.
func (b *natBench) loadBoth() error {
	spec, err := loadNatPrograms()
	if err := b.load(spec, err, "parts", "part_mask", b.flows, &b.objects); err != nil {
		return err
	}
	p := &b.objects
	b.turn, b.frame6, b.frame4 = p.Turn, p.Frame6, p.Frame4
	b.to4.harness, b.to4.program, b.to6.harness, b.to6.program = p.HarnessTo4, p.CostTo4, p.HarnessTo6, p.CostTo6
	b.parts, err = mapRecords[natProgramsPart](&b.rig, p.Parts, b.flows)
	return err
}

// fill makes sessions, and what of the frames depends on each, in random order.
func (b *natBench) fill(sizes state.Sizes) error {
	table, _, err := state.Open(sizes, b.fast.Memory(), natSeed())
	if err != nil {
		return err
	}
	b.table = table
	var pool []state.PoolAddress
	for i := range natPoolAddresses {
		a := state.PoolAddress{Address: natAddress(i)}
		for transport := range state.Transports {
			a.Ports = append(a.Ports, state.PortRange{Transport: transport, First: 1024, Last: 65535})
		}
		pool = append(pool, a)
	}
	if err := table.SetPool(pool); err != nil {
		return err
	}
	for i, n := range order(b.flows) {
		s, err := session(table, n)
		if err != nil {
			return fmt.Errorf("session %d of %d: %w", n, b.flows, err)
		}
		b.parts[i] = natProgramsPart{
			Client: [3]uint32{binary.NativeEndian.Uint32(s.Client[4:]), binary.NativeEndian.Uint32(s.Client[8:]), binary.NativeEndian.Uint32(s.Client[12:])},
			Server: binary.NativeEndian.Uint32(s.Peer[:]),
			Pool:   binary.NativeEndian.Uint32(s.Pool[:]), ClientPort: swap(s.ClientPort), PoolPort: swap(s.PoolPort),
		}
	}
	return nil
}

// natSeed is what a table's seed is like, the same each time.
func natSeed() (seed [state.Seeds]uint64) {
	random := rand.New(rand.NewPCG(64, 6146))
	for i := range seed {
		seed[i] = random.Uint64() | 1
	}
	return seed
}

// natAddress is an address of the pool.
func natAddress(i int) [4]byte {
	a := natPool.As4()
	a[3] += byte(i)
	return a
}

// session makes the n-th session.
func session(table *state.Table, n int) (s state.Session, err error) {
	client := natClient.As16()
	number := n / natOfClient
	binary.BigEndian.PutUint16(client[6:], uint16(number))
	binary.BigEndian.PutUint64(client[8:], uint64(number)*0x9e3779b97f4a7c15)
	server := natServer.As4()
	server[3] = byte(n % natServers)
	var subscriber state.Subscriber
	switch o := table.MakeSubscriber(&client, natAddress(number%natPoolAddresses), 0, &subscriber); o {
	case state.Found:
	case state.Made:
		var block state.Block
		// A block is of all transports.
		if o := table.Lease(&subscriber, state.UDP, 1, uint64(n)*0x9e3779b9, &block); !o.OK() {
			return s, fmt.Errorf("no block of ports: %s", o)
		}
	default:
		return s, fmt.Errorf("no client: %s", o)
	}
	in := state.Inside{Client: client, Port: uint16(natFlowPort + n%natOfClient), Transport: state.UDP}
	var binding state.Binding
	if o := table.NewBinding(&subscriber, in, state.Wish{Port: in.Port, Parity: true}, uint64(n)*0x9e3779b97f4a7c15, &binding); !o.OK() {
		return s, fmt.Errorf("no binding: %s", o)
	}
	fresh := state.Fresh{Peer: server, PeerPort: natServerPort, Status: state.Opened, Stamp: state.Stamp(fastpath.Monotonic())}
	if o := table.NewSession(&binding, fresh, &s); !o.OK() {
		return s, fmt.Errorf("no session: %s", o)
	}
	return s, nil
}

// prepare makes the frames of a size, and the checksums in the templates.
func (b *flowBench) prepare(size int) {
	server := natPrefix.Addr().As16()
	copy(server[12:], natServer.AsSlice())
	segment := make([]byte, size-packet.IPv6HeaderLen)
	binary.BigEndian.PutUint16(segment[2:], natServerPort)
	binary.BigEndian.PutUint16(segment[4:], uint16(len(segment)))
	b.from6 = ethernet(0x86dd, append(packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, len(segment), natClient, netip.AddrFrom16(server)), segment...))

	back := append([]byte(nil), segment...)
	binary.BigEndian.PutUint16(back, natServerPort)
	binary.BigEndian.PutUint16(back[2:], 0)
	header := make([]byte, 20)
	header[0], header[8], header[9] = 0x45, 64, packet.ProtoUDP
	binary.BigEndian.PutUint16(header[2:], uint16(len(header)+len(back)))
	copy(header[12:], natServer.AsSlice())
	b.from4 = ethernet(0x0800, append(header, back...))
	for i := range b.parts {
		f := &b.parts[i]
		ip := b.from6[14:]
		binary.NativeEndian.PutUint32(ip[12:], f.Client[0])
		binary.NativeEndian.PutUint32(ip[16:], f.Client[1])
		binary.NativeEndian.PutUint32(ip[20:], f.Client[2])
		binary.NativeEndian.PutUint32(ip[36:], f.Server)
		binary.NativeEndian.PutUint16(ip[40:], f.ClientPort)
		f.Checksum6 = swap(udpChecksum(ip[8:40], ip[40:]))
		ip = b.from4[14:]
		binary.NativeEndian.PutUint32(ip[12:], f.Server)
		binary.NativeEndian.PutUint32(ip[16:], f.Pool)
		binary.NativeEndian.PutUint16(ip[22:], f.PoolPort)
		f.HeaderChecksum = headerChecksum(ip)
		f.Checksum4 = swap(udpChecksum(ip[12:20], ip[20:]))
	}
}

// headerChecksum is that of an IPv4 header, in which it is 0, as it is stored.
func headerChecksum(ip []byte) uint16 { return swap(^packet.Fold(packet.Sum(0, ip[:20]))) }

// udpChecksum is that of a datagram whose checksum field is 0, between addresses that
// stand beside each other.
func udpChecksum(addresses, datagram []byte) uint16 {
	c := ^packet.Fold(packet.Sum(packet.Sum(packet.ProtoUDP+uint64(len(datagram)), addresses), datagram))
	if c == 0 {
		return 0xffff
	}
	return c
}
