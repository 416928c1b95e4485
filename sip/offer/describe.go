// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package offer

import (
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"

	"github.com/pion/sdp/v3"

	"github.com/isthmus-net/isthmus/sip/media"
)

// describe writes what we tell. Its version is one more than that of what was told last,
// unless it is the same (RFC 3264 section 8).
func (s *Session) describe(l Local, send, receive bool) ([]byte, error) {
	body, err := s.description(l, send, receive).Marshal()
	if err != nil {
		return nil, fmt.Errorf("cannot write a session description: %w", err)
	}
	if !bytes.Equal(behindOrigin(body), behindOrigin(s.last)) {
		s.version++
		s.last = body
	}
	return slices.Clone(s.last), nil
}

// behindOrigin is what follows the lines v= and o= of a description of ours, of which nothing but the
// version ever changes.
func behindOrigin(body []byte) []byte {
	_, rest, _ := bytes.Cut(body, []byte("\r\ns="))
	return rest
}

func (s *Session) description(l Local, send, receive bool) *sdp.SessionDescription {
	d := &sdp.SessionDescription{
		Origin: sdp.Origin{
			Username: "-", SessionID: s.set.ID, SessionVersion: s.version + 1,
			NetworkType: "IN", AddressType: family(s.set.Origin), UnicastAddress: s.set.Origin.String(),
		},
		SessionName:           "-",
		ConnectionInformation: connection(l.RTP.Addr()),
		TimeDescriptions:      []sdp.TimeDescription{{Timing: s.timing}},
	}
	for i, other := range s.lines {
		if i == s.audio {
			d.MediaDescriptions = append(d.MediaDescriptions, s.stream(l, send, receive))
			continue
		}
		// Refused, and removed ones stay (RFC 3264 sections 6 and 8).
		d.MediaDescriptions = append(d.MediaDescriptions, &sdp.MediaDescription{
			MediaName: sdp.MediaName{Media: other.media, Protos: other.protos, Formats: []string{other.format}},
		})
	}
	return d
}

// stream describes the stream.
func (s *Session) stream(l Local, send, receive bool) *sdp.MediaDescription {
	m := &sdp.MediaDescription{MediaName: sdp.MediaName{
		Media: "audio", Port: sdp.RangedPort{Value: int(l.RTP.Port())}, Protos: protos(s.secure),
	}}
	add := func(key, value string) { m.Attributes = append(m.Attributes, sdp.NewAttribute(key, value)) }
	format := func(payloadType uint8, name string) {
		number := strconv.Itoa(int(payloadType))
		m.MediaName.Formats = append(m.MediaName.Formats, number)
		add("rtpmap", number+" "+name+"/8000")
	}
	for _, law := range s.laws {
		format(s.types.Of(law), law.String())
	}
	if s.types.Events != media.None {
		format(s.types.Events, "telephone-event")
		add("fmtp", strconv.Itoa(int(s.types.Events))+" 0-15")
	}
	add("ptime", "20")
	if l.RTCP.IsValid() && l.RTCP != nextPort(l.RTP) { // RFC 3605
		value := strconv.Itoa(int(l.RTCP.Port()))
		if l.RTCP.Addr() != l.RTP.Addr() {
			value += " IN " + family(l.RTCP.Addr()) + " " + l.RTCP.Addr().Unmap().String()
		}
		add("rtcp", value)
	}
	if s.secure {
		for _, key := range s.keys {
			add("crypto", key.SDP())
		}
	}
	add(direction(send, receive), "")
	return m
}

func protos(secure bool) []string {
	if secure {
		return []string{"RTP", "SAVP"}
	}
	return []string{"RTP", "AVP"}
}

func direction(send, receive bool) string {
	switch {
	case send && receive:
		return "sendrecv"
	case send:
		return "sendonly"
	case receive:
		return "recvonly"
	}
	return "inactive"
}

// connection is a line c=: an IPv6 address has no brackets there.
func connection(a netip.Addr) *sdp.ConnectionInformation {
	return &sdp.ConnectionInformation{NetworkType: "IN", AddressType: family(a), Address: &sdp.Address{Address: a.Unmap().String()}}
}

func family(a netip.Addr) string {
	if a.Unmap().Is4() {
		return "IP4"
	}
	return "IP6"
}

// nextPort is where RTCP goes if nobody says otherwise (RFC 3264 section 5.1); zero: nowhere, since none is next.
func nextPort(a netip.AddrPort) netip.AddrPort {
	if a.Port() == math.MaxUint16 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a.Addr(), a.Port()+1)
}
