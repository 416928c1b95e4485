// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package offer

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/pion/sdp/v3"

	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/media/g711"
	"github.com/isthmus-net/isthmus/sip/media/sdes"
)

// Limits of what is looked at.
const (
	maxOctets  = 16 << 10
	maxLines   = 32
	maxFormats = 64
	maxKeys    = 16
)

// remote is what the peer told.
type remote struct {
	lines  []stream
	timing sdp.Timing
	chosen int // the line that we take
}

// stream is one m= line. What stands below protos is read of audio that is not refused.
type stream struct {
	line
	port      int
	rtp, rtcp netip.AddrPort // zero: none, a call on hold in the manner of RFC 2543
	// What the peer wants of its own media and of ours.
	sends, receives bool
	formats         []format
	events          uint8
	digits          uint16
	keys            []sdes.Attribute // those that can be used
	// fault says why the line cannot be had.
	fault error
}

// format is a codec of ours with the peer's number for it.
type format struct {
	law         g711.Law
	payloadType uint8
}

// parse reads a description.
func parse(body []byte) (*remote, error) {
	if len(body) > maxOctets {
		return nil, ErrTooLarge
	}
	var d sdp.SessionDescription
	if err := d.Unmarshal(body); err != nil {
		// Of the text nothing is told: it has keys in it, and goes to logs.
		return nil, fmt.Errorf("%w: it is not by the grammar of RFC 8866", ErrMalformed)
	}
	if d.Version != 0 || d.Origin.NetworkType == "" {
		return nil, fmt.Errorf("%w: it is not of version 0, or of no one", ErrMalformed)
	}
	if len(d.MediaDescriptions) > maxLines {
		return nil, ErrTooLarge
	}
	r := &remote{chosen: -1}
	if len(d.TimeDescriptions) > 0 {
		r.timing = d.TimeDescriptions[0].Timing
	}
	for _, m := range d.MediaDescriptions {
		s, err := parseStream(&d, m)
		if err != nil {
			return nil, err
		}
		r.lines = append(r.lines, s)
	}
	return r, nil
}

func parseStream(d *sdp.SessionDescription, m *sdp.MediaDescription) (stream, error) {
	name := m.MediaName
	if name.Media == "" || len(name.Protos) == 0 || len(name.Formats) == 0 || name.Port.Value < 0 || name.Port.Value > 0xffff {
		return stream{}, fmt.Errorf("%w: a line m= lacks something", ErrMalformed)
	}
	if len(name.Formats) > maxFormats {
		return stream{}, ErrTooLarge
	}
	s := stream{line: line{name.Media, name.Protos, name.Formats[0]}, port: name.Port.Value, events: media.None}
	if s.port == 0 || s.media != "audio" {
		return s, nil
	}
	if s.fault = s.parseAddress(d, m); s.fault != nil {
		return s, nil
	}
	s.parseDirection(d, m)
	s.parseFormats(m)
	for _, a := range m.Attributes {
		if a.Key == "crypto" && len(s.keys) < maxKeys {
			if key, err := sdes.Parse(a.Value); err == nil {
				s.keys = append(s.keys, key)
			}
		}
	}
	return s, nil
}

// parseAddress finds where media and reports go.
func (s *stream) parseAddress(d *sdp.SessionDescription, m *sdp.MediaDescription) error {
	c := m.ConnectionInformation
	if c == nil {
		c = d.ConnectionInformation
	}
	if c == nil || c.Address == nil || c.NetworkType != "IN" {
		return fmt.Errorf("%w: a stream has no address", ErrMalformed)
	}
	a, err := address(c.AddressType, c.Address.Address)
	if err != nil || a.IsUnspecified() {
		return err
	}
	s.rtp = netip.AddrPortFrom(a, uint16(s.port))
	s.rtcp = nextPort(s.rtp)
	value, _ := m.Attribute("rtcp")
	s.parseRTCP(strings.Fields(value))
	return nil
}

// parseRTCP reads the port of reports, and perhaps IN IP6 ADDRESS (RFC 3605). What cannot be
// read changes nothing.
func (s *stream) parseRTCP(fields []string) {
	if len(fields) != 1 && len(fields) != 4 {
		return
	}
	a := s.rtp.Addr()
	if len(fields) == 4 {
		var err error
		if a, err = address(fields[2], fields[3]); err != nil || a.IsUnspecified() {
			return
		}
	}
	if port, err := strconv.ParseUint(fields[0], 10, 16); err == nil && port != 0 {
		s.rtcp = netip.AddrPortFrom(a, uint16(port))
	}
}

// address reads one of a line c=. Names are not looked up.
func address(kind, text string) (netip.Addr, error) {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]") // as some write IPv6
	a, err := netip.ParseAddr(text)
	a = a.Unmap()
	switch {
	case err != nil || a.Zone() != "" || a.IsMulticast():
		return a, fmt.Errorf("%w: a stream's address is not a unicast one in digits", ErrNotAcceptable)
	case kind != "IP4" && kind != "IP6" || kind == "IP4" && !a.Is4():
		return a, fmt.Errorf("%w: a stream's address is not of the family that it says", ErrMalformed)
	}
	return a, nil
}

// parseDirection reads who sends: the line's own attribute, or that of the session (RFC 8866
// section 6.7); without one, both.
func (s *stream) parseDirection(d *sdp.SessionDescription, m *sdp.MediaDescription) {
	s.sends, s.receives = true, true
	for _, attributes := range [][]sdp.Attribute{m.Attributes, d.Attributes} {
		for _, a := range attributes {
			switch a.Key {
			case "sendrecv":
			case "sendonly":
				s.receives = false
			case "recvonly":
				s.sends = false
			case "inactive":
				s.sends, s.receives = false, false
			default:
				continue
			}
			return
		}
	}
}

// parseFormats finds the codecs that we have, in the order of the line, each once.
func (s *stream) parseFormats(m *sdp.MediaDescription) {
	have := map[g711.Law]bool{}
	for _, text := range m.MediaName.Formats {
		n, err := strconv.ParseUint(text, 10, 7)
		if err != nil {
			continue
		}
		switch name := encoding(m, text); name {
		case "PCMU/8000", "PCMA/8000":
			law := g711.PCMU
			if name == "PCMA/8000" {
				law = g711.PCMA
			}
			if !have[law] {
				have[law] = true
				s.formats = append(s.formats, format{law, uint8(n)})
			}
		case "TELEPHONE-EVENT/8000":
			if s.events == media.None {
				s.events, s.digits = uint8(n), digits(m, text)
			}
		}
	}
}

// encoding is the name of a payload type in capitals, with its rate: by rtpmap, or a static
// one of RFC 3551.
func encoding(m *sdp.MediaDescription, payloadType string) string {
	for _, a := range m.Attributes {
		if number, name, ok := strings.Cut(a.Value, " "); a.Key == "rtpmap" && ok && number == payloadType {
			return strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(name)), "/1")
		}
	}
	switch payloadType {
	case "0":
		return "PCMU/8000"
	case "8":
		return "PCMA/8000"
	}
	return ""
}

// digits are the events up to 15 that the peer takes: all if it does not say (RFC 4733
// section 2.5.1.1).
func digits(m *sdp.MediaDescription, payloadType string) (mask uint16) {
	for _, a := range m.Attributes {
		number, list, ok := strings.Cut(a.Value, " ")
		if a.Key != "fmtp" || !ok || number != payloadType {
			continue
		}
		for _, item := range strings.Split(strings.TrimPrefix(strings.TrimSpace(list), "events="), ",") {
			low, high, isRange := strings.Cut(strings.TrimSpace(item), "-")
			from, err := strconv.ParseUint(low, 10, 8)
			to := from
			if isRange && err == nil {
				to, err = strconv.ParseUint(high, 10, 8)
			}
			for i := from; err == nil && i <= min(to, 15); i++ {
				mask |= 1 << i
			}
		}
		return mask
	}
	return media.AllDigits
}
