// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/sctp"
)

var _ role.Changer[Settings] = (*Instance)(nil)

// Instance is one SCTP media server. It changes nothing on the host.
type Instance struct {
	name     string
	log      *slog.Logger
	ready    chan struct{}
	counters counters
	pending  sync.WaitGroup // goroutines of sessions

	mu       sync.Mutex // guards what follows
	cfg      Settings
	catalog  *catalog // nil before Run
	listener *sctp.Listener
	sessions map[*session]struct{}
	peers    map[netip.Prefix]int // sessions of each
}

// New makes the server that cfg describes, without touching the host.
func New(cfg Settings, log *slog.Logger) (*Instance, error) {
	par := cfg.parameters()
	if err := par.Check(); err != nil {
		return nil, err
	}
	return &Instance{
		name: cfg.Name, log: log, ready: make(chan struct{}), cfg: cfg,
		sessions: map[*session]struct{}{}, peers: map[netip.Prefix]int{},
	}, nil
}

// Name implements [role.Instance].
func (i *Instance) Name() string { return i.name }

// Role implements [role.Instance].
func (i *Instance) Role() string { return name }

// Ready implements [role.Instance].
func (i *Instance) Ready() <-chan struct{} { return i.ready }

// grace is how long the end waits for what was sent to arrive.
const grace = 2 * time.Second

// Run implements [role.Instance]. It opens sockets in the network namespace of the calling thread.
func (i *Instance) Run(ctx context.Context) error {
	if err := i.open(ctx); err != nil {
		return err
	}
	defer i.close()
	i.log.Info("serving", "listen", i.listener.Addr().String(), "root", i.cfg.Root, "sources", len(i.cfg.Sources))
	close(i.ready)
	for {
		c, err := i.listener.AcceptSCTP(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		i.admit(ctx, c)
	}
}

// open opens folder and sockets.
func (i *Instance) open(ctx context.Context) (err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.catalog, err = openCatalog(&i.cfg); err != nil {
		return err
	}
	par := i.cfg.parameters()
	par.StreamsOut = uint16(i.cfg.Streams + 1)
	network, address := i.cfg.address()
	c := sctp.Config{Parameters: &par, UDPPort: i.cfg.UDPPort, HideAddresses: i.cfg.HideAddresses}
	if i.listener, err = c.Listen(ctx, network, address); err != nil {
		i.catalog.close()
	}
	return i.cfg.explain(err)
}

// explain says in the words of the section why the library cannot listen, where its own name other remedies.
func (s *Settings) explain(err error) error {
	switch {
	case errors.Is(err, sctp.ErrKernel):
		return errors.New("the kernel's own SCTP is loaded and would abort associations: write encapsulation = \"udp\", or unload it with `modprobe -r sctp`")
	case !errors.Is(err, unix.EADDRINUSE):
		return err
	case s.Encapsulation == inIP:
		return fmt.Errorf("port %d of SCTP is in use by another instance or program of isthmus on this host: stop it, or choose another port", s.Port)
	}
	return fmt.Errorf("UDP port %d is in use by another program: stop it (ss -lnp -u shows it), or choose another udp_port", s.UDPPort)
}

// close ends all sessions, and waits for that.
func (i *Instance) close() {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	_ = i.listener.Endpoint().Shutdown(ctx) // else they are aborted
	i.pending.Wait()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.catalog.close()
}

// admit begins a session, if there is room.
func (i *Instance) admit(ctx context.Context, c *sctp.Conn) {
	peer := peersOf(c)
	i.mu.Lock()
	defer i.mu.Unlock()
	full := slices.ContainsFunc(peer, func(p netip.Prefix) bool { return i.peers[p] >= i.cfg.SessionsPerPeer })
	switch {
	case len(i.sessions) >= i.cfg.MaxSessions:
		i.counters.drop(reasonSessionsFull)
		c.Abort("as many sessions as may be")
		return
	case full:
		i.counters.drop(reasonPeerFull)
		c.Abort("as many sessions of this peer as may be")
		return
	}
	i.counters.sessions.Add(1)
	s := newSession(i, c, peer)
	i.sessions[s] = struct{}{}
	for _, p := range peer {
		i.peers[p]++
	}
	i.pending.Go(func() {
		s.run(ctx)
		i.forget(s)
	})
}

func (i *Instance) forget(s *session) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.sessions, s)
	for _, p := range s.peer {
		if i.peers[p]--; i.peers[p] == 0 {
			delete(i.peers, p)
		}
	}
}

// count has a session count for an address of its peer, too, by which that has answered.
func (i *Instance) count(s *session) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, p := range peersOf(s.conn) {
		if !slices.Contains(s.peer, p) {
			s.peer = append(s.peer, p)
			i.peers[p]++
		}
	}
}

// peersOf are the prefixes by which a peer is counted: addresses of IPv4, /64 of IPv6. One that it has named, and by which
// it has not answered, may be a stranger's, who is not to pay for it.
func peersOf(c *sctp.Conn) (list []netip.Prefix) {
	for _, path := range c.Status().Paths {
		bits := 32
		if path.Remote.Is6() {
			bits = 64
		}
		if p := netip.PrefixFrom(path.Remote, bits).Masked(); path.Confirmed && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// now returns the settings as they are now.
func (i *Instance) now() Settings {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.cfg
}

// useCatalog returns the catalog as it is now, which stays open until its user is done.
func (i *Instance) useCatalog() *catalog {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.catalog.users.Add(1)
	return i.catalog
}

// Prepare implements [role.Changer]. Transfers that are under way go on as they began; parameters of SCTP are those of
// living associations, too.
func (i *Instance) Prepare(want Settings) (role.Change, error) {
	par := want.parameters()
	if err := par.Check(); err != nil {
		return nil, err
	}
	next, err := openCatalog(&want)
	if err != nil {
		return nil, err
	}
	return func() ([]string, error) {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.catalog != nil {
			i.catalog.close()
		}
		i.cfg, i.catalog = want, next
		var errs []error
		for s := range i.sessions {
			errs = append(errs, s.tune(&want))
		}
		if err := errors.Join(errs...); err != nil {
			i.log.Debug("sessions ended meanwhile", "error", err)
		}
		return nil, nil
	}, nil
}

// Status is the status of a media server.
type Status struct {
	// State is starting or serving.
	State string `json:"state"`
	// Listen is where, as isthmus sctp get takes it; without hosts it is every address.
	Listen string `json:"listen"`
	// Root and Sources are what is sent.
	Root    string   `json:"root,omitempty"`
	Sources []string `json:"sources,omitempty"`
	// Sessions are associations, of MaxSessions that may be; Transfers those that send.
	Sessions    int `json:"sessions"`
	MaxSessions int `json:"max_sessions"`
	Transfers   int `json:"transfers"`
}

// Status implements [role.Instance]; it returns a [Status].
func (i *Instance) Status() any {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, at := i.cfg.address()
	st := Status{State: "starting", Listen: at, Root: i.cfg.Root, Sessions: len(i.sessions), MaxSessions: i.cfg.MaxSessions}
	select {
	case <-i.ready:
		st.State = "serving"
	default:
	}
	for _, s := range i.cfg.Sources {
		st.Sources = append(st.Sources, s.Name)
	}
	for s := range i.sessions {
		if s.sending() != nil {
			st.Transfers++
		}
	}
	return st
}
