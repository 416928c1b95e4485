// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/translate/nat64/nat64role"
)

// Choices of the translators in place.
const (
	placedSize = 64 // of the IPv6 packet in bytes
	// placedRoom has room for the crowd, and for the sessions of the rows with few hosts.
	placedRoom = 1_200_000
	// placedReady bounds the start of a stateless translator with a million mappings.
	placedReady = 10 * time.Minute
	listPart    = 10_000 // bindings that are asked for at once
)

// placedSource is where frames of the IPv4 side come from that plain forwarding gets.
var placedSource = netip.MustParseAddr("203.0.113.250")

// placedTranslators is a translator on each way. IPv6 hosts are the crowd's.
type placedTranslators struct {
	*rig
	stateless bool
	clients   []load.Peer
	bound     map[way]map[netip.AddrPort]netip.AddrPort // of a NAT64: what stands for a client
}

// newPlacedTranslators starts the translators, with room for so many frames on each way.
func newPlacedTranslators(ctx context.Context, e *lab.Env, name string, c translating, n int) (*placedTranslators, *placedWorld, error) {
	c.Crowd = true
	l, done, err := startTranslators(ctx, e, name, c, placedWays, len(placedWays)*n)
	if err != nil {
		return nil, nil, err
	}
	t := &placedTranslators{rig: l, stateless: c.Stateless, clients: placedClients(n), bound: map[way]map[netip.AddrPort]netip.AddrPort{}}
	w := &placedWorld{close: done}
	for i, p := range l.paths {
		err := drawGateways(p.router, p.number, func(g int) netip.Prefix { return netip.MustParsePrefix(fmt.Sprintf("2001:db8:8000:%x::/58", 64*g)) }, p.leftMAC, p.rightMAC)
		if err != nil {
			done()
			return nil, nil, err
		}
		first := 1 + i*n
		w.places = append(w.places, &place{
			way: p.way, router: p.router, first: first, table: l.generator.Peers()[first : first+n],
			lane: func(d direction) load.Lane { return t.placedLane(p, d) },
			run: func(d direction, lane load.Lane, pace load.Pace) (ran, error) {
				return l.over(p, d, []load.Lane{lane}, pace)
			},
			counts: p.counts,
		})
	}
	return t, w, nil
}

// placedClients are the first n IPv6 hosts, each with its port and an IPv4 host.
func placedClients(n int) []load.Peer {
	random := rand.New(rand.NewPCG(6146, 7757))
	clients := make([]load.Peer, n)
	for i := range clients {
		clients[i] = crowdPeer(i, random)
		clients[i].Far = placedHost4(i).As4()
	}
	return clients
}

// placedLane are the frames of a way. To plain forwarding those to IPv4 are of IPv4.
func (t *placedTranslators) placedLane(p *rigPath, d direction) load.Lane {
	lane := load.Lane{Target: p.aimed(d), ToClient: d == toIPv6, Ports: p.way.ours() && !t.stateless}
	inside, outside := netip.AddrPortFrom(p.source, load.DiscardPort), netip.AddrPortFrom(p.target, load.DiscardPort)
	switch {
	case d == toIPv4 && p.way.ours():
		lane.Frame = load.Datagram(p.leftMAC, p.in6MAC, inside, outside, placedSize)
	case d == toIPv4:
		lane.Frame = load.Datagram(p.leftMAC, p.in6MAC, netip.AddrPortFrom(placedSource, load.DiscardPort), netip.AddrPortFrom(placedHost4(0), load.DiscardPort), placedSize)
	case p.way.ours():
		lane.Frame = load.Datagram(p.rightMAC, p.out4MAC, netip.AddrPortFrom(placedHost4(0), load.DiscardPort), netip.AddrPortFrom(p.mapped, load.DiscardPort), placedSize)
	default:
		lane.Frame = load.Datagram(p.rightMAC, p.out4MAC, outside, inside, placedSize)
	}
	return lane
}

// frame is that of one IPv6 host and one IPv4 host.
func (t *placedTranslators) frame(p *place, d direction, client load.Peer, far [4]byte, stands func(load.Peer) (netip.AddrPort, bool)) (load.Peer, bool) {
	f := load.Peer{Client: client.Client, Port: client.Port, IP: placedSource.As4(), Far: far}
	if d == toIPv6 && p.way.ours() {
		outside, found := stands(client)
		if !found {
			return f, false
		}
		f.IP = outside.Addr().As4()
		binary.BigEndian.PutUint16(f.Port[:], outside.Port())
	}
	return f, true
}

// newPlacedNAT64 starts the stateful ones. Sessions are made as packets make them.
func newPlacedNAT64(ctx context.Context, e *lab.Env, name string, form placedForm) (*placedWorld, error) {
	plan := translating{More: fmt.Sprintf("max_sessions = %d\nmax_clients = 4096\nblock_size = %d\nclient_blocks = 2\nblock_log = false\nudp_timeout = \"1h\"\n", placedRoom, crowdBlock)}
	t, w, err := newPlacedTranslators(ctx, e, name, plan, form.most())
	if err != nil {
		return nil, err
	}
	w.fill = func(ctx context.Context, n int) error {
		for _, p := range t.paths {
			if !p.way.ours() {
				continue
			}
			e.Step("%s: making %d sessions", p.way.title, n)
			if err := t.makeSessions(ctx, p, n, form); err != nil {
				return err
			}
		}
		return nil
	}
	w.frames = func(p *place, d direction, m mix) []load.Peer {
		if m.entries < m.hosts || m.entries > m.hosts && d == toIPv4 {
			return nil // a session is of one host, and those to few IPv4 hosts were not made
		}
		frames := make([]load.Peer, 0, m.entries)
		for _, i := range m.order() {
			f, found := t.frame(p, d, t.clients[i%m.hosts], t.clients[i].Far, func(c load.Peer) (netip.AddrPort, bool) {
				outside, found := t.bound[p.way][insideOf(c)]
				return outside, found
			})
			if found {
				frames = append(frames, f)
			}
		}
		return frames
	}
	return w, nil
}

func insideOf(c load.Peer) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(c.Client), binary.BigEndian.Uint16(c.Port[:]))
}

// makeSessions makes those of the first n clients, each with a host of its own, and, with
// the crowd of the rows with few hosts, those of a few clients with all hosts.
func (t *placedTranslators) makeSessions(ctx context.Context, p *rigPath, n int, form placedForm) error {
	table := t.generator.Peers()[1:]
	copy(table, t.clients[:n])
	if err := t.meetCrowd(ctx, p, n); err != nil {
		return err
	}
	if err := t.fill(ctx, p, n); err != nil {
		return err
	}
	if n == form.apart {
		for i := range n {
			table[i] = t.clients[i%form.few]
			table[i].Far = t.clients[i].Far
		}
		for range 2 { // a busy machine loses some
			if err := t.pass(ctx, p, n, fillRate); err != nil {
				return err
			}
		}
	}
	return t.learnBindings(ctx, p)
}

// learnBindings asks the translator which addresses and ports stand for the clients.
func (t *placedTranslators) learnBindings(ctx context.Context, p *rigPath) error {
	client := control.NewClient(p.isthmus().socket())
	bound := map[netip.AddrPort]netip.AddrPort{}
	for from := uint32(0); ; {
		var part nat64role.Bindings
		arguments := fmt.Appendf(nil, `{"limit":%d,"from":%d}`, listPart, from)
		if err := client.Ask(ctx, control.Question{Role: nat64role.Role.Name, What: "bindings", Arguments: arguments}, &part); err != nil {
			return fmt.Errorf("the bindings of %s: %w", p.way.title, err)
		}
		for _, b := range part.Bindings {
			bound[b.Inside] = b.Outside
		}
		if from = part.From; from == 0 {
			break
		}
	}
	t.bound[p.way] = bound
	return nil
}

// Mappings of the stateless ones: one for each host, and one for a range of hosts.
const (
	placedRange4 = "10.240.0.0/16"
	placedRange6 = "2001:db8:8000:3ff::/112"
)

// mapped4 is what stands for the i-th IPv6 host.
func mapped4(i int) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 10<<24|128<<16+spreadHost(i))))
}

// ranged is the i-th host of the range, and what stands for it.
func ranged(i int) (six [16]byte, four netip.Addr) {
	six = netip.MustParsePrefix(placedRange6).Addr().As16()
	binary.BigEndian.PutUint16(six[14:], uint16(i))
	return six, netip.AddrFrom4([4]byte{10, 240, byte(i >> 8), byte(i)})
}

// newPlacedSIIT starts the stateless ones, with all mappings.
func newPlacedSIIT(ctx context.Context, e *lab.Env, name string, form placedForm) (_ *placedWorld, err error) {
	dir, err := os.MkdirTemp("", "isthmus-mappings-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "eam")
	if err := writeMappings(file, placedClients(form.most())); err != nil {
		return nil, err
	}
	t, w, err := newPlacedTranslators(ctx, e, name, translating{Stateless: true, Ready: placedReady, More: fmt.Sprintf("eam_file = %q\n", file)}, form.most())
	if err != nil {
		return nil, err
	}
	w.fill = func(context.Context, int) error { return nil }
	w.frames = func(p *place, d direction, m mix) []load.Peer {
		if m.entries > m.hosts {
			return nil
		}
		frames := make([]load.Peer, 0, m.hosts)
		for _, i := range m.order() {
			client, four := t.clients[i], mapped4(i)
			if m.entries < m.hosts {
				client.Client, four = ranged(i)
				if d == toIPv4 {
					client = t.clients[0]
				}
			}
			f, _ := t.frame(p, d, client, t.clients[i].Far, func(load.Peer) (netip.AddrPort, bool) { return netip.AddrPortFrom(four, 0), true })
			frames = append(frames, f)
		}
		return frames
	}
	return w, nil
}

// writeMappings writes the mappings of all hosts.
func writeMappings(file string, clients []load.Peer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s\n", placedRange4, placedRange6)
	for i, c := range clients {
		fmt.Fprintf(&text, "%s %s\n", mapped4(i), netip.AddrFrom16(c.Client))
	}
	return os.WriteFile(file, []byte(text.String()), 0o644)
}
