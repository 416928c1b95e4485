// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnbpf_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// twins are two engines of the same contexts: one is alone, the other shares them with programs, and gets what these
// leave. Whatever comes, both tell the same of it.
type twins struct {
	*world
	alone, beside *ggsn.Engine
	outs          [2]ggsn.Output
	contexts      []ggsn.ContextInfo
	rng           *rand.Rand
	carried       map[string]int
}

// twinSettings are those of a node with access points of all forms that matter to packets.
func twinSettings() ggsn.Settings {
	s := ggsn.Defaults()
	s.Address4, s.Peers, s.RestartCounter, s.EchoInterval = own, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/23")}, 7, 0
	s.Limits.ErrorRate, s.Limits.ICMPRate = 1<<30, 1<<30
	apn := func(name string, n int, change func(*ggsn.APN)) {
		a := ggsn.APN{
			Name: name, Types: ggsn.TypeIPv4 | ggsn.TypeIPv6 | ggsn.TypeIPv4v6, MTU: 1450,
			Router4: own, Router6: netip.MustParseAddr("2001:db8:f:1::1"),
			Pools4: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.45.%d.0/24", n))},
			Pools6: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("2001:db8:45:%x00::/56", n))},
		}
		change(&a)
		s.APNs = append(s.APNs, a)
	}
	apn("plain", 0, func(*ggsn.APN) {})
	apn("open", 1, func(a *ggsn.APN) { a.AnyOuterSource, a.ClearECN, a.MTU = true, true, 1300 })
	apn("uniform", 2, func(a *ggsn.APN) { a.Uniform = true })
	apn("counted", 3, func(a *ggsn.APN) { a.Account, a.Charging.Volume = true, 10_000 })
	apn("marked", 4, func(a *ggsn.APN) { a.MarkInner = true })
	s.Records = true
	return s
}

func newTwins(t *testing.T, seed uint64) *twins {
	w := &twins{world: newWorld(t), rng: rand.New(rand.NewPCG(seed, 1)), carried: map[string]int{}}
	// The world's own context is none of theirs.
	w.context.State = 0
	w.shared.Index.Leave(3, w.context)
	*w.context = ggsn.SharedContext{}
	var err error
	for _, e := range []**ggsn.Engine{&w.alone, &w.beside} {
		if *e, err = ggsn.New(twinSettings(), w.epoch, rand.NewChaCha8([32]byte{1})); err != nil {
			t.Fatal(err)
		}
	}
	w.beside.Share(w.fast.Shared(w.beside.Epoch()))
	for n, a := range twinSettings().APNs {
		for i, kind := range []gtp.PDPType{gtp.PDPTypeIPv4, gtp.PDPTypeIPv6, gtp.PDPTypeIPv4v6} {
			w.attach(t, 10*n+i, a.Name, kind)
		}
	}
	w.beside.Contexts(ggsn.Selection{}, 0, 1000, func(c ggsn.ContextInfo) bool {
		w.contexts = append(w.contexts, c)
		return true
	})
	return w
}

// attach makes a context of both.
func (w *twins) attach(t *testing.T, n int, apn string, kind gtp.PDPType) {
	t.Helper()
	imsi, err := gtp.ParseIMSI(fmt.Sprintf("24001%010d", n))
	if err != nil {
		t.Fatal(err)
	}
	name, err := gtp.ParseAPN(apn)
	if err != nil {
		t.Fatal(err)
	}
	var codec gtp.Codec
	b, err := codec.Append(nil, gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: uint16(n)}, &gtp.CreateRequest{
		IMSI: gtp.Some(imsi), SelectionMode: gtp.Some(gtp.SelectionVerified), TEIDData: 0x1000 + uint32(n), TEIDControl: gtp.Some(0x2000 + uint32(n)), NSAPI: 5,
		EndUserAddress: gtp.Some(gtp.EndUserAddress{Type: kind}), APN: gtp.Some(name), AddressControl: node, AddressUser: node,
		QoS: gtp.Profile{Class: gtp.ClassInteractive, HandlingPriority: 1, MaxUp: 8640, MaxDown: 8640}.QoS(12), CommonFlags: gtp.Some(gtp.FlagDualAddressBearer),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.both(func(e *ggsn.Engine, out *ggsn.Output) {
		e.HandleUDP(ggsn.SocketControl, netip.AddrPortFrom(node, 2123), 0, bytes.Clone(b), time.Now(), out)
	})
	w.same(t, "a request", b)
}

func (w *twins) both(f func(e *ggsn.Engine, out *ggsn.Output)) {
	for i, e := range []*ggsn.Engine{w.alone, w.beside} {
		w.outs[i].Reset()
		f(e, &w.outs[i])
	}
}

// volumes are what charging records tell of, and why they were closed.
func volumes(list []ggsn.Record) (told []string) {
	for _, r := range list {
		told = append(told, fmt.Sprint(r.Context.Record, r.Number, r.Cause, r.Context.Up, r.Context.Down))
	}
	return told
}

// same fails unless both engines have sent the same, and closed the same charging records.
func (w *twins) same(t *testing.T, of string, b []byte) {
	t.Helper()
	if diff := cmp.Diff(volumes(w.outs[0].Records), volumes(w.outs[1].Records)); diff != "" {
		t.Fatalf("charging records (-alone +beside programs):\n%s", diff)
	}
	one, other := &w.outs[0].Batch, &w.outs[1].Batch
	same := slices.EqualFunc(one.IP, other.IP, bytes.Equal) && slices.EqualFunc(one.UDP, other.UDP, func(a, b packet.Datagram) bool { return reflect.DeepEqual(a, b) })
	if !same {
		t.Fatalf("of %s, %x, one sends\n%+v %x\nthe other\n%+v %x", of, b, one.UDP, one.IP, other.UDP, other.IP)
	}
}

// pick is one of a list.
func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// random returns a packet between a context's terminal and others, with faults now and then.
func (w *twins) random(c *ggsn.ContextInfo, six, up bool) []byte {
	r := w.rng
	terminal, others := c.Address4, []netip.Addr{host4, host4, host4, host4, slim4, lost4, own, terminal4, netip.MustParseAddr("224.0.0.5"), netip.MustParseAddr("127.0.0.1")}
	if six {
		terminal = withID(c.Prefix6.Addr(), r.Uint64())
		others = []netip.Addr{host6, host6, host6, host6, slim6, lost6, terminal6, netip.MustParseAddr("ff02::2"), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("ff0e::1")}
	}
	from, to := terminal, pick(r, others...)
	if r.IntN(12) == 0 {
		from = pick(r, terminal4, host4)
		if six {
			from = pick(r, terminal6, host6, netip.MustParseAddr("fe80::7"), netip.IPv6Unspecified())
		}
	}
	if !up {
		from, to = to, terminal
		if r.IntN(3) > 0 {
			from = host4
			if six {
				from = host6
			}
		}
	}
	proto := pick(r, byte(packet.ProtoTCP), packet.ProtoUDP, packet.ProtoICMPv4, packet.ProtoICMPv6, 132, 0, 44)
	n := pick(r, 0, 7, 8, 19, 20, 21, 40, 100+r.IntN(1100), 1230+r.IntN(240))
	ip := inside(from, to, proto, n)
	for range r.IntN(4) {
		w.mutate(ip)
	}
	return ip
}

// withID is an address with another lower half.
func withID(a netip.Addr, id uint64) netip.Addr {
	b := a.As16()
	binary.BigEndian.PutUint64(b[8:], id)
	return netip.AddrFrom16(b)
}

// mutate changes a packet here and there.
func (w *twins) mutate(ip []byte) {
	r := w.rng
	head, hops := 40, 7
	if ip[0]>>4 == 4 {
		head, hops = 20, 8
	}
	switch r.IntN(14) {
	case 0:
		ip[hops] = byte(r.IntN(3))
	case 1:
		setECN(ip, byte(r.IntN(4)))
	case 2:
		if len(ip) > head+13 {
			ip[head+13] = byte(r.IntN(256)) // flags of TCP
		}
	case 3:
		if len(ip) > head {
			ip[head] = pick(r, byte(5), 137, 133, 8, 3) // type of ICMP
		}
	case 4:
		if head == 20 {
			ip[6] = pick(r, byte(0), 0x20, 0x40, 0x1f)
		}
	case 5:
		if head == 20 {
			ip[0] = pick(r, byte(0x46), 0x44, 0x4f)
		}
		return // without a right checksum
	case 6:
		if head == 40 {
			ip[5] += byte(r.IntN(3)) - 1
		} else {
			ip[3] += byte(r.IntN(3)) - 1
		}
		return
	case 7:
		if len(ip) > head+8 {
			ip[head+7]++ // a wrong checksum stays one
			return
		}
	}
	seal(ip)
}

// wrap puts a packet of a terminal into a G-PDU, with faults now and then.
func (w *twins) wrap(c *ggsn.ContextInfo, ip []byte) []byte {
	r := w.rng
	from, to := node, c.TEIDData
	switch r.IntN(20) {
	case 0:
		from = pick(r, stranger, farNode, host4)
	case 1:
		to = pick(r, to+1, 0, r.Uint32())
	}
	g := gpdu(from, to, r.IntN(3) == 0, ip)
	switch r.IntN(30) {
	case 0:
		g = put(28, byte(r.IntN(256)))(g)
	case 1:
		g = put(29, byte(r.IntN(256)))(g)
	case 2:
		g = put(31, byte(r.IntN(256)))(g)
	case 3, 4:
		g = put(1, byte(r.IntN(256)))(g) // class
	case 5:
		g[26], g[27] = 0, 0 // no checksum
	}
	return g
}

// step has one packet handled by both.
func (w *twins) step(t *testing.T, at runtest.Hook) {
	c := &w.contexts[w.rng.IntN(len(w.contexts))]
	up, six := w.rng.IntN(2) == 0, c.Prefix6.IsValid() && (!c.Address4.IsValid() || w.rng.IntN(2) == 0)
	ip := w.random(c, six, up)
	if up {
		ip = w.wrap(c, ip)
	}
	if w.rng.IntN(10) == 0 && len(ip) < 1500 {
		ip = append(ip, make([]byte, 1+w.rng.IntN(9))...) // padding of the frame
	}
	verdict, out := w.run(t, at, ip)
	news := w.counted(t)
	for reason := range news {
		w.carried[fmt.Sprint(up, " ", reason)]++
	}
	now := time.Now()
	w.both(func(e *ggsn.Engine, out *ggsn.Output) {
		if e == w.alone || verdict == fastpath.Punt {
			w.kernel(e, bytes.Clone(ip), up, now, out)
		}
	})
	switch verdict {
	case fastpath.Punt:
		w.same(t, fmt.Sprint(at, " ", news), ip)
		return
	case fastpath.Drop:
		if len(w.outs[0].UDP)+len(w.outs[0].IP) > 0 {
			t.Fatalf("%s drops %x, as %v; the engine makes of it\n%+v %x", at, ip, news, w.outs[0].UDP, w.outs[0].IP)
		}
	default:
		w.left(t, at, ip, out, up)
	}
	if n := len(w.outs[0].Records); n > 0 {
		t.Fatalf("%s keeps %x for itself, with which %d charging records are full", at, ip, n)
	}
}

// kernel is what lies between a frame and the engine: what is not whole, or not for a socket of the node, does
// not come there.
func (w *twins) kernel(e *ggsn.Engine, ip []byte, up bool, now time.Time, out *ggsn.Output) {
	if !up {
		if ip[0]>>4 == 4 && (ip[0] < 0x45 || checksum(0, ip[:min(len(ip), int(ip[0]&15)*4)]) != 0) {
			return
		}
		e.HandleIP(0, trim(ip), now, out)
		return
	}
	n := int(binary.BigEndian.Uint16(ip[2:]))
	if ip[0] != 0x45 || n > len(ip) {
		return
	}
	payload := ip[28:n]
	from, _ := netip.AddrFromSlice(ip[12:16])
	e.HandleUDP(ggsn.SocketUser, netip.AddrPortFrom(from, 2152), ip[1], payload, now, out)
}

// trim takes the padding of a frame away, as the kernel does.
func trim(ip []byte) []byte {
	n := 40 + int(binary.BigEndian.Uint16(ip[4:]))
	if ip[0]>>4 == 4 {
		n = int(binary.BigEndian.Uint16(ip[2:]))
	}
	return ip[:min(n, len(ip))]
}

// left compares what a program has sent with what the engine alone would have.
func (w *twins) left(t *testing.T, at runtest.Hook, ip, out []byte, up bool) {
	t.Helper()
	alone := &w.outs[0]
	if up {
		if len(alone.IP) != 1 || len(alone.UDP) != 0 || !bytes.Equal(alone.IP[0], out[14:]) {
			t.Fatalf("%s makes of %x\n%x\nthe engine\n%+v %x", at, ip, out, alone.UDP, alone.IP)
		}
		return
	}
	if len(alone.UDP) != 1 || len(alone.IP) != 0 || !bytes.Equal(alone.UDP[0].Payload, out[42:]) || alone.UDP[0].Class != out[15] ||
		alone.UDP[0].To != netip.AddrPortFrom(node, 2152) {
		t.Fatalf("%s makes of %x\n%x\nthe engine\n%+v %x", at, ip, out, alone.UDP, alone.IP)
	}
	if u := bytes.Clone(out[14:]); u[26]|u[27] != 0 {
		if sealed := seal(bytes.Clone(u)); !bytes.Equal(sealed, u) && transportGood(ip) {
			t.Fatalf("%s makes of %x\n%x, whose checksums are wrong", at, ip, out)
		}
	}
}

// transportGood reports whether the checksum of a packet's transport is right: of a wrong one the outer is wrong, too.
func transportGood(ip []byte) bool { ip = trim(ip); return bytes.Equal(seal(bytes.Clone(ip)), ip) }

// What a program makes of packets is what the engine makes of them; what it leaves the engine gets; and contexts count
// the same over both.
func TestDiffer(t *testing.T) {
	n := 2000
	if v, err := strconv.Atoi(os.Getenv("ISTHMUS_DIFFER_PACKETS")); err == nil {
		n = v / 20
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w := newTwins(t, seed)
	for i := range n {
		w.step(t, runtest.Hooks[i%2])
		if i%500 == 0 {
			w.compareContexts(t)
		}
	}
	w.compareContexts(t)
	t.Log(w.carried)
	if w.carried["true up_forwarded"] == 0 || w.carried["false down_forwarded"] == 0 || w.carried["true volume"]+w.carried["false volume"] == 0 {
		t.Error("programs carried nothing, or no charging record was full")
	}
}

// counted is what a context has counted.
type counted struct {
	Record           uint32
	Up, Down         ggsn.Traffic
	OverUp, OverDown uint64
}

// compareContexts compares what contexts have counted, and when their terminals were seen: clocks of programs are coarse,
// and packets come to one engine behind the other.
func (w *twins) compareContexts(t *testing.T) {
	t.Helper()
	var lists [2][]counted
	var seen [2][]time.Time
	for i, e := range []*ggsn.Engine{w.alone, w.beside} {
		e.Contexts(ggsn.Selection{}, 0, 1000, func(c ggsn.ContextInfo) bool {
			lists[i] = append(lists[i], counted{c.Record, c.Up, c.Down, c.OverUp, c.OverDown})
			seen[i] = append(seen[i], c.LastSeen)
			return true
		})
	}
	if diff := cmp.Diff(lists[0], lists[1]); diff != "" {
		t.Fatalf("contexts (-alone +beside programs):\n%s", diff)
	}
	for i := range seen[0] {
		if late := seen[0][i].Sub(seen[1][i]).Abs(); late > 10*time.Second {
			t.Errorf("of context %d the terminal was seen %s apart", i, late)
		}
	}
}
