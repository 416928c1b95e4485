// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/sgsn"
)

// Quality are the flags of a quality of service.
type Quality struct {
	Class string `json:"class" enum:"conversational,streaming,interactive,background" default:"background" help:"Traffic class: conversational, streaming, interactive or background (${default})."`
	Up    uint32 `json:"up" default:"8640" placeholder:"KBIT" help:"Highest rate of the terminal in kbit/s (${default})."`
	Down  uint32 `json:"down" default:"8640" placeholder:"KBIT" help:"Highest rate to the terminal in kbit/s (${default})."`
	// Priority is 0 where it is "subscribed".
	Priority uint8 `json:"priority" enum:"0,1,2,3" default:"0" placeholder:"N" help:"Handling priority of interactive traffic, 1 (highest) to 3; 0 is what is subscribed."`
}

var classes = map[string]gtp.TrafficClass{
	"conversational": gtp.ClassConversational, "streaming": gtp.ClassStreaming, "interactive": gtp.ClassInteractive, "background": gtp.ClassBackground,
}

// change is a quality as it is asked for in place of another.
func (q Quality) change(of gtp.QoS) gtp.QoS {
	const r99, r7 = 12, 17 // octets of a profile without and with rates above 8640 kbit/s
	length := r99
	if max(q.Up, q.Down) > 8640 {
		length = r7
	}
	p := of.Profile()
	p.HandlingPriority = q.Priority
	p.Class, p.MaxUp, p.MaxDown = classes[q.Class], gtp.BitRate(q.Up), gtp.BitRate(q.Down)
	return p.QoS(length)
}

// Linked are the arguments of secondary.
type Linked struct {
	Which   `embed:""`
	As      uint8    `json:"as" placeholder:"N" help:"NSAPI of the new context, 5 to 15 (the lowest that is free)."`
	Filters []string `name:"filter" json:"filters" required:"" sep:"none" placeholder:"FILTER" help:"Packets that go by it, such as protocol=udp,remote=192.0.2.0/24,remote-port=5060-5061. Also local, local-port, spi, class=V/MASK, flow, direction=up|down|both (both) and precedence=0..255, the lowest first. Up to 15 filters, each with its flag."`
	Quality `embed:""`
}

// Validate has kong refuse what is no context, or no filter.
func (a Linked) Validate() error {
	_, err := template(a.Filters, a.As)
	if a.As != 0 && (a.As < 5 || a.As > 15) {
		err = errors.Join(err, fmt.Errorf("an NSAPI is 5 to 15, not %d", a.As))
	}
	return errors.Join(a.Which.Validate(), err)
}

// secondaryOrder opens a secondary context of one that is open.
func (s *SGSN) secondaryOrder(a Linked) (Done, error) {
	if err := errors.Join(s.serving(), a.Validate()); err != nil {
		return Done{}, err
	}
	primary, err := a.key()
	if err != nil {
		return Done{}, err
	}
	var i sgsn.Info
	known := false
	s.loop.Do(func(time.Time, *sgsn.Output) {
		if i, known = s.engine.Context(primary); a.As == 0 {
			a.As = s.engine.FreeNSAPI(i.IMSI)
		}
	})
	if !known {
		return Done{}, sgsn.ErrUnknown
	}
	tft, err := template(a.Filters, a.As)
	if err != nil {
		return Done{}, err
	}
	key := gtp.MakeTID(i.IMSI, a.As)
	t := s.joined(i.Link, key)
	var refused error
	got, err := s.order(key, opening, orderTime, func(now time.Time, out *sgsn.Output) error {
		_, refused = s.engine.AttachSecondary(primary, a.As, tft, a.change(i.QoS), now, out)
		return refused
	})
	if refused != nil && t != nil && !errors.Is(refused, sgsn.ErrKnown) {
		err = errors.Join(err, s.vacate(t, key))
	}
	return did(got, err)
}
