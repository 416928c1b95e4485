// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netns"

	"github.com/isthmus-net/isthmus/fastpath"
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
	var rows []Row
	for _, mappings := range o.Peers {
		more, err := measureSIIT(ctx, o, mappings)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func measureSIIT(ctx context.Context, o Options, mappings int) (rows []Row, err error) {
	b := &siitBench{mappings: mappings, rig: rig{ns: netns.None()}}
	defer b.close()
	if err := b.open(); err != nil {
		return nil, err
	}
	for _, size := range o.Sizes {
		b.prepare(size)
		err := errors.Join(b.objects.Frame6.Set([64]byte(b.from6[:64])), b.objects.Frame4.Set([48]byte(b.from4[:48])))
		if err != nil {
			return nil, err
		}
		pair, err := b.rounds(ctx, o, mappings, size, []candidate{
			{"to IPv4", b.objects.HarnessTo4, b.objects.CostTo4, b.from6},
			{"to IPv6", b.objects.HarnessTo6, b.objects.CostTo6, b.from4},
		})
		if err != nil {
			return nil, err
		}
		rows = append(rows, pair...)
	}
	return rows, nil
}

// siitBench is a translator's tables in a namespace, and the programs over them.
type siitBench struct {
	rig
	mappings int
	fast     *siitbpf.Path
	objects  siitProgramsObjects
	flowFrames
}

func (b *siitBench) open() error {
	device, tunnel, err := b.enter()
	if err != nil {
		return err
	}
	if b.fast, err = siitbpf.Load(siitbpf.Config{Name: "cost", Mappings: b.mappings}); err != nil {
		return err
	}
	s := siitbpf.Settings{Pool6: []translatebpf.Prefix{{Prefix: natPrefix}}, Tunnel: tunnel}
	for n := range b.mappings {
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
	return b.load()
}

// siitHost is the n-th host.
func siitHost(n int) (four, six netip.Addr) {
	a, client := siitHosts.As4(), natClient.As16()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])+uint32(n))
	binary.BigEndian.PutUint64(client[8:], uint64(n)*0x9e3779b97f4a7c15)
	return netip.AddrFrom4(a), netip.AddrFrom16(client)
}

// load loads the programs that are measured, and what of their frames depends on a host,
// in random order.
func (b *siitBench) load() error {
	spec, err := loadSiitPrograms()
	if err != nil {
		return err
	}
	spec.Maps["parts"].MaxEntries = uint32(b.mappings)
	if err := spec.Variables["part_mask"].Set(uint32(b.mappings - 1)); err != nil {
		return err
	}
	if err := b.fast.LoadBeside(spec, &b.objects); err != nil {
		return fmt.Errorf("cannot load the programs to be measured: %w", err)
	}
	b.turn, b.forwarded = b.objects.Turn, b.countForwarded
	if b.parts, err = mapRecords[natProgramsPart](&b.rig, b.objects.Parts, b.mappings); err != nil {
		return err
	}
	for i, n := range order(b.mappings) {
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

func (b *siitBench) countForwarded() (n uint64, err error) {
	list, err := b.fast.Counters()
	for _, c := range list {
		if c.Verdict == fastpath.Forward {
			n += c.Packets
		}
	}
	return n, err
}

func (b *siitBench) close() {
	b.objects.Close()
	if b.fast != nil {
		b.fast.Close()
	}
	b.rig.close()
}
