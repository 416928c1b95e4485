// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// Charging says when the charging record of a context is closed and the next one opened while it lasts (TS 32.251
// section 5.2.3.4).
type Charging struct {
	Volume  uint64        // octets of both directions in a record; 0: any
	Time    time.Duration // how long a record lasts; 0: as long as its context
	Changes int           // containers that changes have ended; 0: DefaultChanges
	SGSNs   int           // that a record lists; 0: as many as there are
	// Tariffs are times of the day, since midnight, at which containers end.
	Tariffs []time.Duration
}

// MaxChanges is the highest number of [Charging].Changes, which bounds what a context needs; DefaultChanges is the
// usual one.
const (
	MaxChanges     = 100
	DefaultChanges = 10
)

func (l *Charging) check() error {
	if l.Changes < 0 || l.Changes > MaxChanges {
		return fmt.Errorf("%d changes in a charging record are impossible: set 1 to %d, or 0 for %d", l.Changes, MaxChanges, DefaultChanges)
	}
	if l.Time < 0 || l.SGSNs < 0 {
		return fmt.Errorf("a charging record of %s and %d SGSNs is impossible", l.Time, l.SGSNs)
	}
	for _, at := range l.Tariffs {
		if at < 0 || at >= 24*time.Hour {
			return fmt.Errorf("%s since midnight is no time of a day", at)
		}
	}
	return nil
}

// Record is a charging record: what a context has carried since its beginning, or since the record before (TS 32.298
// section 5.1.2.2). The sums of all records of a context are what it has carried.
type Record struct {
	// Context is what it was when the record was closed; what is counted there is that of the record alone.
	Context ContextInfo
	Conditions
	Number         uint32 // of the context's records, from 1
	Opened, Closed time.Time
	Duration       time.Duration
	Cause          Closing
	// Ended tells that it is the last of its context, End why that has ended, and Last that its session has no other.
	Ended, Last bool
	End         End
	SGSNs       []netip.Addr // that had the control plane, one behind the other
	Containers  []Container  // one at least
}

// Container is what was carried under the same conditions.
type Container struct {
	Conditions
	Up, Down Traffic
	Why      Changes // it was closed
	Time     time.Time
}

// Conditions are what a charge depends on.
type Conditions struct {
	QoS  gtp.QoS
	SGSN netip.Addr
	Place
}

// Changes are why a container was closed, one or more (TS 32.298 section 5.1.2.2, Change Condition).
type Changes uint8

// The changes.
const (
	ChangeQoS Changes = 1 << iota
	ChangeTariff
	ChangeClosure // of the record
	ChangeSGSN
	ChangeRAT
	ChangeLocation
	ChangeTimeZone
)

var changeNames = [...]string{"qos_change", "tariff_time", "record_closure", "sgsn_change", "rat_change", "user_location_change", "ms_time_zone_change"}

// Names returns the names of the changes.
func (c Changes) Names() (list []string) {
	for i, name := range changeNames {
		if c&(1<<i) != 0 {
			list = append(list, name)
		}
	}
	return list
}

// changes are those from some conditions to others.
func (was *Conditions) changes(now *Conditions) (c Changes) {
	for _, one := range []struct {
		is   bool
		what Changes
	}{
		{was.QoS != now.QoS, ChangeQoS}, {was.SGSN != now.SGSN, ChangeSGSN}, {was.RAT != now.RAT, ChangeRAT},
		{was.Location != now.Location, ChangeLocation}, {was.TimeZone != now.TimeZone, ChangeTimeZone},
	} {
		if one.is {
			c |= one.what
		}
	}
	return c
}

// Closing is why a record was closed (TS 32.298 section 5.1.2.2, Cause for Record Closing).
type Closing uint8

// The causes: of records of contexts that have ended, and of those that go on.
const (
	CloseNormal Closing = iota
	CloseAbnormal
	CloseRecreated
	CloseManagement
	CloseVolume
	CloseTime
	CloseSGSNs
	CloseChanges
	numClosings
)

// NumClosings is the number of causes, for an array of counters.
const NumClosings = int(numClosings)

var closingNames = [numClosings]string{
	"normal_release", "abnormal_release", "recreated", "management_intervention", "volume_limit", "time_limit", "sgsn_change", "max_changes",
}

// String returns the name of the cause.
func (c Closing) String() string { return closingNames[c] }

// closingOf are the causes of the ends of contexts.
var closingOf = [NumEnds]Closing{
	EndPeer:         CloseNormal,
	EndRecreated:    CloseRecreated,
	EndPeerRestart:  CloseAbnormal,
	EndPath:         CloseAbnormal,
	EndErrorReport:  CloseAbnormal,
	EndSessionLimit: CloseNormal,
	EndIdle:         CloseNormal,
	EndAdmin:        CloseManagement,
	EndPeerUnknown:  CloseAbnormal,
	EndSettings:     CloseManagement,
	EndStopped:      CloseManagement,
	EndRestart:      CloseAbnormal,
}

// nextTariff is when the tariff changes next, in seconds of Unix, by the clock of the day where now is; 0: never.
func (l *Charging) nextTariff(now time.Time) (next int64) {
	year, month, day := now.Date()
	for _, at := range l.Tariffs {
		for later := range 3 { // today, tomorrow, or the day after: a midnight that is not there may be an hour of the day before
			t := time.Date(year, month, day+later, 0, 0, int(at/time.Second), 0, now.Location()).Unix()
			if t > now.Unix() && (next == 0 || t < next) {
				next = t
			}
		}
	}
	return next
}
