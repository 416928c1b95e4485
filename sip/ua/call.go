// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"errors"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// State is how far a call is.
type State uint8

// States.
const (
	// Calling: an INVITE of ours is under way.
	Calling State = iota
	// Alerting: an INVITE of the peer's waits for our answer.
	Alerting
	// Up: the call stands.
	Up
	// Over: it is no more.
	Over
)

var stateNames = [...]string{Calling: "calling", Alerting: "alerting", Up: "up", Over: "over"}

// String is the state in lower case.
func (s State) String() string { return stateNames[s] }

// Call is one call. Everything of it that may change is asked of the engine, by its number.
type Call struct {
	e     *Engine
	id    CallID
	state State
	media Media
	began time.Time
	auth  credentials

	// *dialog is the one that carries the call, nil while an INVITE of ours has none; early
	// are all that it created.
	dialog *dialog
	former *dialog // which dialog has replaced, while the peer may not know of that
	sure   bool    // the peer does, for it has answered our INVITE with Replaces
	early  []*dialog

	outgoing *calling            // the INVITE of a call of ours
	incoming *alerting           // that of the peer's
	ringer   ringer              // of a reliable 180 to that
	offer    *reinvite           // a re-INVITE of ours
	answered *unacked            // a 2xx of ours to an INVITE, until its ACK
	update   *transaction.Client // an UPDATE of ours
	session  sessionTimer

	// path is the one that the peer knows us by, leaves the one of the move under way.
	path       *path
	moving     time.Time          // since when the call leaves path; zero: it does not
	refusedBy  *path              // where the peer refused us; it is not asked again for that
	toward     *path              // where Moving has said that it goes
	unsure     bool               // the peer may know another path than path
	repaired   bool               // by Replaces
	obliged    bool               // the wait is one that the peer has asked for
	held, hold bool               // as the peer knows it, and as it shall be
	again      *transaction.Timer // the next attempt after a refusal
	limit      *transaction.Timer // of an INVITE of ours that has only provisional responses
	attempts   int
	waits      int // that the peer has asked for, by Retry-After or 491, since it has last taken something or refused it for good
	repair     repair
}

// CallInfo is a call as its owner may see it.
type CallInfo struct {
	ID     CallID
	State  State
	Remote message.URI // the peer's address of record
	Target message.URI // where the peer is reached
	// Path is the one by which the peer knows us.
	Path         int
	Moving, Held bool
	Began        time.Time
}

// Errors of orders.
var (
	ErrNoCall = errors.New("there is no such call")
	ErrNoPath = errors.New("no address is in use")
	ErrFull   = errors.New("too many calls")
	ErrState  = errors.New("the call is not in a state for that")
)

// Call returns what is known of a call.
func (e *Engine) Call(id CallID) (CallInfo, bool) {
	c := e.calls[id]
	if c == nil {
		return CallInfo{}, false
	}
	info := CallInfo{ID: id, State: c.state, Remote: c.remote(), Moving: !c.moving.IsZero(), Held: c.held, Began: c.began}
	if c.dialog != nil {
		info.Target = c.dialog.target
	}
	if c.path != nil {
		info.Path = c.path.ID
	}
	return info, true
}

// newCall makes a call.
func (e *Engine) newCall(s State, media Media) *Call {
	e.last++
	e.stats.Calls++
	c := &Call{e: e, id: e.last, state: s, media: media, began: e.now, path: e.use, auth: credentials{homes: e.homes()}}
	c.again = e.timer(c.pursue)
	c.limit = e.timer(c.overdue)
	c.session.init(c)
	c.repair.init(c)
	c.ringer.init(c)
	e.calls[c.id] = c
	return c
}

// remote is the peer's address of record.
func (c *Call) remote() message.URI {
	switch {
	case c.dialog != nil:
		return c.dialog.remote.URI
	case c.outgoing != nil:
		return c.outgoing.to
	}
	return message.URI{}
}

// way is the path by which the call's messages leave: the one in use, or the call's own while
// there is none, or the peer has refused to follow there.
func (c *Call) way() *path {
	if c.e.use == nil || c.refusedBy == c.e.use && !c.path.lost {
		return c.path
	}
	return c.e.use
}

// tell puts out an event about the call.
func (c *Call) tell(v Event) {
	v.Call, v.Remote = c.id, orURI(v.Remote, c.remote())
	if v.Path == 0 && c.path != nil {
		v.Path = c.path.ID
	}
	c.e.tell(v)
}

func orURI(a, b message.URI) message.URI {
	if a.Host != "" {
		return a
	}
	return b
}

// take has requests of a dialog find the call.
func (c *Call) take(d *dialog) { c.e.dialogs[d.dialogKey] = c }

// drop forgets a dialog.
func (c *Call) drop(d *dialog) {
	if d != nil && c.e.dialogs[d.dialogKey] == c {
		delete(c.e.dialogs, d.dialogKey)
	}
}

// end ends the call without a word to the peer.
func (c *Call) end(status int, why string) {
	if c.state == Over {
		return
	}
	c.state = Over
	for _, t := range []*transaction.Timer{c.again, c.limit, c.session.refresh, c.session.expire, c.repair.start} {
		c.e.layer.StopTimer(t)
	}
	if c.offer != nil && c.offer.tx != nil {
		c.offer.tx.Forget()
	}
	c.repair.cancel()
	if c.update != nil {
		c.update.Forget()
	}
	c.answered.stop()
	c.incoming.stop()
	c.tell(Event{Kind: Ended, Status: status, Reason: why})
	for _, d := range append(c.early, c.dialog, c.former) {
		c.drop(d)
	}
	delete(c.e.calls, c.id)
}

// find returns a call for an order.
func (e *Engine) find(id CallID) (*Call, error) {
	if c := e.calls[id]; c != nil {
		return c, nil
	}
	return nil, ErrNoCall
}

// HangUp ends a call, in whatever state it is: by CANCEL, a refusal or BYE.
func (e *Engine) HangUp(id CallID, now time.Time, out *Output) error {
	defer e.enter(now, out)()
	c, err := e.find(id)
	if err != nil {
		return err
	}
	switch c.state {
	case Calling:
		c.cancel()
	case Alerting:
		c.refuseIncoming(603)
	default:
		c.bye(0, "")
	}
	return nil
}

// bye ends the call by BYE. The call is over for us at once (section 15.1.1).
func (c *Call) bye(status int, why string) {
	c.end(status, why)
	c.sayBye(c.dialog)
	if c.former != nil {
		c.former.target = c.dialog.target
		c.sayBye(c.former)
	}
}

// maxByes is how often a BYE is sent, for challenges and for addresses that are lost.
const maxByes = 4

// sayBye sends BYE in a dialog. If the address is lost before the answer comes, it is sent
// again by another, so that the peer does not stay in a call with no one.
func (c *Call) sayBye(d *dialog) {
	e, tries := c.e, 0
	var send func()
	send = func() {
		tries++
		req, p := d.request("BYE"), c.way()
		c.auth.apply(e, req)
		e.send(req, p, func(res *message.Message, err error) {
			lost := err != nil && p != nil && p.lost
			switch {
			case tries >= maxByes:
			case lost && e.use == nil && len(e.waiting) < maxWaiting:
				e.waiting = append(e.waiting, send)
			case lost && e.use != nil, res != nil && c.auth.challenged(e, req, res):
				send()
			}
		}, nil)
	}
	e.locate(d.hop(), send)
}

// maxWaiting bounds what is sent when an address comes.
const maxWaiting = 4096

// Hold asks the peer to send nothing, or to send again.
func (e *Engine) Hold(id CallID, on bool, now time.Time, out *Output) error {
	defer e.enter(now, out)()
	c, err := e.find(id)
	if err != nil {
		return err
	}
	if c.state != Up {
		return ErrState
	}
	c.hold = on
	c.pursue()
	return nil
}
