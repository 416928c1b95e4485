// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/sctp"
)

// cutNet is a terminal with two interfaces, and a server with two addresses, or with one behind a router.
//
//	ue ---- wlan ---- server        ue ---- wlan ---- router ---- server
//	   ---- umts ----                  ---- umts ----
type cutNet struct {
	lab        *lab.Lab
	ue, server *lab.Node
	wires      [2]*lab.Wire
	networks   [2]netip.Prefix  // the terminal's
	addresses  string           // of the server, as Dial takes them
	every      [2]time.Duration // from message to message, of the server and of the terminal
	listener   *sctp.Listener
	flows      []*cutFlow
}

// cutLinks are the networks between the terminal and the rest.
var cutLinks = [2]string{"wlan", "umts"}

// cutSingle is the server's address where it has only one.
var cutSingle = netip.MustParseAddr("2001:db8:3::b")

// drawCuts draws the topology, and has the server listen.
func drawCuts(ctx context.Context, e *lab.Env, wires [2]lab.WireConfig, single bool) (*cutNet, error) {
	n, err := drawWays(ctx, e, sctpFailoverName, wires, single)
	if err != nil {
		return nil, err
	}
	if err := n.listen(); err != nil {
		return nil, errors.Join(err, n.lab.Close())
	}
	return n, nil
}

// drawWays draws the topology.
func drawWays(ctx context.Context, e *lab.Env, name string, wires [2]lab.WireConfig, single bool) (*cutNet, error) {
	l, err := e.New(ctx, name)
	if err != nil {
		return nil, err
	}
	n := &cutNet{lab: l, ue: l.Node("ue"), server: l.Node("server"), addresses: "[2001:db8:1::b]/[2001:db8:2::b]", every: [2]time.Duration{cutEvery, cutBack}}
	far := n.server
	if single {
		far = l.Node("router").Forward(false, true)
	}
	for i, link := range cutLinks {
		w, err := l.Wire(n.ue, link, far, link, wires[i])
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		n.wires[i], n.networks[i] = w, netip.MustParsePrefix(fmt.Sprintf("2001:db8:%d::/64", i+1))
		n.ue.Addr(link, fmt.Sprintf("2001:db8:%d::a/64", i+1))
		far.Addr(link, fmt.Sprintf("2001:db8:%d::b/64", i+1))
	}
	if single {
		n.addresses = bracketed(cutSingle)
		l.Link(far, "lan", n.server, "lan")
		far.Addr("lan", "2001:db8:3::1/64")
		n.server.Addr("lan", cutSingle.String()+"/64").Route("default6", "2001:db8:3::1")
		n.ue.Route("default6", "2001:db8:1::b")
	}
	if err = l.Err(); err == nil {
		err = n.acquaint(far)
	}
	if err == nil && single {
		err = n.routeBySource()
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return n, nil
}

// acquaint has both ends of the links know each other for good, as an end knows an access point, behind which a network is
// cut. Else some seconds of silence make the neighbour unreachable, and the kernel keeps data to itself that was sent.
func (n *cutNet) acquaint(far *lab.Node) (err error) {
	for i, link := range cutLinks {
		err = errors.Join(err, n.ue.Meet(link, linkAddress(i, "b"), far), far.Meet(link, linkAddress(i, "a"), n.ue))
	}
	return err
}

// listen has the server listen.
func (n *cutNet) listen() error {
	return n.server.Do(func() (err error) {
		n.listener, err = sctp.Listen("sctp6", fmt.Sprintf("%s:%d", n.addresses, cutPort))
		return err
	})
}

// routeBySource has the terminal send by the interface whose address a packet comes from.
func (n *cutNet) routeBySource() error {
	for i, link := range cutLinks {
		gateway := netip.MustParseAddr(fmt.Sprintf("2001:db8:%d::b", i+1))
		if err := routeFrom(n.ue, link, n.networks[i], gateway, 101+i); err != nil {
			return err
		}
	}
	return nil
}

// close ends what still flows, and the lab.
func (n *cutNet) close() error { return errors.Join(n.end(), n.lab.Close()) }

// end ends what still flows.
func (n *cutNet) end() error {
	for _, f := range n.flows {
		f.abort()
	}
	return n.listener.Close()
}

// cutFlow is an association by which the server sends a message each few milliseconds, and the terminal, too.
type cutFlow struct {
	net        *cutNet
	server, ue *sctp.Conn
	port       uint16 // the terminal's
	clock      *sctpClock
	ends       [2]cutEnd // of the server, and of the terminal
	senders    sync.WaitGroup
	done       chan struct{}
	once       sync.Once
}

// cutEnd is what one end has sent and received.
type cutEnd struct {
	mu         sync.Mutex
	sent, got  uint64
	wrong      int
	last       time.Time // something was delivered
	longest    time.Duration
	inactiveAt time.Time
	err        error
	read       chan struct{} // closed when nothing more comes
}

// associate sets an association up, from the terminal to the server, of which both have parameters.
func (n *cutNet) associate(ctx context.Context, par sctp.Parameters) (server, ue *sctp.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err = n.ue.Do(func() (err error) {
		ue, err = (&sctp.Config{Parameters: &par}).Dial(ctx, "sctp6", fmt.Sprintf("%s:%d", n.addresses, cutPort))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if server, err = n.listener.AcceptSCTP(ctx); err != nil {
		return nil, nil, err
	}
	return server, ue, server.SetParameters(par)
}

// flow sets one up by which both send.
func (n *cutNet) flow(ctx context.Context, par sctp.Parameters) (f *cutFlow, err error) {
	f = &cutFlow{net: n, done: make(chan struct{})}
	if f.server, f.ue, err = n.associate(ctx, par); err != nil {
		return nil, err
	}
	f.port = f.server.RemoteAddr().(*sctp.Addr).Port
	n.flows = append(n.flows, f)
	for i, c := range []*sctp.Conn{f.server, f.ue} {
		f.ends[i].read = make(chan struct{})
		go f.ends[i].receive(c)
		go f.ends[i].note(c.Events())
		f.senders.Add(1)
		go f.send(c, &f.ends[i], n.every[i])
	}
	return f, nil
}

// send sends numbered messages until the flow is to stop.
func (f *cutFlow) send(c *sctp.Conn, end *cutEnd, every time.Duration) {
	defer f.senders.Done()
	tick := time.NewTicker(every)
	defer tick.Stop()
	message := make([]byte, cutSize)
	for {
		select {
		case <-f.done:
			return
		case <-tick.C:
		}
		binary.BigEndian.PutUint64(message, end.sent)
		if err := c.WriteMessage(message, sctp.Message{}); err != nil {
			end.mu.Lock()
			end.err = errors.Join(end.err, err)
			end.mu.Unlock()
			return
		}
		end.mu.Lock()
		end.sent++
		end.mu.Unlock()
	}
}

// receive reads until the association ends.
func (s *cutEnd) receive(c *sctp.Conn) {
	defer close(s.read)
	b := make([]byte, 2*cutSize)
	for {
		n, _, err := c.ReadMessage(b)
		if err != nil {
			return
		}
		s.delivered(n == cutSize && binary.BigEndian.Uint64(b) == s.got)
	}
}

// delivered notes a message, and whether it is the one that was due.
func (s *cutEnd) delivered(due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !s.last.IsZero() {
		s.longest = max(s.longest, now.Sub(s.last))
	}
	if s.last = now; !due {
		s.wrong++
	}
	s.got++
}

// note keeps when a path became inactive.
func (s *cutEnd) note(events <-chan sctp.Event) {
	for ev := range events {
		if ev.Kind == sctp.PathInactive {
			s.mu.Lock()
			if s.inactiveAt.IsZero() {
				s.inactiveAt = time.Now()
			}
			s.mu.Unlock()
		}
	}
}

// resetGap begins to look for the longest time between two deliveries anew, at both ends.
func (f *cutFlow) resetGap() {
	for i := range f.ends {
		f.ends[i].reset()
	}
}

func (s *cutEnd) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.longest = 0
}

// gap is the longest time between two deliveries to the terminal; or since the last one, if that is longer.
func (f *cutFlow) gap() time.Duration { return f.ends[1].gap() }

func (s *cutEnd) gap() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.longest, time.Since(s.last))
}

// inactive is when the server has declared a path inactive.
func (f *cutFlow) inactive() (time.Time, bool) {
	end := &f.ends[0]
	end.mu.Lock()
	defer end.mu.Unlock()
	return end.inactiveAt, !end.inactiveAt.IsZero()
}

// path is what the server knows of the way by one of the links: between addresses of one network, or from the server's
// only one.
func (f *cutFlow) path(link int) sctp.PathStatus {
	paths := f.server.Status().Paths
	at := slices.IndexFunc(paths, func(p sctp.PathStatus) bool {
		of := slices.IndexFunc(f.net.networks[:], func(network netip.Prefix) bool { return network.Contains(p.Local) })
		return f.net.networks[link].Contains(p.Remote) && (of == link || of < 0)
	})
	if at < 0 {
		return sctp.PathStatus{}
	}
	return paths[at]
}

// awaitPrimary waits until data goes by the first link again.
func (f *cutFlow) awaitPrimary(ctx context.Context) error {
	return f.await(ctx, func() bool {
		s := f.server.Status()
		return s.Current == s.Primary && s.State == "established"
	})
}

// awaitBoth waits until both links work again, for both ends.
func (f *cutFlow) awaitBoth(ctx context.Context) error {
	return f.await(ctx, func() bool {
		for _, c := range []*sctp.Conn{f.server, f.ue} {
			s := c.Status()
			working := 0
			for _, p := range s.Paths {
				if p.State == sctp.PathStateActive && !p.Doubted && p.Confirmed {
					working++
				}
			}
			if s.State != "established" || working < 2 {
				return false
			}
		}
		return true
	})
}

// await waits until something is so, for as long as a path may take to be asked again.
func (f *cutFlow) await(ctx context.Context, so func() bool) error {
	err := poll(ctx, time.Minute, 10*time.Millisecond, func(context.Context) (bool, error) { return so(), nil })
	if err != nil {
		return fmt.Errorf("%w: the association is %s, its paths are %+v", err, f.server.Status().State, f.server.Status().Paths)
	}
	return nil
}

// stop ends the flow, and returns how many messages were wrong or did not arrive.
func (f *cutFlow) stop() (wrong int, err error) {
	f.once.Do(func() { close(f.done) })
	f.senders.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err = errors.Join(f.server.CloseWrite(), f.ue.Shutdown(ctx), f.server.Shutdown(ctx))
	for i := range f.ends {
		end, other := &f.ends[i], &f.ends[1-i]
		<-other.read
		err = errors.Join(err, end.err)
		wrong += other.wrong + int(end.sent-other.got)
	}
	return wrong, err
}

// abort ends the flow at once.
func (f *cutFlow) abort() {
	f.once.Do(func() { close(f.done) })
	f.server.Abort("the run is over")
	f.ue.Abort("the run is over")
}
