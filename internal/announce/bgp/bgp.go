// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package bgp tells neighboring routers by BGP which prefixes lead to this host.
// It holds the library github.com/osrg/gobgp, whose types do not leave it. It
// uses no route of theirs and passes none on, and touches none of the host's.
package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/retry"
	"github.com/isthmus-net/isthmus/internal/role"
)

const (
	// connectRetry is how long a call that was refused waits, in seconds. The
	// library waits 2 s at least.
	connectRetry = 3
	// deferral is how long a speaker that restarted waits for the end of its
	// neighbors' tables, in seconds. It has no table to choose from; the wait is
	// the library's (RFC 4724, section 4.1).
	deferral = 1
	// sentTimeout bounds the wait until a withdrawal has been sent: one that was
	// never announced to a neighbor is not withdrawn there either.
	sentTimeout = 500 * time.Millisecond
	// sentPoll is how often it looks meanwhile; nothing reports the moment.
	sentPoll = time.Millisecond
)

// Speaker is a BGP speaker. Its methods may be called at any time.
type Speaker struct {
	log       *slog.Logger
	server    *server.BgpServer
	stop      context.CancelFunc // ends the watch
	passwords map[netip.Addr]config.Secret

	mu        sync.Mutex // guards what follows
	cfg       config.Announce
	announced []netip.Prefix
	added     bool // the neighbors have been added

	troubles map[netip.Addr]*retry.Trouble // of neighbors; for [Speaker.changed] alone
	sessions sessions
}

// downAgain is how long a session must have been up for its end to be told again.
const downAgain = time.Minute

// trouble is that of a neighbor.
func (s *Speaker) trouble(neighbor netip.Addr) *retry.Trouble {
	if s.troubles[neighbor] == nil {
		s.troubles[neighbor] = &retry.Trouble{Last: downAgain}
	}
	return s.troubles[neighbor]
}

// Open makes a speaker that has no session yet.
func Open(cfg config.Announce, log *slog.Logger) (*Speaker, error) {
	s := &Speaker{log: log, cfg: cfg, passwords: map[netip.Addr]config.Secret{}, troubles: map[netip.Addr]*retry.Trouble{}}
	for _, n := range cfg.Neighbors {
		var err error
		if s.passwords[n.Address], err = n.Password(); err != nil {
			return nil, err
		}
	}
	level := new(slog.LevelVar)
	level.Set(slog.LevelDebug)
	s.server = server.NewBgpServer(server.LoggerOption(slog.New(quiet{log.Handler()}), level))
	go s.server.Serve()
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	global := &api.Global{Asn: uint32(cfg.LocalAS), RouterId: cfg.RouterID.String(), ListenPort: -1}
	if len(cfg.Listen) > 0 {
		global.ListenPort = listenPort
		for _, a := range cfg.Listen {
			global.ListenAddresses = append(global.ListenAddresses, a.String())
		}
	}
	if err := s.server.StartBgp(ctx, &api.StartBgpRequest{Global: global}); err != nil {
		cancel()
		return nil, fmt.Errorf("cannot listen for BGP on %v, port %d: %w: stop the other routing daemon, or leave listen out", cfg.Listen, listenPort, err)
	}
	err := ownRoutes(ctx, s.server)
	if err != nil {
		return nil, errors.Join(err, s.Close(false))
	}
	err = s.server.WatchEvent(ctx, server.WatchEventMessageCallbacks{OnPeerUpdate: s.changed}, server.WatchPeer())
	if err != nil {
		return nil, errors.Join(err, s.Close(false))
	}
	return s, nil
}

// listenPort is the port of BGP (RFC 4271, section 8).
const listenPort = 179

// AddPeers begins the sessions. A neighbor that kept our routes over a restart drops
// what has not been announced by the time its session is up, so that prefixes
// that are ready should be announced before.
func (s *Speaker) AddPeers() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.added {
		return nil
	}
	s.added = true
	for _, n := range s.cfg.Neighbors {
		err := s.server.AddPeer(context.Background(), &api.AddPeerRequest{Peer: s.peer(n)})
		if err != nil {
			return fmt.Errorf("cannot begin the BGP session with %s: %w", n.Address, err)
		}
	}
	return nil
}

// peer translates a neighbor for the library; s.mu is held.
func (s *Speaker) peer(n config.Neighbor) *api.Peer {
	conf := &api.PeerConf{
		NeighborAddress: n.Address.String(), PeerAsn: uint32(n.AS), LocalAsn: uint32(s.cfg.LocalAS),
		AuthPassword: string(s.passwords[n.Address]),
	}
	transport := &api.Transport{PassiveMode: n.Passive, RemotePort: uint32(n.Port)}
	if n.Local.IsValid() {
		transport.LocalAddress = n.Local.String()
	}
	hold := seconds(s.cfg.HoldTime)
	p := &api.Peer{
		Conf: conf, Transport: transport,
		Timers: &api.Timers{Config: &api.TimersConfig{ConnectRetry: connectRetry, HoldTime: hold, KeepaliveInterval: max(hold/3, 1), IdleHoldTimeAfterReset: connectRetry}},
	}
	if n.Multihop > 0 {
		p.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: uint32(n.Multihop)}
	}
	if n.TTLSecurity {
		p.TtlSecurity = &api.TtlSecurity{Enabled: true, TtlMin: 255} // RFC 5082, section 3: one hop
	}
	graceful := s.cfg.GracefulRestart > 0
	if graceful {
		p.GracefulRestart = &api.GracefulRestart{
			Enabled: true, RestartTime: uint32(seconds(s.cfg.GracefulRestart)), DeferralTime: deferral,
			// Whether a run before this one was heard, the neighbor knows better; the
			// bit is how it keeps the routes of that run until ours are there.
			LocalRestarting: true,
		}
	}
	for _, afi := range []api.Family_Afi{api.Family_AFI_IP, api.Family_AFI_IP6} {
		p.AfiSafis = append(p.AfiSafis, &api.AfiSafi{
			Config:            &api.AfiSafiConfig{Family: &api.Family{Afi: afi, Safi: api.Family_SAFI_UNICAST}, Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: graceful}},
		})
	}
	return p
}

// seconds is a time in whole seconds, rounded up.
func seconds(d time.Duration) uint64 { return uint64((d + time.Second - 1) / time.Second) }

// changed logs sessions that come and go.
func (s *Speaker) changed(e *apiutil.WatchEventMessage_PeerEvent, now time.Time) {
	if e.Type != apiutil.PEER_EVENT_STATE {
		return
	}
	state := &e.Peer.State
	s.sessions.note(state.NeighborAddress, stateWord(state.SessionState.String()) == Established, now)
	at := s.log.With("neighbor", state.NeighborAddress, "as", state.PeerASN)
	switch {
	case stateWord(state.SessionState.String()) == Established:
		at.Info("the BGP session is up", "router_id", state.RouterID)
		s.trouble(state.NeighborAddress).Works(now)
	case state.DisconnectReason != api.PeerState_DISCONNECT_REASON_UNSPECIFIED && stateWord(state.SessionState.String()) == "idle":
		reason := strings.ToLower(strings.TrimPrefix(state.DisconnectReason.String(), "DISCONNECT_REASON_"))
		if s.trouble(state.NeighborAddress).Failed(reason+": "+state.DisconnectMessage, now) {
			at.Warn("the BGP session is down", "reason", reason, "message", state.DisconnectMessage)
		}
	}
}

// Established is the state of a session that carries announcements.
const Established = "established"

// stateWord makes a state of the library a word for status.
func stateWord(name string) string {
	name = strings.TrimPrefix(name, "SESSION_STATE_")
	name = strings.TrimPrefix(name, "BGP_FSM_")
	return strings.ToLower(name)
}

// Announce tells the neighbors about prefixes. Those that are announced already
// are announced again, with the attributes of now.
func (s *Speaker) Announce(prefixes ...netip.Prefix) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range prefixes {
		path, err := s.path(p)
		if err == nil {
			_, err = s.server.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{path}})
		}
		if err != nil {
			return fmt.Errorf("cannot announce %s by BGP: %w", p, err)
		}
		if !slices.Contains(s.announced, p) {
			s.announced = append(s.announced, p)
		}
	}
	return nil
}

// Withdraw takes prefixes back, and returns when the neighbors have been told.
func (s *Speaker) Withdraw(prefixes ...netip.Prefix) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.sent()
	told := false
	for _, p := range prefixes {
		at := slices.Index(s.announced, p)
		if at < 0 {
			continue
		}
		path, err := s.path(p)
		if err == nil {
			err = s.server.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{path}})
		}
		if err != nil {
			return fmt.Errorf("cannot withdraw %s by BGP: %w", p, err)
		}
		s.announced = slices.Delete(s.announced, at, at+1)
		told = true
	}
	if told {
		s.awaitSent(before)
	}
	return nil
}

// sent counts the updates sent to each neighbor with a session.
func (s *Speaker) sent() map[string]uint64 {
	updates := map[string]uint64{}
	s.peers(func(p *api.Peer) {
		if stateWord(p.State.SessionState.String()) == Established {
			updates[p.State.NeighborAddress] = p.State.Messages.Sent.Update
		}
	})
	return updates
}

// awaitSent waits until each neighbor was sent more than before, or has gone.
func (s *Speaker) awaitSent(before map[string]uint64) {
	deadline := time.Now().Add(sentTimeout)
	for time.Now().Before(deadline) {
		now := s.sent()
		waiting := false
		for neighbor, count := range before {
			sent, there := now[neighbor]
			waiting = waiting || there && sent == count
		}
		if !waiting {
			return
		}
		time.Sleep(sentPoll)
	}
}

// Reconfigure takes the attributes of announcements, and renews those that there
// are.
func (s *Speaker) Reconfigure(cfg config.Announce) error {
	s.mu.Lock()
	s.cfg.NextHop4, s.cfg.NextHop6 = cfg.NextHop4, cfg.NextHop6
	s.cfg.MED, s.cfg.LocalPref, s.cfg.Communities = cfg.MED, cfg.LocalPref, cfg.Communities
	announced := slices.Clone(s.announced)
	s.mu.Unlock()
	return s.Announce(announced...)
}

// Neighbors tells the state of the sessions, in the order of the configuration.
func (s *Speaker) Neighbors() []role.Neighbor {
	found := map[string]role.Neighbor{}
	s.peers(func(p *api.Peer) {
		n := role.Neighbor{State: stateWord(p.State.SessionState.String())}
		if up := p.Timers.GetState().GetUptime(); n.State == Established && up != nil {
			n.Since = up.AsTime()
		}
		found[p.State.NeighborAddress] = n
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]role.Neighbor, 0, len(s.cfg.Neighbors))
	for _, c := range s.cfg.Neighbors {
		n, there := found[c.Address.String()]
		if !there {
			n.State = "idle"
		}
		n.Address, n.AS = c.Address, uint32(c.AS)
		list = append(list, n)
	}
	return list
}

func (s *Speaker) peers(each func(*api.Peer)) {
	// A server that has stopped has no peers, and says so by an error.
	_ = s.server.ListPeer(context.Background(), &api.ListPeerRequest{}, each)
}

// Close ends the sessions. Neighbors drop what they have heard, unless leave asks
// them to keep it for a successor; they do that only if a graceful restart was
// agreed on.
func (s *Speaker) Close(leave bool) error {
	err := s.server.StopBgp(context.Background(), &api.StopBgpRequest{AllowGracefulRestart: leave})
	s.stop()
	return err
}
