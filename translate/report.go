// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// reportEvery is how often a packet of one reason is reported: who floods the translator
// must not fill the operator's log.
const reportEvery = time.Minute

// Report is a packet that was dropped and of which RFC 7915 wants the operator informed, with
// addresses and ports (sections 4.5 and 5.1.1).
type Report struct {
	Reason Reason
	Proto  uint8
	// Src and Dst are those of the packet as it came; the ports are 0 where it shows none.
	Src, Dst netip.AddrPort
	// Suppressed is how many were dropped for this reason since the last report.
	Suppressed uint64
}

// Reports chooses which of such packets are reported: one a minute of each reason. The zero
// value is ready.
type Reports struct {
	next       [numReasons]time.Time
	suppressed [numReasons]uint64
}

// Dropped takes a packet that was dropped for a reason, and returns what is to be reported
// of it, if anything.
func (r *Reports) Dropped(ip []byte, why Reason, now time.Time) (Report, bool) {
	if !why.Reportable() {
		return Report{}, false
	}
	if now.Before(r.next[why]) {
		r.suppressed[why]++
		return Report{}, false
	}
	report := Report{Reason: why, Suppressed: r.suppressed[why]}
	r.next[why], r.suppressed[why] = now.Add(reportEvery), 0
	report.describe(ip)
	return report, true
}

func (r *Report) describe(ip []byte) {
	view := ViewIPv4
	if len(ip) > 0 && ip[0]>>4 == 6 {
		view = ViewIPv6
	}
	v, _ := view(ip)
	var src, dst uint16
	if transportOf(v.Proto).checksum != 0 && v.Offset == 0 && len(v.Payload) >= 4 {
		src, dst = binary.BigEndian.Uint16(v.Payload), binary.BigEndian.Uint16(v.Payload[2:])
	}
	r.Proto = v.Proto
	r.Src, r.Dst = netip.AddrPortFrom(v.Src, src), netip.AddrPortFrom(v.Dst, dst)
}
