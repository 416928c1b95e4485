// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/translate/clat"
	"github.com/isthmus-net/isthmus/translate/gateway"
)

// ipv4Grows is what an IPv6 header takes more than one of IPv4. The route of IPv4 has an
// MTU that is so much smaller than the way to the NAT64, and not the device: that carries
// IPv6 for the LAN's prefix, as large as the uplink's network may send it, and no device
// below 1280 bytes does.
const ipv4Grows = packet.IPv6HeaderLen - 20

// session is the time in which uplink and claimed address stay the same.
type session struct {
	cfg     *Settings
	log     *slog.Logger
	at      port.Uplink6
	address netip.Addr
	way     way // of the main loop alone
	routed  int // likewise: the MTU of the default route, 0 while there is none
	engine  *clat.Engine
	loop    loop.Loop[*packet.Batch]
	device  *host.Device
	guest   *port.Guest6
	cancel  context.CancelFunc
	readers sync.WaitGroup

	reports gateway.Reports
	tooBig  chan []byte // packets that the host refused to send, which wait for an answer

	news   chan struct{} // holds one: the claim was decided, or the session has ended
	signal sync.Mutex    // guards what follows
	claim  clat.Claim
	ended  bool
	cause  error // of the end
}

// way is the way to the NAT64.
type way struct {
	prefixes []netip.Prefix
	mtu      int // of IPv6, as far as the host knows
}

func (w way) equal(o way) bool { return w.mtu == o.mtu && slices.Equal(w.prefixes, o.prefixes) }

// maxTooBig bounds the packets that wait for an answer.
const maxTooBig = 16

// Why a session ends that no one stops.
var (
	errTaken = errors.New("somebody else has the address that was chosen")
	errShut  = errors.New("a port was closed")
)

// newSession opens everything, in the network namespace of the calling thread. Nothing
// is sent yet. The address is claimed, or, if it is not valid, a new one.
func newSession(cfg *Settings, h *port.Host, at port.Uplink6, w way, address netip.Addr, log *slog.Logger) (_ *session, err error) {
	s := &session{
		cfg: cfg, log: log, at: at, way: w, address: address,
		reports: gateway.NewReports(), tooBig: make(chan []byte, maxTooBig), news: make(chan struct{}, 1),
	}
	defer func() {
		if err != nil {
			s.closePorts()
		}
	}()
	if !address.IsValid() {
		if s.address, err = randomAddress(at.Subnet); err != nil {
			return nil, err
		}
	}
	if s.engine, err = clat.New(s.settings(w), rand.Reader); err != nil {
		return nil, err
	}
	if s.device, err = host.OpenDevice(h, host.DeviceConfig{
		TUN:     port.TUNConfig{Name: cfg.Interface, MTU: max(at.MTU, packet.MinMTU), Forwarding: true, Offload: true, Lasting: true},
		Without: "this host has no IPv4",
	}, log); err != nil {
		return nil, err
	}
	if s.guest, err = port.OpenGuest6(at, s.address); err != nil {
		return nil, err
	}
	s.guest.OnTooBig(s.refused)
	s.loop.Engine = s.engine
	s.loop.NewOutput = func() *packet.Batch { return new(packet.Batch) }
	s.loop.EachDropped = s.engine.EachDropped
	s.loop.IP = bothWays{s.device.Queues[0], s.guest}
	s.loop.Settled = s.settled
	return s, nil
}

// randomAddress makes an address that no one can guess, in a network of 64 bits (RFC
// 7217 section 1 says why it should not be made of the hardware's).
func randomAddress(subnet netip.Prefix) (netip.Addr, error) {
	raw := subnet.Addr().As16()
	if _, err := rand.Read(raw[8:]); err != nil {
		return netip.Addr{}, fmt.Errorf("no randomness for an address: %w", err)
	}
	raw[8] &^= 3 // neither a group nor said to be unique (RFC 7136 makes both mean nothing)
	return netip.AddrFrom16(raw), nil
}

func (s *session) settings(w way) clat.Settings {
	mac := s.at.MAC
	if len(mac) != 6 {
		mac = nil
	}
	return clat.Settings{Prefixes: w.prefixes, Address: s.address, MAC: mac, LAN: s.cfg.LAN, MTU6: w.mtu}
}

// bothWays gives IPv4 packets to the host, and IPv6 packets to the network.
type bothWays struct {
	host    *port.TUN
	network *port.Guest6
}

// WriteBatch implements [port.IPWriter].
func (b bothWays) WriteBatch(pkts [][]byte) error {
	for len(pkts) > 0 {
		n, v := 1, pkts[0][0]>>4
		for n < len(pkts) && pkts[n][0]>>4 == v {
			n++
		}
		var err error
		if v == 4 {
			err = b.host.WriteBatch(pkts[:n])
		} else {
			err = b.network.WriteBatch(pkts[:n])
		}
		if err != nil {
			return err
		}
		pkts = pkts[n:]
	}
	return nil
}

// start claims the address and translates from then on. It is called in the network
// namespace of newSession.
func (s *session) start(ctx context.Context, host *port.Host) error {
	ctx, s.cancel = context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	if err := s.device.Keep(ctx, group); err != nil {
		return err
	}
	s.readers.Go(func() {
		if err := group.Wait(); err != nil {
			s.end(err)
		}
	})
	read := func(f func() error) {
		s.readers.Go(func() {
			err := f()
			if err == nil {
				err = errShut
			}
			s.end(fmt.Errorf("the translator has lost a port: %w", err))
		})
	}
	read(func() error { return s.loop.ReadTun(s.device.Queues[0], s.engine.HandleHost) })
	read(func() error { return s.loop.ReadTun(s.guest, s.engine.HandleLink) })
	s.readers.Go(func() { s.loop.RunTimer(ctx) })
	s.readers.Go(func() { s.reports.Log(ctx, s.log) })
	s.readers.Go(func() { s.answer(ctx, host) })
	s.loop.Do(s.engine.Tick)
	return nil
}

// settled takes what a batch has brought beside packets.
func (s *session) settled(*packet.Batch) {
	s.noticed(s.engine.Claim())
	s.engine.EachReport(s.reports.Add)
}

// refused takes a packet that the host does not send for its size.
func (s *session) refused(p []byte) {
	select {
	case s.tooBig <- slices.Clone(p):
	default: // the answers to those before it are for most of it, too
	}
}

// answer answers what the host refused to send, with what its route takes, and has the main
// loop look then whether the whole way takes less: of what the kernel learns of a path, and of
// settings, nothing else tells.
func (s *session) answer(ctx context.Context, host *port.Host) {
	for {
		select {
		case p := <-s.tooBig:
			mtu, err := host.PathMTU6(packet.IPv6(p).Dst(), s.at.Index)
			if err != nil {
				continue // the link has gone
			}
			answered := false
			s.loop.Do(func(now time.Time, out *packet.Batch) { answered = s.engine.TooBig(p, mtu, now, out) })
			if answered {
				s.wake()
			}
		case <-ctx.Done():
			return
		}
	}
}

// noticed tells the main loop of a claim that was decided.
func (s *session) noticed(claim clat.Claim) {
	if claim == clat.Tentative {
		return
	}
	s.signal.Lock()
	defer s.signal.Unlock()
	if s.claim == claim {
		return
	}
	s.claim = claim
	if claim == clat.Taken {
		s.log.Debug("the address is taken", "address", s.address)
		s.ended, s.cause = true, errTaken
	}
	s.wake()
}

// end tells the main loop that the session cannot go on.
func (s *session) end(cause error) {
	s.signal.Lock()
	defer s.signal.Unlock()
	if !s.ended {
		s.ended, s.cause = true, cause
		s.wake()
	}
}

// wake wakes the main loop, which looks at the state then.
func (s *session) wake() {
	select {
	case s.news <- struct{}{}:
	default: // it has not looked since the last one
	}
}

// serves reports whether the session fits the uplink. It has room for packets of the size that
// the link had at its start.
func (s *session) serves(at port.Uplink6) bool { return sameUplink(at, s.at) && at.MTU <= s.at.MTU }

// sameUplink reports whether two uplinks are one, in the same network.
func sameUplink(a, b port.Uplink6) bool {
	return a.Name == b.Name && a.Index == b.Index && a.Subnet == b.Subnet && slices.Equal(a.MAC, b.MAC)
}

func (s *session) owned() bool {
	s.signal.Lock()
	defer s.signal.Unlock()
	return s.claim == clat.Owned && !s.ended
}

func (s *session) over() bool {
	s.signal.Lock()
	defer s.signal.Unlock()
	return s.ended
}

// failure is why the session is over.
func (s *session) failure() error {
	s.signal.Lock()
	defer s.signal.Unlock()
	return s.cause
}

// use takes another way.
func (s *session) use(w way) error {
	if w.equal(s.way) {
		return nil
	}
	var err error
	s.loop.Do(func(time.Time, *packet.Batch) { err = s.engine.Reconfigure(s.settings(w)) })
	if err == nil {
		s.log.Info("the way to the NAT64 has changed", "prefixes", w.prefixes, "mtu", w.mtu)
		s.way = w
	}
	return err
}

// mtu4 is the size of the largest IPv4 packet that passes whole.
func (s *session) mtu4() int { return max(s.way.mtu, packet.MinMTU) - ipv4Grows }

// route is the default route, of any MTU: the kernel removes none that has another than is asked.
func (s *session) route() port.Route {
	return port.Route{Dst: defaultRoute, Link: s.device.Name(), Metric: s.cfg.RouteMetric, Source: clat.HostIPv4}
}

// lead gives the device the host's address, and sets or removes the default
// route. That the route has another MTU is no change.
func (s *session) lead(host *port.Host, wanted bool) (changed bool, err error) {
	link, mtu, route := s.device.Name(), s.mtu4(), s.route()
	switch {
	case !wanted && s.routed == 0, wanted && s.routed == mtu:
		return false, nil
	case !wanted:
		s.routed = 0
		return true, host.RemoveRoute(route)
	}
	route.MTU = mtu
	if s.routed != 0 {
		if err = host.AddRoute(route); err == nil {
			s.routed = mtu
		}
		return false, err
	}
	if err := reservedFree(host, link); err != nil {
		return false, err
	}
	if err := host.AddBlackhole(s.address); err != nil {
		return false, err
	}
	if err := host.AddAddr(link, netip.PrefixFrom(clat.HostIPv4, 32)); err != nil {
		return false, err
	}
	if s.cfg.LAN.IsValid() {
		if err := host.AddRoute(port.Route{Dst: s.cfg.LAN, Link: link}); err != nil {
			return false, err
		}
	}
	if err := host.AddRoute(route); err != nil {
		return false, err
	}
	s.routed = mtu
	return true, nil
}

// reservedFree refuses a second user of the addresses: a host may have one (RFC 7335
// section 4).
func reservedFree(host *port.Host, link string) error {
	own, err := host.IPv4()
	if err != nil {
		return err
	}
	for _, a := range own {
		if a.Link != link && clat.Reserved.Contains(a.Prefix.Addr()) {
			return fmt.Errorf("%s has the address %s, so another program translates for this host already: stop that one", a.Link, a.Prefix.Addr())
		}
	}
	return nil
}

// stop takes back all that the session may have set, also while it was aside or when not all
// could be set, and waits for its readers.
func (s *session) stop(host *port.Host) error {
	s.cancel() // nothing is set up again from here on
	err := errors.Join(host.RemoveRoute(s.route()), host.RemoveAddr(s.device.Name(), netip.PrefixFrom(clat.HostIPv4, 32)))
	if s.cfg.LAN.IsValid() {
		err = errors.Join(err, host.RemoveRoute(port.Route{Dst: s.cfg.LAN, Link: s.device.Name()}))
	}
	err = errors.Join(err, host.RemoveBlackhole(s.address))
	s.closePorts()
	s.readers.Wait()
	return err
}

// closePorts closes what is open; the device goes with its last queue.
func (s *session) closePorts() {
	s.device.End(false)
	if s.guest != nil {
		_ = s.guest.Close()
	}
}
