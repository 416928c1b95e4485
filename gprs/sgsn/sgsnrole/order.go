// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/sgsn"
	"github.com/isthmus-net/isthmus/internal/role"
)

var questions = []role.Question{
	role.Answer("contexts", (*SGSN).list),
	role.Answer("load", (*SGSN).loaded),
	role.Follow("attach", (*SGSN).attachOrder),
	role.Follow("secondary", (*SGSN).secondaryOrder),
	role.Follow("detach", (*SGSN).detachOrder),
	role.Follow("undelegate", (*SGSN).undelegateOrder),
	role.Follow("move", (*SGSN).moveOrder),
	role.Follow("update", (*SGSN).updateOrder),
	role.Follow("misbehave", (*SGSN).misbehaveOrder),
	role.Follow("load", (*SGSN).loadOrder),
}

// attach opens a context, with the terminal that it is for.
func (s *SGSN) attach(w want, within allowed) (outcome, error) {
	key := gtp.MakeTID(w.IMSI, w.NSAPI)
	t, err := s.occupy(&w, key)
	if err != nil {
		return outcome{}, err
	}
	if err := s.station(t); err != nil {
		return outcome{}, errors.Join(err, s.vacate(t, key))
	}
	w.Link = t.link
	var refused error
	got, err := s.order(key, opening, within, func(now time.Time, out *sgsn.Output) error {
		_, refused = s.engine.Attach(&w.Attachment, now, out)
		return refused
	})
	if refused != nil {
		err = errors.Join(err, s.vacate(t, key))
	}
	return got, err
}

// serving refuses orders while the instance starts, and while it ends.
func (s *SGSN) serving() error {
	select {
	case <-s.ready:
		return s.ending()
	default:
		return errors.New("the SGSN is starting: try again")
	}
}

func (s *SGSN) attachOrder(a Attached) (Done, error) {
	w, err := a.want()
	if err = errors.Join(s.serving(), err); err != nil {
		return Done{}, err
	}
	if a.Local != "" {
		if w.Local, err = s.place(a.Local); err != nil {
			return Done{}, err
		}
	}
	return did(s.attach(w, orderTime))
}

// place is that of one of our addresses.
func (s *SGSN) place(text string) (int, error) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not an address", text)
	}
	i := slices.Index(s.cfg.Local, a)
	if i < 0 {
		return 0, fmt.Errorf("%s is none of the SGSN's addresses, which are %s", a, role.Join(s.cfg.Local))
	}
	return i, nil
}

// did is the answer to an order with an outcome.
func did(got outcome, err error) (Done, error) {
	if err != nil {
		return Done{}, err
	}
	return Done{Event: got.event.Kind.String(), Took: got.event.Took, Context: shown(&got.info)}, nil
}

// Which names a context of a running instance.
type Which struct {
	IMSI  string `arg:"" name:"imsi" json:"imsi" help:"The subscriber."`
	NSAPI uint8  `name:"nsapi" json:"nsapi" default:"5" placeholder:"N" help:"Which of the subscriber's contexts (${default})."`
}

// Validate has kong refuse what is no context.
func (w Which) Validate() error {
	_, err := w.key()
	return err
}

func (w Which) key() (gtp.TID, error) {
	m, fault := imsi(w.IMSI)
	if fault != nil {
		return gtp.TID{}, fault.Err()
	}
	if w.NSAPI > 15 {
		return gtp.TID{}, fmt.Errorf("an NSAPI is 5 to 15, not %d", w.NSAPI)
	}
	return gtp.MakeTID(m, w.NSAPI), nil
}

// about has the engine do something about a context, and waits for what becomes of it.
func (s *SGSN) about(w Which, g goal, do func(key gtp.TID, now time.Time, out *sgsn.Output) error) (Done, error) {
	return s.aboutAs(w, g, func(key gtp.TID) gtp.TID { return key }, do)
}

// aboutAddress is about of what all contexts of an address do together: the first that is there has the events.
func (s *SGSN) aboutAddress(w Which, g goal, do func(key gtp.TID, now time.Time, out *sgsn.Output) error) (Done, error) {
	return s.aboutAs(w, g, s.first, do)
}

// first is that context of the address of one.
func (s *SGSN) first(key gtp.TID) gtp.TID {
	s.loop.Do(func(time.Time, *sgsn.Output) { key = s.engine.First(key) })
	return key
}

// primary is the primary context of one, whether it is there or only to be opened again.
func (s *SGSN) primary(key gtp.TID) gtp.TID {
	s.loop.Do(func(time.Time, *sgsn.Output) {
		if i, _ := s.engine.Context(key); i.Linked != 0 {
			key = gtp.MakeTID(i.IMSI, i.Linked)
		}
	})
	return key
}

func (s *SGSN) aboutAs(w Which, g goal, awaited func(gtp.TID) gtp.TID, do func(key gtp.TID, now time.Time, out *sgsn.Output) error) (Done, error) {
	key, err := w.key()
	if err = errors.Join(s.serving(), err); err != nil {
		return Done{}, err
	}
	return did(s.order(awaited(key), g, orderTime, func(now time.Time, out *sgsn.Output) error { return do(key, now, out) }))
}

// Detached are the arguments of detach.
type Detached struct {
	Which    `embed:""`
	Alone    bool `json:"alone" xor:"how" help:"Close a primary context, and leave its secondary ones open."`
	Teardown bool `json:"teardown" xor:"how" help:"Close all contexts of the address, also by way of a secondary one."`
}

func (s *SGSN) detachOrder(a Detached) (Done, error) {
	return s.about(a.Which, closing, func(key gtp.TID, now time.Time, out *sgsn.Output) error {
		i, _ := s.engine.Context(key)
		return s.engine.Detach(key, a.Teardown || i.Linked == 0 && !a.Alone, now, out)
	})
}

// Undelegated are the arguments of undelegate.
type Undelegated struct {
	Which `embed:""`
}

func (s *SGSN) undelegateOrder(a Undelegated) (Done, error) {
	return s.aboutAddress(a.Which, settling, s.engine.Undelegate)
}

// MovedTo are the arguments of move.
type MovedTo struct {
	Which `embed:""`
	To    string `name:"to" json:"to" placeholder:"ADDRESS" help:"Another of our addresses: the context goes to the SGSN there, and stays open."`
	GTP   string `name:"gtp" json:"gtp" enum:",0,1" default:"" placeholder:"0|1" help:"The other version of GTP, which the SGSN speaks there, or here from now on: the context stays open."`
	GGSN  string `name:"ggsn" json:"ggsn" placeholder:"ADDRESS" help:"Another GGSN: the context is closed, and opened there."`
}

// Validate has kong refuse what is no context, and no way to go.
func (a MovedTo) Validate() error {
	stays := a.To != "" || a.GTP != ""
	if stays == (a.GGSN != "") {
		return errors.New("say where to: --to ADDRESS of ours, --gtp 0 or 1, or both; or --ggsn ADDRESS")
	}
	return a.Which.Validate()
}

func (s *SGSN) moveOrder(a MovedTo) (done Done, err error) {
	if err := a.Validate(); err != nil {
		return done, err
	}
	if a.GGSN != "" {
		ggsn, fault := hostAddress(a.GGSN)
		if fault != nil {
			return done, fault.Err()
		}
		return s.aboutAs(a.Which, opening, s.primary, func(key gtp.TID, now time.Time, out *sgsn.Output) error {
			return s.engine.Reattach(key, ggsn, now, out)
		})
	}
	local := -1
	if a.To != "" {
		if local, err = s.place(a.To); err != nil {
			return done, err
		}
	}
	return s.aboutAddress(a.Which, moving, func(key gtp.TID, now time.Time, out *sgsn.Output) error {
		i, there := s.engine.Context(key)
		if !there {
			return sgsn.ErrUnknown
		}
		to, version := local, i.Version
		if to < 0 {
			to = slices.Index(s.cfg.Local, i.Local)
		}
		if a.GTP != "" {
			version = gtp.Version(a.GTP[0] - '0')
		}
		return s.engine.Move(key, to, version, now, out)
	})
}

// Changed are the arguments of update.
type Changed struct {
	Which   `embed:""`
	Quality `embed:""`
}

func (s *SGSN) updateOrder(a Changed) (Done, error) {
	return s.about(a.Which, updating, func(key gtp.TID, now time.Time, out *sgsn.Output) error {
		i, ok := s.engine.Context(key)
		if !ok {
			return sgsn.ErrUnknown
		}
		return s.engine.Update(key, a.change(i.QoS), now, out)
	})
}

// Misbehaved are the arguments of misbehave.
type Misbehaved struct {
	What  sgsn.Misdeed `arg:"" json:"what" enum:"restart,lose,duplicate,duplicate-other,malformed,stray-user,stray-control,version" help:"restart: tell another restart counter. lose: do not hear the next messages. duplicate: send the next requests twice. duplicate-other: the second with other octets. malformed: requests that cannot be read. stray-user, stray-control: packets and requests of contexts that are not. version: requests of a version that is not."`
	Which `embed:""`
	Times int `json:"times" default:"1" placeholder:"N" help:"How often (${default})."`
}

func (s *SGSN) misbehaveOrder(a Misbehaved) (done Misdone, err error) {
	key, err := a.key()
	if err = errors.Join(s.serving(), err); err != nil {
		return done, err
	}
	if !slices.Contains(sgsn.Misdeeds(), a.What) {
		return done, fmt.Errorf("no misdeed is called %q", a.What)
	}
	s.loop.Do(func(now time.Time, out *sgsn.Output) { err = s.engine.Misbehave(key, a.What, a.Times, now, out) })
	if a.What == sgsn.MisdeedRestart {
		err = errors.Join(err, s.counted())
	}
	return Misdone{What: string(a.What), Times: a.Times}, err
}

// Loaded are the arguments of load.
type Loaded struct {
	GGSN     string        `name:"ggsn" json:"ggsn" required:"" placeholder:"ADDRESS" help:"The GGSN."`
	APN      string        `name:"apn" json:"apn" required:"" placeholder:"NAME" help:"Access point name."`
	Type     string        `json:"type" enum:"v4,v6,v4v6" default:"v4" help:"v4, v6 or v4v6 (${default})."`
	IMSI     string        `name:"imsi" json:"imsi" default:"240010100000000" placeholder:"DIGITS" help:"That of the first context; each other has the next one (${default})."`
	GTP      uint8         `name:"gtp" json:"gtp" enum:"0,1" default:"1" help:"Version of GTP (${default})."`
	Contexts int           `json:"contexts" default:"1000" placeholder:"N" help:"How many are created, and then deleted (${default})."`
	Rate     int           `json:"rate" placeholder:"N" help:"Requests a second (as many as are answered)."`
	Window   int           `json:"window" default:"100" placeholder:"N" help:"Requests that wait for an answer at most (${default})."`
	Hold     time.Duration `json:"hold" default:"0s" help:"How long all contexts stay before they are deleted (${default})."`
}

func (s *SGSN) loadOrder(a Loaded) (started Started, err error) {
	w, err := Terminal{GGSN: a.GGSN, APN: a.APN, Type: a.Type, IMSI: a.IMSI, GTP: a.GTP, NSAPI: 5, TUN: noDevice}.want()
	if err = errors.Join(s.serving(), err); err != nil {
		return started, err
	}
	settings := sgsn.LoadSettings{Template: w.Attachment, Contexts: a.Contexts, Rate: a.Rate, Window: a.Window, Hold: a.Hold}
	done := func(r sgsn.LoadReport) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.report, s.loading = &r, false
	}
	s.loop.Do(func(now time.Time, out *sgsn.Output) {
		if err = s.engine.StartLoad(settings, done, now, out); err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.report, s.loading = nil, true
		}
	})
	return Started{Contexts: a.Contexts}, err
}

// loaded tells how the last load went.
func (s *SGSN) loaded(struct{}) (Load, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.loading && s.report == nil {
		return Load{}, errors.New("there was no load")
	}
	return Load{Going: s.loading, Report: s.report}, nil
}
