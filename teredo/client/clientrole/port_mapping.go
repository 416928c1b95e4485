// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/portmap"
)

// portWait is how long the first question to the server waits for the gateway.
// RFC 6081 section 5.3.3 asks the gateway first, and there is a reason: a NAT that
// maps by destination keeps the mapping that the server has seen first, so that a
// port reserved later would not show in the address. Gateways answer within
// milliseconds; who has none should not wait for more than he does not notice.
const portWait = 500 * time.Millisecond

// portMapping keeps the client's port reserved at the gateway. A nil one wants
// none, and its methods do nothing.
type portMapping struct {
	client  *Client
	keeper  portmap.Keeper
	targets chan portmap.Target // holds the last one that was not taken yet
	first   chan struct{}       // closed with the first outcome
	once    sync.Once
	doubts  chan struct{} // for the keeper
	doubted bool          // events said so, see heed; theirs alone

	mu     sync.Mutex // guards what follows
	last   PortMappingStatus
	target portmap.Target
	failed map[string]uint64 // by portmap.Reason
}

// PortMappingStatus is the state of the port at the gateway.
type PortMappingStatus struct {
	// Method is upnp or nat-pmp while a port is reserved.
	Method string `json:"method,omitempty"`
	// External is what the gateway has reserved.
	External netip.AddrPort `json:"external,omitzero"`
	// Gateway is who was asked.
	Gateway netip.Addr `json:"gateway,omitzero"`
	// Error says why nothing is reserved.
	Error string `json:"error,omitempty"`
}

func newPortMapping(c *Client) *portMapping {
	p := &portMapping{client: c, targets: make(chan portmap.Target, 1), first: make(chan struct{}), doubts: make(chan struct{}, 1), failed: map[string]uint64{}}
	p.keeper = portmap.Keeper{File: portMappingFile(&c.cfg), Log: c.log, Report: p.report, Doubts: p.doubts}
	switch c.cfg.PortMapping {
	case PortMappingUPnP:
		p.keeper.Methods = []portmap.Method{portmap.UPnP}
	case PortMappingNATPMP:
		p.keeper.Methods = []portmap.Method{portmap.NATPMP}
	default:
		p.keeper.Methods = []portmap.Method{portmap.UPnP, portmap.NATPMP}
	}
	return p
}

// portMappingFile is where the reserved port is remembered.
func portMappingFile(cfg *Settings) string {
	if cfg.PortMappingFile != "" {
		return cfg.PortMappingFile
	}
	dir := os.Getenv("STATE_DIRECTORY")
	if dir == "" {
		dir = kept.StateFolder
	}
	return filepath.Join(dir, cfg.Name+".port-mapping")
}

// keep runs until ctx is done, and then until the port is given back. It asks in
// the network namespace of the process.
func (p *portMapping) keep(ctx context.Context) {
	if p != nil {
		p.keeper.Run(ctx, p.targets)
	}
}

// follow reports how packets to the server leave the host now.
func (p *portMapping) follow(e port.Egress, local uint16) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t := portmap.Target{Gateway: e.Gateway}
	if e.Source.IsValid() {
		t.Local = netip.AddrPortFrom(e.Source, local)
	}
	if t == p.target {
		return
	}
	p.target = t
	select { // only the newest counts
	case <-p.targets:
	default:
	}
	p.targets <- t
}

// heed takes an event of the engine. Where the server was silent and answers again, or sees
// another mapping, the gateway may have been restarted and have forgotten the port, which
// would be noticed only when it is reserved again (RFC 6886 section 3.7).
func (p *portMapping) heed(e client.Event) {
	if p == nil {
		return
	}
	switch e.Kind {
	case client.Doubted, client.AddressLost:
		p.doubted = true
		return
	case client.AddressChanged:
	case client.Confirmed, client.GotAddress:
		if !p.doubted {
			return
		}
	default:
		return
	}
	p.doubted = false
	select {
	case p.doubts <- struct{}{}:
	default:
	}
}

// report takes an outcome of the keeper.
func (p *portMapping) report(m portmap.Mapping, err error) {
	log := p.client.log
	p.mu.Lock()
	before := p.last
	p.last = PortMappingStatus{Method: string(m.Method), External: m.External, Gateway: p.target.Gateway}
	if err != nil {
		p.last.Error = err.Error()
		p.failed[portmap.Reason(err)]++
	}
	after := p.last
	p.mu.Unlock()
	p.client.loop.Do(func(now time.Time, out *client.Out) { p.client.engine.PortMapped(m.External, now, out) })
	p.once.Do(func() { close(p.first) })
	switch {
	case after == before:
	case err != nil:
		log.Warn("no port is reserved: "+err.Error(), "gateway", after.Gateway)
	default:
		log.Info("the gateway has reserved the port", "method", m.Method, "external", m.External, "gateway", after.Gateway)
	}
}

// await waits for the first outcome, but not for long.
func (p *portMapping) await(ctx context.Context) {
	if p == nil {
		return
	}
	timer := time.NewTimer(portWait)
	defer timer.Stop()
	select {
	case <-p.first:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// collect reports the state of the port and why none was reserved, by reason.
func (p *portMapping) collect(emit func(role.Metric)) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	reserved := 0.0
	if p.last.External.IsValid() {
		reserved = 1
	}
	emit(role.Level("port_reserved", "Whether the gateway has reserved the client's port.", reserved))
	for _, reason := range portmap.Reasons {
		m := role.Count("port_reservation_failures_total", "Tries to reserve the port that failed, by reason.", p.failed[reason])
		m.Reason = reason
		emit(m)
	}
}

// status is what people want to know; nil where no port is wanted.
func (p *portMapping) status() *PortMappingStatus {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.last
	return &s
}
