// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// storedCharging is an open charging record, followed by its containers.
type storedCharging struct {
	Closed     uint32
	Began      int64
	Opened     int64 // nanoseconds of Unix
	At, Since  counted
	Containers uint16
}

type storedContainer struct {
	QoS      [21]byte
	QoSLen   uint8
	SGSN     [16]byte // of IPv4 as of IPv6 that is mapped to it
	Place    Place
	Up, Down Traffic
	Why      Changes
	Time     int64 // nanoseconds of Unix
}

func (r *charging) appendStored(b []byte) []byte {
	b = appendRecord(b, &storedCharging{r.closed, int64(r.began), r.opened.UnixNano(), r.at, r.since, uint16(len(r.ended))})
	for i := range r.ended {
		one := &r.ended[i]
		in := storedContainer{
			QoSLen: uint8(one.QoS.Len()), SGSN: octets(one.SGSN), Place: one.Place, Up: one.Up, Down: one.Down, Why: one.Why, Time: one.Time.UnixNano(),
		}
		copy(in.QoS[:], one.QoS.Octets())
		b = appendRecord(b, &in)
	}
	return b
}

// charging reads the record of a context; false if it cannot be read, or is not one of what the context has carried.
func (r *resuming) charging(u *pdpContext) (*charging, bool) {
	var in storedCharging
	if !r.record(&in) || in.Containers > MaxChanges || !in.At.within(in.Since) || !in.Since.within(u.counted()) {
		return nil, false
	}
	of := &charging{closed: in.Closed, began: min(time.Duration(in.Began), r.call.at), opened: r.day(in.Opened), at: in.At, since: in.Since}
	for range in.Containers {
		var one storedContainer
		if !r.record(&one) || int(one.QoSLen) > len(one.QoS) {
			return nil, false
		}
		qos, _ := gtp.ParseQoS(one.QoS[:one.QoSLen])
		is := Conditions{qos, netip.AddrFrom16(one.SGSN).Unmap(), one.Place}
		of.ended = append(of.ended, Container{is, one.Up, one.Down, one.Why, r.day(one.Time)})
	}
	return of, true
}

// day is a time by the clock of the day.
func (r *resuming) day(nanoseconds int64) time.Time {
	return time.Unix(0, nanoseconds).In(r.call.now.Location())
}

// within reports whether no count is above another.
func (n counted) within(most counted) bool {
	return n.Up.within(most.Up) && n.Down.within(most.Down) && n.OverUp <= most.OverUp && n.OverDown <= most.OverDown
}

func (t Traffic) within(most Traffic) bool {
	return t.Packets <= most.Packets && t.Octets <= most.Octets
}
