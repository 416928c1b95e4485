// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/timerqueue"
	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// atRest is a server with so many associations that do nothing but ask after their peers.
type atRest struct {
	associations int
	paths        int           // of each: the peer has so many addresses, the server one
	farthest     time.Duration // round trip of the farthest peer; the others are spread from a fifth of it on
	prompt       bool
	par          Parameters
}

// peersEnv has the program of the tests be the peers of the server at that address and port.
const peersEnv = "ISTHMUS_SCTP_PEERS"

// BenchmarkAtRest says what of a processor, the kernel's part with it, and of the heap a server takes that has 10,000
// associations in UDP over the loopback at the default HB.Interval of 30 s. The peers, each an engine with addresses and a clock
// of its own, are another process, which does not count; over the loopback who sends a packet pays for its way up to the other's
// socket, where it wakes nobody.
// They are set up over 30 s, so that heartbeats are spread as those of associations that have come one by one.
//
//	go test ./sctp -run - -bench AtRest/paths=2
func BenchmarkAtRest(b *testing.B) {
	empty := heap() // what a part leaves is gone when that of the next is looked at
	for _, paths := range []int{1, 2} {
		for _, farthest := range []time.Duration{0, 100 * time.Millisecond} {
			r := atRest{associations: 10000, paths: paths, farthest: farthest, par: Defaults()}
			b.Run(fmt.Sprintf("paths=%d/rtt=%dms", paths, farthest.Milliseconds()), func(b *testing.B) {
				if r.arePeers(b) {
					return
				}
				e := r.serve(b)
				before, used := e.Stats(), processorTime(b)
				b.ResetTimer()
				for range b.N {
					time.Sleep(2 * r.par.HeartbeatInterval)
				}
				used = processorTime(b) - used
				seen, seconds := r.since(b, e, before), b.Elapsed().Seconds()
				packets := float64(seen.Received + seen.Sent)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(used.Seconds()/seconds*100, "%core")
				b.ReportMetric(float64(heap()-empty)/float64(r.associations), "B/association")
				b.ReportMetric(packets/seconds, "packets/s")
				b.ReportMetric(float64(used.Microseconds())/packets, "us/packet")
				b.ReportMetric(float64(seen.ReceiveCalls)/seconds, "reads/s")
				b.ReportMetric(float64(seen.SendCalls)/seconds, "writes/s")
				const perPath = 3.0 / 33 // a heartbeat, its answer with the other end's, and that one's answer
				if packets/seconds < perPath*float64(r.associations*r.paths) {
					b.Errorf("%.0f packets a second are too few: this was held up", packets/seconds)
				}
			})
		}
	}
}

// heap is how many octets of it are in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestAtRest has a server of associations that ask quickly read heartbeats together when it has done nothing else for a
// while, and not before; and not at all if it is to be prompt.
func TestAtRest(t *testing.T) {
	for name, prompt := range map[string]bool{"rests": false, "prompt": true} {
		t.Run(name, func(t *testing.T) {
			r := quickAtRest()
			if r.prompt = prompt; r.arePeers(t) {
				return
			}
			e := r.serve(t)
			idle := func() time.Duration {
				e.mu.Lock()
				defer e.mu.Unlock()
				return time.Since(e.engine.BusyAt())
			}
			for e.Stats().Rests < 10 && !(prompt && idle() > 2*restAfter) { // the test is held to be over at last
				time.Sleep(10 * time.Millisecond)
			}
			if seen := r.since(t, e, Stats{}); prompt && seen.Rests > 0 || idle() < restAfter {
				t.Errorf("it rests, and was busy %v ago", idle())
			}
		})
	}
}

// TestAtRestNoMore: a server at rest is prompt from when an association, or a path, gets an RTO.Min that a rest is too long for.
func TestAtRestNoMore(t *testing.T) {
	for name, set := range map[string]func(*Conn) error{
		"association": func(c *Conn) error {
			par := c.Parameters()
			par.RTOMin = restRTO - 1
			return c.SetParameters(par)
		},
		"path": func(c *Conn) error {
			path := c.Status().Paths[0]
			path.Parameters.RTOMin = restRTO - 1
			return c.SetPathParameters(path.Pair, path.Parameters)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := quickAtRest()
			if r.arePeers(t) {
				return
			}
			e := r.serve(t)
			come := func(packets uint64) Stats {
				for before := e.Stats(); ; time.Sleep(10 * time.Millisecond) { // the test is held to be over at last
					if s := e.Stats(); s.Received > before.Received+packets && s.Rests >= 10 {
						return s
					}
				}
			}
			come(1)
			if err := set(e.one()); err != nil {
				t.Fatal(err)
			}
			before := e.Stats().Rests
			if s := come(10 * paceRests * briskPackets); s.Rests != before {
				t.Errorf("it has rested %d times since", s.Rests-before)
			}
		})
	}
}

// one is an association of the endpoint.
func (e *Endpoint) one() *Conn {
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.conns {
		return c
	}
	return nil
}

// TestAtRestDue has a server at rest do what is due of an association beside those at rest: it asks one who says nothing again
// and again, and gives that up at last. Each time is behind the second for which who has asked does not rest.
func TestAtRestDue(t *testing.T) {
	r := quickAtRest()
	if r.par.MaxInitRetrans = 4; r.arePeers(t) {
		return
	}
	e := r.serve(t)
	silent, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ask := func() (rests uint64) {
		before, done := e.Stats().Rests, make(chan error, 1)
		go func() {
			_, err := e.Dial(ctx, fmt.Sprintf("127.0.0.1:5000/%d", silent.LocalAddr().(*net.UDPAddr).Port))
			done <- err
		}()
		const patience = 3000 // in rests, of which it takes 155: ticks are counted, which a machine that stands still does not take
		for range patience {
			select {
			case err := <-done:
				if !errors.Is(err, syscall.ETIMEDOUT) {
					t.Fatalf("given up by %v", err)
				}
				return e.Stats().Rests - before
			case <-time.After(rest):
			}
		}
		t.Fatal("it is not given up")
		return 0
	}
	for ask() < 10 { // the machine had it wait so long that it did not rest
	}
}

// quickAtRest are few associations that ask quickly.
func quickAtRest() atRest {
	r := atRest{associations: 300, paths: 1, farthest: 20 * time.Millisecond, par: Defaults()}
	r.par.HeartbeatInterval, r.par.RTOInitial, r.par.RTOMin = 100*time.Millisecond, restRTO, restRTO
	return r
}

// serve is the server's part. It returns when all associations are set up.
func (r *atRest) serve(t testing.TB) *Endpoint {
	c := Config{UDPPort: AnyPort, MaxAssociations: r.associations + 1, Backlog: r.associations, Prompt: r.prompt, Parameters: &r.par}
	l := listen(t, &c, "sctp+udp", "127.0.0.1:0")
	t.Cleanup(func() {
		done, cancel := context.WithCancel(context.Background())
		cancel()
		_ = l.endpoint.Shutdown(done)
	})
	peers := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.bench=^"+t.Name()+"$", "-test.benchtime=1x")
	peers.Env = append(os.Environ(), peersEnv+"="+netip.AddrPortFrom(l.endpoint.addr.Hosts[0], l.endpoint.addr.UDP).String())
	peers.Stderr = os.Stderr
	alive, err := peers.StdinPipe() // they end with it
	if err == nil {
		err = peers.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = alive.Close()
		_ = peers.Wait()
	})
	for range r.associations {
		if _, err := l.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	return l.endpoint
}

// since is what the server has counted since then. Nothing may be lost.
func (r *atRest) since(t testing.TB, e *Endpoint, before Stats) Stats {
	t.Helper()
	s := e.Stats()
	if s.Associations != r.associations || s.ReceiveFull+s.SendFull > 0 {
		t.Fatalf("%d associations are left: %+v", s.Associations, s)
	}
	s.Received, s.Sent = s.Received-before.Received, s.Sent-before.Sent
	s.ReceiveCalls, s.SendCalls = s.ReceiveCalls-before.ReceiveCalls, s.SendCalls-before.SendCalls
	return s
}

// arePeers has a process that is to be the peers be them until its input is closed.
func (r *atRest) arePeers(t testing.TB) bool {
	to := os.Getenv(peersEnv)
	if to == "" {
		return false
	}
	server := netip.MustParseAddrPort(to)
	s, err := port.ListenPairs(port.PairsConfig{Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), 0)})
	if err != nil {
		t.Fatal(err)
	}
	c := &peers{socket: s, at: map[netip.Addr]*restingPeer{}}
	c.timer = time.AfterFunc(time.Hour, func() { c.turn(nil) })
	now := time.Now()
	for i := range r.associations {
		p := &restingPeer{server: server, par: r.par, away: r.farthest/5 + r.farthest*4/5*time.Duration(i%97)/97}
		for path := range r.paths {
			address := netip.AddrFrom4([4]byte{127, byte(1 + path), byte(i >> 8), byte(i)})
			p.local = append(p.local, address)
			c.at[address] = p
		}
		p.end = assoc.New(assoc.Config{Port: 5000, Addresses: p.local, Parameters: r.par, MaxAssociations: 1, Random: func(b []byte) { _, _ = rand.Read(b) }})
		c.due.Set(p, now.Add(r.par.HeartbeatInterval*time.Duration(i)/time.Duration(r.associations)))
	}
	c.turn(nil)
	go func() {
		msgs := make([]port.Message, port.MaxBatch)
		for {
			n, err := s.ReadBatch(msgs)
			if err != nil {
				return
			}
			c.turn(msgs[:n])
			if s.Drained() {
				s.Rest(rest) // else who sends pays for waking this process
			}
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = s.Close()
	return true
}

// peers share a socket, each with its own addresses of the loopback.
type peers struct {
	socket *port.Pairs

	mu    sync.Mutex
	at    map[netip.Addr]*restingPeer
	due   timerqueue.Queue[*restingPeer]
	timer *time.Timer
	out   assoc.Output
	list  []port.Paired
}

// restingPeer is one of them, some round trip away.
type restingPeer struct {
	timerqueue.Node
	end    *assoc.Endpoint
	local  []netip.Addr
	server netip.AddrPort
	par    Parameters
	asked  bool
	away   time.Duration
	coming []coming
}

// coming is a packet on its way to a peer.
type coming struct {
	assoc.Packet
	at time.Time
}

// turn takes packets that have come, and does what is due.
func (c *peers) turn(msgs []port.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, m := range msgs {
		p := c.at[m.To]
		pair := assoc.Pair{Local: m.To, Remote: m.From.Addr()}
		p.coming = append(p.coming, coming{assoc.Packet{Pair: pair, Port: m.From.Port(), Octets: bytes.Clone(m.Payload)}, now.Add(p.away)})
		c.due.Set(p, p.next())
	}
	for p, ok := c.due.Due(now); ok; p, ok = c.due.Due(now) {
		p.turn(now, &c.out)
		c.due.Set(p, p.next())
		c.out.Events = c.out.Events[:0]
	}
	for i := range c.out.Packets {
		c.list = append(c.list, paired(&c.out.Packets[i]))
	}
	_ = c.socket.WriteBatch(c.list) // which is closed at the end
	c.list = c.list[:0]
	c.out.Reset()
	if next := c.due.Next(); !next.IsZero() {
		c.timer.Reset(time.Until(next))
	}
}

// next is when a peer has something to do.
func (p *restingPeer) next() time.Time {
	next := p.end.Next()
	if !p.asked {
		next = time.Now()
	}
	if len(p.coming) > 0 && (next.IsZero() || p.coming[0].at.Before(next)) {
		return p.coming[0].at
	}
	return next
}

func (p *restingPeer) turn(now time.Time, out *assoc.Output) {
	if !p.asked {
		p.asked = true
		if _, err := p.end.Connect([]netip.Addr{p.server.Addr()}, p.server.Port(), p.server.Port(), p.par, now, out); err != nil {
			panic("a peer that cannot ask: " + strconv.Quote(err.Error()))
		}
	}
	for len(p.coming) > 0 && !p.coming[0].at.After(now) {
		p.end.Handle(p.coming[0].Packet, now, out)
		p.coming = p.coming[1:]
	}
	p.end.Tick(now, out)
	for i := range out.Events {
		p.asked = p.asked && out.Events[i].Kind != assoc.Failed // it asks again when it is its turn
	}
}
