// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/vishvananda/netns"

	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/siit/siitbpf"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
)

// siitHosts is the first of the IPv4 addresses of mapped hosts.
var siitHosts = netip.MustParseAddr("10.0.0.0")

// MeasureSIIT runs the program of a stateless translator over so many explicit mappings of
// one host each, all of which speak, in random order. Programs remember the next hops of
// 16,384 IPv6 hosts: of more, and of some that share a place before, packets to IPv6 cost
// a look-up of the kernel's routes. It needs root and makes a network namespace of its
// own.
func MeasureSIIT(ctx context.Context, o Options) ([]Row, error) {
	return measure(ctx, o, func(mappings int) (bencher, error) {
		b := &siitBench{flowBench: flowBench{flows: mappings, rig: rig{ns: netns.None()}}}
		return b, b.open()
	})
}

// siitBench is a translator's tables in a namespace, and the programs over them.
type siitBench struct {
	flowBench
	fast    *siitbpf.Path
	objects siitProgramsObjects
}

func (b *siitBench) open() error {
	device, tunnel, err := b.enter()
	if err != nil {
		return err
	}
	if b.fast, err = siitbpf.Load(siitbpf.Config{Name: "cost", Mappings: b.flows}); err != nil {
		return err
	}
	b.tables = b.fast.Object
	s := siitbpf.Settings{Pool6: []translatebpf.Prefix{{Prefix: natPrefix}}, Tunnel: tunnel}
	for n := range b.flows {
		four, six := siitHost(n)
		s.Mappings = append(s.Mappings, translate.Mapping{IPv4: netip.PrefixFrom(four, 32), IPv6: netip.PrefixFrom(six, 128)})
	}
	if err := b.fast.Set(s); err != nil {
		return err
	}
	b.fast.Beat(time.Hour)
	if err := serve(b.fast.SetDevice, device); err != nil {
		return err
	}
	return b.loadBoth()
}

// siitHost is the n-th host.
func siitHost(n int) (four, six netip.Addr) {
	a, client := siitHosts.As4(), natClient.As16()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])+uint32(n))
	binary.BigEndian.PutUint64(client[8:], uint64(n)*0x9e3779b97f4a7c15)
	return netip.AddrFrom4(a), netip.AddrFrom16(client)
}

// loadBoth loads the programs that are measured, and what of their frames depends on a host,
// in random order.
func (b *siitBench) loadBoth() error {
	spec, err := loadSiitPrograms()
	if err := b.load(spec, err, "parts", "part_mask", b.flows, &b.objects); err != nil {
		return err
	}
	p := &b.objects
	b.turn, b.frame6, b.frame4 = p.Turn, p.Frame6, p.Frame4
	b.to4.harness, b.to4.program, b.to6.harness, b.to6.program = p.HarnessTo4, p.CostTo4, p.HarnessTo6, p.CostTo6
	if b.parts, err = mapRecords[natProgramsPart](&b.rig, p.Parts, b.flows); err != nil {
		return err
	}
	for i, n := range order(b.flows) {
		four, six := siitHost(n)
		a, client, server := four.As4(), six.As16(), natServer.As4()
		server[3] = byte(n % natServers)
		b.parts[i] = natProgramsPart{
			Client: [3]uint32{binary.NativeEndian.Uint32(client[4:]), binary.NativeEndian.Uint32(client[8:]), binary.NativeEndian.Uint32(client[12:])},
			Server: binary.NativeEndian.Uint32(server[:]), Pool: binary.NativeEndian.Uint32(a[:]),
			ClientPort: swap(natFlowPort), PoolPort: swap(natFlowPort),
		}
	}
	return nil
}
