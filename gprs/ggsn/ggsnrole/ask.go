// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/role"
)

const (
	// listStep is how many records are looked at between two packets, and maxRows how many
	// rows a part has.
	listStep = 4096
	maxRows  = 5000

	maxNSAPI = 15
)

// walk calls f for the contexts that match, from a record on until it returns false; packets
// pass in between. It returns where to go on, 0 behind the last.
func (g *GGSN) walk(sel ggsn.Selection, from uint32, f func(ggsn.ContextInfo) bool) (next uint32) {
	next, more := from, true
	for more {
		running := g.do(func(e *ggsn.Engine, _ time.Time, _ *ggsn.Output) {
			next = e.Contexts(sel, next, listStep, func(x ggsn.ContextInfo) bool {
				more = f(x)
				return more
			})
		})
		more = more && running && next != 0
	}
	return next
}

// selection reads arguments.
func (a *contextArguments) selection() (sel ggsn.Selection, err error) {
	if a.IMSI != "" {
		if sel.IMSI, err = gtp.ParseIMSI(a.IMSI); err != nil {
			return sel, err
		}
	}
	if a.NSAPI != nil && *a.NSAPI > maxNSAPI {
		return sel, fmt.Errorf("an NSAPI is a number from 0 to %d", maxNSAPI)
	}
	sel.NSAPI, sel.APN, sel.TEID = a.NSAPI, a.APN, a.TEID
	if sel.Address, err = role.ParsePrefix(a.Address); err != nil {
		return sel, err
	}
	if a.SGSN != "" {
		if sel.Peer, err = netip.ParseAddr(a.SGSN); err != nil {
			return sel, fmt.Errorf("%q is not an address of an SGSN", a.SGSN)
		}
	}
	return sel, nil
}

// selection is that of arguments, with the number of the network that they name.
func (g *GGSN) selection(a *contextArguments) (sel ggsn.Selection, err error) {
	if sel, err = a.selection(); err != nil || a.VRF == "" {
		return sel, err
	}
	at := slices.Index(g.vrfs, a.VRF)
	if at < 0 {
		return sel, fmt.Errorf("no access point is in a VRF %s: isthmus status lists those that there are", a.VRF)
	}
	number := uint8(at)
	sel.VRF = &number
	return sel, nil
}

// contexts lists a part of the contexts.
func (g *GGSN) contexts(a listArguments) (list Contexts, err error) {
	list.Contexts = []Context{}
	sel, err := g.selection(&a.contextArguments)
	if err != nil {
		return list, err
	}
	if a.Limit < 1 || a.Limit > maxRows {
		return list, fmt.Errorf("limit must be a number from 1 to %d", maxRows)
	}
	list.From = g.walk(sel, a.From, func(x ggsn.ContextInfo) bool {
		c := contextOf(&x)
		c.VRF = g.vrfs[x.VRF]
		list.Contexts = append(list.Contexts, c)
		return len(list.Contexts) < a.Limit
	})
	return list, nil
}

// peers lists the nodes at the other end.
func (g *GGSN) peers(struct{}) (list Peers, err error) {
	list.Peers = []Peer{}
	g.do(func(e *ggsn.Engine, _ time.Time, _ *ggsn.Output) {
		e.Peers(func(p ggsn.PeerInfo) {
			one := Peer{Address: p.Address, Contexts: p.Contexts, Opened: p.Opened, Down: p.Down, Since: p.Since}
			if p.Known {
				one.Restart = &p.Restart
			}
			list.Peers = append(list.Peers, one)
		})
	})
	return list, nil
}

// chosen are the contexts of an order, which is not for all of them by mistake, nor for those of one network
// that have the addresses of another.
func (g *GGSN) chosen(a *deleteArguments) (ggsn.Selection, error) {
	sel, err := g.selection(&a.contextArguments)
	if err == nil && a.none() != a.All {
		err = errors.New("say which contexts, by --imsi or another flag, or --all of them")
	}
	if err == nil && sel.Address.IsValid() {
		g.do(func(e *ggsn.Engine, _ time.Time, _ *ggsn.Output) {
			if n := e.Networks(sel); n > 1 {
				err = fmt.Errorf("contexts of %d networks have addresses of %s: say of which one, by --vrf or --apn", n, a.Address)
			}
		})
	}
	return sel, err
}

// remove ends contexts in good order.
func (g *GGSN) remove(a deleteArguments) (Deleted, error) {
	sel, err := g.chosen(&a)
	if err != nil {
		return Deleted{}, err
	}
	var d Deleted
	if !g.do(func(e *ggsn.Engine, now time.Time, out *ggsn.Output) { d.Deleted = e.Delete(sel, now, out) }) {
		return d, errNotRunning
	}
	return d, nil
}

// closeAtOnce is how many contexts are looked at between packets when records are closed.
const closeAtOnce = 256

// closeRecords closes charging records.
func (g *GGSN) closeRecords(a deleteArguments) (Closed, error) {
	sel, err := g.chosen(&a)
	if err != nil {
		return Closed{}, err
	}
	var d Closed
	for next := uint32(1); next != 0; {
		if !g.do(func(e *ggsn.Engine, now time.Time, out *ggsn.Output) {
			closed := 0
			closed, next = e.CloseRecords(sel, next, closeAtOnce, now, out)
			d.Closed += closed
		}) {
			return d, errNotRunning
		}
	}
	return d, nil
}

// drain takes no more contexts, and ends those that there are.
func (g *GGSN) drain(a drainArguments) (Drained, error) {
	if a.Rate < 0 {
		return Drained{}, fmt.Errorf("a rate of %d is impossible: write 0 or more", a.Rate)
	}
	return Drained{true, a.Rate}, g.setDraining(true, func(e *ggsn.Engine, now time.Time, out *ggsn.Output) { e.Drain(a.Rate, now, out) })
}

// undrain takes contexts again.
func (g *GGSN) undrain(struct{}) (Drained, error) {
	return Drained{}, g.setDraining(false, func(e *ggsn.Engine, _ time.Time, _ *ggsn.Output) { e.Undrain() })
}

func (g *GGSN) setDraining(on bool, f func(*ggsn.Engine, time.Time, *ggsn.Output)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.do(f) {
		return errNotRunning
	}
	g.draining = on
	return nil
}

var questions = []role.Question{
	role.Answer("contexts", (*GGSN).contexts),
	role.Answer("peers", (*GGSN).peers),
	role.Follow("delete", (*GGSN).remove),
	role.Follow("close-records", (*GGSN).closeRecords),
	role.Follow("drain", (*GGSN).drain),
	role.Follow("undrain", (*GGSN).undrain),
}
