// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/internal/timerqueue"
)

// Engine is an SGSN, or several, with terminals. It is for one thread at a time.
type Engine struct {
	set    Settings
	random *rand.ChaCha8
	codec  gtp.Codec
	timers timerqueue.Queue[*timer]

	contexts map[gtp.TID]*PDPContext
	data     map[uint32]*PDPContext // by our TEIDs of the user plane, version 1
	control  map[uint32]*session    // by those of signalling
	sources  map[source]*session
	routers  map[int]*session // by the link behind which they have delegated prefixes
	stations map[int]*station
	paths    map[pathKey]*path
	requests map[requestKey]*request
	free     []*request // for the next requests
	// lastSequence is that of the last request, on whatever path.
	lastSequence uint16
	answers      answers

	indications *ratelimit.PerSource // what may be sent for packets that no one asked for
	misdeeds    misdeeds
	load        *Load // nil: none
	retired     bool
	stats       Stats
	drops       [numDrops]uint64
	faults      [gtp.NumFaults]uint64
	scratch     [512]byte
}

// Limits of what is sent for packets that no one asked for: Error Indications and
// notifications to one peer in a second.
const (
	indicationRate  = 10
	indicationPeers = 64
)

// New makes an engine.
func New(s Settings, random io.Reader) (*Engine, error) {
	if len(s.Addresses) == 0 {
		return nil, errors.New("an SGSN needs an address")
	}
	s.T3Response = cmp.Or(s.T3Response, defaultT3)
	s.N3Requests = cmp.Or(s.N3Requests, defaultN3)
	s.MaxContexts = cmp.Or(s.MaxContexts, defaultContexts)
	var seed [32]byte
	if _, err := io.ReadFull(random, seed[:]); err != nil {
		return nil, fmt.Errorf("no randomness for tunnel identifiers: %w", err)
	}
	limit, err := ratelimit.NewPerSource(ratelimit.PerSecond(indicationRate, indicationRate), indicationPeers, random)
	if err != nil {
		return nil, err
	}
	numbers := rand.NewChaCha8(seed)
	return &Engine{
		set: s, random: numbers, lastSequence: uint16(numbers.Uint64()), indications: limit,
		contexts: map[gtp.TID]*PDPContext{}, data: map[uint32]*PDPContext{}, control: map[uint32]*session{},
		sources: map[source]*session{}, routers: map[int]*session{}, stations: map[int]*station{}, paths: map[pathKey]*path{}, requests: map[requestKey]*request{},
	}, nil
}

// Handle takes a datagram that came by a socket, with a traffic class. The packet of a G-PDU is
// changed in place.
func (e *Engine) Handle(socket int, from netip.AddrPort, class uint8, b []byte, now time.Time, out *Output) {
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	address, plane := planeOf(socket)
	if socket < 0 || address >= len(e.set.Addresses) {
		return
	}
	m := message{socket: socket, plane: plane, from: from, class: class}
	v, t, ok := gtp.Peek(b)
	if ok && v != plane.version() {
		e.otherVersion(&m, b, t, now, out)
		return
	}
	var err error
	if m.Header, err = gtp.ParseHeader(b); err != nil {
		e.refused(err)
		return
	}
	switch {
	case m.Type == gtp.TypeGPDU:
		e.downlink(&m, now, out)
	case plane == PlaneUser:
		e.userMessage(&m, now, out)
	default:
		e.signalling(&m, now, out)
		e.load.fill(e, now, out)
	}
}

// tell puts an event out, or has the load count it that it is of.
func (e *Engine) tell(about Event, out *Output) {
	if !e.load.take(&about) {
		out.Events = append(out.Events, about)
	}
}

// message is a datagram with where it came from.
type message struct {
	gtp.Header
	socket int
	plane  Plane
	from   netip.AddrPort
	class  uint8 // DSCP and ECN
}

// signalling takes a message of the control plane of either version.
func (e *Engine) signalling(m *message, now time.Time, out *Output) {
	if e.uncomprehended(m, now, out) {
		return
	}
	switch m.Type {
	case gtp.TypeEchoRequest:
		e.echoRequest(m, out)
	case gtp.TypeEchoResponse, gtp.TypeCreateResponse, gtp.TypeUpdateResponse, gtp.TypeDeleteResponse:
		e.response(m, now, out)
	case gtp.TypeVersionNotSupported:
		e.versionNotSupported(m, now, out)
	case gtp.TypeErrorIndication:
		e.errorIndication(m, now, out)
	case gtp.TypeUpdateRequest, gtp.TypeDeleteRequest, gtp.TypeInitiateRequest, gtp.TypePDUNotificationRequest:
		e.fromGGSN(m, now, out)
	case gtp.TypeSupportedExtensions:
		e.stats.ExtensionNotifications++
	default:
		e.drops[dropMessage]++
	}
}

// userMessage takes a message of the user plane of version 1 that is no user packet.
func (e *Engine) userMessage(m *message, now time.Time, out *Output) {
	if e.uncomprehended(m, now, out) {
		return
	}
	switch m.Type {
	case gtp.TypeEchoRequest:
		e.echoRequest(m, out)
	case gtp.TypeEchoResponse:
		e.response(m, now, out)
	case gtp.TypeErrorIndication:
		e.errorIndication(m, now, out)
	case gtp.TypeEndMarker:
		e.stats.EndMarkers++
	case gtp.TypeSupportedExtensions:
		e.stats.ExtensionNotifications++
	default:
		e.drops[dropMessage]++
	}
}

// refused counts a datagram by what is wrong with it.
func (e *Engine) refused(err error) {
	var r *gtp.Refusal
	if errors.As(err, &r) {
		e.faults[r.Fault]++
	}
}

// parse reads the elements of a message; what cannot be read is counted.
func (e *Engine) parse(m *message, into gtp.Message) error {
	_, err := e.codec.Parse(&m.Header, into)
	if err != nil {
		e.refused(err)
	}
	return err
}

// send appends a message and sends it. An error would be one of this engine: the fields that
// a message needs are its callers' to fill.
func (e *Engine) send(out *Output, socket int, to netip.AddrPort, h gtp.Header, m gtp.Message) []byte {
	b, err := e.codec.Append(out.Alloc(cap(e.scratch[:])), h, m)
	if err != nil {
		e.refused(err)
		return nil
	}
	out.SendUDP(socket, to, b)
	return b
}

// teid draws a tunnel identifier of version 1 that is not in use.
func (e *Engine) teid() uint32 {
	for {
		id := uint32(e.random.Uint64())
		_, data := e.data[id]
		_, control := e.control[id]
		if id != 0 && !data && !control {
			return id
		}
	}
}

// label draws a flow label of version 0, which tells contexts of one TID apart.
func (e *Engine) label() uint32 { return uint32(e.random.Uint64())&0xffff | 1 }

// tunnelID draws an identifier for a version.
func (e *Engine) tunnelID(v gtp.Version) uint32 {
	if v == gtp.V0 {
		return e.label()
	}
	return e.teid()
}
